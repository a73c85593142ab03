"""The order of jobs in a group with `order: longest-first`, by predicted duration.

The next job depends only on the jobs that wait and on their ranks, and not on the history. So a
restored engine, which builds the heap anew, sends the same jobs as the one before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from math import inf

from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.intervals import IntervalSet

#: The number of jobs of a group, those that wait longest, that are compared.
WINDOW = 10_000


class LongestFirst:
    """The waiting jobs of one queue of the backlog, the longest first.

    Jobs without a prediction come first, in the order of submission.

    Args:
        rank: predicts the seconds of job `index` of a firing; None if it cannot.
        version: returns the version of the ranks; these are the same while it is.
    """

    def __init__(
        self, rank: Callable[[Firing, int], float | None], version: Callable[[], int]
    ) -> None:
        self._rank = rank
        self._version = version
        self._made = -1
        #: Entries are (-seconds, number of the firing, index of the job).
        self._heap: list[tuple[float, int, int]] = []
        self._firings: dict[int, Firing] = {}
        #: The firings with jobs that are not in the heap yet: number, firing, first such index.
        self._later: deque[tuple[int, Firing, int]] = deque()

    def append(self, number: int, firing: Firing) -> None:
        """Add a firing behind the others.

        Args:
            number: the number of the firing in the backlog.
            firing: the firing.
        """
        if firing.sent is None:
            firing.sent = IntervalSet()
        self._firings[number] = firing
        self._later.append((number, firing, firing.first))

    def forget(self, number: int) -> None:
        """Forget a firing of which all jobs have been sent."""
        del self._firings[number]

    def drop(self) -> None:
        """Have the heap built anew, since waiting jobs were dropped."""
        self._made = -1

    def _renew(self, queue: Iterable[tuple[int, Firing]]) -> None:
        """Start anew with the firings of the queue."""
        self._made = self._version()
        self._heap.clear()
        self._later.clear()
        self._firings.clear()
        for number, firing in queue:
            self.append(number, firing)

    def _prepare(self, queue: Iterable[tuple[int, Firing]]) -> None:
        """Bring the heap up to date: start anew if the ranks changed, and fill it."""
        if self._made != self._version():
            self._renew(queue)
        self._fill()

    def head(self, queue: Iterable[tuple[int, Firing]]) -> tuple[Firing, int]:
        """Return firing and index of the next job; `queue` is as for `next`."""
        self._prepare(queue)
        _, number, index = self._heap[0]
        return self._firings[number], index

    def next(self, queue: Iterable[tuple[int, Firing]], room: int) -> tuple[Firing, int, int]:
        """Take the next jobs from the heap: one, or several with consecutive indices.

        Args:
            queue: all firings of the queue, with their numbers; not empty.
            room: the most jobs.

        Returns:
            The jobs' firing, the index of the first, and their number.
        """
        self._prepare(queue)
        heap = self._heap
        _, number, first = heappop(heap)
        count = 1
        while count < room:
            self._fill()
            if not heap or heap[0][1:] != (number, first + count):
                break
            heappop(heap)
            count += 1
        return self._firings[number], first, count

    def _fill(self) -> None:
        """Fill the heap up to `WINDOW` jobs."""
        heap, later = self._heap, self._later
        while later and len(heap) < WINDOW:
            number, firing, index = later.popleft()
            sent = firing.sent
            assert sent is not None
            entries: list[tuple[float, int, int]] = []
            while index < firing.stop and len(heap) + len(entries) < WINDOW:
                if index not in sent:
                    entries.append((self._key(firing, index), number, index))
                index += 1
            if len(entries) > 1:
                heap.extend(entries)
                heapify(heap)
            elif entries:
                heappush(heap, entries[0])
            if index < firing.stop:
                later.appendleft((number, firing, index))

    def _key(self, firing: Firing, index: int) -> float:
        # Jobs of a request come first, in order: they are sent by one command, since the reply
        # waits for their ids.
        seconds = None if firing.request is not None else self._rank(firing, index)
        return -inf if seconds is None else -seconds
