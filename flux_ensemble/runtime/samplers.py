"""Suggests the points of one search: what runs in its process, and in the simulator.

A sampler draws each point with a seed of its own, a hash of the document's seed, the search and the
number of the trial. So a point is a function of these and of the trials that the sampler is told
of, and a new process that was told of the same trials goes on as the old one would have.

    sampling = Sampling(described(search, seed))
    sampling.answer({"count": 2, "points": [], "attributes": {}, "ends": []})
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

from flux_ensemble.runtime.gaussian import Gaussian
from flux_ensemble.runtime.unit_cube import Qmc
from flux_ensemble.scalars import identity, unpacked

#: What a sampler answers at once has at most so many characters as JSON, about.
MAX_ANSWER = 1 << 19

#: Of more trials than this, TPE sees the best and the latest ones.
MANY, BEST, LATEST = 1000, 100, 300

#: The parameters of a trial, in the order of the variables.
Point = Sequence[Any]

#: What a sampler needs of a point to go on, besides its parameters; None for nothing.
Attributes = Mapping[str, Any] | None

#: What came of a trial: the value of the objective, or of each of several.
Value = float | Sequence[float]


class Sampler(Protocol):
    """Suggests points."""

    def add(self, params: Point, attributes: Attributes) -> None:
        """A point was given; its trial is under way."""
        ...

    def end(self, number: int, value: Value | None, step: float | None = None) -> None:
        """A trial has ended, without a value if it failed or was canceled.

        Args:
            number: of the trial.
            value: of the objective, or of each.
            step: the step of the value, if the trial was stopped early.
        """
        ...

    def suggest(self, number: int, seed: int) -> tuple[Point, Attributes]:
        """The point of the next trial, which is added too.

        Args:
            number: of the trial.
            seed: what is drawn with.
        """
        ...


class Sampling:
    """The sampler of one search, and what it was told.

    Args:
        search: as `asking.asker.described` gives it.
    """

    def __init__(self, search: Mapping[str, Any]) -> None:
        self._search = with_choices(search)
        self._names = [variable["name"] for variable in search["variables"]]
        self._reset()

    def _reset(self) -> None:
        self._sampler = _SAMPLERS[self._search["sampler"]](self._search)
        self._points = 0

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request: `{"points": [{"params": {...}}, ...], "seconds": x}`."""
        begin = time.perf_counter()
        if request.get("reset"):
            self._reset()
        for params in request["points"]:
            self._sampler.add(params, request["attributes"].get(str(self._points)))
            self._points += 1
        for number, value, *step in request["ends"]:
            self._sampler.end(number, value, *step)
        points: list[dict[str, Any]] = []
        size = 0
        for _ in range(request["count"]):
            seed = seed_of(self._search, self._points)
            params, attributes = self._sampler.suggest(self._points, seed)
            self._points += 1
            points.append({"params": dict(zip(self._names, params, strict=True))})
            if attributes:
                points[-1]["attributes"] = attributes
            size += len(json.dumps(points[-1]))
            if size > MAX_ANSWER:
                break
        return {"points": points, "seconds": time.perf_counter() - begin}


