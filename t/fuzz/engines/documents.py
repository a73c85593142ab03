"""Random documents: rules of every trigger with every action, that enable and disable others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from engines import learning
from flux_ensemble.document.keys.rules import (
    GAVE_UP_TRIGGER,
    JOB_EVENTS,
    OF_REQUESTS,
    OUTCOME_TRIGGERS,
    RUNNING_TRIGGER,
    TRIGGER_ALIASES,
)
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.document.problems import DocumentError

GROUPS = ("a", "b", "c")
JOB_TRIGGERS = (*(f"job-{name}" for name in JOB_EVENTS), *TRIGGER_ALIASES)

#: Kinds of triggers and actions, with how often there is one. Most actions let the ensemble go
#: on, so that histories get somewhere.
_TRIGGERS = {
    "start": 10,
    "job": 30,
    "outcome": 25,
    "metric": 12,
    "expression": 8,
    "heartbeat": 8,
    "idle": 10,
    "timer": 8,
    "scale": 10,
    "detector": 8,
    "running": 5,
    "time-left": 3,
    "search": 6,
}
_ACTIONS = {
    "submit": 25,
    "custom": 15,
    "enable": 15,
    "disable": 12,
    "update": 8,
    "grow": 8,
    "shrink": 8,
    "cancel": 7,
    "reset": 3,
    "terminate": 2,
    "copy": 1,
    **learning.ACTIONS,
}

#: What the rules of a document are about more than of others.
_FAVOURED: tuple[tuple[dict[str, int], dict[str, int]], ...] = (
    ({}, {}),
    ({"scale": 60, "metric": 30}, {"grow": 40, "shrink": 40}),
    ({"start": 40, "expression": 20}, {"enable": 60, "disable": 30, "custom": 40}),
    ({"search": 30, "expression": 20}, {"search": 40, "close": 15, "refresh": 20}),
    ({"detector": 50, "running": 30}, {"copy": 60}),
)

#: Metrics, for the names of rules, what they are compared with, and expressions.
_METRICS = (
    "count.a.submitted",
    "count.a.finished",
    "count.b.success",
    "count.c.failed",
    "mean.a-duration",
    "max.b-pending",
    "min.a-x",
    "nodes.free",
    "queue.pending-nodes",
    "share.queue",
)
#: Detectors that a few values trigger, and ordinary ones.
_DETECTORS = (
    {"trigger": "drift", "detector": {"adwin": {"clock": 1, "mode": "up"}}},
    {
        "trigger": "drift",
        "detector": {"page-hinkley": {"min-instances": 1, "delta": 0, "threshold": 0.1}},
    },
    {"trigger": "anomaly", "detector": {"quantile": {"q": 0.5, "warm-up": 1, "mode": "both"}}},
    {"trigger": "anomaly", "detector": {"quantile": {}}},
)
#: Triggers on what becomes of a job.
_OUTCOMES = (*OUTCOME_TRIGGERS, GAVE_UP_TRIGGER, GAVE_UP_TRIGGER)

_STREAMS = ("a-x", "a-duration", "b-pending")
_COMPARISONS = (0, 1, 2, "> 0", ">= 1", "< 3", "!= 0")
_EXPRESSIONS = (
    "count.a.success + count.b.success >= 2",
    "count.a.failed > 0 or count.b.canceled > 0",
    "mean['a-duration'] > 0 and not count.b.failed > 3",
    "queue['pending-nodes'] > nodes.free",
    "max['a-waiting'] > 1 or mean['b-running'] > 1",
    "variance['a-duration'] < 1 / (count.a.success - 1)",
    "nodes.size == 3",
    "share.queue < 1",
    *learning.EXPRESSIONS,
)

#: Statistics besides the usual ones: those of values of a parameter, and the best job so far.
_STATISTICS: tuple[list[dict[str, Any]], ...] = (
    [],
    [{"name": "p90", "statistic": "quantile", "q": 0.9}],
    [{"of": "c-duration", "by": ["x"]}, {"best": {"name": "top", "of": "a-x", "mode": "max"}}],
    [{"best": {"name": "top", "of": "c-x", "mode": "min", "live": True}}],
)

#: How long chains of rules are: few are as long as they may be, as these make a history slow.
_SHORT, _LONG = (3, 5, 20), (98, 99, 100, 101, 110)


def document(random: Random) -> dict[str, Any]:
    """A document that can have any rule; one that could not be loaded is made anew."""
    return loadable(lambda: _made(random))


def loadable(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Make documents until one can be loaded."""
    while True:
        made = make()
        try:
            load_mapping(made)
        except DocumentError:
            continue
        return made


