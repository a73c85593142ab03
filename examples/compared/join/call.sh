# call.sh SAMPLE DEPTH: stands for a program that calls the variants of a sample.
echo "$1: called at depth $2" >"$1.vcf"
