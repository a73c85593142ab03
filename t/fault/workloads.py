"""Ensembles whose result is known exactly, and what it is.

No rule here depends on which of several jobs is first: rules look at counts, at every job of
a group, or at time with a number of repetitions. So the same firings and the same jobs come of
it however often the service dies, and `Expected` says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Group, rule, firing, index of a job.
Tag = tuple[str, str, int, int]

#: What rules begin with that start a member in place of another: they fire as often as it takes.
REPLACED = "replaced-"


def mock(seconds: float, **more: Any) -> dict[str, Any]:
    """Attributes of a job that runs for so long without a process."""
    return {"system": {"exec": {"test": {"run_duration": f"{seconds:g}s", **more}}}}


@dataclass(frozen=True)
class Submits:
    """A rule fires so often, and each time submits so many jobs of a group.

    Args:
        first: the number of its first such firing; those before call the function that
            returns the submit action.
    """

    group: str
    firings: int
    jobs: int
    first: int = 0


@dataclass(frozen=True)
class Expected:
    """What comes of an ensemble.

    Args:
        submits: by rule, what submits jobs.
        retries: by group, how often each of its jobs is tried again; one group at most.
        firings: by rule, how often others fire.
        outcomes: by group, how many jobs end how; None where faults change that.
        calls: by word, how many lines the custom functions must write at least.
        patient: functions whose processes are killed are called again.
        searches: by the rule id of a search, the trials that it submits, each by a firing.
        copied: by the rule that has jobs run a second time beside themselves, their group, of
            which there is one submission. How many copies there are is left open.
        interrupted: by group, how often each of its jobs is interrupted and runs again, besides
            what the events of the jobs say.
    """

    submits: Mapping[str, Submits]
    retries: Mapping[str, int] = field(default_factory=dict)
    firings: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, Mapping[str, int]] | None = None
    calls: Mapping[str, int] = field(default_factory=dict)
    patient: bool = False
    searches: Mapping[str, Submits] = field(default_factory=dict)
    copied: Mapping[str, str] = field(default_factory=dict)
    interrupted: Mapping[str, int] = field(default_factory=dict)

    def tags(self) -> set[Tag]:
        """The tags of all jobs but those that are tried again."""
        return {
            (one.group, rule, firing, index)
            for rule, one in {**self.submits, **self.searches}.items()
            for firing in range(one.first, one.first + one.firings)
            for index in range(one.jobs)
        }

    def retried(self) -> tuple[Counter[str], Counter[tuple[str, int]]]:
        """By group how many jobs are tried again, and by group and index how often.

        Which of the jobs has which number among them depends on which failed first.
        """
        groups: Counter[str] = Counter()
        indices: Counter[tuple[str, int]] = Counter()
        for one in self.submits.values():
            times = self.retries.get(one.group, 0) + self.interrupted.get(one.group, 0)
            if times:
                groups[one.group] += times * one.firings * one.jobs
                for index in range(one.jobs):
                    indices[one.group, index] += times * one.firings
        return groups, indices

    def fires(self) -> dict[str, int]:
        """How often each rule fires."""
        submits = {rule: one.first + one.firings for rule, one in self.submits.items()}
        return submits | dict(self.firings)

    @property
    def jobs(self) -> int:
        """How many there are in all."""
        return len(self.tags()) + sum(self.retried()[0].values())


@dataclass(frozen=True)
class Workload:
    """A document and what is expected of it."""

    document: Mapping[str, Any]
    expected: Expected

    @property
    def name(self) -> str:
        """The ensemble's name."""
        return str(self.document["name"])


_CUSTOM = """
def note(word, rule):
    with open({calls!r}, "a") as file:
        file.write(f"{{word}} {{rule['id']}}\\n")

def reduce(rule, **kwargs):
    note("reduce", rule)
    return Action({{"name": "submit", "label": "tail"}})

def extend(rule, **kwargs):
    note("extend", rule)
    return Rule({{"id": "added", "trigger": "metric", "name": "count.echo.success",
                 "when": ">= 16", "action": {{"name": "submit", "label": "extra"}}}})

def look(rule, **kwargs):
    note("look", rule)

def tally(state, **kwargs):
    state["jobs"] = state.get("jobs", 0) + 1
    if state["jobs"] == 16:
        return Action({{"name": "submit", "label": "counted"}})

def gather(event, state, **kwargs):
    seen = state.setdefault("seen", [])
    seen.append(event["params"]["t"])
    if sorted(seen) == [1, 2]:
        return Action({{"name": "submit", "label": "gathered"}})
"""


