"""Searches on the local queue: `run --queue local` is killed, and goes on with --resume."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import told
from learning import EPOCHS, SEED, STOPS
from localrun import ENDS, LocalRun, drive, end, local_run, note, verified
from scenario import TICK, Context
from verify import Findings
from workloads import Expected, Submits, Workload

from flux_ensemble.queues.local.states import States

NAME = "search"

#: How many trials of a search there are at once, and in all, and for each kill in long runs.
_PARALLEL, _TRIALS, _TRIALS_A_KILL = 4, 40, 5

#: Trials of the search whose points depend on those before.
_LEARNT = 16

#: So much is put down of about two trials of each search.
_GROWS = 8000

#: Publishes a loss after each epoch, with no more than it needs: many of these run.
_TRIAL = """
import json, os, socket, sys, time
x = float(sys.argv[1])
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
    out.connect(os.environ["FLUX_ENSEMBLE_MEMO"])
    for epoch in map(int, sys.argv[2:]):
        memo = {"epoch": epoch, "loss": 37 * x % 1 + 1 / epoch}
        out.send(json.dumps({"id": int(os.environ["FLUX_JOB_ID"]), "memo": memo}).encode())
        time.sleep(0.05)
"""


def _workload(directory: Path, trials: int) -> Workload:
    """A search whose trials publish nothing, those that stop trials, and one that learns."""
    script = directory / "trial.py"
    script.write_text(_TRIAL)
    python = [sys.executable, "-I", "-S", str(script), "{x}"]
    variables = {"x": {"low": 0.001, "high": 1, "log": True}}
    given = {"variables": variables, "minimize": "loss", "trials": trials, "failures": trials + 1}
    many = {**given, "parallel": _PARALLEL}
    epochs = list(map(str, EPOCHS))
    searches: dict[str, tuple[dict[str, Any], list[str]]] = {
        "hpo": ({**many, "sampler": "random"}, ["true"]),
        **{id: ({**many, "sampler": "qmc", "stop": stop}, [*python, *epochs])
           for id, stop in STOPS.items()},
        "learn": ({**given, "sampler": "tpe", "trials": _LEARNT}, [*python, epochs[0]]),
    }  # fmt: skip
    document = {
        "name": NAME,
        # Kills follow each other closely.
        "limits": {"losses": 10_000},
        "seed": SEED,
        "search": [
            {"id": id, "group": f"trial-{id}", **given} for id, (given, _) in searches.items()
        ],
        "jobs": [
            *({"name": f"trial-{id}", "command": command}
              for id, (_, command) in searches.items()),
            {"name": "last", "command": "true"},
        ],
        "rules": [
            *({"id": f"begin-{id}", "trigger": "start", "action": {"name": "search", "label": id}}
              for id in searches),
            {"id": "last", "trigger": "search-done",
             "action": {"name": "submit", "label": "last", "repetitions": len(searches)}},
        ],
    }  # fmt: skip
    expected = Expected(
        {"last": Submits("last", len(searches), 1)},
        firings={f"begin-{id}": 1 for id in searches},
        searches={
            f"search:{id}": Submits(f"trial-{id}", int(given["trials"]), 1)
            for id, (given, _) in searches.items()
        },
    )
    return Workload(document, expected)


def local_search(context: Context) -> None:
    """kill -9 of `run --queue local` with searches, at random; it goes on with --resume."""
    row = context.row
    row.reached.update({"trials": 0, "pruned by asha": 0, "pruned by median": 0})
    while row.kills < context.kills and not row.problems:
        left = context.kills - row.kills
        trials = max(_TRIALS, _TRIALS_A_KILL * left if context.long else 0)
        with local_run(context, partial(_workload, trials=trials)) as run:
            if drive(context, run, grows=_GROWS):
                _verify(context, run)
    for what, times in row.reached.items():
        if not times and not row.problems:
            row.problems.append(f"never met: {what}")


def _verify(context: Context, run: LocalRun) -> None:
    jobs = run.jobs()
    findings = verified(run, jobs)
    searches = run.snapshot()["status"]["searches"]
    rows = States(run.files.parent).jobs(NAME)
    seen = run.jobs(in_order=True)
    problems, pruned = told.check(run.workload.document, searches, rows, run.entries(), seen)
    findings.problems += problems
    for policy, number in pruned.items():
        context.row.reached[f"pruned by {policy}"] += number
    context.row.reached["trials"] += sum(
        job.tag is not None and job.tag["rule"] != "last" for job in jobs
    )
    note(context, jobs, findings)


# -- many trials under way ------------------------------------------------------------------

#: Trials of `local_interrupted` at once and in all.
_UNDER_WAY, _IN_ALL = 24, 30


def _searching(directory: Path) -> Workload:
    """A search whose first failure would close it; its trials run until there is a file."""
    memo = str(Path(sys.executable).with_name("flux-ensemble"))
    script = (
        f"echo {{x}} >>{directory}/began; until test -e {directory}/go-on; do sleep 0.2; done; "
        f"echo {{x}} >>{directory}/done; exec {memo} memo fom={{x}}"
    )
    search = {
        "id": "hpo", "group": "trial", "variables": {"x": {"low": 0, "high": 1}},
        "maximize": "fom", "sampler": "random", "trials": _IN_ALL, "parallel": _UNDER_WAY,
        "failures": 1, "on-failure": "retry",
    }  # fmt: skip
    document = {
        "name": NAME,
        "limits": {"losses": 10_000},
        "seed": SEED,
        "search": [search],
        "jobs": [{"name": "trial", "command": ["sh", "-c", script]}],
        "rules": [{"trigger": "start", "action": {"name": "search", "label": "hpo"}}],
    }
    return Workload(document, Expected({}, firings={"start": 1}))


def local_interrupted(context: Context) -> None:
    """A run ends from outside in each way while 24 trials run; all are complete in the end."""
    row = context.row
    row.reached.update(dict.fromkeys(ENDS, 0))
    with local_run(context, _searching) as run:
        began, resume = run.directory / "began", False
        while row.kills < context.kills and not row.problems:
            process = run.start(resume=resume)
            resume = True
            _await_lines(began, _UNDER_WAY * (row.kills + 1), process)
            how = ENDS[row.kills % len(ENDS)]
            end(context, process, how)
            row.kills += 1
            row.reached[how] += 1
        (run.directory / "go-on").touch()
        process = run.start(resume=resume)
        code = process.wait()
        _verify_interrupted(context, run, code)


def _await_lines(path: Path, lines: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a file has so many lines."""
    deadline = time.monotonic() + 120
    while not path.exists() or len(path.read_text().splitlines()) < lines:
        if process.poll() is not None:
            raise RuntimeError(f"the run has ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"there are no {lines} lines in {path.name!r}")
        time.sleep(TICK)


def _verify_interrupted(context: Context, run: LocalRun, code: int) -> None:
    """All trials are complete, each point once, and nothing counts as failed."""
    row = context.row
    status = run.snapshot()["status"]
    (search,) = status["searches"]
    counts = status["groups"]["trial"]
    rows = list(States(run.files.parent).jobs(NAME))
    findings = Findings()
    findings.expect(0, code, "the exit code of the run")
    told = {state: search[state] for state in ("complete", "failed", "canceled")}
    findings.expect({"complete": _IN_ALL, "failed": 0, "canceled": 0}, told, "trials")
    ended = {outcome: counts[outcome] for outcome in ("success", "failed", "interrupted")}
    lost = _UNDER_WAY * row.kills
    findings.expect({"success": _IN_ALL, "failed": 0, "interrupted": lost}, ended, "outcomes")
    # By what the jobs did, and by the record.
    done = (run.directory / "done").read_text().split()
    points = [str(one["params"]["x"]) for one in rows if one["outcome"] == "success"]
    findings.expect(_IN_ALL, len(set(points)), "points that are complete")
    findings.expect(sorted(points), sorted(done), "points that were tried to their end")
    row.jobs += len(rows)
    row.problems += findings.problems
