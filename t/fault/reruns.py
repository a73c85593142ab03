"""`rerun` on Flux while the service is killed, with the workload of `localrerun`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from localrerun import FAILED, ROUNDS, SECONDS, SUCCEEDED, began, note, problems, workload
from scenario import Context
from scene import Scene, scene


def rerun(context: Context) -> None:
    """kill -9 of the service while jobs run again: each does once, and what was is replaced."""
    row = context.row
    row.reached.update({"cut off": 0, "rounds": 0})
    while row.kills < context.kills and row.ok:
        with scene(context) as stage:
            _on_flux(context, stage)


def _on_flux(context: Context, stage: Scene) -> None:
    document = workload(stage.directory)
    table = stage.directory / "table"
    stage.load(document)
    stage.await_end(document.name, SECONDS)
    for rounds in range(1, ROUNDS + 1):
        if rounds > 1:
            table.unlink()
            _rerun(context, stage, document.name, SUCCEEDED)
        table.touch()
        _rerun(context, stage, document.name, FAILED)
        stage.await_quiet(document.name)
        rows = stage.recorded(document.name)
        status = stage.status(document.name)
        assert status is not None
        found = problems(rows, began(stage.directory), status, rounds, all_seen=True)
        note(context, found)
        context.row.reached["rounds"] += 1
        context.row.duplicates += stage.duplicates(document.name)
        if not context.row.ok or context.row.kills >= context.kills:
            break
    context.row.jobs += len(stage.witness.of(document.name))
    stage.note([f"{context.row.duplicates} duplicates"] * bool(context.row.duplicates))


def _rerun(context: Context, stage: Scene, name: str, asked: Mapping[str, Any]) -> None:
    """Have jobs run again while the service is killed, until none is left to choose."""
    random, row = context.random, context.row
    while True:
        request = stage.handle.rpc("ensemble.rerun", {"name": name, **asked})
        if row.kills < context.kills and random.random() < 0.7:
            # Most often while the request is handled, else while the jobs run.
            time.sleep(random.choice((0.0, 0.003, 0.02, 0.2)) * random.random())
            stage.kill()
            stage.service.await_answer(stage.handle)
            stage.await_ready()
        try:
            chosen = request.wait_for(60).get()["jobs"]
        except OSError:
            row.reached["cut off"] += 1
            stage.await_ready()
            continue
        if not chosen:
            break
        while row.kills < context.kills and random.random() < 0.6:
            time.sleep(random.uniform(0, 0.4))
            stage.kill()
            stage.service.await_answer(stage.handle)
        stage.service.await_answer(stage.handle)
        stage.await_ready()
        stage.await_end(name, SECONDS)
    stage.await_end(name, SECONDS)
