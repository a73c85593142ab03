"""The entries of the eventlog about changes of sizes."""

from __future__ import annotations

from flux_ensemble.eventlog import JobId, OfFiring
from flux_ensemble.words import counted


class Scale(OfFiring, tag="scale"):
    """The member is asked for `by` more nodes, or fewer, which makes `to`."""

    member: str
    by: int
    to: int

    def sentence(self, t: float, jobid: JobId) -> str:
        verb = "grow" if self.by > 0 else "shrink"
        return f"{self.title}: {verb} the instance to {counted(self.to, 'node')}"
