"""Sets of mostly contiguous integers, in memory proportional to the number of gaps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence


class IntervalSet:
    """A set of integers kept as half-open intervals.

    Args:
        intervals: the `intervals` of another set, as tuples or, from JSON, as lists.

    >>> seen = IntervalSet()
    >>> for number in (0, 2, 1):
    ...     seen.add(number)
    >>> 1 in seen, 3 in seen, len(seen), seen.intervals
    (True, False, 3, [(0, 3)])
    """

    __slots__ = ("_starts", "_stops")

    def __init__(self, intervals: Iterable[Sequence[int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in intervals:
            self._starts.append(start)
            self._stops.append(stop)

    @property
    def intervals(self) -> list[tuple[int, int]]:
        """The intervals (start, stop), in order."""
        return list(zip(self._starts, self._stops, strict=True))

    def __contains__(self, number: int) -> bool:
        stops = self._stops
        # Numbers mostly come in order, so most are beyond the last interval.
        if not stops or number >= stops[-1]:
            return False
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < stops[at]

    def __len__(self) -> int:
        return sum(self._stops) - sum(self._starts)

    def overlaps(self, start: int, stop: int) -> bool:
        """Return whether one of the numbers from `start` to `stop - 1` is in the set.

        >>> seen = IntervalSet([(0, 3), (5, 6)])
        >>> seen.overlaps(2, 4), seen.overlaps(3, 5), seen.overlaps(6, 9)
        (True, False, False)
        """
        at = bisect_left(self._starts, stop)
        return at > 0 and self._stops[at - 1] > start

    def gaps(self, start: int, stop: int) -> Iterator[range]:
        """Yield the ranges of numbers from `start` to `stop - 1` that are not in the set, in order.

        >>> list(IntervalSet([(0, 3), (5, 6)]).gaps(0, 9))
        [range(3, 5), range(6, 9)]
        """
        for first, end in zip(self._starts, self._stops, strict=True):
            if first >= stop:
                break
            if start < first:
                yield range(start, first)
            start = max(start, end)
        if start < stop:
            yield range(start, stop)

    def add(self, number: int) -> None:
        """Add a number; one that is in the set already is no error."""
        starts, stops = self._starts, self._stops
        if stops and number == stops[-1]:
            stops[-1] += 1
            return
        at = bisect_right(starts, number)
        if at and number < stops[at - 1]:
            return
        joins_left = at > 0 and stops[at - 1] == number
        joins_right = at < len(starts) and starts[at] == number + 1
        if joins_left and joins_right:
            stops[at - 1] = stops.pop(at)
            starts.pop(at)
        elif joins_left:
            stops[at - 1] = number + 1
        elif joins_right:
            starts[at] = number
        else:
            starts.insert(at, number)
            stops.insert(at, number + 1)


def joined(numbers: Iterable[int]) -> str:
    """Return numbers as an idset (RFC 22).

    >>> joined([3, 0, 1, 1, 5])
    '0-1,3,5'
    """
    members = IntervalSet()
    for number in sorted(numbers):
        members.add(number)
    return ",".join(
        str(start) if stop == start + 1 else f"{start}-{stop - 1}"
        for start, stop in members.intervals
    )


def ids(text: str) -> Iterator[int]:
    """Yield the numbers of an idset (RFC 22).

    >>> list(ids("0-1,3,5"))
    [0, 1, 3, 5]
    """
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def union(*idsets: str) -> str:
    """Return the union of idsets as one, in order: Flux accepts no idset that is out of order.

    >>> union("3", "0-1,5", "", "2")
    '0-3,5'
    """
    return joined(rank for idset in idsets if idset for rank in ids(idset))
