"""The mapping `scaling` of a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.document.feature import DocumentFeature
from flux_ensemble.document.keys.reading import read_keys
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.features.scaling.keys import SCALING_KEYS


@dataclass(frozen=True, slots=True)
class Scaling:
    """Bounds and limits of `grow` and `shrink`.

    Args:
        min_nodes: fewest nodes.
        max_nodes: most nodes; None leaves it to the member.
        deadline: seconds after which an unanswered request is given up.
        refusals: how many in a row disable a rule.
    """

    min_nodes: int = 1
    max_nodes: int | None = None
    deadline: float = 600.0
    refusals: int = 3


def read_scaling(section: Mapping[str, Any], problems: Problems) -> Scaling:
    """Return the bounds of the instance's nodes, and the limits of scaling requests.

    >>> read_scaling({"max-nodes": 8, "deadline": "5m"}, Problems())
    Scaling(min_nodes=1, max_nodes=8, deadline=300.0, refusals=3)
    """
    at: Path = ("scaling",)
    fields = read_keys(SCALING_KEYS, section, problems, at)
    low, high = fields.get("min_nodes", 1), fields.get("max_nodes")
    if high is not None and low > high:
        problems.add((*at, "min-nodes"), f"expected at most max-nodes, which is {high}, not {low}")
    if fields.get("deadline") == 0:
        problems.add((*at, "deadline"), "expected a duration > 0, not 0")
    return Scaling(**fields)


FEATURE = DocumentFeature("scaling", settings=read_scaling)
