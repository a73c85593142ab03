"""A note of how many jobs have ended, in a file that a crash of the instance does not undo.

    EndedFile ──► STATEDIR/ensemble.ended ──► read by the service of the next instance

After a crash of its first broker, Flux goes back to its last checkpoint, and the log of an ensemble
with it, so what it undid can be known from outside the KVS only. The file is written each second
while ensembles have jobs in the queue, and nothing depends on it but what is said.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from flux_ensemble.metrics.names import INTERRUPTED
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.ports import Loop

#: Seconds between two notes.
SECONDS = 1.0


class Ended(NamedTuple):
    """The entry of an ensemble.

    Args:
        run: that of the ensemble.
        jobs: how many of its jobs had ended, each attempt counted.
        t: when that was so, in epoch seconds.
    """

    run: int
    jobs: int
    t: float


NOTHING_NOTED: Final[Mapping[str, Ended]] = MappingProxyType({})


def ended_jobs(ensemble: Ensemble) -> int:
    """Return how many jobs of an ensemble have ended with a result, each attempt counted."""
    counts = ensemble.engine.stats.counts.values()
    return sum(count["attempts"] - count[INTERRUPTED] for count in counts)


class EndedFile:
    """The file.

    Args:
        path: of it; None if the instance has no directory that outlives it.
        ensembles: all ensembles.
        loop: for the timer and the time.
        ready: returns whether the service knows of all jobs that have ended.

    Attributes:
        before: what it had when this service began.
    """

    def __init__(
        self,
        path: Path | None,
        ensembles: Iterable[Ensemble],
        loop: Loop,
        ready: Callable[[], bool],
    ) -> None:
        self._path = path
        self._ensembles = ensembles
        self._loop = loop
        self._ready = ready
        self._noting = False
        self.before: Mapping[str, Ended] = {} if path is None else _read(path)

    def stirred(self) -> None:
        """Note each second what has ended, for as long as there are jobs in the queue."""
        if not self._noting and self._path is not None:
            self._noting = True
            self._loop.timer(SECONDS, self._tick)

    def _tick(self) -> None:
        if self._ready():
            self._note()
        if any(one.live and one.engine.workload.queued for one in self._ensembles):
            self._loop.timer(SECONDS, self._tick)
        else:
            self._noting = False

    def _note(self) -> None:
        """Replace the file; nothing depends on it, so an error is none of the service."""
        assert self._path is not None
        t = self._loop.now()
        noted = {one.name: [one.run, ended_jobs(one), t] for one in self._ensembles if one.live}
        fresh = self._path.with_name(f"{self._path.name}.new")
        with contextlib.suppress(OSError):
            fresh.write_text(json.dumps(noted))
            os.replace(fresh, self._path)


def _read(path: Path) -> dict[str, Ended]:
    """Return what a file has; nothing of one that is missing, cut off, or no such file."""
    try:
        value: Any = json.loads(path.read_bytes())
        noted = {name: Ended(*one) for name, one in value.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    shapes = all(
        type(one.run) is int and type(one.jobs) is int and type(one.t) in (int, float)
        for one in noted.values()
    )
    return noted if shapes else {}
