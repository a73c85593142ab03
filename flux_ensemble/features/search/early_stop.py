"""The policies that stop trials early: functions of the values that jobs publish, in order.

`asha` is asynchronous successive halving (Li et al., "A System for Massively Parallel
Hyperparameter Tuning", 2020): at the steps begin, begin * eta, begin * eta ** 2 ... a trial
continues if it is one of the best 1 / eta of those that have reached the step so far. `median` is
the rule of Vizier (Golovin et al., "Google Vizier", 2017): a trial is stopped if its best value so
far is worse than the median of the complete trials' values at this step. `percentile` has another
share than a half. `hyperband` (Li et al., "Hyperband", 2018) divides the trials among several
`asha`, which begin at different steps. `patience` looks at the trial alone, and stops it when it
does not become better any more; `threshold` at each value alone. All decide as Optuna's pruners do.
"""

from __future__ import annotations

import math
from binascii import crc32
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from flux_ensemble.features.search.keys import (
    ASHA,
    HYPERBAND,
    MEDIAN,
    PATIENCE,
    PERCENTILE,
    THRESHOLD,
)
from flux_ensemble.features.search.model import Search, Stop

#: The number of complete trials, the latest ones, over which a percentile is taken, and the most
#: steps of each whose values are kept.
MEDIAN_OF, STEPS = 500, 1000


class EarlyStop(Protocol):
    """A policy for the trials of one search. Values are costs: less is better.

    A cost is finite; only `threshold` is told of others, too.
    """

    def publish(self, number: int, step: float, cost: float) -> bool:
        """Take in the value of a trial at a step; return whether the trial is to stop."""
        ...

    def end(self, number: int, complete: bool) -> None:
        """Note the end of a trial."""
        ...

    def again(self, number: int) -> None:
        """Note that the job of a trial runs again, from the first step."""
        ...

    def dump(self) -> Any:
        """Return the state as JSON."""
        ...

    def load(self, value: Any) -> None:
        """Set the state from the result of `dump`."""
        ...


