"""Limits on the runs of a rule: repetitions, backoff and cooldown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.document.model import Action


@dataclass(slots=True, eq=False)
class Turns:
    """The runs of a rule so far, and the limits on the next one.

    A rule with `by` has one such object for each combination, and a rule with `scope: member` one
    for each member.
    """

    #: Runs that are left; None is unlimited.
    left: int | None = field(init=False, default=None)
    #: Matching evaluations to skip before the next run (backoff).
    skip: int = field(init=False, default=0)
    #: No run before this time (cooldown).
    t_next: float = field(init=False, default=0.0)
    #: The number of runs of the action.
    fired: int = field(init=False, default=0)

    def take(self, action: Action, t: float) -> bool:
        """Count a matching evaluation at time `t`; return True if the action is to run."""
        if self.skip > 0:
            self.skip -= 1
            return False
        if t < self.t_next or self.left == 0:
            return False
        self.skip = action.backoff
        self.t_next = t + action.cooldown if action.cooldown else 0.0
        self.fired += 1
        if self.left is not None:
            self.left -= 1
        return True


def dump_turns(turns: Mapping[str, Turns]) -> dict[str, Any]:
    """Return the turns of each combination as JSON; `left` follows from `fired`."""
    return {name: [each.fired, each.skip, each.t_next] for name, each in turns.items()}


def load_turns(value: Mapping[str, Any], repetitions: int | None) -> dict[str, Turns]:
    """Return the turns from the result of `dump_turns`."""
    turns = {}
    for name, (fired, skip, t_next) in value.items():
        turns[name] = each = Turns()
        each.left = None if repetitions is None else repetitions - fired
        each.fired, each.skip, each.t_next = fired, skip, t_next
    return turns
