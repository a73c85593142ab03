"""The policies that stop trials early: functions of the values that jobs publish, in order.

`asha` is asynchronous successive halving (Li et al., "A System for Massively Parallel
Hyperparameter Tuning", 2020): at the steps begin, begin * eta, begin * eta ** 2 ... a trial
continues if it is one of the best 1 / eta of those that have reached the step so far. `median` is
the rule of Vizier (Golovin et al., "Google Vizier", 2017): a trial is stopped if its best value so
far is worse than the median of the complete trials' values at this step. Both decide as Optuna's
pruners do.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from flux_ensemble.features.search.model import Stop

#: The number of complete trials, the latest ones, over which the median is taken, and the most
#: steps of each whose values are kept.
MEDIAN_OF, STEPS = 500, 1000


class EarlyStop(Protocol):
    """A policy for the trials of one search. Values are costs: less is better."""

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
    """Asynchronous successive halving."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        #: For each rung, the sorted costs of the trials that have reached it.
        self._rungs: list[list[float]] = []
        #: Trial under way -> the number of rungs that it has reached.
        self._passed: dict[int, int] = {}

    def publish(self, number: int, step: float, cost: float) -> bool:
        """Compare a trial with the others on each rung that it reaches with this step."""
        stop = self._stop
        rung = self._passed.get(number, 0)
        while step >= stop.begin * stop.eta**rung:
            if rung == len(self._rungs):
                self._rungs.append([])
            costs = self._rungs[rung]
            insort(costs, cost)
            rung += 1
            self._passed[number] = rung
            # While fewer than eta trials have reached the rung, only the best of them continues.
            if cost > costs[max(len(costs) // stop.eta - 1, 0)]:
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


class Median:
    """Vizier's rule of the median."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        #: Trial under way -> its cost at each step.
        self._open: dict[int, dict[float, float]] = {}
        #: The costs by step of the latest complete trials, and the number of all complete trials.
        self._complete: deque[dict[float, float]] = deque()
        self._count = 0
        #: Step -> the sorted costs of the trials in `_complete`.
        self._steps: dict[float, list[float]] = {}

    def publish(self, number: int, step: float, cost: float) -> bool:
        """Compare the least cost of a trial so far with the median at this step."""
        own = self._open.setdefault(number, {})
        if step not in own and len(own) >= STEPS:
            return False
        own[step] = cost
        costs = self._steps.get(step)
        if self._count < self._stop.trials or step < self._stop.begin or not costs:
            return False
        half, odd = divmod(len(costs), 2)
        median = costs[half] if odd else (costs[half - 1] + costs[half]) / 2
        return min(own.values()) > median

    def end(self, number: int, complete: bool) -> None:
        """Add the costs of a complete trial to those that the median is taken of."""
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


def _pairs(own: Mapping[float, float]) -> list[list[float]]:
    return [list(item) for item in own.items()]


_POLICIES: Mapping[str, type[Asha] | type[Median]] = {"asha": Asha, "median": Median}


def stopping(stop: Stop) -> EarlyStop:
    """Return the policy for the `stop` of a document's search.

    >>> asha = stopping(Stop("asha", "epoch", eta=2))
    >>> [asha.publish(number, 1, cost) for number, cost in enumerate([0.5, 0.7, 0.4, 0.6])]
    [False, True, False, True]
    """
    return _POLICIES[stop.policy](stop)
