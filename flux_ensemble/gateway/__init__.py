"""The gRPC service: scaling of clusters, and remote access to ensembles.

                ┌─ predecessors.py ─┐                 ┌─ instances.py ── client.py ── Flux
    calls.py ───┤                   ├─ operations.py ─┤
    │    │      └─ typed.py ────────┘                 └─ backends/ ───── MiniCluster, dry run
    │    └ aside.py (health, reflection)
    admission.py ── peers.py

`server.py` puts everything together, and limits connections with `connections.py`; `admission.py`
limits calls; `peers.py` reads from a client's certificate which clusters it may use; `tls.py`
handles certificate files; `client.py` is the client. The protocols are in `protocol/`, where `pip
install` also puts the generated code. Everything here needs the extra `grpc`, so nothing else
imports it before the command `flux ensemble grpc` does.
"""
