"""The queue of Ensembles to reconcile: each one once at a time, later again after a failure."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable

from flux_ensemble.k8s.operator.cluster import ClusterFailure

log = logging.getLogger(__name__)

#: The namespace and name of an Ensemble.
Key = tuple[str, str]

#: Pauses after failures in seconds, doubled each time: the first and the longest.
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0

#: Returned for an Ensemble that is to be reconciled again when no other is due, but at most after
#: so many seconds.
LAST = -1.0
_LONGEST_LAST = 15.0


class WorkQueue:
    """Calls a function for Ensembles, in threads of its own.

    An Ensemble that is added during its call is called once more afterwards. An Ensemble that fails
    delays no other: it waits for its next time, and the threads continue.

    Args:
        look: called for an Ensemble; returns seconds until the next call, `LAST`, or None.
        told: called after each call, with its duration in seconds and whether it succeeded.
        threads: number of calls at once.
    """

    def __init__(
        self,
        look: Callable[[str, str], float | None],
        told: Callable[[float, bool], None] = lambda seconds, good: None,
        *,
        threads: int = 4,
    ) -> None:
        self._look = look
        self._told = told
        self._changed = threading.Condition()
        self._due: dict[Key, float] = {}
        self._order: list[tuple[float, Key]] = []
        # Ensembles that wait for all others, with their latest times; the oldest is the first.
        self._last: dict[Key, float] = {}
        self._busy: set[Key] = set()
        self._again: set[Key] = set()
        self._pauses: dict[Key, float] = {}
        self._closed = False
        self._begun: dict[int, float] = {}
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"look-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, key: Key, after: float = 0.0) -> None:
        """Call for an Ensemble, at once or after some seconds; the earlier time counts."""
        with self._changed:
            if key in self._busy and not after:
                self._again.add(key)
                return
            if key in self._last:
                # Its change is seen at the call that is due already.
                return
            due = time.monotonic() + after
            if due < self._due.get(key, float("inf")):
                self._due[key] = due
                heapq.heappush(self._order, (due, key))
                self._changed.notify()

    def age(self) -> float:
        """Return the age of the oldest call under way, in seconds."""
        with self._changed:
            now = time.monotonic()
            return max((now - begun for begun in self._begun.values()), default=0.0)

    def close(self) -> None:
        """Begin no more calls, and wait for those under way."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(30.0)

    def _work(self, number: int) -> None:
        while (key := self._take(number)) is not None:
            began, after, good = time.monotonic(), None, False
            try:
                after = self._look(*key)
                good = True
            except ClusterFailure as failure:
                log.warning("%s/%s: %s", *key, failure)
            except Exception:
                # An unforeseen error with one Ensemble must not end the calls for others.
                log.exception("%s/%s: an unexpected error", *key)
            self._told(time.monotonic() - began, good)
            self._done(number, key, after, good)

    def _take(self, number: int) -> Key | None:
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                while self._order and self._due.get(self._order[0][1]) != self._order[0][0]:
                    heapq.heappop(self._order)
                is_due = bool(self._order) and self._order[0][0] <= now
                last = next(iter(self._last), None)
                if last is not None and (not is_due or self._last[last] <= now):
                    key = last
                    del self._last[key]
                elif is_due:
                    _, key = heapq.heappop(self._order)
                    del self._due[key]
                    if key in self._busy:
                        self._again.add(key)
                        continue
                else:
                    self._changed.wait(self._order[0][0] - now if self._order else None)
                    continue
                self._busy.add(key)
                self._begun[number] = now
                return key
        return None

    def _done(self, number: int, key: Key, after: float | None, good: bool) -> None:
        with self._changed:
            self._busy.discard(key)
            self._begun.pop(number, None)
            again = key in self._again
            self._again.discard(key)
            if good and after == LAST:
                self._pauses.pop(key, None)
                self._due.pop(key, None)
                self._last[key] = time.monotonic() + _LONGEST_LAST
                self._changed.notify()
                return
        if good:
            self._pauses.pop(key, None)
            if again:
                self.add(key)
            elif after is not None:
                self.add(key, max(after, FIRST_PAUSE))
        else:
            pause = self._pauses.get(key, FIRST_PAUSE)
            self._pauses[key] = min(2 * pause, LONGEST_PAUSE)
            self.add(key, pause)
