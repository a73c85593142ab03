"""The named points of the protocol at which the service is killed.

The service has no hooks for this: a point is a moment that shows from outside, in the KVS
or in the journal. Some are over within milliseconds, so a kill may come a little late; over
many kills both sides of each moment are met.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from scenario import TICK
from scene import Scene
from workloads import Workload

#: Seconds in which a point that can be met is met.
PATIENCE = 20.0


def _poll(until: Callable[[], bool], scene: Scene, seconds: float = PATIENCE) -> bool:
    """Look again and again; False if the service died or the time is up."""
    deadline = time.monotonic() + seconds
    while not until():
        if time.monotonic() > deadline or not scene.service.alive:
            return False
        time.sleep(TICK)
    return True


def loaded(scene: Scene, workload: Workload) -> bool:
    """The document has just become durable."""
    durable = scene.durable(workload.name)
    return _poll(lambda: durable.loaded, scene)


def intent(scene: Scene, workload: Workload) -> bool:
    """One more firing is durable, and its jobs may not have been sent."""
    durable = scene.durable(workload.name)
    before = durable.count("fire")
    return _poll(lambda: durable.count("fire") > before, scene)


def burst(scene: Scene, workload: Workload) -> bool:
    """In the middle of the largest burst."""
    jobs = workload.expected.jobs
    many = scene.random.randrange(jobs // 20, jobs // 2)
    return scene.witness.wait_seen(workload.name, "submit", many, PATIENCE)


def finish(scene: Scene, workload: Workload) -> bool:
    """One more job has finished."""
    before = scene.witness.seen[workload.name, "finish"]
    return scene.witness.wait_seen(workload.name, "finish", before + 1, PATIENCE)


def outcome(scene: Scene, workload: Workload) -> bool:
    """A firing is durable and its outcome is not."""
    durable = scene.durable(workload.name)
    return _poll(lambda: durable.count("fire") > durable.count("outcome"), scene)


def recovery(scene: Scene, workload: Workload) -> bool:
    """0 to 300 ms after the service, which has just been killed, has begun to recover."""
    durable = scene.durable(workload.name)
    before = durable.epoch
    scene.kill()
    met = _poll(lambda: durable.epoch != before, scene)
    time.sleep(scene.random.uniform(0, 0.3))
    return met


def fence(scene: Scene, workload: Workload) -> bool:
    """The service, which has just been killed, has sent its fence: a job that is nobody's."""
    before = scene.witness.seen["", "submit"]
    scene.kill()
    return scene.witness.wait_seen("", "submit", before + 1, PATIENCE)


def snapshot(scene: Scene, workload: Workload) -> bool:
    """Another snapshot has become durable."""
    durable = scene.durable(workload.name)
    before = durable.snapshot
    return _poll(lambda: durable.snapshot != before or over(scene, workload), scene)


def end(scene: Scene, workload: Workload) -> bool:
    """The end is durable."""
    durable = scene.durable(workload.name)
    return _poll(lambda: durable.count("finish") > 0, scene, 60)


def over(scene: Scene, workload: Workload) -> bool:
    """The ensemble has ended, so that the points before its end cannot be met any more."""
    return scene.durable(workload.name).count("finish") > 0


#: In an order in which all of them can be met in one run.
POINTS: dict[str, Callable[[Scene, Workload], bool]] = {
    "load": loaded,
    "intent": intent,
    "burst": burst,
    "finish": finish,
    "fence": fence,
    "outcome": outcome,
    "recovery": recovery,
    "snapshot": snapshot,
    "end": end,
}
