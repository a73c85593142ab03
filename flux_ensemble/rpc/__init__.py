"""The gRPC service: what an ensemble asks to grow or shrink, and remote access to ensembles.

    predecessors.py ─┐                            ┌─ instances.py ── client.py ── Flux
                     ├─ gate.py ── operations.py ─┤
    typed.py ────────┘                            └─ backends/ ───── MiniCluster, dry run

`server.py` puts it together; `tls.py` says who may ask for which member; `client.py` is
the other end. The protocols are in `protocol/`, where `pip install` puts the generated
code too. Everything here needs the extra `grpc`, so nothing else imports it before the
command `flux ensemble grpc` does.
"""
