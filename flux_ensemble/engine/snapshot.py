"""Snapshots: the state of an engine as JSON, and the engine made of one again.

    dump(engine) ──► JSON ──► restore(spec, JSON, values) ──► an engine that goes on as the first

A restored engine cannot be told from the one that was dumped: further events give the same
commands, byte for byte.

What follows from the document or from the rest of the state is not in a snapshot: compiled
rules and their index, and the counts of jobs. Nor are the values that streams took in;
what `Metrics.take_values` gave is fed again, so that statistics are those of a fold from
scratch and nothing depends on how River keeps them. How many values each stream had is in
the snapshot, so that none can go missing.

A snapshot is `{"format": 1, "digest": ..., "state": {...}}`. The digest is over the state as
canonical JSON, so a snapshot that restores is one that was dumped, and its parts need no
checks of their own. Jobs and firings, of which there may be many, are in columns: one list
for each attribute, and `more` for the attributes that few have, `[[position, {...}], ...]`.
Firings are referred to by their position.

This module is the one that reads and sets the private attributes of the engine's parts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from flux_ensemble.engine.compact import columns, not_default, unusual
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.intervals import IntervalSet
from flux_ensemble.engine.jobs import Job, Phase
from flux_ensemble.engine.metrics import Metrics, Values
from flux_ensemble.engine.numbers import finite
from flux_ensemble.engine.rules import RuleState
from flux_ensemble.spec.model import Action, Rule, Spec
from flux_ensemble.spec.problems import shortened

#: Version of the form; a change that an older or newer `restore` would get wrong raises it.
FORMAT = 1

#: Attributes of a rule's state; `left` follows from `fired`.
_RULE = ("enabled", "skip", "t_next", "fired", "number", "timer", "error")

#: Attributes of a firing that have a column, and those that few firings have otherwise.
_FIRING = ("rule", "number", "group", "first", "next", "stop")
_FIRING_MORE = {
    "each": None,
    "params": None,
    "attempt": 0,
    "request": None,
    "lost": 0,
    "cancel_unseen": False,
}

#: The same of a job.
_JOB = ("id", "phase", "t_submit", "t_start")
_JOB_MORE = {
    "outcome": None,
    "canceling": False,
    "interrupted": False,
    "_exceptions": None,
    "_last": None,
}

#: What makes of JSON those that are of another kind.
_JOB_KINDS: Mapping[str, Callable[[Any], Any]] = {"_exceptions": set, "_last": dict}


def dump(engine: Engine) -> dict[str, Any]:
    """The state of an engine, between two events.

    Returns:
        JSON (without NaN and infinity). It shares nothing with the engine that changes.
    """
    positions = {firing: position for position, firing in enumerate(engine.workload.firings)}
    rules, foreign = list(engine.rules.states.values()), list(engine.foreign.values())
    state = {
        **engine.dump(),
        "rules": [_dump_rule_state(one) for one in rules],
        "added": [_dump_rule(one.rule) for one in rules[len(engine.spec.rules) :]],
        "workload": _dump_workload(engine, positions),
        "foreign": {**_dump_jobs(foreign), "group": [job.group for job in foreign]},
        "actions": engine.pending_table.dump(positions),
        "scaling": engine.scaling.dump(),
        "counts": {group: dict(counts) for group, counts in engine.stats.counts.items()},
        "streams": engine.stats.sizes(),
    }
    if engine.observer.crowded:
        state["crowded"] = sorted(engine.observer.crowded)
    return {"format": FORMAT, "digest": _digest(state), "state": state}


def restore(spec: Spec, snapshot: Mapping[str, Any], values: Iterable[Values]) -> Engine:
    """The engine that was dumped.

    Args:
        spec: the document of the engine.
        snapshot: what `dump` gave, also after a round trip through JSON.
        values: all that `Metrics.take_values` gave until then, in order.

    Raises:
        ValueError: the snapshot is of another format, damaged, or of another document; or
            the values are not those that belong to it.
    """
    state = _verified(snapshot)
    try:
        engine = _restored(spec, state)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"the snapshot does not fit ensemble {spec.name!r} ({type(error).__name__}: {error}); "
            f"expected the document that it was made with"
        ) from error
    for chunk in values:
        _feed(engine.stats, chunk)
    _check_sizes(engine.stats.sizes(), state["streams"])
    return engine


# -- the whole ------------------------------------------------------------------------


def _digest(state: Any) -> str:
    text = json.dumps(state, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _verified(snapshot: Any) -> Any:
    """The state in a snapshot, which is as it was dumped."""
    if not isinstance(snapshot, Mapping) or "format" not in snapshot:
        raise ValueError("expected a snapshot of an engine, a JSON object with a 'format'")
    if snapshot["format"] != FORMAT:
        raise ValueError(
            f"the snapshot is of format {snapshot['format']!r}, and this version reads format "
            f"{FORMAT}; go on with the version of flux-ensemble that wrote it"
        )
    try:
        whole = _digest(snapshot["state"]) == snapshot["digest"]
    except (KeyError, TypeError, ValueError, RecursionError):
        whole = False
    if not whole:
        raise ValueError("the snapshot is damaged: its digest is not that of its state")
    return snapshot["state"]


def _restored(spec: Spec, state: Any) -> Engine:
    engine = Engine(spec)
    engine.load(state)
    _restore_rules(engine, state)
    if state["counts"].keys() != engine.stats.counts.keys():
        raise ValueError(f"its groups are {', '.join(state['counts'])}")
    for group, counts in state["counts"].items():
        engine.stats.counts[group].update(counts)
    firings = _restore_workload(engine, state["workload"])
    foreign = state["foreign"]
    for job in _restore_jobs(foreign, [(group, None, 0) for group in foreign["group"]]):
        engine.foreign[job.id] = job
    engine.observer.crowded.update(state.get("crowded", ()))
    engine.pending_table.load(state["actions"], firings)
    engine.scaling.load(state["scaling"])
    return engine


# -- statistics -----------------------------------------------------------------------


def _feed(stats: Metrics, chunk: Any) -> None:
    try:
        for group, variable, values in chunk:
            if group not in stats.counts or not isinstance(variable, str):
                raise ValueError(f"no stream {group!r}, {variable!r}")
            for value in values:
                number = finite(value) if type(value) in (int, float) else None
                if number is None:
                    raise ValueError(f"{shortened(repr(value))} is not a finite number")
                stats.observe(group, variable, number)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ValueError(f"the values beside the snapshot are damaged: {error}") from error


def _check_sizes(given: list[list[Any]], expected: list[list[Any]]) -> None:
    """Whether the streams took in as many values as they had."""
    found = {(group, variable): size for group, variable, size in given}
    wanted = {(group, variable): size for group, variable, size in expected}
    for group, variable in sorted(found.keys() | wanted.keys()):
        size, right = found.get((group, variable), 0), wanted.get((group, variable), 0)
        if size != right:
            raise ValueError(
                f"the stream '{group}-{variable}' of the snapshot had {right} values, and the "
                f"values beside it hold {size}"
            )


# -- rules ----------------------------------------------------------------------------


def _dump_rule_state(state: RuleState) -> list[Any]:
    return [state.rule.id, *(getattr(state, name) for name in _RULE), sorted(state.causes)]


def _dump_rule(rule: Rule) -> dict[str, Any]:
    return {**not_default(rule), "action": not_default(rule.action)}


def _restore_rules(engine: Engine, state: Any) -> None:
    for added in state["added"]:
        engine.rules.add(Rule(**{**added, "action": Action(**added["action"])}))
    ids = [id for id, *_ in state["rules"]]
    if ids != list(engine.rules.states):
        raise ValueError(f"its rules are {', '.join(ids)}")
    for rule, row in zip(engine.rules.states.values(), state["rules"], strict=True):
        for name, value in zip(_RULE, row[1:-1], strict=True):
            setattr(rule, name, value)
        rule.causes.update(row[-1])
        if rule.left is not None:
            rule.left -= rule.fired
            if rule.left < 0:
                raise ValueError(f"its rule {rule.rule.id!r} ran {rule.fired} times")
        if not rule.live:
            engine.rules.retire(rule)


# -- jobs and firings -----------------------------------------------------------------


def _dump_workload(engine: Engine, positions: Mapping[Firing, int]) -> dict[str, Any]:
    workload = engine.workload
    firings, jobs = list(workload.firings), list(workload.jobs.values())
    return {
        "total": workload.total,
        "drained": sorted(workload.drained, key=lambda group: group or ""),
        "firings": {
            **columns(firings, _FIRING),
            "seen": [firing.seen.intervals for firing in firings],
            "more": unusual(firings, _FIRING_MORE),
        },
        "backlog": [positions[firing] for firing in workload.firings.backlog],
        "jobs": {
            **_dump_jobs(jobs),
            "firing": [positions[job.firing] for job in jobs if job.firing is not None],
            "index": [job.index for job in jobs],
        },
    }


def _restore_workload(engine: Engine, value: Any) -> list[Firing]:
    """Restore the firings and jobs; the firings, in their order."""
    firings = list(_restore_firings(value["firings"]))
    backlog = [firings[position] for position in value["backlog"]]
    engine.workload.firings.restore(firings, backlog)
    columns = value["jobs"]
    owners = [
        (firings[position].group, firings[position], index)
        for position, index in zip(columns["firing"], columns["index"], strict=True)
    ]
    jobs = _restore_jobs(columns, owners)
    engine.workload.restore(jobs, value["total"], value["drained"])
    for job in jobs:
        if job.phase < Phase.RUNNING:
            engine.observer.await_nodes(job)
    return firings


def _restore_firings(value: Any) -> Iterator[Firing]:
    more = dict(value["more"])
    columns = [value[name] for name in (*_FIRING, "seen")]
    for position, row in enumerate(zip(*columns, strict=True)):
        rule, number, group, first, next, stop, seen = row
        firing = Firing(rule, number, group, range(first, stop), None, None)
        firing.next = next
        firing.seen = IntervalSet(seen)
        for name, given in more.get(position, {}).items():
            setattr(firing, name, given)
        firing.unseen = next - first - len(firing.seen) - firing.lost
        yield firing


def _dump_jobs(jobs: list[Job]) -> dict[str, Any]:
    more = unusual(jobs, _JOB_MORE)
    for _, given in more:
        if "_exceptions" in given:
            given["_exceptions"] = sorted(given["_exceptions"])
        if "_last" in given:
            given["_last"] = dict(given["_last"])
    return {**columns(jobs, _JOB), "more": more}


def _restore_jobs(value: Any, owners: Iterable[tuple[str | None, Firing | None, int]]) -> list[Job]:
    """The jobs of columns; an owner is what each job has besides."""
    jobs = []
    columns = [value[name] for name in _JOB]
    for (group, firing, index), *row in zip(owners, *columns, strict=True):
        id, phase, t_submit, t_start = row
        job = Job(id, group, firing, index, t_submit)
        job.phase = Phase(phase)
        job.t_start = t_start
        jobs.append(job)
    for position, given in value["more"]:
        for name, attribute in given.items():
            kind = _JOB_KINDS.get(name)
            setattr(jobs[position], name, attribute if kind is None else kind(attribute))
    return jobs
