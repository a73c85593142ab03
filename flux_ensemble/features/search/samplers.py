"""Samplers: they suggest the points of one search, in its process or in the simulator.

A sampler draws each point with a seed of its own, a hash of the document's seed, the search and the
number of the trial. So a point is a function of these and of the trials that the sampler has
received, and a new process with the same trials goes on as the old one would have.

    sampling = Sampling(described(search, seed))
    sampling.answer({"count": 2, "points": [], "attributes": {}, "ends": []})
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Protocol

from flux_ensemble.features.search.gaussian import Gaussian
from flux_ensemble.features.search.grid import Grid
from flux_ensemble.features.search.outcomes import violated
from flux_ensemble.features.search.space import DRAWS, NoPointError, RowSpace, rows_of
from flux_ensemble.features.search.steps import Steps
from flux_ensemble.features.search.trials import GIVEN
from flux_ensemble.features.search.unit_cube import Qmc
from flux_ensemble.scalars import identity, unpacked

#: Most characters, about, of one answer as JSON.
MAX_ANSWER = 1 << 19

#: With more trials than MANY, TPE uses the best and the latest ones.
MANY, BEST, LATEST = 1000, 100, 300

#: Most points of a model that are drawn until the constraints allow one.
TRIES = 100

#: The parameters of a trial, in the order of the variables.
Point = Sequence[Any]

#: Data of a point that its sampler needs to go on, besides the parameters; None for nothing.
Attributes = Mapping[str, Any] | None

#: The outcome of a trial: the value of the objective, or of each of several.
Value = float | Sequence[float]


#: No values are fixed.
NOTHING: Mapping[int, Any] = MappingProxyType({})


class Sampler(Protocol):
    """A sampler of points."""

    def add(self, params: Point, attributes: Attributes) -> None:
        """Add a point that was given; its trial is pending."""
        ...

    def end(
        self,
        number: int,
        value: Value | None,
        step: float | None = None,
        violations: Sequence[float] = (),
    ) -> None:
        """Note the end of a trial; it has no value if it failed or was canceled.

        Args:
            number: of the trial.
            value: of the objective, or of each.
            step: the step of the value, if the trial was stopped early.
            violations: by how much each constraint on outcomes is violated, as far as it is known.
        """
        ...

    def suggest(
        self, number: int, seed: int, fixed: Mapping[int, Any] = NOTHING
    ) -> tuple[Point, Attributes] | None:
        """Suggest the point of the next trial, and add it; None if there are no more points.

        Args:
            number: of the trial.
            seed: of the draws.
            fixed: the values that the point is to have, by the place of the variable.
        """
        ...


class SearchSampler:
    """The sampler of one search, and the trials that it has received.

    Args:
        search: as `advisers.described` gives it.
    """

    def __init__(self, search: Mapping[str, Any]) -> None:
        chosen = with_choices(search)
        self._rows = RowSpace(chosen)
        self._search = {**with_places(chosen), "rows": self._rows}
        self._reset()

    def _reset(self) -> None:
        self._sampler = _SAMPLERS[self._search["sampler"]](self._search)
        self._points = 0
        # CMA-ES begins at a distribution of them, and they are no trials of its study.
        told = () if self._search["sampler"] == "cma" else self._search.get("told", ())
        for number, (params, value, *rest) in enumerate(told):
            self._sampler.add(self._rows.placed(params), {GIVEN: True})
            self._sampler.end(number, value, *rest)
        #: The trials of others are before those of the search.
        self._before = len(told)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request: `{"points": [{"params": {...}}, ...], "seconds": x}`."""
        begin = time.perf_counter()
        if request.get("reset"):
            self._reset()
        for params in request["points"]:
            attributes = request["attributes"].get(str(self._points))
            self._sampler.add(self._rows.placed(params), attributes)
            self._points += 1
        for number, value, *rest in request["ends"]:
            self._sampler.end(self._before + number, value, *rest)
        points: list[dict[str, Any]] = []
        size = 0
        partial = request.get("fixed", ())
        for place in range(request["count"]):
            seed = seed_of(self._search, self._points)
            fixed = self._fixed(partial[place]) if place < len(partial) else NOTHING
            suggested = self._sampler.suggest(self._before + self._points, seed, fixed)
            if suggested is None:
                break
            params, attributes = suggested
            self._points += 1
            points.append({"params": self._rows.named(params)})
            if attributes:
                points[-1]["attributes"] = attributes
            size += len(json.dumps(points[-1]))
            if size > MAX_ANSWER:
                break
        return {"points": points, "seconds": time.perf_counter() - begin}

    def _fixed(self, values: Mapping[str, Any]) -> dict[int, Any]:
        """Return the values of a point of the user as the sampler has them, by their places."""
        places = {name: place for place, name in enumerate(self._rows.names)}
        return {
            places[name]: self._rows.place_of(places[name], value) for name, value in values.items()
        }


