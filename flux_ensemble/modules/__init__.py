"""The files that `flux module load` runs. Flux's own Python reads them, from 3.6 on."""
