"""Searches in their checked form: variables, objectives, source of the points, early stopping."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import prod
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from flux_ensemble.document.model import Spec
from flux_ensemble.features.search.keys import MEAN, SAMPLERS, SKIP
from flux_ensemble.features.search.outcomes import (
    OutcomeConstraint,
    outcomes_of,
    published,
    violated,
)
from flux_ensemble.features.search.paths import SEARCH, Searched
from flux_ensemble.features.search.space import DRAWS, Space
from flux_ensemble.features.search.steps import Steps
from flux_ensemble.features.search.unit_cube import at
from flux_ensemble.scalars import Spelled, as_text, identity, number, packed
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown
from flux_ensemble.words import AGGREGATES

#: The place of these in a search whose points come from a generator of the user's.
GENERATOR = "generator"

#: Those that have ranges alone, and those that have one objective.
RANGES_ONLY = ("cma",)
ONE_OBJECTIVE = ("cma", "gp")

#: Those that have no variables under a condition, and no constraints on the outcomes of trials.
UNCONDITIONAL = ("cma", GENERATOR)
UNCONSTRAINED = ("cma",)

#: Most objectives of one search.
MAX_OBJECTIVES = 8

#: Most variables of one search, and most choices of one of them.
MAX_VARIABLES = 1000
MAX_CHOICES = 1000

#: Most steps of a range.
MAX_STEPS = 10**9

#: Integers of larger ranges are not counted.
_COUNTABLE = 2**53

#: Most points of a finite space with conditions or constraints that are counted.
COUNTED = 100_000

#: The sampler that tries every point of a finite space.
GRID = "grid"

#: Those that suggest no point of a finite space twice.
ONCE = (GRID, "random")

#: Fewest trials of others from which CMA-ES can begin, and most for any sampler, with most values.
LEAST_FOR_CMA, MAX_TOLD, MAX_TOLD_VALUES = 10, 10_000, 100_000

#: Samplers whose points depend on no outcome of a trial.
INDEPENDENT = frozenset({"random", "qmc", GRID})

#: What a trial came to: the value of the objective, or of each where there are several.
Value = float | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a search: a range of numbers, or choices.

    >>> Variable("lr", 0.001, 0.1, log=True).objection(0.2)
    'expected a number >= 0.001 and <= 0.1, not 0.2'
    >>> Variable("opt", choices=("sgd", "adam")).objection("adam") is None
    True
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    integer: bool = False
    choices: tuple[Any, ...] = ()
    step: float | None = None
    when: str | None = None

    @property
    def example(self) -> Any:
        """A value that it can have, which is not null."""
        return next((one for one in self.choices if one is not None), self.low)

    @property
    def steps(self) -> Steps | None:
        """The values of a range with steps; None without."""
        return None if self.step is None else Steps(self.low, self.high, self.step)

    @property
    def values(self) -> Sequence[Any] | None:
        """All values that it can have; None if there are too many to be counted.

        >>> Variable("layers", 1, 3, integer=True).values, Variable("lr", 0.0, 1.0).values
        (range(1, 4), None)
        """
        if self.choices:
            return self.choices
        if self.steps is not None:
            return self.steps
        if self.integer and self.high - self.low < _COUNTABLE:
            return range(int(self.low), int(self.high) + 1)
        return None

    def drawn(self, uniform: float) -> Any:
        """Return its value for a number >= 0 and < 1."""
        values = self.choices or self.steps
        if values:
            return values[int(uniform * len(values))]
        return at(self.to_json(), uniform)

    def objection(self, value: Any) -> str | None:
        """Return the reason that the variable cannot have a value; None if it can."""
        if self.choices:
            if any(identity(value) == identity(choice) for choice in self.choices):
                return None
            return f"expected one of {', '.join(map(repr, self.choices))}, not {shown(value)}"
        kinds = (int,) if self.integer else (int, float)
        within = type(value) in kinds and math.isfinite(value) and self.low <= value <= self.high
        if self.steps is not None and not (within and value in self.steps):
            return (
                f"expected {self.low!r} and steps of {self.step!r} up to {self.high!r}, not "
                f"{shown(value)}"
            )
        if within:
            return None
        what = "an integer" if self.integer else "a number"
        return f"expected {what} >= {self.low!r} and <= {self.high!r}, not {shown(value)}"

    def read(self, value: Any) -> Any:
        """Return the value that somebody wrote, as the points of a suggester have it.

        Raises:
            ValueError: the variable cannot have it; the text is the reason.

        >>> Variable("lr", 0.001, 0.1).read("1e-2"), Variable("k", 1, 8, integer=True).read(3.0)
        (0.01, 3)
        >>> Variable("on", choices=(True, 300)).read("300")
        300
        """
        if self.choices:
            choice = self._choice(value)
        else:
            given = number(value)
            if type(given) is str:
                with suppress(ValueError):
                    given = float(given)
            if type(given) in (int, float) and math.isfinite(given):
                whole = self.integer and given == int(given)
                given = int(given) if whole else float(given)
                if self.steps is not None:
                    given = self.steps.near(given)
            choice = given
        objection = self.objection(choice)
        if objection is not None:
            raise ValueError(objection)
        return choice

    def _choice(self, value: Any) -> Any:
        """Return the choice that is a value, or is written as it; the value if there is none."""
        for choice in self.choices:
            if identity(choice) == identity(value):
                return choice
        return next((one for one in self.choices if as_text(one) == as_text(value)), value)

    @property
    def spellings(self) -> dict[str, Spelled]:
        """The choices that are numbers or booleans with a spelling, by the spelling."""
        return {str(one): one for one in self.choices if type(one) is Spelled}

    def to_json(self) -> dict[str, Any]:
        """Return the variable as JSON, for the process that suggests points."""
        when = {} if self.when is None else {"when": self.when}
        if self.choices:
            return {"name": self.name, "choices": list(map(packed, self.choices)), **when}
        return {
            "name": self.name,
            "low": self.low,
            "high": self.high,
            "log": self.log,
            "integer": self.integer,
            **({} if self.step is None else {"step": self.step}),
            **when,
        }


@dataclass(frozen=True, slots=True)
class Objective:
    """A value that a search minimizes, or maximizes.

    Args:
        key: of the memo whose last value it is.
        maximize: it is to be large, else small.
    """

    key: str
    maximize: bool = False

    @property
    def direction(self) -> str:
        """ "maximize" or "minimize"."""
        return "maximize" if self.maximize else "minimize"


@dataclass(frozen=True, slots=True)
class Generator:
    """A class of the user's that suggests points: a generator of gest-api.

    Args:
        name: `package.module:Class`.
        arguments: of the class, by name.
        initial: how many trials are to be complete before it is asked.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    initial: int = 1


