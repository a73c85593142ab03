"""Getting the service to run in a Flux instance, and keeping it running.

Loading the broker modules, and the checks of `flux ensemble doctor`. It speaks to Flux
and to the service as a client; nothing here runs inside the service.
"""
