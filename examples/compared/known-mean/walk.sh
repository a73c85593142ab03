# walk.sh SEED: how far 100 random steps lead; with seed 5 it fails. Notes in walks.txt that it ran,
# and takes $PAUSE seconds longer.
echo "$1" >>walks.txt
sleep "${PAUSE:-0}"
[ "$1" -ne 5 ] || { echo "seed 5: the random numbers have run out" >&2; exit 1; }
awk -v seed="$1" 'BEGIN {
    srand(seed); rand()
    for (step = 0; step < 100; step++) { turn = 6.2831853 * rand(); x += cos(turn); y += sin(turn) }
    printf "distance=%.3f\n", sqrt(x * x + y * y)
}'
