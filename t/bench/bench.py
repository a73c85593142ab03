"""Benchmarks: what is measured, against which goal, and the page that says so.

    bench.py [--smoke] [--page] [NAME ...]

Measures the benchmarks named, or all, each in a process of its own, prints their rows, and
keeps their numbers in `.bench/results`. `--page` then writes docs/benchmarks.md, and its plots, and
tables of other pages, from the numbers of all; what was not measured here stays as it is there.
`--smoke` measures in tiny sizes, and prints the numbers; it keeps nothing,
draws nothing and looks at no goals: it finds out whether a benchmark works. Exits 1 where a goal is
missed.

What is measured is the package as users install it, with its compiled modules (`.compiled`,
which `make` builds when something has changed).

The live ones need Flux, and `operator` a control plane of Kubernetes; one that lacks what it needs
is skipped by name, and stays on the page as it was. What is compared is done on the same machine in
the same run, mostly in turns; the results are only as quiet as the machine is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

import machine
import page
from benchmark import Benchmark, Numbers, Row

sys.path.append(str(Path(__file__).resolve().parents[1] / "python" / "helpers"))

from ends import unwind_at_signals

import flux_ensemble

#: By name, in the order of the page: the module, and the benchmark in it.
NAMES = {
    "engine": ("engine", "BENCHMARK"),
    "throughput": ("throughput", "BENCHMARK"),
    "burst": ("burst", "BENCHMARK"),
    "tasks": ("short_tasks", "BENCHMARK"),
    "many-tasks": ("many_tasks", "BENCHMARK"),
    "reaction": ("reaction", "FLOW"),
    "chain": ("reaction", "CHAIN"),
    "beside-search": ("beside_search", "BENCHMARK"),
    "side-by-side": ("side_by_side", "BENCHMARK"),
    "shares": ("shares", "BENCHMARK"),
    "shared-nodes": ("shared_nodes", "BENCHMARK"),
    "recover": ("recover", "BENCHMARK"),
    "status-command": ("commands", "STATUS"),
    "validate": ("commands", "VALIDATE"),
    "install": ("install", "BENCHMARK"),
    "local": ("local", "BENCHMARK"),
    "simulate": ("simulate", "BENCHMARK"),
    "members": ("pools", "BENCHMARK"),
    "children": ("children", "BENCHMARK"),
    "slurm-pool": ("slurm_pool", "BENCHMARK"),
    "silent-members": ("silent_members", "BENCHMARK"),
    "slurm-peers": ("slurm_peers", "BENCHMARK"),
    "slurm-peers-kills": ("slurm_peers", "KILLS"),
    "search": ("search", "BENCHMARK"),
    "search-peers": ("search_peers", "BENCHMARK"),
    "search-kills": ("search_kills", "BENCHMARK"),
    "cost": ("cost", "BENCHMARK"),
    "export": ("export", "BENCHMARK"),
    "report": ("report", "BENCHMARK"),
    "top": ("top", "BENCHMARK"),
    "operator": ("operator_cost", "BENCHMARK"),
}

PROJECT = Path(__file__).resolve().parents[2]
RESULTS = PROJECT / ".bench" / "results"
COMPILED = PROJECT / ".compiled"


def get(name: str) -> Benchmark:
    """The benchmark of a name."""
    module, attribute = NAMES[name]
    found: Benchmark = getattr(import_module(module), attribute)
    return found


def measure(name: str, *, smoke: bool) -> list[Row]:
    """Measure one in this process, and print its rows; the numbers are kept."""
    unwind_at_signals()
    benchmark = get(name)
    if (lacking := benchmark.lacks()) is not None:
        print(f"  skipped: {lacking}")
        return []
    begin = time.monotonic()
    numbers = benchmark.measure(smoke)
    seconds = time.monotonic() - begin
    if not smoke:
        with tempfile.TemporaryDirectory() as directory:
            # A plot that fails is to be known before an hour has gone by.
            page.draw(benchmark, numbers, Path(directory, "plot.png"))
    found = benchmark.rows(numbers)
    for row in found:
        verdict = "" if smoke or not row.sign else "met" if row.met else "MISSED"
        print(f"  {row.text}: {row.reached()} ({row.wanted()}) {verdict}  [{row.found}]")
    if smoke:
        print(json.dumps(numbers))
    else:
        RESULTS.mkdir(parents=True, exist_ok=True)
        kept = {"numbers": numbers, "seconds": seconds, "machine": machine.describe()}
        (RESULTS / f"{name}.json").write_text(json.dumps(kept))
    return found


def read(name: str) -> Numbers | None:
    """What was kept of one; None if nothing was."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def run_compiled() -> None:
    """Begin again with the package as it is installed, unless this is it."""
    if Path(flux_ensemble.__file__).is_relative_to(COMPILED):
        return
    target = (COMPILED / "installed").relative_to(PROJECT)
    made = subprocess.run(["make", "--silent", str(target)], cwd=PROJECT)
    if made.returncode != 0:
        sys.exit("bench.py: the package cannot be installed, see above")
    environment = {**os.environ, "PYTHONPATH": str(COMPILED)}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def main(arguments: list[str]) -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description="Measure, and compare with the goals.")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes; no goals")
    parser.add_argument("--page", action="store_true", help="write docs/benchmarks.md after that")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"no benchmark named {unknown[0]!r} (benchmarks: {', '.join(NAMES)})")
    if not options.smoke:
        run_compiled()
    names = options.names or list(NAMES)
    if len(names) == 1 and not options.page:
        print(f"{names[0]}:", flush=True)
        rows = measure(names[0], smoke=options.smoke)
        return 0 if options.smoke or all(row.met for row in rows) else 1
    flags = ["--smoke"] if options.smoke else []
    codes = [subprocess.run([sys.executable, __file__, *flags, name]).returncode for name in names]
    if options.page and not options.smoke:
        page.write([(get(name), read(name)) for name in NAMES])
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
