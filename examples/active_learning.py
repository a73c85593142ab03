"""The generator of active-learning.yaml: it asks for values where the model is most in doubt.

A generator of gest-api is a class with `suggest` and `ingest`. flux-ensemble looks for its module
beside the document, and makes a new one after each `refresh`, so the model is read when it begins.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from gest_api import Generator


class Doubt(Generator):
    """Suggests points in the middle of wide gaps, and above all where the model is steep.

    Args:
        vocs: the variables and objectives of the search.
        model: the file of the model: lines with x and y, by x. It need not be there yet.
    """

    def __init__(self, vocs: Any, model: str) -> None:
        super().__init__(vocs)
        (self.name,) = vocs.variables
        low, high = vocs.variables[self.name].domain
        self.model = {low: 0.0, high: 0.0}
        path = Path(model)
        lines = path.read_text().splitlines() if path.exists() else []
        for line in lines:
            x, y = map(float, line.split())
            self.model[x] = y
        self.points = set(self.model)

    def _validate_vocs(self, vocs: Any) -> None:
        if len(vocs.variables) != 1:
            raise ValueError("this generator is for one variable")

    def ingest(self, results: list[dict[str, Any]]) -> None:
        """Take in what was measured: where, since the values come with the next model."""
        self.points.update(result[self.name] for result in results)

    def suggest(self, num_points: int | None) -> list[dict[str, Any]]:
        """The middles of the gaps that are most in doubt."""
        suggested = []
        for _ in range(num_points or 1):
            begin, end = max(pairwise(sorted(self.points)), key=lambda gap: self.doubt(*gap))
            middle = (begin + end) / 2
            self.points.add(middle)
            suggested.append({self.name: middle})
        return suggested

    def doubt(self, begin: float, end: float) -> float:
        """How little is known between two points."""
        return (end - begin) * (0.1 + abs(self.value(end) - self.value(begin)))

    def value(self, x: float) -> float:
        """What the model says, which is straight between the points that it was trained on."""
        below = max(known for known in self.model if known <= x)
        above = min(known for known in self.model if known >= x)
        share = (x - below) / (above - below) if above > below else 0.0
        return self.model[below] + share * (self.model[above] - self.model[below])
