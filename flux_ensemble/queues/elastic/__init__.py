"""Growing and shrinking a Flux instance without losing a job.

`scaler` is the entry point. `provisioner` is the contract for starting and stopping brokers;
`site_command` is one implementation; the other, for MiniClusters, is in `k8s.scaler`.
"""
