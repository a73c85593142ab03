"""Scenarios with as many kills as there is time for: most of them need no new instance.

One instance has ensembles one after the other, each of which is killed again and again. What is
over is unloaded and purged, since a service that begins reads all that there is; only the newest
job stays, by which the service knows that none was purged that it has not seen.
"""

from __future__ import annotations

import time

from kills import patience
from scenario import FINAL, Context
from scene import Scene, scene
from workloads import Workload, mixed, pulses

#: Kills in one instance.
_KILLS = 400

#: Seconds without jobs after which the journal is closed, so that it is closed and opened often.
_REST = "--rest=0.02"


def rounds(context: Context) -> None:
    """kill -9 of the service, and of workers, at random times, many thousands of times."""
    row = context.row
    row.reached.update({"worker": 0, "ensembles": 0})
    while row.kills < context.kills and row.ok:
        snapshots = ("--snapshot-events=150",) if context.random.random() < 0.5 else ()
        with scene(context, options=(_REST, *snapshots)) as stage:
            most = min(context.kills, row.kills + _KILLS)
            while row.kills < min(most, context.kills) and row.ok:
                _round(context, stage, most)


def _round(context: Context, stage: Scene, most: int) -> None:
    """One or two ensembles, until they have ended, or all kills are made."""
    row, random = context.row, context.random
    number = row.reached["ensembles"]
    calls = {f"mixed-{number}": stage.directory / f"calls-{number}"}
    (name,) = calls
    workloads = [mixed(name, random.choice((40, 100, 200)), calls[name], patient=True)]
    if random.random() < 0.5:
        workloads.append(pulses(f"pulses-{number}", random.choice((0.1, 0.3))))
    for workload in workloads:
        stage.load(workload)
    row.reached["ensembles"] += len(workloads)
    pause = random.choice((0.05, 0.15, 0.5))
    before = row.kills
    going, hasty = True, False
    while row.kills < min(most, context.kills) and going:
        time.sleep(min(random.expovariate(1 / pause), 4 * pause))
        if random.random() < 0.1:
            row.reached["worker"] += stage.service.kill_worker(random)
        # One time in four it is killed again before it answers. While it recovers it is not killed
        # twice in a row: at the same event with the kill before these, that would be three.
        stage.kill()
        if not hasty and random.random() < 0.25:
            hasty = True
            continue
        listed = stage.service.await_answer(stage.handle)
        going = any(one["state"] not in FINAL for one in listed)
        # However slow the machine is, it must get on.
        hasty = not (hasty or random.random() < 0.4)
        if going and not hasty:
            stage.await_ready()
    stage.service.await_answer(stage.handle)
    for workload in workloads:
        stage.await_end(workload.name, patience(workload, row.kills - before))
        stage.verify(workload, calls=calls.get(workload.name))
    _clear(stage, workloads)


def _clear(stage: Scene, workloads: list[Workload]) -> None:
    for workload in workloads:
        stage.rpc("unload", name=workload.name)
        stage.witness.forget(workload.name)
    stage.instance.flux("job", "purge", "--force", "--num-limit=1")
