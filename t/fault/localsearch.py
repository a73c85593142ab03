"""Searches on the local queue: `run --member local` is killed, and goes on with --resume."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import told
from learning import EPOCHS, SEED, STOPS
from localrun import LocalRun, drive, local_run, note, verified
from scenario import Context
from workloads import Expected, Submits, Workload

from flux_ensemble.members.local.states import States

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
    """kill -9 of `run --member local` with searches, at random; it goes on with --resume."""
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
