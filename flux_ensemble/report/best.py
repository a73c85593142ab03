"""The best jobs by each key of their memos: successful ones with the greatest and least values.

The status has the best job or trial; this module has the points next to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from heapq import heappush, heappushpop
from operator import itemgetter
from typing import Any

#: Number of points kept at each end, and of keys of memos that are examined.
KEPT = 10
MAX_KEYS = 50

#: A value, with a number that orders equal ones, and the job.
_Held = tuple[float, int, Mapping[str, Any]]


class Points:
    """The successful jobs of each group with the greatest and least values of each key.

    >>> points = Points()
    >>> for number in range(100):
    ...     memo = {"fom": number % 7, "text": "x"}
    ...     outcome = "success" if number != 6 else "failed"
    ...     points.add({"id": number, "group": "md", "outcome": outcome, "memo": memo})
    >>> [job["id"] for job in points.first("md", "fom", "max")[:3]], points.keys
    ([13, 20, 27], ['fom'])
    >>> points.first("md", "fom", "min")[0]["id"], points.first("other", "fom", "min")
    (0, [])
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, str], list[_Held]] = {}
        self._seen: dict[str, int] = {}

    @property
    def keys(self) -> list[str]:
        """The keys with numbers, the most frequent first."""
        return sorted(self._seen, key=lambda key: -self._seen[key])

    def add(self, job: Mapping[str, Any]) -> None:
        """Add a job."""
        for key, value in job["memo"].items():
            if type(value) not in (int, float) or not math.isfinite(value):
                continue
            if key not in self._seen:
                if len(self._seen) == MAX_KEYS:
                    continue
                self._seen[key] = 0
            self._seen[key] += 1
            if job["outcome"] != "success":
                continue
            # Of equal values the first ones stay.
            order = -self._seen[key]
            for mode, sign in (("max", 1), ("min", -1)):
                held = self._held.setdefault((job["group"], key, mode), [])
                _keep(held, (sign * value, order, job))

    def first(self, group: str, key: str, mode: str) -> list[Mapping[str, Any]]:
        """Return the jobs of a group by a key, in order; `mode` is "max" or "min"."""
        held = self._held.get((group, key, mode), [])
        return [job for _, _, job in sorted(held, key=itemgetter(0, 1), reverse=True)]


def _keep(held: list[_Held], job: _Held) -> None:
    if len(held) < KEPT:
        heappush(held, job)
    elif job[:2] > held[0][:2]:
        heappushpop(held, job)
