# relax.sh STRUCTURE TEMPERATURE: stands for a program that reads in.relax and STRUCTURE.cif in its
# working directory, and writes files with fixed names there.
steps=$(cat in.relax) && atoms=$(cat "$1.cif") || exit 1
echo "$1 at $2 K: $steps steps with $atoms" >log.relax
