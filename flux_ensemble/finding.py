"""Findings of `doctor`: the state of something, and the remedy where it is not as it should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """The finding of one check.

    Args:
        check: the name of the check.
        state: whether the finding is good.
        text: what was found.
        advice: the remedy; empty if all is well.
    """

    check: str
    state: State
    text: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the finding as `doctor --json` prints it."""
        return {
            "check": self.check,
            "state": self.state,
            "found": self.text,
            "advice": self.advice,
        }
