"""Members that are worker processes of this machine, started by a home without Flux."""
