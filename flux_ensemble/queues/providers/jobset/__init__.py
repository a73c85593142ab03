"""Members that are JobSets of Kubernetes, one pod each: what is asked for, and what becomes of it.

Nothing here speaks to an API server: what does is a `Cluster` (`flux_ensemble.k8s.jobsets`).
"""
