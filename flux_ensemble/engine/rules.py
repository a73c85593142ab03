"""Rules at run time: their counters, and the index from an event to its rules.

With the index, the cost of an event depends only on the rules that it can trigger. A rule
without repetitions left is removed from the index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from flux_ensemble.document.action_templates import Filling
from flux_ensemble.document.keys.rules import RUNNING_TRIGGER, TRIGGER_EVENTS
from flux_ensemble.document.model import Action, Rule, Spec
from flux_ensemble.document.scopes import names_of, scope_of_rule
from flux_ensemble.engine.combinations import parse_name
from flux_ensemble.engine.compact import not_default
from flux_ensemble.engine.job_changes import DETECTED, RulesByNews
from flux_ensemble.engine.rule_state import RuleState, dump_turns, load_turns
from flux_ensemble.metrics.conditions import SUBJECTS, Condition, Subject, compile_condition
from flux_ensemble.metrics.detector import Detector
from flux_ensemble.metrics.job_fields import IDLE, JobScope
from flux_ensemble.metrics.names import MEMBER_METRICS, RATE
from flux_ensemble.metrics.paths import (
    COUNT,
    LEFT,
    OF_NAMES,
    SHARE,
    MetricPath,
    parse_path,
)

#: Events that every ensemble needs from the journal.
BASE_EVENTS = frozenset(
    {"submit", "validate", "invalidate", "start", "finish", "exception", "clean", "memo"}
)

#: Trigger and group of rules that react to no event of a job, or to its last one at most.
_NO_REACTION = frozenset((trigger, None) for trigger in ("start", "timer", "time-left", "idle"))

#: Fields of a rule that are tuples.
_LISTS = ("by", "more_triggers", "more_groups")


def _triggers(
    rule: Rule, path: MetricPath | None, condition: Condition | None
) -> Collection[MetricPath]:
    """Return the metrics whose updates trigger a rule."""
    if rule.trigger != "metric":
        return ()
    return (path,) if path else condition.paths if condition else ()


class RuleIndex:
    """All rules of an ensemble, by id and by their triggers."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.states: dict[str, RuleState] = {}
        self.wants_events = BASE_EVENTS
        self.wants_nodes: frozenset[str] = frozenset()
        #: True if rules read the ensemble's share of the queue.
        self.wants_share = False
        #: The groups whose rates rules read.
        self.wants_rates: tuple[str, ...] = ()
        #: True if there are rules with `scope: member`; and the metrics that these read.
        self.any_of_member = False
        self.wants_of_members: set[MetricPath] = set()
        #: The rules for which it is counted how the jobs went that they wait for.
        self.wants_tallies: list[RuleState] = []
        #: True if the expiration of the allocation matters to a rule or a time limit.
        self.wants_expiration = any(group.longest for group in spec.groups.values())
        #: (trigger, group or None) -> rules on jobs of this ensemble.
        self._own: defaultdict[tuple[str, str | None], dict[int, RuleState]] = defaultdict(dict)
        #: The same for rules on foreign jobs; a rule with scope queue is in both tables.
        self._foreign: defaultdict[tuple[str, str | None], dict[int, RuleState]] = defaultdict(dict)
        self._metric: defaultdict[MetricPath, dict[int, RuleState]] = defaultdict(dict)
        #: The rules that events of the ensemble's own jobs trigger.
        self.by_news = RulesByNews(self._own, self._metric)
        #: Trigger -> rules, for the triggers that are not about jobs.
        self._plain: defaultdict[str, dict[int, RuleState]] = defaultdict(dict)
        #: Name of foreign jobs (None for all) -> the number of rules about these.
        self._foreign_names: defaultdict[str | None, int] = defaultdict(int)
        #: The number of times that rules were added or retired.
        self.version = 0
        #: Positions of the rules that may react to events of jobs, and can still run.
        self.reacting: set[int] = set()
        self._statistics = {statistic.name: statistic for statistic in spec.statistics}
        #: Compiled conditions: equal ones of several rules are compiled once.
        self._conditions: dict[tuple[float | str, Subject, JobScope | None], Condition] = {}
        for rule in spec.rules:
            self.add(rule)

    def add(self, rule: Rule) -> RuleState:
        """Add a checked rule; it acts after the existing ones."""
        path = condition = None
        if rule.trigger == "metric" and rule.name is not None:
            path = parse_path(rule.name, self._spec.groups, self._statistics, self._spec.by)
        if rule.when is not None:
            condition = self._condition(rule)
        paths = _triggers(rule, path, condition)
        groups = {metric.group for metric in paths if metric.statistic not in MEMBER_METRICS}
        if rule.scope != "queue":
            groups.update(rule.groups)
        if rule.detector is not None:
            groups.add(rule.detector.group)
        fillings = self._fillings(rule)
        state = RuleState(rule, len(self.states), path, condition, fillings, tuple(sorted(groups)))
        self.states[rule.id] = state
        for table in self._tables(state):
            table[state.position] = state
        self.by_news.changed()
        self.version += 1
        if (rule.trigger, rule.group) not in _NO_REACTION:
            self.reacting.add(state.position)
        if state.position in self._plain["foreign"]:
            for group in rule.groups or (None,):
                self._foreign_names[group] += 1
        read = {*([path] if path else ()), *(condition.paths if condition else ())}
        self.wants_nodes |= {metric.variable for metric in read if metric.statistic == "nodes"}
        for filling in fillings:
            read |= filling.paths if filling is not None else set()
        self.wants_share = self.wants_share or SHARE in read
        if state.of_member:
            self.any_of_member = True
            self.wants_of_members |= read
        rates = sorted(metric.group for metric in read if metric.statistic == RATE)
        self.wants_rates = tuple(dict.fromkeys((*self.wants_rates, *rates)))
        if rule.trigger == IDLE and (
            rule.more_groups
            or (condition is not None and condition.of_idle)
            or any(filling.of_idle for filling in fillings if filling is not None)
            or (rule.by and any(action.name == "custom" for action in rule.actions))
        ):
            self.wants_tallies.append(state)
        self.wants_expiration |= rule.trigger == "time-left" or LEFT in read
        named = [name for name in rule.triggers if name in TRIGGER_EVENTS]
        self.wants_events |= {TRIGGER_EVENTS[name] for name in named}
        return state

    def retire(self, state: RuleState) -> None:
        """Remove from the index a rule that will not run again."""
        if state.position in self._plain["foreign"]:
            for group in state.rule.groups or (None,):
                self._foreign_names[group] -= 1
                if not self._foreign_names[group]:
                    del self._foreign_names[group]
        for table in self._tables(state):
            table.pop(state.position, None)
        self.reacting.discard(state.position)
        self.version += 1

    def _condition(self, rule: Rule) -> Condition:
        assert rule.when is not None
        subject = SUBJECTS.get(rule.trigger)
        scope = scope_of_rule(rule, self._spec.groups)
        key = rule.when, subject, scope
        if key not in self._conditions:
            names = names_of(rule, self._spec, self._statistics)
            self._conditions[key] = compile_condition(rule.when, names)
        return self._conditions[key]

    def _fillings(self, rule: Rule) -> tuple[Filling | None, ...]:
        names = None
        fillings: list[Filling | None] = []
        for action in rule.actions:
            if action.expressions is None:
                fillings.append(None)
                continue
            names = names or names_of(rule, self._spec, self._statistics)
            group = self._spec.groups.get(action.label or "") if action.name == "submit" else None
            fillings.append(Filling(action.expressions, names, group))
        return tuple(fillings)

    def _tables(self, state: RuleState) -> Iterator[dict[int, RuleState]]:
        rule = state.rule
        if rule.trigger == RUNNING_TRIGGER:
            yield self._plain[rule.trigger]
        elif rule.trigger.startswith("job-"):
            for key in product(rule.triggers, rule.groups or (None,)):
                yield self._own[key]
                if rule.scope == "queue":
                    yield self._foreign[key]
            if rule.scope == "queue":
                yield self._plain["foreign"]
        elif rule.trigger == "idle":
            for group in rule.groups or (None,):
                yield self._own["idle", group]
        elif rule.detector is not None:
            yield self._metric[MetricPath(DETECTED, rule.detector.group, rule.id)]
        else:
            yield self._plain[rule.trigger]
            for path in _triggers(rule, state.path, state.condition):
                yield self._metric[self._metric_key(path)]

    def _metric_key(self, path: MetricPath) -> MetricPath:
        """Return the key of a metric in the index: a counter, or a stream without the statistic."""
        statistic, group, variable = path
        if statistic in OF_NAMES:
            return MetricPath(statistic, group, variable.partition(".")[0])
        if statistic in (COUNT, RATE) or statistic in MEMBER_METRICS:
            return path
        return MetricPath("", group, self._statistics[statistic].stream(variable))

    def idle(self, name: str | None) -> Iterator[tuple[RuleState, str | None]]:
        """Yield the rules for an idle group, an idle combination, or the idle ensemble (None).

        Each comes with what it is to be idle about: that of the rule's first group, so it is the
        same whichever of its groups is idle last.
        """
        group, values = (None, {}) if name is None else parse_name(name)
        by = tuple(values)
        for state in self._own["idle", group].values():
            if state.rule.by == by:
                yield state, next(iter(idle_of(state.rule, name)))

    def foreign(self, triggers: Iterable[str], name: str | None) -> list[RuleState]:
        """Return the rules with scope queue for triggers of a foreign job, in order."""
        by_position: dict[int, RuleState] = {}
        for trigger in triggers:
            for key in {(trigger, name), (trigger, None)}:
                if key in self._foreign:
                    by_position.update(self._foreign[key])
        return [by_position[position] for position in sorted(by_position)]

    def metric(self, paths: Iterable[MetricPath]) -> list[RuleState]:
        """Return the rules on metrics of the member that have changed, in order."""
        by_position: dict[int, RuleState] = {}
        for path in paths:
            by_position.update(self._metric.get(path, {}))
        return [by_position[position] for position in sorted(by_position)]

    def plain(self, *triggers: str) -> list[RuleState]:
        """Return the rules of triggers that are not about a job, in order."""
        by_position: dict[int, RuleState] = {}
        for trigger in triggers:
            by_position.update(self._plain[trigger])
        return [by_position[position] for position in sorted(by_position)]

    @property
    def wants_foreign(self) -> bool:
        """True if a rule with scope queue can still run."""
        return bool(self._plain["foreign"])

    def wants_job(self, name: str | None) -> bool:
        """Return whether a rule can need the events of a foreign job.

        Args:
            name: the job's name in the queue if known.
        """
        return name in self._foreign_names or None in self._foreign_names

    def cycle(self, rule: str) -> list[str]:
        """Find the rules that trigger each other through their jobs, `rule` among them.

        Returns:
            Rule ids in order; [] if `rule` is in no cycle.
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
        """Return the rules that are reached from a rule by one or more steps."""
        reached: set[str] = set()
        front = {rule}
        while front:
            front = {following for id in front for following in step(id)} - reached
            reached |= front
        return reached

    # -- snapshots --------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return the counters of all rules, and the rules that were added, as JSON."""
        states = list(self.states.values())
        turns = {state.rule.id: dump_turns(state.turns) for state in states if state.turns}
        return {
            **({"turns": turns} if turns else {}),
            "rules": [state.dump() for state in states],
            "added": [_dump_rule(state.rule) for state in states[len(self._spec.rules) :]],
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Set the state from the result of `dump`.

        Raises:
            ValueError: the dump has other rules than the document.
        """
        for added in value["added"]:
            self.add(_load_rule(added))
        ids = [id for id, *_ in value["rules"]]
        if ids != list(self.states):
            raise ValueError(f"its rules are {', '.join(ids)}")
        for state, row in zip(self.states.values(), value["rules"], strict=True):
            state.load(row)
            if not state.live:
                self.retire(state)
            own = value.get("turns", {}).get(state.rule.id, {})
            state.turns.update(load_turns(own, state.rule.action.repetitions))


def idle_of(rule: Rule, name: str | None) -> tuple[str | None, ...]:
    """Return all that has to be idle for a rule: groups, combinations, or the ensemble (None).

    Args:
        rule: a rule on `idle`.
        name: one of them.
    """
    if name is None or not rule.groups:
        return (None,)
    values = name.removeprefix(parse_name(name)[0])
    return tuple(group + values for group in rule.groups)


def _dump_rule(rule: Rule) -> dict[str, Any]:
    value = {**not_default(rule), "action": not_default(rule.action)}
    if rule.more_actions:
        value["more_actions"] = [not_default(action) for action in rule.more_actions]
    return value


def _load_rule(value: Mapping[str, Any]) -> Rule:
    parts: dict[str, Any] = {name: tuple(value[name]) for name in _LISTS if name in value}
    if "detector" in value:
        parts["detector"] = Detector(*value["detector"])
    actions = tuple(Action(**action) for action in value.get("more_actions", ()))
    return Rule(**{**value, **parts, "action": Action(**value["action"]), "more_actions": actions})
