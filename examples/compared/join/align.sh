# align.sh SAMPLE LANE: stands for an alignment; one lane cannot be read.
[ "$1 $2" = "s2 1" ] && { echo "lane 1 of s2 is damaged" >&2; exit 1; }
echo "depth=$((10 * $2))"
