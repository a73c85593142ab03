"""Reads rules and their detectors, of a document or returned by a custom function."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from flux_ensemble.document.action_templates import TRIGGER
from flux_ensemble.document.actions import ActionReader, Context, context_of
from flux_ensemble.document.by_value import missing
from flux_ensemble.document.feature import document_features
from flux_ensemble.document.keys.detectors import EXAMPLES, KINDS
from flux_ensemble.document.keys.forms import Key, table
from flux_ensemble.document.keys.reading import read_keys
from flux_ensemble.document.keys.rules import (
    MEMBER_TRIGGERS,
    OF_ENTRIES,
    OF_REQUESTS,
    OUTCOME_TRIGGERS,
    RULE,
    RULE_KEYS,
    RUNNING_EVERY,
    RUNNING_TRIGGER,
    TRIGGER_ALIASES,
)
from flux_ensemble.document.model import RESERVED_RULES, Action, Rule, Spec
from flux_ensemble.document.plain_data import check_plain
from flux_ensemble.document.problems import Path, Problems, TooMany
from flux_ensemble.document.schema import check_form
from flux_ensemble.document.scopes import detector_scope, job_scope
from flux_ensemble.metrics.by_value import ByValue, parse_variable
from flux_ensemble.metrics.conditions import SUBJECTS, Condition, Names, Subject, compile_condition
from flux_ensemble.metrics.detector import DETECTORS, MAX_WINDOW, Detector
from flux_ensemble.metrics.expressions import keys_of, parse_expression
from flux_ensemble.metrics.families import FAMILIES
from flux_ensemble.metrics.job_fields import JOB, JobScope
from flux_ensemble.metrics.job_row import PARAMS
from flux_ensemble.metrics.names import GAUGES
from flux_ensemble.metrics.paths import MetricPath, parse_path, split_stream
from flux_ensemble.texts import listed, shown

#: What fields of a job that succeeded are; None for one that has no value.
_SUCCESS = {"returncode": 0, "signal": None}

#: Most detectors of a document, and most values in the windows of all of them.
MAX_DETECTORS = 1000
MAX_WINDOWS = 1_000_000

#: The window of a quantile has so many values beyond it, unless it is given.
_VALUES_BEYOND = 10

_DETECTOR_ARGUMENTS = {kind.name: table(kind.form) for kind in KINDS}

#: The triggers that have nothing to do with one member -> what to do.
NOT_OF_MEMBER = {
    "start": "write 'trigger: member-up', which is for each member that comes up",
    "timer": "write 'trigger: heartbeat' with a 'cooldown', or 'job-running'",
    "time-left": "write 'trigger: member-draining', or 'when: time.left < 600' at a heartbeat",
    "idle": "nobody knows that no more jobs come to a member; write 'job-*'",
    "drift": "its detector takes in the values of all members; leave out the scope",
    "anomaly": "its detector takes in the values of all members; leave out the scope",
    **{
        trigger: f"a {FAMILIES[key].noun} is of the ensemble; leave out the scope"
        for trigger, key in OF_ENTRIES.items()
    },
    **dict.fromkeys(OF_REQUESTS, "requests are of the ensemble; leave out the scope"),
}

#: The triggers of a member that takes no jobs any more.
_CLOSING = ("member-draining", "member-lost")

#: Keys of an action that count how often its rule fires.
_OF_RULE = ("repetitions", "backoff", "cooldown")

_KEYS = table(RULE)

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


def _valid(items: list[Any]) -> list[Any]:
    """The items of a list but for the invalid ones, in whose place is None."""
    return [item for item in items if item is not None]


class _RuleReader(ActionReader):
    """Reads rules that `check_form` has checked."""

    def __init__(self, context: Context, problems: Problems) -> None:
        super().__init__(context, problems)
        #: Conditions that were compiled, since many rules may have the same one.
        self._conditions: dict[tuple[float | str, Subject, JobScope | None], Condition] = {}
        self._detectors = DetectorReader(context.names, context.statistics, context.by, problems)

    def rule(self, entry: Mapping[str, Any], at: Path, id: str) -> Rule | None:
        """Read a rule; None if it has problems."""
        self._id = id
        triggers = self._triggers(entry, at)
        trigger = triggers[0] if triggers else ""
        groups = self._selected(entry, trigger, at)
        context = self._context
        detector = self._detectors.read(trigger, entry, at) if trigger in DETECTORS else None
        scope = self._scope(entry, triggers, groups, detector)
        of_member = entry.get("scope") == "member"
        self._names = self._usable(SUBJECTS.get(trigger), scope, of_member, context.pools)
        actions = self._actions(entry, at)
        if not triggers:
            return None
        if of_member:
            for place, message in member_scope_problems(entry, triggers, context.pools):
                self._problems.add((*at, *place), message)
        self._check_keys(entry, trigger, at)
        name = self._name(entry, trigger, at)
        if "by" in entry and trigger == "idle":
            self._by(entry["by"], groups, (*at, "by"))
        if trigger == "idle":
            for place, message in self._not_passed(entry, groups):
                self._problems.add((*at, *place), message)
        fields = read_keys(RULE_KEYS, entry, self._problems, at)
        self._check_times(entry, trigger, fields, at)
        when = entry.get("when")
        self._condition(triggers, name, when, scope, at)
        if trigger == "heartbeat" and not self._context.heartbeat:
            self._problems.add((*at, "trigger"), f"there are no heartbeats: {_HEARTBEAT_OFF}")
        if not actions or self._problems.blames(at):
            return None
        return Rule(
            id=id,
            trigger=trigger,
            action=actions[0],
            name=name,
            group=groups[0] if groups else None,
            detector=detector,
            more_triggers=tuple(triggers[1:]),
            more_groups=tuple(groups[1:]),
            more_actions=tuple(actions[1:]),
            **fields,
        )

    def _scope(
        self,
        entry: Mapping[str, Any],
        triggers: Sequence[str],
        groups: Sequence[str],
        detector: Detector | None,
    ) -> JobScope | None:
        """Return the names of a job that conditions and expressions of a rule can use."""
        if triggers and triggers[0] in DETECTORS:
            watched = ("", "") if detector is None else (detector.group, detector.variable)
            return detector_scope(triggers[0], *watched, self._context.every)
        # Where the trigger is wrong, what it would know of a job is not wrong too.
        by = [name for name in entry.get("by", ()) if name is not None]
        return job_scope(triggers or ["job-finish"], groups, self._context.every, by)

    def _name(self, entry: Mapping[str, Any], trigger: str, at: Path) -> str | None:
        """Check the `name` of a rule; its trigger decides what is named."""
        name: str | None = entry.get("name")
        if trigger in OF_REQUESTS:
            self._rule_id(name, (*at, "name"))
        elif trigger in OF_ENTRIES:
            if name is not None:
                self._entry(OF_ENTRIES[trigger], name, (*at, "name"))
        elif trigger in MEMBER_TRIGGERS:
            if name is not None:
                self._pool(name, (*at, "name"))
            elif not self._context.pools:
                self._problems.add((*at, "trigger"), "the document has no 'members'")
        elif trigger != "metric" and trigger not in DETECTORS:
            return None
        return name

    def _triggers(self, entry: Mapping[str, Any], at: Path) -> list[str]:
        """The triggers under their present names, each once; none if there is a problem."""
        written = entry.get("trigger", [])
        several = isinstance(written, list)
        names = _valid(written) if several else [written]
        triggers = [TRIGGER_ALIASES.get(name, name) for name in names]
        if several and not all(str(trigger).startswith("job-") for trigger in triggers):
            self._problems.add((*at, "trigger"), "a list of triggers can have 'job-*' only")
            return []
        if RUNNING_TRIGGER in triggers:
            for key, wrong in (("trigger", several), ("scope", entry.get("scope") == "queue")):
                if wrong:
                    self._problems.add(
                        (*at, key),
                        f"a rule on {RUNNING_TRIGGER!r} has no other trigger, and looks at jobs of "
                        "the ensemble alone",
                    )
        return list(dict.fromkeys(triggers))

    def _actions(self, entry: Mapping[str, Any], at: Path) -> list[Action]:
        """The actions of a rule, in order; those with problems are left out."""
        if "action" in entry:
            if "actions" in entry:
                self._problems.add((*at, "actions"), "give one of 'action' and 'actions'")
            action = self.action(entry["action"], (*at, "action"))
            return [] if action is None else [action]
        if "actions" not in entry:
            if not self._blamed(at, "action", "actions"):
                self._problems.add(at, "the key 'action' is missing")
            return []
        actions = []
        for index, value in enumerate(entry["actions"]):
            here = (*at, "actions", index)
            for key in _OF_RULE if index else ():
                if value is not None and key in value:
                    self._problems.add(
                        (*here, key), f"{key!r} counts for the whole rule: write it at actions[0]"
                    )
            action = None if value is None else self.action(value, here)
            actions += [] if action is None else [action]
        return actions

    def _selected(self, entry: Mapping[str, Any], trigger: str, at: Path) -> list[str]:
        """The groups that `group` or its alias `name` selects; none for all jobs."""
        if trigger in ("metric", *OF_REQUESTS, *OF_ENTRIES, *MEMBER_TRIGGERS, *DETECTORS):
            return []
        if "name" in entry and "group" in entry:
            self._problems.add((*at, "group"), "'group' is another word for 'name'; give one")
        key = "group" if "group" in entry else "name"
        value = entry.get(key, [])
        groups = _valid(value) if isinstance(value, list) else [value]
        if len(groups) > 1 and not (trigger.startswith("job-") or trigger == "idle"):
            self._problems.add(
                (*at, key), "only a 'job-*' or 'idle' trigger can have several groups"
            )
        of_jobs = _KEYS["group"].takes(trigger)
        if of_jobs and entry.get("scope") != "queue":
            for group in groups:
                self._group(group, (*at, key))
        return list(dict.fromkeys(groups))

    def _by(self, names: list[str | None], groups: list[str], at: Path) -> None:
        """Check that each job of the groups has the parameters of an `idle` rule."""
        if not groups:
            self._problems.add(at, "'by' needs 'group', the group whose parameters these are")
        remedy = ""
        if len(groups) > 1 and all(group in self._context.groups for group in groups):
            params = [set(self._context.groups[group].params) for group in groups]
            common = listed(sorted(set.intersection(*params)))
            remedy = f"; groups are joined by parameters that all of them have: {common}"
        for group in groups:
            # One with problems has its own.
            known = self._context.groups.get(group)
            for index, name in enumerate(names):
                for message in () if known is None or name is None else missing(known, name):
                    self._problems.add((*at, index), f"{message}{remedy}")

    def _not_passed(
        self, entry: Mapping[str, Any], groups: Sequence[str]
    ) -> Iterator[tuple[Path, str]]:
        """Yield what `params: trigger` of an `idle` rule cannot pass: places, and sentences."""
        every = self._context.every
        by = [name for name in entry.get("by", ()) if name is not None]
        theirs = [every[name].params for name in groups if name in every]
        for place, action in _written_actions(entry):
            label = action.get("label", "")
            if action.get("params") != TRIGGER or label not in every:
                continue
            path = (*place, "params")
            if not by:
                yield (
                    path,
                    f"{TRIGGER!r} means the parameters of the triggering job, and an 'idle' rule "
                    "without 'by' knows of none: give it 'by', or write the values",
                )
                continue
            lost = [
                name
                for name in every[label].params
                if name not in by and any(name in params for params in theirs)
            ]
            if not lost:
                continue
            own = ", ".join(
                f'{name}: "{{{JOB}.{PARAMS}.{name}}}"' for name in by if name in every[label].params
            )
            more = ", ".join((*by, *lost))
            whole = all(name in params for name in lost for params in theirs)
            remedy = f"write 'by: [{more}]', or " if whole else "write "
            yield (
                path,
                f"{TRIGGER!r} passes what is in 'by', and {listed(map(repr, lost))} of these jobs "
                f"is not: {remedy}'params: {{{own}}}' for group {label!r} with its own values of "
                f"{listed(map(repr, lost))}",
            )

    def _check_keys(self, entry: Mapping[str, Any], trigger: str, at: Path) -> None:
        """Check that the rule has no key that means nothing to its trigger."""
        for key in RULE_KEYS:
            if key.name == "scope" and entry.get("scope") == "member":
                continue
            if key.name in entry and not key.takes(trigger):
                only = listed(f"{name}*" if name.endswith("-") else name for name in key.only)
                self._problems.add(
                    (*at, key.name),
                    f"{key.name!r} means nothing to the trigger {trigger!r} (only to: {only})",
                )

    def _check_times(
        self, entry: Mapping[str, Any], trigger: str, fields: dict[str, Any], at: Path
    ) -> None:
        """Check that a rule has the durations that its trigger needs."""
        times = ("after", "every")
        has_time = any(key in entry for key in times) or self._blamed(at, *times)
        if trigger == "timer" and not has_time:
            self._problems.add(at, "the trigger 'timer' needs 'after' or 'every'")
        if fields.get("every") == 0:
            self._problems.add((*at, "every"), "expected a duration > 0, not 0")
        if trigger == RUNNING_TRIGGER and "every" not in entry:
            fields["every"] = RUNNING_EVERY
        if trigger == "time-left" and "below" not in entry and not self._blamed(at, "below"):
            self._problems.add(at, "the trigger 'time-left' needs 'below', such as 'below: 20m'")

    def _condition(
        self, triggers: list[str], name: str | None, when: Any, scope: JobScope | None, at: Path
    ) -> None:
        """Check the metric in `name`, and `when`."""
        context, add, trigger = self._context, self._problems.add, triggers[0]
        if name is not None and trigger == "metric":
            try:
                path = parse_path(name, context.names, context.statistics, context.by)
                self._gauge(path, (*at, "name"))
            except ValueError as error:
                add((*at, "name"), str(error))
        if when is None:
            if trigger == "metric" and name is None and not self._blamed(at, "name", "when"):
                add(at, "the trigger 'metric' needs 'name', a metric, or 'when', an expression")
            return
        try:
            condition = self._compiled(when, SUBJECTS.get(trigger), scope)
        except ValueError as error:
            add((*at, "when"), str(error))
            return
        if scope is not None and not condition.compares:
            for message in ruled_out(str(when).strip(), triggers):
                add((*at, "when"), message)
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
                    (*at, "when"),
                    f"{shown(when)} is only evaluated at heartbeats, and {_HEARTBEAT_OFF}",
                )

    def _compiled(self, when: float | str, subject: Subject, scope: JobScope | None) -> Condition:
        key = when, subject, scope
        if key not in self._conditions:
            self._conditions[key] = compile_condition(when, self._usable(subject, scope))
        return self._conditions[key]

    def _usable(
        self,
        subject: Subject,
        scope: JobScope | None,
        of_member: bool = False,
        pools: Collection[str] | None = None,
    ) -> Names:
        """Return the names that expressions of a rule can use; the arguments are as for `Names`."""
        known = self._context
        every = known.names, known.statistics, subject, scope
        return Names(*every, known.bests, known.by, known.named, of_member, pools)

    def _gauge(self, path: MetricPath, at: Path) -> None:
        reason = None if self._names is None else self._names.objection(path)
        if reason is not None:
            self._problems.add(at, reason)
        groups = self._context.groups
        whole = len(groups) == len(self._context.names)
        for feature in document_features() if whole else ():
            empty = None if feature.objection is None else feature.objection(path, groups)
            if empty is not None:
                self._problems.add(at, empty)
        by_name = at[-1] == "name" and path.statistic == "time"
        if (path.variable in GAUGES or by_name) and not self._context.heartbeat:
            self._problems.add(
                at, f"{str(path)!r} is known at heartbeats only, and {_HEARTBEAT_OFF}"
            )


def member_scope_problems(
    entry: Mapping[str, Any], triggers: Sequence[str], pools: Collection[str]
) -> Iterator[tuple[Path, str]]:
    """Yield the problems of a rule that has `scope: member`: places in its entry, and sentences.

    Args:
        entry: the rule.
        triggers: its triggers under their present names.
        pools: the names of the pools of members.

    >>> entry = {"trigger": "start", "scope": "member", "action": {"name": "terminate"}}
    >>> [place for place, _ in member_scope_problems(entry, ["start"], ["pool"])]
    [('trigger',)]
    """
    if not pools:
        yield (
            ("scope",),
            "'member' is each of the members, and the document has no 'members'; leave it out",
        )
    for trigger in triggers:
        if trigger in NOT_OF_MEMBER:
            yield (
                ("trigger",),
                f"{trigger!r} cannot be seen of one member ('scope: member'): "
                f"{NOT_OF_MEMBER[trigger]}",
            )
    for place, action in _written_actions(entry):
        if "near" in action:
            yield (
                (*place, "near"),
                "'near' means nothing with 'scope: member', whose jobs run on that member",
            )
        if action.get("name") == "submit" and triggers and triggers[0] in _CLOSING:
            yield (
                place,
                f"no job can run on the member any more at {triggers[0]!r}; "
                "leave out 'scope: member', and the jobs run on others",
            )


def _written_actions(entry: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    if isinstance(entry.get("action"), Mapping):
        yield ("action",), entry["action"]
    for index, action in enumerate(entry.get("actions") or ()):
        if isinstance(action, Mapping):
            yield ("actions", index), action


def _default(key: Key) -> Any:
    is_number = key.form.get("type") == "number"
    return float(key.default) if is_number else key.default


class DetectorReader:
    """Reads the detectors of the rules of one document.

    Args:
        groups: the names of the job groups.
        statistics: the names of the statistics that are kept.
        by: the metrics that are kept by value.
        problems: collects the problems.

    >>> reader = DetectorReader(["md"], ["mean"], (), Problems())
    >>> reader.read("drift", {"name": "md-error", "detector": {"page-hinkley": {}}}, ())
    Detector(group='md', variable='error', kind='page-hinkley', arguments={...})
    """

    def __init__(
        self,
        groups: Collection[str],
        statistics: Collection[str],
        by: Collection[ByValue],
        problems: Problems,
    ) -> None:
        self._groups = groups
        self._statistics = statistics
        self._by = by
        self._problems = problems
        self._read = 0
        self._windows = 0

    def read(self, trigger: str, entry: Mapping[str, Any], at: Path) -> Detector | None:
        """The detector of a rule; None if it has problems.

        Args:
            trigger: of the rule, one of `DETECTORS`.
            entry: the valid part of the rule.
            at: where the document has it.
        """
        add, blames = self._problems.add, self._problems.blames
        stream = None
        if "name" in entry:
            stream = self._stream(entry["name"], (*at, "name"))
        elif not blames((*at, "name")):
            add(
                at,
                f"the trigger {trigger!r} needs 'name', the values that it watches, such as "
                "'name: GROUP-KEY' for a memo key",
            )
        if "detector" not in entry:
            if not blames((*at, "detector")):
                example = EXAMPLES[trigger]
                add(at, f"the trigger {trigger!r} needs 'detector', such as 'detector: {example}'")
            return None
        if not entry["detector"]:
            # The kind that was there has its own problem.
            return None
        ((kind, given),) = entry["detector"].items()
        if kind not in DETECTORS[trigger]:
            add(
                (*at, "detector"),
                f"the trigger {trigger!r} has no detector {kind!r}; give one such as "
                f"{EXAMPLES[trigger]}",
            )
            return None
        arguments = {name: _default(key) for name, key in _DETECTOR_ARGUMENTS[kind].items()}
        arguments |= given
        here: Path = (*at, "detector", kind)
        if kind == "quantile":
            self._window(arguments, here)
        self._read += 1
        if self._read > MAX_DETECTORS:
            self._problems.give_up(at, f"expected at most {MAX_DETECTORS} rules with a detector")
        if stream is None or blames(here):
            return None
        return Detector(*stream, kind, arguments)

    def _stream(self, name: str, at: Path) -> tuple[str, str] | None:
        try:
            group, variable = split_stream(name, self._groups)
            if variable in GAUGES:
                raise ValueError(
                    f"{name!r} is computed at each heartbeat, so there are no values to watch"
                )
            return group, parse_variable(group, variable, self._by)
        except ValueError as error:
            message = str(error)
            with suppress(ValueError):
                path = parse_path(name, self._groups, self._statistics, self._by)
                if path.statistic in self._statistics:
                    message = (
                        f"a detector watches values, and no statistic of them: write "
                        f"{f'{path.group}-{path.variable}'!r}, not {shown(name)}"
                    )
            self._problems.add(at, message)
        return None

    def _window(self, arguments: dict[str, Any], at: Path) -> None:
        warm_up, window = arguments["warm-up"], arguments["window"]
        if window is None:
            window = max(warm_up, min(MAX_WINDOW, round(_VALUES_BEYOND / (1 - arguments["q"]))))
            arguments["window"] = window
        if window < warm_up:
            self._problems.add(
                (*at, "window"), f"expected at least {warm_up}, which is 'warm-up', not {window}"
            )
        self._windows += window
        if self._windows > MAX_WINDOWS:
            self._problems.give_up(
                at, f"expected at most {MAX_WINDOWS} values in the windows of all detectors"
            )


def ruled_out(when: str, triggers: Collection[str]) -> Iterator[str]:
    """Find comparisons that hold for no job that fires the rule.

    Args:
        when: an expression that can be compiled.
        triggers: of the rule.

    Yields:
        What to say of each.

    >>> list(ruled_out("job.returncode == 3", ["job-success"]))
    ["'job.returncode' is never 3 at the trigger 'job-success'"]
    >>> list(ruled_out('job.outcome == "failed"', ["job-success", "job-fail"]))
    []
    """
    outcomes = {OUTCOME_TRIGGERS.get(trigger) for trigger in triggers}
    if None in outcomes or not outcomes:
        return
    for node in ast.walk(parse_expression(when)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = node.left, node.comparators[0]
            if isinstance(node.ops[0], ast.Eq):
                pairs = [(left, [right]), (right, [left])]
            elif isinstance(node.ops[0], ast.In) and isinstance(right, (ast.Tuple, ast.List)):
                pairs = [(left, right.elts)]
            else:
                continue
            for field, literals in pairs:
                keys = keys_of(field)
                if not keys or len(keys) != 2 or keys[0] != JOB:
                    continue
                try:
                    values = [ast.literal_eval(literal) for literal in literals]
                except ValueError:
                    continue
                if keys[1] == "outcome":
                    possible = any(value in outcomes for value in values)
                elif keys[1] in _SUCCESS and outcomes == {"success"}:
                    possible = _SUCCESS[keys[1]] in values
                else:
                    continue
                if not possible:
                    what = " or ".join(map(shown, values))
                    at = listed(map(repr, triggers))
                    yield f"'{JOB}.{keys[1]}' is never {what} at the trigger {at}"
