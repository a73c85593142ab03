# qc.sh SAMPLE: stands for a check that takes longer than the alignment.
sleep 0.2
