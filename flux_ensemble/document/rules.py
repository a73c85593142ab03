"""Reads rules, of a document or returned by a custom function."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from flux_ensemble.document.actions import ActionReader, Context, context_of
from flux_ensemble.document.model import (
    RESERVED_RULES,
    SCALE_TRIGGERS,
    TRIGGER_ALIASES,
    Rule,
    Spec,
)
from flux_ensemble.document.plain import check_plain
from flux_ensemble.document.problems import Path, Problems, TooMany
from flux_ensemble.document.schema_check import check_form
from flux_ensemble.metrics.conditions import SUBJECTS, Condition, Subject, compile_condition
from flux_ensemble.metrics.names import GAUGES
from flux_ensemble.metrics.paths import MetricPath, parse_path
from flux_ensemble.texts import listed, shown

#: Keys of a rule that only some triggers have; "job-" is a prefix.
_RULE_KEYS = {
    "name": ("metric", "job-", "idle", "scale-"),
    "group": ("job-", "idle"),
    "scope": ("job-",),
    "after": ("timer",),
    "every": ("timer",),
    "by": ("idle",),
    "below": ("time-left",),
}

_HEARTBEAT_OFF = "the heartbeat is off; set logging.heartbeat, such as 'logging: {heartbeat: 10s}'"


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
            rule = _RuleReader(context_of(spec, rule_ids), problems).rule(left, (), id)
    if problems or rule is None:
        raise ValueError(problems.sentences())
    return rule


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

    >>> from flux_ensemble.document.loading import load_text
    >>> spec = load_text("jobs: [{name: hello, command: echo hello}]", name="demo")
    >>> context = context_of(spec, ["rule-0"])
    >>> entries = [{"trigger": "timer", "after": "10m", "action": {"name": "terminate"}}]
    >>> [(rule.id, rule.after) for rule in read_rules(entries, context, Problems())]
    [('rule-0', 600.0)]
    """
    reader = _RuleReader(context, problems)
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


class _RuleReader(ActionReader):
    """Reads rules that `check_form` has checked."""

    def __init__(self, context: Context, problems: Problems) -> None:
        super().__init__(context, problems)
        #: Conditions that were compiled, since many rules may have the same one.
        self._conditions: dict[tuple[float | str, Subject], Condition] = {}

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
        if "by" in entry and trigger == "idle":
            self._by(entry["by"], group, (*at, "by"))
        after, every = self._timer(entry, trigger, at)
        below = self._below(entry, trigger, at)
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
            below=below,
            enabled=entry.get("enabled", True),
            by=tuple(dict.fromkeys(entry.get("by", ()))),
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

    def _by(self, names: list[str | None], group: str | None, at: Path) -> None:
        """Check that each job of the group has the parameters of an `idle` rule."""
        if group is None:
            self._problems.add(at, "'by' needs 'group', the group whose parameters these are")
            return
        # One with problems has its own.
        known = self._context.groups.get(group)
        for index, name in enumerate(names):
            for jobset in known.sets if known is not None and name is not None else ():
                if name not in jobset.sweep.names:
                    self._problems.add(
                        (*at, index),
                        f"group {group!r} has no parameter {shown(name)} in jobs[{jobset.index}] "
                        f"(parameters: {listed(sorted(jobset.sweep.names))})",
                    )

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

    def _below(self, entry: Mapping[str, Any], trigger: str, at: Path) -> float | None:
        below = self._duration(entry, "below", at) if "below" in entry else None
        if trigger == "time-left" and "below" not in entry and not self._blamed(at, "below"):
            self._problems.add(at, "the trigger 'time-left' needs 'below', such as 'below: 20m'")
        return below

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
            elif not context.heartbeat and all(
                path.statistic == "time" for path in condition.paths
            ):
                add(
                    (*at, "when"), f"{shown(when)} is looked at at heartbeats, and {_HEARTBEAT_OFF}"
                )

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
        by_name = at[-1] == "name" and path.statistic == "time"
        if (path.variable in GAUGES or by_name) and not self._context.heartbeat:
            self._problems.add(
                at, f"{str(path)!r} is known at heartbeats only, and {_HEARTBEAT_OFF}"
            )
