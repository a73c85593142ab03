"""What the service says when it is asked: ensembles, the instance, its own performance."""
