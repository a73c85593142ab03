"""Points of one search from a class of the user's: a generator of gest-api.

    request ──► Generating ──ingest, suggest──► the user's class
    points  ◄──            ◄──── points ──────

The standard has no seed, no state, and no pending or failed trials. So this module seeds the random
number generators of the process with a hash of the document's seed, the search and the number of
the trial; makes a new generator from the log if there is none; keeps back trials without a result;
uses points of a Sobol sequence before there are results; and accepts from a generator only new
points within the bounds.

    generating = Generating(described(search, seed))
    generating.answer({"count": 2, "points": [], "attributes": {}, "ends": []})

gest-api: https://github.com/campa-consortium/gest-api
"""

from __future__ import annotations

import importlib
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from flux_ensemble import scalars
from flux_ensemble.features.search.model import Variable
from flux_ensemble.features.search.samplers import MAX_ANSWER, seed_of, with_choices, with_places
from flux_ensemble.features.search.space import RowSpace
from flux_ensemble.features.search.trials import ENDED, STATE, parse_end
from flux_ensemble.features.search.unit_cube import Qmc
from flux_ensemble.features.search.vocs import adapted, identity, plain, vocs_of
from flux_ensemble.runtime.custom.child import ReportedFailure
from flux_ensemble.runtime.custom.state import MAX_STATE, state_text
from flux_ensemble.texts import shown

#: The key, in a point's attributes, of what its generator gave besides the variables; and most
#: bytes of that, as JSON.
KEYS = "keys"
MAX_KEYS = 4 << 10

#: Number of requests to a generator for points that replace known ones, and number of points of the
#: Sobol sequence that are tried.
AGAIN, AHEAD = 3, 1000

#: The key of a generator's name for a point; only the generator that gave the point knows it.
_ID = "_id"


class GeneratorError(ReportedFailure):
    """A generator has failed: a phrase that follows its name in a sentence, and a traceback."""