def _made(random: Random) -> dict[str, Any]:
    ids = [f"r{number}" for number in range(random.randint(3, 9))]
    triggers, actions = random.choice(_FAVOURED)
    rules = [
        {"id": "r0", "trigger": "start", "action": {"name": "submit", "label": "a"}},
        {
            "id": "r1",
            "trigger": random.choice(["start", "job-submit", "job-success", "heartbeat"]),
            "action": {"name": "custom", "label": "f", "repetitions": random.randint(1, 4)},
            "on-error": "retry",
        },
        *(_rule(random, id, ids, triggers, actions) for id in ids[2:]),
    ]
    if random.random() < 0.5:
        begin = {"name": "search", "label": learning.SEARCH, "repetitions": "unlimited"}
        trigger = random.choice(["start", "job-submit", "search-done"])
        rules.append({"id": "begin", "trigger": trigger, "action": begin})
    if random.random() < 0.2:
        rules += _chain(random, random.choice(_SHORT if random.random() < 0.7 else _LONG))
    if random.random() < 0.15:
        rules += rounds(random)
    random.shuffle(rules)
    learns = learning.learning(random)
    return {
        **learns,
        "name": "any",
        "logging": {"heartbeat": 10},
        "custom": "def f(**kwargs): ...\n",
        "metrics": random.choice(_STATISTICS),
        "jobs": [
            {"name": "a", "command": "true", "count": random.randint(1, 4)},
            {"name": "a", "command": "true", "nodes": random.randint(1, 2)},
            {"name": "b", "command": "true", "retries": learning.retries(random),
             "on-lost": random.choice(["resubmit", "fail", "hold"]),
             "avoid-nodes": random.random() < 0.8, "duration": random.choice([0, 0, 30]),
             "start": random.choice(["in-time", "always"])},
            {"name": "c", "command": "true {x}", "params": {"x": [1, 2]}, "retries": 1,
             **learning.predicted(random)},
            learning.group(random),
            *learning.population(learns),
        ],
        "rules": rules,
        "limits": {
            "active-jobs": random.randint(1, 8),
            "jobs": random.choice([8, 30, 500, 500]),
            "losses": random.choice([0, 1, 3, 3]),
            "records": random.choice([3, 1000]),
        },
        "share": random.choice([1, 2]),
        "scaling": {
            "max-nodes": random.randint(2, 6),
            "refusals": random.randint(1, 3),
            "deadline": 30,
        },
        "finish": random.choice(["idle", "never"]),
    }  # fmt: skip


def _rule(
    random: Random,
    id: str,
    ids: Sequence[str],
    triggers: Mapping[str, int],
    actions: Mapping[str, int],
) -> dict[str, Any]:
    about = trigger(random, ids, triggers)
    of_jobs = str(about["trigger"]).lstrip("['").startswith(_OF_JOBS)
    actions = {**actions, "copy": actions.get("copy", 5) if of_jobs else 0}
    chosen = {**about, "id": id, "action": action(random, ids, actions)}
    if of_jobs and chosen["action"]["name"] in ("cancel", "update") and random.random() < 0.4:
        chosen["action"].pop("label", None)
        chosen["action"]["jobs"] = "trigger"
    if of_jobs and about.get("group") == "c" and chosen["action"].get("label") == "c":
        chosen["action"].update(random.choice([{}, {"params": "trigger"}]))
    chosen["action"]["repetitions"] = random.choice([1, 2, 5, "unlimited"])
    if random.random() < 0.25:
        chosen["action"]["backoff"] = random.randint(0, 2)
    if random.random() < 0.15:
        chosen["action"]["cooldown"] = 3
    if random.random() < 0.1:
        further = action(random, ids, {**actions, "terminate": 0})
        chosen["actions"] = [chosen.pop("action"), further]
    if about["trigger"] == "idle" and about.get("group") == "c" and random.random() < 0.5:
        chosen["by"] = ["x"]
    chosen["on-error"] = random.choice(["disable", "retry", "retry", "fail"])
    chosen["enabled"] = random.random() < 0.85
    return chosen


#: Triggers of which a job is the cause, which can have a copy.
_OF_JOBS = ("job-", "drift", "anomaly")


def trigger(
    random: Random, ids: Sequence[str], favoured: Mapping[str, int] = _TRIGGERS
) -> dict[str, Any]:
    """The keys of a rule but for its action; `ids` are rules."""
    kind = _weighted(random, {**_TRIGGERS, **favoured})
    when = {"when": random.choice(_EXPRESSIONS)} if random.random() < 0.2 else {}
    match kind:
        case "job":
            some: Any = random.choice(JOB_TRIGGERS)
            if random.random() < 0.1:
                some = random.sample(JOB_TRIGGERS, 2)
            return {"trigger": some, **when, **_about(random)}
        case "outcome":
            return {"trigger": random.choice(_OUTCOMES), **when, **_about(random)}
        case "running":
            every = random.choice([{}, {"every": 1}, {"every": 5}])
            return {"trigger": RUNNING_TRIGGER, **every, **when}
        case "time-left":
            return {"trigger": "time-left", "below": random.choice([5, 500])}
        case "search":
            name = {"name": learning.SEARCH} if random.random() < 0.5 else {}
            return {"trigger": "search-done", **name, **when}
        case "metric":
            compared = {"when": random.choice(_COMPARISONS)} if random.random() < 0.7 else {}
            return {"trigger": "metric", "name": random.choice(_METRICS), **compared}
        case "expression":
            return {"trigger": "metric", "when": random.choice(_EXPRESSIONS)}
        case "idle":
            group = {"group": random.choice(GROUPS)} if random.random() < 0.5 else {}
            return {"trigger": "idle", **group}
        case "timer":
            times = random.choice([{"after": 5}, {"every": 5}, {"after": 1, "every": 5}])
            return {"trigger": "timer", **times}
        case "detector":
            return {**random.choice(_DETECTORS), "name": random.choice(_STREAMS), **when}
        case "scale":
            asked = {"name": random.choice(ids)} if random.random() < 0.3 else {}
            return {"trigger": random.choice(OF_REQUESTS), **asked}
        case _:
            return {"trigger": kind, **when}


