"""The operator: an Ensemble in Kubernetes becomes MiniClusters, their gRPC service, and a status.

    spec ──check──► problems, or ──render──► manifests ──reconcile──► cluster
                                    cluster ──observe──► status ──► status, events

`render`, `check` and `status` are pure: no cluster, no clock, no random numbers. Only `reconcile`
decides by what the cluster has. `watches` reads, and everything is written through `cluster`, by
lightkube.
"""
