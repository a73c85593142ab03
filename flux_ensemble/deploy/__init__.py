"""Start of the service in a Flux instance, and supervision of it.

Loads the broker modules, and has the checks of `flux ensemble doctor`. This package connects to
Flux and to the service as a client; nothing here runs inside the service.
"""
