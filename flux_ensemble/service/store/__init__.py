"""The store of the service's ensembles: the KVS of Flux."""
