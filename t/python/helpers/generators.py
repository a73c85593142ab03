"""Generators of gest-api for tests: one that learns, and those that do something wrong."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from typing import Any


class Learner:
    """Gives points near the best that it was told of; a function of its data and its seed."""

    def __init__(self, vocs: Any, reach: float = 0.1) -> None:
        self.vocs = vocs
        self.reach = reach
        self.told: list[dict[str, Any]] = []

    def suggest(self, num_points: int) -> list[dict[str, Any]]:
        """As gest-api has it."""
        return [self.point() for _ in range(num_points)]

    def point(self) -> dict[str, Any]:
        """One point."""
        (objective,) = self.vocs.objectives
        best = min(self.told, key=lambda result: float(result[objective]), default={})
        point = {}
        for name, variable in self.vocs.variables.items():
            if hasattr(variable, "values"):
                point[name] = random.choice(list(variable.values))
                continue
            low, high = variable.domain
            at = best.get(name, (low + high) / 2)
            reach = self.reach * (high - low)
            point[name] = random.uniform(max(low, at - reach), min(high, at + reach))
        return point

    def ingest(self, results: list[dict[str, Any]]) -> None:
        """As gest-api has it."""
        self.told += results


class Kept(Learner):
    """Has a state besides its data: how often it was asked."""

    def __init__(self, vocs: Any) -> None:
        super().__init__(vocs)
        self.asked = 0

    def suggest(self, num_points: int) -> list[dict[str, Any]]:
        """Each point is called after the ask."""
        self.asked += 1
        return [{**point, "_id": self.asked} for point in super().suggest(num_points)]

    def dump(self) -> dict[str, Any]:
        """What `load` takes."""
        return {"asked": self.asked, "told": self.told}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.asked, self.told = state["asked"], list(state["told"])


class Waits(Learner):
    """Says in a file when it is asked with data, and waits there until there is another one."""

    def suggest(self, num_points: int) -> list[dict[str, Any]]:
        """As gest-api has it."""
        if len(self.told) == 4:
            Path("asked").touch()
            while not Path("go-on").exists():
                time.sleep(0.05)
        return super().suggest(num_points)


class Bad:
    """Does something wrong.

    Args:
        vocs: what is searched.
        how: an expression, which gives the points.
        begin: an expression that is evaluated first.
    """

    def __init__(self, vocs: Any, how: str = "[]", begin: str = "None") -> None:
        self.vocs = vocs
        self.how = how
        self.told: list[dict[str, Any]] = []
        eval(begin, {"os": os, "sys": sys, "time": time})

    def suggest(self, num_points: int) -> Any:
        """What it was told to give."""
        names = {"n": num_points, "self": self, "os": os, "sys": sys, "time": time}
        return eval(self.how, names)

    def ingest(self, results: list[dict[str, Any]]) -> None:
        """It learns nothing of them."""
        self.told += results


class Silent:
    """Has no method that suggests."""

    def __init__(self, vocs: Any) -> None:
        pass


def no_class() -> None:
    """Not what a search can use: it takes nothing."""
