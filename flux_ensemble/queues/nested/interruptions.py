"""Exceptions of jobs that are caused by the end of their member, and not by the jobs.

When a member ends, its broker cancels what runs. When its allocation expires, Flux starts the
waiting jobs and ends all jobs by a time limit, some milliseconds before the broker announces its
end (flux-core `src/modules/job-exec/job-exec.c`). Neither is an outcome of the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The note of the exception by which a job ends with the allocation.
EXPIRED = "resource allocation expired"

#: Seconds before the end of an allocation from which a time limit may be that of the allocation.
MARGIN_SECONDS = 1.0


class Interruptions:
    """The end of a member.

    Attributes:
        begun: its broker has begun to shut down.
        t_expires: when its allocation expires; None without a limit.
    """

    def __init__(self) -> None:
        self.begun = False
        self.t_expires: float | None = None

    def interrupts(self, entry: Mapping[str, Any]) -> bool:
        """Return whether an event of a job is caused by the end of the member.

        >>> ends = Interruptions()
        >>> ends.t_expires = 100.0
        >>> context = {"type": "timeout", "severity": 0, "note": EXPIRED}
        >>> ends.interrupts({"name": "exception", "timestamp": 99.5, "context": context})
        True
        >>> ends.interrupts({"name": "exception", "timestamp": 50.0, "context": context})
        False
        """
        if entry["name"] != "exception":
            return False
        context, t = entry.get("context") or {}, entry["timestamp"]
        if context.get("severity", 0) != 0:
            return False
        if self.begun:
            return True
        return (
            context.get("type") == "timeout"
            and context.get("note") == EXPIRED
            and self.t_expires is not None
            and t >= self.t_expires - MARGIN_SECONDS
        )