def with_places(search: Mapping[str, Any]) -> dict[str, Any]:
    """Return a search whose ranges with steps are ranges of the places of their values.

    >>> search = {"variables": [{"name": "x", "low": 0.1, "high": 0.5, "step": 0.2}]}
    >>> with_places(search)["variables"]
    [{'name': 'x', 'low': 0, 'high': 2, 'log': False, 'integer': True}]
    """
    variables = [
        {
            "name": one["name"],
            "low": 0,
            "high": len(Steps(one["low"], one["high"], one["step"])) - 1,
            "log": False,
            "integer": True,
        }
        if "step" in one
        else one
        for one in search["variables"]
    ]
    return {**search, "variables": variables}


def with_choices(search: Mapping[str, Any]) -> dict[str, Any]:
    """Return a search that `advisers.described` gave, with its choices unpacked.

    >>> search = {"variables": [{"name": "c", "choices": [{"written": "1.10"}, 2]}]}
    >>> with_choices(search)["variables"][0]["choices"]
    ['1.10', 2]
    """
    variables = [
        {**one, "choices": list(map(unpacked, one["choices"]))} if "choices" in one else one
        for one in search["variables"]
    ]
    return {**search, "variables": variables}


def seed_of(search: Mapping[str, Any], number: int) -> int:
    """Return the seed of a trial's point, of 32 bits.

    >>> seed_of({"seed": 7, "id": "hpo"}, 0) == seed_of({"seed": 7, "id": "hpo"}, 1)
    False
    """
    name = json.dumps([search["seed"], search["id"], number])
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest())


