"""Snapshots: the state of an engine as JSON, and back.

    dump(engine) ──► JSON ──► restore(spec, JSON, values) ──► an engine that continues as the first

A restored engine behaves exactly like the dumped one: further events give the same commands,
byte for byte.

A snapshot leaves out data that follows from the document or from the rest of the state: compiled
rules and their index, and the counts of jobs. It also leaves out the values of streams. Those come
from `Metrics.take_values` and are fed again, so statistics equal those of a replay from scratch and
do not depend on River's internals. The snapshot has the number of values of each stream, to
detect missing ones. Nor does it have the jobs that are gone: `Records.take` returns them.

A snapshot is `{"format": 1, "digest": ..., "state": {...}}`. The digest is over the state as
canonical JSON, so a valid snapshot is one that was dumped, and its parts need no further
checks. Jobs and firings, of which there may be many, are in columns: one list
for each attribute, and `more` for rare attributes, `[[position, {...}], ...]`.
References to firings are by position.

Each part of the engine has `dump` and `load` beside its attributes; this module puts the parts
together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from flux_ensemble.document.model import Spec
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.jobs import Phase, dump_jobs, load_jobs
from flux_ensemble.metrics.member_metrics import AT
from flux_ensemble.metrics.numbers import Number, finite
from flux_ensemble.metrics.streams import Metrics, Values
from flux_ensemble.texts import shortened

#: Version of the format. Raise it when another version of `restore` would misread a snapshot.
FORMAT = 1


def dump(engine: Engine) -> dict[str, Any]:
    """Return the state of an engine, between two events.

    Returns:
        JSON (without NaN and infinity). It shares nothing with the engine that changes.
    """
    foreign = list(engine.foreign.values())
    state = {
        **engine.dump(),
        **engine.rules.dump(),
        "workload": engine.workload.dump(),
        "foreign": {**dump_jobs(foreign), "group": [job.group for job in foreign]},
        "actions": engine.pending_table.dump(engine.workload.firings.positions()),
        # The feature of this name has its requests in the same place.
        "scaling": {"members": engine.nodes.dump()},
        "counts": {group: dict(counts) for group, counts in engine.stats.counts.items()},
        "streams": engine.stats.sizes(),
        "records": engine.records.dump(),
    }
    if engine.ran_again:
        state["attempts"] = engine.records.attempts.dump()
    if engine.observer.values.crowded:
        state["crowded"] = sorted(engine.observer.values.crowded)
    if bests := engine.stats.bests.dump():
        state["best"] = bests
    if engine.not_started:
        state["not_started"] = engine.not_started
    if engine.function_states:
        state["function_states"] = engine.function_states
    if engine.stats.t_expires is not None:
        state["t_expires"] = engine.stats.t_expires
    if engine.stats.share is not None:
        state["share"] = engine.stats.share
    if engine.stats.rates:
        state["rates"] = {group: rate.dump() for group, rate in engine.stats.rates.items()}
    if engine.stats.ignored:
        state["ignored"] = {group: dict(keys) for group, keys in engine.stats.ignored.items()}
    since = {rule: watch.since for rule, watch in engine.stats.watches.items() if watch.since}
    if since:
        state["watched_since"] = since
    for feature in engine.hooks.features:
        if feature.dump is not None and (of_feature := feature.dump()) is not None:
            state[feature.name] = of_feature
    if engine.members is not None:
        state["members"] = engine.members.dump()
    if counts := engine.stats.of_members.dump():
        state["member_counts"] = counts
    if engine.deferred:
        state["deferred"] = [[rule.rule.id, idle] for rule, idle in engine.deferred]
    return {"format": FORMAT, "digest": _digest(state), "state": state}


def restore(spec: Spec, snapshot: Mapping[str, Any], values: Iterable[Values]) -> Engine:
    """Return an engine in the state of a snapshot.

    Args:
        spec: the document of the engine.
        snapshot: the result of `dump`, perhaps after a round trip through JSON.
        values: all results of `Metrics.take_values` until the snapshot, in order.

    Raises:
        ValueError: the snapshot has another format, is damaged or of another document, or the
            values do not belong to it.
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
    """Check the digest of a snapshot, and return its state."""
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
    engine.rules.load(state)
    engine.watch()
    engine.stats.t_expires = state.get("t_expires")
    engine.stats.share = state.get("share")
    for group, rate in state.get("rates", {}).items():
        engine.stats.rates[group].load(rate)
    if state["counts"].keys() != engine.stats.counts.keys():
        raise ValueError(f"its groups are {', '.join(state['counts'])}")
    for group, counts in state["counts"].items():
        # The first versions counted attempts only, under the name `finished`.
        engine.stats.counts[group].update({"attempts": counts["finished"], **counts})
    for group, keys in state.get("ignored", {}).items():
        engine.stats.ignored[group] = dict(keys)
    for rule, number in state.get("watched_since", {}).items():
        engine.stats.watches[rule].since = number
    firings = engine.workload.load(state["workload"])
    for job in engine.workload.jobs.values():
        if job.phase < Phase.RUNNING:
            engine.observer.await_nodes(job)
    foreign = state["foreign"]
    for job in load_jobs(foreign, [(group, None, 0) for group in foreign["group"]]):
        engine.foreign[job.id] = job
    engine.observer.values.crowded.update(state.get("crowded", ()))
    engine.stats.bests.load(state.get("best", {}))
    engine.not_started.extend(state.get("not_started", ()))
    engine.function_states.update(state.get("function_states", {}))
    for id, idle in state.get("deferred", ()):
        engine.deferred[engine.rules.states[id], idle] = None
    engine.stats.of_members.load(state.get("member_counts", ()))
    for feature in engine.hooks.features:
        if feature.load is not None:
            feature.load(state.get(feature.name))
    engine.records.load(state.get("records", (0, 0)))
    # Earlier versions did not keep them.
    engine.records.attempts.load(state.get("attempts", [] if engine.ran_again else None))
    engine.pending_table.load(state["actions"], firings)
    engine.nodes.load(state["scaling"]["members"])
    if engine.members is not None:
        engine.members.load(state["members"])
    return engine


# -- statistics -----------------------------------------------------------------------


def _feed(stats: Metrics, chunk: Any) -> None:
    try:
        for group, variable, values in chunk:
            if group.partition(AT)[0] not in stats.counts or not isinstance(variable, str):
                raise ValueError(f"no stream {group!r}, {variable!r}")
            stats.feed(group, variable, map(_number, values))
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ValueError(f"the values beside the snapshot are damaged: {error}") from error


def _number(value: Any) -> Number | None:
    """Return a value of a stream, or None for a reset.

    Raises:
        ValueError: the value is neither a finite number nor None.
    """
    number = finite(value) if type(value) in (int, float) else None
    if number is None and value is not None:
        raise ValueError(f"{shortened(repr(value))} is not a finite number")
    return number


def _check_sizes(sizes: list[list[Any]], expected: list[list[Any]]) -> None:
    """Check that the restored streams have as many values as the dumped ones.

    Raises:
        ValueError: a number differs.
    """
    actual = {(group, variable): size for group, variable, size in sizes}
    wanted = {(group, variable): size for group, variable, size in expected}
    for group, variable in sorted(actual.keys() | wanted.keys()):
        size, right = actual.get((group, variable), 0), wanted.get((group, variable), 0)
        if size != right:
            raise ValueError(
                f"the stream '{group}-{variable}' of the snapshot had {right} values, and the "
                f"values beside it hold {size}"
            )
