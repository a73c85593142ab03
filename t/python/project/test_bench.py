"""Every benchmark works: it runs in tiny sizes, and its results, rows and plot are right.

The benchmarks check their own results, such as that every job was there and succeeded. No time
is looked at here.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from browser import require_chromium

BENCH = Path(__file__).parents[2] / "bench"
sys.path.append(str(BENCH))

import page  # noqa: E402
from bench import get  # noqa: E402
from benchmark import Benchmark, Row, percentile  # noqa: E402

#: By name: whether it needs Flux, and what the rows say that were measured.
ROWS = {
    "engine": (False, ["4 rules", "40 rules", "2,000 finished jobs"]),
    "throughput": (True, ["ensemble of 20 jobs", "idle ensemble loaded", "processor time"]),
    "burst": (
        True,
        ["start rule with 20 jobs", "service as a broker module", "service beside the broker"],
    ),
    "tasks": (True, ["the local queue, without Flux", "a Flux job each", "memo` in a task"]),
    "many-tasks": (True, ["100 of them / 50", "the service", "a worker", "KVS of one"]),
    "reaction": (True, ["p50", "p99"]),
    "chain": (True, ["a client that does nothing else"]),
    "beside-search": (True, ["while a search runs"]),
    "side-by-side": (True, ["3 ensembles of 5 jobs / one of 15"]),
    "shares": (True, ["two ensembles with shares 1 and 2", "the same, cores that", "first job of"]),
    "shared-nodes": (False, ["3 clusters that share 12 nodes", "the same, nodes that"]),
    "recover": (
        True,
        ["recovery of an ensemble with 30 finished", "kill: recovery of", "nothing to recover"],
    ),
    "status-command": (True, ["`flux ensemble status`"]),
    "validate": (False, ["20-rule document"]),
    "install": (False, ["nothing compiled"]),
    "local": (False, ["20 queued", *(["first job"] if shutil.which("flux") else [])]),
    "simulate": (False, ["a bare SimPy model", "1,000 jobs: memory", "one of 500"]),
    "members": (
        True,
        [
            "a job: 2 members / 1",
            "a job: 2 members with services of their own",
            "the resubmission of its jobs",
            "were burnt",
            "6 jobs on 2 members",
            "more or fewer",
            "simulation of 5 members",
        ],
    ),
    "children": (True, ["2 simulated members", "20 simulated members"]),
    "slurm-pool": (True, ["20 `true` on 4 nodes", "until it is up"]),
    "silent-members": (False, ["5 silent members in Slurm"]),
    "slurm-peers": (False, ["with Parsl's pilots", "of Parsl's driver", "to the first task"]),
    "slurm-peers-kills": (False, ["is killed", "is cancelled"]),
    "search": (
        False,
        [
            "50 trials of 1 s",
            "20 trials of 0.1 s",
            "Optuna, called",
            "early stopping",
            "from a snapshot",
        ],
    ),
    "search-peers": (
        False,
        [
            *["`tpe` beside Optuna's TPE", "`cma` beside Optuna's CMA-ES", "after 20 trials"],
            *["Optuna with its study in a file", "8 trials of 0.2 s on 4 slots"],
        ],
    ),
    "search-kills": (False, ["0 kills of a run on the local queue"]),
    "cost": (
        True,
        [
            *["a group: to load", "a group: memory", "a rule: to load", "a rule: memory"],
            *["active job: memory of the engine", "active job: memory of the service"],
            *[
                "a job: processor",
                "a job: to put it into the record",
                "a job with `predict`",
                "a job: its row in the record",
                "a job: KVS",
                "to recover",
                "an ensemble: memory",
                "an ensemble: to load",
            ],
            "2 ensembles that do nothing",
        ],
    ),
    "export": (True, ["300 jobs to SQLite: time", "300 jobs to SQLite: memory", "first page"]),
    "report": (
        False,
        [
            *["200 jobs: processor time", "200 jobs: memory", "200 jobs: size"],
            *["200 jobs: ready", "200 jobs: heap", "200 jobs: elements", "400 jobs: ready"],
        ],
    ),
    "top": (False, ["until it is seen", "while nothing happens", "a key is answered"]),
    "operator": (
        False,
        [
            *["1 Ensembles whose pods wait for nodes: the operator's requests", "of a core"],
            *["3 Ensembles that run", "to its MiniCluster", "to its MiniCluster, 2 at once"],
            *["to make what it consists of", "of a core"],
        ],
    ),
}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "bench.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    "name",
    [
        # It starts a dozen instances.
        pytest.param(
            name,
            marks=[
                *([pytest.mark.flux] if flux else []),
                *([pytest.mark.timeout(900)] if name == "members" else []),
            ],
        )
        for name, (flux, _) in ROWS.items()
    ],
)
def test_the_benchmark_runs_and_says_what_it_measured_and_is_drawn(
    name: str, tmp_path: Path
) -> None:
    if name == "report":
        require_chromium()
    if (lacking := get(name).lacks()) is not None:
        pytest.skip(lacking)
    done = bench("--smoke", name)
    assert done.returncode == 0, done.stderr
    title, *rows, numbers = done.stdout.splitlines()
    assert title == f"{name}:"
    expected = ROWS[name][1]
    assert len(rows) == len(expected), done.stdout
    for row, part in zip(rows, expected, strict=True):
        assert part in row
        assert re.search(r": -?[\d,.]+(e[-+]\d+)? ?\S* \(([<>]= [\d,.]+|no goal)", row), row
    # Not by the benchmark, which would take longer to import what draws than for all else.
    page.draw(get(name), json.loads(numbers), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_what_was_not_measured_stays_on_the_page(tmp_path: Path) -> None:
    def some(name: str) -> Benchmark:
        return Benchmark(
            name,
            f"The {name} one",
            "How.",
            lambda smoke: {},
            lambda numbers: [Row(f"{name} row", numbers["value"], "<=", 10)],
            lambda figure, numbers: figure.subplots(),
            table=(lambda numbers: f"table {numbers['value']}\n") if name == "b" else None,
        )

    def kept(value: float) -> dict[str, object]:
        return {"numbers": {"value": value}, "seconds": 1.0, "machine": {"date": "2026-01-02"}}

    (tmp_path / "performance.md").write_text(f"{page.BEGIN}\n{page.END}\n")
    comparison = tmp_path / "comparison.md"
    comparison.write_text(f"<!-- written by make bench: b -->\nold\n{page.END}\nafter\n")
    a, b, c = map(some, "abc")
    page.write([(a, kept(1)), (b, kept(2)), (c, kept(3))], tmp_path)
    before = (tmp_path / "benchmarks.md").read_text()
    page.write([(a, None), (b, kept(20)), (c, None)], tmp_path)
    after = (tmp_path / "benchmarks.md").read_text()
    assert "| b row | <= 10 | 2 | yes |" in before
    assert "| b row | <= 10 | 20 | **no** |" in after
    changed = set(before.splitlines()) ^ set(after.splitlines())
    assert {line for line in changed if "b row" not in line} == {"These figures are of 2026-01-02."}
    assert comparison.read_text().endswith(f"\n\ntable 20\n\n{page.END}\nafter\n")


def test_an_unknown_benchmark_is_named_with_those_there_are() -> None:
    done = bench("--smoke", "engin")
    assert done.returncode == 2
    assert f"no benchmark named 'engin' (benchmarks: {', '.join(ROWS)})" in done.stderr


def test_a_goal_is_met_on_its_own_side_of_the_bound() -> None:
    assert Row("rate", 150.0, ">=", 150.0).met
    assert not Row("rate", 149.9, ">=", 150.0).met
    assert Row("time", 3.0, "<=", 3.0).met
    assert not Row("time", 3.1, "<=", 3.0).met
    assert Row("cost", 3.1).met


def test_percentiles_are_between_the_least_and_the_greatest_value() -> None:
    values = [float(value) for value in range(101)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile([7.0], 99) == 7


def test_the_page_has_the_machine_each_row_with_its_verdict_and_each_plot(tmp_path: Path) -> None:
    benchmark = Benchmark(
        "some",
        "Some benchmark, of ours",
        "How it is measured.",
        lambda smoke: {},
        lambda numbers: [
            Row("fast", numbers["fast"], ">=", 2, "x", "4 / 2 s"),
            Row("late", numbers["late"], "<=", 10, "ms"),
            Row("a thing", 3.5, unit="kB", found="of memory"),
        ],
        lambda figure, numbers: figure.subplots().plot([numbers["fast"], numbers["late"]]),
    )
    kept = {
        "numbers": {"fast": 2.0, "late": 11.0},
        "seconds": 90.0,
        "machine": {"memory": "24 GiB"},
    }
    performance = tmp_path / "performance.md"
    performance.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    page.write([(benchmark, kept)], tmp_path)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "about 2 minutes" in text
    assert "| memory | 24 GiB |" in text
    command = "[`some`](#some-benchmark-of-ours)"
    assert f"| fast | >= 2x | 2x | yes | 4 / 2 s | {command} |" in text
    assert f"| late | <= 10 ms | 11 ms | **no** |  | {command} |" in text
    assert "\n## Some benchmark, of ours\n\nHow it is measured.\n" in text
    assert "bench.py some\n" in text
    assert "a thing" not in text
    costs = "| one more of | costs | |\n|---|---|---|\n| a thing | 3.5 kB | of memory |\n"
    assert performance.read_text() == f"before\n{page.BEGIN}\n\n{costs}\n{page.END}\nafter\n"
    assert (tmp_path / "benchmarks" / "some.png").read_bytes().startswith(b"\x89PNG")
