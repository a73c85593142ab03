"""The changes by an event of an ensemble's own job, and the rules that these trigger."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from flux_ensemble.document.keys.rules import GAVE_UP_TRIGGER, OUTCOME_TRIGGERS
from flux_ensemble.engine.rule_state import RuleState
from flux_ensemble.metrics.names import MEMBER, MEMBER_METRICS
from flux_ensemble.metrics.paths import COUNT, PENDING_NODES, MetricPath

#: Outcome -> the trigger that names it.
TRIGGER_OF = {outcome: trigger for trigger, outcome in OUTCOME_TRIGGERS.items()}

#: A metric that changed. For a group: a counter ("count", counter), a stream ("", variable), a best
#: job ("best", name) or a search ("search", id). For the member: ("queue", "pending-nodes").
#: Or a mark, such as `(TRIGGER, "job-gave-up")`: the event triggers rules on that.
Change = tuple[str, str]

#: The first part of a mark. It is for triggers that the event's name and the outcome do not give.
TRIGGER = "trigger"

#: The changes when a job has used up its retries.
GAVE_UP: tuple[Change, ...] = ((COUNT, "gave-up"), (TRIGGER, GAVE_UP_TRIGGER))

#: The first part of the change when the detector of a rule was triggered: (DETECTED, rule id).
DETECTED = "detected"

#: The effect of an event of the ensemble's own job: the outcome that the event gives the job, if
#: rules are to see it, and the metrics of the group that changed. (When a job is submitted or
#: starts, the number of pending nodes changes too; `RulesByNews` derives that from the event.)
News = tuple[str | None, tuple[Change, ...]]

#: The effect of most events.
NO_NEWS: News = (None, ())


def further_triggers(news: News) -> list[str]:
    """Return the triggers of an event of a job besides `job-EVENT`: by its outcome, and by marks.

    >>> further_triggers(("failed", ((COUNT, "failed"), *GAVE_UP)))
    ['job-fail', 'job-gave-up']
    """
    outcome, changed = news
    triggers = [] if outcome is None else [TRIGGER_OF[outcome]]
    triggers += [name for kind, name in changed if kind == TRIGGER]
    return triggers


class _Latest:
    """The latest effect of an event, and the tables with the rules for it."""

    def __init__(
        self,
        outcome: str | None,
        changed: tuple[Change, ...],
        tables: tuple[dict[int, RuleState], ...],
    ) -> None:
        self.outcome = outcome
        self.changed = changed
        self.tables = tables


class RulesByNews:
    """An index of rules by the changes that trigger them.

    Args:
        own: (trigger, group or None) -> rules on jobs of the ensemble, by position.
        metric: a metric (of a stream, without the statistic) -> rules, by position.

    The caller adds to both later, and then calls `changed`.
    """

    def __init__(
        self,
        own: Mapping[tuple[str, str | None], dict[int, RuleState]],
        metric: Mapping[MetricPath, dict[int, RuleState]],
    ) -> None:
        self._own = own
        self._metric = metric
        #: Arguments of `triggered` -> the tables of the triggered rules.
        self._tables_of: dict[Hashable, tuple[dict[int, RuleState], ...]] = {}
        #: Group and event -> the latest effect: the next event mostly has the same.
        self._latest: dict[str, dict[str, _Latest]] = {}

    def changed(self) -> None:
        """Drop what is cached: there are new tables, or tables with their first rule."""
        self._tables_of.clear()
        self._latest.clear()

    def triggered(self, group: str, event: str, news: News) -> Sequence[RuleState]:
        """Return the rules that an event of the ensemble's own job triggers, in order.

        Args:
            group: the job's group.
            event: the event's name.
            news: the effect of the event.
        """
        outcome, changed = news
        of_group = self._latest.get(group)
        latest = of_group.get(event) if of_group is not None else None
        if latest is not None and latest.changed is changed and latest.outcome == outcome:
            tables = latest.tables
        else:
            tables = self._tables_for(group, event, news)
        if not tables:
            return ()
        if len(tables) == 1:
            # A table is in order already, since rules are added in order.
            return list(tables[0].values())
        by_position: dict[int, RuleState] = {}
        for table in tables:
            by_position.update(table)
        return [by_position[position] for position in sorted(by_position)]

    def _tables_for(self, group: str, event: str, news: News) -> tuple[dict[int, RuleState], ...]:
        """Return the tables for `triggered`, and cache them if further such events are likely."""
        outcome, changed = news
        key = group, event, outcome, changed
        tables = self._tables_of.get(key)
        if tables is None:
            tables = self._own_tables(group, event, news)
            # A cache of memos could grow without bound, since each memo can change other metrics,
            # and detections are rare. Other events change the same metrics again and again.
            if event == "memo" or any(kind == DETECTED for kind, _ in changed):
                return tables
            self._tables_of[key] = tables
        self._latest.setdefault(group, {})[event] = _Latest(outcome, changed, tables)
        return tables

    def _own_tables(self, group: str, event: str, news: News) -> tuple[dict[int, RuleState], ...]:
        """Return the tables with rules for `triggered`, without empty ones."""
        tables = [
            self._own.get(key)
            for trigger in (f"job-{event}", *further_triggers(news))
            for key in ((trigger, group), (trigger, None))
        ]
        tables += [
            self._metric.get(
                MetricPath(statistic, MEMBER if statistic in MEMBER_METRICS else group, variable)
            )
            for statistic, variable in news[1]
        ]
        if event in ("submit", "start"):
            tables.append(self._metric.get(PENDING_NODES))
        return tuple(table for table in tables if table)
