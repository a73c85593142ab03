"""The trials of one search: the points that it received, and their outcomes.

    stock ──send──► active ──► complete, pruned, failed or canceled

A trial is known by its number, from 0, in the order in which points were received. An optimiser
must receive the same data whenever an ask is repeated, before and after a crash. So two numbers
determine the data: the number of points so far, and the number of trials that have ended, in the
order of their ends.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from operator import le
from typing import Any, NamedTuple

from flux_ensemble.features.search.model import Search, Value
from flux_ensemble.features.search.outcomes import violated
from flux_ensemble.features.search.paths import FRONT
from flux_ensemble.scalars import Spelled
from flux_ensemble.words import ACTIVE, COMPLETE, INFEASIBLE, PRUNED

#: States of a trial; a snapshot holds the first two letters of each.
STOCK, FAILED, CANCELED = "stock", "failed", "canceled"
_STATES = {
    state[:2]: state for state in (STOCK, ACTIVE, COMPLETE, INFEASIBLE, FAILED, CANCELED, PRUNED)
}

#: Keys of the attributes of a generator's points: the state of the generator after the last point
#: of an ask, and the number of trials that had ended before the ask.
STATE, ENDED = "state", "ended"

#: The key of the attributes of a point that the user gave.
GIVEN = "given"

#: The number of best trials that are kept.
BEST = 10

#: Weight of the latest value in a moving mean.
_WEIGHT = 0.2


class Part(NamedTuple):
    """The end of one of a trial's jobs.

    Args:
        how: state that the trial has if it has no other job.
        value: of the objective, or of each; None if the job has none.
        reason: why not.
        id: of the job.
        interrupted: it was lost too often.
        violations: by how much each constraint on outcomes is violated; empty if that is unknown.
    """

    how: str
    value: Value | None
    reason: str
    id: int
    interrupted: bool
    violations: Sequence[float] = ()


class Trial:
    """A trial of a search; its parameters are in the order of the search's variables."""

    __slots__ = (
        "attributes",
        "job",
        "number",
        "params",
        "state",
        "step",
        "t_sent",
        "value",
        "violations",
    )

    def __init__(
        self, number: int, params: Sequence[Any], attributes: Mapping[str, Any] | None
    ) -> None:
        self.number = number
        self.params = params
        #: Data that the sampler needs to continue, if any.
        self.attributes = attributes
        self.state = STOCK
        #: The job that gave the value, as in expressions, the last of several; None if unknown.
        self.job: int | str | None = None
        #: The value of the objective, or of each; for a failed trial the penalty, if there is one.
        self.value: Value | None = None
        #: The step of the value, if the trial was stopped early.
        self.step: float | None = None
        #: By how much each constraint on outcomes is violated; empty if that is unknown.
        self.violations: Sequence[float] = ()
        self.t_sent: float | None = None


