"""A stream: a variable of a group, with a statistic for each configured name.

A stream is one variable of one group (`duration`, `pending`, or a memo key) and holds
one statistic (`metrics.statistics`) per configured name. Values are fed
one at a time and not kept. Results are finite or None; without values they are None, whatever
River returns.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from flux_ensemble.faults import ENDINGS
from flux_ensemble.metrics.names import Statistic
from flux_ensemble.metrics.numbers import Number, finite
from flux_ensemble.metrics.statistics import NUMBER, made

#: The most distinct values that a statistic such as `Entropy` keeps.
MAX_DIFFERENT = 100_000


#: Classes of River whose value of whole numbers is one, which they give as a float.
WHOLE = ("Sum", "PeakToPeak")


class StatisticError(Exception):
    """The failure of a statistic of River; the text is one sentence."""


class _Different:
    """A statistic that counts distinct values; it is empty once there are too many."""

    def __init__(self, statistic: Any) -> None:
        self._statistic = statistic
        self._full = False

    def __deepcopy__(self, memo: dict[int, Any]) -> _Different:
        # A class compiled by mypyc needs this method to be copied.
        other = _Different(copy.deepcopy(self._statistic, memo))
        other._full = self._full
        return other

    def update(self, value: Number) -> None:
        """Add a value, unless there were too many distinct ones."""
        if self._full:
            return
        self._statistic.update(value)
        if len(self._statistic.counter) > MAX_DIFFERENT:
            self._statistic.counter.clear()
            self._full = True

    def get(self) -> Number | None:
        """Return the value; None if there were too many distinct values."""
        return None if self._full else self._statistic.get()


class _Whole:
    """A statistic whose value is an integer as long as all values were: "4292", not "4292.0"."""

    def __init__(self, statistic: Any) -> None:
        self._statistic = statistic
        self._whole = True

    def __deepcopy__(self, memo: dict[int, Any]) -> _Whole:
        other = _Whole(copy.deepcopy(self._statistic, memo))
        other._whole = self._whole
        return other

    def update(self, value: Number) -> None:
        """Add a value."""
        self._whole = self._whole and type(value) is int
        self._statistic.update(value)

    def get(self) -> Number | None:
        """Return the value."""
        value = self._statistic.get()
        return int(value) if self._whole else value


def _made(statistic: Statistic) -> Any:
    streaming = made(statistic.kind, statistic.arguments)
    if statistic.kind in WHOLE:
        return _Whole(streaming)
    return _Different(streaming) if hasattr(streaming, "counter") else streaming


class Stream:
    """The statistics of one variable of one group.

    >>> stream = Stream([Statistic("average", "Mean")])
    >>> for seconds in (10.0, 20.0):
    ...     stream.update(seconds)
    >>> stream.get("average"), stream.extended([60.0]).get("average")
    (15.0, 30.0)
    """

    __slots__ = ("_statistics", "_updates", "_wanted", "count")

    def __init__(self, statistics: Collection[Statistic]) -> None:
        self.count = 0
        self._wanted = {
            statistic.name: statistic for statistic in statistics if statistic.kind != NUMBER
        }
        #: The statistics of River, made with the first value.
        self._statistics: dict[str, Any] = {}
        self._updates: tuple[Any, ...] = ()

    def _bind(self) -> None:
        self._updates = tuple(statistic.update for statistic in self._statistics.values())

    def update(self, value: Number) -> None:
        """Add one finite value.

        Raises:
            StatisticError: a statistic fails.
        """
        self._begin()
        self.count += 1
        try:
            for update in self._updates:
                update(value)
        except ENDINGS:
            raise
        except BaseException as error:
            raise self._failure(update, value, error) from error

    def update_all(self, values: Sequence[Number]) -> None:
        """Add one or more finite values.

        Raises:
            StatisticError: a statistic fails.
        """
        self._begin()
        self.count += len(values)
        try:
            # Statistics do not depend on each other, so each may receive all values in turn.
            for update in self._updates:
                for value in values:
                    update(value)
        except ENDINGS:
            raise
        except BaseException as error:
            raise self._failure(update, value, error) from error

    def _begin(self) -> None:
        if not self.count:
            self._statistics = {name: _made(wanted) for name, wanted in self._wanted.items()}
            self._bind()

    def _failure(self, update: Any, value: Number, error: BaseException) -> StatisticError:
        names = [name for name, statistic in self._statistics.items() if statistic.update == update]
        return StatisticError(f"statistic {names[0]!r} cannot take in {value!r}: {error}")

    def get(self, statistic: str) -> Number | None:
        """Return the statistic's value; None if there is none. `n` is the number of values.

        Raises:
            StatisticError: the statistic fails.
        """
        if statistic not in self._wanted:
            return self.count
        if not self.count:
            return None
        try:
            return finite(self._statistics[statistic].get())
        except (ArithmeticError, ValueError):
            # Examples: the root of a number that is negative by rounding; a division by variance 0.
            return None
        except ENDINGS:
            raise
        except BaseException as error:
            raise StatisticError(
                f"statistic {statistic!r} has no value after {self.count} values: {error}"
            ) from error

    def extended(self, values: Iterable[Number], statistic: str | None = None) -> Stream:
        """Return a copy with `values` added; with `statistic`, only of that statistic."""
        wanted = self._wanted.values()
        other = Stream([one for one in wanted if statistic is None or one.name == statistic])
        if self.count:
            other.count = self.count
            other._statistics = copy.deepcopy(
                {name: self._statistics[name] for name in other._wanted}
            )
            other._bind()
        for value in values:
            other.update(value)
        return other
