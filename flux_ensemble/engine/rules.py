"""Rules at run time: their counters, and the index from an event to its rules.

With the index, the cost of an event depends only on the rules that it can trigger. A rule
without repetitions left is removed from the index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.document.model import JOB_EVENTS, OUTCOME_TRIGGERS, Action, Rule, Spec
from flux_ensemble.engine.combinations import parse_name
from flux_ensemble.engine.compact import not_default
from flux_ensemble.engine.turns import Turns, dump_turns, load_turns
from flux_ensemble.metrics.conditions import SUBJECTS, Condition, Subject, compile_condition
from flux_ensemble.metrics.names import MEMBER, MEMBER_METRICS, RATE
from flux_ensemble.metrics.paths import COUNT, LEFT, PENDING_NODES, MetricPath, parse_path

#: Events that every ensemble needs from the journal.
BASE_EVENTS = frozenset(
    {"submit", "validate", "invalidate", "start", "finish", "exception", "clean", "memo"}
)

#: trigger -> the event that it needs. Triggers that name an outcome need only `BASE_EVENTS`.
_NEEDED = {f"job-{name}": name for name in JOB_EVENTS}

#: outcome -> the trigger that names it.
TRIGGER_OF = {outcome: trigger for trigger, outcome in OUTCOME_TRIGGERS.items()}

#: A metric that changed. Of a group: a counter ("count", counter) or a stream ("", variable); of
#: the member: ("queue", "pending-nodes").
Change = tuple[str, str]

#: The effect of an event of the ensemble's own job: the outcome that it gives the job, if rules are
#: to see it, and the metrics of the group that changed. (When a job is submitted or starts, the
#: number of nodes that jobs wait for changes too; the index knows that from the event.)
News = tuple[str | None, tuple[Change, ...]]


#: Attributes of a rule's state that a snapshot holds as they are.
_DUMPED = ("enabled", "skip", "t_next", "fired", "number", "timer", "error")


@dataclass(slots=True, eq=False)
class RuleState(Turns):
    """A rule and how often it ran."""

    rule: Rule
    #: Its place in the order in which rules act.
    position: int
    #: The metric of a metric rule that names one.
    path: MetricPath | None
    condition: Condition | None
    #: The groups that it is about: the one that it selects, or those whose metrics trigger it.
    groups: tuple[str, ...]
    enabled: bool = field(init=False)
    #: Number of the next firing; ahead of `fired` where a custom function returned actions.
    number: int = field(init=False, default=0)
    #: Its timer is set.
    timer: bool = field(init=False, default=False)
    #: Why it failed last, or None.
    error: str | None = field(init=False, default=None)
    #: Ids of the rules whose jobs triggered it.
    causes: set[str] = field(init=False, default_factory=set)
    #: Of a rule with `by`: the combinations that it may not run for as if it were the first time.
    turns: dict[str, Turns] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.enabled = self.rule.enabled
        self.left = None if self.rule.by else self.rule.action.repetitions

    @property
    def live(self) -> bool:
        """Whether it has runs left."""
        return self.left is None or self.left > 0

    @property
    def armed(self) -> bool:
        """Whether it is enabled and has runs left."""
        return self.enabled and self.live

    def take_turn(self, t: float, combination: str | None = None) -> bool:
        """Count a matching evaluation at time `t`; True if the action is to run.

        Args:
            combination: of a rule with `by`.
        """
        action = self.rule.action
        if combination is None:
            return self.take(action, t)
        turns = self.turns.get(combination)
        if turns is None:
            turns = Turns()
            turns.left = action.repetitions
            if turns.left is not None or action.backoff or action.cooldown:
                self.turns[combination] = turns
        mine = turns.take(action, t)
        self.fired += mine
        return mine

    def next_number(self) -> int:
        """The number of a new firing."""
        self.number += 1
        return self.number - 1

    def dump(self) -> list[Any]:
        """Its counters as JSON; `left` follows from `fired`."""
        return [self.rule.id, *(getattr(self, name) for name in _DUMPED), sorted(self.causes)]

    def load(self, value: Sequence[Any]) -> None:
        """Set what `dump` returned.

        Raises:
            ValueError: it ran more often than its repetitions allow.
        """
        for name, attribute in zip(_DUMPED, value[1:-1], strict=True):
            setattr(self, name, attribute)
        self.causes.update(value[-1])
        if self.left is not None:
            self.left -= self.fired
            if self.left < 0:
                raise ValueError(f"its rule {self.rule.id!r} ran {self.fired} times")


def _triggers(
    rule: Rule, path: MetricPath | None, condition: Condition | None
) -> Collection[MetricPath]:
    """The metrics whose updates trigger a rule."""
    if rule.trigger != "metric":
        return ()
    return (path,) if path else condition.paths if condition else ()


class RuleIndex:
    """All rules of an ensemble, by id and by what triggers them."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.states: dict[str, RuleState] = {}
        self.wants_events = BASE_EVENTS
        self.wants_nodes: frozenset[str] = frozenset()
        #: The groups whose rates rules read.
        self.wants_rates: tuple[str, ...] = ()
        #: Whether rules read when the allocation expires.
        self.wants_expiration = False
        #: (trigger, group or None) -> rules on jobs of this ensemble.
        self._own: defaultdict[tuple[str, str | None], dict[int, RuleState]] = defaultdict(dict)
        #: The same for foreign jobs; a rule with scope queue is in both.
        self._foreign: defaultdict[tuple[str, str | None], dict[int, RuleState]] = defaultdict(dict)
        self._metric: defaultdict[MetricPath, dict[int, RuleState]] = defaultdict(dict)
        #: Arguments of `own` -> the tables with the rules for them.
        self._tables_of: dict[Hashable, tuple[dict[int, RuleState], ...]] = {}
        #: trigger -> rules, for the triggers that are not about jobs.
        self._plain: defaultdict[str, dict[int, RuleState]] = defaultdict(dict)
        #: Names of foreign jobs that rules are about, None if a rule is about all, and how many
        #: rules.
        self._foreign_names: defaultdict[str | None, int] = defaultdict(int)
        self._statistics = {statistic.name: statistic for statistic in spec.statistics}
        #: Equal conditions of several rules are compiled once.
        self._conditions: dict[tuple[float | str, Subject], Condition] = {}
        for rule in spec.rules:
            self.add(rule)

    def add(self, rule: Rule) -> RuleState:
        """Add a checked rule; it acts after the existing ones."""
        path = condition = None
        if rule.trigger == "metric" and rule.name is not None:
            path = parse_path(rule.name, self._spec.groups, self._statistics)
        if rule.when is not None:
            condition = self._condition(rule.when, SUBJECTS.get(rule.trigger))
        paths = _triggers(rule, path, condition)
        groups = {metric.group for metric in paths if metric.statistic not in MEMBER_METRICS}
        if rule.group is not None and rule.scope != "queue":
            groups.add(rule.group)
        state = RuleState(rule, len(self.states), path, condition, tuple(sorted(groups)))
        self.states[rule.id] = state
        for table in self._tables(state):
            table[state.position] = state
        self._tables_of.clear()
        if state.position in self._plain["foreign"]:
            self._foreign_names[rule.group] += 1
        read = {*([path] if path else ()), *(condition.paths if condition else ())}
        self.wants_nodes |= {metric.variable for metric in read if metric.statistic == "nodes"}
        rates = sorted(metric.group for metric in read if metric.statistic == RATE)
        self.wants_rates = tuple(dict.fromkeys((*self.wants_rates, *rates)))
        self.wants_expiration |= rule.trigger == "time-left" or LEFT in read
        if (needed := _NEEDED.get(rule.trigger)) is not None:
            self.wants_events |= {needed}
        return state

    def retire(self, state: RuleState) -> None:
        """Remove a rule that will not run again from the index."""
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
            for path in _triggers(rule, state.path, state.condition):
                yield self._metric[self._metric_key(path)]

    def _metric_key(self, path: MetricPath) -> MetricPath:
        """The key of a metric in the index: a counter, or a stream without the statistic."""
        statistic, group, variable = path
        if statistic in (COUNT, RATE) or statistic in MEMBER_METRICS:
            return path
        return MetricPath("", group, self._statistics[statistic].stream(variable))

    def own(self, group: str, event: str, news: News) -> Sequence[RuleState]:
        """Rules that an event of the ensemble's own job triggers, in order.

        Args:
            group: the job's group.
            event: the event's name.
            news: the effect of the event.
        """
        key = group, event, news
        tables = self._tables_of.get(key)
        if tables is None:
            tables = self._own_tables(group, event, *news)
            # Memos can change ever new metrics; other events change the same ones again.
            if event != "memo":
                self._tables_of[key] = tables
        if not tables:
            return ()
        by_position: Mapping[int, RuleState] = {}
        for table in tables:
            by_position = {**by_position, **table} if by_position else table
        return [by_position[position] for position in sorted(by_position)]

    def _own_tables(
        self, group: str, event: str, outcome: str | None, changed: Iterable[Change]
    ) -> tuple[dict[int, RuleState], ...]:
        """The tables with rules for `own`; empty ones are left out."""
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

    def idle(self, name: str | None) -> list[RuleState]:
        """Rules for an idle group, an idle combination, or the idle ensemble (None)."""
        group, values = (None, {}) if name is None else parse_name(name)
        by = tuple(values)
        return [state for state in self._own["idle", group].values() if state.rule.by == by]

    def foreign(self, triggers: Iterable[str], name: str | None) -> list[RuleState]:
        """Rules with scope queue for triggers of a foreign job, in order."""
        by_position: dict[int, RuleState] = {}
        for trigger in triggers:
            for key in {(trigger, name), (trigger, None)}:
                if key in self._foreign:
                    by_position.update(self._foreign[key])
        return [by_position[position] for position in sorted(by_position)]

    def metric(self, paths: Iterable[MetricPath]) -> list[RuleState]:
        """Rules on metrics of the member that have changed, in order."""
        by_position: dict[int, RuleState] = {}
        for path in paths:
            by_position.update(self._metric.get(path, {}))
        return [by_position[position] for position in sorted(by_position)]

    def plain(self, *triggers: str) -> list[RuleState]:
        """Rules of triggers that are not about a job, in order."""
        by_position: dict[int, RuleState] = {}
        for trigger in triggers:
            by_position.update(self._plain[trigger])
        return [by_position[position] for position in sorted(by_position)]

    @property
    def wants_foreign(self) -> bool:
        """Whether a rule with scope queue can still run."""
        return bool(self._plain["foreign"])

    def wants_job(self, name: str | None) -> bool:
        """Whether a rule can need the events of a foreign job.

        Args:
            name: its name in the queue if known.
        """
        return name in self._foreign_names or None in self._foreign_names

    def cycle(self, rule: str) -> list[str]:
        """The rules that trigger each other through their jobs, `rule` among them.

        Returns:
            Rule ids in order; [] where `rule` is in no cycle.
        """
        causes = {id: state.causes for id, state in self.states.items()}
        before = self._closure(rule, lambda id: causes.get(id, ()))
        if rule not in before:
            return []
        effects: defaultdict[str, set[str]] = defaultdict(set)
        for id, causes_of_id in causes.items():
            for cause in causes_of_id:
                effects[cause].add(id)
        cycle = before & self._closure(rule, lambda id: effects[id])
        return [id for id in self.states if id in cycle]

    @staticmethod
    def _closure(rule: str, step: Callable[[str], Collection[str]]) -> set[str]:
        """The rules that are reached from a rule by one or more steps."""
        reached: set[str] = set()
        front = {rule}
        while front:
            front = {following for id in front for following in step(id)} - reached
            reached |= front
        return reached

    # -- snapshots --------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """The counters of all rules, and the rules that the document does not have, as JSON."""
        states = list(self.states.values())
        turns = {state.rule.id: dump_turns(state.turns) for state in states if state.turns}
        return {
            **({"turns": turns} if turns else {}),
            "rules": [state.dump() for state in states],
            "added": [
                {**not_default(state.rule), "action": not_default(state.rule.action)}
                for state in states[len(self._spec.rules) :]
            ],
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Set what `dump` returned.

        Raises:
            ValueError: the rules are others.
        """
        for added in value["added"]:
            by = tuple(added.get("by", ()))
            self.add(Rule(**{**added, "by": by, "action": Action(**added["action"])}))
        ids = [id for id, *_ in value["rules"]]
        if ids != list(self.states):
            raise ValueError(f"its rules are {', '.join(ids)}")
        for state, row in zip(self.states.values(), value["rules"], strict=True):
            state.load(row)
            if not state.live:
                self.retire(state)
            own = value.get("turns", {}).get(state.rule.id, {})
            state.turns.update(load_turns(own, state.rule.action.repetitions))
