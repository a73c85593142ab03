"""Kinds of searches with 24 jobs under way: whatever is killed then, they come to the same.

What a trial publishes follows from its parameters. So a run that nothing disturbs says what each
search, and a population, has to come to: the parameters of each trial, the best one, and which
trials are stopped that are compared with no other.

    control ──► Outcome ◄── must be equal ──► Outcome ◄── a run that is killed
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import told
from learning import SEED
from localrun import ENDS, LocalRun, end, local_run
from scenario import TICK, Context
from workloads import Expected, Workload

from flux_ensemble.queues.local.states import States

NAME = "kinds"

#: The file in the directory of the jobs that has them go on.
GO_ON = "go-on"

#: Jobs under way.
UNDER_WAY = 24

_RANGE = {"low": 0.0, "high": 1.0}

#: The searches by id. At first four jobs of each of the first three are under way, and three of
#: each of the others.
KINDS: Mapping[str, Mapping[str, Any]] = {
    "conditional": {
        "variables": {
            "x": _RANGE,
            "kind": ["p", "q"],
            "deep": {**_RANGE, "when": "kind == 'p'"},
            "deeper": {"choices": [1, None, "a"], "when": "deep > 0.5"},
        },
        "sampler": "random", "trials": 8, "parallel": 4,
    },
    "where": {
        "variables": {"x": _RANGE, "y": _RANGE}, "where": ["x + y <= 1", "x < 0.8"],
        "points": [{"x": 0.25, "y": 0.5}, {"x": 0.5, "y": 0.25}],
        "sampler": "random", "trials": 8, "parallel": 4,
    },
    "repeats": {
        "variables": {"x": [0.125, 0.25, 0.375, 0.5, 0.625]}, "repeats": 2, "aggregate": "median",
        # What is told is not tried again.
        "warm-start": {"trials": [{"x": 0.375, "loss": 0.5}]},
        "sampler": "grid", "trials": 4, "parallel": 2,
    },
    **{
        policy: {
            "variables": {"x": _RANGE}, "stop": {"policy": policy, "step": "epoch", **stop},
            "sampler": "qmc", "trials": 8, "parallel": 3,
        }
        for policy, stop in {
            "hyperband": {"from": 2, "to": 4, "eta": 2},
            "percentile": {"from": 2, "trials": 2, "percentile": 40},
            "patience": {"patience": 1},
        }.items()
    },
}  # fmt: skip

#: Members and rounds of the population.
_MEMBERS, _ROUNDS = 3, 2

#: Which of these trials are stopped follows from each alone.
ALONE = "patience"

#: Publishes the loss of the first epoch, waits until it may go on, and publishes the others. It
#: takes its time, so that it can be stopped.
_TRIAL = """
import json, os, socket, subprocess, sys, time
directory, group = sys.argv[1:]
params = json.loads(os.environ["FLUX_ENSEMBLE_PARAMS"])
floats = [value for _, value in sorted(params.items()) if type(value) is float]
base = sum(37 * (place + 1) * value for place, value in enumerate(floats)) % 1
id = os.environ["FLUX_JOB_ID"]

def publish(epoch):
    slope = epoch if base < 0.5 else -epoch
    loss = base + (slope / 10 if group == "patience" else 1 / epoch)
    if "FLUX_ENSEMBLE_MEMO" in os.environ:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.connect(os.environ["FLUX_ENSEMBLE_MEMO"])
            memo = {"epoch": epoch, "loss": loss}
            out.send(json.dumps({"id": int(id), "memo": memo}).encode())
    else:
        subprocess.run(["flux", "job", "memo", id, f"epoch={epoch}", f"loss={loss!r}"])

def note(file):
    with open(f"{directory}/{file}", "a") as out:
        out.write(json.dumps([group, params]) + "\\n")

publish(1)
note("began")
while not os.path.exists(f"{directory}/go-on"):
    time.sleep(0.2)
