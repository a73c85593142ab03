"""Rules that are to be evaluated, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from flux_ensemble.engine.rule_state import RuleState
from flux_ensemble.metrics.conditions import Lookup
from flux_ensemble.metrics.job_fields import JobField


class TriggeringJob(Protocol):
    """The job that triggers a rule: see `job_view.JobView`."""

    def __call__(self, field: JobField) -> Any: ...

    @property
    def params(self) -> Mapping[str, Any]: ...

    def told(self) -> dict[str, Any]: ...


class Cause:
    """Why a rule is evaluated.

    Args:
        event: what the log and custom functions get to see.
        rule: the rule whose job or request caused it, or None.
        chain: the rules that led here with no job or time between.
        job: the job whose event it is, or None.
        group: of the job of the ensemble that caused it, or None.
        combinations: of that job, as far as they are watched.
        member: the number of the member that the firing is about, 0 if it is about none.
    """

    def __init__(
        self,
        event: Mapping[str, Any],
        rule: str | None = None,
        chain: tuple[str, ...] = (),
        job: TriggeringJob | None = None,
        group: str | None = None,
        combinations: tuple[str, ...] = (),
        member: int = 0,
    ) -> None:
        self.event = event
        self.rule = rule
        self.chain = chain
        self.job = job
        self.group = group
        self.combinations = combinations
        self.member = member


class Triggered:
    """A rule that is to be evaluated.

    A function that returns or yields several relies on this: each is evaluated, its action
    performed, and so on with the rules that the action triggers, before the next one is asked for.

    Args:
        state: the rule.
        cause: why.
        lookup: gives the values of metrics; None for those at the time of the evaluation.
        memo: the keys of a memo event, which the rule's condition may name.
        combination: that is idle, for a rule with `by`.
        member: the number of the member that it is about; a rule with `scope: member` is
            evaluated for the member of the job if it is 0, and without a job for each.
    """

    def __init__(
        self,
        state: RuleState,
        cause: Cause,
        lookup: Lookup | None = None,
        memo: Mapping[str, Any] | None = None,
        combination: str | None = None,
        member: int = 0,
    ) -> None:
        self.state = state
        self.cause = cause
        self.lookup = lookup
        self.memo = memo
        self.combination = combination
        self.member = member
