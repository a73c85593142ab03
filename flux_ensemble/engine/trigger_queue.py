"""Rules that are to be evaluated, and the causes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from flux_ensemble.engine.job_changes import NO_NEWS, News
from flux_ensemble.engine.rule_state import RuleState
from flux_ensemble.metrics.conditions import Lookup
from flux_ensemble.metrics.job_fields import IdleField, JobField


class TriggeringJob(Protocol):
    """The job that triggers a rule, or the jobs that it waited for: see `job_view`."""

    def __call__(self, field: JobField | IdleField) -> Any: ...

    @property
    def params(self) -> Mapping[str, Any]: ...

    def told(self) -> dict[str, Any]: ...


class Cause:
    """The cause of a rule's evaluation.

    Args:
        event: the event for the log and for custom functions.
        rule: the rule whose job or request is the cause, or None.
        chain: the rules that led here with no job or time between.
        job: a view of the job of the event, or None.
        group: the group of the ensemble's job that is the cause, or None.
        combinations: the watched combinations of that job.
        member: the number of the member that the firing is about, 0 if it is about none.
        news: the effect of the event, if it is one of a job.
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
        news: News = NO_NEWS,
    ) -> None:
        self.event = event
        self.rule = rule
        self.chain = chain
        self.job = job
        self.group = group
        self.combinations = combinations
        self.member = member
        self.news = news


class TriggerQueue:
    """A rule that is to be evaluated.

    A generator of such objects may rely on the order: each rule is evaluated and its action is
    performed, and so on with the rules that the action triggers, before the next one is taken.

    Args:
        state: the rule.
        cause: the cause of the evaluation.
        lookup: returns the values of metrics; None for those at the time of the evaluation.
        memo: the keys of a memo event, which the rule's condition may name.
        combination: the combination that is idle, for a rule with `by`; or the name of the member,
            for a rule with `scope: member`.
        member: the number of the member that the evaluation is about. If it is 0, a rule with
            `scope: member` is evaluated for the member of the job, and without a job for each.
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
