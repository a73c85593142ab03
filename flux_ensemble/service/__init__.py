"""The service in a Flux instance: takes requests, drives ensembles, sends responses and entries.

`service` wires the parts together. `requests` receives requests, `load` and `lifetimes` take an
ensemble from its load to its end, `store` is the KVS, `recovery` restores ensembles after a crash,
and `status` is what the service reports about itself.
"""
