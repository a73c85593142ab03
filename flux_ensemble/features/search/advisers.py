"""Requests for the points of searches, served by one process for each search.

    engine ──Ask──► driver ──► Advisers ──► Asker ──pipe──► `samplers`, `generator`
                       ▲                                                  │
                       └──────────────────── points ◄─────────────────────┘

The process is one of `runtime.custom`; only what runs in it imports an optimiser. It keeps what it
has received. After a crash of the process or the service, a new one receives all trials with the
first request; later requests have what is new. The command of a request limits which trials it may
use, so a process that knows more than that receives all of them again.

    asker = Asker(loop, search, seed=7, environment=..., cwd=..., info=..., log=...)
    asker.ask(command, trials, done)
    asker.close()
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from flux_ensemble.document.model import Spec
from flux_ensemble.document.plain_data import check_plain
from flux_ensemble.document.problems import Problems
from flux_ensemble.engine.commands import Ask
from flux_ensemble.features.search.model import PriorTrial, Search, searches_of
from flux_ensemble.features.search.trials import Trials
from flux_ensemble.runtime.custom.caller import FunctionCall, FunctionCaller
from flux_ensemble.scalars import identity
from flux_ensemble.texts import bounded, shown

if TYPE_CHECKING:
    from flux_ensemble.runtime.ports import Loop

#: The module that runs in the process and suggests points; no other package uses it.
SUGGESTING = "flux_ensemble.features.search.suggester"


@dataclass(frozen=True, slots=True)
class Advice:
    """The result of a request for points.

    Args:
        ok: the points are usable; none means that there are no more.
        points: `{"params": {...}, "attributes": {...}}` for each; attributes may be missing.
        seconds: that the sampler took.
        reason: the reason of a failure, as one sentence that names the search.
        detail: a traceback, or the last output.
    """

    ok: bool
    points: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    reason: str = ""
    detail: str = ""


class Asker(FunctionCaller):
    """The process of one search.

    Args:
        loop: for timers and file descriptors.
        search: of the document.
        seed: of the document.
        environment, cwd: of the user who loaded the document.
        info: the ensemble's `name` and `directory`.
        log: receives a level and a line of the process's output.
    """

    TITLE = "search"

    def __init__(
        self,
        loop: Loop,
        search: Search,
        *,
        seed: int,
        environment: Mapping[str, str],
        cwd: str,
        info: Mapping[str, str],
        log: Callable[[str, str], None],
    ) -> None:
        super().__init__(
            loop, source=None, plugins=(), environment=environment, cwd=cwd, info=info, log=log
        )
        self._search = search
        self._hello = {
            "ensemble": self._hello["ensemble"],
            "module": SUGGESTING,
            "search": described(search, seed),
        }
        self._open: dict[int, tuple[Ask, Trials]] = {}
        #: Numbers of points, and of ends of trials, that the process knows.
        self._points = 0
        self._ends = 0
        #: Number of times that points had been dropped at the latest request.
        self._refreshes = 0

    def ask(self, command: Ask, trials: Trials, done: Callable[[Advice], None]) -> None:
        """Request points; `done` receives them, once, unless this object is closed before."""
        self._open[self._calls + 1] = command, trials
        self._add(None, {}, self._search.timeout, done)

    def _message(self, call: FunctionCall) -> dict[str, Any]:
        command, trials = self._open[call.number]
        reset = self._points > command.first or self._ends > command.ended
        if reset or self._refreshes != trials.refreshes:
            reset = True
            self._points = self._ends = 0
            self._refreshes = trials.refreshes
        seen = trials.seen(self._points, self._ends, command.first, command.ended)
        self._points, self._ends = command.first, command.ended
        return {"call": call.number, "reset": reset, "count": command.count, **seen}

    def _read(self, call: FunctionCall, message: Mapping[str, Any]) -> Advice:
        command, trials = self._open[call.number]
        if message.get("ok") is not True:
            refusal: Advice = self._refused(call, message)
            return refusal
        points, seconds = message.get("points"), message.get("seconds")
        problem = self._problem(points, command.count, trials.partial)
        if problem is not None or type(seconds) not in (int, float):
            return self._failure(call, f"gave what cannot be used: {problem or 'no time'}", "")
        assert isinstance(points, list)
        self._points += len(points)
        return Advice(True, points, float(seconds or 0.0))

    def _problem(
        self, points: Any, count: int, partial: Collection[Mapping[str, Any]]
    ) -> str | None:
        """Return the problem of points, or None; the process may run untrusted code.

        Args:
            points: what it gave.
            count: how many it was asked for.
            partial: the values that the first of them are to have.
        """
        problems = Problems()
        if check_plain(points, problems):
            return problems.sentences()
        if not isinstance(points, list):
            return f"expected a list of points, not {shown(points)}"
        if len(points) > count:
            return f"expected at most {count} points, not {len(points)}"
        for index, point in enumerate(points):
            if not isinstance(point, dict) or not isinstance(point.get("params"), dict):
                return f"point {index}: expected a mapping with 'params', not {shown(point)}"
            if not isinstance(point.get("attributes", {}), dict):
                return f"point {index}: expected a mapping of attributes"
            objection = self._search.objection(point["params"])
            if objection is not None:
                return f"point {index}: {objection}"
        for index, (point, fixed) in enumerate(zip(points, partial, strict=False)):
            for name, value in fixed.items():
                if identity(point["params"].get(name, value)) != identity(value):
                    return f"point {index}: {name}: expected {value!r}, which the user fixed"
        return None

    def _failure(self, call: FunctionCall, what: str, detail: str) -> Advice:
        generator = self._search.generator
        who = "its sampler" if generator is None else f"its generator {generator.name!r}"
        reason = bounded(f"search {self._search.id!r}: {who} {what}")
        return Advice(False, reason=reason, detail=bounded(detail))

    def _conclude(self, call: FunctionCall, result: Any) -> None:
        self._open.pop(call.number, None)
        super()._conclude(call, result)

    def _drop_process(self) -> None:
        self._points = self._ends = 0
        super()._drop_process()


def described(search: Search, seed: int) -> dict[str, Any]:
    """Describe a search as JSON, for `suggester`."""
    generator = search.generator
    suggests: dict[str, Any] = {"sampler": search.sampler}
    if generator is not None:
        suggests = {
            "generator": {
                "class": generator.name,
                "arguments": dict(generator.arguments),
                "initial": generator.initial,
            },
            "objectives": [[one.key, one.maximize] for one in search.objectives],
        }
    told = [
        [list(one.params), search.to_json(one.value), *_violations(search, one)]
        for one in search.warm_start.trials
    ]
    return {
        "id": search.id,
        "seed": _seed(seed, told),
        **suggests,
        "maximize": [objective.maximize for objective in search.objectives],
        "parallel": search.parallel,
        "variables": [variable.to_json() for variable in search.variables],
        **({"where": list(search.where)} if search.where else {}),
        **({"subject_to": list(search.subject_to)} if search.subject_to else {}),
        **({"told": told} if told else {}),
    }


def _seed(seed: int, told: list[Any]) -> int:
    """Return the seed of a search's points.

    With the seed of those who found what it begins with it would try their first points again.
    """
    if not told:
        return seed
    return int.from_bytes(blake2b(json.dumps([seed, told]).encode(), digest_size=4).digest())


def _violations(search: Search, told: PriorTrial) -> list[Any]:
    """Return the rest of an end, as `samplers` have it: no step, and the violations."""
    return [None, list(search.violated_by(told))] if search.subject_to else []


class Advisers:
    """The processes of an ensemble's searches; each starts with the first request.

    Args:
        searches: of the ensemble.
        start: makes the asker of a search.
    """

    def __init__(self, searches: Iterable[Search], start: Callable[[Search], Asker]) -> None:
        self._searches = {search.id: search for search in searches}
        self._start = start
        self._askers: dict[str, Asker] = {}

    def ask(self, command: Ask, trials: Trials, done: Callable[[Advice], None]) -> None:
        """Request points, as `runtime.ports.Adviser.ask`."""
        asker = self._askers.get(command.search)
        if asker is None:
            asker = self._askers[command.search] = self._start(self._searches[command.search])
        asker.ask(command, trials, done)

    def close(self) -> None:
        """End the processes."""
        for asker in self._askers.values():
            asker.close()


def processes(
    spec: Spec,
    loop: Loop,
    *,
    seed: int | None = None,
    environment: Mapping[str, str],
    cwd: str,
    log: Callable[[str, str], None],
) -> Advisers:
    """Make the advisers of an ensemble.

    The arguments are those of `Asker`; `seed` is the document's if it is not given.
    """
    make = partial(
        Asker,
        loop,
        seed=spec.seed if seed is None else seed,
        environment=environment,
        cwd=cwd,
        info={"name": spec.name, "directory": spec.directory},
        log=log,
    )
    return Advisers(searches_of(spec), make)