def _about(random: Random) -> dict[str, Any]:
    """Which jobs a rule is about."""
    about: dict[str, Any] = {}
    if random.random() < 0.3:
        about["scope"] = "queue"
    if random.random() < 0.4:
        about["group"] = random.choice([*GROUPS, ["a", "c"]])
    return about


def _weighted(random: Random, weights: Mapping[str, int]) -> str:
    return random.choices(tuple(weights), tuple(weights.values()))[0]


def action(
    random: Random, ids: Sequence[str], favoured: Mapping[str, int] = _ACTIONS
) -> dict[str, Any]:
    """An action; `ids` are rules."""
    name = _weighted(random, {**_ACTIONS, **favoured})
    chosen: dict[str, Any] = {"name": name}
    match name:
        case "submit":
            chosen["label"] = random.choice(GROUPS)
            if random.random() < 0.3:
                chosen["count"] = random.randint(1, 3)
            if random.random() < 0.1:
                chosen["urgency"] = random.choice([0, 31, "{count.a.submitted + 1}"])
            if chosen["label"] == "c" and random.random() < 0.5:
                chosen["params"] = {"x": [3, 4, 5]}
        case "custom":
            chosen["label"] = "f"
        case "enable" | "disable":
            chosen["label"] = random.choice(ids)
        case "update":
            chosen["label"] = random.choice(GROUPS)
            chosen.update(random.choice([{"urgency": 20}, {"duration": 60}]))
        case "reset":
            chosen["label"] = random.choice([*GROUPS, "a-duration", "b-pending", "a-x"])
        case "grow" | "shrink":
            chosen["value"] = random.randint(1, 3)
        case "cancel":
            chosen.update(random.choice([{}, {"label": random.choice(GROUPS)}]))
        case "search" | "close" | "refresh":
            chosen["label"] = learning.SEARCH
        case "terminate":
            chosen["cancel"] = random.random() < 0.5
    return chosen


def _chain(random: Random, length: int) -> list[dict[str, Any]]:
    """Rules that enable each other one after the other, when something enables the first."""
    begin = random.choice(["start", "job-success", "idle"])
    when = random.choice([{}, {}, {"when": "count.a.submitted >= 0 and count.b.failed < 99"}])
    links = [
        {
            "id": f"c{number}",
            "trigger": "start",
            **when,
            "enabled": False,
            "action": {"name": "enable", "label": f"c{number + 1}"},
        }
        for number in range(length)
    ]
    last = {"name": "submit", "label": "b"}
    return [
        {"id": "chain", "trigger": begin, "action": {"name": "enable", "label": "c0"}},
        *links,
        {"id": f"c{length}", "trigger": "start", "enabled": False, "action": last},
    ]


def rounds(random: Random, scales: bool = True) -> list[dict[str, Any]]:
    """Rules that fire each other on and on, with no job or time between.

    They meet where a group is idle again, since what waits of it is cancelled at once, and where a
    size is refused, since it is out of bounds. Either is the beginning of a chain that is as long
    as it may be.

    Args:
        random: decides which of them there are, and in which order.
        scales: also rules about the size.
    """
    again = {"repetitions": random.choice(["unlimited", "unlimited", 60])}
    out = {"name": "grow", "value": 9}
    submit, cancel = {"name": "submit", "label": "c"}, {"name": "cancel", "label": "c"}
    found: list[dict[str, Any]] = [
        {"id": "round", "trigger": "idle", "group": "c", "actions": [{**submit, **again}, cancel]},
    ]
    if scales:
        found += [
            {"id": "out", "trigger": "scale-denied", "action": {**out, **again}},
            {"id": "back", "trigger": "scale-denied", "actions": [{**submit, **again}, cancel]},
            {"id": "far", "trigger": "idle", "group": "c", "action": {**out, **again}},
            {"id": "all", "trigger": "idle", "action": {**out, **again}},
        ]
    chosen = random.sample(found, random.randint(1, len(found)))
    # Nothing of it happens before jobs wait.
    full = {"id": "full", "trigger": random.choice(["job-submit", "job-start"]), "group": "a"}
    return [*chosen, {**full, "actions": [{**submit, "count": 2, "repetitions": 2}, cancel]}]
