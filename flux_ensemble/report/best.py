"""The best points of a sweep: the jobs with the most and the least of each key of their memos."""

from __future__ import annotations

import math
from collections.abc import Mapping
from heapq import heappush, heappushpop
from operator import itemgetter
from typing import Any

#: Points that are kept at each end, and keys of memos that are looked at.
KEPT = 10
MAX_KEYS = 50

#: A value, with what tells equal ones apart, and the job.
_Held = tuple[float, int, Mapping[str, Any]]


class Points:
    """The jobs with the most and the least of each key.

    >>> points = Points()
    >>> for number in range(100):
    ...     points.add({"id": number, "memo": {"fom": number % 7, "text": "x"}})
    >>> [job["id"] for job in points.best("fom", "max")[:3]], points.keys
    ([6, 13, 20], ['fom'])
    >>> points.best("fom", "min")[0]["id"]
    0
    """

    def __init__(self) -> None:
        self._most: dict[str, list[_Held]] = {}
        self._least: dict[str, list[_Held]] = {}
        self._seen: dict[str, int] = {}

    @property
    def keys(self) -> list[str]:
        """The keys with numbers, the most frequent first."""
        return sorted(self._seen, key=lambda key: -self._seen[key])

    def add(self, job: Mapping[str, Any]) -> None:
        """Take a job."""
        for key, value in job["memo"].items():
            if type(value) not in (int, float) or not math.isfinite(value):
                continue
            if key not in self._seen:
                if len(self._seen) == MAX_KEYS:
                    continue
                self._seen[key], self._most[key], self._least[key] = 0, [], []
            self._seen[key] += 1
            # Of equal values the first ones stay.
            order = -self._seen[key]
            _keep(self._most[key], (value, order, job))
            _keep(self._least[key], (-value, order, job))

    def best(self, key: str, mode: str) -> list[Mapping[str, Any]]:
        """The best jobs by a key, the best one first; `mode` is "max" or "min"."""
        held = (self._most if mode == "max" else self._least).get(key, [])
        return [job for _, _, job in sorted(held, key=itemgetter(0, 1), reverse=True)]


def _keep(held: list[_Held], job: _Held) -> None:
    if len(held) < KEPT:
        heappush(held, job)
    elif job[:2] > held[0][:2]:
        heappushpop(held, job)
