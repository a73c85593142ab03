"""How long whoever installs the package waits, with the compiler and without it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row, middle

PROJECT = Path(__file__).resolve().parents[2]

#: How often it is installed.
TIMES = 2


def measure(smoke: bool) -> Numbers:
    """Seconds of `pip install`, each time into a new environment."""
    with tempfile.TemporaryDirectory() as directory:
        if smoke:
            # Nothing is downloaded.
            options = ["--no-deps", "--no-build-isolation", "--target", directory, str(PROJECT)]
            return {"plain": [_install(sys.executable, options, "0")]}
        clone = str(Path(directory, "clone"))
        subprocess.run(["git", "clone", "--quiet", str(PROJECT), clone], check=True)
        # What pip has to download it has when the first one has ended.
        return {
            "plain": [_into_new(clone, "0") for _ in range(TIMES + 1)][1:],
            "compiled": [_into_new(clone, "1") for _ in range(TIMES)],
            "cores": os.cpu_count(),
        }


def _into_new(clone: str, compiles: str) -> float:
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        # It does not wait for the disk to take what was written before.
        os.sync()
        return _install(str(Path(directory, "bin", "python")), [clone], compiles)


def _install(python: str, arguments: Sequence[str], compiles: str) -> float:
    environment = {**os.environ, "FLUX_ENSEMBLE_COMPILE": compiles}
    # The package that the benchmarks run with.
    environment.pop("PYTHONPATH", None)
    pip = [python, "-m", "pip", "-qq", "--disable-pip-version-check", "install"]
    begin = time.perf_counter()
    subprocess.run([*pip, *arguments], env=environment, check=True)
    return time.perf_counter() - begin


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
    """`pip install` of a clone into a new environment, with all that the package needs, which pip
    has downloaded before. For comparison, the same where nothing is compiled.""",
    measure,
    rows,
    plot,
    height=1.6,
)
