"""Reports of the service: ensembles, the instance, its own performance."""
