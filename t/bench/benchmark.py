"""What a benchmark is: see `Benchmark`.

The numbers of one are a JSON object, so that they can be kept, and rows and plots be made of
them later, and without Flux.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

#: What was measured: a JSON object.
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A goal, and what was reached; or what was found where there is no goal.

    Args:
        text: what is measured.
        value: what was reached.
        sign: ">=" or "<="; "" if there is no goal.
        goal: the bound.
        unit: of both.
        found: what the value was made of, in words.
    """

    text: str
    value: float
    sign: str = ""
    goal: float = 0.0
    unit: str = ""
    found: str = ""

    @property
    def met(self) -> bool:
        """The goal, if there is one, is reached."""
        if not self.sign:
            return True
        return self.value >= self.goal if self.sign == ">=" else self.value <= self.goal

    def wanted(self) -> str:
        """The goal as text."""
        return f"{self.sign} {show(self.goal, self.unit)}" if self.sign else "no goal"

    def reached(self) -> str:
        """The value as text."""
        return show(self.value, self.unit)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark.

    Args:
        name: its name on the command line.
        title: its heading.
        about: how it is measured; one paragraph.
        measure: measures, in sizes that are tiny where its argument is true.
        rows: what came of it, by its numbers.
        plot: draws its numbers into a figure of matplotlib.
        height: of the plot in inches.
        lacks: what is not there that it needs, in words; None if it can be measured.
        table: its table in docs/comparison.md, by its numbers.
    """

    name: str
    title: str
    about: str
    measure: Callable[[bool], Numbers]
    rows: Callable[[Numbers], list[Row]]
    plot: Callable[[Any, Numbers], None]
    height: float = 2.6
    lacks: Callable[[], str | None] = lambda: None
    table: Callable[[Numbers], str] | None = None


def show(value: float, unit: str) -> str:
    """A number with its unit, with three digits or so."""
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text}{unit}" if unit in ("x", "%", "") else f"{text} {unit}"


def percentile(values: Sequence[float], percent: int) -> float:
    """The value below which so many percent of the values are."""
    if len(values) < 2:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def middle(values: Sequence[float]) -> float:
    """The median."""
    return float(median(values))
