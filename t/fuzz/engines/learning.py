"""What learns in random documents: searches with what stops their trials, predictions, copies."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from flux_ensemble.engine.commands import Ask

#: The search of each document, and the group of its trials.
SEARCH, GROUP = "s", "t"

#: The group of the members of a population.
POPULATION = "e"

_STOPS: tuple[dict[str, Any], ...] = (
    {},
    {"stop": {"policy": "asha", "step": "epoch", "eta": 2}},
    {"stop": {"policy": "hyperband", "step": "epoch", "to": 4, "eta": 2}},
    {"stop": {"policy": "median", "step": "epoch", "trials": 1}},
    {"stop": {"policy": "patience", "step": "epoch", "patience": 0}},
    {"stop": {"policy": "threshold", "step": "epoch", "upper": 2}},
    {"subject-to": ["cost <= 0.5", "loss >= k / 8"]},
    {"subject-to": ["0 <= cost <= 1 - u"], "repeats": 2},
    {"repeats": 2},
    {"repeats": 3, "aggregate": "median"},
    {"repeats": 2, "aggregate": "max"},
)
_OBJECTIVES: tuple[dict[str, Any], ...] = (
    {"minimize": "loss"},
    {"maximize": "loss"},
    {"minimize": ["loss", "cost"], "sampler": "random"},
)
_ON_FAILURE = ("skip", "skip", "retry", {"penalty": 9})

#: Packaged algorithms, which make rules and keys of groups.
_USES: tuple[list[dict[str, Any]], ...] = (
    [],
    [],
    [{"algorithm": "stragglers", "group": "a", "every": 5, "ends": 1, "factor": 1.5}],
    [{"algorithm": "retry-with-more", "group": "a", "nodes": 2, "times": 2}],
    [
        {
            "algorithm": "population",
            "id": "pop",
            "group": POPULATION,
            "variables": {"lr": {"low": 0.001, "high": 0.1, "log": True}, "opt": ["p", "q"]},
            "minimize": "loss",
            "population": 3,
            "rounds": 2,
        }
    ],
)

#: Constraints on points, points that are tried first, and variables that not every point has.
_POINTS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"points": [{"u": 0.5, "k": 2, "w": "p"}]},
    {"where": ["u + k <= 4"], "points": [{"u": 1, "k": 3, "w": 2}]},
)
_CONDITIONAL = {"low": 0, "high": 1, "when": "w == 'p'"}

#: Expressions of searches.
EXPRESSIONS = (
    f"search.{SEARCH}.trials >= 2",
    f"search.{SEARCH}.complete > 0 or search.{SEARCH}.failed > 1",
    "time.remaining > 5",
)

#: Actions on the search, with how often there is one.
ACTIONS = {"search": 10, "close": 3, "refresh": 4}


def learning(random: Random) -> dict[str, Any]:
    """The search of a document, and what it uses."""
    objectives = random.choice(_OBJECTIVES)
    several = isinstance(objectives.get("minimize"), list)
    on_failure: Any = random.choice(_ON_FAILURE)
    if several and isinstance(on_failure, dict):
        on_failure = {"penalty": [9, 9]}
    search = {
        "id": SEARCH,
        "group": GROUP,
        "variables": {
            "u": {"low": 0, "high": 1},
            "k": {"low": 1, "high": 4, "integer": True},
            "w": ["p", True, 2],
        },
        "sampler": "random",
        **objectives,
        **({} if several else random.choice(_STOPS)),
        **random.choice(_POINTS),
        "trials": random.choice([1, 3, 8]),
        "parallel": random.randint(1, 4),
        "failures": random.choice([1, 2, 20]),
        "on-failure": on_failure,
        "sequential": random.random() < 0.2,
    }
    if "points" not in search and random.random() < 0.1:
        search["variables"]["m"] = _CONDITIONAL
    if several and random.random() < 0.2:
        search["repeats"] = 2
    if "subject-to" in search and isinstance(on_failure, dict):
        search["on-failure"] = "skip"
    if random.random() < 0.3:
        del search["sampler"]
        search |= {"generator": "package:Class", "initial": random.randint(0, 2)}
        if random.random() < 0.3:
            told = {"u": 0.5, "k": 2, "w": True, "loss": 0.5, "cost": 0.25}
            keys = {*search["variables"], *_published(search)}
            one = {key: value for key, value in told.items() if key in keys}
            search["warm-start"] = {"trials": [one] * random.randint(1, 3)}
    if random.random() < 0.3:
        search["batch"] = random.choice([1, 2, 20])
    found: dict[str, Any] = {"search": [search]}
    use = random.choice(_USES)
    return {**found, "use": use} if use else found


def _published(search: Mapping[str, Any]) -> list[str]:
    """What a trial of a search has to publish."""
    several = isinstance(search.get("minimize"), list)
    return ["loss", "cost"] if several or "subject-to" in search else ["loss"]


def population(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The group of the members of a population, if what a document uses has one."""
    named = {use.get("group") for use in found.get("use", ())}
    return [{"name": POPULATION, "command": "true {lr} {opt}"}] if POPULATION in named else []


def retries(random: Random) -> Any:
    """How often a job runs again: mostly a number, and now and then all that can be said of it."""
    times = random.randint(0, 2)
    if random.random() < 0.5:
        return times
    more: list[dict[str, Any]] = [
        {"on": ["failed", "timeout", "canceled"]},
        {"on": "job.returncode == 1 or job.attempt > 2"},
        {"after": 5},
        {"factor": 2, "after": 1},
        {"with": {"nodes": 2, "duration": "{job.duration * 2 + 10}", "urgency": 20}},
        {"with": {"environment": {"ATTEMPT": "{job.attempt}"}}, "after": 2},
    ]
    return {"times": times + 1, **random.choice(more)}


def group(random: Random) -> dict[str, Any]:
    """The group of its trials."""
    more = {"retries": 1} if random.random() < 0.3 else {}
    return {"name": GROUP, "command": "true {u} {k} {w}", **more}


def predicted(random: Random) -> dict[str, Any]:
    """Keys of a group whose run times are predicted."""
    longest = {"order": "longest-first", "max-active": random.randint(1, 2)}
    return {"predict": ["x"], **random.choice([{}, longest])}


def answer(random: Random, command: Ask) -> dict[str, Any]:
    """What an ask came to: as many points as are wanted, fewer, or none."""
    count = random.choice([command.count, command.count, random.randint(0, command.count)])
    points = [
        {"params": {"u": random.random(), "k": random.randint(1, 4), **_w(random)},
         **({"attributes": {"generation": 1}} if random.random() < 0.2 else {})}
        for _ in range(count)
    ]  # fmt: skip
    return {"points": points, "seconds": random.choice([0.0, 0.5])}


def _w(random: Random) -> dict[str, Any]:
    w = random.choice(["p", True, 2])
    return {"w": w, "m": random.random()} if w == "p" and random.random() < 0.1 else {"w": w}


def memo(random: Random) -> Mapping[str, Any]:
    """What the job of a trial publishes."""
    values: list[Any] = [0, 0.25, 0.5, 1, 2.5]
    found = {"loss": random.choice(values), "cost": random.choice(values),
             "epoch": random.choice([1, 2, 4])}  # fmt: skip
    if random.random() < 0.2:
        del found[random.choice(list(found))]
    if random.random() < 0.1:
        found["loss"] = random.choice([None, "text", True])
    return found
