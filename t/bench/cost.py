"""What one more of anything costs: an event, a job, a rule, a group, an ensemble.

Each is a slope: something is measured with several numbers of a thing, and the rest is the same.
docs/performance.md says what it means.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import numpy
import plots
from benchmark import Benchmark, Numbers, Row, middle
from engine import Load, document, held

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.features.predict.durations import Durations
from flux_ensemble.runtime.durability.records import Records

if TYPE_CHECKING:
    from live import Stage

#: Numbers of each thing.
GROUPS, RULES, ACTIVE = (100, 400, 1000), (100, 2000, 8000), (0, 4000, 8000)
JOBS, PENDING, ENSEMBLES = (500, 1000, 2000), 8000, (0, 50, 200)

#: Seconds in which ensembles do nothing, and are watched at it.
IDLE = 5.0

#: Jobs of a chunk of the record: about as many as end between two snapshots.
RECORDED = 3000

#: Jobs that durations are learned from.
LEARNED = 20_000


def slope(points: Sequence[Sequence[float]]) -> float:
    """What `y` grows by for each `x`: least squares over (x, y)."""
    x, y = zip(*points, strict=True)
    return float(numpy.polyfit(x, y, 1)[0])


# -- the engine and the document --------------------------------------------------------


def _document(groups: int, rules: int) -> list[float]:
    """Milliseconds to check a document and make its engine, and the kilobytes of the engine."""
    mapping = document(groups, rules, 1)
    begin = time.process_time()
    load = Load(load_mapping(mapping))
    seconds = time.process_time() - begin
    return [round(1e3 * seconds, 3), held(load.engine) / 1e3]


def _active(jobs: int) -> float:
    """Kilobytes of an engine with so many jobs in the queue."""
    load = Load(load_mapping({**document(1, 1, max(jobs, 1)), "limits": {"active-jobs": jobs + 1}}))
    if jobs:
        load.wait(jobs)
        assert load.engine.workload.total == jobs
    return held(load.engine) / 1e3


def _predicted(jobs: int) -> float:
    """Microseconds to learn from a job, to predict another one, and to rank it."""
    draw = Random(1)
    sample: list[dict[str, Any]] = [
        {
            "atoms": draw.choice((4000, 8000, 16000, 32000, 64000)),
            "steps": draw.choice((1000, 10_000, 100_000)),
            "style": draw.choice(("lj", "eam", "reax")),
        }
        for _ in range(jobs)
    ]
    model = Durations()
    begin = time.process_time()
    for values in sample:
        model.learn(values, 1e-6 * values["atoms"] * values["steps"])
        model.predict(values)
        model.rank(values)
    return 1e6 * (time.process_time() - begin) / jobs


# -- the service ------------------------------------------------------------------------


def _records(jobs: int) -> list[float]:
    """Microseconds to put a job into the record, and its bytes there; it has no memo."""
    load = Load(load_mapping({**document(1, 1, jobs), "limits": {"active-jobs": jobs + 1}}))
    records = Records()
    records.follow(load.engine.records)
    load.wait(jobs)
    for job in load.engine.workload.jobs.values():
        job.t_alloc, job.t_start = job.t_submit + 0.5, job.t_submit + 0.6
        job.t_end = job.t_submit + 7
        job.outcome, job.status, job.ranks = "success", 0, str(job.id % 100)
        load.engine.records.add(job)
    begin = time.process_time()
    chunk = records.take()
    seconds = time.process_time() - begin
    assert chunk is not None
    return [1e6 * seconds / jobs, len(chunk) / jobs]


def _jobs(sizes: Sequence[int]) -> Numbers:
    """Processor seconds of the service, megabytes of the KVS, and seconds of a recovery.

    The latter are by the number of jobs that the instance has had in all. Runs without a record are
    next to those with one, since what they differ in is little.
    """
    from live import burst, live

    ours, bare, spent, unrecorded = [], [], [], []
    with live() as stage:
        stage.load_service()
        stage.load(_quiet("watching")).get()
        recovery = [[0, _recover(stage)]]
        stage.unload_service()
        # What Flux itself keeps of the same jobs.
        for jobs in sizes:
            before = stage.kvs_bytes()
            stage.client("bare", f"bare-{jobs}", jobs)
            stage.await_idle()
            bare.append([jobs, (stage.kvs_bytes() - before) / 1e6])
        stage.load_service()
        recovery.append([sum(sizes), _recover(stage)])
        for jobs in sizes:
            before, used = stage.kvs_bytes(), stage.processor()
            stage.run(burst(f"ours-{jobs}", jobs))
            stage.await_idle()
            spent.append([jobs, stage.processor_since(used)["service"]])
            ours.append([jobs, (stage.kvs_bytes() - before) / 1e6])
            used = stage.processor()
            stage.run({**burst(f"unrecorded-{jobs}", jobs), "records": False})
            stage.await_idle()
            unrecorded.append([jobs, stage.processor_since(used)["service"]])
        recovery.append([3 * sum(sizes), _recover(stage)])
    return {
        "processor": spent,
        "unrecorded": unrecorded,
        "kvs": ours,
        "kvs_bare": bare,
        "recovery": recovery,
    }


def _recover(stage: Stage) -> float:
    """Seconds until a service that was killed is ready again; the quicker of two."""
    seconds = []
    for _ in range(2):
        stage.kill_service()
        begin = time.monotonic()
        stage.load_service()
        seconds.append(time.monotonic() - begin)
    return min(seconds)


def _quiet(name: str) -> dict[str, Any]:
    """An ensemble that does nothing, and does not end."""
    return {
        "name": name,
        "jobs": [{"name": "some", "command": "true"}],
        "rules": [{"trigger": "job-fail", "action": {"name": "terminate"}}],
        "finish": "never",
    }


def _memory(pending: int) -> list[list[float]]:
    """Megabytes of the service, with and without jobs that wait."""
    from live import burst, live

    with live() as stage:
        stage.load_service()
        found = [[0.0, stage.megabytes()]]
        stage.load(burst("many", pending, 3600)).get()
        stage.await_jobs(pending)
        return [*found, [pending, stage.megabytes()]]


def _ensembles(sizes: Sequence[int], idle: float) -> Numbers:
    """What ensembles that do nothing cost: megabytes, milliseconds to load one, processor time."""
    from live import live

    memory, loads, spent = [], [], []
    with live() as stage:
        stage.load_service()
        for number in range(max(sizes) + 1):
            if number in sizes:
                memory.append([number, stage.megabytes()])
                before = stage.processor()
                time.sleep(idle)
                spent.append([number, stage.processor_since(before)["service"] / idle])
            begin = time.perf_counter()
            stage.load(_quiet(f"e{number}")).get()
            loads.append(1e3 * (time.perf_counter() - begin))
    return {"memory": memory, "load": loads, "processor": spent}


def measure(smoke: bool) -> Numbers:
    """All of it."""
    groups, rules, active = ((2, 4), (2, 8), (0, 50)) if smoke else (GROUPS, RULES, ACTIVE)
    jobs, pending, many = ((5, 10), 20, (0, 2)) if smoke else (JOBS, PENDING, ENSEMBLES)
    _document(1, 1)  # what is made once is made now
    return {
        "groups": [[one, *_document(one, 1)] for one in groups],
        "rules": [[one, *_document(groups[0], one)] for one in rules],
        "active": [[one, _active(one)] for one in active],
        "record": _records(20 if smoke else RECORDED),
        "predicted": _predicted(20 if smoke else LEARNED),
        "jobs": _jobs(jobs),
        "pending": _memory(pending),
        "ensembles": _ensembles(many, 0.1 if smoke else IDLE),
    }


def rows(numbers: Numbers) -> list[Row]:
    """Slopes; there are no goals."""
    jobs, ensembles = numbers["jobs"], numbers["ensembles"]
    groups = [(x, time, size) for x, time, size in numbers["groups"]]
    rules = [(x, time, size) for x, time, size in numbers["rules"]]
    most = ensembles["processor"][-1]
    return [
        Row("a group: to load it", 1e3 * slope([one[:2] for one in groups]), unit="us"),
        Row("a group: memory of the engine", slope([one[::2] for one in groups]), unit="kB"),
        Row("a rule: to load it", 1e3 * slope([one[:2] for one in rules]), unit="us"),
        Row("a rule: memory of the engine", slope([one[::2] for one in rules]), unit="kB"),
        Row("an active job: memory of the engine", slope(numbers["active"]), unit="kB"),
        Row("an active job: memory of the service", 1e3 * slope(numbers["pending"]), unit="kB"),
        Row(
            "a job: processor time of the service", 1e3 * slope(jobs["processor"]), unit="ms",
            found=f"{1e3 * slope(jobs['unrecorded']):.2g} ms with records: false",
        ),
        Row(
            "a job: to put it into the record", numbers["record"][0], unit="us",
            found="at most 10% of the line above",
        ),
        Row(
            "a job with `predict`: to learn from it, and to predict another one",
            numbers["predicted"], unit="us", found="at most 50 us; without `predict` nothing",
        ),
        Row(
            "a job: its row in the record, without a memo", numbers["record"][1] / 1e3, unit="kB",
            found="at most 0.2 kB",
        ),
        Row(
            "a job: KVS, all of it", 1e3 * slope(jobs["kvs"]), unit="kB",
            found=f"{1e3 * slope(jobs['kvs_bare']):.2g} kB without an ensemble",
        ),
        Row(
            "a job that the queue still knows: to recover", 1e6 * slope(jobs["recovery"]),
            unit="us", found="any job, also of nobody's ensemble, while an ensemble is live",
        ),
        Row("an ensemble: memory of the service", 1e3 * slope(ensembles["memory"]), unit="kB"),
        Row("an ensemble: to load it", middle(ensembles["load"]), unit="ms", found="p50"),
        Row(
            f"{most[0]} ensembles that do nothing: processor time of the service",
            100 * most[1], unit="%", found="of one core",
        ),
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """Processor time, the KVS, and memory."""
    left, middle_one, right = figure.subplots(1, 3)
    jobs, ensembles = numbers["jobs"], numbers["ensembles"]
    for axes, points, color, label in (
        (left, jobs["processor"], plots.OURS, "service"),
        (middle_one, jobs["kvs"], plots.OURS, "ensemble"),
        (middle_one, jobs["kvs_bare"], plots.OTHER, "the jobs alone"),
        (right, ensembles["memory"], plots.OURS, "service"),
    ):
        x, y = zip(*points, strict=True)
        axes.plot(x, y, "o-", color=color, label=label)
    for axes in (left, middle_one, right):
        axes.set_ylim(bottom=0)
        plots.legend(axes)
    left.set_ylabel("seconds of processor time")
    left.set_xlabel("jobs of an ensemble")
    middle_one.set_ylabel("MB in the KVS")
    middle_one.set_xlabel("jobs")
    right.set_ylabel("MB of memory")
    right.set_xlabel("ensembles that do nothing")


BENCHMARK = Benchmark(
    "cost",
    "What one more costs",
    """Slopes of what is measured with several numbers of a thing, the rest being the same:
    documents with more groups and with more rules, ensembles with more jobs, jobs that wait,
    ensembles that do nothing. The size of the KVS is that of its database, and memory is that
    of the process. [The table](performance.md#what-one-more-costs) says what comes of it.""",
    measure,
    rows,
    plot,
)