class Trials:
    """The trials of one search.

    Args:
        search: the search of the document.

    Attributes:
        search: the search of the document.
        all: every trial; the index is the trial's number.
        stock: the numbers of trials that were not sent, in order; they are the last ones.
        given: how many of those in stock are points of the user; they are the first of these.
        partial: points of the user that lack values of variables, or come after one that does. The
            suggester completes them before it suggests others.
        active: the numbers of trials that were sent and have not ended.
        parts: active trial -> the ends of its jobs so far, if it has several jobs.
        ended: the numbers of trials that have ended, in the order of their ends.
        best: the best complete trials, the best one first; empty for several objectives.
        front: the Pareto front of several objectives: the complete trials that no other trial
            dominates (`dominates`), in the order of the first objective.
        nearest: the infeasible trial that violates its constraints the least in all; None if there
            is none.
        counts: state -> the number of trials that have ended in it.
        seconds: the time per trial, as a moving mean of those that were not interrupted; None
            before the first of them has ended.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self.all: list[Trial] = []
        self.stock: deque[int] = deque()
        self.given = 0
        self.partial: deque[Mapping[str, Any]] = deque()
        self.active: dict[int, None] = {}
        self.parts: dict[int, list[Part]] = {}
        self.ended: list[int] = []
        self.best: list[Trial] = []
        self.front: list[Trial] = []
        self.nearest: Trial | None = None
        bound = (INFEASIBLE,) if search.subject_to else ()
        stopped = (PRUNED,) if search.stop is not None else ()
        self.counts = dict.fromkeys((COMPLETE, *bound, FAILED, CANCELED, *stopped), 0)
        self.seconds: float | None = None
        #: The number of times that points in stock were dropped or got other numbers, by which
        #: samplers notice that; not in a snapshot.
        self.refreshes = 0
        names = {one.name: one.spellings for one in search.variables if one.spellings}
        self._spellings: dict[str, dict[str, Spelled]] = names

    def params(self, trial: Trial) -> dict[str, Any]:
        """Return the parameters of a trial, by name."""
        return self.search.named(trial.params)

    def add(self, params: Mapping[str, Any], attributes: Mapping[str, Any] | None) -> None:
        """Add a point to the stock."""
        number = len(self.all)
        if self.search.generator is not None and attributes and STATE in attributes:
            # Only the latest state of a generator is needed.
            self._drop_state()
        row = self.search.row_of(params)
        self.all.append(Trial(number, self._spelled(row), attributes))
        self.stock.append(number)
        if self.partial:
            self.partial.popleft()
            self.given += 1

    def give(self, points: Iterable[Mapping[str, Any]]) -> int:
        """Add points of the user, before those that were suggested.

        Those that have a value of each variable are in stock at once.

        Returns:
            The number of the first one.
        """
        first = len(self.all) - len(self.stock) + self.given + len(self.partial)
        waiting = deque(points)
        whole = []
        while waiting and not self.partial and (row := self.search.row(waiting[0])) is not None:
            whole.append(Trial(0, row, {GIVEN: True}))
            waiting.popleft()
        self._insert(whole)
        if waiting:
            # Those that were suggested would be tried before the suggester is asked again.
            if len(self.stock) > self.given:
                self.drop_stock()
            self.partial += waiting
        return first

    def _insert(self, new: Sequence[Trial]) -> None:
        """Put trials of the user's points behind those in stock."""
        begin = len(self.all) - len(self.stock)
        first = begin + self.given
        suggested = self.all[first:]
        self.all[first:] = [*new, *suggested]
        for number in range(first, len(self.all)):
            self.all[number].number = number
        self.stock = deque(range(begin, len(self.all)))
        self.given += len(new)
        if suggested and new:
            self.refreshes += 1

    def _spelled(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """Return values with the document's spellings in place of the plain texts of JSON."""
        if not self._spellings:
            return tuple(row)
        return tuple(
            self._spellings.get(variable.name, {}).get(value, value)
            if isinstance(value, str)
            else value
            for variable, value in zip(self.search.variables, row, strict=True)
        )

    def _drop_state(self) -> None:
        for trial in reversed(self.all):
            if trial.attributes and STATE in trial.attributes:
                kept = {
                    key: one for key, one in trial.attributes.items() if key not in (STATE, ENDED)
                }
                trial.attributes = kept or None
                return

    def drop_stock(self) -> int:
        """Drop the points in stock, but those of the user; return the number of dropped points."""
        count = len(self.stock) - self.given
        del self.all[len(self.all) - count :]
        for _ in range(count):
            self.stock.pop()
        self.refreshes += 1
        return count

    def next(self, t: float) -> Trial:
        """Take the next trial from the stock; it is active from time `t` on."""
        trial = self.all[self.stock.popleft()]
        self.given = max(0, self.given - 1)
        trial.state, trial.t_sent = ACTIVE, t
        self.active[trial.number] = None
        return trial

    def interrupted(self, number: int) -> None:
        """Leave an active trial out of the time per trial: nothing ran of it for a while."""
        self.all[number].t_sent = None

    def add_part(self, number: int, part: Part, many: int = 1) -> Part | None:
        """Note the end of a job of an active trial, or of `many` of them.

        Returns:
            The end of the trial, if these were its last jobs: with the aggregate of their values,
            or as one of those that failed; None if others are still to end.
        """
        repeats = self.search.repeats
        if repeats == 1:
            return part
        parts = self.parts.setdefault(number, [])
        parts += [part] * many
        if len(parts) < repeats:
            return None
        complete = [one for one in parts if one.value is not None]
        if complete:
            value = self.search.aggregated([one.value for one in complete if one.value is not None])
            violations = self.search.aggregated_each([one.violations for one in complete])
            how = INFEASIBLE if violated(violations) else COMPLETE
            return complete[-1]._replace(how=how, value=value, violations=violations)
        # The failure of a program says more than the loss of a job or a cancel.
        return max(parts, key=lambda one: (one.how == FAILED, not one.interrupted))

    def end(
        self,
        number: int,
        state: str,
        value: Value | None,
        t: float,
        step: float | None = None,
        violations: Sequence[float] = (),
    ) -> bool:
        """End an active trial at time `t`; return whether it is now the best, or in the front."""
        trial = self.all[number]
        del self.active[number]
        self.parts.pop(number, None)
        if trial.t_sent is not None and state != CANCELED:
            self.seconds = moved(self.seconds, max(0.0, t - trial.t_sent))
        trial.state, trial.value, trial.step, trial.t_sent = state, value, step, None
        trial.violations = violations
        self.ended.append(number)
        self.counts[state] += 1
        return self._rank(trial)

    def _rank(self, trial: Trial) -> bool:
        if trial.state == INFEASIBLE and (
            self.nearest is None or violated(trial.violations) < violated(self.nearest.violations)
        ):
            self.nearest = trial
        if trial.state != COMPLETE:
            return False
        if self.search.several:
            return self._dominate(trial)
        insort(self.best, trial, key=self._key)
        del self.best[BEST:]
        return self.best[0] is trial

    def _dominate(self, trial: Trial) -> bool:
        """Add a trial to the front if none dominates it, and remove the trials it dominates.

        Returns:
            True if the trial is in the front.
        """
        costs = self.costs(trial)
        others = [(other, self.costs(other)) for other in self.front]
        if any(dominates(other, costs) for _, other in others):
            return False
        self.front = [other for other, of_other in others if not dominates(costs, of_other)]
        insort(self.front, trial, key=self._key)
        return True

    def costs(self, trial: Trial) -> tuple[float, ...]:
        """Return the values of a complete trial, with such signs that less is better."""
        assert trial.value is not None
        return self.search.costs(trial.value)

    def _key(self, trial: Trial) -> tuple[tuple[float, ...], int]:
        # Among equal trials the first one is the best.
        return self.costs(trial), trial.number

    def figures(self, null: Any = None) -> dict[str, Any]:
        """Return the figures of the search (`paths.Searched`).

        Args:
            null: stands for null, and for the value that a trial does not have by its condition.
        """
        figures: dict[str, Any] = {"trials": len(self.ended), **self.counts}
        if self.search.several:
            figures[FRONT] = len(self.front)
        if self.best:
            trial = self.best[0]
            names = (variable.name for variable in self.search.variables)
            values = (null if value is None else value for value in trial.params)
            figures["best"] = {
                **dict(zip(names, values, strict=True)),
                "value": trial.value,
                "trial": trial.number,
            }
        return figures

    def seen(self, points: int, ends: int, stop: int, last: int) -> dict[str, Any]:
        """Return the points and ends that an optimiser has not received yet, as JSON.

        The values that the next points are to have are there, too, as `fixed`.

        Args:
            points, ends: the numbers of points and ends that it has received.
            stop, last: the numbers that it is to have received afterwards.
        """
        attributes = {
            str(trial.number): trial.attributes
            for trial in self.all[points:stop]
            if trial.attributes
        }
        return {
            "points": [list(trial.params) for trial in self.all[points:stop]],
            "attributes": attributes,
            "ends": [self._end(number) for number in self.ended[ends:last]],
            **({"fixed": list(map(dict, self.partial))} if self.partial else {}),
        }

    def _end(self, number: int) -> list[Any]:
        trial = self.all[number]
        end = [number, self.search.to_json(trial.value)]
        if trial.violations:
            return [*end, trial.step, list(trial.violations)]
        return end if trial.step is None else [*end, trial.step]

    # -- snapshots ------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return the trials as JSON, in columns; the other attributes follow from them."""
        return {
            "params": [list(trial.params) for trial in self.all],
            "states": "".join(trial.state[:2] for trial in self.all),
            "attributes": [
                [trial.number, trial.attributes] for trial in self.all if trial.attributes
            ],
            "ended": [self._end(number) for number in self.ended],
            "sent": [[number, self.all[number].t_sent] for number in self.active],
            "seconds": self.seconds,
            **({"parts": self._dump_parts()} if self.parts else {}),
            **({"given": self.given} if self.given else {}),
            **({"partial": list(map(dict, self.partial))} if self.partial else {}),
            **({"jobs": jobs} if (jobs := self._dump_jobs()) else {}),
        }

    def _dump_jobs(self) -> list[list[Any]]:
        """Return the jobs of the trials that the status names."""
        named = [*self.best, *self.front, *filter(None, [self.nearest])]
        return [[trial.number, trial.job] for trial in named if trial.job is not None]

    def _dump_parts(self) -> list[Any]:
        to_json = self.search.to_json
        return [
            [
                number,
                [
                    [how, to_json(value), *rest, *([list(violations)] if violations else [])]
                    for how, value, *rest, violations in parts
                ],
            ]
            for number, parts in self.parts.items()
        ]

    def load(self, value: Mapping[str, Any]) -> None:
        """Set the trials from the result of `dump`."""
        states = value["states"]
        for number, params in enumerate(value["params"]):
            trial = Trial(number, self._spelled(params), None)
            trial.state = _STATES[states[2 * number : 2 * number + 2]]
            self.all.append(trial)
            if trial.state == STOCK:
                self.stock.append(number)
        for number, attributes in value["attributes"]:
            self.all[number].attributes = attributes
        for number, t_sent in value["sent"]:
            self.active[number] = None
            self.all[number].t_sent = t_sent
        for end in value["ended"]:
            number, of_objective, step, violations = parse_end(end)
            trial = self.all[number]
            trial.step, trial.violations = step, violations
            trial.value = _value(of_objective)
            self.ended.append(number)
            self.counts[trial.state] += 1
            self._rank(trial)
        self.seconds, self.given = value["seconds"], value.get("given", 0)
        self.partial.extend(value.get("partial", ()))
        for number, parts in value.get("parts", ()):
            self.parts[number] = [
                Part(how, _value(of_objective), *rest) for how, of_objective, *rest in parts
            ]
        for number, job in value.get("jobs", ()):
            self.all[number].job = job


def parse_end(end: Sequence[Any]) -> tuple[int, Any, float | None, Sequence[float]]:
    """Return the number of a trial, its value, the step of that, and its violations.

    >>> parse_end([3, 0.5]), parse_end([3, 0.5, 9]), parse_end([3, 0.5, None, [-1.0]])
    ((3, 0.5, None, ()), (3, 0.5, 9, ()), (3, 0.5, None, [-1.0]))
    """
    number, value, step, violations = [*end, None, None][:4]
    return number, value, step, violations or ()


def _value(given: Any) -> Value | None:
    return tuple(given) if isinstance(given, list) else given


def dominates(costs: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether each cost is at most as large as the other, and they are not all equal.

    >>> dominates((1, 2), (1, 3)), dominates((1, 2), (1, 2)), dominates((1, 3), (2, 2))
    (True, False, False)
    """
    return costs != others and all(map(le, costs, others))


def moved(mean: float | None, value: float) -> float:
    """Return a moving mean after one more value."""
    return value if mean is None else mean + _WEIGHT * (value - mean)
