"""Growing and shrinking a Flux instance without losing a job.

`scaler` is the way in; `provisioner` is the contract of what starts and stops brokers, and
`site_command` and `minicluster` are the two that there are.
"""
