"""From the event of a job to the submission that it causes: in a flow of jobs, and in a chain."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import plots
import predecessor
from benchmark import Benchmark, Numbers, Row, middle, percentile
from live import Job, Stage, group, live

#: Causes, and seconds between two; each cause has one effect, so twice as many jobs flow.
CAUSES, EVERY = 1500, 0.02

#: How much longer a reaction may take than its event takes to arrive, by percentile.
GOALS = {50: 2, 99: 1.5}

#: Jobs of a chain.
LINKS = 200


# -- in a flow ------------------------------------------------------------------------


def document(causes: int, name: str = "flow") -> dict[str, Any]:
    """A timer submits causes; each one's finish submits an effect."""
    cause, effect = f"{name}-cause", f"{name}-effect"
    return {
        "name": name,
        "jobs": [group(cause, 0.1), group(effect)],
        "rules": [
            {"id": "tick", "trigger": "timer", "every": EVERY,
             "action": {"name": "submit", "label": cause, "repetitions": causes}},
            {"id": "react", "trigger": "job-finish", "group": cause,
             "action": {"name": "submit", "label": effect, "repetitions": "unlimited"}},
        ],
    }  # fmt: skip


def measure_flow(smoke: bool) -> Numbers:
    """Milliseconds from each cause's finish to the request, and to the new job's submit event."""
    with live() as stage:
        return flow(stage, 10 if smoke else CAUSES)


def flow(
    stage: Stage, causes: int, name: str = "flow", beside: Mapping[str, Any] | None = None
) -> Numbers:
    """The same in an instance that has no service, and has none after it.

    Args:
        stage: the instance.
        causes: how many there are.
        name: of the ensemble; its groups begin with it.
        beside: another ensemble, which runs as long as this one does.
    """
    out = stage.directory / f"sent-{name}"
    timed = Path(__file__).with_name("timed_module.py")
    stage.load_service(timed, f"out={urllib.parse.quote(str(out))}")
    if beside is not None:
        stage.load(beside).get()
    log = stage.run(document(causes, name))
    if beside is not None:
        stage.rpc("ensemble.terminate", name=beside["name"], cancel=True)
    stage.await_idle()
    jobs = {job.id: job for kind in ("cause", "effect") for job in stage.jobs(f"{name}-{kind}")}
    stage.unload_service()
    stage.until(out.exists, "the service does not end")
    noted = json.loads(out.read_text())
    assert len(jobs) == 2 * causes, f"{len(jobs)} jobs of {2 * causes}"
    came = dict(noted["came"])
    sent = {
        tag["firing"]: t
        for tag, t in noted["sent"]
        if (tag["name"], tag["rule"]) == (name, "react")
    }
    # A firing of the rule `react` has its number, and the job that caused it.
    fires = [entry["context"] for entry in log if entry["name"] == "fire"]
    caused = {fire["firing"]: fire["cause"]["job"] for fire in fires if fire["rule"] == "react"}
    assert len(sent) == len(caused) == causes, f"{len(sent)} and {len(caused)} of {causes}"
    finished = [(number, job, jobs[job].finished) for number, job in sorted(caused.items())]
    begin, end = finished[0][2], finished[-1][2]
    return {
        "causes": causes,
        "flow": 2 * (causes - 1) / (end - begin),
        "t": [round(t - begin, 3) for _, _, t in finished],
        "came": [round(1e3 * (came[job] - t), 3) for _, job, t in finished],
        "sent": [round(1e3 * (sent[number] - t), 3) for number, _, t in finished],
    }


def rows_flow(numbers: Numbers) -> list[Row]:
    """The middle and the slowest."""
    text = f"from the event of a job, while {numbers['flow']:.0f} jobs/s flow, to the request sent"
    return [
        _reaction(f"{text} / to the event's arrival, p{percent}", numbers, percent, goal)
        for percent, goal in GOALS.items()
    ]


def _reaction(text: str, numbers: Numbers, percent: int, goal: float) -> Row:
    sent, came = (percentile(numbers[key], percent) for key in ("sent", "came"))
    return Row(text, sent / came, "<=", goal, "x", f"{sent:.2f} / {came:.2f} ms")


def plot_flow(figure: Any, numbers: Numbers) -> None:
    """Over time, and how they are distributed."""
    left, right = figure.subplots(1, 2)
    left.plot(numbers["t"], numbers["sent"], ".", ms=2, color=plots.OURS)
    left.set_yscale("log")
    left.set_xlabel("seconds")
    left.set_ylabel("ms")
    left.yaxis.set_major_formatter("{x:g}")
    left.set_title("each reaction")
    plots.ecdf(right, numbers["came"], "event is here", plots.OTHER)
    plots.ecdf(right, numbers["sent"], "request is sent", plots.OURS)
    goals = [goal * percentile(numbers["came"], percent) for percent, goal in GOALS.items()]
    right.plot(goals, [50, 99], "x", color=plots.GOAL, label="goals")
    plots.logarithmic(right)
    right.set_xlabel("ms since the event's own timestamp")
    plots.legend(right)


FLOW = Benchmark(
    "reaction",
    "Reaction in a flow of jobs",
    """A timer submits a job every 20 ms; the finish of each submits another one. The reaction is
    the time from the timestamp in the finish event, which is Flux's, to the moment when the
    request for the new job has been handed to Flux; Flux's own part of it ends when the service
    gets the event. For this the module is loaded with a
    wrapper around two of its functions that notes the time (`t/bench/timed_module.py`).""",
    measure_flow,
    rows_flow,
    plot_flow,
)


