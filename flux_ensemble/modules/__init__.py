"""The files that `flux module load` runs. Each must be readable by Flux's own Python."""
