"""Times and places of jobs' allocations, added to their `start` events.

The journal has R only with `alloc`, an event that an ensemble needs for nothing else. So its data
are kept until the job starts, and are put into the context of `start`: `t_alloc`, in epoch seconds,
and `ranks`, an idset (RFC 22).

There is one such message for each job, and R can be long (a scheduler may add its own graph to it).
So a message that has nothing but `alloc` is not decoded: a pattern finds what is needed
(`take_text`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flux_ensemble.engine.intervals import ids, joined

#: The event that comes with R.
ALLOC = "alloc"

#: A message with this event alone, up to the end of the list of ranks in its R (RFC 20). That list
#: has no brackets, and quotes within a JSON string are escaped, so neither can be mistaken.
_ALONE = re.compile(
    rb'\{"id":([0-9]+),"events":\[\{"timestamp":([0-9.]+),"name":"alloc"(?:,.*?)?\}\],'
    rb'"R":\{"version":1,"execution":\{"R_lite":\[\{"rank":"([-0-9,]+)"([^]]*)\]'
)
_RANK = re.compile(rb'"rank":"([-0-9,]+)"')

#: From here on an expiration stands for none: Fluxion has the last second that fits into 64 bits as
#: nanoseconds, where sched-simple has 0.
_NO_EXPIRATION = 9.2e9


class Allocations:
    """Allocations of the jobs that have not started yet."""

    def __init__(self) -> None:
        self._jobs: dict[int, dict[str, Any]] = {}

    def take_text(self, text: bytes) -> bool:
        """Take in a message of the journal with nothing but `alloc`; return False for any other."""
        found = _ALONE.match(text)
        if found is None:
            return False
        job, t, ranks, more = found.groups()
        if b'"rank"' in more:
            parts = [ranks, *_RANK.findall(more)]
            ranks = joined(rank for part in parts for rank in ids(part.decode())).encode()
        self._jobs[int(job)] = {"t_alloc": float(t), "ranks": ranks.decode()}
        return True

    def take(self, message: Mapping[str, Any]) -> None:
        """Take in a message of the journal, and complete its `start` event."""
        job = message["id"]
        for entry in message["events"]:
            name = entry["name"]
            if name == ALLOC:
                ranks = ranks_of(message.get("R"))
                self._jobs[job] = {"t_alloc": entry["timestamp"], "ranks": ranks}
            elif name == "start" and job in self._jobs:
                entry["context"] = {**(entry.get("context") or {}), **self._jobs.pop(job)}
            elif name == "clean":
                self._jobs.pop(job, None)

    def clear(self) -> None:
        """Forget all allocations."""
        self._jobs.clear()


def ranks_of(resources: Any) -> str | None:
    """Return the ranks in R (RFC 20); None if there is no R.

    >>> ranks_of({"execution": {"R_lite": [{"rank": "0-1"}, {"rank": "3"}, {"rank": "2"}]}})
    '0-3'
    """
    try:
        parts = [part["rank"] for part in resources["execution"]["R_lite"]]
    except (LookupError, TypeError):
        return None
    return parts[0] if len(parts) == 1 else joined(rank for part in parts for rank in ids(part))


def expires_at(expiration: float | None) -> float | None:
    """Return when an allocation expires by its R (RFC 20); None if it has no time limit.

    >>> [expires_at(one) for one in (1795807795.5, 0.0, 9223372036.0, None)]
    [1795807795.5, None, None, None]
    """
    return expiration if expiration and expiration < _NO_EXPIRATION else None
