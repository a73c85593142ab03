"""Scenarios in which the service is killed, or stopped for a while, and nothing else happens."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import slow_frobnicator
import verify
from points import POINTS, over
from scenario import Context
from scene import Scene, scene
from workloads import Workload, burst, mixed

#: What a run may take, in seconds: in any case, for each job, and for each kill.
_SECONDS, _SECONDS_A_JOB, _SECONDS_A_KILL = 180.0, 0.1, 20.0


def patience(workload: Workload, kills: int = 0) -> float:
    """Seconds in which an ensemble has to end."""
    return _SECONDS + _SECONDS_A_JOB * workload.expected.jobs + _SECONDS_A_KILL * kills


def undisturbed(context: Context) -> None:
    """Nothing happens: the verification itself is right."""
    with scene(context, kind="command") as stage:
        for workload in (mixed("mixed", 200, stage.calls), burst("burst", 300)):
            stage.load(workload)
            stage.await_end(workload.name, patience(workload))
            stage.verify(workload)


def kill_again(
    context: Context, stage: Scene, pause: float, until: Callable[[], bool] = lambda: False
) -> int:
    """Kill the service again and again, until that holds or all kills are made.

    Args:
        pause: a kill comes so many seconds at most after the service answers.

    Returns:
        How many kills these were.
    """
    before = context.row.kills
    while context.row.kills < context.kills and not until():
        time.sleep(context.random.uniform(0, pause))
        stage.kill()
        # One time in four it is killed again before it answers.
        if context.random.random() < 0.25 and context.row.kills < context.kills:
            time.sleep(context.random.uniform(0, 0.3))
            stage.kill()
        stage.service.await_answer(stage.handle)
    return context.row.kills - before


def _kill_at_random(context: Context, jobs: int, seconds: float, pause: float) -> None:
    """Runs of an ensemble, killed again and again, until all kills are made.

    Args:
        jobs: in flight.
        seconds: how long they run.
        pause: a kill comes so many seconds at most after the service answers.
    """
    while context.row.kills < context.kills and context.row.ok:
        warm = context.random.random() < 0.8
        with scene(context, kind="warm" if warm else "command") as stage:
            workload = mixed("mixed", jobs, stage.calls, seconds=seconds)
            stage.load(workload)
            made = kill_again(context, stage, pause, partial(over, stage, workload))
            stage.await_end(workload.name, patience(workload, made))
            stage.verify(workload)


def kill_200(context: Context) -> None:
    """kill -9 at random times with 200 jobs in flight (80 in short runs)."""
    _kill_at_random(context, context.in_flight, 0.3, 1.0)


def kill_2000(context: Context) -> None:
    """kill -9 at random times with 2,000 jobs in flight (300 in short runs)."""
    _kill_at_random(context, 2000 if context.long else 300, 3.0, 2.0)


def record(context: Context) -> None:
    """kill -9 at random times, where the record is held against the journal; and a control.

    A record with a job less, with one twice, and with any value changed must not pass. Each
    scenario holds the record against the journal; short runs have the control alone here.
    """
    if context.long:
        _kill_at_random(context, context.in_flight, 0.3, 1.0)
    with scene(context) as stage:
        workload = mixed("mixed", 60, stage.calls)
        stage.load(workload)
        stage.witness.wait_seen("mixed", "submit", 30)
        stage.kill()
        stage.service.await_answer(stage.handle)
        stage.await_end(workload.name, patience(workload, 1))
        stage.verify(workload)
        jobs, rows = stage.witness.of("mixed"), stage.recorded("mixed")
        place = context.random.randrange(len(rows))
        for what, wrong in _spoilt(rows, place):
            findings = verify.Findings()
            verify.check_record(jobs, wrong, findings)
            if len(findings.problems) != 1:
                problems = findings.problems
                context.row.problems.append(f"a record with {what}: {problems} is found")


def _spoilt(rows: list[Any], place: int) -> Iterator[tuple[str, list[Any]]]:
    """Records that are wrong in one place, and what is wrong with each."""
    row = rows[place]
    yield "a job less", [*rows[:place], *rows[place + 1 :]]
    yield "a job twice", [*rows, row]
    for key in verify.RECORDED:
        value = "other" if isinstance(row[key], str) else (row[key] or 0) + 1
        yield f"another {key}", [*rows[:place], {**row, key: value}, *rows[place + 1 :]]


def kill_points(context: Context) -> None:
    """kill -9 at each named point of the protocol, in its order."""
    reached = context.row.reached
    reached.update(dict.fromkeys(POINTS, 0))
    while context.row.kills < context.kills and context.row.ok:
        with scene(context, options=("--snapshot-events=150",)) as stage:
            workload = mixed("mixed", context.in_flight, stage.calls)
            before = context.row.kills
            # The response is not awaited: it is lost if the first kill comes at once.
            response = stage.begin_load(workload)
            for name, wait in POINTS.items():
                if context.row.kills >= context.kills:
                    break
                if name != "end" and over(stage, workload):
                    continue
                reached[name] += wait(stage, workload)
                stage.kill()
                stage.service.await_answer(stage.handle)
            del response
            stage.await_end(workload.name, patience(workload, context.row.kills - before))
            stage.verify(workload)


def kill_module(context: Context) -> None:
    """kill -9 of the broker module, with broker.module-nopanic=1, at random times."""
    _kill_one(context, "module")


def kill_kept(context: Context) -> None:
    """kill -9 of the service under the keeper, at random times and before it answers again."""
    _kill_one(context, "kept")


def _kill_one(context: Context, kind: str) -> None:
    """One run of an ensemble, in which all kills are made."""
    with scene(context, kind=kind) as stage:
        workload = mixed("mixed", context.in_flight, stage.calls)
        stage.load(workload)
        made = kill_again(context, stage, 1.0)
        stage.await_end(workload.name, patience(workload, made))
        stage.verify(workload)


def stopped(context: Context) -> None:
    """SIGSTOP of the service for 30 s (3 s in short runs), in mid-burst, then SIGCONT."""
    with scene(context) as stage:
        workload = mixed("mixed", context.in_flight, stage.calls)
        stage.load(workload)
        stage.witness.wait_seen("mixed", "submit", 50)
        stage.service.signal(signal.SIGSTOP)
        time.sleep(30 if context.long else 3)
        stage.service.signal(signal.SIGCONT)
        stage.await_end(workload.name, patience(workload))
        stage.verify(workload)


def _slow_ingest() -> str:
    return f'[ingest.frobnicator]\nplugins = ["{slow_frobnicator.__file__}"]\n'


def _await_burst(stage: Scene, workload: Workload) -> None:
    """Load an ensemble, and wait until hundreds of submissions are on their way."""
    name, jobs = workload.name, workload.expected.jobs
    many = stage.random.randrange(jobs // 20, jobs // 2)
    stage.load(workload)
    stage.witness.wait_seen(name, "submit", many)


def kill_slow_ingest(context: Context) -> None:
    """kill -9 in the middle of bursts, where job-ingest holds hundreds of submissions."""
    with scene(context, config=_slow_ingest()) as stage:
        for number in range(context.kills):
            workload = burst(f"burst-{number}", 600, firings=30)
            _await_burst(stage, workload)
            stage.kill()
            stage.service.await_answer(stage.handle)
            stage.await_end(workload.name, patience(workload, 1))
            stage.verify(workload)


def negative_control(context: Context) -> None:
    """The same with the fence switched off: duplicates are made, and this harness sees them.

    What the service has sent is held until the next one has recovered.
    """
    context.row.control = True
    with scene(context, options=("--no-fence",), config=_slow_ingest()) as stage:
        for number in range(context.kills):
            jobs, firings = (2000, 100) if context.long else (600, 30)
            workload = burst(f"burst-{number}", jobs, firings=firings)
            name = workload.name
            _await_burst(stage, workload)
            hold = stage.directory / slow_frobnicator.HOLD
            hold.touch()
            stage.kill()
            stage.service.await_answer(stage.handle)
            stage.await_entry(name, "epoch")
            hold.unlink()
            stage.await_end(name, patience(workload, 1))
            context.row.jobs += len(stage.witness.of(name))
            context.row.duplicates += stage.duplicates(name)
            if context.row.duplicates and not context.long:
                return
        if not context.row.duplicates:
            context.row.problems.append("no duplicates without a fence: the test is blind")
