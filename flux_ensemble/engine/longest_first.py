"""Which jobs of a group with `order: longest-first` are next: those that take longest.

What is next follows from the jobs that wait and from their ranks alone, and not from how that came
about. So a restored engine, which makes the heap anew, sends the same jobs as the one before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from math import inf

from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.intervals import IntervalSet

#: So many jobs of a group, those that wait longest, are compared.
WINDOW = 10_000


class LongestFirst:
    """The jobs of one queue of the backlog that wait, the longest first.

    Jobs of which nothing is predicted come first, as they were asked for.

    Args:
        rank: predicts the seconds of job `index` of a firing; None where it cannot.
        version: what the ranks depend on besides the job; they are the same while it is.
    """

    def __init__(
        self, rank: Callable[[Firing, int], float | None], version: Callable[[], int]
    ) -> None:
        self._rank = rank
        self._version = version
        self._made = -1
        #: (-seconds, number of the firing, index of the job).
        self._heap: list[tuple[float, int, int]] = []
        self._firings: dict[int, Firing] = {}
        #: The firings with jobs that are not in the heap, and the first of these.
        self._later: deque[tuple[int, Firing, int]] = deque()

    def append(self, number: int, firing: Firing) -> None:
        """Add a firing behind the others.

        Args:
            number: its number in the backlog.
            firing: the firing.
        """
        if firing.sent is None:
            firing.sent = IntervalSet()
        self._firings[number] = firing
        self._later.append((number, firing, firing.first))

    def forget(self, number: int) -> None:
        """All jobs of a firing have been sent."""
        del self._firings[number]

    def drop(self) -> None:
        """Jobs do not wait any more that were not sent."""
        self._made = -1

    def _renew(self, queue: Iterable[tuple[int, Firing]]) -> None:
        """Begin with the firings that there are."""
        self._made = self._version()
        self._heap.clear()
        self._later.clear()
        self._firings.clear()
        for number, firing in queue:
            self.append(number, firing)

    def _prepare(self, queue: Iterable[tuple[int, Firing]]) -> None:
        """Have the jobs that are next in the heap."""
        if self._made != self._version():
            self._renew(queue)
        self._fill()

    def head(self, queue: Iterable[tuple[int, Firing]]) -> tuple[Firing, int]:
        """The job that is next: its firing, and its index there; for `queue` see `next`."""
        self._prepare(queue)
        _, number, index = self._heap[0]
        return self._firings[number], index

    def next(self, queue: Iterable[tuple[int, Firing]], room: int) -> tuple[Firing, int, int]:
        """Take the jobs that are next: one, or several in a row.

        Args:
            queue: all firings of the queue, with their numbers; not empty.
            room: the most jobs.

        Returns:
            Their firing, the index of the first, and how many there are.
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
        """Have as many jobs in the heap as are compared."""
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
        # Jobs that a request waits for are sent at once, by one command.
        seconds = None if firing.request is not None else self._rank(firing, index)
        return -inf if seconds is None else -seconds
