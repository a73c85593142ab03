"""A record of a million jobs: all of them in a file, and the first page of a search.

The jobs are made up, since to run so many takes hours, and put down as the service does it: the log
and the snapshots of an ensemble are written by its own classes into the KVS of an instance. A
service that begins there has them, and all after that is what users have.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row, middle
from live import Stage, live

from flux_ensemble import eventlog
from flux_ensemble.client import Client
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.events import AllocationChanged
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.jobs import ActiveJob, Phase

ROWS, ROUNDS = 1_000_000, 3

#: Jobs between two snapshots: a little less than their events are in practice.
CHUNK = 4000

#: Jobs of a combination of parameters.
SEEDS = 100

#: Looks at as many jobs as a page does at most, and finds few.
FILTER = "params.t == 7 and returncode != 0"


def document(rows: int) -> dict[str, Any]:
    """A sweep of so many jobs, which nothing submits."""
    params = {"t": {"range": [0, max(1, rows // SEEDS)]}, "seed": {"range": [0, SEEDS]}}
    return {
        "name": "kept",
        "jobs": [{"name": "sim", "command": "sim {t} {seed}", "params": params}],
        "limits": {"jobs": rows, "records": rows},
        "finish": "never",
    }


def _job(firing: Firing, index: int) -> ActiveJob:
    """A job that is gone; some have failed, and some have a memo."""
    # As far apart as those of 200 jobs a second.
    t_submit = 1_790_000_000.0 + 0.005 * index
    job = ActiveJob((index + 1) * 83_886_080, firing.group, firing, index, t_submit)
    job.t_alloc, job.t_start, job.t_end = t_submit + 0.5, t_submit + 0.55, t_submit + 60.25
    job.phase, job.ranks = Phase.GONE, str(index % 128)
    job.outcome, job.status = ("failed", 256) if index % 50 == 0 else ("success", 0)
    if index % 10 == 0:
        job.memo = {"energy": -0.125 * index}
    return job


def store(stage: Stage, rows: int) -> None:
    """Put down an ensemble with a record of so many jobs."""
    import flux

    from flux_ensemble.queues.flux.broker import Broker
    from flux_ensemble.queues.flux.member import FluxMember
    from flux_ensemble.queues.flux.queue import FluxQueue
    from flux_ensemble.queues.flux.submission import EnsembleRun
    from flux_ensemble.runtime.durability.batches import identity
    from flux_ensemble.runtime.durability.wal import WriteAheadLog
    from flux_ensemble.runtime.ensemble import Ensemble
    from flux_ensemble.runtime.host import Host
    from flux_ensemble.service.store.kvs import KvsStores

    faults: list[BaseException | str] = []
    handle = flux.Flux(stage.instance.uri)
    queue = FluxQueue(Broker(handle, faults.append))
    loop = queue.broker.loop
    where: dict[str, Any] = {"environment": {}, "cwd": str(stage.directory)}
    load = {"spec": document(rows), **where, "run": 1, "files": {}}
    spec = load_mapping(document(rows))
    kept = KvsStores(handle, queue.broker.guard).create(spec.name, load)
    wals: list[WriteAheadLog] = []

    def put_down(ensemble: Ensemble) -> WriteAheadLog:
        ensemble.engine.stats.keep_values()
        whose = identity(spec.name, 1)
        wals.append(WriteAheadLog(kept, loop, ensemble, faults.append, queue, identity=whose))
        return wals[0]

    def no_worker(_: object) -> Any:
        raise AssertionError("there are no custom functions")

    host = Host(
        loop=loop,
        queue=FluxMember(queue, EnsembleRun(spec, 1, **where)),
        custom=no_worker,
        store=put_down,
        log_error=faults.append,
    )
    ensemble = Ensemble(spec, host, run=1, cwd=where["cwd"])
    ensemble.note(eventlog.Load(document=load["spec"]))
    ensemble.start()
    firing = Firing("user", 0, "sim", 0, rows)
    for first in range(0, rows, CHUNK):
        for index in range(first, min(rows, first + CHUNK)):
            ensemble.engine.records.add(_job(firing, index))
        # A snapshot is taken where something has happened.
        ensemble.post([AllocationChanged(loop.now(), None)])
        wals[0].checkpoint()
        wals[0].barrier(handle.reactor_stop)
        handle.reactor_run()
        assert not faults, faults


def page(client: Client, text: str) -> float:
    """Seconds until the first page of a search is there."""
    begin = time.monotonic()
    future = client.send(
        "jobs", {"name": "kept", "filter": text, "after": 0, "count": 1000}, stream=True
    )
    while "next" not in future.get():
        future.reset()
    seconds = time.monotonic() - begin
    future.reset()
    with contextlib.suppress(OSError):  # ENODATA: the end
        future.get()
    return seconds


def export(stage: Stage, rows: int) -> tuple[float, float]:
    """Seconds and megabytes of `flux ensemble export`."""
    file = stage.directory / "jobs.sqlite"
    command = [sys.executable, "-m", "flux_ensemble.cli.main", "export", "kept", str(file)]
    begin = time.monotonic()
    done = subprocess.Popen(command, env=stage.instance.environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(done.pid, 0)
    seconds = time.monotonic() - begin
    done.returncode = os.waitstatus_to_exitcode(status)
    assert done.returncode == 0
    with contextlib.closing(sqlite3.connect(file)) as database:
        query = 'select count(*), count(distinct "params.t"), count("memo.energy") from jobs'
        found = database.execute(query).fetchone()
    assert found == (rows, max(1, rows // SEEDS), -(-rows // 10)), found
    Path(file).unlink()
    return seconds, used.ru_maxrss / 1024


def measure(smoke: bool) -> Numbers:
    """Seconds, and megabytes of the client."""
    rows, rounds = (300, 1) if smoke else (ROWS, ROUNDS)
    pages, exports = [], []
    with live() as stage:
        store(stage, rows)
        begin = time.monotonic()
        stage.load_service()
        recovery = time.monotonic() - begin
        assert stage.status("kept")["state"] == "running"
        client = Client(stage.handle)
        for _ in range(rounds):
            pages.append(page(client, FILTER))
            exports.append(export(stage, rows))
        megabytes = stage.megabytes()
    return {
        "rows": rows,
        "pages": pages,
        "seconds": [seconds for seconds, _ in exports],
        "megabytes": [megabytes for _, megabytes in exports],
        "recovery": recovery,
        "service": megabytes,
    }


def rows(numbers: Numbers) -> list[Row]:
    """Time and memory of the export, and the first page."""
    many = f"{numbers['rows']:,} jobs"
    return [
        Row(
            f"`export` of a record of {many} to SQLite: time",
            middle(numbers["seconds"]), "<=", 60, "s",
            f"{1e6 * middle(numbers['seconds']) / numbers['rows']:.0f} us a job",
        ),
        Row(
            f"`export` of a record of {many} to SQLite: memory",
            max(numbers["megabytes"]), "<=", 300, "MB",
            f"of the command; the service has {numbers['service']:.0f} MB",
        ),
        Row(
            f"`jobs --filter` of a record of {many}: first page",
            middle(numbers["pages"]), "<=", 1, "s",
            f"a service that begins has read the record after {numbers['recovery']:.1f} s",
        ),
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """Each round."""
    left, right = figure.subplots(1, 2)
    plots.bars(left, {"export": numbers["seconds"]}, [plots.OURS])
    plots.goal(left, x=60)
    left.set_xlabel("seconds")
    plots.legend(left)
    plots.bars(right, {"first page": numbers["pages"]}, [plots.OURS])
    plots.goal(right, x=1)
    right.set_xlabel("seconds")
    plots.legend(right)


BENCHMARK = Benchmark(
    "export",
    "A record of a million jobs",
    """The jobs are made up, and put down in the KVS of an instance by the classes of the service;
    the service that begins there answers as ever. `flux ensemble export` writes all of them to
    SQLite, in a process of its own, whose peak memory is taken. The filter of the search finds few
    jobs, so that its first page looks at as many as a page does.""",
    measure,
    rows,
    plot,
)
