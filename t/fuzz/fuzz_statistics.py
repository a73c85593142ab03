"""Statistics with any arguments: they are refused with a sentence, or they work, and at once.

    python t/fuzz/fuzz_statistics.py --seconds 60

A document asks for some of River's statistics and detectors, with arguments that fit and others
that do not. If it is loaded its engine gets memos, ordinary ones and such as nobody should publish,
with a rule that looks at each statistic; and then it is restored from its snapshot.
"""

from __future__ import annotations

import inspect
import json
from random import Random
from typing import Any

from river import stats
from trials import main

from flux_ensemble.document.loading import DocumentError, load_text
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import CommandDone, JobEvent, Started, Tag, TimerFired
from flux_ensemble.engine.snapshot import dump, restore

#: The arguments of each of River's classes.
_CLASSES = {
    name: list(inspect.signature(cls).parameters)
    for name, cls in inspect.getmembers(stats, inspect.isclass)
    if issubclass(cls, stats.base.Univariate)
}

#: Arguments that fit, by name.
_FITTING = {
    "lag": (1, 2, 5, 100),
    "window_size": (1, 2, 3, 10, 50, 100_000),
    "amount": (0, 1, 7),
    "k": (1, 3, 25, 100_000),
    "q": (0.01, 0.5, 0.99, 0, 1),
    "q_inf": (0.0, 0.1, 0.25, 0.5),
    "q_sup": (0.5, 0.75, 0.9, 1.0),
    "fading_factor": (0.01, 0.5, 1),
    "eps": (1e-8, 0.1),
    "bias": (True, False),
    "ddof": (0, 1, 2),
    "prior": (0, 1.5, -3),
    "prior_weight": (1, 10, 0.5),
    "fill_value": (0, None, 1.5),
}
#: The detectors by trigger, with arguments that fit.
_DETECTORS: dict[str, dict[str, dict[str, tuple[Any, ...]]]] = {
    "drift": {
        "adwin": {
            "delta": (1e-300, 0.002, 0.5, 0.999),
            "clock": (1, 2, 32, 100_000),
            "grace-period": (1, 2, 10, 100_000),
            "min-window-length": (1, 2, 5, 100_000),
            "mode": ("up", "down", "both"),
        },
        "page-hinkley": {
            "min-instances": (1, 2, 30, 100_000),
            "delta": (0, 0.005, 1e300),
            "threshold": (1e-300, 0.1, 50, 1e300),
            "alpha": (1e-300, 0.5, 0.9999, 1),
            "mode": ("up", "down", "both"),
        },
    },
    "anomaly": {
        "quantile": {
            "q": (0.5, 0.9, 0.999, 0.9999999999999999),
            "warm-up": (1, 2, 100, 100_000),
            "window": (1, 2, 100, 100_000),
            "mode": ("up", "down", "both"),
        },
    },
}
_ODD: tuple[Any, ...] = (
    -(10**18), -(10**9), -100_001, -7, -1, 0, 1, 2, 99_999, 100_001, 10**6, 10**9, 10**18,
    2**63 - 1, -1e308, -1.0, -0.5, -0.0, 5e-324, 0.25, 0.75, 1.0, 1.0000001, 1.5, 3.0, 1e9, 1e308,
    True, False, None, "", "x", "0.5", "x" * 10**5, [], [1], {}, {"q": 0.5},
)  # fmt: skip
_VALUES = (
    0, 0.0, -0.0, 1, -1, 1.0, 1e308, -1e308, 1.7976931348623157e308, -1.7976931348623157e308,
    5e-324, -5e-324, 2.2e-308, 2**63 - 1, -(2**63), 2**63, 10**300, 10**400, 1e16, 1e16 + 2,
    0.1, 0.3,
)  # fmt: skip


def make(random: Random) -> dict[str, Any]:
    """Statistics, and the values that they get."""
    few = random.choice([1, 2, 4])
    return {
        "metrics": [_statistic(random, number) for number in range(random.choice([1, 1, 2, 5]))],
        "detectors": [_detector(random) for _ in range(random.choice([0, 1, 2]))],
        "values": [_number(random, few) for _ in range(random.choice([0, 1, 3, 20, 120, 300]))],
        "waiting": random.random() < 0.3,
    }


