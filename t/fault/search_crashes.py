"""Kinds of searches on Flux with 24 jobs under way: the service, the broker, or members die."""

from __future__ import annotations

import time
from collections.abc import Container

import told
from members import REPLACED, Stage, all_killed
from scenario import Context
from scene import Scene, scene, within
from search_kinds import GO_ON, NAME, UNDER_WAY, Outcome, await_held, control, kinds, outcome

#: Seconds that an ensemble has for its end.
_PATIENCE = 240.0

#: Members that share the jobs.
_MEMBERS = 2


def search_kinds(context: Context) -> None:
    """kill -9 of the service, then of the broker, with 24 jobs of kinds of searches under way.

    Half of the kills are before the broker dies, the others when trials end and are stopped.
    """
    config = '[kvs]\ncheckpoint-period = "200ms"\n'
    row, expected = context.row, control(context)
    with scene(context, statedir=True, config=config) as stage:
        workload = kinds(stage.directory)
        stage.load(workload)
        await_held(stage.directory, UNDER_WAY)
        while row.kills < context.kills // 2:
            _kill(stage)
        stage.await_checkpoint()
        stage.restart((), crash=True)
        (stage.directory / GO_ON).touch()
        while row.kills < context.kills:
            _kill(stage)
            time.sleep(context.random.uniform(0, 0.7))
        # One whose start was not in the last checkpoint starts as if nothing had happened.
        found = _outcome(stage, range(1, UNDER_WAY + 1))
        problems, stopped = told.check_stops(
            workload.document, stage.recorded(NAME), stage.entries(NAME), stage.witness.of(NAME)
        )
        stage.note([*found.problems(expected), *problems])
        row.reached["stopped early"] = stopped.total()
        if not stopped:
            stage.note(["no trial was stopped early"])


def _kill(stage: Scene) -> None:
    stage.kill()
    stage.service.await_answer(stage.handle)


def _outcome(stage: Scene, interrupted: Container[int]) -> Outcome:
    """Wait for the end, and return what the ensemble came to.

    Args:
        stage: where it runs.
        interrupted: how many attempts may have been.
    """
    status = stage.await_end(NAME, _PATIENCE)
    rows = stage.recorded(NAME)
    stage.row.jobs += len(rows)
    lost = sum(row["outcome"] == "interrupted" for row in rows)
    stage.row.reached["interrupted"] = lost
    if lost not in interrupted:
        stage.note([f"{lost} attempts were interrupted"])
    return outcome(stage.directory, status, rows, stage.entries(NAME))


def member_search_kinds(context: Context) -> None:
    """SIGKILL of the brokers of members with 24 jobs of kinds of searches under way."""
    expected = control(context)
    with within(Stage(context, node_cores=UNDER_WAY // _MEMBERS)) as stage:
        grown = {"name": "grow", "label": "pool", "repetitions": "unlimited"}
        workload = kinds(
            stage.directory,
            members=[{"name": "pool", "count": {"min": _MEMBERS, "max": _MEMBERS + 1}}],
            rules=[{"id": REPLACED, "trigger": "member-lost", "action": grown}],
        )
        stage.load(workload)
        await_held(stage.directory, UNDER_WAY)
        all_killed(stage, workload)

        def lost() -> int:
            return sum(entry["name"] == "member-lost" for entry in stage.entries(NAME))

        stage.await_("all are lost", lambda: lost() == _MEMBERS)
        (stage.directory / GO_ON).touch()
        stage.note(_outcome(stage, (UNDER_WAY,)).problems(expected))
