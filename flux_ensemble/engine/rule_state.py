"""A rule at run time: its counters and limits, and its compiled condition and expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.document.action_templates import Filling
from flux_ensemble.document.model import Action, Rule
from flux_ensemble.metrics.conditions import Condition
from flux_ensemble.metrics.paths import MetricPath


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


#: Attributes of a rule's state that a snapshot holds as they are.
_DUMPED = ("enabled", "skip", "t_next", "fired", "number", "timer", "error")


@dataclass(slots=True, eq=False)
class RuleState(Turns):
    """A rule and its counters."""

    rule: Rule
    #: The rule's place in the order in which rules act.
    position: int
    #: The metric of a metric rule that names one.
    path: MetricPath | None
    condition: Condition | None
    #: For each action, its compiled expressions, or None.
    fillings: tuple[Filling | None, ...]
    #: The groups that the rule is about: those that it selects, or those whose metrics trigger it.
    groups: tuple[str, ...]
    enabled: bool = field(init=False)
    #: True if the rule is evaluated for each member (`scope: member`).
    of_member: bool = field(init=False)
    #: Number of the next firing; ahead of `fired` if a custom function returned actions.
    number: int = field(init=False, default=0)
    #: True if the rule's timer is set.
    timer: bool = field(init=False, default=False)
    #: The reason of the last failure; None if it was made up for since: by a success, by enabling
    #: the rule, or by a rule that reacts to the failure.
    error: str | None = field(init=False, default=None)
    #: Ids of the rules whose jobs triggered this one.
    causes: set[str] = field(init=False, default_factory=set)
    #: For a rule with `by`, the runs for each combination that has limits; with `scope: member`,
    #: the runs for each member, by name.
    turns: dict[str, Turns] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.enabled = self.rule.enabled
        self.of_member = self.rule.scope == "member"
        self.left = self.repetitions

    @property
    def repetitions(self) -> int | None:
        """The most runs in all; None if unlimited, or limited for each combination or member."""
        return None if self.rule.by or self.of_member else self.rule.action.repetitions

    @property
    def live(self) -> bool:
        """True if the rule has runs left."""
        return self.left is None or self.left > 0

    @property
    def armed(self) -> bool:
        """True if the rule is enabled and has runs left."""
        return self.enabled and self.live

    def take_turn(self, t: float, combination: str | None = None) -> bool:
        """Count a matching evaluation at time `t`; return True if the action is to run.

        Args:
            t: the time.
            combination: for a rule with `by`, the combination; with `scope: member`, the name of
                the member.
        """
        action = self.rule.action
        if combination is None:
            return self.take(action, t)
        turns = self.turns.get(combination)
        if turns is None:
            turns = Turns()
            turns.left = action.repetitions
            if turns.left is not None or action.backoff or action.cooldown or self.of_member:
                self.turns[combination] = turns
        mine = turns.take(action, t)
        self.fired += mine
        return mine

    def may_run_for(self, combination: str) -> bool:
        """Return whether the rule has runs left for a combination, or a member."""
        turns = self.turns.get(combination)
        left = self.rule.action.repetitions if turns is None else turns.left
        return left is None or left > 0

    def next_number(self) -> int:
        """Return the number for a new firing."""
        self.number += 1
        return self.number - 1

    def dump(self) -> list[Any]:
        """Return the counters as JSON; `left` follows from `fired`."""
        return [self.rule.id, *(getattr(self, name) for name in _DUMPED), sorted(self.causes)]

    def load(self, value: Sequence[Any]) -> None:
        """Set the counters from the result of `dump`.

        Raises:
            ValueError: the rule ran more often than its repetitions allow.
        """
        for name, attribute in zip(_DUMPED, value[1:-1], strict=True):
            setattr(self, name, attribute)
        self.causes.update(value[-1])
        if self.left is not None:
            self.left -= self.fired
            if self.left < 0:
                raise ValueError(f"its rule {self.rule.id!r} ran {self.fired} times")
