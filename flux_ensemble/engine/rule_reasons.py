"""The explanation of rules: the event that each one waits for, or the reason why it never fires.

The module only reads the engine's state, and reports only what is certain.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from flux_ensemble.document.keys.rules import AGAIN, MEMBER_TRIGGERS, RUNNING_TRIGGER
from flux_ensemble.document.model import Action, Rule
from flux_ensemble.document.scopes import names_of
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.idle_rules import of, read_by, used_up
from flux_ensemble.engine.rule_state import RuleState
from flux_ensemble.metrics.conditions import Condition, Lookup, compile_condition
from flux_ensemble.metrics.detector import Detector
from flux_ensemble.metrics.paths import BEST, COUNT, MetricPath, parse_path
from flux_ensemble.metrics.terms import Comparison, Term, terms_of
from flux_ensemble.texts import listed, shortened
from flux_ensemble.words import counted

#: The most rules that are described at once. With more rules, those that can never be triggered any
#: more are not searched for.
MAX_RULES = 500

#: The most members that are described for a rule with `scope: member`.
MAX_MEMBERS = 20

#: The most values of parameters for which a metric is described that is kept by value.
MAX_BY_VALUE = 20

#: The most passes in the search for rules that only rules that cannot fire would trigger.
_PASSES = 10


def why(engine: Engine, t: float, rule: str | None = None) -> list[dict[str, Any]]:
    """Explain why rules fire or do not, as JSON (docs/rpc.md, `ensemble.why`).

    Args:
        engine: the engine, which is not changed.
        t: the time now.
        rule: the id of a rule; None is the first `MAX_RULES` rules.

    Raises:
        RequestError: ENOENT; there is no such rule.
    """
    states = engine.rules.states
    if rule is not None and rule not in states:
        raise RequestError(errno.ENOENT, f"no rule with id {rule!r} (rules: {listed(states)})")
    reader = _RuleReader(engine, t)
    chosen = islice(states.values(), MAX_RULES) if rule is None else [states[rule]]
    return [reader.describe(state) for state in chosen]


class _RuleReader:
    """Reads the rules of one engine at one time."""

    def __init__(self, engine: Engine, t: float) -> None:
        self._engine = engine
        self._t = t
        self._statistics = [statistic.name for statistic in engine.spec.statistics]
        workload = engine.workload
        self._lookup: Lookup = engine.stats.at(
            lambda group, gauge: workload.ages(group, gauge, t)
        ).lookup
        #: Rule id -> the reason why the rule cannot fire any more.
        self._never: dict[str, str] = {}
        self._find_dead()

    def describe(self, state: RuleState) -> dict[str, Any]:
        """Return the description of a rule."""
        rule = state.rule
        terms = () if rule.when is None else terms_of(rule.when, rule.name)
        cooldown = state.t_next if state.t_next > self._t else None
        more: dict[str, Any] = {}
        if state.of_member:
            more["members"] = list(self._members(state))
        if unmet := list(self._unmet(state)):
            more["unmet"] = unmet
        return {
            "id": rule.id,
            "trigger": rule.title,
            "action": rule.action.name,
            "label": rule.action.label,
            "actions": rule.named_actions,
            "enabled": state.enabled,
            "fired": state.fired,
            "left": state.left,
            "error": state.error,
            "terms": []
            if state.of_member
            else [self._term(state, term, len(terms), self._lookup) for term in terms],
            "skips": state.skip,
            "t_cooldown": cooldown,
            "t_next": self._t_next(state),
            "waits": None if rule.id in self._never else self._waits(state),
            "never": self._never.get(rule.id),
            **more,
        }

    def _unmet(self, state: RuleState) -> Iterator[str]:
        """Yield, in words, for which combinations a rule on `idle` did not fire, or not again.

        Of a rule on jobs, after the end, that none was ever submitted.
        """
        engine = self._engine
        if engine.state == "completed" and (never := self._unsubmitted(state.rule)):
            yield never
        if engine.acting or engine.state == "completed":
            spent = used_up(state, self._lookup, engine.workload.busy_of)
            if spent is not None:
                yield spent
        tally = engine.workload.tallies.get(state.rule.id)
        if tally is None:
            return
        if engine.acting or engine.state == "completed":
            yield from tally.missing()
        if unmet := tally.unmet(lambda params: self._read(state, params)):
            yield unmet

    def _unsubmitted(self, rule: Rule) -> str:
        """Return that a rule on jobs waited for some that were never submitted, or ""."""
        if rule.scope != "ensemble" or not rule.trigger.startswith(("job-", "idle")):
            return ""
        counts = self._engine.stats.counts
        groups = rule.groups or tuple(counts)
        some = all if rule.trigger == "idle" and rule.groups else any
        if some(counts[name]["submitted"] for name in groups):
            return ""
        none = [name for name in rule.groups if not counts[name]["submitted"]]
        return f"no job of {_named(none) if none else 'the ensemble'} was ever submitted"

    def _read(self, state: RuleState, params: Mapping[str, Any]) -> str:
        condition = state.condition
        return "" if condition is None else read_by(condition, params, self._lookup)

    def _members(self, state: RuleState) -> Iterator[dict[str, Any]]:
        """Yield the description of a rule with `scope: member` for each of the first members."""
        rule, members = state.rule, self._engine.members
        terms = () if rule.when is None else terms_of(rule.when, rule.name)
        for member in islice(() if members is None else members.known.values(), MAX_MEMBERS):
            turns = state.turns.get(member.name)
            lookup = self._engine.scope_of(member.ordinal, self._t)
            yield {
                "name": member.name,
                "fired": 0 if turns is None else turns.fired,
                "left": rule.action.repetitions if turns is None else turns.left,
                "skips": 0 if turns is None else turns.skip,
                "t_cooldown": turns.t_next if turns and turns.t_next > self._t else None,
                "terms": [self._term(state, term, len(terms), lookup) for term in terms],
            }

    # -- conditions -------------------------------------------------------------------

    def _term(self, state: RuleState, term: Term, terms: int, lookup: Lookup) -> dict[str, Any]:
        values = {}
        for name in term.names:
            path = self._path(name)
            if path is not None:
                values[name] = lookup(path)
        if len(values) < len(term.names) and not state.of_member:
            values.update(self._by_value(self._compiled(state, term, terms)))
        holds = self._holds(state, term, terms, lookup)
        comparison, missing = term.comparison, None
        if holds is False and comparison is not None:
            value = values[comparison.name]
            operator, number = comparison.operator, comparison.number
            # A parameter of the best job can be text.
            now = "has no value yet" if value is None else f"is {_shown(value)}"
            missing = f"{comparison.name} {now}, and must be {operator} {number:g}"
        return {"text": term.text, "holds": holds, "values": values, "missing": missing}

    def _holds(self, state: RuleState, term: Term, terms: int, lookup: Lookup) -> bool | None:
        """Return whether a term holds now; None if that depends on the triggering event."""
        if any(self._path(name) is None for name in term.names):
            return None
        condition = self._compiled(state, term, terms)
        if condition is None:
            return None
        value = lookup(state.path) if state.path is not None else None
        return condition.holds(value, lookup)

    def _compiled(self, state: RuleState, term: Term, terms: int) -> Condition | None:
        """Return the condition that a term is by itself; None if it is none."""
        if terms > 1 or state.condition is None:
            with suppress(ValueError):
                names = names_of(state.rule, self._engine.spec, self._statistics)
                return compile_condition(term.text, names)
            return None
        return state.condition

    def _by_value(self, condition: Condition | None) -> Iterator[tuple[str, Any]]:
        """Yield what a condition reads for the values of a job or a combination, for the first."""
        for metric in () if condition is None else condition.of_values:
            for params in islice(self._engine.stats.values_by(metric.by), MAX_BY_VALUE):
                path = metric.path(of(params))
                yield str(path), self._lookup(path)

    def _path(self, name: str) -> MetricPath | None:
        spec, keys = self._engine.spec, name.split(".")
        with suppress(ValueError):
            if keys[0] == BEST and len(keys) > 1 and keys[1] in spec.bested:
                best, params = spec.bested[keys[1]]
                return best.path(keys, params)
            named = spec.named.get(keys[0], {})
            if len(keys) > 1 and keys[1] in named:
                return named[keys[1]].path(keys)
            return parse_path(name, spec.groups, self._statistics, spec.by)
        return None

    # -- the next evaluation ----------------------------------------------------------

    def _t_next(self, state: RuleState) -> float | None:
        """Return when the rule's timer is due next; None if it has none, or that is not known."""
        rule, t_start = state.rule, self._engine.t_start
        in_document = state.position < len(self._engine.spec.rules)
        if not state.timer or t_start is None or not in_document:
            return None
        every = rule.every or 0.0
        first = t_start + (rule.after if rule.after is not None else every)
        if first >= self._t or not every:
            return first
        return first + every * math.ceil((self._t - first) / every)

    def _waits(self, state: RuleState) -> str:
        """Return, in words, what a rule waits for."""
        engine, rule = self._engine, state.rule
        if not state.enabled:
            by = [one.rule.id for one in self._live() if _enables(one.rule, rule.id)]
            return f"it is disabled, until rule {by[0]!r} enables it" if by else "it is disabled"
        if engine.state == "paused":
            return "the ensemble is paused"
        trigger = rule.trigger
        if trigger == "timer":
            return "waits for its timer"
        if trigger == "heartbeat":
            return f"waits for a heartbeat, every {engine.spec.heartbeat:g} s"
        if trigger == "metric":
            heartbeat = ", or a heartbeat" if engine.spec.heartbeat else ""
            return f"waits for a change of a metric{heartbeat}"
        if trigger == "idle":
            busy = sum(map(engine.workload.busy_of, rule.groups or (None,)))
            return f"waits for {_whose(rule)} to be idle: {counted(busy, 'job')} not over"
        if rule.detector is not None:
            return self._waits_for_detection(rule.id, rule.detector, trigger)
        if trigger == RUNNING_TRIGGER:
            return f"looks at the running jobs of {_whose(rule)}, every {rule.every:g} s"
        if trigger.startswith("job-"):
            return f"waits for {' or '.join(rule.triggers)} of a job of {_whose(rule)}"
        if trigger in MEMBER_TRIGGERS:
            return self._waits_for_member(rule)
        return f"waits for {trigger}"

    def _waits_for_member(self, rule: Rule) -> str:
        waits = f"waits for {rule.title}"
        members = self._engine.members
        if rule.trigger != "member-up" or members is None:
            return waits
        return f"{waits}; starting: {listed(one.name for one in members.starting(rule.name))}"

    def _waits_for_detection(self, id: str, detector: Detector, trigger: str) -> str:
        stats = self._engine.stats
        watch, group, variable = stats.watches[id], detector.group, detector.variable
        values = stats.count(group, variable) - watch.since
        waits = f"waits for {'an' if trigger == 'anomaly' else 'a'} {trigger} of {detector.stream}"
        if values < watch.warm_up:
            return f"{waits}: the first {watch.warm_up} values show none, and there are {values}"
        return f"{waits}, which has had {values} values"

    # -- never ------------------------------------------------------------------------

    def _find_dead(self) -> None:
        engine = self._engine
        states = engine.rules.states
        if not engine.acting:
            self._never = dict.fromkeys(states, f"the ensemble has ended ({engine.state})")
            return
        for id, state in states.items():
            if not state.live:
                times = "once" if state.fired == 1 else f"{state.fired} times"
                self._never[id] = f"it has fired {times}, and its repetitions allow no more"
        for _ in range(_PASSES if len(states) <= MAX_RULES else 0):
            before = len(self._never)
            asked = self._asked()
            for id, state in states.items():
                if id not in self._never and state.enabled:
                    reason = self._why_never(state, asked)
                    if reason is not None:
                        self._never[id] = reason
            if len(self._never) == before:
                return

    def _live(self) -> Iterator[RuleState]:
        """Yield the rules that may still fire."""
        for id, state in self._engine.rules.states.items():
            if id not in self._never:
                yield state

    def _asked(self) -> dict[str, float]:
        """Return the most jobs of each group that may still be submitted; infinity if unbounded."""
        spec, table = self._engine.spec, self._engine.pending_table
        open_ended = (
            spec.finish == "never"
            or table.calling
            or any(
                action.name == "custom" for state in self._live() for action in state.rule.actions
            )
        )
        asked = dict.fromkeys(spec.groups, math.inf if open_ended else 0.0)
        for feature in self._engine.hooks.features:
            if feature.submits is not None:
                asked.update(dict.fromkeys(feature.submits(self._can_run), math.inf))
        for state in self._live():
            for action in state.rule.actions:
                if action.name == "submit" and action.label is not None:
                    asked[action.label] += self._most(state, action)
        for state in self._live():
            if any(action.name in AGAIN for action in state.rule.actions):
                for name in state.rule.groups or spec.groups:
                    if asked[name] or self._engine.workload.busy_of(name):
                        asked[name] = math.inf
        return asked

    def _can_run(self, name: str, label: str) -> bool:
        """Return whether a rule can still run an action on a label."""
        return any(
            action.name == name and action.label == label
            for state in self._live()
            for action in state.rule.actions
        )

    def _most(self, state: RuleState, action: Action) -> float:
        if state.left is None or action.expressions is not None:
            return math.inf
        submission = self._engine.spec.groups[action.label or ""].submission
        return float(state.left * len(submission(action.count, action.params)))

    def _why_never(self, state: RuleState, asked: dict[str, float]) -> str | None:
        rule, workload = state.rule, self._engine.workload
        if rule.trigger == "start" and self._engine.t_start is not None:
            return "the ensemble has started, and its condition did not hold then"
        groups = rule.groups if rule.scope != "queue" else ()
        if rule.detector is not None:
            groups = (rule.detector.group,)
        if groups and not any(workload.busy_of(name) or asked[name] for name in groups):
            return (
                f"no job of {_named(groups)} is active, and no rule that can still fire submits one"
            )
        for comparison in () if state.of_member else _comparisons(rule):
            path = self._path(comparison.name)
            if path is not None and path.statistic == COUNT:
                reason = self._unreachable(comparison, path, asked[path.group])
                if reason is not None:
                    return reason
        return None

    def _unreachable(self, comparison: Comparison, path: MetricPath, more: float) -> str | None:
        group = self._engine.spec.groups[path.group]
        now = self._engine.stats.counts[path.group][path.variable]
        more += self._engine.workload.busy_of(path.group)
        if any(job_set.retries.times for job_set in group.sets) and more:
            return None
        _, operator, number = comparison
        low = {">": number < now + more, ">=": number <= now + more, "==": number <= now + more}
        high = {"<": now < number, "<=": now <= number, "==": now <= number}
        if not low.get(operator, True):
            return (
                f"{path} is {now} and can become {now + more:g} at most: "
                f"it cannot be {operator} {number:g}"
            )
        if not high.get(operator, True):
            return f"{path} is {now} and never falls: it cannot be {operator} {number:g}"
        return None


def _shown(value: Any) -> str:
    number = type(value) in (int, float)
    return f"{value:.6g}" if number else shortened(repr(value))


def _enables(rule: Rule, id: str) -> bool:
    return any(action.name == "enable" and action.label == id for action in rule.actions)


def _comparisons(rule: Rule) -> Iterator[Comparison]:
    if rule.when is not None:
        for term in terms_of(rule.when, rule.name):
            if term.comparison is not None:
                yield term.comparison


def _whose(rule: Rule) -> str:
    return _named(rule.groups) if rule.groups else "the ensemble"


def _named(groups: Collection[str]) -> str:
    return f"group {' or '.join(map(repr, groups))}"
