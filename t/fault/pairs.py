"""Scenarios in which two things die, the second before what followed from the first is over."""

from __future__ import annotations

import time

from kills import patience
from matrix import await_quiet, load_job_manager
from scenario import Context
from scene import Scene, scene
from workloads import burst, mixed, stages


def _moment(context: Context, most: float = 0.4) -> None:
    """A moment in which the service begins, recovers, or is ready."""
    time.sleep(context.random.uniform(0, most))


def service_and_job_manager(context: Context) -> None:
    """The service dies while job-manager is gone, again before it is back, and as it recovers."""
    with scene(context) as stage:
        number = 0
        while context.row.kills < context.kills and context.row.ok:
            workload = stages(f"stages-{number}", 60, lossy=False)
            number += 1
            name = workload.name
            stage.instance.flux("queue", "stop")
            stage.load(workload)
            stage.witness.wait_seen(name, "validate", 60)
            await_quiet(stage, name)
            stage.instance.flux("module", "remove", "--force", "job-manager")
            stage.kill()
            _moment(context)
            stage.kill()
            load_job_manager(stage)
            _moment(context)
            stage.kill()
            stage.service.await_answer(stage.handle)
            stage.instance.flux("queue", "start")
            stage.await_end(name, patience(workload, 3))
            stage.verify(workload)


def service_and_ingest(context: Context) -> None:
    """The service dies in mid-burst, and job-ingest goes away while it recovers."""
    with scene(context) as stage:
        number = 0
        while context.row.kills < context.kills and context.row.ok:
            workload = burst(f"burst-{number}", 400, firings=20)
            number += 1
            name = workload.name
            stage.load(workload)
            stage.witness.wait_seen(name, "submit", context.random.randrange(20, 300), 20)
            stage.kill()
            _moment(context)
            stage.instance.flux("module", "reload", "job-ingest")
            _moment(context)
            stage.kill()
            stage.service.await_answer(stage.handle)
            stage.await_end(name, patience(workload, 2))
            stage.verify(workload)


def service_and_keeper(context: Context) -> None:
    """The service dies, and the keeper while that recovers; another keeper is loaded."""
    with scene(context, kind="kept") as stage:
        workload = mixed("mixed", context.in_flight, stage.calls)
        stage.load(workload)
        made = 0
        while context.row.kills < context.kills:
            _moment(context, 1.0)
            stage.kill(restart=False)
            _moment(context)
            _kill_keeper(context, stage)
            stage.start_service()
            made += 1
        stage.await_end(workload.name, patience(workload, made))
        stage.verify(workload)


def _kill_keeper(context: Context, stage: Scene) -> None:
    """Kill the keeper; what it has started ends at once."""
    left = stage.kept.kill(stage.instance)
    if left:
        context.row.problems.append(f"{left} services outlived the keeper")
