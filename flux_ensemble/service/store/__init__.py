"""Where the service keeps its ensembles: the KVS of Flux."""