class Optuna:
    """Samplers of Optuna.

    A study has all trials under their own numbers. TPE, whose time grows with the trials, has a
    study of some of them once they are many. CMA-ES and NSGA-II store their state with the trials
    and with the study; the latter part is stored with the points.
    """

    def __init__(self, search: Mapping[str, Any]) -> None:
        with warnings.catch_warnings():
            # In a notebook without widgets, tqdm warns of that.
            warnings.filterwarnings("ignore", message="IProgress not found")
            import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        self._search = search
        self._rows = rows_of(search)
        self._distributions = {
            variable["name"]: self._distribution(variable) for variable in search["variables"]
        }
        self._names = list(self._distributions)
        self._choices: dict[str, Sequence[Any]] = {
            variable["name"]: variable["choices"]
            for variable in search["variables"]
            if "choices" in variable
        }
        self._places = {
            name: {identity(choice): place for place, choice in enumerate(choices)}
            for name, choices in self._choices.items()
        }
        self._points: list[tuple[Point, Attributes]] = []
        self._values: dict[int, Value | None] = {}
        #: The steps of the values of trials that were stopped early.
        self._steps: dict[int, int] = {}
        #: By how much trials violate constraints on outcomes.
        self._violations: dict[int, Sequence[float]] = {}
        self._random = optuna.samplers.RandomSampler(seed=0)
        self._study = self._new_study()
        self._some: Any = None
        #: For CMA-ES, complete trials of others; None if there are none.
        self._told: list[Any] | None = None
        if search["sampler"] == "cma" and "told" in search:
            self._told = [self._complete(*one) for one in search["told"]]

    def _complete(self, params: Point, value: Value) -> Any:
        """Make a complete trial that is none of the study."""
        external = self._external(self._rows.placed(params))
        return self._optuna.trial.create_trial(
            values=_listed(value), params=external, distributions=self._distributions
        )

    def _distribution(self, variable: Mapping[str, Any]) -> Any:
        distributions = self._optuna.distributions
        if "choices" in variable:
            # Places, since Optuna would confuse equal choices such as 0 and false.
            return distributions.CategoricalDistribution(range(len(variable["choices"])))
        integer = variable["integer"]
        kind = distributions.IntDistribution if integer else distributions.FloatDistribution
        return kind(variable["low"], variable["high"], log=variable["log"])

    def _new_study(self) -> Any:
        directions = self._optuna.study.StudyDirection
        return self._optuna.create_study(
            directions=[
                directions.MAXIMIZE if maximize else directions.MINIMIZE
                for maximize in self._search["maximize"]
            ]
        )

    def _sampler(self, seed: int) -> Any:
        samplers = self._optuna.samplers
        if self._search["sampler"] == "cma":
            with warnings.catch_warnings():
                # Optuna warns that to begin with other trials is experimental.
                warnings.simplefilter("ignore")
                return samplers.CmaEsSampler(
                    seed=seed, warn_independent_sampling=False, source_trials=self._told
                )
        if self._search["sampler"] == "nsga2":
            return samplers.NSGAIISampler(seed=seed)
        with warnings.catch_warnings():
            # Optuna warns that this is experimental.
            warnings.simplefilter("ignore")
            return samplers.TPESampler(seed=seed, constant_liar=self._search["parallel"] > 1)

    def add(self, params: Point, attributes: Attributes) -> None:
        """Add a point that was given."""
        own = dict(attributes or {})
        if own.pop(GIVEN, False) and self._search["sampler"] in _GENERATIONS:
            own = self._as_before()
        self._points.append((params, dict(own) or None))
        self._some = None
        for key, value in own.pop(_OF_STUDY, {}).items():
            self._storage.set_study_system_attr(self._study._study_id, key, value)
        self._study.add_trial(self._trial(params, own))

    def _as_before(self) -> dict[str, Any]:
        """Return the attributes of a point of the user: the generation of the point before it.

        The strategy learns from the points of its generation, whoever chose them.
        """
        key = _GENERATIONS[self._search["sampler"]]
        _, before = self._points[-1] if self._points else (None, None)
        return {key: (before or {}).get(key, 0)}

    @property
    def _storage(self) -> Any:
        return self._study._storage

    def _of_study(self) -> dict[str, Any]:
        """Return the state that a sampler stores with the study."""
        return dict(self._storage.get_study_system_attrs(self._study._study_id))

    def _trial(self, params: Point, attributes: Attributes, number: int | None = None) -> Any:
        """Make a pending trial, or one that has ended with its value."""
        states = self._optuna.trial.TrialState
        ended = number in self._values
        value = self._values[number] if ended and number is not None else None
        state = states.RUNNING
        if ended:
            state = states.FAIL if value is None else states.COMPLETE
        step = None if number is None else self._steps.get(number)
        published: dict[int, Any] = {}
        if step is not None:
            state = states.PRUNED
            published[step] = value
        return self._optuna.trial.create_trial(
            state=state,
            values=None if value is None else _listed(value),
            params=self._external(params),
            distributions={name: self._distributions[name] for name in self._external(params)},
            system_attrs={**(attributes or {}), **self._constraints(number)},
            intermediate_values=published,
        )

    def _constraints(self, number: int | None) -> dict[str, float]:
        """Return the constraints of a trial as `Trial.set_constraint` stores them."""
        violations = () if number is None else self._violations.get(number, ())
        return {f"constraints:{place}": one for place, one in enumerate(violations)}

    def end(
        self,
        number: int,
        value: Value | None,
        step: float | None = None,
        violations: Sequence[float] = (),
    ) -> None:
        """Note the end of a trial."""
        self._values[number] = value
        self._some = None
        if violations:
            self._violations[number] = violations
        for key, violation in self._constraints(number).items():
            self._storage.set_trial_system_attr(number, key, violation)
        if step is not None:
            self._steps[number] = int(step)
            self._storage.set_trial_intermediate_value(number, int(step), value)
            self._study.tell(number, state=self._optuna.trial.TrialState.PRUNED)
        elif value is None:
            self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(number, _listed(value))

    def suggest(
        self, number: int, seed: int, fixed: Mapping[int, Any] = NOTHING
    ) -> tuple[Point, Attributes] | None:
        """Suggest the point of the next trial."""
        study = self._study
        if self._search["sampler"] == "tpe" and len(self._values) > MANY:
            if self._some is None:
                self._some = self._study_of_some()
            study = self._some
        study.sampler = self._sampler(seed)
        before = self._of_study() if self._search["sampler"] in _KEEP else {}
        if self._rows.space.is_plain and not fixed:
            trial = study.ask(self._distributions)
            params = [self._value(name, trial.params[name]) for name in self._names]
        else:
            params = self._chosen(study, seed, fixed)
        attributes = None
        if self._search["sampler"] in _KEEP:
            # With its trials a sampler stores the state of its strategy, or the generation; with
            # the study it stores the parents of the next generation.
            attributes = dict(study.get_trials(deepcopy=False)[number].system_attrs)
            of_study = {key: value for key, value in self._of_study().items() if key not in before}
            if of_study:
                attributes[_OF_STUDY] = of_study
        self._points.append((params, attributes))
        if study is not self._study:
            self._study.add_trial(self._trial(params, None))
        return params, attributes

    def _chosen(self, study: Any, seed: int, fixed: Mapping[int, Any]) -> list[Any]:
        """Ask a study for a trial whose point has fixed values, and is one of the space.

        As in a program of a user of Optuna, a variable is asked for when its condition holds. A
        point that the constraints leave out is drawn anew for the same trial.

        Raises:
            NoPointError: the constraints leave out each point that was drawn.
        """
        trial, storage = study.ask(), study._storage
        frozen = storage.get_trial(trial._trial_id)
        params = self._draw(study, frozen, study.sampler, trial.relative_params, fixed)
        for again in range(1, DRAWS + 1):
            if self._rows.allows(params):
                break
            sampler, relative = self._random, {}
            if again <= TRIES:
                # After so many points of the model the others are drawn from the whole space.
                study.sampler = sampler = self._sampler((seed + again) % 2**32)
                relative = sampler.sample_relative(study, frozen, trial.relative_search_space)
            elif again == TRIES + 1:
                sampler._rng.rng.seed(seed)
            params = self._draw(study, frozen, sampler, relative, fixed)
        else:
            raise NoPointError
        for name, value in self._external(params).items():
            distribution = self._distributions[name]
            storage.set_trial_param(
                trial._trial_id, name, distribution.to_internal_repr(value), distribution
            )
        return params

    def _draw(
        self,
        study: Any,
        trial: Any,
        sampler: Any,
        relative: Mapping[str, Any],
        fixed: Mapping[int, Any],
    ) -> list[Any]:
        """Draw a point as a trial of Optuna does, variable by variable.

        Args:
            study, trial: for the sampler.
            sampler: of Optuna.
            relative: what it has drawn at once, by variable.
            fixed: the values that the point is to have, by the place of the variable.
        """
        params: list[Any] = [None] * len(self._names)
        known: dict[str, Any] = {}
        for place in self._rows.order:
            name = self._names[place]
            if not self._rows.space.has(name, known):
                continue
            distribution = self._distributions[name]
            if place in fixed:
                params[place] = fixed[place]
            elif distribution.single():
                params[place] = self._value(name, 0)
            elif name in relative:
                params[place] = self._value(name, relative[name])
            else:
                drawn = sampler.sample_independent(study, trial, name, distribution)
                params[place] = self._value(name, drawn)
            known[name] = self._rows.value_of(place, params[place])
        return params

    def _external(self, params: Point) -> dict[str, Any]:
        """Return the values that a point has as the study has them, by variable."""
        return {
            name: self._own(place, params[place])
            for place, (name, has) in enumerate(
                zip(self._names, self._rows.has(params), strict=True)
            )
            if has
        }

    def _own(self, place: int, value: Any) -> Any:
        """Return the value of a variable as the study has it: for choices a place."""
        name = self._names[place]
        return self._places[name][identity(value)] if name in self._places else value

    def _value(self, name: str, drawn: Any) -> Any:
        """Return the value of a drawn variable; for choices the draw is a place."""
        return self._choices[name][drawn] if name in self._choices else drawn

    def _study_of_some(self) -> Any:
        """Make a study of the best trials, the latest ones, and the pending ones."""
        complete = [
            number
            for number, value in self._values.items()
            if value is not None and number not in self._steps
        ]
        # And the latest of those that were stopped early.
        kept = {*complete[-LATEST:], *list(self._steps)[-LATEST:]}
        # The best for each objective; with a single objective, these are the best.
        signs = [-1.0 if maximize else 1.0 for maximize in self._search["maximize"]]
        for place, sign in enumerate(signs):
            costs = {
                number: (
                    violated(self._violations.get(number, ())),
                    sign * _listed(self._values[number])[place],
                )
                for number in complete
            }
            kept.update(_by_cost(costs)[: BEST // len(signs)])
        kept.update(number for number in range(len(self._points)) if number not in self._values)
        study = self._new_study()
        study.add_trials([self._trial(*self._points[number], number) for number in sorted(kept)])
        return study


#: How often a point is drawn that was given before.
AGAIN = 20


class Random(Optuna):
    """Uniform draws, as Optuna's sampler makes them for an empty study: outcomes have no effect.

    A point of a finite space that was given before is drawn anew, with other seeds; if only few are
    left, the next one of the grid is taken.
    """

    def __init__(self, search: Mapping[str, Any]) -> None:
        super().__init__(search)
        state = self._optuna.trial.TrialState.RUNNING
        self._any = self._optuna.trial.create_trial(state=state)
        self._drawing = self._optuna.samplers.RandomSampler(seed=0)
        grid = Grid(search)
        self._grid = grid if grid.is_finite else None

    def add(self, params: Point, attributes: Attributes) -> None:
        """Add a point that was given: one of a finite space is not given again."""
        if self._grid is not None:
            self._grid.add(params, None)

    def end(
        self,
        number: int,
        value: Value | None,
        step: float | None = None,
        violations: Sequence[float] = (),
    ) -> None:
        """Do nothing: outcomes have no effect."""

    def suggest(
        self, number: int, seed: int, fixed: Mapping[int, Any] = NOTHING
    ) -> tuple[Point, Attributes] | None:
        """Return the point for this seed; None if each has been given."""
        params = self._drawn(seed, fixed)
        if self._grid is None:
            return params, None
        for again in range(1, AGAIN + 1):
            if not self._grid.knows(params):
                self._grid.add(params, None)
                return params, None
            params = self._drawn((seed + again) % 2**32, fixed)
        return self._grid.suggest(number, seed, fixed)

    def _drawn(self, seed: int, fixed: Mapping[int, Any]) -> list[Any]:
        """Draw points until the constraints allow one.

        Raises:
            NoPointError: they leave out each of many.
        """
        # Like a new sampler with this seed, which would first be seeded by the system.
        self._drawing._rng.rng.seed(seed)
        for _ in range(DRAWS):
            params = self._draw(self._study, self._any, self._drawing, {}, fixed)
            if self._rows.allows(params):
                return params
        raise NoPointError


def _by_cost(costs: Mapping[int, tuple[float, float]]) -> list[int]:
    """Return the numbers of trials, the best one first."""
    return sorted(costs, key=lambda number: (costs[number], number))


def _listed(value: Any) -> list[float]:
    """Return the values of all objectives."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


#: Samplers that store state with their trials, and the key of the generation there.
_GENERATIONS = {"cma": "cma:generation", "nsga2": "NSGAIISampler:generation"}
_KEEP = tuple(_GENERATIONS)

#: The key of their state that is stored with the study.
_OF_STUDY = "study"

_SAMPLERS: Mapping[str, Any] = {
    "tpe": Optuna,
    "random": Random,
    "qmc": Qmc,
    "cma": Optuna,
    "nsga2": Optuna,
    "gp": Gaussian,
    "grid": Grid,
}
