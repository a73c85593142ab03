"""Rules at run time: their counters, and the index from an event to its rules.

The index makes an event cost the rules that it can trigger. A rule that has no
repetitions left leaves the index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from flux_ensemble.engine.compact import not_default
from flux_ensemble.engine.conditions import SUBJECTS, Condition, Subject, compile_condition
from flux_ensemble.engine.paths import COUNT, PENDING_NODES, MetricPath, parse_path
from flux_ensemble.spec.model import (
    JOB_EVENTS,
    MEMBER,
    MEMBER_METRICS,
    OUTCOME_TRIGGERS,
    Action,
    Rule,
    Spec,
)

#: Events that every ensemble needs from the journal.
BASE_EVENTS = frozenset(
    {"submit", "validate", "invalidate", "start", "finish", "exception", "clean", "memo"}
)

#: trigger -> the event that it needs. Triggers that name an outcome need no more.
_NEEDED = {f"job-{name}": name for name in JOB_EVENTS}

#: outcome -> the trigger that names it.
TRIGGER_OF = {outcome: trigger for trigger, outcome in OUTCOME_TRIGGERS.items()}

#: What changes of a group: a counter ("count", counter), or a stream ("", variable); or of
#: the member, as ("queue", "pending-nodes").
Change = tuple[str, str]

#: What an event of a job of ours has brought about: the outcome that the job has by it, if
#: rules are to see it, and the metrics of the group that changed. (Where a job is submitted or
#: starts, the nodes that jobs wait for change too; the index knows that by the event.)
News = tuple[str | None, tuple[Change, ...]]


#: Attributes of a rule's state that a snapshot holds as they are.
_DUMPED = ("enabled", "skip", "t_next", "fired", "number", "timer", "error")


class RuleState:
    """A rule and how often it ran.

    Attributes:
        position: place in the order in which rules act.
        path: the metric of a metric rule that names one.
        left: runs that are left; None is unlimited.
        skip: matching evaluations to skip before the next run (backoff).
        t_next: no run before this time (cooldown).
        fired: how often the action ran.
        number: number of the next firing; ahead of `fired` where a custom function
            returned actions.
        timer: its timer is set.
        error: why it failed last, or None.
        causes: ids of the rules whose jobs triggered it.
    """

    __slots__ = (
        "causes",
        "condition",
        "enabled",
        "error",
        "fired",
        "left",
        "number",
        "path",
        "position",
        "rule",
        "skip",
        "t_next",
        "timer",
    )

    def __init__(
        self, rule: Rule, position: int, path: MetricPath | None, condition: Condition | None
    ) -> None:
        self.rule = rule
        self.position = position
        self.path = path
        self.condition = condition
        self.enabled = rule.enabled
        self.left = rule.action.repetitions
        self.skip = 0
        self.t_next = 0.0
        self.fired = 0
        self.number = 0
        self.timer = False
        self.error: str | None = None
        self.causes: set[str] = set()

    @property
    def live(self) -> bool:
        """It can still run, now or once it is enabled."""
        return self.left is None or self.left > 0

    @property
    def armed(self) -> bool:
        """It is enabled and has runs left."""
        return self.enabled and self.live

    def take_turn(self, t: float) -> bool:
        """Count a matching evaluation at time `t`; True if the action is to run."""
        if self.skip > 0:
            self.skip -= 1
            return False
        if t < self.t_next:
            return False
        action = self.rule.action
        self.skip = action.backoff
        self.t_next = t + action.cooldown if action.cooldown else 0.0
        self.fired += 1
        if self.left is not None:
            self.left -= 1
        return True

    def next_number(self) -> int:
        """The number of a new firing."""
        self.number += 1
        return self.number - 1

    def dump(self) -> list[Any]:
        """Its counters as JSON; `left` follows from `fired`."""
        return [self.rule.id, *(getattr(self, name) for name in _DUMPED), sorted(self.causes)]

    def load(self, value: Sequence[Any]) -> None:
        """Take over what `dump` gave.

        Raises:
            ValueError: it ran more often than it may.
        """
        for name, attribute in zip(_DUMPED, value[1:-1], strict=True):
            setattr(self, name, attribute)
        self.causes.update(value[-1])
        if self.left is not None:
            self.left -= self.fired
            if self.left < 0:
                raise ValueError(f"its rule {self.rule.id!r} ran {self.fired} times")


def metric_key(path: MetricPath) -> MetricPath:
    """What changes when the metric does: a counter, or a stream whatever the statistic."""
    whole = path.statistic == COUNT or path.statistic in MEMBER_METRICS
    return path if whole else MetricPath("", path.group, path.variable)


class RuleIndex:
    """All rules of an ensemble, by id and by what triggers them."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.states: dict[str, RuleState] = {}
        self.wants_events = BASE_EVENTS
        self.wants_nodes: frozenset[str] = frozenset()
        #: (trigger, group or None) -> rules on jobs of this ensemble.
        self._own: defaultdict[tuple[str, str | None], dict[int, RuleState]] = defaultdict(dict)
        #: the same for jobs of others; a rule with scope queue is in both.
        self._foreign: defaultdict[tuple[str, str | None], dict[int, RuleState]] = defaultdict(dict)
        self._metric: defaultdict[MetricPath, dict[int, RuleState]] = defaultdict(dict)
        #: What `own` was asked for -> the tables that hold the answer, where it is in any.
        self._tables_of: dict[Hashable, tuple[dict[int, RuleState], ...]] = {}
        #: trigger -> rules, for the triggers that are not about jobs.
        self._plain: defaultdict[str, dict[int, RuleState]] = defaultdict(dict)
        #: Names of jobs of others that rules are about, None where one is about all, and how
        #: many rules.
        self._foreign_names: defaultdict[str | None, int] = defaultdict(int)
        self._statistics = frozenset(one.name for one in spec.statistics)
        #: What many rules say alike is compiled once.
        self._conditions: dict[tuple[float | str, Subject], Condition] = {}
        for rule in spec.rules:
            self.add(rule)

    def add(self, rule: Rule) -> RuleState:
        """Add a rule that was checked; it acts after those that are there."""
        path = condition = None
        if rule.trigger == "metric" and rule.name is not None:
            path = parse_path(rule.name, self._spec.groups, self._statistics)
        if rule.when is not None:
            condition = self._condition(rule.when, SUBJECTS.get(rule.trigger))
        state = RuleState(rule, len(self.states), path, condition)
        self.states[rule.id] = state
        for table in self._tables(state):
            table[state.position] = state
        self._tables_of.clear()
        if state.position in self._plain["foreign"]:
            self._foreign_names[rule.group] += 1
        read = {*([path] if path else ()), *(condition.paths if condition else ())}
        self.wants_nodes |= {one.variable for one in read if one.statistic == "nodes"}
        if (needed := _NEEDED.get(rule.trigger)) is not None:
            self.wants_events |= {needed}
        return state

    def retire(self, state: RuleState) -> None:
        """Take a rule out of the index that will not run again."""
        if state.position in self._plain["foreign"]:
            group = state.rule.group
            self._foreign_names[group] -= 1
            if not self._foreign_names[group]:
                del self._foreign_names[group]
        for table in self._tables(state):
            table.pop(state.position, None)

    def _condition(self, when: float | str, subject: Subject) -> Condition:
        key = when, subject
        if key not in self._conditions:
            self._conditions[key] = compile_condition(
                when, groups=self._spec.groups, statistics=self._statistics, subject=subject
            )
        return self._conditions[key]

    def _tables(self, state: RuleState) -> Iterator[dict[int, RuleState]]:
        rule = state.rule
        if rule.trigger.startswith("job-"):
            yield self._own[rule.trigger, rule.group]
            if rule.scope == "queue":
                yield self._foreign[rule.trigger, rule.group]
                yield self._plain["foreign"]
        elif rule.trigger == "idle":
            yield self._own["idle", rule.group]
        else:
            yield self._plain[rule.trigger]
            if rule.trigger == "metric":
                condition = state.condition
                paths = (state.path,) if state.path else condition.paths if condition else ()
                for path in paths:
                    yield self._metric[metric_key(path)]

    def own(self, group: str, event: str, news: News) -> Sequence[RuleState]:
        """Rules that an event of a job of ours triggers, in order.

        Args:
            group: the job's group.
            event: the event's name.
            news: what it has brought about.
        """
        key = group, event, news
        tables = self._tables_of.get(key)
        if tables is None:
            tables = self._own_tables(group, event, *news)
            # Memos bring about ever new changes, the other events the same ones again.
            if event != "memo":
                self._tables_of[key] = tables
        if not tables:
            return ()
        found: Mapping[int, RuleState] = {}
        for table in tables:
            found = {**found, **table} if found else table
        return [found[position] for position in sorted(found)]

    def _own_tables(
        self, group: str, event: str, outcome: str | None, changed: Iterable[Change]
    ) -> tuple[dict[int, RuleState], ...]:
        """The tables for `own` that have a rule in them."""
        triggers = [f"job-{event}"]
        if outcome is not None:
            triggers.append(TRIGGER_OF[outcome])
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

    def idle(self, group: str | None) -> list[RuleState]:
        """Rules for a group that has no active job left, or for the ensemble (None)."""
        return list(self._own["idle", group].values())

    def foreign(self, triggers: Iterable[str], name: str | None) -> list[RuleState]:
        """Rules with scope queue for triggers of a job that others submitted, in order."""
        found: dict[int, RuleState] = {}
        for trigger in triggers:
            for key in {(trigger, name), (trigger, None)}:
                if key in self._foreign:
                    found.update(self._foreign[key])
        return [found[position] for position in sorted(found)]

    def metric(self, paths: Iterable[MetricPath]) -> list[RuleState]:
        """Rules on metrics that are not of a group, and that have changed, in order."""
        found: dict[int, RuleState] = {}
        for path in paths:
            found.update(self._metric.get(path, {}))
        return [found[position] for position in sorted(found)]

    def plain(self, *triggers: str) -> list[RuleState]:
        """Rules of triggers that are not about a job, in order."""
        found: dict[int, RuleState] = {}
        for trigger in triggers:
            found.update(self._plain[trigger])
        return [found[position] for position in sorted(found)]

    @property
    def wants_foreign(self) -> bool:
        """Some rule with scope queue can still run."""
        return bool(self._plain["foreign"])

    def wants_job(self, name: str | None) -> bool:
        """Some rule can need the events of a job that others submitted.

        Args:
            name: its name in the queue if known.
        """
        return name in self._foreign_names or None in self._foreign_names

    def cycle(self, rule: str) -> list[str]:
        """The rules that trigger each other through their jobs, `rule` among them.

        Returns:
            Rule ids in order; [] where `rule` is in no cycle.
        """
        causes = {one: state.causes for one, state in self.states.items()}
        before = self._closure(rule, lambda one: causes.get(one, ()))
        if rule not in before:
            return []
        after: defaultdict[str, set[str]] = defaultdict(set)
        for one, before_it in causes.items():
            for cause in before_it:
                after[cause].add(one)
        cycle = before & self._closure(rule, lambda one: after[one])
        return [one for one in self.states if one in cycle]

    @staticmethod
    def _closure(rule: str, step: Callable[[str], Collection[str]]) -> set[str]:
        reached: set[str] = set()
        front = {rule}
        while front:
            front = {found for one in front for found in step(one)} - reached
            reached |= front
        return reached

    # -- snapshots --------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """The states of all rules, and the rules that are not the document's, as JSON."""
        states = list(self.states.values())
        return {
            "rules": [state.dump() for state in states],
            "added": [
                {**not_default(state.rule), "action": not_default(state.rule.action)}
                for state in states[len(self._spec.rules) :]
            ],
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Take over what `dump` gave.

        Raises:
            ValueError: it is of other rules.
        """
        for added in value["added"]:
            self.add(Rule(**{**added, "action": Action(**added["action"])}))
        ids = [id for id, *_ in value["rules"]]
        if ids != list(self.states):
            raise ValueError(f"its rules are {', '.join(ids)}")
        for state, row in zip(self.states.values(), value["rules"], strict=True):
            state.load(row)
            if not state.live:
                self.retire(state)
