"""Suggests the points of one search: what runs in its process, and in the simulator.

A sampler draws each point with a seed of its own, a hash of the document's seed, the search and the
number of the trial. So a point is a function of these and of the trials that the sampler is told
of, and a new process that was told of the same trials goes on as the old one would have.

    sampling = Sampling(described(search, seed))
    sampling.answer({"count": 2, "points": [], "attributes": {}, "ends": []})
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

#: What a sampler answers at once has at most so many characters as JSON, about.
MAX_ANSWER = 1 << 19

#: Of more trials than this, TPE sees the best and the latest ones.
MANY, BEST, LATEST = 1000, 100, 300

#: The parameters of a trial, in the order of the variables.
Point = Sequence[Any]

#: What a sampler needs of a point to go on, besides its parameters; None for nothing.
Attributes = Mapping[str, Any] | None


class Sampler(Protocol):
    """Suggests points."""

    def add(self, params: Point, attributes: Attributes) -> None:
        """A point was given; its trial is under way."""
        ...

    def end(self, number: int, value: float | None) -> None:
        """A trial has ended, without a value if it failed or was canceled."""
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
        self._search = search
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
        for number, value in request["ends"]:
            self._sampler.end(number, value)
        points: list[dict[str, Any]] = []
        size = 0
        for _ in range(request["count"]):
            params, attributes = self._sampler.suggest(self._points, self._seed(self._points))
            self._points += 1
            points.append({"params": dict(zip(self._names, params, strict=True))})
            if attributes:
                points[-1]["attributes"] = attributes
            size += len(json.dumps(points[-1]))
            if size > MAX_ANSWER:
                break
        return {"points": points, "seconds": time.perf_counter() - begin}

    def _seed(self, number: int) -> int:
        """The seed of a trial's point, of 32 bits."""
        name = json.dumps([self._search["seed"], self._search["id"], number])
        return int.from_bytes(blake2b(name.encode(), digest_size=4).digest())


class Optuna:
    """Samplers of Optuna.

    A study knows all trials under their own numbers. TPE, which takes the longer the more trials
    there are, has a study of some of them once they are many.
    """

    def __init__(self, search: Mapping[str, Any]) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        self._search = search
        self._distributions = {
            variable["name"]: self._distribution(variable) for variable in search["variables"]
        }
        self._points: list[tuple[Point, Attributes]] = []
        self._values: dict[int, float | None] = {}
        self._study = self._new_study()
        self._some: Any = None

    def _distribution(self, variable: Mapping[str, Any]) -> Any:
        distributions = self._optuna.distributions
        if "choices" in variable:
            return distributions.CategoricalDistribution(variable["choices"])
        integer = variable["integer"]
        kind = distributions.IntDistribution if integer else distributions.FloatDistribution
        return kind(variable["low"], variable["high"], log=variable["log"])

    def _new_study(self) -> Any:
        directions = self._optuna.study.StudyDirection
        maximize = self._search["maximize"]
        return self._optuna.create_study(
            direction=directions.MAXIMIZE if maximize else directions.MINIMIZE
        )

    def _sampler(self, seed: int) -> Any:
        samplers = self._optuna.samplers
        if self._search["sampler"] == "random":
            return samplers.RandomSampler(seed=seed)
        if self._search["sampler"] == "cma":
            return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        with warnings.catch_warnings():
            # That it is experimental.
            warnings.simplefilter("ignore")
            return samplers.TPESampler(seed=seed, constant_liar=self._search["parallel"] > 1)

    def add(self, params: Point, attributes: Attributes) -> None:
        """A point was given."""
        self._points.append((params, attributes))
        self._some = None
        self._study.add_trial(self._trial(params, attributes))

    def _trial(self, params: Point, attributes: Attributes, number: int | None = None) -> Any:
        """A trial under way, or that has ended with the value that it has."""
        states = self._optuna.trial.TrialState
        ended = number in self._values
        value = self._values[number] if ended and number is not None else None
        state = states.RUNNING
        if ended:
            state = states.FAIL if value is None else states.COMPLETE
        return self._optuna.trial.create_trial(
            state=state,
            value=value,
            params=dict(zip(self._distributions, params, strict=True)),
            distributions=self._distributions,
            system_attrs=None if attributes is None else dict(attributes),
        )

    def end(self, number: int, value: float | None) -> None:
        """A trial has ended."""
        self._values[number] = value
        self._some = None
        if value is None:
            self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(number, value)

    def suggest(self, number: int, seed: int) -> tuple[Point, Attributes]:
        """The point of the next trial."""
        study = self._study
        if self._search["sampler"] == "tpe" and len(self._values) > MANY:
            if self._some is None:
                self._some = self._study_of_some()
            study = self._some
        study.sampler = self._sampler(seed)
        trial = study.ask(self._distributions)
        params = [trial.params[name] for name in self._distributions]
        attributes = None
        if self._search["sampler"] == "cma":
            # The state of the strategy, which it keeps with its trials.
            attributes = dict(study.get_trials(deepcopy=False)[number].system_attrs)
        self._points.append((params, attributes))
        if study is not self._study:
            self._study.add_trial(self._trial(params, None))
        return params, attributes

    def _study_of_some(self) -> Any:
        """A study of the best trials, the latest ones, and those under way."""
        complete = [number for number, value in self._values.items() if value is not None]
        sign = -1.0 if self._search["maximize"] else 1.0
        best = sorted(complete, key=lambda number: (sign * (self._values[number] or 0.0), number))
        kept = {*best[:BEST], *complete[-LATEST:]}
        kept.update(number for number in range(len(self._points)) if number not in self._values)
        study = self._new_study()
        study.add_trials([self._trial(*self._points[number], number) for number in sorted(kept)])
        return study


