"""How ensembles come back: after a crash, after the job manager was gone, after a shutdown."""