def with_choices(search: Mapping[str, Any]) -> dict[str, Any]:
    """A search as `asking.asker.described` gives it, with its choices as they are.

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
    """The seed of a trial's point, of 32 bits.

    >>> seed_of({"seed": 7, "id": "hpo"}, 0) == seed_of({"seed": 7, "id": "hpo"}, 1)
    False
    """
    name = json.dumps([search["seed"], search["id"], number])
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest())


class Optuna:
    """Samplers of Optuna.

    A study knows all trials under their own numbers. TPE, which takes the longer the more trials
    there are, has a study of some of them once they are many. CMA-ES and NSGA-II keep what they
    need to go on with the trials, and with the study; that goes with the points.
    """

    def __init__(self, search: Mapping[str, Any]) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        self._search = search
        self._distributions = {
            variable["name"]: self._distribution(variable) for variable in search["variables"]
        }
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
        #: The steps of the values of those that were stopped early.
        self._steps: dict[int, int] = {}
        self._study = self._new_study()
        self._some: Any = None

    def _distribution(self, variable: Mapping[str, Any]) -> Any:
        distributions = self._optuna.distributions
        if "choices" in variable:
            # Of 0 and false, which are equal, Optuna would take the first for both.
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
            return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        if self._search["sampler"] == "nsga2":
            return samplers.NSGAIISampler(seed=seed)
        with warnings.catch_warnings():
            # That it is experimental.
            warnings.simplefilter("ignore")
            return samplers.TPESampler(seed=seed, constant_liar=self._search["parallel"] > 1)

    def add(self, params: Point, attributes: Attributes) -> None:
        """A point was given."""
        self._points.append((params, attributes))
        self._some = None
        own = dict(attributes or {})
        for key, value in own.pop(_OF_STUDY, {}).items():
            self._storage.set_study_system_attr(self._study._study_id, key, value)
        self._study.add_trial(self._trial(params, own))

    @property
    def _storage(self) -> Any:
        return self._study._storage

    def _of_study(self) -> dict[str, Any]:
        """What a sampler keeps with the study."""
        return dict(self._storage.get_study_system_attrs(self._study._study_id))

    def _trial(self, params: Point, attributes: Attributes, number: int | None = None) -> Any:
        """A trial under way, or that has ended with the value that it has."""
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
            params={
                name: self._places[name][identity(value)] if name in self._places else value
                for name, value in zip(self._distributions, params, strict=True)
            },
            distributions=self._distributions,
            system_attrs=dict(attributes or {}),
            intermediate_values=published,
        )

    def end(self, number: int, value: Value | None, step: float | None = None) -> None:
        """A trial has ended."""
        self._values[number] = value
        self._some = None
        if step is not None:
            self._steps[number] = int(step)
            self._storage.set_trial_intermediate_value(number, int(step), value)
            self._study.tell(number, state=self._optuna.trial.TrialState.PRUNED)
        elif value is None:
            self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(number, _listed(value))

    def suggest(self, number: int, seed: int) -> tuple[Point, Attributes]:
        """The point of the next trial."""
        study = self._study
        if self._search["sampler"] == "tpe" and len(self._values) > MANY:
            if self._some is None:
                self._some = self._study_of_some()
            study = self._some
        study.sampler = self._sampler(seed)
        before = self._of_study() if self._search["sampler"] in _KEEP else {}
        trial = study.ask(self._distributions)
        params = [self._value(name, trial.params[name]) for name in self._distributions]
        attributes = None
        if self._search["sampler"] in _KEEP:
            # The state of the strategy, or the generation, which it keeps with its trials; and who
            # are the parents of the next one, which it keeps with the study.
            attributes = dict(study.get_trials(deepcopy=False)[number].system_attrs)
            of_study = {key: value for key, value in self._of_study().items() if key not in before}
            if of_study:
                attributes[_OF_STUDY] = of_study
        self._points.append((params, attributes))
        if study is not self._study:
            self._study.add_trial(self._trial(params, None))
        return params, attributes

    def _value(self, name: str, drawn: Any) -> Any:
        """The value of a variable that was drawn, which of choices is the place."""
        return self._choices[name][drawn] if name in self._choices else drawn

    def _study_of_some(self) -> Any:
        """A study of the best trials, the latest ones, and those under way."""
        complete = [
            number
            for number, value in self._values.items()
            if value is not None and number not in self._steps
        ]
        # Of those that were stopped early, the latest too.
        kept = {*complete[-LATEST:], *list(self._steps)[-LATEST:]}
        # The best of each objective; with one, these are the best.
        signs = [-1.0 if maximize else 1.0 for maximize in self._search["maximize"]]
        for place, sign in enumerate(signs):
            costs = {number: sign * _listed(self._values[number])[place] for number in complete}
            kept.update(_by_cost(costs)[: BEST // len(signs)])
        kept.update(number for number in range(len(self._points)) if number not in self._values)
        study = self._new_study()
        study.add_trials([self._trial(*self._points[number], number) for number in sorted(kept)])
        return study


class Random(Optuna):
    """Uniform draws: what Optuna's sampler gives for an empty study, as trials do not matter."""

    def __init__(self, search: Mapping[str, Any]) -> None:
        super().__init__(search)
        state = self._optuna.trial.TrialState.RUNNING
        self._any = self._optuna.trial.create_trial(state=state)
        self._drawing = self._optuna.samplers.RandomSampler(seed=0)

    def add(self, params: Point, attributes: Attributes) -> None:
        """What was given does not matter."""

    def end(self, number: int, value: Value | None, step: float | None = None) -> None:
        """What came of it does not matter."""

    def suggest(self, number: int, seed: int) -> tuple[Point, Attributes]:
        """The point with this seed."""
        # As a new sampler with this seed, whose generator would first be seeded by the system.
        self._drawing._rng.rng.seed(seed)
        draw = self._drawing.sample_independent
        params: list[Any] = []
        for name, distribution in self._distributions.items():
            if distribution.single():
                # Nothing is drawn, as in a trial of a study.
                params.append(self._value(name, 0))
            else:
                drawn = draw(self._study, self._any, name, distribution)
                params.append(self._value(name, drawn))
        return params, None


def _by_cost(costs: Mapping[int, float]) -> list[int]:
    """The numbers of trials, the best one first."""
    return sorted(costs, key=lambda number: (costs[number], number))


def _listed(value: Any) -> list[float]:
    """The values of all objectives."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


#: Samplers that keep something with their trials, and the key of what they keep with the study.
_KEEP = ("cma", "nsga2")
_OF_STUDY = "study"

_SAMPLERS: Mapping[str, Any] = {
    "tpe": Optuna,
    "random": Random,
    "qmc": Qmc,
    "cma": Optuna,
    "nsga2": Optuna,
    "gp": Gaussian,
}
