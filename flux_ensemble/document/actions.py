"""Reads actions, of a document or returned by a custom function."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.document.action_templates import TRIGGER, Filling
from flux_ensemble.document.functions import FunctionLabels
from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.keys.overrides import OVERRIDES, SHAPE
from flux_ensemble.document.keys.reading import read_keys
from flux_ensemble.document.keys.rules import (
    ACTION_KEYS,
    OF_JOB,
    ON_ENTRIES,
    ON_GROUPS,
    RESIZES,
)
from flux_ensemble.document.model import Action, Spec
from flux_ensemble.document.plain_data import check_plain
from flux_ensemble.document.problems import Path, Problems, TooMany
from flux_ensemble.document.schema import check_form
from flux_ensemble.document.templates import has_braces, most_expressions
from flux_ensemble.metrics.by_value import ByValue
from flux_ensemble.metrics.conditions import Bested, Names
from flux_ensemble.metrics.families import FAMILIES, Families
from flux_ensemble.metrics.paths import parse_label
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shortened

#: Actions that need a label.
_NEED_LABEL = ("submit", "update", "custom", "enable", "disable", "reset", *ON_ENTRIES)

#: Keys that can have expressions, in the order in which these are evaluated: of several without a
#: value the first is reported.
_EXPRESSION_KEYS = sorted(
    (key for key in ACTION_KEYS if key.expression),
    key=lambda key: (key.name not in OVERRIDES, key.name == "params"),
)

#: Most job sets whose parameters the actions of a document override. The job sets of a group
#: count once for each action.
MAX_OVERRIDES = 100_000

#: Most expressions in the texts of all actions together.
MAX_EXPRESSIONS = 25_000


@dataclass(frozen=True)
class Context:
    """The names that the rules of a document can refer to.

    Attributes:
        groups: the job groups, by name.
        every: these, and those with problems, whose parameters are known all the same.
        names: the names of all job groups, with problems or not.
        statistics: the names of the statistics that are kept.
        rule_ids: the ids of the rules.
        heartbeat: whether there is a heartbeat.
        functions: what custom actions can call.
        elastic: whether the member can change its size.
        bests: the best jobs that are kept, by name, with the parameters that they can have.
        by: the metrics that are kept by value.
        named: the entries of lists that features read, by the key of the list and name.
        pools: the names of the pools of members.
    """

    groups: Mapping[str, Group]
    every: Mapping[str, Group]
    names: Collection[str]
    statistics: Collection[str]
    rule_ids: Collection[str]
    heartbeat: bool
    functions: FunctionLabels
    elastic: bool = True
    bests: Bested = field(default_factory=dict)
    by: Collection[ByValue] = ()
    named: Families = field(default_factory=dict)
    pools: Collection[str] = ()


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
            action = ActionReader(context_of(spec, rule_ids), problems).action(left, ())
    if problems or action is None:
        raise ValueError(problems.sentences())
    return action


def context_of(spec: Spec, rule_ids: Collection[str]) -> Context:
    """Return the names that rules and actions added to a running ensemble can refer to.

    >>> from flux_ensemble.document.loading import load_text
    >>> spec = load_text("jobs: [{name: hello, command: echo hello}]", name="demo")
    >>> context = context_of(spec, ["rule-0"])
    >>> list(context.names), context.heartbeat
    (['hello'], False)
    """
    return Context(
        groups=spec.groups,
        every=spec.groups,
        names=spec.groups,
        statistics=frozenset(statistic.name for statistic in spec.statistics),
        rule_ids=rule_ids,
        heartbeat=spec.heartbeat > 0,
        functions=FunctionLabels(spec.custom, spec.plugins),
        bests=spec.bested,
        by=spec.by,
        named=spec.named,
        pools=[pool.name for pool in spec.members],
    )


class ActionReader:
    """Reads actions that `check_form` has checked, and what they refer to.

    >>> from flux_ensemble.document.loading import load_text
    >>> spec = load_text("jobs: [{name: hello, command: echo hello}]", name="demo")
    >>> problems = Problems()
    >>> ActionReader(context_of(spec, ()), problems).action({"name": "submit", "label": "hi"}, ())
    >>> problems.sentences()
    "label: no job group named 'hi' (groups: hello)"
    """

    def __init__(self, context: Context, problems: Problems) -> None:
        self._context = context
        self._problems = problems
        #: The id of the rule that is read, if there is one, and the names for its expressions.
        self._id = ""
        self._names: Names | None = None
        #: How many job sets have parameters overridden.
        self._overrides = 0
        #: How many expressions actions have.
        self._expressions = 0

    def action(self, entry: Mapping[str, Any], at: Path) -> Action | None:
        """Read an action; None if it has problems."""
        if "name" not in entry:
            return None
        name = entry["name"]
        for key in ACTION_KEYS:
            if key.name in entry and not key.takes(name):
                self._problems.add(
                    (*at, key.name),
                    f"{key.name!r} means nothing to the action {name!r} "
                    f"(only to: {listed(key.only)})",
                )
        if name in RESIZES and not self._context.elastic and "label" not in entry:
            self._problems.add(
                at,
                f"{name!r} needs an instance that can change its nodes, and this one has a fixed "
                "size",
            )
        self._label(name, entry, at)
        if "near" in entry and name == "submit":
            self._near((*at, "near"))
        fields, expressions = self._fields(entry, at)
        overrides = {}
        if name == "submit":
            overrides = {key: fields.pop(key) for key in OVERRIDES if key in fields}
        if name == "submit" and entry.get("label") in self._context.groups:
            self._submission(self._context.groups[entry["label"]], entry, overrides, at)
        changes = bool(entry.keys() & {"urgency", "duration"})
        if name == "update" and not changes and not self._blamed(at, "urgency", "duration"):
            self._problems.add(at, "the action 'update' needs 'urgency' or 'duration'")
        if self._problems.blames(at):
            return None
        return Action(
            name=name, overrides=overrides or None, expressions=expressions or None, **fields
        )

    def _fields(self, entry: Mapping[str, Any], at: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read the keys of an action: the fields, and the values that are or have expressions."""
        expressions: dict[str, Any] = {}
        for key in _EXPRESSION_KEYS:
            value = entry.get(key.name)
            of_trigger = key.name == "params" and value == TRIGGER
            computed = self._names is not None and has_braces(value)
            if key.name in entry and (of_trigger or computed):
                expressions[key.name] = value
                self._count(value, (*at, key.name))
                self._expression(key.name, value, (*at, key.name))
        fixed = {key: value for key, value in entry.items() if key not in expressions}
        return read_keys(ACTION_KEYS, fixed, self._problems, at), expressions

    def _count(self, value: Any, at: Path) -> None:
        self._expressions += most_expressions(value)
        if self._expressions > MAX_EXPRESSIONS:
            self._problems.give_up(
                at, f"expected at most {MAX_EXPRESSIONS} expressions in all actions"
            )

    def _expression(self, key: str, value: Any, at: Path) -> None:
        """Check the expressions in the value of a key."""
        names = self._names
        if value == TRIGGER and (names is None or names.job is None):
            self._problems.add(
                at,
                f"{TRIGGER!r} means the parameters of the triggering job, and no job triggers this "
                "(only rules on 'job-*', 'drift' and 'anomaly' have one)",
            )
        elif names is not None:
            try:
                Filling({key: value}, names, None)
            except ValueError as error:
                self._problems.add(at, str(error).removeprefix(f"{key}: "))

    def _label(self, name: str, entry: Mapping[str, Any], at: Path) -> None:
        label = entry.get("label")
        if "jobs" in entry or name in OF_JOB:
            if label is not None and name not in OF_JOB:
                self._problems.add((*at, "label"), "give one of 'label' and 'jobs'")
            self._triggering((*at, "jobs") if "jobs" in entry else at)
        elif label is None:
            if name in _NEED_LABEL and not self._blamed(at, "label"):
                what = {
                    "custom": "a function",
                    "enable": "a rule",
                    "disable": "a rule",
                    "reset": "a job group or GROUP-VARIABLE",
                    **{action: f"a {FAMILIES[key].noun}" for action, key in ON_ENTRIES.items()},
                }
                self._problems.add(
                    at, f"the action {name!r} needs a 'label', {what.get(name, 'a job group')}"
                )
        elif name in ON_GROUPS:
            self._group(label, (*at, "label"))
        elif name == "custom":
            try:
                self._context.functions.check(label)
            except ValueError as error:
                self._problems.add((*at, "label"), str(error))
        elif name in ON_ENTRIES:
            self._entry(ON_ENTRIES[name], label, (*at, "label"))
        elif name in RESIZES:
            self._pool(label, (*at, "label"))
        elif name in ("enable", "disable"):
            self._rule_id(label, (*at, "label"))
        elif name == "reset":
            try:
                parse_label(label, self._context.names, self._context.by)
            except ValueError as error:
                self._problems.add((*at, "label"), str(error))

    def _triggering(self, at: Path) -> None:
        """Check that a job triggers the rule."""
        # A combination that is idle has parameters, and is no job.
        job = None if self._names is None else self._names.job
        if job is None or "id" not in job.names:
            self._problems.add(
                at,
                "no job triggers this (only rules on 'job-*', 'drift' and 'anomaly' have a "
                "triggering job)",
            )

    def _near(self, at: Path) -> None:
        if not self._context.pools:
            self._problems.add(at, "'near' chooses a member, and the document has no 'members'")
        else:
            self._triggering(at)

    def _entry(self, key: str, id: str, at: Path) -> None:
        noun, plural, _ = FAMILIES[key]
        self._known(id, at, self._context.named.get(key, {}), noun, key, plural)

    def _pool(self, name: str, at: Path) -> None:
        self._known(name, at, self._context.pools, "member", "members", "members")

    def _known(
        self, name: str, at: Path, names: Collection[str], what: str, key: str, known: str
    ) -> None:
        """Check that a name is one of these; the rest is for the sentence."""
        if name not in names:
            there = sorted(set(names))
            listing = f"{hint(name, there)}{known}: {listed(there)}"
            said = listing if there else f"the document has no {key!r}"
            self._problems.add(at, f"no {what} named {name!r} ({said})")

    def _rule_id(self, id: str | None, at: Path) -> None:
        # A rule that is to be added can name itself.
        if id is not None and id != self._id and id not in self._context.rule_ids:
            ids = sorted({*self._context.rule_ids, *([self._id] if self._id else ())})
            self._problems.add(
                at, f"no rule with the id {id!r} ({hint(id, ids)}ids: {listed(ids)})"
            )

    def _submission(
        self, group: Group, entry: Mapping[str, Any], overrides: Mapping[str, Any], at: Path
    ) -> None:
        """Check a submission, as far as it has no expressions."""
        count, params = entry.get("count"), entry.get("params")
        if isinstance(params, Mapping):
            for name, value in params.items():
                if isinstance(value, Mapping) and len(value) == 1 and None in value.values():
                    (inside,) = value
                    self._problems.add(
                        (*at, "params", name),
                        f"expected text with an expression, in quotes: '{{{shortened(inside)}}}'",
                    )
                    return
            params = {name: 0 if has_braces(value) else value for name, value in params.items()}
        else:
            params = None
        if "params" in entry or overrides:
            self._overrides += len(group.sets)
            if self._overrides > MAX_OVERRIDES:
                self._problems.give_up(
                    (*at, "params"),
                    f"rules give parameters to more than {MAX_OVERRIDES} job sets in all",
                )
        # Whether it can have another shape does not depend on which.
        overrides = {**{key: 1 for key in SHAPE if key in entry}, **overrides}
        try:
            group.submission(count if type(count) is int else None, params, overrides)
        except ValueError as error:
            places = [key for key in ("params", *overrides, "count") if key in entry]
            self._problems.add((*at, *places[:1]), str(error))

    def _group(self, name: str, at: Path) -> None:
        if name not in self._context.names:
            names = sorted(self._context.names)
            self._problems.add(
                at, f"no job group named {name!r} ({hint(name, names)}groups: {listed(names)})"
            )

    def _blamed(self, at: Path, *keys: str) -> bool:
        return any(self._problems.blames((*at, key)) for key in keys)