# -- in a chain -----------------------------------------------------------------------


def chain(name: str, links: int) -> dict[str, Any]:
    """Each job's finish submits the next; ensemble-python can read it too."""
    return {
        "jobs": [{"name": name, "command": "true"}],
        "rules": [
            {"trigger": "start", "action": {"name": "submit", "label": name}},
            {"trigger": "job-finish",
             "action": {"name": "submit", "label": name, "repetitions": links - 1}},
        ],
    }  # fmt: skip


def measure_chain(smoke: bool) -> Numbers:
    """Milliseconds from each job's finish to the submit event of the next, by run.

    The order of the runs is such that what slows down with time does so for both.
    """
    links = 5 if smoke else LINKS
    with live() as stage:
        first = [_bare(stage, links, "bare-1"), _ours(stage, links)]
        # It would have to be installed, for which a smoke run is no reason.
        theirs = [] if smoke else [_theirs(stage, links) for _ in range(2)]
        second = [_bare(stage, links, "bare-2"), _ours(stage, links)]
        bare, ours = zip(first, second, strict=True)
        return {"links": links, "bare": bare, "ours": ours, "theirs": theirs}


def _bare(stage: Stage, links: int, name: str) -> list[float]:
    """Of a client that watches and submits, and does nothing else."""
    stage.client("chain", name, links)
    stage.await_idle()
    return _gaps(stage.jobs(name), links)


def _ours(stage: Stage, links: int) -> list[float]:
    stage.load_service()
    name = f"ours-{stage.service}"
    stage.run({"name": name, **chain(name, links)})
    stage.await_idle()
    gaps = _gaps(stage.jobs(name), links)
    stage.unload_service()
    return gaps


def _theirs(stage: Stage, links: int) -> list[float]:
    # Its jobs have the name of their command.
    before = len(stage.jobs("true"))
    file = stage.directory / "chain.yaml"
    file.write_text(json.dumps(chain("link", links)))
    log = stage.directory / "ensemble-python.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [*predecessor.command(), str(file)],
            env=stage.instance.environment | {"PYTHONPATH": predecessor.bindings()},
            stdout=out, stderr=out,
        )  # fmt: skip
    try:
        stage.until(
            lambda: process.poll() is not None or len(stage.jobs("true")) == before + links,
            "ensemble-python does not get on",
            0.5,
        )
        if process.poll() is not None:
            raise RuntimeError(f"ensemble-python ends: {log.read_text()[-2000:]}")
    finally:
        process.kill()
        process.wait()
    return _gaps(stage.jobs("true")[before:], links)


def _gaps(jobs: list[Job], links: int) -> list[float]:
    assert len(jobs) == links, f"{len(jobs)} jobs of {links}"
    return [round(1e3 * (after.submitted - job.finished), 3) for job, after in pairwise(jobs)]


def rows_chain(numbers: Numbers) -> list[Row]:
    """Against what Flux needs, and against ensemble-python, where that was measured."""
    text = "finish of a job to the submit event of the next"
    bare, ours = (_middle_gap(numbers[whose]) for whose in ("bare", "ours"))
    found = [
        Row(
            f"{text}: flux-ensemble / a client that does nothing else", ours / bare, "<=", 1.5, "x",
            f"{ours:.2f} / {bare:.2f} ms (p50)",
        )
    ]  # fmt: skip
    if not numbers["theirs"]:
        return found
    theirs = _middle_gap(numbers["theirs"])
    return [
        *found,
        Row(
            f"{text}: ensemble-python {predecessor.VERSION} / flux-ensemble",
            theirs / ours, ">=", 3, "x",
            f"{theirs:.2f} / {ours:.2f} ms (p50); {theirs / bare:.2f}x is what a client reaches "
            "that does nothing else",
        ),
    ]  # fmt: skip


def _middle_gap(runs: Sequence[Sequence[float]]) -> float:
    return middle([gap for run in runs for gap in run])


def plot_chain(figure: Any, numbers: Numbers) -> None:
    """How they are distributed."""
    axes = figure.subplots()
    version = f"ensemble-python {predecessor.VERSION}"
    for whose, name, color in (
        ("bare", "bare client", plots.THIRD),
        ("theirs", version, plots.OTHER),
        ("ours", "flux-ensemble", plots.OURS),
    ):
        for number, gaps in enumerate(numbers[whose]):
            plots.ecdf(axes, gaps, name if not number else "_", color)
    plots.logarithmic(axes)
    axes.set_xlabel("ms from the finish of a job to the submit event of the next")
    plots.legend(axes)


CHAIN = Benchmark(
    "chain",
    "A chain of jobs, against the predecessor",
    """Each job's finish submits the next one. The same document is run by ensemble-python, in a
    virtual environment of its own, and by the service, in turns in one instance, and so is a
    client that reads the journal and sends a jobspec that it has ready, with no rules and no log:
    what Flux itself takes. Jobs of ensemble-python cannot
    ask for mock execution, so all are processes (`true`), and each of its jobs passes
    the validators of job-ingest. The times are those in the jobs' eventlogs.""",
    measure_chain,
    rows_chain,
    plot_chain,
)
