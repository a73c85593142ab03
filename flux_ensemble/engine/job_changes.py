"""What an event of an ensemble's own job changes, and the rules that this triggers."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

from flux_ensemble.document.model import GAVE_UP_TRIGGER, OUTCOME_TRIGGERS
from flux_ensemble.engine.rule_state import RuleState
from flux_ensemble.metrics.names import MEMBER, MEMBER_METRICS
from flux_ensemble.metrics.paths import COUNT, PENDING_NODES, MetricPath

#: outcome -> the trigger that names it.
TRIGGER_OF = {outcome: trigger for trigger, outcome in OUTCOME_TRIGGERS.items()}

#: A metric that changed. Of a group: a counter ("count", counter), a stream ("", variable) or a
#: best job ("best", name) or search ("search", id); of the member: ("queue", "pending-nodes").
Change = tuple[str, str]

#: The change by which a job is known that was to run again and has been tried often enough.
GAVE_UP: Change = (COUNT, "gave-up")

#: Begins the change by which a rule is known whose detector was triggered: (DETECTED, rule id).
DETECTED = "detected"

#: The effect of an event of the ensemble's own job: the outcome that it gives the job, if rules are
#: to see it, and the metrics of the group that changed. (When a job is submitted or starts, the
#: number of nodes that jobs wait for changes too; the index knows that from the event.)
News = tuple[str | None, tuple[Change, ...]]


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
    """The rules that an event triggers, found by what it changes.

    Args:
        own: (trigger, group or None) -> rules on jobs of the ensemble, by position; added to later.
        metric: a metric, of streams without the statistic -> rules, by position; added to later.
    """

    def __init__(
        self,
        own: Mapping[tuple[str, str | None], dict[int, RuleState]],
        metric: Mapping[MetricPath, dict[int, RuleState]],
    ) -> None:
        self._own = own
        self._metric = metric
        #: Arguments of `triggered` -> the tables with the rules for them.
        self._tables_of: dict[Hashable, tuple[dict[int, RuleState], ...]] = {}
        #: The latest of these by group and event: mostly the next event has the same effect.
        self._latest: dict[str, dict[str, _Latest]] = {}

    def changed(self) -> None:
        """There are new tables, or tables with their first rule."""
        self._tables_of.clear()
        self._latest.clear()

    def triggered(self, group: str, event: str, news: News) -> Sequence[RuleState]:
        """Rules that an event of the ensemble's own job triggers, in order.

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
            tables = self._tables_for(group, event, outcome, changed)
        if not tables:
            return ()
        if len(tables) == 1:
            # Rules are added in order.
            return list(tables[0].values())
        by_position: dict[int, RuleState] = {}
        for table in tables:
            by_position.update(table)
        return [by_position[position] for position in sorted(by_position)]

    def _tables_for(
        self, group: str, event: str, outcome: str | None, changed: tuple[Change, ...]
    ) -> tuple[dict[int, RuleState], ...]:
        """The tables for `triggered`, which are kept if there are others like this event."""
        key = group, event, outcome, changed
        tables = self._tables_of.get(key)
        if tables is None:
            tables = self._own_tables(group, event, outcome, changed)
            # Memos can change ever new metrics, and detections are rare; other events change the
            # same ones again.
            if event == "memo" or any(kind == DETECTED for kind, _ in changed):
                return tables
            self._tables_of[key] = tables
        self._latest.setdefault(group, {})[event] = _Latest(outcome, changed, tables)
        return tables

    def _own_tables(
        self, group: str, event: str, outcome: str | None, changed: Collection[Change]
    ) -> tuple[dict[int, RuleState], ...]:
        """The tables with rules for `triggered`; empty ones are left out."""
        triggers = [f"job-{event}"]
        if outcome is not None:
            triggers.append(TRIGGER_OF[outcome])
        if GAVE_UP in changed:
            triggers.append(GAVE_UP_TRIGGER)
        tables = [
            self._own.get(key)
            for trigger in triggers
            for key in ((trigger, group), (trigger, None))
        ]
        tables += [
            self._metric.get(
                MetricPath(statistic, MEMBER if statistic in MEMBER_METRICS else group, variable)
            )
            for statistic, variable in changed
        ]
        if event in ("submit", "start"):
            tables.append(self._metric.get(PENDING_NODES))
        return tuple(table for table in tables if table)
