"""What the plots have in common: looks, and the few kinds that there are.

Figures are drawn for a page of documentation: white, one font, few colours, the goal as a
dashed line. Files are the same for the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark import middle

#: Ours; what we are compared with; the third; goals.
OURS, OTHER, THIRD, GOAL = "#1f6fb2", "#8c8c8c", "#e0902f", "#c0392b"

WIDTH = 8.0

_LOOKS: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "font.size": 9,
    "grid.color": "#e5e5e5",
    "legend.frameon": False,
}


def figure(height: float) -> Any:
    """An empty figure of `height` inches."""
    # Not needed to measure, and large: it would count as memory of what is measured.
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(_LOOKS)
    return Figure(figsize=(WIDTH, height), layout="constrained")


def save(drawn: Any, file: Path) -> None:
    """Write a figure as PNG."""
    drawn.savefig(file, facecolor="white", dpi=110, metadata={"Software": None})


def ecdf(axes: Any, values: Sequence[float], label: str, color: str) -> None:
    """How many percent of the values are at most so large."""
    ordered = sorted(values)
    axes.step(
        ordered,
        [100 * (at + 1) / len(ordered) for at in range(len(ordered))],
        where="post",
        label=label,
        color=color,
    )
    axes.set_ylabel("percent of them")
    axes.set_ylim(0, 101)


def progress(axes: Any, times: Sequence[float], jobs: int, label: str, color: str) -> None:
    """How many jobs have got there by when; `times` are at equal numbers of jobs."""
    counts = [jobs * (at + 1) / len(times) for at in range(len(times))]
    axes.plot([0, *times], [0, *counts], label=label, color=color)
    axes.set_xlabel("seconds")


def bars(axes: Any, values: Mapping[str, Sequence[float]], colors: Sequence[str]) -> None:
    """A horizontal bar for each name: the median of its values, and each value as a dot."""
    names = list(values)
    axes.barh(names, [middle(values[name]) for name in names], color=colors, height=0.6)
    for name in names:
        axes.plot(values[name], [name] * len(values[name]), "o", color="black", ms=2.5)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def stacked(axes: Any, values: Mapping[str, Mapping[str, float]], colors: Sequence[str]) -> None:
    """A horizontal bar for each name, made of parts."""
    names = list(values)
    left = [0.0] * len(names)
    for part, color in zip(values[names[0]], colors, strict=True):
        widths = [values[name][part] for name in names]
        axes.barh(names, widths, left=left, color=color, label=part, height=0.6)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def legend(axes: Any, columns: int = 3, **more: Any) -> None:
    """A legend above the axes, where it covers nothing."""
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=columns, borderaxespad=0.2, **more)


def logarithmic(axes: Any) -> None:
    """A logarithmic x axis with plain numbers."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")


def goal(axes: Any, *, x: float | None = None, y: float | None = None, label: str = "goal") -> None:
    """A goal as a line."""
    if x is not None:
        axes.axvline(x, color=GOAL, ls="--", lw=1, label=label)
    if y is not None:
        axes.axhline(y, color=GOAL, ls="--", lw=1, label=label)