class Qmc:
    """Points of a scrambled Sobol sequence, which follow from their numbers.

    Owen, "Scrambling Sobol' and Niederreiter-Xing points" (1998); the sequence is SciPy's.
    """

    #: How many are computed at once.
    _BLOCK = 64

    def __init__(self, search: Mapping[str, Any]) -> None:
        from scipy.stats import qmc

        self._variables = search["variables"]
        name = json.dumps([search["seed"], search["id"]])
        seed = int.from_bytes(blake2b(name.encode(), digest_size=8).digest())
        self._sobol = qmc.Sobol(len(self._variables), rng=seed)
        self._block: tuple[int, Any] = (-1, None)

    def add(self, params: Point, attributes: Attributes) -> None:
        """What was given does not matter."""

    def end(self, number: int, value: float | None) -> None:
        """What came of it does not matter."""

    def suggest(self, number: int, seed: int) -> tuple[Point, Attributes]:
        """The point with this number."""
        block, row = divmod(number, self._BLOCK)
        if self._block[0] != block:
            self._sobol.reset()
            if block:
                self._sobol.fast_forward(block * self._BLOCK)
            self._block = block, self._sobol.random(self._BLOCK)
        uniforms = self._block[1][row].tolist()
        return list(map(at, self._variables, uniforms)), None


def at(variable: Mapping[str, Any], uniform: float) -> Any:
    """The value of a variable for a number >= 0 and < 1.

    >>> at({"choices": ["a", "b", "c"]}, 0.5)
    'b'
    >>> at({"low": 1, "high": 8, "log": False, "integer": True}, 0.999)
    8
    >>> round(at({"low": 1e-4, "high": 1.0, "log": True, "integer": False}, 0.5), 6)
    0.01
    """
    if "choices" in variable:
        choices = variable["choices"]
        return choices[min(int(uniform * len(choices)), len(choices) - 1)]
    low, high = variable["low"], variable["high"]
    # Each integer has an interval of its own, of length 1.
    margin = 0.5 if variable["integer"] else 0.0
    begin, end = low - margin, high + margin
    if variable["log"]:
        value = math.exp(math.log(begin) + uniform * (math.log(end) - math.log(begin)))
    else:
        value = begin + uniform * (end - begin)
    value = min(max(value, low), high)
    return round(value) if variable["integer"] else value


_SAMPLERS: Mapping[str, Any] = {
    "tpe": Optuna,
    "random": Optuna,
    "qmc": Qmc,
    "cma": Optuna,
}
