"""How long whoever installs the package waits, with the compiler and without it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row, middle

PROJECT = Path(__file__).resolve().parents[2]

#: How often it is installed.
TIMES = 3


def measure(smoke: bool) -> Numbers:
    """Seconds of `pip install`, each time into an empty directory."""
    if smoke:
        # Nothing is downloaded.
        return {"plain": [_install("0", "--no-deps", "--no-build-isolation")]}
    # What pip has to download it has when the first one has ended.
    return {
        "plain": [_install("0") for _ in range(TIMES + 1)][1:],
        "compiled": [_install("1") for _ in range(TIMES)],
        "cores": os.cpu_count(),
    }


def _install(compiles: str, *options: str) -> float:
    environment = {**os.environ, "FLUX_ENSEMBLE_COMPILE": compiles}
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    with tempfile.TemporaryDirectory() as directory:
        begin = time.perf_counter()
        subprocess.run(
            [*pip, "--target", directory, *options, str(PROJECT)], env=environment, check=True
        )
        seconds = time.perf_counter() - begin
        assert Path(directory, "bin", "flux-ensemble").exists()
    return seconds


def rows(numbers: Numbers) -> list[Row]:
    """With the compiler, and without it."""
    plain = middle(numbers["plain"])
    if "compiled" not in numbers:
        return [Row("`pip install`, nothing compiled", plain, unit="s")]
    return [
        Row(
            "`pip install` of a clone, which compiles",
            middle(numbers["compiled"]), "<=", 30, "s",
            f"without compiling {plain:.1f} s; on {numbers['cores']} cores",
        )
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """Both."""
    names = {"plain": "nothing compiled", "compiled": "pip install"}
    values = {name: numbers[key] for key, name in names.items() if key in numbers}
    axes = figure.subplots()
    plots.bars(axes, values, [plots.OTHER, plots.OURS][: len(values)])
    plots.goal(axes, x=30)
    axes.set_xlabel("seconds")
    plots.legend(axes)


BENCHMARK = Benchmark(
    "install",
    "Installation",
    """`pip install` of a clone into an empty directory, with all that the package needs, which pip
    has downloaded before. For comparison, the same where nothing is compiled.""",
    measure,
    rows,
    plot,
    height=1.6,
)
