"""The service in a Flux instance: requests in, ensembles driven, responses and entries out.

`service` is the whole; `requests` is the way in, `store` the KVS, `recovery` what happens after
a crash, `status` what the service says of itself.
"""
