"""The gRPC service: what an ensemble asks to grow or shrink, and remote access to ensembles.

                ┌─ predecessors.py ─┐                 ┌─ instances.py ── client.py ── Flux
    calls.py ───┤                   ├─ operations.py ─┤
    │    │      └─ typed.py ────────┘                 └─ backends/ ───── MiniCluster, dry run
    │    └ aside.py (health, reflection)
    admission.py ── peers.py

`server.py` puts it together, and bounds connections with `connections.py`; `admission.py` bounds
the calls; `peers.py` reads from a client's certificate which members it may ask for; `tls.py` has
the files of certificates; `client.py` is the other end. The protocols are in `protocol/`,
where `pip install` puts the generated code too. Everything here needs the extra `grpc`, so
nothing else imports it before the command `flux ensemble grpc` does.
"""
