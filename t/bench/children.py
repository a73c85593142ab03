"""What the service of an ensemble takes for a job where its members have services of their own.

Those services are simulated by one process (`simulated_children.py`), in a real instance whose
queue is stopped, so that the jobs that are members wait and no other service calls. What the
service is told is as of real members. So it can be seen at rates for which these would need as many
nodes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plots
from benchmark import Benchmark, Numbers, Row

if TYPE_CHECKING:
    from live import Stage

#: Members, with the jobs a second of each: a real one runs up to some 200, and a worker a thousand.
PLAYED = ((10, 100), (50, 100), (50, 200), (30, 1000), (1000, 5))

#: Seconds of jobs before what is measured, and that are measured.
BEFORE, MEASURED = 5, 15


def play(stage: Stage, members: int, rate: float, before: float, seconds: float) -> list[Any]:
    """What jobs on simulated members take of the service.

    Args:
        stage: the instance, with the service.
        members: how many there are.
        rate: how many jobs a second each of them runs.
        before, seconds: seconds of jobs before what is measured, and that are measured.

    Returns:
        How many members and jobs there were, how many seconds it took, and the seconds of the
        service's processor time.
    """
    first, jobs = int(members * rate * before), int(members * rate * seconds)
    count = first + jobs + int(members * rate * before)
    name = f"played-{members}"
    document = {
        "name": name,
        "finish": "never",
        "members": [{"name": "pool", "count": members, "service": "child"}],
        "jobs": [{"name": "sim", "command": "true", "count": count}],
        "rules": [
            {
                "id": "go",
                "trigger": "start",
                "enabled": False,
                "action": {"name": "submit", "label": "sim"},
            }
        ],
        "limits": {"jobs": count, "active-jobs": count},
    }
    stop = {"start": False, "all": True, "nocheckpoint": True, "reason": "members are simulated"}
    stage.rpc("job-manager.queue-start", **stop)
    stage.load(document).get()
    stage.await_jobs(members)
    command = [sys.executable, str(Path(__file__).with_name("simulated_children.py"))]
    marks = map(str, (first, first + jobs))
    with subprocess.Popen(
        [*command, name, str(members), str(rate), *marks],
        env=stage.instance.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as played:
        assert played.stdout is not None

        def up() -> bool:
            found = stage.status(name)["pools"]["pool"]["members"]
            return sum(member["state"] == "up" for member in found) == members

        # The first of them would get all jobs.
        stage.until(up, f"not {members} members are up", 0.5)
        stage.rpc("ensemble.rules", name=name, id="go", enabled=True)
        begun = int(played.stdout.readline())
        used, t_begin = stage.processor(), time.monotonic()
        ended = int(played.stdout.readline())
        spent, took = stage.processor_since(used)["service"], time.monotonic() - t_begin
    counts = stage.status(name)["groups"]["sim"]
    # What the last of them did is told with what comes after.
    assert first <= counts["success"] == counts["finished"], counts
    return [members, ended - begun, took, spent]


def measure(smoke: bool) -> Numbers:
    """Each in an instance of its own."""
    from live import live

    found = []
    for members, rate in ((2, 10), (20, 1)) if smoke else PLAYED:
        with live() as stage:
            stage.load_service()
            found.append(play(stage, members, rate, *((1, 2) if smoke else (BEFORE, MEASURED))))
    return {"played": found}


def rows(numbers: Numbers) -> list[Row]:
    """What it took for a job."""
    return [
        Row(
            f"processor time of the service a job: {members:,} simulated members with services of "
            f"their own, {round(jobs / took / members):,} jobs a second each",
            1e3 * spent / jobs, "<=", 0.02, "ms",
            f"{jobs:,} jobs in {took:.0f} s, {jobs / took:,.0f} a second; {spent:.2f} s",
        )
        for members, jobs, took, spent in numbers["played"]
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """What it took for a job, by the members."""
    axes = figure.subplots()
    values = {
        f"{members:,} members, {jobs / took:,.0f} jobs/s": [1e3 * spent / jobs]
        for members, jobs, took, spent in numbers["played"]
    }
    plots.bars(axes, values, [plots.OURS] * len(values))
    plots.goal(axes, x=0.02)
    axes.set_xlabel("ms of processor time a job")
    plots.legend(axes)


BENCHMARK = Benchmark(
    "children",
    "Many members with services of their own",
    """One process plays the services of many members, in a real instance with the real service
    of the ensemble, which decides, counts, and keeps log, statistics and record as ever. It tells
    of jobs by the classes by which the service of a real member does, and at the rate that many
    members would have; how many jobs Flux can run on two cores does not matter. Each job is told
    of when it is accepted, and when it has ended, mostly together with others. What is measured is
    the processor time of the service from one number of jobs to another one.""",
    measure,
    rows,
    plot,
)
