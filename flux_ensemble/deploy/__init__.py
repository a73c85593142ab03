"""Start of what runs ensembles: the service of a Flux instance, and runs of this machine.

Loads the broker modules, supervises the service, and has the checks of `flux ensemble doctor`: as a
client of Flux and of the service, inside of which nothing here runs. `run_host` is without Flux.
"""
