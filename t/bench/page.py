"""Writes docs/benchmarks.md, its plots, and tables of performance.md and comparison.md."""

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

#: What has no goal goes to docs/performance.md, between these, and tables of a benchmark to
#: docs/comparison.md, where the first has its name.
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


def write(kept: Sequence[tuple[Benchmark, Numbers | None]], docs: Path = DOCS) -> None:
    """Write the page and the plots.

    Args:
        kept: each benchmark with `numbers`, `seconds` that they took, and the `machine`; or with
            None if it is to stay on the page as it is there.
        docs: the directory.
    """
    page = docs / "benchmarks.md"
    (docs / "benchmarks").mkdir(exist_ok=True)
    measured = [one for _, one in kept if one is not None]
    old = page.read_text() if len(measured) < len(kept) else ""
    minutes = sum(one["seconds"] for one in measured) / 60
    lines = [_INTRODUCTION.format(minutes=minutes)]
    machine = measured[-1]["machine"]
    lines += [f"| {name} | {value} |\n" for name, value in machine.items()]
    if old:
        lines = [old.partition(_TABLE)[0]]
    lines.append(_TABLE)
    costs = [_COSTS]
    for benchmark, one in kept:
        command = f"[`{benchmark.name}`](#{_anchor(benchmark.title)})"
        if one is None:
            lines += [line for line in old.splitlines(True) if f"| {command} |" in line]
            continue
        for row in benchmark.rows(one["numbers"]):
            if not row.sign:
                costs.append(f"| {row.text} | {row.reached()} | {row.found} |\n")
                continue
            met = "yes" if row.met else "**no**"
            cells = (row.text, row.wanted(), row.reached(), met, row.found, command)
            lines.append(f"| {' | '.join(cells)} |\n")
    for benchmark, one in kept:
        if one is None:
            _, title, rest = old.partition(f"\n## {benchmark.title}\n")
            lines.append(title + rest.partition("\n## ")[0])
            continue
        draw(benchmark, one["numbers"], docs / "benchmarks" / f"{benchmark.name}.png")
        about = "\n".join(line.strip() for line in benchmark.about.splitlines())
        when = f"\nThese figures are of {one['machine']['date']}.\n" if old else ""
        lines.append(
            f"\n## {benchmark.title}\n\n{about}\n{when}\n"
            f"    .venv/bin/python t/bench/bench.py {benchmark.name}\n\n"
            f"![{benchmark.title}](benchmarks/{benchmark.name}.png)\n"
        )
        if benchmark.table is not None:
            begin = BEGIN.replace(" -->", f": {benchmark.name} -->")
            _replace(docs / "comparison.md", begin, benchmark.table(one["numbers"]))
    page.write_text("".join(lines))
    if not old:
        _replace(docs / "performance.md", BEGIN, "".join(costs))


def _replace(file: Path, begin: str, table: str) -> None:
    """Put a table where the old one is."""
    before, begin, rest = file.read_text().partition(begin)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{file}: expected lines {begin!r} and {END!r}")
    file.write_text(f"{before}{begin}\n\n{table}\n{END}{after}")


def _anchor(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    kept = "".join(one for one in title.lower() if one.isalnum() or one in " -_")
    return kept.replace(" ", "-")
