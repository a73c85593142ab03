"""Growing and shrinking a Flux instance without losing a job.

`scaler` is the entry point. `provisioner` is the contract for starting and stopping brokers;
`site_command` and `minicluster` are its two implementations.
"""