def _statistic(random: Random, number: int) -> Any:
    kind = random.choice(list(_CLASSES))
    arguments: dict[str, Any] = {}
    for name in _CLASSES[kind]:
        choice = random.random()
        if choice < 0.7:
            arguments[name] = random.choice(_FITTING.get(name, _ODD))
        elif choice < 0.9:
            arguments[name] = random.choice(_ODD)
    if random.random() < 0.05:
        arguments[random.choice(["of", "depth", "self", "x" * 1000])] = random.choice(_ODD)
    if random.random() < 0.05:
        kind = random.choice(["", "median", kind.lower(), kind.upper(), "m" * 10**5, "Cov", "base"])
    return {"name": f"s{number}", "statistic": kind, **arguments}


def _detector(random: Random) -> dict[str, Any]:
    trigger = random.choice(list(_DETECTORS))
    kind = random.choice(list(_DETECTORS[trigger]))
    arguments: dict[str, Any] = {}
    for name, fitting in _DETECTORS[trigger][kind].items():
        choice = random.random()
        if choice < 0.6:
            arguments[name] = random.choice(fitting)
        elif choice < 0.65:
            arguments[name] = random.choice(_ODD)
    if random.random() < 0.05:
        kind = random.choice(["", "kswin", kind.upper(), "m" * 10**5])
    if random.random() < 0.05:
        trigger = random.choice(list(_DETECTORS))
    return {"trigger": trigger, "detector": {kind: arguments}}


def _number(random: Random, few: int) -> Any:
    match random.randrange(5):
        case 0:
            return random.choice(_VALUES)
        case 1:
            return random.choice(_VALUES[:few])
        case 2:
            return random.randint(-(10**18), 10**18)
        case 3:
            return random.uniform(-1, 1) * 10.0 ** random.randint(-300, 300)
        case _:
            return random.random()


def attempt(given: dict[str, Any]) -> None:
    """Load the document, have its engine see the values, and restore it."""
    metrics = given.get("metrics", [])
    rules = [
        {
            "trigger": "metric",
            "name": f"{one.get('name', 's')}.a-{variable}",
            "when": "> 0.5",
            "action": {"name": "submit", "label": "b", "repetitions": 2},
        }
        for one in metrics
        for variable in ("x", "pending")
    ]
    rules += [
        {
            **one,
            "name": f"a-{variable}",
            "action": {"name": "submit", "label": "b", "count": "{job.index + 1}"},
        }
        for one in given.get("detectors", [])
        for variable in ("x", "pending")
    ]
    document = {
        "name": "fuzz",
        "jobs": [{"name": "a", "command": "a", "count": 2}, {"name": "b", "command": "b"}],
        "metrics": metrics,
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}, *rules],
        "logging": {"heartbeat": 10},
    }
    try:
        spec = load_text(json.dumps(document))
    except DocumentError:
        return
    engine = Engine(spec)
    engine.stats.keep_values()
    t = 1000.0
    engine.handle(Started(t))
    engine.handle(CommandDone(t, 1, {"ids": [1, 2]}))
    for index in (0, 1):
        for name in ("submit", "validate", "start")[: 2 if index and given.get("waiting") else 3]:
            tag = Tag("a", "rule-0", 0, index) if name == "submit" else None
            engine.handle(JobEvent(t, 1 + index, name, {}, tag))
    for value in given.get("values", []):
        t += 0.5
        engine.handle(JobEvent(t, 1, "memo", {"x": value}))
    engine.handle(TimerFired(t, "heartbeat"))
    engine.check()
    metrics_then = json.dumps(engine.metrics(t), allow_nan=False)
    values = json.loads(json.dumps(engine.stats.take_values(), allow_nan=False))
    again = restore(spec, json.loads(json.dumps(dump(engine), allow_nan=False)), [values])
    assert json.dumps(again.metrics(t), allow_nan=False) == metrics_then


if __name__ == "__main__":
    main("statistics", make, attempt)
