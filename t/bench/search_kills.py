"""Searches that are killed again and again: the scenarios of `t/fault` with as many kills."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row

_CHAOS = Path(__file__).parents[1] / "fault" / "chaos.py"

#: How often each is killed.
KILLS = 200

#: By scenario, what is killed.
SCENARIOS = {
    "search": "the service or what suggests points",
    "local-search": "a run on the local queue, which goes on with --resume",
}


def measure(smoke: bool) -> Numbers:
    """What was found by each; the one that needs no Flux without a kill, where it is small.

    That finds out whether the harness is run and read; t3205-local-kills.t has the kills.
    """
    names = ["local-search"] if smoke else list(SCENARIOS)
    words = ["--kills", "0"] if smoke else ["--long", "--kills", str(KILLS)]
    return {name: _scenario(name, words) for name in names}


def _scenario(name: str, words: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "found.json")
        # What is wrong is in what it says.
        subprocess.run(
            [sys.executable, str(_CHAOS), "--seed", "7", *words, "--json", str(file), name],
            stdout=subprocess.DEVNULL,
        )
        (found,) = json.loads(file.read_text())["scenarios"]
    return dict(found)


def rows(numbers: Numbers) -> list[Row]:
    """What was lost, was there twice, or was not as without kills."""
    return [
        Row(
            f"{found['kills']} kills of {SCENARIOS[name]}, {found['reached']['trials']:,} trials: "
            "what was lost, twice, or other than without kills",
            found["missing"] + found["duplicates"] + len(found["problems"]), "<=", 0, "",
            f"trials, their points, and which are stopped early; {found['jobs']:,} jobs, "
            f"{found['seconds']:.0f} s",
        )
        for name, found in numbers.items()
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """How many trials each had."""
    axes = figure.subplots()
    values = {name: [found["reached"]["trials"]] for name, found in numbers.items()}
    plots.bars(axes, values, [plots.OURS, plots.OTHER])
    axes.set_xlabel("trials")


BENCHMARK = Benchmark(
    "search-kills",
    "Searches that are killed",
    """The scenarios `search` and `local-search` of [the
    harness](faults.md): searches with and without early stopping, with
    samplers and a generator, while the service, what suggests points, or the run on the local queue
    is killed. The points are held against those of a search that nothing disturbs, the trials that
    were stopped early against the order of what they published, and each trial has ended once.""",
    measure,
    rows,
    plot,
)
