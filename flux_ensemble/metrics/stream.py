"""One stream: a variable of a group, with a statistic of River for each configured name.

A stream is one variable of one group (`duration`, `pending`, or a memo key) and holds
one River statistic (https://riverml.xyz, `river.stats`) per configured name. Values are fed
one at a time and not kept. Results are finite or None; without values they are None, whatever
River returns.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from flux_ensemble.faults import ENDINGS
from flux_ensemble.metrics.names import NUMBER, Statistic
from flux_ensemble.metrics.numbers import Number, finite

#: Most distinct values that a statistic such as `Entropy` keeps.
MAX_DIFFERENT = 100_000


class StatisticError(Exception):
    """A statistic of River failed; the text is one sentence."""


class _Different:
    """A statistic that counts distinct values; it is empty once there are too many."""

    def __init__(self, statistic: Any) -> None:
        self._statistic = statistic
        self._full = False

    def __deepcopy__(self, memo: dict[int, Any]) -> _Different:
        # What is compiled cannot be copied without.
        other = _Different(copy.deepcopy(self._statistic, memo))
        other._full = self._full
        return other

    def update(self, value: Number) -> None:
        """Take in a value."""
        if self._full:
            return
        self._statistic.update(value)
        if len(self._statistic.counter) > MAX_DIFFERENT:
            self._statistic.counter.clear()
            self._full = True

    def get(self) -> Number | None:
        """Its value."""
        return None if self._full else self._statistic.get()


def _made(statistic: Statistic) -> Any:
    # Late, because River takes 0.2 s to import, and jobs can start before there is a value.
    from flux_ensemble.metrics.univariate import stats

    made = getattr(stats, statistic.kind)(**statistic.arguments)
    return _Different(made) if hasattr(made, "counter") else made


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
        #: Those of River, made with the first value.
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
        """Add finite values, of which there is at least one.

        Raises:
            StatisticError: a statistic fails.
        """
        self._begin()
        self.count += len(values)
        try:
            # They do not depend on each other.
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
        """The statistic's value; None if there is none. `n` is the number of values.

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
            # The root of what is negative by rounding, a division by a variance of 0.
            return None
        except ENDINGS:
            raise
        except BaseException as error:
            raise StatisticError(
                f"statistic {statistic!r} has no value after {self.count} values: {error}"
            ) from error

    def extended(self, values: Iterable[Number], statistic: str | None = None) -> Stream:
        """A copy with `values` added; with `statistic`, of that one only."""
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
