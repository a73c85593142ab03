"""Reads rules and actions, of a document or returned by a custom function."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.functions import Functions
from flux_ensemble.document.model import (
    RESERVED_RULES,
    SCALE_ACTIONS,
    SCALE_TRIGGERS,
    TRIGGER_ALIASES,
    Action,
    Group,
    Rule,
    Spec,
)
from flux_ensemble.document.plain import check_plain
from flux_ensemble.document.problems import Path, Problems, TooMany, hint
from flux_ensemble.document.schema_check import check_form
from flux_ensemble.metrics.conditions import SUBJECTS, Condition, Subject, compile_condition
from flux_ensemble.metrics.names import GAUGES
from flux_ensemble.metrics.paths import MetricPath, parse_path
from flux_ensemble.texts import listed, shown

#: Actions whose label is a job group, and actions that need a label.
_ON_GROUPS = ("submit", "cancel", "update")
_NEED_LABEL = ("submit", "update", "custom", "enable", "disable")

#: Keys of an action that only some actions have.
_ACTION_KEYS = {
    "label": (*_ON_GROUPS, "custom", "enable", "disable"),
    "value": ("grow", "shrink"),
    "count": ("submit",),
    "params": ("submit",),
    "cancel": ("terminate",),
    "urgency": ("update",),
    "duration": ("update",),
    "timeout": ("custom",),
}

#: Keys of an action that are copied to the model unchanged.
_AS_GIVEN = ("label", "value", "count", "params", "backoff", "cancel", "urgency")

#: Keys of a rule that only some triggers have; "job-" is a prefix.
_RULE_KEYS = {
    "name": ("metric", "job-", "idle", "scale-"),
    "group": ("job-", "idle"),
    "scope": ("job-",),
    "after": ("timer",),
    "every": ("timer",),
}

#: Most job sets whose parameters the actions of a document override. The job sets of a group
#: count once for each action.
MAX_OVERRIDES = 100_000

_HEARTBEAT_OFF = "the heartbeat is off; set logging.heartbeat, such as 'logging: {heartbeat: 10s}'"


@dataclass(frozen=True)
class Context:
    """What rules can refer to.

    Attributes:
        groups: the job groups, by name.
        names: the names of all job groups, with problems or not.
        statistics: the names of the statistics that are kept.
        rule_ids: the ids of the rules.
        heartbeat: whether there is a heartbeat.
        functions: what custom actions can call.
        elastic: whether the member can change its size.
    """

    groups: Mapping[str, Group]
    names: Collection[str]
    statistics: Collection[str]
    rule_ids: Collection[str]
    heartbeat: bool
    functions: Functions
    elastic: bool = True


def parse_action(value: Any, spec: Spec, rule_ids: Collection[str]) -> Action:
    """Read an action that is not in the document, such as a custom function's.

    Args:
        value: the action, in the form of the document.
        spec: the ensemble.
        rule_ids: ids of all its rules.

    Raises:
        ValueError: it is invalid, or refers to something that does not exist.

    >>> from flux_ensemble.document.loading import load_text
    >>> spec = load_text("jobs: [{name: hello, command: echo hello}]", name="demo")
    >>> action = parse_action({"name": "submit", "label": "hello", "count": 2}, spec, rule_ids=())
    >>> action.label, action.count
    ('hello', 2)
    """
    problems = Problems()
    action = None
    with suppress(TooMany):
        left = check_form("action", value, problems, wrong=check_plain(value, problems))
        if left is not None:
            action = _Reader(_context(spec, rule_ids), problems).action(left, ())
    if problems or action is None:
        raise ValueError(problems.sentences())
    return action


def parse_rule(value: Any, spec: Spec, rule_ids: Collection[str], id: str) -> Rule:
    """Read a rule that is not in the document, such as a custom function's.

    Args:
        value: the rule, in the form of the document.
        spec: the ensemble.
        rule_ids: ids of all its rules.
        id: the default id.

    Raises:
        ValueError: it is invalid, refers to something that does not exist, or its id is in use.

    >>> from flux_ensemble.document.loading import load_text
    >>> spec = load_text("jobs: [{name: hello, command: echo hello}]", name="demo")
    >>> value = {"trigger": "job-fail", "name": "hello", "action": {"name": "terminate"}}
    >>> parse_rule(value, spec, rule_ids=(), id="stop").title
    'job-fail hello'
    """
    problems = Problems()
    rule = None
    with suppress(TooMany):
        left = check_form("rule", value, problems, wrong=check_plain(value, problems))
        if left is not None:
            id = left.get("id", id)
            if id in rule_ids:
                problems.add(("id",), f"the rule id {id!r} is in use")
            check_id(id, problems, ("id",))
            rule = _Reader(_context(spec, rule_ids), problems).rule(left, (), id)
    if problems or rule is None:
        raise ValueError(problems.sentences())
    return rule


def _context(spec: Spec, rule_ids: Collection[str]) -> Context:
    return Context(
        groups=spec.groups,
        names=spec.groups,
        statistics=frozenset(statistic.name for statistic in spec.statistics),
        rule_ids=rule_ids,
        heartbeat=spec.heartbeat > 0,
        functions=Functions(spec.custom, spec.plugins),
    )


def check_id(id: str, problems: Problems, at: Path) -> None:
    """Check that a rule's id is not reserved.

    >>> problems = Problems()
    >>> check_id("retry", problems, ("rules", 0, "id"))
    >>> problems.sentences()
    "rules[0].id: the rule id 'retry' is reserved (reserved: request, retry)"
    """
    if id in RESERVED_RULES:
        problems.add(
            at, f"the rule id {id!r} is reserved (reserved: {listed(sorted(RESERVED_RULES))})"
        )


def read_rules(entries: list[Any], context: Context, problems: Problems) -> tuple[Rule, ...]:
    """Read the entries of `rules:`; those with problems are left out.

    Args:
        entries: the valid part of the list, as `check_form` returns it.
        context: what the rules can refer to.
        problems: collects the problems.

    >>> context = Context({}, (), ("mean",), ("rule-0",), False, Functions(None, ()))
    >>> entries = [{"trigger": "timer", "after": "10m", "action": {"name": "terminate"}}]
    >>> [(rule.id, rule.after) for rule in read_rules(entries, context, Problems())]
    [('rule-0', 600.0)]
    """
    reader = _Reader(context, problems)
    rules = []
    first: dict[str, int] = {}
    for index, entry in enumerate(entries):
        if entry is None:
            continue
        at: Path = ("rules", index)
        id = rule_id(entry, index)
        check_id(id, problems, (*at, "id"))
        if id in first:
            problems.add((*at, "id"), f"the rule id {id!r} is that of rules[{first[id]}] too")
        first.setdefault(id, index)
        rule = reader.rule(entry, at, id)
        if rule is not None:
            rules.append(rule)
    return tuple(rules)


def rule_id(entry: Mapping[str, Any], index: int) -> str:
    """The id of the rule at a position of `rules:`.

    >>> rule_id({"id": "stop"}, 0), rule_id({}, 1)
    ('stop', 'rule-1')
    """
    return str(entry.get("id", f"rule-{index}"))


class _Reader:
    """Reads rules and actions that `check_form` has checked."""

    def __init__(self, context: Context, problems: Problems) -> None:
        self._context = context
        self._problems = problems
        self._id = ""
        #: Conditions that were compiled, since many rules may have the same one.
        self._conditions: dict[tuple[float | str, Subject], Condition] = {}
        #: How many job sets have parameters overridden.
        self._overrides = 0

    def rule(self, entry: Mapping[str, Any], at: Path, id: str) -> Rule | None:
        """Read a rule; None if it has problems."""
        self._id = id
        action = None
        if "action" in entry:
            action = self.action(entry["action"], (*at, "action"))
        if "trigger" not in entry:
            return None
        trigger = TRIGGER_ALIASES.get(entry["trigger"], entry["trigger"])
        for key, triggers in _RULE_KEYS.items():
            if key in entry and not trigger.startswith(triggers):
                only = listed(
                    f"{prefix}*" if prefix.endswith("-") else prefix for prefix in triggers
                )
                self._problems.add(
                    (*at, key),
                    f"{key!r} means nothing to the trigger {trigger!r} (only to: {only})",
                )
        name, group = entry.get("name"), None
        if trigger in SCALE_TRIGGERS:
            self._rule_id(name, (*at, "name"))
        elif trigger != "metric":
            name, group = None, self._selected(entry, trigger, at)
        after, every = self._timer(entry, trigger, at)
        when = entry.get("when")
        self._condition(trigger, name, when, at)
        if trigger == "heartbeat" and not self._context.heartbeat:
            self._problems.add((*at, "trigger"), f"there are no heartbeats: {_HEARTBEAT_OFF}")
        if action is None or self._problems.blames(at):
            return None
        return Rule(
            id=id,
            trigger=trigger,
            action=action,
            name=name,
            group=group,
            when=when,
            scope=entry.get("scope", "ensemble"),
            on_error=entry.get("on-error", "disable"),
            after=after,
            every=every,
            enabled=entry.get("enabled", True),
        )

    def _selected(self, entry: Mapping[str, Any], trigger: str, at: Path) -> str | None:
        """The group that `name` or its alias `group` selects."""
        if "name" in entry and "group" in entry:
            self._problems.add((*at, "group"), "'group' is another word for 'name'; give one")
        key = "group" if "group" in entry else "name"
        group: str | None = entry.get(key)
        of_jobs = trigger.startswith(_RULE_KEYS["group"])
        if group is not None and of_jobs and entry.get("scope") != "queue":
            self._group(group, (*at, key))
        return group

    def _timer(
        self, entry: Mapping[str, Any], trigger: str, at: Path
    ) -> tuple[float | None, float | None]:
        times: dict[str, float | None] = {}
        for key in ("after", "every"):
            times[key] = self._duration(entry, key, at) if key in entry else None
        has_time = bool(entry.keys() & times.keys()) or self._blamed(at, *times)
        if trigger == "timer" and not has_time:
            self._problems.add(at, "the trigger 'timer' needs 'after' or 'every'")
        if times["every"] == 0:
            self._problems.add((*at, "every"), "expected a duration > 0, not 0")
        return times["after"], times["every"]

    def _condition(self, trigger: str, name: str | None, when: Any, at: Path) -> None:
        """Check the metric in `name`, and `when`."""
        context, add = self._context, self._problems.add
        if name is not None and trigger == "metric":
            try:
                path = parse_path(name, context.names, context.statistics)
                self._gauge(path, (*at, "name"))
            except ValueError as error:
                add((*at, "name"), str(error))
        if when is None:
            if trigger == "metric" and name is None and not self._blamed(at, "name", "when"):
                add(at, "the trigger 'metric' needs 'name', a metric, or 'when', an expression")
            return
        try:
            condition = self._compiled(when, SUBJECTS.get(trigger))
        except ValueError as error:
            add((*at, "when"), str(error))
            return
        for path in sorted(condition.paths):
            self._gauge(path, (*at, "when"))
        if trigger == "metric" and name is None and not self._blamed(at, "name"):
            if condition.compares:
                add((*at, "when"), f"{shown(when)} compares a metric; say which in 'name'")
            elif not condition.paths:
                add((*at, "when"), f"{shown(when)} names no metric, so nothing triggers the rule")

    def _compiled(self, when: float | str, subject: Subject) -> Condition:
        key = when, subject
        if key not in self._conditions:
            self._conditions[key] = compile_condition(
                when,
                groups=self._context.names,
                statistics=self._context.statistics,
                subject=subject,
            )
        return self._conditions[key]

    def _gauge(self, path: MetricPath, at: Path) -> None:
        if path.variable in GAUGES and not self._context.heartbeat:
            self._problems.add(
                at, f"{str(path)!r} is known at heartbeats only, and {_HEARTBEAT_OFF}"
            )

    def _blamed(self, at: Path, *keys: str) -> bool:
        return any(self._problems.blames((*at, key)) for key in keys)

    def action(self, entry: Mapping[str, Any], at: Path) -> Action | None:
        """Read an action; None if it has problems."""
        if "name" not in entry:
            return None
        name = entry["name"]
        for key, actions in _ACTION_KEYS.items():
            if key in entry and name not in actions:
                self._problems.add(
                    (*at, key),
                    f"{key!r} means nothing to the action {name!r} (only to: {listed(actions)})",
                )
        if name in SCALE_ACTIONS and not self._context.elastic:
            self._problems.add(
                at,
                f"{name!r} needs a member that can change its size, and this one has a fixed size",
            )
        self._label(name, entry, at)
        if name == "submit" and entry.get("label") in self._context.groups:
            self._submission(self._context.groups[entry["label"]], entry, at)
        changes = bool(entry.keys() & {"urgency", "duration"})
        if name == "update" and not changes and not self._blamed(at, "urgency", "duration"):
            self._problems.add(at, "the action 'update' needs 'urgency' or 'duration'")
        durations: dict[str, Any] = {}
        for key in ("cooldown", "duration", "timeout"):
            if key in entry:
                durations[key] = self._duration(entry, key, at)
        if self._problems.blames(at):
            return None
        repetitions = entry.get("repetitions", 1)
        return Action(
            name=name,
            repetitions=None if repetitions == "unlimited" else repetitions,
            **{key: entry[key] for key in _AS_GIVEN if key in entry},
            **durations,
        )

    def _label(self, name: str, entry: Mapping[str, Any], at: Path) -> None:
        label = entry.get("label")
        if label is None:
            if name in _NEED_LABEL and not self._blamed(at, "label"):
                what = {"custom": "a function", "enable": "a rule", "disable": "a rule"}
                self._problems.add(
                    at, f"the action {name!r} needs a 'label', {what.get(name, 'a job group')}"
                )
        elif name in _ON_GROUPS:
            self._group(label, (*at, "label"))
        elif name == "custom":
            try:
                self._context.functions.check(label)
            except ValueError as error:
                self._problems.add((*at, "label"), str(error))
        elif name in ("enable", "disable"):
            self._rule_id(label, (*at, "label"))

    def _rule_id(self, id: str | None, at: Path) -> None:
        # A rule that is to be added can name itself.
        if id is not None and id != self._id and id not in self._context.rule_ids:
            ids = sorted({*self._context.rule_ids, *([self._id] if self._id else ())})
            self._problems.add(
                at, f"no rule with the id {id!r} ({hint(id, ids)}ids: {listed(ids)})"
            )

    def _submission(self, group: Group, entry: Mapping[str, Any], at: Path) -> None:
        if "params" in entry:
            self._overrides += len(group.sets)
            if self._overrides > MAX_OVERRIDES:
                self._problems.give_up(
                    (*at, "params"),
                    f"rules give parameters to more than {MAX_OVERRIDES} job sets in all",
                )
        try:
            group.submission(entry.get("count"), entry.get("params"))
        except ValueError as error:
            key = "params" if "params" in entry else "count"
            self._problems.add((*at, key), str(error))

    def _group(self, name: str, at: Path) -> None:
        if name not in self._context.names:
            names = sorted(self._context.names)
            self._problems.add(
                at, f"no job group named {name!r} ({hint(name, names)}groups: {listed(names)})"
            )

    def _duration(self, entry: Mapping[str, Any], key: str, at: Path) -> float | None:
        try:
            return parse_duration(entry[key], limit=key in ("duration", "timeout"))
        except ValueError as error:
            self._problems.add((*at, key), str(error))
            return None
