"""What the sharness tests expect of the examples on Flux."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_LIST = Path(__file__).parents[2] / "lib" / "examples.txt"

OUTCOMES = ("success", "failed", "canceled", "timeout")


class End(NamedTuple):
    """What an example comes to.

    Args:
        fired: how often each rule fires, in their order.
        counts: outcomes by group.
    """

    fired: tuple[int, ...]
    counts: dict[str, tuple[int, ...]]


def _numbers(text: str, separator: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(separator)))


def _read() -> dict[str, End]:
    ends = {}
    for line in _LIST.read_text().splitlines():
        if not line.startswith("#"):
            name, fired, *groups = line.split()
            pairs = (group.split("=") for group in groups)
            counts = {group: _numbers(outcomes, "/") for group, outcomes in pairs}
            ends[name] = End(_numbers(fired, ","), counts)
    return ends


def end_of(status: Mapping[str, Any]) -> End:
    """What an ensemble came to, by its status."""
    counts = {
        group: tuple(counts[outcome] for outcome in OUTCOMES)
        for group, counts in status["groups"].items()
    }
    return End(tuple(rule["fired"] for rule in status["rules"]), counts)


#: By example, but for those that vary.
EXPECTED = _read()

#: Examples whose counts depend on how fast jobs are: which trials are stopped early.
VARY = frozenset({"tune", "asha", "median-stop"})

#: Examples of what is on Flux and in the simulator alone.
MEMBERS = frozenset({"members", "member-scope", "pinned", "tasks"})

#: Examples of what is on Flux alone: jobs from outside, another size, and members that are killed
#: or outlived by their jobs.
ON_FLUX = frozenset({
    "queue-scope", "grow-on-pending", "shrink-when-idle", "minicluster", "member-lost",
    "rolling-allocations", "workload-demand",
})  # fmt: skip
