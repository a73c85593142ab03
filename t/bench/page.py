"""Writes docs/benchmarks.md, its plots, and the table of docs/performance.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import plots
from benchmark import Benchmark, Numbers

DOCS = Path(__file__).resolve().parents[2] / "docs"

_INTRODUCTION = """\
# Benchmarks

This page is for those who want figures, and want to repeat them.

`make bench` measures all of this, and writes this page; it takes about {minutes:.0f} minutes.
Goals are bounds, and a ratio compares two things that were done on the same machine in the same
run. Jobs of Flux are mock jobs of 1 ms on fake cores unless it says otherwise, in an instance of
one broker of its own, with the service as a broker module. The package is the installed one,
with its compiled modules. [What the service costs, and what grows with what](performance.md), is
a page of its own.

| measured on | |
|---|---|
"""

_TABLE = """
| benchmark | goal | measured | met | made of | command |
|---|---|---|---|---|---|
"""

#: What has no goal goes to docs/performance.md, between these.
BEGIN, END = "<!-- written by make bench -->", "<!-- until here -->"
_COSTS = """\
| one more of | costs | |
|---|---|---|
"""


def draw(benchmark: Benchmark, numbers: Numbers, file: Path) -> None:
    """Write the plot of a benchmark."""
    figure = plots.figure(benchmark.height)
    benchmark.plot(figure, numbers)
    plots.save(figure, file)


def write(kept: Sequence[tuple[Benchmark, Numbers]], docs: Path = DOCS) -> None:
    """Write the page and the plots.

    Args:
        kept: each benchmark with `numbers`, `seconds` that they took, and the `machine`.
        docs: the directory.
    """
    plotted = docs / "benchmarks"
    plotted.mkdir(exist_ok=True)
    minutes = sum(one["seconds"] for _, one in kept) / 60
    lines = [_INTRODUCTION.format(minutes=minutes)]
    machine = kept[-1][1]["machine"]
    lines += [f"| {name} | {value} |\n" for name, value in machine.items()]
    lines.append(_TABLE)
    costs = [_COSTS]
    for benchmark, one in kept:
        for row in benchmark.rows(one["numbers"]):
            if not row.sign:
                costs.append(f"| {row.text} | {row.reached()} | {row.found} |\n")
                continue
            met = "yes" if row.met else "**no**"
            cells = (
                row.text, row.wanted(), row.reached(), met, row.found,
                f"[`{benchmark.name}`](#{_anchor(benchmark.title)})",
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |\n")
    for benchmark, one in kept:
        draw(benchmark, one["numbers"], plotted / f"{benchmark.name}.png")
        about = "\n".join(line.strip() for line in benchmark.about.splitlines())
        lines.append(
            f"\n## {benchmark.title}\n\n{about}\n\n"
            f"    .venv/bin/python t/bench/bench.py {benchmark.name}\n\n"
            f"![{benchmark.title}](benchmarks/{benchmark.name}.png)\n"
        )
    (docs / "benchmarks.md").write_text("".join(lines))
    _replace_costs(docs / "performance.md", "".join(costs))


def _replace_costs(file: Path, table: str) -> None:
    """Put a table where the old one is."""
    before, begin, rest = file.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{file}: expected lines {BEGIN!r} and {END!r}")
    file.write_text(f"{before}{BEGIN}\n\n{table}\n{END}{after}")


def _anchor(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    kept = "".join(one for one in title.lower() if one.isalnum() or one in " -_")
    return kept.replace(" ", "-")
