"""Reactions of one ensemble while another one searches, against one that has as much to do."""

from __future__ import annotations

from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row, percentile
from live import group, live
from reaction import CAUSES, flow

#: Jobs of the other ensemble at once, and seconds that each runs.
PARALLEL, SECONDS = 4, 0.1

#: More jobs than there is time for.
MANY = 100_000


def search(name: str) -> dict[str, Any]:
    """TPE, whose trials publish nothing: it is told the same value of each, and has to think."""
    return {
        "name": name,
        "search": [
            {"id": "s", "group": name, "variables": {"x": {"low": 0, "high": 1},
                                                     "y": {"low": 1e-5, "high": 1, "log": True}},
             "minimize": "loss", "sampler": "tpe", "trials": MANY, "parallel": PARALLEL,
             "on-failure": {"penalty": 1}, "failures": MANY},
        ],
        "jobs": [{**group(name, SECONDS), "command": "true {x} {y}"}],
        "rules": [{"trigger": "start", "action": {"name": "search", "label": "s"}}],
        "limits": {"jobs": MANY},
    }  # fmt: skip


def chains(name: str) -> dict[str, Any]:
    """As many jobs at once, each followed by the next when it is over."""
    return {
        "name": name,
        "jobs": [group(name, SECONDS)],
        "rules": [
            {"trigger": "start", "action": {"name": "submit", "label": name, "count": PARALLEL}},
            {"trigger": "job-clean", "group": name,
             "action": {"name": "submit", "label": name, "repetitions": "unlimited"}},
        ],
        "limits": {"jobs": MANY},
    }  # fmt: skip


BESIDE = {"search": search, "chains": chains}


def measure(smoke: bool) -> Numbers:
    """Milliseconds that the service takes for each reaction, by what is beside it, in turns."""
    numbers: Numbers = {kind: {"own": [], "sent": [], "beside": 0} for kind in BESIDE}
    with live() as stage:
        for turn in range(1 if smoke else 2):
            for kind, made in BESIDE.items():
                name = f"{kind}-{turn}"
                found = flow(stage, 10 if smoke else CAUSES, f"flow-{name}", made(name))
                pairs = zip(found["came"], found["sent"], strict=True)
                of_kind = numbers[kind]
                of_kind["own"] += [round(sent - came, 3) for came, sent in pairs]
                of_kind["sent"] += found["sent"]
                of_kind["beside"] += len(stage.jobs(name))
    return numbers


def rows(numbers: Numbers) -> list[Row]:
    """With a search beside it, against the other."""
    searching, other = numbers["search"], numbers["chains"]
    (ours, whole), (theirs, of_theirs) = (
        [percentile(one[key], 99) for key in ("own", "sent")] for one in (searching, other)
    )
    return [
        Row(
            "from the arrival of an event to the request sent, while a search runs / while chains "
            "of jobs run, p99",
            ours / theirs, "<=", 1.1, "x",
            f"{ours:.2f} / {theirs:.2f} ms, from the event of the job {whole:.1f} / "
            f"{of_theirs:.1f} ms; {searching['beside']} trials / {other['beside']} jobs beside it",
        )
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """How they are distributed."""
    axes = figure.subplots()
    plots.ecdf(axes, numbers["chains"]["own"], "beside chains", plots.OTHER)
    plots.ecdf(axes, numbers["search"]["own"], "beside a search", plots.OURS)
    plots.logarithmic(axes)
    axes.set_xlabel("ms from the arrival of an event to the request")
    plots.legend(axes)


BENCHMARK = Benchmark(
    "beside-search",
    "Reactions while a search runs",
    """The flow of jobs of [the reaction](#reaction-in-a-flow-of-jobs), while another ensemble of
    the same service searches with TPE, 4 trials at once; and the same beside an ensemble that has
    4 jobs at once without a search, each followed by the next. So what differs is the search. The
    two are measured in turns in one instance.""",
    measure,
    rows,
    plot,
)
