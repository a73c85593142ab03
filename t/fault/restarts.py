"""Scenarios in which the whole instance ends, well or badly, and starts again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kills import patience
from scenario import TICK, Context
from scene import Scene, scene
from search_trials import PARALLEL, check_trials, held, release
from workloads import Expected, Workload, alarmed, stages

_JOBS = 40


def clean_restart(context: Context) -> None:
    """The instance is shut down with jobs running, and starts again with its statedir."""
    with scene(context, statedir=True) as stage:
        _interrupt(stage, ())


def dump_restore(context: Context) -> None:
    """The same, with a dump at the end and a restore at the start instead of a statedir."""
    with scene(context, start_options=("-Scontent.dump=dump.tar",)) as stage:
        _interrupt(stage, ("-Scontent.restore=dump.tar",))


def _interrupt(stage: Scene, options: Sequence[str]) -> None:
    """Shut the instance down while jobs of two ensembles run, and start it again.

    The shutdown cancels them. No rule on failed or cancelled jobs may fire for that; they run
    again, with retries and without.
    """
    plain = _run_again(alarmed(stages("plain", _JOBS, second=600)))
    tried = _run_again(stages("tried", _JOBS, second=600), retries=1)
    for workload in (plain, tried):
        stage.load(workload)
    for workload in (plain, tried):
        if not stage.witness.wait_seen(workload.name, "start", 2 * _JOBS):
            raise RuntimeError(f"the second stage of {workload.name!r} does not run")
    stage.restart(options)
    # What runs again would do so for minutes.
    for name in (plain.name, tried.name):
        again = partial(stage.started_retries, name)
        if not stage.witness.wait(lambda again=again: again() >= _JOBS, 60):  # type: ignore[misc]
            raise RuntimeError("the interrupted jobs do not run again")
        if name == plain.name:
            stage.rpc("rules", name=name, id="on-cancel", enabled=False)
        stage.rpc("cancel", name=name, group="second")
    for workload in (plain, tried):
        stage.await_end(workload.name, patience(workload))
        stage.verify(workload, lossy=True)
        counts = stage.rpc("metrics", name=workload.name)["count"]["second"]
        for outcome in ("canceled", "interrupted"):
            if counts[outcome] != _JOBS:
                stage.row.problems.append(
                    f"{workload.name}: {counts[outcome]} jobs of group 'second' count as "
                    f"{outcome}, and {_JOBS} were"
                )


def _run_again(workload: Workload, **more: Any) -> Workload:
    """The same, with `more` keys of the second group, all of whose jobs run twice."""
    jobs = [
        {**group, **more} if group["name"] == "second" else group
        for group in workload.document["jobs"]
    ]
    return Workload(
        {**workload.document, "jobs": jobs}, replace(workload.expected, interrupted={"second": 1})
    )


#: Crashes of a long run.
_CRASHES = 5


def interrupted(context: Context) -> None:
    """kill -9 of the broker while 24 trials of a search run; all are complete in the end."""
    config = '[kvs]\ncheckpoint-period = "200ms"\n'
    for _ in range(_CRASHES if context.long else 1):
        with scene(context, statedir=True, config=config) as stage:
            workload = held(stage.directory)
            name = workload.name
            stage.load(workload)
            if not stage.witness.wait_seen(name, "start", PARALLEL):
                raise RuntimeError("the trials do not run")
            stage.await_checkpoint()
            stage.restart((), crash=True)
            # What the crash left behind goes on, and counts for nothing.
            release(stage.directory)
            # One whose start was not in the last checkpoint starts as if nothing had happened.
            check_trials(stage, name, stage.await_end(name, 120), range(1, PARALLEL + 1))


#: Members, of two cores, and the jobs that they share; as many jobs run at the end of the instance.
_MEMBERS, _SHARED = 2, 10


def members_restart(context: Context) -> None:
    """The instance ends with two members, well and badly; its pool is filled again, unasked."""
    config = '[kvs]\ncheckpoint-period = "200ms"\n'
    # To end in order takes members half a minute.
    for crash in (False, True) if context.long else (True,):
        with scene(context, statedir=True, config=config, brokers=_MEMBERS) as stage:
            script = f"until test -e {stage.directory}/go-on; do sleep 0.2; done"
            document = {
                "name": "pool",
                "members": [{"name": "pool", "count": _MEMBERS}],
                "jobs": [{"name": "sim", "command": ["sh", "-c", script], "count": _SHARED}],
                "rules": [{"trigger": "start", "action": {"name": "submit", "label": "sim"}}],
            }
            stage.load(Workload(document, Expected({})))
            deadline = time.monotonic() + 240
            while not _running(stage, 2 * _MEMBERS):
                if time.monotonic() > deadline:
                    raise RuntimeError("the jobs of the members do not run")
                time.sleep(TICK)
            stage.await_checkpoint()
            stage.restart((), crash=crash)
            (stage.directory / "go-on").touch()
            status = stage.await_end("pool", 240)
            counts, pool = status["groups"]["sim"], status["pools"]["pool"]
            stage.row.jobs += counts["attempts"]
            wanted = {"success": _SHARED, "failed": 0, "canceled": 0, "lost": _MEMBERS}
            found = {**counts, "lost": pool["lost"]}
            starts = sum(entry["name"] == "member-start" for entry in stage.entries("pool"))
            found["starts"], wanted["starts"] = starts, 2 * _MEMBERS
            interrupted = [counts["interrupted"]] if counts["interrupted"] > 2 * _SHARED else []
            stage.note(
                [
                    *(f"{what} is {found[what]}, and {number} was to be" for what, number in
                      wanted.items() if found[what] != number),
                    *(f"{number} attempts were interrupted" for number in interrupted),
                ]
            )  # fmt: skip


def _running(stage: Scene, jobs: int) -> bool:
    """Whether so many jobs run on members."""
    status = stage.status("pool")
    return status is not None and status["groups"]["sim"]["running"] >= jobs


def broker_crash(context: Context) -> None:
    """kill -9 of the broker, with kvs.checkpoint-period, while jobs run and nothing else does.

    The log and the jobs are those of the last checkpoint. Between the allocation of a job
    and its record a crash blocks the scheduler of Flux 0.88, so all jobs run at the kill.
    """
    config = '[kvs]\ncheckpoint-period = "200ms"\n'
    with scene(context, statedir=True, config=config) as stage:
        workload = stages("stages", _JOBS, second=8)
        stage.load(workload)
        if not stage.witness.wait_seen("stages", "start", 2 * _JOBS):
            raise RuntimeError("the second stage does not run")
        stage.await_checkpoint()
        stage.restart((), crash=True)
        stage.await_end(workload.name, patience(workload))
        stage.verify(workload, lossy=True)


def broker_crash_strict(context: Context) -> None:
    """kill -9 of the broker with `durability: strict` and no checkpoints.

    In mid-burst, when all may be lost, the ensemble too; and when the jobs of the burst have
    been released, when all must be there. The queue is stopped until then, for the reason
    that `broker_crash` gives.
    """
    for released in (False, True):
        with scene(context, statedir=True) as stage:
            workload = stages("stages", 80, lossy=False, durability="strict")
            stage.instance.flux("queue", "stop")
            stage.load(workload)
            if released:
                stage.await_entry("stages", "outcome")
            else:
                stage.witness.wait_seen("stages", "submit", context.random.randrange(10, 70))
            stage.restart((), crash=True)
            try:
                stage.status("stages")
            except FileNotFoundError:
                if released:
                    raise
                stage.load(workload)
            stage.instance.flux("queue", "start")
            stage.await_end(workload.name, patience(workload))
            stage.verify(workload)
