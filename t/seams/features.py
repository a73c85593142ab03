"""The features: what each adds to a document, and what has to come of it whatever happens.

    document, files = build([FEATURES["sweep"], FEATURES["search"]], "study")

A feature makes groups, rules, searches and so on whose names begin with its own, so several stand
in one document without a word to each other. Jobs run `job.py`, which keeps the witness.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JOB = Path(__file__).with_name("job.py")

#: A part of a document.
Part = dict[str, Any]

#: Keys of a document of which each feature has some entries.
_LISTS = ("members", "jobs", "search", "metrics", "use", "rules")


@dataclass(frozen=True)
class Best:
    """What is best so far by the document: its name, group, key of memos, and mode."""

    name: str
    group: str
    key: str
    mode: str


@dataclass(frozen=True)
class Feature:
    """A feature.

    Args:
        name: its own, which names of its groups begin with.
        says: what is tried, in a sentence.
        part: its part of a document; a fresh one each time.
        succeeded: by group, how many pieces of work succeed in the end, whatever happens.
        finished: by group, how many end at all, where others do not succeed.
        failed: by group, the attempts that fail in a run that nothing happens to.
        best: what is best.
        trials: of each of its searches.
        files: by name, what is beside the document.
        alone: why it needs Flux; empty where it does not.
        simulated: what a simulation of it has otherwise, by group: how many succeed. Simulated jobs
            fail only if they run out of time.
        at_once: how many jobs the queue has to have room for, so that it can be over: one that
            hangs would have its copy wait for it.
    """

    name: str
    says: str
    part: Callable[[], Part]
    succeeded: Mapping[str, int]
    finished: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    best: Best | None = None
    trials: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    alone: str = ""
    simulated: Mapping[str, int] = field(default_factory=dict)
    at_once: int = 1

    @property
    def ends(self) -> Mapping[str, int]:
        """By group, how many pieces of work end."""
        return {**self.succeeded, **self.finished}


def job(group: str, kind: str, params: Mapping[str, Any] | None = None, **more: Any) -> Part:
    """A job group whose jobs do what a kind of `job.py` does.

    Args:
        group: its name.
        kind: of its jobs.
        params: its parameters, which its jobs are given too.
        more: further keys of the group; with `given`, names of parameters that a search, or an
            algorithm, declares.
    """
    names = [*(params or {}), *more.pop("given", ())]
    command = [sys.executable, "-IS", str(JOB), group, kind, *(f"{one}={{{one}}}" for one in names)]
    return {
        "name": group,
        "command": command,
        **({"params": dict(params)} if params else {}),
        **more,
    }


def start(label: str, id: str = "", **more: Any) -> Part:
    """A rule that submits a group at the start."""
    action = {"name": "submit", "label": label, **more}
    return {"id": id or f"{label}-start", "trigger": "start", "action": action}


def _sweep() -> Part:
    return {
        "jobs": [job("sweep", "fom", {"x": [1, 2, 3], "kind": ["a", "b c"]}, count=1)],
        "rules": [start("sweep")],
        "simulate": {"sweep": {"duration": 1, "memo": {"fom": {"param": "x"}}}},
    }


SHEET = """\
x,word,left alone,a note
1,NO,,
1.10,yes,12e4567,
3,0x1F,"a, b",
4,late,,out
"""


def _sheet() -> Part:
    columns: dict[str, Any] = {name: {"file": "sheet.csv"} for name in ("x", "word")}
    # The last row is not chosen.
    columns["x"] |= {"where": "row['a note'] != 'out'", "limit": 3}
    return {"jobs": [job("sheet", "fom", columns)], "rules": [start("sheet")]}


def _course() -> Part:
    group = job("course", "course", {"x": [1, 2, 3, 4]})
    return {"jobs": [group], "rules": [start("course")], "simulate": {"course": {"duration": 1}}}


def _search() -> Part:
    return {
        "search": [
            {
                "id": "search",
                "group": "search-trial",
                "variables": {"x": {"low": 0, "high": 1}},
                "minimize": "loss",
                "sampler": "random",
                "trials": 8,
                "parallel": 4,
                "failures": 3,
            }
        ],
        "jobs": [
            job("search-trial", "trial", given=["x"]),
            job("search-final", "plain", {"x": 0}),
        ],
        "rules": [
            {"id": "search-begin", "trigger": "start",
             "action": {"name": "search", "label": "search"}},
            {"id": "search-end", "trigger": "search-done", "name": "search",
             "action": {"name": "submit", "label": "search-final",
                        "params": {"x": "{search.search.best.x}"}}},
        ],
        "simulate": {"search-trial": {"memo": {"loss": {"expression": "(x - 0.3) ** 2"}}}},
    }  # fmt: skip


def _retried_search() -> Part:
    return {
        "search": [
            {
                "id": "retried",
                "group": "retried-trial",
                "variables": {"x": {"low": 0, "high": 1}, "k": [1, True, "a"]},
                "maximize": "loss",
                "sampler": "tpe",
                "trials": 6,
                "parallel": 3,
                "on-failure": "retry",
                "failures": 3,
            }
        ],
        "jobs": [job("retried-trial", "trial", given=["x", "k"])],
        "rules": [
            {"id": "retried-begin", "trigger": "start",
             "action": {"name": "search", "label": "retried"}},
        ],
        "simulate": {"retried-trial": {"memo": {"loss": {"expression": "(x - 0.3) ** 2"}}}},
    }  # fmt: skip


def _stopping() -> Part:
    return {
        "search": [
            {
                "id": "stopping",
                "group": "stopping-trial",
                "variables": {"x": {"low": 0, "high": 1}},
                "minimize": "loss",
                "sampler": "qmc",
                "trials": 8,
                "parallel": 2,
                "stop": {"policy": "asha", "step": "epoch", "eta": 2},
            }
        ],
        "jobs": [job("stopping-trial", "epochs", given=["x"])],
        "rules": [
            {"id": "stopping-begin", "trigger": "start",
             "action": {"name": "search", "label": "stopping"}},
        ],
        "simulate": {"stopping-trial": {"memo": {"loss": {
            "expression": "(x - 0.3) ** 2 + 1 / epoch", "step": "epoch", "steps": 4}}}},
    }  # fmt: skip


#: The constraint of a search: some of its trials violate it.
BOUND = 0.02


def _bounded() -> Part:
    return {
        "search": [
            {
                "id": "bounded",
                "group": "bounded-trial",
                "variables": {"x": {"low": 0, "high": 1}},
                "minimize": "loss",
                "subject-to": f"loss >= {BOUND}",
                "sampler": "random",
                "trials": 8,
                "parallel": 4,
            }
        ],
        "jobs": [job("bounded-trial", "trial", given=["x"])],
        "rules": [
            {"id": "bounded-begin", "trigger": "start",
             "action": {"name": "search", "label": "bounded"}},
        ],
        "simulate": {"bounded-trial": {"memo": {"loss": {"expression": "(x - 0.3) ** 2"}}}},
    }  # fmt: skip


def _conditional() -> Part:
    return {
        "search": [
            {
                "id": "conditional",
                "group": "conditional-trial",
                "variables": {
                    "x": {"low": 0, "high": 1},
                    "kind": ["p", "q"],
                    "y": {"low": 0, "high": 1, "when": "kind == 'p'"},
                },
                "where": "x + y <= 1.2",
                "minimize": "loss",
                "sampler": "random",
                "trials": 8,
                "parallel": 3,
                "failures": 3,
            }
        ],
        "jobs": [job("conditional-trial", "trial", {"y": 0}, given=["x", "kind"])],
        "rules": [
            {"id": "conditional-begin", "trigger": "start",
             "action": {"name": "search", "label": "conditional"}},
        ],
        "simulate": {"conditional-trial": {"memo": {"loss": {"expression": "(x - 0.3) ** 2"}}}},
    }  # fmt: skip


def _repeated() -> Part:
    return {
        "search": [
            {
                "id": "repeated",
                "group": "repeated-trial",
                "variables": {"x": {"low": 0, "high": 1}},
                "minimize": "loss",
                "sampler": "random",
                "trials": 4,
                "repeats": 3,
                "aggregate": "median",
                "parallel": 2,
                "failures": 3,
            }
        ],
        "jobs": [job("repeated-trial", "trial", {"k": "{index}"}, given=["x"])],
        "rules": [
            {"id": "repeated-begin", "trigger": "start",
             "action": {"name": "search", "label": "repeated"}},
        ],
        "simulate": {"repeated-trial": {"memo": {"loss": {"expression": "(x - 0.3) ** 2"}}}},
    }  # fmt: skip


def _warm() -> Part:
    told = [{"x": place / 16, "loss": (place / 16 - 0.3) ** 2} for place in range(16)]
    return {
        "search": [
            {
                "id": "warm",
                "group": "warm-trial",
                "variables": {"x": {"low": 0, "high": 1}},
                "minimize": "loss",
                "sampler": "tpe",
                "warm-start": {"trials": told},
                "trials": 6,
                "parallel": 3,
                "failures": 3,
            }
        ],
        "jobs": [job("warm-trial", "trial", given=["x"])],
        "rules": [
            {"id": "warm-begin", "trigger": "start",
             "action": {"name": "search", "label": "warm"}},
        ],
        "simulate": {"warm-trial": {"memo": {"loss": {"expression": "(x - 0.3) ** 2"}}}},
    }  # fmt: skip


def _population() -> Part:
    return {
        "jobs": [
            job("population", "member", given=["x", "member", "round", "from"]),
            job("population-end", "plain", {"n": 0}),
        ],
        "use": [
            {"algorithm": "population", "id": "population", "group": "population",
             "variables": {"x": {"low": 0.0, "high": 1.0}}, "minimize": "loss",
             "population": 4, "rounds": 2},
        ],
        "rules": [
            {"id": "population-rule", "trigger": "idle", "group": "population",
             "when": 'count["population"].success == 8',
             "action": {"name": "submit", "label": "population-end"}},
        ],
        "simulate": {"population": {"memo": {"loss": {"expression": "(x - 0.3) ** 2"}}}},
    }  # fmt: skip


def _retries() -> Part:
    return {
        "jobs": [
            job("retries-once", "once", {"x": [1, 2, 3]}, retries=2),
            job("retries-never", "never", {"x": [1, 2]}, retries=1),
        ],
        "rules": [start("retries-once"), start("retries-never")],
    }


def _smaller() -> Part:
    again = {"times": 3, "on": "job.returncode == 3",
             "with": {"params": {"dt": "{job.params.dt // 2}"}}}  # fmt: skip
    return {
        "jobs": [
            job("smaller", "stiff", {"k": [1, 2, 4, 64], "dt": 8}, retries=again),
            job("smaller-after", "plain", {"k": 0, "dt": 0}),
        ],
        "rules": [
            start("smaller"),
            {"id": "smaller-rule", "trigger": "idle", "group": "smaller", "by": ["k", "dt"],
             "action": {"name": "submit", "label": "smaller-after", "params": "trigger"}},
        ],
    }  # fmt: skip


def _failing() -> Part:
    return {
        "jobs": [
            job("failing-code", "never", {"x": [1, 2, 3]}),
            job("failing-late", "late", {"x": [1, 2]}, duration="200ms"),
            job("failing-after", "plain", {"n": 0}),
        ],
        "rules": [
            start("failing-code"),
            start("failing-late"),
            {"id": "failing-end", "trigger": "idle", "group": "failing-code",
             "when": 'count["failing-code"].failed == 3',
             "action": {"name": "submit", "label": "failing-after",
                        "params": {"n": '{count["failing-code"].failed}'}}},
        ],
    }  # fmt: skip


def _best() -> Part:
    return {
        "jobs": [
            job("best-try", "spoilt", {"x": [1, 5, 3, 2]}),
            job("best-final", "plain", {"x": 0}),
        ],
        "metrics": [{"best": {"name": "best_top", "of": "best-try-fom", "mode": "max"}}],
        "rules": [
            start("best-try"),
            {"id": "best-end", "trigger": "idle", "group": "best-try",
             "action": {"name": "submit", "label": "best-final",
                        "params": {"x": "{best.best_top.params.x}"}}},
        ],
        "simulate": {"best-try": {"memo": {"fom": {"param": "x"}}}},
    }  # fmt: skip


def _lowest() -> Part:
    return {
        "jobs": [job("lowest", "fom", {"x": [4, 2, 3, 6]})],
        "metrics": [{"best": {"name": "lowest_top", "of": "lowest-fom", "mode": "min"}}],
        "rules": [start("lowest")],
        "simulate": {"lowest": {"memo": {"fom": {"param": "x"}}}},
    }


def _copies() -> Part:
    return {
        "jobs": [
            job("copies", "ill", {"x": {"range": [0, 5]}}),
            job("copies-after", "plain", {"x": 0}),
        ],
        "rules": [
            start("copies"),
            {"id": "copies-copy", "trigger": "job-running", "group": "copies", "every": 0.1,
             "when": 'not job.copied and count["copies"].success >= 3 and job.runtime > 0.3',
             "action": {"name": "copy", "repetitions": "unlimited"}},
            {"id": "copies-next", "trigger": "job-success", "group": "copies",
             "action": {"name": "submit", "label": "copies-after", "params": "trigger",
                        "repetitions": "unlimited"}},
        ],
    }  # fmt: skip


def _predictions() -> Part:
    return {
        "jobs": [
            job("predictions", "long", {"n": [1, 8, 2, 16, 4, 3, 12, 6]},
                predict=["n"], order="longest-first", **{"max-active": 2}),
        ],
        "rules": [start("predictions")],
        "simulate": {"predictions": {"duration": {"param": "n"}}},
    }  # fmt: skip


_CUSTOM = """
def custom_count(event, state, **kwargs):
    seen = state.setdefault("seen", [])
    seen.append(event["params"]["x"])
    if len(seen) % 2 == 0:
        return Action(name="submit", label="custom-more", params={"n": sum(seen)})
