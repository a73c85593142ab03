"""Declares what documents may say of members on this machine."""

from __future__ import annotations

from flux_ensemble.document.keys.provider import PoolProvider

PROVIDER = PoolProvider(
    site="this machine",
    starts="this machine, in a process for each",
    page="[workers on this machine](slurm-members.md#on-this-machine)",
    refuses={
        key: f"{key!r} is of Flux, and the members are processes of this machine; leave it out"
        for key in ("queue", "bank", "constraint", "attributes", "service")
    },
    # Where the document is for a batch system, too, 'from' is all that changes.
    ignores=("options",),
    workers="members on this machine are workers, which need no Flux: write 'runs: tasks'",
)
