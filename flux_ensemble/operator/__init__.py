"""The operator: an Ensemble in Kubernetes becomes MiniClusters, their gRPC service, and a status.

    spec ──check──► problems, or ──render──► manifests ──reconcile──► cluster
                                    cluster ──observe──► status ──► status, events

`render`, `check` and `status` are pure: no cluster, no clock, no random numbers. `reconcile` is the
one place where something is decided on what the cluster has. `watches` reads, and all that is
written goes through `cluster`, by lightkube.
"""
