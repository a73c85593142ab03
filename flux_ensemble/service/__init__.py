"""The service in a Flux instance: requests in, ensembles driven, responses and entries out.

`service` wires the parts together. `requests` is the way in, `loading` and `lifetimes` take an
ensemble from its load to its end, `store` is the KVS, `recovery` what happens after a crash,
`status` what the service reports of itself.
"""