class Asha:
    """Asynchronous successive halving.

    Args:
        begin: the step of the first rung.
        eta: the ratio of the step of a rung to that of the rung before.
    """

    def __init__(self, begin: int, eta: int) -> None:
        self._begin = begin
        self._eta = eta
        #: For each rung, the sorted costs of the trials that have reached it.
        self._rungs: list[list[float]] = []
        #: Trial under way -> the number of rungs that it has reached.
        self._passed: dict[int, int] = {}

    def publish(self, number: int, step: float, cost: float) -> bool:
        """Compare a trial with the others on each rung that it reaches with this step."""
        rung = self._passed.get(number, 0)
        while step >= self._begin * self._eta**rung:
            if rung == len(self._rungs):
                self._rungs.append([])
            costs = self._rungs[rung]
            insort(costs, cost)
            rung += 1
            self._passed[number] = rung
            # While fewer than eta trials have reached the rung, only the best of them continues.
            if cost > costs[max(len(costs) // self._eta - 1, 0)]:
                return True
        return False

    def end(self, number: int, complete: bool) -> None:
        """Forget the rungs that a trial has reached."""
        self._passed.pop(number, None)

    def again(self, number: int) -> None:
        """Keep the rungs of a trial that runs again, so that it is not compared with itself."""

    def dump(self) -> Any:
        """Return the state as JSON."""
        return {
            "rungs": [list(costs) for costs in self._rungs],
            "passed": [list(item) for item in self._passed.items()],
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Set the state from the result of `dump`."""
        self._rungs = [list(costs) for costs in value["rungs"]]
        self._passed = dict(value["passed"])


class Hyperband:
    """Several brackets, each with an `Asha` of its own that begins at another step.

    A trial belongs to the bracket that a hash of the search and its number gives, as in a study of
    Optuna with the name of the search.

    Args:
        id: the id of the search.
        begin: the first step at which trials of the first bracket are compared.
        last: the last step of a trial.
        eta: of each bracket; each begins at `eta` times the step of the one before.
    """

    def __init__(self, id: str, begin: int, last: int, eta: int) -> None:
        self._id = id
        many = math.floor(math.log(last / begin, eta)) + 1
        self._brackets = [Asha(begin * eta**place, eta) for place in range(many)]
        #: Relative numbers of trials: brackets that begin early have more of them.
        self._shares = [
            math.ceil(many * eta ** (many - 1 - place) / (many - place)) for place in range(many)
        ]

    def _bracket(self, number: int) -> Asha:
        place = crc32(f"{self._id}_{number}".encode()) % sum(self._shares)
        for bracket, share in zip(self._brackets, self._shares, strict=True):
            if place < share:
                return bracket
            place -= share
        raise AssertionError

    def publish(self, number: int, step: float, cost: float) -> bool:
        """Compare a trial with those of its bracket."""
        return self._bracket(number).publish(number, step, cost)

    def end(self, number: int, complete: bool) -> None:
        """Forget the rungs that a trial has reached."""
        self._bracket(number).end(number, complete)

    def again(self, number: int) -> None:
        """Keep the rungs of a trial that runs again."""

    def dump(self) -> Any:
        """Return the state as JSON."""
        return [bracket.dump() for bracket in self._brackets]

    def load(self, value: Sequence[Any]) -> None:
        """Set the state from the result of `dump`."""
        for bracket, dumped in zip(self._brackets, value, strict=True):
            bracket.load(dumped)


class Percentile:
    """Vizier's rule of the median, for any percentile.

    Args:
        percentile: of the costs of complete trials at a step; those that are above it stop.
        begin: the first step at which trials are compared.
        trials: the number of complete trials before any is stopped.
    """

    def __init__(self, percentile: float, begin: int, trials: int) -> None:
        self._percentile = percentile
        self._begin = begin
        self._trials = trials
        #: Trial under way -> its cost at each step.
        self._open: dict[int, dict[float, float]] = {}
        #: The costs by step of the latest complete trials, and the number of all complete trials.
        self._complete: deque[dict[float, float]] = deque()
        self._count = 0
        #: Step -> the sorted costs of the trials in `_complete`.
        self._steps: dict[float, list[float]] = {}

    def publish(self, number: int, step: float, cost: float) -> bool:
        """Compare the least cost of a trial so far with the percentile at this step."""
        own = self._open.setdefault(number, {})
        if step not in own and len(own) >= STEPS:
            return False
        own[step] = cost
        costs = self._steps.get(step)
        if self._count < self._trials or step < self._begin or not costs:
            return False
        return min(own.values()) > percentile_of(costs, self._percentile)

    def end(self, number: int, complete: bool) -> None:
        """Add the costs of a complete trial to those that the percentile is taken of."""
        own = self._open.pop(number, {})
        if not complete:
            return
        self._count += 1
        self._add(own)
        if len(self._complete) > MEDIAN_OF:
            for step, cost in self._complete.popleft().items():
                costs = self._steps[step]
                del costs[bisect_left(costs, cost)]
                if not costs:
                    del self._steps[step]

    def again(self, number: int) -> None:
        """Forget the costs of a trial that runs again."""
        self._open.pop(number, None)

    def _add(self, own: dict[float, float]) -> None:
        self._complete.append(own)
        for step, cost in own.items():
            insort(self._steps.setdefault(step, []), cost)

    def dump(self) -> Any:
        """Return the state as JSON."""
        return {
            "count": self._count,
            "open": [[number, _pairs(own)] for number, own in self._open.items()],
            "complete": [_pairs(own) for own in self._complete],
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Set the state from the result of `dump`."""
        self._count = value["count"]
        self._open = {number: dict(own) for number, own in value["open"]}
        for own in value["complete"]:
            self._add(dict(own))


class Patience:
    """A trial stops when it does not become better any more.

    Args:
        patience: the number of steps, besides the latest, in which it has to become better.
        delta: by more than so much its best cost before has to be less to have it stop.
        begin: the first step at which it may stop.
    """

    def __init__(self, patience: int, delta: float, begin: int) -> None:
        self._patience = patience
        self._delta = delta
        self._begin = begin
        #: Trial under way -> its latest step, its least cost before the latest ones, and these.
        self._open: dict[int, tuple[float, float | None, list[float]]] = {}

    def publish(self, number: int, step: float, cost: float) -> bool:
        """Compare the latest costs of a trial with its least one before."""
        last, best, latest = self._open.get(number, (-math.inf, None, []))
        if step <= last:
            return False
        latest = [*latest, cost]
        if len(latest) > self._patience + 1:
            first, *latest = latest
            best = first if best is None else min(best, first)
        self._open[number] = step, best, latest
        return best is not None and step >= self._begin and best + self._delta < min(latest)

    def end(self, number: int, complete: bool) -> None:
        """Forget the costs of a trial."""
        self._open.pop(number, None)

    def again(self, number: int) -> None:
        """Forget the costs of a trial that runs again."""
        self._open.pop(number, None)

    def dump(self) -> Any:
        """Return the state as JSON."""
        return [[number, *costs] for number, costs in self._open.items()]

    def load(self, value: Sequence[Any]) -> None:
        """Set the state from the result of `dump`."""
        self._open = {number: (last, best, latest) for number, last, best, latest in value}


class Threshold:
    """A trial stops when a value is beyond bounds, or NaN.

    Args:
        low, high: the bounds of costs.
        begin: the first step at which it may stop.
    """

    def __init__(self, low: float, high: float, begin: int) -> None:
        self._low = low
        self._high = high
        self._begin = begin

    def publish(self, number: int, step: float, cost: float) -> bool:
        """Compare a cost with the bounds."""
        return step >= self._begin and not self._low <= cost <= self._high

    def end(self, number: int, complete: bool) -> None:
        """Do nothing: each value is looked at alone."""

    def again(self, number: int) -> None:
        """Do nothing: each value is looked at alone."""

    def dump(self) -> Any:
        """Return the state as JSON."""
        return None

    def load(self, value: Any) -> None:
        """Do nothing: there is no state."""


def percentile_of(ordered: Sequence[float], percentile: float) -> float:
    """Return a percentile of numbers, between two of them on the line, as NumPy does.

    >>> percentile_of([1.0, 2.0, 4.0], 50), percentile_of([1.0, 2.0, 4.0], 75)
    (2.0, 3.0)
    """
    place = percentile / 100 * (len(ordered) - 1)
    low = min(int(place), len(ordered) - 1)
    below, above, share = ordered[low], ordered[min(low + 1, len(ordered) - 1)], place - low
    if share < 0.5:
        return below + (above - below) * share
    return above - (above - below) * (1 - share)


def _pairs(own: Mapping[float, float]) -> list[list[float]]:
    return [list(item) for item in own.items()]


def stopping(search: Search) -> EarlyStop | None:
    """Return the policy for the trials of a search; None if it stops none.

    >>> asha = stopping(Search("hpo", "trial", (), (), stop=Stop("asha", "epoch", eta=2)))
    >>> [asha.publish(number, 1, cost) for number, cost in enumerate([0.5, 0.7, 0.4, 0.6])]
    [False, True, False, True]
    """
    stop = search.stop
    return None if stop is None else _POLICIES[stop.policy](search, stop)


def _threshold(search: Search, stop: Stop) -> Threshold:
    (one,) = search.objectives
    lower = -math.inf if stop.lower is None else stop.lower
    upper = math.inf if stop.upper is None else stop.upper
    low, high = (-upper, -lower) if one.maximize else (lower, upper)
    return Threshold(low, high, stop.begin)


_POLICIES: Mapping[str, Callable[[Search, Stop], EarlyStop]] = {
    ASHA: lambda search, stop: Asha(stop.begin, stop.eta),
    HYPERBAND: lambda search, stop: Hyperband(search.id, stop.begin, stop.last, stop.eta),
    MEDIAN: lambda search, stop: Percentile(50, stop.begin, stop.trials),
    PERCENTILE: lambda search, stop: Percentile(stop.percentile, stop.begin, stop.trials),
    PATIENCE: lambda search, stop: Patience(stop.patience, stop.min_delta, stop.begin),
    THRESHOLD: _threshold,
}