def mixed(
    name: str, jobs: int, calls: Path, *, seconds: float = 0.3, patient: bool = False
) -> Workload:
    """Every kind of rule, action and outcome.

    Args:
        name: the ensemble's.
        jobs: how many are in flight at once, 40 at least.
        calls: the file that custom functions write to.
        seconds: how long those run.
        patient: what runs custom functions is killed too.
    """
    tenth = jobs // 10
    skip = max(1, jobs // 40)
    quick = mock(0.05)

    def submit(label: str, **more: Any) -> dict[str, Any]:
        return {"name": "submit", "label": label, **more}

    def every(label: str) -> dict[str, Any]:
        return submit(label, repetitions="unlimited")

    def group(name: str, count: int, attributes: Any = quick, **more: Any) -> dict[str, Any]:
        return {"name": name, "command": "true", "count": count, "attributes": attributes, **more}

    document: dict[str, Any] = {
        "name": name,
        "jobs": [
            group("long", 10, mock(3600)),
            group("wide", jobs, mock(seconds)),
            group("slow", 3, mock(3600), duration=0.5),
            group("flaky", 2, mock(0.05, mock_exception="run"), params={"t": [1, 2]},
                  retries={"times": 2, "on": ["failed"], "after": 0.05,
                           "with": {"urgency": "{job.urgency + 1}"}}),
            group("half", tenth),
            group("steps", 2),
            group("tick", 1, params={"side": ["left", "right"]}),
            group("pair", 1, params={"side": ["none"]}),
            group("cell", 1, params={"t": 0}),
            group("tail", 5),
            *(group(one, 1) for one in ("echo", "note", "gone", "spare", "counted", "gathered")),
            *(group(one, 3) for one in ("after", "last", "extra")),
        ],
        "rules": [
            {"id": "long", "trigger": "start", "action": submit("long")},
            {"id": "wide", "trigger": "start", "action": submit("wide")},
            {"id": "slow", "trigger": "start", "action": submit("slow")},
            {"id": "flaky", "trigger": "start", "action": submit("flaky")},
            {"id": "half", "trigger": "metric", "name": "count.wide.success", "when": jobs // 2,
             "action": submit("half")},
            {"id": "steps", "trigger": "metric", "name": "count.wide.success",
             "when": f">= {jobs // 4}",
             "action": submit("steps", repetitions=8, backoff=skip)},
            {"id": "echo", "trigger": "job-success", "group": "steps", "action": every("echo")},
            {"id": "tally", "trigger": "job-success", "group": "echo",
             "action": {"name": "custom", "label": "tally", "repetitions": "unlimited"}},
            {"id": "pair", "trigger": ["job-success", "job-fail"], "group": "tick",
             "when": "job.params.side in ('left', 'right') and job.returncode == 0",
             "action": {**every("pair"), "params": "trigger", "duration": "{60 + job.index}"}},
            {"id": "note", "trigger": "job-fail", "group": "flaky", "action": every("note")},
            {"id": "cells", "trigger": "idle", "group": "flaky", "by": ["t"],
             "action": submit("cell", params={"t": "{job.params.t}"})},
            {"id": "gather", "trigger": "idle", "group": "flaky", "by": ["t"],
             "action": {"name": "custom", "label": "gather"}},
            {"id": "spare", "trigger": "job-timeout", "group": "slow", "action": every("spare")},
            {"id": "tick", "trigger": "timer", "after": 0.2, "every": 0.4,
             "action": submit("tick", repetitions=5)},
            {"id": "reduce", "trigger": "metric", "name": "count.half.success", "when": tenth,
             "action": {"name": "custom", "label": "reduce"}},
            {"id": "look", "trigger": "job-success", "group": "tail",
             "action": {"name": "custom", "label": "look", "repetitions": 5}},
            {"id": "extend", "trigger": "metric", "name": "count.tail.success", "when": 5,
             "action": {"name": "custom", "label": "extend"}},
            {"id": "after", "trigger": "idle", "group": "wide", "action": submit("after")},
            {"id": "cancel", "trigger": "metric", "name": "count.tick.success", "when": 10,
             "action": {"name": "cancel", "label": "long"}},
            {"id": "gone", "trigger": "job-cancel", "group": "long", "action": every("gone")},
            {"id": "enable", "trigger": "metric", "name": "count.gone.success", "when": 10,
             "action": {"name": "enable", "label": "last"}},
            {"id": "last", "trigger": "metric", "name": "count.gone.success", "when": ">= 10",
             "enabled": False, "action": submit("last")},
        ],
        "custom": _CUSTOM.format(calls=str(calls)),
    }  # fmt: skip
    if patient:
        for rule in document["rules"]:
            if rule["action"]["name"] == "custom":
                rule["on-error"] = "retry"
    submits = {
        "long": Submits("long", 1, 10),
        "wide": Submits("wide", 1, jobs),
        "slow": Submits("slow", 1, 3),
        "flaky": Submits("flaky", 1, 4),
        "half": Submits("half", 1, tenth),
        "steps": Submits("steps", 8, 2),
        "echo": Submits("echo", 16, 1),
        "tally": Submits("counted", 1, 1, first=16),
        "pair": Submits("pair", 10, 1),
        "note": Submits("note", 12, 1),
        "cells": Submits("cell", 2, 1),
        "gather": Submits("gathered", 1, 1, first=2),
        "spare": Submits("spare", 3, 1),
        "tick": Submits("tick", 5, 2),
        "reduce": Submits("tail", 1, 5, first=1),
        "after": Submits("after", 1, 3),
        "gone": Submits("gone", 10, 1),
        "last": Submits("last", 1, 3),
        "added": Submits("extra", 1, 3),
    }
    outcomes = {one.group: {"success": one.firings * one.jobs} for one in submits.values()}
    outcomes |= {"long": {"canceled": 10}, "slow": {"timeout": 3}, "flaky": {"failed": 12}}
    return Workload(
        document,
        Expected(
            submits,
            retries={"flaky": 2},
            firings={"look": 5, "extend": 1, "cancel": 1, "enable": 1},
            outcomes=outcomes,
            calls={"reduce": 1, "look": 5, "extend": 1},
            patient=patient,
        ),
    )


def burst(name: str, jobs: int, *, firings: int = 1, seconds: float = 0.1) -> Workload:
    """One group that is submitted at the start, and one job when it is done.

    Args:
        name: of the ensemble.
        jobs: how many the group has in all.
        firings: how many rules submit them. A service that goes on with a firing begins with one
            job of it, and the others follow when it is there.
        seconds: how long a job runs.
    """
    each = jobs // firings
    starts = [f"many-{number}" for number in range(firings)]
    document = {
        "name": name,
        "jobs": [
            {"name": "many", "command": "true", "count": each, "attributes": mock(seconds)},
            {"name": "last", "command": "true", "attributes": mock(0.01)},
        ],
        "rules": [
            *({"id": start, "trigger": "start", "action": {"name": "submit", "label": "many"}}
              for start in starts),
            {"id": "last", "trigger": "idle", "group": "many",
             "action": {"name": "submit", "label": "last"}},
        ],
    }  # fmt: skip
    submits = {start: Submits("many", 1, each) for start in starts}
    outcomes = {"many": {"success": each * firings}, "last": {"success": 1}}
    expected = Expected({**submits, "last": Submits("last", 1, 1)}, outcomes=outcomes)
    return Workload(document, expected)


def fed(name: str, jobs: int, active: int) -> Workload:
    """One group of which only some jobs are in the queue at once, so that it is fed all the time.

    Args:
        name: of the ensemble.
        jobs: how many the group has in all.
        active: how many are in the queue at once.
    """
    workload = burst(name, jobs, seconds=0.02)
    workload.document["jobs"][0]["max-active"] = active
    return workload


def pulses(name: str, every: float, *, times: int = 12) -> Workload:
    """A few jobs now and then, and times without any in between.

    Args:
        name: of the ensemble.
        every: seconds between two pulses.
        times: how many pulses there are.
    """
    document = {
        "name": name,
        "jobs": [
            {"name": "pulse", "command": "true", "count": 2, "attributes": mock(0.01)},
            {"name": "echo", "command": "true", "attributes": mock(0.01)},
        ],
        "rules": [
            {"id": "pulse", "trigger": "timer", "after": every, "every": every,
             "action": {"name": "submit", "label": "pulse", "repetitions": times}},
            {"id": "echo", "trigger": "job-clean", "group": "pulse",
             "action": {"name": "submit", "label": "echo", "repetitions": "unlimited"}},
        ],
    }  # fmt: skip
    submits = {"pulse": Submits("pulse", times, 2), "echo": Submits("echo", 2 * times, 1)}
    outcomes = {"pulse": {"success": 2 * times}, "echo": {"success": 2 * times}}
    return Workload(document, Expected(submits, outcomes=outcomes))


def stages(
    name: str,
    jobs: int,
    *,
    seconds: float = 0.2,
    second: float = 0.2,
    pause: float = 0.0,
    lossy: bool = True,
    durability: str | None = None,
) -> Workload:
    """Two stages, the second when the first has finished, however its jobs ended.

    Args:
        name: the ensemble's.
        jobs: in each stage.
        seconds: how long those of the first stage run.
        second: how long those of the second stage run.
        pause: seconds before a third stage of half as many jobs.
        lossy: jobs may be lost or cancelled by the fault, so outcomes are left open; a rule
            on failures, cancelled jobs or retries must not fire because of them.
        durability: of the document.
    """
    rules: list[dict[str, Any]] = [
        {"id": "first", "trigger": "start", "action": {"name": "submit", "label": "first"}},
        {"id": "second", "trigger": "metric", "name": "count.first.finished", "when": jobs,
         "action": {"name": "submit", "label": "second"}},
        {"id": "echo", "trigger": "metric", "name": "count.second.finished", "when": f"<= {jobs}",
         "action": {"name": "submit", "label": "echo", "repetitions": jobs}},
    ]  # fmt: skip
    submits = {
        "first": Submits("first", 1, jobs),
        "second": Submits("second", 1, jobs),
        "echo": Submits("echo", jobs, 1),
    }
    groups = [("first", jobs, seconds), ("second", jobs, second), ("echo", 1, 0.01)]
    if pause:
        rules.append(
            {"id": "third", "trigger": "timer", "after": pause,
             "action": {"name": "submit", "label": "third"}}
        )  # fmt: skip
        submits["third"] = Submits("third", 1, jobs // 2)
        groups.append(("third", jobs // 2, 0.05))
    document: dict[str, Any] = {
        "name": name,
        "jobs": [
            {"name": group, "command": "true", "count": count, "attributes": mock(seconds)}
            for group, count, seconds in groups
        ],
        "rules": rules,
    }
    if durability is not None:
        document["durability"] = durability
    outcomes = {one.group: {"success": one.firings * one.jobs} for one in submits.values()}
    return Workload(document, Expected(submits, outcomes=None if lossy else outcomes))


def alarmed(workload: Workload) -> Workload:
    """The same, with a rule on failed and one on cancelled jobs, of which none may fire."""
    rules = [
        {"id": f"on-{trigger}", "trigger": f"job-{trigger}",
         "action": {"name": "submit", "label": "alarm", "repetitions": "unlimited"}}
        for trigger in ("fail", "cancel")
    ]  # fmt: skip
    document = {
        **workload.document,
        "jobs": [*workload.document["jobs"], {"name": "alarm", "command": "true"}],
        "rules": [*workload.document["rules"], *rules],
    }
    return Workload(document, workload.expected)


def shared(
    name: str,
    jobs: int,
    *,
    members: int = 2,
    seconds: float = 1.0,
    command: str | None = None,
    retries: Mapping[str, Any] | None = None,
    pool: Mapping[str, Any] | None = None,
    others: Sequence[Mapping[str, Any]] = (),
) -> Workload:
    """A sweep over members, of which others are started in place of those that end.

    Args:
        name: of the ensemble.
        jobs: of the sweep; another one follows on each of them, and one on all of these.
        members: how many there are at first.
        seconds: how long a job of the sweep runs.
        command: that its jobs run instead.
        retries: of all jobs, which run the command then and may fail; else rules see to it that
            none does.
        pool: more of the entry of the members.
        others: more such entries.
    """
    sweep: dict[str, Any] = {"command": command or "true {s}"}
    if command is None:
        sweep["attributes"] = mock(seconds)
    quick: dict[str, Any] = {"command": "true", "attributes": mock(0.01)}
    if retries is not None:
        sweep["retries"] = retries
        quick = {"command": command, "retries": retries}
    count = {"min": members, "max": members + 1}
    document = {
        "name": name,
        # Members are lost again and again.
        "limits": {"losses": 1000},
        "members": [{"name": "pool", "count": count, **(pool or {})}, *others],
        "jobs": [
            {"name": "sim", **sweep, "params": {"s": {"range": [0, jobs]}}},
            {"name": "echo", **quick},
            {"name": "last", **quick},
        ],
        "rules": [
            {"id": "sim", "trigger": "start", "action": {"name": "submit", "label": "sim"}},
            {"id": "echo", "trigger": "job-success", "group": "sim",
             "action": {"name": "submit", "label": "echo", "repetitions": "unlimited"}},
            {"id": "last", "trigger": "idle", "group": "echo",
             "when": f"count.echo.success == {jobs}",
             "action": {"name": "submit", "label": "last", "repetitions": "unlimited"}},
            *({"id": f"{REPLACED}{trigger}", "trigger": f"member-{trigger}",
               "action": {"name": "grow", "label": "pool", "repetitions": "unlimited"}}
              for trigger in ("lost", "draining")),
        ],
    }  # fmt: skip
    submits = {
        "sim": Submits("sim", 1, jobs),
        "echo": Submits("echo", jobs, 1),
        "last": Submits("last", 1, 1),
    }
    workload = Workload(document, Expected(submits))
    return alarmed(workload) if retries is None else workload