for epoch in (2, 3, 4):
    publish(epoch)
    time.sleep(0.4)
note("done")
"""


def kinds(directory: Path, **more: Any) -> Workload:
    """All of `KINDS` and a population in one ensemble; its jobs run until there is `GO_ON`.

    The first failure of a trial would close its search.

    Args:
        directory: where jobs look for the word to go on, and note in `began` and `done` what they
            do.
        more: keys of the document; rules are added to its own.
    """
    script = directory / "trial.py"
    script.write_text(_TRIAL)

    def group(name: str, **keys: Any) -> dict[str, Any]:
        return {
            "name": name,
            "command": [sys.executable, "-I", "-S", str(script), str(directory), name],
            **keys,
        }

    rules: Sequence[Mapping[str, Any]] = more.pop("rules", ())
    document = {
        "name": NAME,
        # Kills follow each other closely.
        "limits": {"losses": 10_000},
        "seed": SEED,
        "search": [
            {"id": id, "group": id, "minimize": "loss", "failures": 1, **given}
            for id, given in KINDS.items()
        ],
        "jobs": [*map(group, KINDS), group("population")],
        "use": [
            {"algorithm": "population", "group": "population", "variables": {"x": _RANGE},
             "minimize": "loss", "population": _MEMBERS, "rounds": _ROUNDS},
        ],
        "rules": [
            *({"id": f"begin-{id}", "trigger": "start", "action": {"name": "search", "label": id}}
              for id in KINDS),
            *rules,
        ],
        **more,
    }  # fmt: skip
    return Workload(document, Expected({}))


# -- what comes of it -----------------------------------------------------------------------

#: The number of a trial and of its job, or the member and the round of a population.
Key = tuple[str, int, int]


@dataclass(frozen=True)
class Outcome:
    """What an ensemble of `kinds` came to.

    Attributes:
        state: its own.
        searches: by id, the state, the reason, and the trials that have failed or were cancelled.
        params: by group and number, the parameters of each job, of all of its attempts.
        ends: how often each has ended.
        alone: the trials that were to be stopped, of the search where that depends on no other. One
            may have come to its end before.
        best: by id, the best trial where no trial is stopped, its parameters and its value.
        done: the jobs that came to their end, by what they noted.
    """

    state: str
    searches: Mapping[str, Any]
    params: Mapping[Key, Sequence[str]]
    ends: Mapping[Key, int]
    alone: frozenset[int]
    best: Mapping[str, Any]
    done: frozenset[str]

    def problems(self, control: Outcome) -> list[str]:
        """Return what is other than in a run that nothing disturbed."""
        found = []
        for what in ("state", "searches", "alone", "best"):
            mine, other = getattr(self, what), getattr(control, what)
            if mine != other:
                found.append(f"{what}: expected {other!r}, found {mine!r}")
        for key in sorted(control.params.keys() | self.params.keys()):
            mine, other = (of.params.get(key, ()) for of in (self, control))
            if mine != other:
                found.append(f"parameters of {key}: expected {other}, found {mine}")
            if self.ends.get(key, 0) != 1:
                found.append(f"{key} has ended {self.ends.get(key, 0)} times")
        # Which trials are stopped may differ, and with that which jobs came to their end.
        mine, other = (
            {one for one in of.done if json.loads(one)[0] not in told_by_others()}
            for of in (self, control)
        )
        if mine != other:
            found.append(f"jobs that came to their end: {sorted(mine ^ other)}")
        return found


def told_by_others() -> tuple[str, ...]:
    """The searches whose trials are stopped by what others publish."""
    return tuple(id for id, given in KINDS.items() if "stop" in given)


def outcome(
    directory: Path,
    status: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    entries: Iterable[Mapping[str, Any]],
) -> Outcome:
    """Return what an ensemble came to.

    Args:
        directory: of its jobs.
        status: of the ensemble.
        rows: its jobs by its record, with the attempts that were interrupted.
        entries: of its log.
    """
    params: dict[Key, set[str]] = {}
    ends: Counter[Key] = Counter()
    stops = [one["context"] for one in entries if one["name"] == "pruned"]
    alone = frozenset(one["trial"] for one in stops if one["search"] == ALONE)
    for row in rows:
        of, number = row["params"], row.get("trial")
        key = (
            (row["group"], int(of["round"]), int(of["member"]))
            if number is None
            else (row["group"], int(number), int(row["index"]))
        )
        params.setdefault(key, set()).add(json.dumps(of, sort_keys=True))
        if row["outcome"] != "interrupted":
            ends[key] += 1
    searches, best = {}, {}
    for one in status["searches"]:
        ended = one["complete"] + one.get("pruned", 0)
        searches[one["id"]] = (
            one["state"], one["reason"], one["failed"], one["canceled"], ended, one["trials"],
        )  # fmt: skip
        if "pruned" not in one:
            # The job of a trial has another id where it ran again.
            best[one["id"]] = [{**trial, "job": None} for trial in one["best"][:1]]
    notes = (directory / "done").read_text().splitlines()
    return Outcome(
        status["state"], searches, {key: sorted(of) for key, of in params.items()}, ends,
        alone, best, frozenset(notes),
    )  # fmt: skip


def control(context: Context) -> Outcome:
    """Return what they come to on the local queue when nothing is killed."""
    with local_run(context, kinds) as run:
        (run.directory / GO_ON).touch()
        code = run.start(resume=False).wait()
        if code:
            raise RuntimeError(f"the run that nothing disturbs exits with {code}")
        return _local_outcome(run)


def _local_outcome(run: LocalRun) -> Outcome:
    rows = States(run.files.parent).jobs(NAME)
    return outcome(run.directory, run.snapshot()["status"], list(rows), run.entries())


def await_held(directory: Path, attempts: int, alive: Any = None) -> None:
    """Wait until so many attempts have published what they do before they wait.

    Args:
        directory: of the jobs.
        attempts: how many of all that were begun.
        alive: a process that must not end meanwhile.
    """
    deadline = time.monotonic() + 240
    began = directory / "began"
    while not began.exists() or len(began.read_text().splitlines()) < attempts:
        if isinstance(alive, subprocess.Popen) and alive.poll() is not None:
            raise RuntimeError(f"the run has ended with {alive.returncode}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{attempts} jobs do not come to wait")
        time.sleep(5 * TICK)


# -- on the local queue ---------------------------------------------------------------------


def local_search_kinds(context: Context) -> None:
    """A local run ends from outside in each way with 24 jobs of kinds of searches under way."""
    row = context.row
    row.reached.update({**dict.fromkeys(ENDS, 0), "stopped early": 0})
    expected = control(context)
    with local_run(context, kinds) as run:
        resume = False
        while row.kills < context.kills and not row.problems:
            process = run.start(resume=resume)
            resume = True
            await_held(run.directory, UNDER_WAY * (row.kills + 1), process)
            how = ENDS[row.kills % len(ENDS)]
            end(context, process, how)
            row.kills += 1
            row.reached[how] += 1
        (run.directory / GO_ON).touch()
        code = run.start(resume=resume).wait()
        if code:
            row.problems.append(f"the run exits with {code}")
        row.problems += _local_outcome(run).problems(expected)
        rows, jobs = list(States(run.files.parent).jobs(NAME)), run.jobs(in_order=True)
        problems, stopped = told.check_stops(run.workload.document, rows, run.entries(), jobs)
        row.problems += problems
        row.reached["stopped early"] = stopped.total()
        if not stopped:
            row.problems.append("no trial was stopped early")
        lost = sum(one["outcome"] == "interrupted" for one in rows)
        if lost != UNDER_WAY * row.kills:
            row.problems.append(f"{lost} attempts were interrupted by {row.kills} kills")
        row.jobs += len(rows)
