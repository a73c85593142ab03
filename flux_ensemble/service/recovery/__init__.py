"""Recovery of ensembles: after a crash, after a loss of the job manager, after a shutdown."""