"""


def _custom() -> Part:
    return {
        "jobs": [
            job("custom", "plain", {"x": [1, 2, 3, 4]}),
            job("custom-more", "plain", {"n": 0}),
        ],
        "rules": [
            start("custom"),
            {"id": "custom-rule", "trigger": "job-success", "group": "custom",
             "action": {"name": "custom", "label": "custom_count", "repetitions": "unlimited"}},
        ],
        "custom": _CUSTOM,
    }  # fmt: skip


def _drift() -> Part:
    return {
        "jobs": [
            job("drift", "drifts", {"x": {"range": [0, 12]}}, **{"max-active": 1}),
            job("drift-alarm", "plain", {"n": 0}),
        ],
        "rules": [
            start("drift"),
            {"id": "drift-rule", "trigger": "drift", "name": "drift-error",
             "detector": {"page-hinkley": {"min-instances": 3, "threshold": 4, "mode": "up"}},
             "action": {"name": "submit", "label": "drift-alarm",
                        "params": {"n": "{job.params.x}"}}},
        ],
        "simulate": {"drift": {"memo": {"error": {"expression": "0.1 + 9 * (x >= 6)"}}}},
    }  # fmt: skip


def _packaged() -> Part:
    return {
        "jobs": [
            job("packaged", "replica", given=["replica", "temperature", "round"]),
            job("packaged-end", "plain", {"n": 0}),
        ],
        "use": [
            {"algorithm": "replica-exchange", "id": "packaged-swap", "group": "packaged",
             "temperatures": [280, 300, 320], "rounds": 3},
        ],
        "rules": [
            {"id": "packaged-rule", "trigger": "idle", "group": "packaged",
             "when": 'count["packaged"].success == 9',
             "action": {"name": "submit", "label": "packaged-end"}},
        ],
        "simulate": {"packaged": {"memo": {"energy": {
            "expression": "temperature / 50 - 2 * ((replica + round) % 3)"}}}},
    }  # fmt: skip


def _join() -> Part:
    sides: Part = {"group": ["join-left", "join-right"], "by": ["s"]}
    return {
        "jobs": [
            job("join-left", "once", {"s": ["a", "b"], "lane": [1, 2]}, retries=2),
            job("join-right", "spoilt", {"s": ["a", "b"], "x": [5]}),
            job("join-after", "plain", {"s": "none", "good": 0}),
        ],
        "rules": [
            start("join-left"),
            start("join-right"),
            {"id": "join-rule", "trigger": "idle", **sides,
             "when": "idle.jobs == 3 and idle.success >= 2",
             "action": {"name": "submit", "label": "join-after",
                        "params": {"s": "{job.params.s}", "good": "{idle.success}"}}},
        ],
    }  # fmt: skip


def _inputs() -> Part:
    group = job("inputs", "reads", {"x": [1, 2, 3, 4]},
                workdir="inputs-{x}", inputs=["input-{x}"])  # fmt: skip
    return {
        "jobs": [group],
        "rules": [start("inputs")],
        "simulate": {"inputs": {"memo": {"fom": {"param": "x"}}}},
    }


def _samples() -> Part:
    return {
        "jobs": [
            job("samples", "fom", {"x": "{number}"}, count=2),
            job("samples-end", "plain", {"n": 0}),
        ],
        "metrics": ["ci95"],
        "rules": [
            start("samples"),
            {"id": "samples-more", "trigger": "idle", "group": "samples",
             "when": 'n["samples-fom"] < 6 and ci95["samples-fom"] > 0',
             "action": {"name": "submit", "label": "samples", "repetitions": 9}},
            {"id": "samples-rule", "trigger": "idle", "group": "samples",
             "when": 'n["samples-fom"] >= 6',
             "action": {"name": "submit", "label": "samples-end",
                        "params": {"n": '{n["samples-fom"]}'}}},
        ],
        "simulate": {"samples": {"memo": {"fom": {"uniform": {"min": 0, "max": 1}}}}},
    }  # fmt: skip


def _output() -> Part:
    return {
        "jobs": [
            job("output", "plain", {"x": [1, 2, 3]}, output="out/{x}/{{id}}.txt"),
        ],
        "rules": [start("output")],
    }


def _members() -> Part:
    return {
        "members": [{"name": "pool", "count": 2}],
        "jobs": [
            job("members", "fom", {"x": {"range": [0, 8]}}, member="pool"),
            job("members-end", "plain", {"n": 0}),
        ],
        "rules": [
            start("members"),
            {"id": "members-rule", "trigger": "idle", "group": "members",
             "action": {"name": "submit", "label": "members-end"}},
        ],
        "simulate": {"members": {"memo": {"fom": {"param": "x"}}}},
    }  # fmt: skip


def _growing() -> Part:
    return {
        "members": [{"name": "grown", "count": {"min": 1, "max": 2}}],
        "jobs": [job("growing", "fom", {"x": {"range": [0, 8]}}, member="grown")],
        "rules": [
            # On `member-up` alone it would end before the member is up: only rules with `scope:
            # member` wait for that.
            start("growing"),
            {"id": "growing-more", "trigger": "job-success", "group": "growing",
             "action": {"name": "grow", "label": "grown"}},
            {"id": "growing-again", "trigger": "member-lost", "name": "grown",
             "action": {"name": "grow", "label": "grown", "repetitions": "unlimited"}},
        ],
        "simulate": {"growing": {"memo": {"fom": {"param": "x"}}}},
    }  # fmt: skip


def _tasks() -> Part:
    return {
        "members": [{"name": "workers", "count": {"min": 1, "max": 2}, "runs": "tasks"}],
        "jobs": [
            job("tasks", "fom", {"x": {"range": [0, 6]}}, member="workers"),
            job("tasks-end", "plain", {"n": 0}, member="workers"),
        ],
        "rules": [
            start("tasks"),
            {"id": "tasks-more", "trigger": "job-success", "group": "tasks",
             "action": {"name": "grow", "label": "workers"}},
            {"id": "tasks-rule", "trigger": "idle", "group": "tasks",
             "action": {"name": "submit", "label": "tasks-end"}},
            {"id": "tasks-again", "trigger": "member-lost", "name": "workers",
             "action": {"name": "grow", "label": "workers", "repetitions": "unlimited"}},
        ],
        "simulate": {"tasks": {"memo": {"fom": {"param": "x"}}}},
    }  # fmt: skip


_ON_FLUX = "members are jobs of a Flux instance, which the local queue is not"

FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature("sweep", "a sweep over two parameters", _sweep, {"sweep": 6}),
        Feature("course", "jobs that publish while they run", _course, {"course": 4}),
        Feature("sheet", "parameters from rows of a CSV file, as they are written", _sheet,
                {"sheet": 3}, files={"sheet.csv": SHEET}),
        Feature("search", "a search, and a job with its best point", _search,
                {"search-trial": 8, "search-final": 1}, trials={"search": 8}),
        Feature("retried", "a search by TPE, whose failed trials run again", _retried_search,
                {"retried-trial": 6}, trials={"retried": 6}),
        Feature("bounded", "a search with a constraint on outcomes", _bounded,
                {"bounded-trial": 8}, trials={"bounded": 8}),
        # How many of its trials go on to the end follows from the order of what they publish.
        Feature("stopping", "a search that stops trials early", _stopping, {},
                finished={"stopping-trial": 8}, trials={"stopping": 8}),
        Feature("conditional", "a search with a condition and a constraint", _conditional,
                {"conditional-trial": 8}, trials={"conditional": 8}),
        Feature("repeated", "a search whose trials are three jobs each", _repeated,
                {"repeated-trial": 12}, trials={"repeated": 4}),
        Feature("warm", "a search that knows trials of others", _warm,
                {"warm-trial": 6}, trials={"warm": 6}),
        Feature("population", "a population, whose members go on from checkpoints", _population,
                {"population": 8, "population-end": 1},
                best=Best("population", "population", "loss", "min")),
        Feature("retries", "jobs that fail and run again", _retries,
                {"retries-once": 3, "retries-never": 0}, finished={"retries-never": 2},
                failed={"retries-once": 3, "retries-never": 4},
                simulated={"retries-never": 2}),
        Feature("smaller", "retries that change a parameter", _smaller,
                {"smaller": 3, "smaller-after": 4}, finished={"smaller": 4},
                failed={"smaller": 7}, simulated={"smaller": 4}),
        Feature("failing", "jobs that fail, and that run out of time", _failing,
                {"failing-code": 0, "failing-late": 0, "failing-after": 1},
                finished={"failing-code": 3, "failing-late": 2},
                failed={"failing-code": 3, "failing-late": 2},
                simulated={"failing-code": 3, "failing-after": 0}),
        Feature("best", "the best job so far, beside a better one that fails", _best,
                {"best-try": 3, "best-final": 1}, finished={"best-try": 4}, failed={"best-try": 1},
                best=Best("best_top", "best-try", "fom", "max"),
                simulated={"best-try": 4}),
        Feature("lowest", "the job with the least value", _lowest, {"lowest": 4},
                best=Best("lowest_top", "lowest", "fom", "min")),
        Feature("copies", "a job that hangs gets a copy", _copies,
                {"copies": 5, "copies-after": 5}, at_once=2),
        Feature("predictions", "the longest jobs go first", _predictions, {"predictions": 8}),
        Feature("custom", "a function that counts in its state", _custom,
                {"custom": 4, "custom-more": 2}),
        Feature("drift", "a rule on a drift of what jobs publish", _drift,
                {"drift": 12, "drift-alarm": 1}),
        Feature("packaged", "replica exchange, as it is packaged", _packaged,
                {"packaged": 9, "packaged-end": 1}),
        Feature("join", "two groups joined by a parameter, of which one fails", _join,
                {"join-left": 4, "join-right": 0, "join-after": 2},
                finished={"join-right": 2}, failed={"join-left": 4, "join-right": 2},
                simulated={"join-right": 2}),
        Feature("inputs", "inputs in directories of jobs, of which one is missing", _inputs,
                {"inputs": 3}, finished={"inputs": 4}, failed={"inputs": 1},
                simulated={"inputs": 4},
                files={f"input-{number}": f"{number}\n" for number in (1, 2, 3)}),
        Feature("samples", "more jobs with fresh numbers, until a mean is known", _samples,
                {"samples": 6, "samples-end": 1}),
        Feature("output", "output in directories of the document", _output, {"output": 3}),
        Feature("members", "jobs shared out over two members", _members,
                {"members": 8, "members-end": 1}, alone=_ON_FLUX),
        Feature("growing", "a pool that grows", _growing, {"growing": 8}, alone=_ON_FLUX),
        Feature("tasks", "jobs as processes of workers, one more of which is asked for", _tasks,
                {"tasks": 6, "tasks-end": 1}, alone=_ON_FLUX),
    )
}  # fmt: skip


def build(features: Sequence[Feature], name: str) -> tuple[Part, dict[str, str]]:
    """Make a document of some features.

    Args:
        features: each once.
        name: of the ensemble.

    Returns:
        The document, and the files beside it by name.
    """
    document: Part = {"name": name, "seed": 7}
    files: dict[str, str] = {}
    for feature in features:
        part = feature.part()
        for key in _LISTS:
            if key in part:
                document.setdefault(key, []).extend(part[key])
        document.setdefault("simulate", {}).update(part.get("simulate", {}))
        if "custom" in part:
            document["custom"] = document.get("custom", "") + part["custom"]
        files.update(feature.files)
    return {key: value for key, value in document.items() if value or key == "seed"}, files