@dataclass(frozen=True, slots=True)
class Stop:
    """The early stopping of trials, by what their jobs publish while they run.

    Args:
        policy: one of `POLICIES`.
        step: the key of the memo that counts the steps.
        begin: the first step at which trials are compared.
        last: of `hyperband`, the last step of a trial.
        eta: of `asha` and `hyperband`, one trial in so many goes on at each rung.
        trials: of `median` and `percentile`, how many have to be complete before.
        percentile: of `percentile`, the share of trials that go on.
        patience, min_delta: of `patience`, in how many steps a trial has to become better, and by
            how much it has to be worse to be stopped.
        lower, upper: of `threshold`, the bounds of the objective, or None.
    """

    policy: str
    step: str
    begin: int = 1
    last: int = 0
    eta: int = 3
    trials: int = 5
    percentile: float = 25
    patience: int = 5
    min_delta: float = 0.0
    lower: float | None = None
    upper: float | None = None


class PriorTrial(NamedTuple):
    """A trial that others have made.

    Args:
        params: in the order of the variables.
        value: of the objective, or of each.
        memo: the numbers that the constraints on outcomes name.
    """

    params: tuple[Any, ...]
    value: Value
    memo: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Trials that others have made, from which a search learns before its own.

    Args:
        trials: the trials.
        files: that they were read from; none where the document has them itself.
        left_out: what was not taken of the files, in sentences, each with whether that is usual.
    """

    trials: tuple[PriorTrial, ...] = ()
    files: tuple[str, ...] = ()
    left_out: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """An entry of `search:`.

    Args:
        id: its name.
        group: the group that its trials are jobs of.
        variables: what varies; in its order, values are kept without names.
        objectives: what it makes small, or large; of several, no trial is the best of all.
        sampler: one of `SAMPLERS`, or `GENERATOR`.
        trials: how many there are at most.
        points: the points that are tried first; the suggester chooses the values that are missing.
        where: constraints on the points, expressions of the variables.
        subject_to: constraints on the outcomes of trials.
        repeats: how many jobs a trial has.
        aggregate: what its value is of theirs, one of `AGGREGATES`.
        parallel: how many are in the queue at once.
        on_failure: `SKIP` or `RETRY`.
        penalty: the value of a trial that failed, as of one that did not; or None.
        failures: how many in a row close it.
        timeout: seconds that points may take; 0 is no limit.
        stop: when trials are stopped early; None for never.
        generator: what suggests the points in place of a sampler.
        batch: how many points are asked for at once; 0 for as many as there are free slots.
        sequential: points are asked for only when no trial is under way.
        warm_start: what it learns before its own trials.

    >>> search = Search("hpo", "trial", (Variable("lr", 0.0, 1.0),), (Objective("loss"),))
    >>> search.metrics.variables, search.values({"loss": 1, "other": 2})
    (('lr',), 1)
    """

    id: str
    group: str
    variables: tuple[Variable, ...]
    objectives: tuple[Objective, ...]
    sampler: str = SAMPLERS[0]
    trials: int = 1
    points: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    where: tuple[str, ...] = ()
    subject_to: tuple[str, ...] = ()
    repeats: int = 1
    aggregate: str = MEAN
    parallel: int = 1
    on_failure: str = SKIP
    penalty: Value | None = None
    failures: int = 20
    timeout: float = 300.0
    stop: Stop | None = None
    generator: Generator | None = None
    batch: int = 0
    sequential: bool = False
    warm_start: WarmStart = field(default=WarmStart(), hash=False)

    @property
    def size(self) -> int | None:
        """The number of points of the space; None if there are too many to be counted."""
        values = [variable.values for variable in self.variables]
        if None in values:
            return None
        size = prod(len(one) for one in values if one is not None)
        if self.space.is_plain:
            return size
        return None if size > COUNTED else len(set(self._points({})))

    def _points(self, fixed: Mapping[str, Any]) -> Iterator[tuple[tuple[type, Any], ...]]:
        """Yield the points of a finite space that have these values, some of them several times."""
        names = [variable.name for variable in self.variables]
        values = [
            (fixed[one.name],) if one.name in fixed else one.values or () for one in self.variables
        ]
        for row in product(*values):
            params = self.space.settled(dict(zip(names, row, strict=True)))
            if self.space.allows(params):
                yield tuple(map(identity, self.row_of(params)))

    def has_point(self, fixed: Mapping[str, Any] = MappingProxyType({})) -> bool:
        """Return whether its constraints leave a point with these values, as far as draws find one.

        >>> sums = Variable("x", 0.0, 1.0), Variable("y", 0.0, 1.0)
        >>> Search("hpo", "trial", sums, (), where=("x + y > 2",)).has_point()
        False
        """
        values = [() if one.name in fixed else one.values for one in self.variables]
        if (
            None not in values
            and prod(len(one) or 1 for one in values if one is not None) < COUNTED
        ):
            return next(self._points(fixed), None) is not None
        rng = Random(0)
        for _ in range(DRAWS):
            drawn = {one.name: one.drawn(rng.random()) for one in self.variables}
            if self.space.allows(self.space.settled({**drawn, **fixed})):
                return True
        return False

    @property
    def space(self) -> Space:
        """The conditions of its variables, and its constraints."""
        return space_of(self.variables, self.where)

    @property
    def best_told(self) -> tuple[tuple[Any, ...], float] | None:
        """The best feasible trial of others; None if there is none, or several objectives."""
        told = [
            (one.params, one.value)
            for one in self.warm_start.trials
            if not isinstance(one.value, tuple) and not violated(self.violated_by(one))
        ]
        return min(told, key=lambda one: self.costs(one[1]), default=None)

    def violated_by(self, told: PriorTrial) -> tuple[float, ...]:
        """Return by how much a trial of others violates each constraint on its outcome."""
        return self.violations(self.named(told.params), told.memo)

    @property
    def suggests(self) -> str:
        """The suggester of the points: the sampler, or the class of the generator."""
        return self.sampler if self.generator is None else self.generator.name

    @property
    def metrics(self) -> Searched:
        """The parts of the search that expressions can name."""
        names = tuple(variable.name for variable in self.variables)
        stops, bound = self.stop is not None, bool(self.subject_to)
        return Searched(self.id, self.group, names, self.several, stops, bound)

    @property
    def several(self) -> bool:
        """True if the search has several objectives."""
        return len(self.objectives) > 1

    def values(self, memo: Mapping[str, Any]) -> Value:
        """The values of the objectives in what a job has published.

        Raises:
            ValueError: one of them is no finite number.
        """
        values = [published(memo, objective.key) for objective in self.objectives]
        return tuple(values) if self.several else values[0]

    @property
    def outcomes(self) -> tuple[OutcomeConstraint, ...]:
        """The constraints on the outcomes of trials."""
        return outcomes_of(self.subject_to, tuple(variable.name for variable in self.variables))

    def violations(self, params: Mapping[str, Any], memo: Mapping[str, Any]) -> tuple[float, ...]:
        """Return by how much a trial violates each constraint on its outcome.

        Args:
            params: the values that it has of the variables.
            memo: what its job has published.

        Raises:
            ValueError: that is unknown.

        >>> Search("hpo", "trial", (), (), subject_to=("mass <= 3",)).violations({}, {"mass": 4.5})
        (1.5,)
        """
        return tuple(outcome.violation(params, memo) for outcome in self.outcomes)

    def aggregated(self, values: Sequence[Value]) -> Value:
        """The value of a trial, of those of its jobs; that of each objective by itself.

        >>> search = Search("hpo", "trial", (), (), repeats=3, aggregate="median")
        >>> search.aggregated([3, 1, 2]), search.aggregated([(1, 8), (3, 4)])
        (2, (2.0, 6.0))
        """
        several = [value for value in values if isinstance(value, tuple)]
        if several:
            return self.aggregated_each(several)
        of = AGGREGATES[self.aggregate]
        return of([value for value in values if not isinstance(value, tuple)])

    def aggregated_each(self, values: Sequence[Sequence[float]]) -> tuple[float, ...]:
        """Return the aggregates of the first numbers of a trial's jobs, of the second, and so on.

        >>> Search("hpo", "trial", (), ()).aggregated_each([[1.0, 8.0], [3.0, 4.0]])
        (2.0, 6.0)
        """
        return tuple(map(AGGREGATES[self.aggregate], zip(*values, strict=True)))

    def costs(self, value: Value) -> tuple[float, ...]:
        """Values of the objectives with such signs that less is better.

        >>> several = (Objective("seconds"), Objective("accuracy", maximize=True))
        >>> Search("hpo", "trial", (), several).costs((10.0, 0.9))
        (10.0, -0.9)
        """
        values = value if isinstance(value, tuple) else (value,)
        return tuple(
            -one if objective.maximize else one
            for objective, one in zip(self.objectives, values, strict=True)
        )

    def to_json(self, value: Value | None) -> Any:
        """A value as JSON: a number, or a list of them."""
        return list(value) if isinstance(value, tuple) else value

    def read(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a point that somebody wrote, in the order of the variables.

        Raises:
            ValueError: the search cannot have it; the text says which value, and what to write.

        >>> Search("hpo", "trial", (Variable("lr", 0.0, 1.0),), ()).read({"lr": "0.5"})
        {'lr': 0.5}
        """
        names = [variable.name for variable in self.variables]
        for name in point:
            if name not in names:
                raise ValueError(
                    f"no variable {shown(name)} ({hint(name, names)}variables: {listed(names)})"
                )
        if not point:
            raise ValueError(f"give a value of one variable or more ({listed(names)})")
        values = {}
        for variable in self.variables:
            if variable.name in point:
                try:
                    values[variable.name] = variable.read(point[variable.name])
                except ValueError as error:
                    raise ValueError(f"{variable.name}: {error}") from None
        self._check(values)
        return values

    def _check(self, values: Mapping[str, Any]) -> None:
        """Check that the search can have a point with these values.

        Raises:
            ValueError: it cannot.
        """
        space = self.space
        known = space.settled(values)
        for variable in self.variables:
            name = variable.name
            # What its condition needs may be among the values that the suggester chooses.
            if name in values and name not in known and not space.lacks(known):
                raise ValueError(f"{name}: it has a value only when {variable.when}")
        broken = space.broken(known)
        if broken is not None:
            raise ValueError(f"'where' leaves it out: {self.where[broken]}")
        if space.is_constrained and self.row(values) is None and not self.has_point(values):
            raise ValueError(
                f"'where' leaves out each point with these values: {' and '.join(self.where)}"
            )

    def row(self, point: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Return the values of a point without their names; None if some are missing.

        A value that the point does not have, by its condition, is None.
        """
        if self.space.lacks(point):
            return None
        return self.row_of(self.space.settled(point))

    def row_of(self, params: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the parameters of a trial in the order of the variables; None for no value."""
        return tuple(params.get(variable.name) for variable in self.variables)

    def named(self, row: Sequence[Any]) -> dict[str, Any]:
        """Return the parameters of a trial by name; those that it has."""
        names = [variable.name for variable in self.variables]
        params = dict(zip(names, row, strict=True))
        return self.space.settled(params) if self.space.is_conditional else params

    def objection(self, params: Mapping[str, Any]) -> str | None:
        """Return the reason that parameters are not those of a trial; None if they are."""
        space = self.space
        names = [variable.name for variable in self.variables]
        known = space.settled(params)
        if params.keys() != known.keys() or space.lacks(known):
            wanted = [name for name in names if name in known or space.has(name, known)]
            return f"expected values of {', '.join(wanted)}, not of {', '.join(params) or 'none'}"
        for variable in self.variables:
            if variable.name in known:
                objection = variable.objection(known[variable.name])
                if objection is not None:
                    return f"{variable.name}: {objection}"
        broken = space.broken(known)
        return None if broken is None else f"'where' leaves it out: {self.where[broken]}"


@lru_cache(maxsize=64)
def space_of(variables: tuple[Variable, ...], where: tuple[str, ...]) -> Space:
    """Return the conditions of variables, and constraints.

    Raises:
        CircleError: the conditions lead back to a variable.
    """
    conditions = {one.name: one.when for one in variables if one.when is not None}
    return Space([one.name for one in variables], conditions, where)


def searches_of(spec: Spec) -> tuple[Search, ...]:
    """Return the searches of a document."""
    searches: tuple[Search, ...] = tuple(spec.features.get(SEARCH, ()))  # type: ignore[arg-type]
    return searches
