# spring.sh K DT: the energy of a weight at a spring of stiffness K, after 1,000 steps of DT.
# Ends with 3 if that blows up.
awk -v k="$1" -v dt="$2" 'BEGIN {
    x = 1; start = k / 2
    for (step = 1; step <= 1000; step++) {
        v -= k * x * dt / 2; x += v * dt; v -= k * x * dt / 2
        energy = (v * v + k * x * x) / 2
        if (energy > 1000 * start) { print "step " step ": energy " energy >"/dev/stderr"; exit 3 }
    }
    printf "energy=%.3f\n", energy / start
}'
