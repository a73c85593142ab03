"""The gRPC service: scaling of clusters, and remote access to ensembles.

                ┌─ predecessors.py ─────┐                 ┌─ instances.py ── client ── Flux
    calls.py ───┤                       ├─ operations.py ─┤
    │    │      └─ ensemble_service.py ─┘                 └─ a backend ── MiniCluster, dry run
    │    └ health_reflection.py
    admission.py ── peers.py

`server.py` puts everything together, and limits connections; `admission.py` limits calls;
`peers.py` reads from a client's certificate which clusters it may use; `tls.py` handles certificate
files; `client.py` is the client. `backend.py` is the contract of what changes sizes, with the dry
run; `flux_instances.py` and `k8s.minicluster` are others. The protocols are in `protocol/`, where
`pip install` also puts the generated code.
"""