class SearchGenerator:
    """The generator of one search, and the trials that it has received.

    Args:
        search: as `advisers.described` gives it.
    """

    def __init__(self, search: Mapping[str, Any]) -> None:
        self._search = search = with_choices(search)
        self._variables = [
            Variable(**{**one, "choices": tuple(one.get("choices", ()))})
            for one in search["variables"]
        ]
        self._spellings = {one.name: one.spellings for one in self._variables if one.spellings}
        self._rows = RowSpace(search)
        self._qmc = Qmc({**with_places(search), "rows": self._rows})
        self._reset()

    def _reset(self) -> None:
        self._points: list[tuple[Sequence[Any], Mapping[str, Any]]] = []
        #: The ends of trials, in their order; and how many of them the generator has received.
        self._ends: list[Sequence[Any]] = []
        self._told = 0
        # The trials of others are before those of the search.
        told = self._search.get("told", ())
        self._points += [(params, {}) for params, _ in told]
        self._ends += [[number, *end] for number, (_, *end) in enumerate(told)]
        self._before = len(told)
        self._generator: Any = None
        #: The trials whose points the generator gave itself, or had in the state that it loaded.
        self._own: set[int] = set()

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request: `{"points": [{"params": {...}}, ...], "seconds": x}`.

        Raises:
            GeneratorError: the generator fails, or gives unusable points.
        """
        begin = time.perf_counter()
        if request.get("reset"):
            self._reset()
        for params in request["points"]:
            attributes = request["attributes"].get(str(len(self._points) - self._before))
            self._points.append((params, attributes or {}))
        self._ends += [[self._before + number, *end] for number, *end in request["ends"]]
        try:
            points = self._suggest(request["count"], request.get("fixed", ()))
        except BaseException:
            # The generator may be in an undefined state: the next one receives everything again.
            self._forget()
            raise
        return {"points": points, "seconds": time.perf_counter() - begin}

    def _forget(self) -> None:
        self._generator = None
        self._told = 0
        self._own.clear()

    def _suggest(self, count: int, partial: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        # Looked up first: a missing class is reported before jobs run, whoever gives the first
        # points.
        make = _found(self._search["generator"]["class"])
        complete = sum(self._result(end) is not None for end in self._ends)
        new: list[tuple[dict[str, Any], dict[str, Any]]]
        if partial:
            # The standard has no way to request the rest of a point. Others are requested later.
            count = min(count, len(partial))
            initial = self._initial(count, partial)
            new = [(params, {}) for params in initial]
        elif complete < self._search["generator"]["initial"]:
            new = [(params, {}) for params in self._initial(count)]
        else:
            if self._generator is None:
                self._begin(make)
            self._tell()
            first = len(self._points)
            new = list(self._new(count))
            self._own.update(range(first, first + len(new)))
            if new:
                new[-1][1].update(self._state())
        points: list[dict[str, Any]] = []
        size = 0
        for params, attributes in new:
            point: dict[str, Any] = {"params": params}
            if attributes:
                point["attributes"] = attributes
            size += len(json.dumps(point))
            if points and size > MAX_ANSWER:
                break
            points.append(point)
            self._points.append((list(params.values()), attributes))
        return points

    # -- before there are results ---------------------------------------------------

    def _initial(
        self, count: int, partial: Sequence[Mapping[str, Any]] = ()
    ) -> Iterator[dict[str, Any]]:
        """Yield new points of a Sobol sequence, from the trial's number on.

        Args:
            count: how many.
            partial: the values that the first of them are to have.
        """
        waiting = list(partial)
        known = {identity(params) for params, _ in self._points}
        number = len(self._points)
        for ahead in range(number, number + count + AHEAD):
            fixed = {
                place: self._rows.place_of(place, waiting[0][name])
                for place, name in enumerate(self._rows.names)
                if waiting and name in waiting[0]
            }
            drawn, _ = self._qmc.suggest(ahead, 0, fixed)
            params = self._named(self._rows.valued(drawn))
            key = identity(params.values())
            # A point of the user may be one that was tried before.
            if key not in known or waiting:
                known.add(key)
                yield params
                del waiting[:1]
                count -= 1
            if count == 0:
                return

    def _named(self, params: Sequence[Any]) -> dict[str, Any]:
        return {
            variable.name: value for variable, value in zip(self._variables, params, strict=True)
        }

    # -- a generator ------------------------------------------------------------------

    def _begin(self, make: Callable[..., Any]) -> None:
        """Make a generator, with the latest stored state, if there is one."""
        self._forget()
        seed = seed_of(self._search, -1)
        arguments = self._search["generator"]["arguments"]
        self._generator = _call(seed, "", make, vocs_of(self._search), **arguments)
        if not callable(getattr(self._generator, "suggest", None)):
            raise GeneratorError("is no generator of gest-api: it has no method 'suggest'")
        kept_by = (one for one, (_, kept) in enumerate(self._points) if STATE in kept)
        number = max(kept_by, default=-1)
        load = getattr(self._generator, "load", None)
        if number < 0 or not callable(load):
            return
        kept = self._points[number][1]
        _call(seed, " in 'load'", load, kept[STATE])
        self._told = kept[ENDED]
        self._own.update(range(number + 1))

    def _tell(self) -> None:
        """Pass the results since the last call to the generator."""
        results = [result for end in self._ends[self._told :] if (result := self._result(end))]
        ingest = getattr(self._generator, "ingest", None)
        if results and callable(ingest):
            _call(seed_of(self._search, len(self._points)), " in 'ingest'", ingest, results)
        self._told = len(self._ends)

    def _result(self, end: Sequence[Any]) -> dict[str, Any] | None:
        """Return the result of a trial for the generator; None if it has none."""
        number, value, step, violations = parse_end(end)
        if value is None or step is not None:
            return None
        params, attributes = self._points[number]
        keys = dict(attributes.get(KEYS, {}))
        if number not in self._own:
            keys.pop(_ID, None)
        values = value if isinstance(value, list) else [value]
        names = [name for name, _ in self._search["objectives"]]
        point = self._named(params)
        for name, spellings in self._spellings.items():
            if isinstance(point[name], str):
                point[name] = scalars.number(spellings.get(point[name], point[name]))
        bounds = dict(zip(self._search.get("subject_to", ()), violations, strict=True))
        return {**keys, **point, **bounds, **dict(zip(names, values, strict=True))}

    def _state(self) -> dict[str, Any]:
        """Return the state of a generator that can load it; empty if it cannot."""
        dump = getattr(self._generator, "dump", None)
        if not callable(dump) or not callable(getattr(self._generator, "load", None)):
            return {}
        state = _call(seed_of(self._search, len(self._points)), " in 'dump'", dump)
        try:
            text = state_text(state)
        except ValueError as error:
            raise GeneratorError(f"gave a state {error}; {_LESS}") from None
        return {STATE: json.loads(text), ENDED: len(self._ends)}

    # -- its points ---------------------------------------------------------------------

    def _new(self, count: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield new points, each with its attributes: as many as requested, or fewer."""
        known = {identity(params) for params, _ in self._points}
        twice = forbidden = 0
        for attempt in range(AGAIN):
            # The first attempt has the seed of the trial's number.
            seed = (seed_of(self._search, len(self._points)) + attempt) % 2**32
            given = _call(seed, " in 'suggest'", self._generator.suggest, count)
            if not isinstance(given, (list, tuple)):
                raise GeneratorError(f"gave no list of points, but {shown(given)}")
            if len(given) > count:
                raise GeneratorError(
                    f"gave {len(given)} points, and was asked for {count}; the search's 'batch' "
                    "says how many it is asked for"
                )
            if not given:
                break
            for place, point in enumerate(given):
                params, keys = self._read(place, point)
                key = identity(params.values())
                if key in known:
                    twice += 1
                    continue
                if not self._rows.space.allows(params):
                    forbidden += 1
                    continue
                known.add(key)
                count -= 1
                yield params, {KEYS: keys} if keys else {}
            if count == 0:
                break
        if twice:
            print(f"points that the search has already are left out: {twice}")
        if forbidden:
            print(f"points that 'where' does not allow are left out: {forbidden}")

    def _read(self, place: int, point: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the parameters of a point, and its other keys.

        Raises:
            GeneratorError: the point is not one of the search.
        """
        if not isinstance(point, Mapping):
            raise GeneratorError(f"gave point {place}, which is no mapping, but {shown(point)}")
        params = {}
        for variable in self._variables:
            if variable.name not in point:
                names = ", ".join(repr(one.name) for one in self._variables)
                raise GeneratorError(
                    f"gave point {place} without {variable.name!r}; the variables are {names}"
                )
            value = adapted(variable, plain(point[variable.name]))
            objection = variable.objection(value)
            if objection is not None:
                raise GeneratorError(f"gave point {place}: {variable.name}: {objection}")
            params[variable.name] = value
        keys = {}
        for key, value in point.items():
            if key not in params:
                kept = plain(value)
                if not isinstance(kept, float) or math.isfinite(kept):
                    keys[str(key)] = kept
        try:
            size = len(json.dumps(keys, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise GeneratorError(
                f"gave point {place}, and what is no variable in it is no JSON: {error}"
            ) from None
        if size > MAX_KEYS:
            raise GeneratorError(
                f"gave point {place}, and what is no variable in it is {size} bytes of JSON, more "
                f"than {MAX_KEYS}"
            )
        return params, keys


_LESS = f"at most {MAX_STATE} bytes of JSON are kept: keep the rest in a file"


# -- the user's code ------------------------------------------------------------------------


def _found(name: str) -> Callable[..., Any]:
    """Return the class `package.module:Class`.

    Raises:
        GeneratorError: there is no such class.
    """
    module_name, _, path = name.partition(":")
    try:
        found = _called("", importlib.import_module, module_name)
    except GeneratorError as error:
        cause = error.__cause__
        missing = cause.name if isinstance(cause, ModuleNotFoundError) else None
        if missing is not None and f"{module_name}.".startswith(f"{missing}."):
            raise GeneratorError(
                f"is not there: there is no module {missing!r} where flux-ensemble is installed, "
                "in PYTHONPATH or in the document's directory"
            ) from None
        raise
    for part in path.split("."):
        if not hasattr(found, part):
            from flux_ensemble.suggestions import hint

            classes = [key for key, value in vars(found).items() if isinstance(value, type)]
            known = f"{hint(part, classes)}classes: {', '.join(classes) or 'none'}"
            raise GeneratorError(f"is not there: {module_name!r} has no {part!r} ({known})")
        found = getattr(found, part)
    if not callable(found):
        raise GeneratorError(f"is no class, but {shown(found)}")
    return found


def _call(
    seed: int, where: str, function: Callable[..., Any], *positional: Any, **named: Any
) -> Any:
    """Call the user's code, with the random number generators of the process seeded.

    Raises:
        GeneratorError: the code raises an exception.
    """
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    return _called(where, function, *positional, **named)


def _called(where: str, function: Callable[..., Any], *positional: Any, **named: Any) -> Any:
    try:
        return function(*positional, **named)
    except BaseException as error:
        traceback = error.__traceback__
        problem = ReportedFailure.of(error.with_traceback(traceback and traceback.tb_next))
        raise GeneratorError(f"{problem.reason}{where}", problem.detail) from error
