"""Conditions with any values: whatever they are, they hold or not, and at once.

    python t/fuzz/fuzz_conditions.py --seconds 60

An expression is made by a grammar, or is no expression at all. It goes into a document, as a
condition and into an action, which is loaded, and then its engine gets what jobs do and publish:
jobs of the ensemble, and of others.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from trials import main

from flux_ensemble.document.loading import DocumentError, load_text
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import CommandDone, JobEvent, Started, Tag, TimerFired
from flux_ensemble.engine.snapshot import dump
from flux_ensemble.engine.status import status

_NAMES = (
    "x", "y", "digits", "memo['x']", "count.a.success", "count.a.submitted", "nodes.free",
    "queue['pending-nodes']", "mean['a-duration']", "max['a-x']", "variance['a-y']", "nothing",
    "job.params.p", "job.memo.x", "job.memo['y']", "job.returncode", "job.runtime", "job.outcome",
    "job.exception.type", "job.nnodes", "job.duration", "share.queue",
)  # fmt: skip
_OPERATORS = (
    "+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or",
    "**", "<<", "is", "in", "if", ",", ".", "=",
)  # fmt: skip
_TEXTS = ("'%1999999999d'", "'x'", "''", '"{:>999999999}"', "'\\x00'", "b'x'", "f'{x}'", "'a' * 9")
_TRIGGERS = ("job-memo", "metric", "heartbeat", "job-success", "job-fail")


def make(random: Random) -> dict[str, Any]:
    """A condition, and the memos that it sees."""
    return {
        "when": _when(random),
        "trigger": random.choice(_TRIGGERS),
        "queue": random.random() < 0.5,
        "status": random.choice([0, 256, 9]),
        "memos": [
            {key: _value(random, 3) for key in random.sample(["x", "y", "digits", "z"], 3)}
            for _ in range(random.randint(1, 3))
        ],
        "step": random.choice([0.001, 1.0, -3600.0, 1e9, 1e300, -1e300]),
    }


def _when(random: Random) -> Any:
    match random.randrange(12):
        case 0:
            return random.choice(["> ", "", "<= ", "=="]) + _number(random)
        case 1:
            one = random.choice(
                ["1", "(", "-", "not ", "[", "x.", "9", " ", "1+", "max(", "'", "{"]
            )
            return one * random.choice([10, 199, 200, 201, 1000, 4096, 50_000]) + _number(random)
        case 2:
            sign = random.choice([" + ", " * ", " % ", " - ", " and ", " < ", " // ", "/"])
            return sign.join([_leaf(random)] * random.randint(1, 230))
        case 3:
            parts = [_leaf(random), random.choice(_OPERATORS), "(", ")", "[", "]", ",", ":", "\n"]
            return " ".join(random.choices(parts, k=random.randint(1, 60)))
        case 4:
            return f"round({_expression(random, 2)}, {_expression(random, 2)}) >= 0"
        case _:
            return _expression(random, random.randint(1, 7))


def _expression(random: Random, depth: int) -> str:
    if depth == 0 or random.random() < 0.1:
        return _leaf(random)
    left = _expression(random, depth - 1)
    match random.randrange(8):
        case 0:
            return f"{random.choice(['-', '+', 'not ', '~'])}{left}"
        case 1 | 2:
            function = random.choice(["abs", "max", "min", "round", "pow"])
            more = [_expression(random, depth - 1) for _ in range(random.randrange(3))]
            return f"{function}({', '.join([left, *more])})"
        case _:
            sign = random.choice(_OPERATORS[: random.choice([14, 14, 14, len(_OPERATORS)])])
            return f"({left} {sign} {_expression(random, depth - 1)})"


def _leaf(random: Random) -> str:
    kind = random.random()
    if kind < 0.5:
        return random.choice(_NAMES)
    return random.choice(_TEXTS) if kind < 0.6 else _number(random)


def _number(random: Random) -> str:
    match random.randrange(7):
        case 0:
            return str(random.randint(-3, 400))
        case 1:
            return str(random.choice([-1, 1]) * random.getrandbits(random.choice([8, 64, 200])))
        case 2:
            return random.choice("19") * random.choice([20, 308, 309, 400, 4000])
        case 3:
            return random.choice(["1e999", "1e308", "5e-324", "1e-999", "1j", "0x" + "f" * 300])
        case 4:
            return "-" + "9" * random.randint(1, 18)
        case _:
            return repr(random.uniform(-1, 1) * 10 ** random.randint(-300, 300))


def _value(random: Random, depth: int) -> Any:
    match random.randrange(10):
        case 0:
            return random.choice([None, True, False])
        case 1:
            return random.choice(["", "x", "%1999999999d", "%s" * 1000, "9" * 400, "x" * 10**6])
        case 2 if depth:
            return [_value(random, depth - 1) for _ in range(random.randrange(3))]
        case 3 if depth:
            return {"x": _value(random, depth - 1)}
        case 4:
            return random.choice([-1, 1]) * 10 ** random.choice([18, 19, 308, 309, 4000])
        case 5:
            return random.choice([float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 5e-324])
        case 6:
            return random.randint(-400, 400)
        case 7:
            return random.randint(-(10**18), 10**18)
        case _:
            return random.uniform(-1, 1) * 10.0 ** random.randint(-300, 300)


def attempt(given: dict[str, Any]) -> None:
    """Load documents with the expression, and have their engines see the jobs."""
    when = str(given.get("when", ""))
    _play(given, _condition(given))
    actions: tuple[dict[str, Any], ...] = (
        {"name": "submit", "label": "b", "params": {"p": f"{{{when}}}"}},
        {"name": "submit", "label": "b", "nodes": f"{{{when}}}", "workdir": f"{{{{{{{when}}}"},
        {"name": "update", "jobs": "trigger", "duration": f"{{{when}}}"},
        {"name": "terminate", "reason": f"{{{when}}}{when}"},
    )
    for action in actions:
        rule = {"trigger": ["job-fail", "job-memo"], "action": {**action, "repetitions": 3}}
        _play(given, rule)


def _condition(given: dict[str, Any]) -> dict[str, Any]:
    """A rule with the expression as its condition."""
    trigger = given.get("trigger", "job-memo")
    rule = {
        "trigger": trigger,
        "when": given.get("when", ""),
        "action": {"name": "submit", "label": "b", "repetitions": 3},
    }
    if given.get("queue") and trigger.startswith("job-"):
        rule["scope"] = "queue"
    if trigger == "metric" and str(given.get("when", "")).lstrip()[:1] in "<>=!":
        rule["name"] = "max.a-x"
    return rule


def _play(given: dict[str, Any], rule: dict[str, Any]) -> None:
    """Load the document with a rule, and have its engine see the jobs."""
    document = {
        "name": "fuzz",
        "jobs": [
            {"name": "a", "command": "a", "params": {"p": 2}, "duration": 60},
            {"name": "b", "command": "b {p}", "params": {"p": 0}},
        ],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}, rule],
        "logging": {"heartbeat": 10},
    }
    try:
        spec = load_text(json.dumps(document))
    except DocumentError:
        return
    engine = Engine(spec)
    t = 1000.0
    engine.handle(Started(t))
    engine.handle(CommandDone(t, 1, {"ids": [1]}))
    tag = Tag("a", "rule-0", 0, 0)
    for name in ("submit", "validate", "start"):
        engine.handle(JobEvent(t, 1, name, {}, tag if name == "submit" else None))
    for memo in given.get("memos", []):
        t += given.get("step", 1.0)
        engine.handle(JobEvent(t, 1, "memo", memo))
        engine.handle(JobEvent(t, 9, "memo", memo, foreign=True, job_name="other"))
        engine.handle(TimerFired(t, "heartbeat"))
    for name in ("finish", "clean"):
        engine.handle(JobEvent(t, 1, name, {"status": given.get("status", 0)}))
    engine.check()
    json.dumps(engine.metrics(t), allow_nan=False)
    json.dumps(status(engine), allow_nan=False)
    dump(engine)


if __name__ == "__main__":
    main("conditions", make, attempt)
