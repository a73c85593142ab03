"""Random documents with members, of which some have services, and with rules of one member."""

from __future__ import annotations

from random import Random
from typing import Any

from engines import learning
from engines.documents import loadable, rounds
from flux_ensemble.document.keys.rules import JOB_EVENTS, MEMBER_TRIGGERS, OUTCOME_TRIGGERS

POOLS = ("pool", "big")
GROUPS = ("a", "b", "c")

_EXPRESSIONS = (
    "count.a.success >= 2",
    "count.b.failed + count.a.failed >= 1",
    "n['a-duration'] > 1",
    "mean['b-x'] > 0",
    "time.left < 50",
)


#: Who starts the members, and what else can be said of them.
_PROVIDED: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"from": "slurm", "limits": {"queued": 1, "spacing": 5}, "service": None},
    {"from": "slurm", "runs": "tasks", "nodes": 1, "service": None},
)
_MORE: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"drain": 10, "duration": 60},
    {"runs": "tasks", "nodes": 1, "service": None},
    {"exclusive": True},
)


def _said(keys: dict[str, Any]) -> dict[str, Any]:
    """The keys that a document has: None is one that it leaves out."""
    return {key: value for key, value in keys.items() if value is not None}


def member_document(random: Random) -> dict[str, Any]:
    """A document with members; one that could not be loaded is made anew."""
    return loadable(lambda: _made(random))


def _made(random: Random) -> dict[str, Any]:
    begin = {"id": "r0", "trigger": "start", "action": {"name": "submit", "label": "a"}}
    rules = [begin, *(_rule(random, f"r{number}") for number in range(1, random.randint(2, 6)))]
    if random.random() < 0.1:
        rules += rounds(random, scales=False)
    provided = random.choice(_PROVIDED)
    learns = learning.learning(random) if random.random() < 0.3 else {}
    if learns:
        learns.pop("use", None)
        rules.append(
            {
                "id": "begin",
                "trigger": "start",
                "action": {"name": "search", "label": learning.SEARCH},
            }
        )
    return {
        **learns,
        "name": "any",
        "logging": {"heartbeat": 10},
        "custom": "def f(**kwargs): ...\n",
        "members": [
            _said({
                "name": pool,
                "count": {"min": random.randint(1, 2), "max": random.randint(2, 9)},
                "nodes": random.choice([1, 3]),
                "duration": random.choice([0, 60]),
                "on-lost": random.choice(["resubmit", "fail", "hold"]),
                "breaker": random.choice([0, 2, 20]),
                "service": random.choice(["parent", "child", "auto"]),
                "labels": ["fast" if pool == "big" else "slow"],
                **provided,
                **random.choice(_MORE),
            })
            for pool in POOLS
        ],
        "jobs": [
            {"name": "a", "command": "true", "count": random.randint(1, 6)},
            {
                "name": "b",
                "command": "true",
                "duration": random.choice([0, 20]),
                "nodes": random.choice([1, 1, 1, 2]),
                "retries": {"times": random.randint(0, 2), "spread": "node"},
            },
            {"name": "c", "command": "true {x}", "params": {"x": [1, 2]}, "member": "fast",
             "cores": random.choice([1, 1, 2, 4])},
            *([learning.group(random)] if learns else []),
        ],
        "rules": rules,
        "metrics": [
            "ew_mean",
            {"name": "recent", "statistic": "rolling_quantile", "q": 0.9, "window_size": 3},
            {"name": "p90", "statistic": "quantile", "q": 0.9},
        ],
        "limits": {"jobs": random.choice([30, 500]), "losses": random.choice([0, 1, 3, 3])},
        "finish": random.choice(["idle", "never"]),
    }  # fmt: skip


def _rule(random: Random, id: str) -> dict[str, Any]:
    kind = random.choice(["job", "job", "outcome", "metric", "heartbeat", "member", "member"])
    rule: dict[str, Any] = {"id": id}
    match kind:
        case "job":
            rule["trigger"] = f"job-{random.choice(JOB_EVENTS)}"
        case "outcome":
            rule["trigger"] = random.choice(list(OUTCOME_TRIGGERS))
        case "metric":
            rule |= {"trigger": "metric", "when": random.choice(_EXPRESSIONS)}
        case "heartbeat":
            rule["trigger"] = "heartbeat"
        case "member":
            rule["trigger"] = random.choice(MEMBER_TRIGGERS)
            if random.random() < 0.5:
                rule["name"] = random.choice(POOLS)
    if random.random() < 0.6:
        rule["scope"] = "member"
    of_job = kind in ("job", "outcome") and "scope" not in rule
    rule["action"] = {
        **member_action(random, of_job=of_job),
        "repetitions": random.choice([1, 3, "unlimited"]),
    }
    return rule


def member_action(random: Random, *, of_job: bool = False) -> dict[str, Any]:
    """An action; `of_job`: of a rule that a job triggers."""
    label = random.choice(GROUPS)
    if of_job and random.random() < 0.3:
        near = {"name": "submit", "label": label, "near": "trigger"}
        return random.choice([{"name": "copy", "jobs": "trigger"}, near])
    return random.choice(
        [
            {"name": "submit", "label": label, "count": random.randint(1, 3)},
            {"name": "submit", "label": label},
            {"name": "cancel", "label": label},
            {"name": "update", "label": label, "urgency": 20},
            {"name": "reset", "label": "a-duration"},
            {"name": "grow", "label": random.choice(POOLS)},
            {"name": "shrink", "label": random.choice(POOLS)},
            {"name": random.choice(["enable", "disable"]), "label": "r1"},
            {"name": "custom", "label": "f"},
        ]
    )
