"""Scenarios of the keeper."""

from __future__ import annotations

import time

from kills import patience
from scenario import Context
from scene import scene
from workloads import mixed


def kill_kept(context: Context) -> None:
    """kill -9 of the service under the keeper, at random times and before it answers again."""
    with scene(context, kind="kept") as stage:
        workload = mixed("mixed", 200, stage.calls)
        stage.load(workload)
        made = 0
        while made < context.kills:
            time.sleep(context.random.uniform(0, 1.0))
            stage.kill()
            made += 1
            if context.random.random() < 0.25 and made < context.kills:
                time.sleep(context.random.uniform(0, 0.3))
                stage.kill()
                made += 1
            stage.service.await_answer(stage.handle)
        stage.await_end(workload.name, patience(workload, made))
        stage.verify(workload)
