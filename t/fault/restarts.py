"""Scenarios in which the whole instance ends, well or badly, and starts again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kills import patience
from scenario import Context
from scene import Scene, scene
from workloads import Workload, alarmed, stages

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

    The shutdown cancels them. No rule on failed or cancelled jobs may fire for that; those of
    a group with retries are tried again.
    """
    plain = alarmed(stages("plain", _JOBS, second=600))
    tried = _with_retries(stages("tried", _JOBS, second=600))
    for workload in (plain, tried):
        stage.load(workload)
    for workload in (plain, tried):
        if not stage.witness.wait_seen(workload.name, "start", 2 * _JOBS):
            raise RuntimeError(f"the second stage of {workload.name!r} does not run")
    stage.restart(options)
    # What is tried again would run for minutes.
    name = tried.name
    if not stage.witness.wait(lambda: stage.started_retries(name) >= _JOBS, 60):
        raise RuntimeError("the interrupted jobs are not tried again")
    stage.rpc("cancel", name=name, group="second")
    for workload in (plain, tried):
        stage.await_end(workload.name, patience(workload))
        stage.verify(workload, lossy=True)
        counts = stage.rpc("metrics", name=workload.name)["count"]["second"]
        wanted = _JOBS if workload is plain else 2 * _JOBS
        if counts["canceled"] != wanted:
            stage.row.problems.append(
                f"{workload.name}: {counts['canceled']} jobs of group 'second' count as "
                f"canceled, and {wanted} were"
            )


def _with_retries(workload: Workload) -> Workload:
    jobs = [
        {**group, "retries": 1} if group["name"] == "second" else group
        for group in workload.document["jobs"]
    ]
    return Workload(
        {**workload.document, "jobs": jobs}, replace(workload.expected, retries={"second": 1})
    )


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
