"""Warns of what is valid in a document, and certainly not what was meant.

That includes parts that can never take effect: comparisons with values that no parameter has, and
requests of rules that no instance can fulfil.

There is a warning only where the document alone proves it. Custom functions can submit and change
anything, and so can users while an ensemble with `finish: never` waits for them: about rules of
such documents there are no warnings.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from flux_ensemble.document.feature import document_features, sections
from flux_ensemble.document.job_lint import Finding, given_values, lint_jobs
from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.keys.rules import AGAIN, OF_JOB, ON_ENTRIES, SUBMITS
from flux_ensemble.document.members import Pool
from flux_ensemble.document.members_reader import unresolved
from flux_ensemble.document.model import Action, Rule, Spec
from flux_ensemble.document.problems import (
    MAX_PROBLEMS,
    DocumentError,
    Path,
    Problem,
    dotted,
    placed,
)
from flux_ensemble.document.rule_order import emptied
from flux_ensemble.document.yaml_reader import Document
from flux_ensemble.metrics.by_value import unsplit, values_of
from flux_ensemble.metrics.conditions import Names, compile_condition
from flux_ensemble.metrics.expressions import keys_of, parse_expression
from flux_ensemble.metrics.families import FAMILIES
from flux_ensemble.metrics.job_fields import JOB
from flux_ensemble.metrics.job_row import PARAMS
from flux_ensemble.metrics.names import COUNTERS, GAUGES, STREAMS
from flux_ensemble.metrics.operations import same
from flux_ensemble.metrics.paths import COUNT, MetricPath, parse_path, split_stream
from flux_ensemble.metrics.terms import Comparison, terms_of
from flux_ensemble.scalars import as_text, number
from flux_ensemble.texts import listed, shown

#: Parameters with more values are not looked at.
_MOST = 1000


@dataclass
class Warnings:
    """Warnings and notes about a document without errors, each a sentence with its line.

    Attributes:
        warnings: of what is certainly not what was meant.
        notes: of what may be worth knowing.
    """

    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def lint(
    spec: Spec,
    document: Document,
    file: str | None,
    warnings: Warnings,
    found: Iterable[Finding] = (),
) -> None:
    """Collect what there is to say about a document without errors; of very much the first.

    Args:
        spec: the checked document.
        document: its values, with their lines.
        file: its name, for the sentences.
        warnings: gets the sentences.
        found: what was found when the document was read.

    >>> from flux_ensemble.document.loading import load_text
    >>> found = Warnings()
    >>> spec = load_text("jobs: [{name: a, command: x}]", name="demo", warnings=found)
    >>> found.warnings
    ["document:1: no rule submits anything, so the ensemble ends as soon as it has started; ..."]
    """
    findings = (
        *found,
        *lint_jobs(spec, document.value),
        *(Finding(*found) for section in sections() for found in section.uninstalled(spec)),
        *(Finding(*found) for found in unresolved(spec.members)),
        *_share(spec),
        *_rules(spec, document.value.get("rules") or (), document.value.get("jobs") or ()),
    )
    for finding in findings:
        line, place = document.line(finding.path), document.file(finding.path)
        path, message = document.told(finding.path, finding.message)
        problem = placed(Problem(line, dotted(path), message), place)
        note = finding.note and not document.is_pair(finding.path)
        kept = warnings.notes if note else warnings.warnings
        if len(kept) < MAX_PROBLEMS:
            kept.append(str(DocumentError([problem], file)))


def _share(spec: Spec) -> Iterator[Finding]:
    """A share of cores that no other ensemble uses."""
    if spec.members and spec.share != 1:
        message = "makes no difference: members are used by their own ensemble alone"
        yield Finding(("share",), message)


# -- rules --------------------------------------------------------------------------


def _first_rule(spec: Spec, jobs: Sequence[Mapping[str, Any]]) -> str:
    """Return the end of a sentence with the line that a document without rules needs."""
    unstarted = (found for section in sections() for found in section.unstarted(spec))
    if spec.rules or not jobs or any(unstarted):
        return ""
    action = f"{{name: submit, label: {jobs[0]['name']}}}"
    return f"; add 'rules: [{{trigger: start, action: {action}}}]'"


def _rules(
    spec: Spec, entries: Sequence[Mapping[str, Any]], jobs: Sequence[Mapping[str, Any]]
) -> Iterator[Finding]:
    yield from _unsimulated(spec)
    yield from _first_job_alone(spec, entries)
    yield from _unfilled(spec, entries)
    yield from _contradictions(spec)
    yield from (Finding(*found) for found in futile(spec))
    yield from (Finding(path, message, note=note) for path, message, note in emptied(spec))
    open_ended = spec.finish == "never" or any(
        action.name == "custom" for rule in spec.rules for action in rule.actions
    )
    if open_ended:
        return
    asked, jobs_of = _asked(spec), _asked(spec, tries=False)
    idle = not any(asked.values()) and not any(rule.scope == "queue" for rule in spec.rules)
    if idle:
        yield Finding(
            ("rules",) if spec.rules else (),
            "no rule submits anything, so the ensemble ends as soon as it has started"
            + _first_rule(spec, jobs),
        )
    for section in sections():
        yield from (Finding(*found) for found in section.unstarted(spec))
    if idle:
        return
    yield from (Finding(*found) for found in never_true(spec))
    yield from _circles(spec, asked)
    at_once = sum(asked.values()) <= spec.limits.active_jobs and not spec.members
    for feature in document_features():
        if feature.findings is not None:
            yield from (Finding(*found) for found in feature.findings(spec, jobs, at_once))
    for index, rule in enumerate(spec.rules):
        at: Path = ("rules", index)
        groups = _awaited(rule)
        if rule.scope != "queue" and groups and not any(asked[name] for name in groups):
            yield Finding(at, _unsubmitted(groups[0]))
        for comparison in _comparisons(rule):
            path = _path(comparison.name, spec)
            if path is not None and path.statistic == COUNT:
                message = _without_retries(comparison, path, spec.groups[path.group])
                most = asked[path.group]
                if path.variable == "success":
                    # A job that is tried again has not succeeded before.
                    most = jobs_of[path.group]
                message = message or _unreachable(comparison, path, most)
                if message is not None:
                    yield Finding((*at, "when"), message)


def _circles(spec: Spec, asked: Mapping[str, float]) -> Iterator[Finding]:
    """Rules that wait for jobs which only they submit."""
    submitted: set[str] = set()
    waiting = dict(enumerate(spec.rules))
    while firing := [n for n, rule in waiting.items() if _can_begin(rule, spec, submitted)]:
        for index in firing:
            submitted.update(_groups_of(waiting.pop(index), spec))
    groups = [name for rule in waiting.values() for name in _groups_of(rule, spec) if asked[name]]
    if not groups:
        return
    if not submitted:
        awaited = [name for rule in waiting.values() for name in _awaited(rule)]
        unasked = [name for name in awaited if not asked[name]]
        first = (unasked or [name for name in awaited if name in groups] or groups)[0]
        why = (
            f"jobs of group {first!r} are waited for, and no rule submits those"
            if unasked
            else "each waits for jobs that only these rules submit"
        )
        yield Finding(
            ("rules",),
            f"no rule can submit the first job, because {why}, so the ensemble ends as soon as it "
            "has started; one that begins is "
            f"'{{trigger: start, action: {{name: submit, label: {first}}}}}'",
        )
        return
    never = {name for name in groups if name not in submitted}
    for index, rule in waiting.items():
        if circle := [name for name in rule.groups if name in never]:
            yield Finding(
                ("rules", index),
                f"the rule waits for jobs of group {circle[0]!r}, and only rules that wait for "
                "such jobs submit that",
            )


def _awaited(rule: Rule) -> Sequence[str]:
    """Return the groups whose jobs trigger a rule."""
    return rule.groups if rule.detector is None else (rule.detector.group,)


def _groups_of(rule: Rule, spec: Spec) -> Iterator[str]:
    """Yield the groups of which a rule has jobs submitted."""
    for action in rule.actions:
        if action.name in SUBMITS:
            yield spec.named[ON_ENTRIES[action.name]][action.label or ""].group
        elif action.name == "submit" and action.label is not None:
            yield action.label


def _can_begin(rule: Rule, spec: Spec, submitted: Set[str]) -> bool:
    """Return False if a rule fires only after jobs, and those are not among the submitted ones."""
    if rule.scope != "ensemble":
        return True
    if rule.trigger == "idle":
        return submitted >= set(rule.groups) if rule.groups else bool(submitted)
    if rule.detector is not None:
        return rule.detector.group in submitted
    if all(trigger.startswith("job-") for trigger in rule.triggers):
        return not submitted.isdisjoint(rule.groups) if rule.groups else bool(submitted)
    for comparison in _comparisons(rule):
        path, (_, operator, number) = _path(comparison.name, spec), comparison
        if (
            path is not None
            and path.statistic == COUNT
            and path.group not in submitted
            and operator in (">", ">=", "==")
            and number + (operator == ">") > 0
        ):
            return False
    return True


def _first_job_alone(spec: Spec, entries: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Rules that follow up a job, and do so once because nothing else was said."""
    for index, (rule, entry) in enumerate(zip(spec.rules, entries, strict=True)):
        written = entry.get("action") or entry["actions"][0]
        if (
            (rule.trigger.startswith("job-") or rule.detector is not None)
            and "repetitions" not in written
            and any(map(_takes_job, rule.actions))
        ):
            yield Finding(
                ("rules", index),
                "fires once, so for the first such job alone: for each of them, write "
                "'repetitions: unlimited' in its action",
                note=True,
            )


#: The beginning of an expression about a job, a group, or what has a name.
_NAMES = "|".join(("count", "best", *FAMILIES))
_HEAD = rf"(?:job\.(?:params|memo|id|index|attempt)|{_NAMES})\."

#: An expression without braces, one after a sign of the shell, and one in the braces of templates.
_BARE = re.compile(rf"\(?\s*{_HEAD}\w[\w.\[\]'\"()*/+ -]*")
_SIGNED = re.compile(rf"\$(\{{\s*{_HEAD}[^{{}}]*\}})")
_DOUBLED = re.compile(rf"\{{(\{{\s*{_HEAD}[^{{}}]*\}})\}}")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")


def _unfilled(spec: Spec, entries: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Values of actions that were meant as expressions, and stay the text that they are."""
    for index, entry in enumerate(entries):
        several = "actions" in entry
        actions = entry["actions"] if several else [entry["action"]]
        for place, action in enumerate(actions):
            at: Path = ("rules", index, *(("actions", place) if several else ("action",)))
            for key in ("params", "environment"):
                values = action.get(key)
                for name, value in values.items() if isinstance(values, Mapping) else ():
                    said = _unfilled_text(value, spec, action.get("label"))
                    if said is not None:
                        yield Finding((*at, key, name), f"{shown(value)} {said}")


def _unfilled_text(value: Any, spec: Spec, label: Any) -> str | None:
    if not isinstance(value, str):
        return None
    if (match := _SIGNED.search(value) or _DOUBLED.search(value)) is not None:
        return f"keeps the rest of the signs around the value: write {shown(match[1])}"
    if _BARE.fullmatch(value) is not None:
        return f"is a text: an expression is in braces, '{{{value}}}'"
    variable = _VARIABLE.fullmatch(value)
    if variable is not None and label in spec.groups and variable[1] in spec.groups[label].params:
        return f"is a text: the triggering job's value is '{{job.params.{variable[1]}}}'"
    return None


def _contradictions(spec: Spec) -> Iterator[Finding]:
    """Conditions that hold for no value: comparisons between two numbers, such as 3 > x > 5."""
    for index, rule in enumerate(spec.rules):
        try:
            tree = parse_expression(str(rule.when or "True").strip())
        except SyntaxError:
            # A comparison with the metric in `name`.
            continue
        # In a rule on a metric, a number is compared with that.
        alone = rule.trigger != "metric" and _is_constant(tree)
        if alone and isinstance(rule.when, str) and not _holds(rule.when):
            yield Finding(
                ("rules", index, "when"),
                f"{shown(rule.when)} never holds: it reads no metric and nothing of the event",
            )
        for node in ast.walk(tree):
            match node:
                case ast.Compare(
                    left=ast.Constant(value=int() | float() as low),
                    ops=[first, second],
                    comparators=[middle, ast.Constant(value=int() | float() as high)],
                ) if type(first) is type(second):
                    holds = {
                        ast.Lt: low < high,
                        ast.LtE: low <= high,
                        ast.Gt: low > high,
                        ast.GtE: low >= high,
                    }
                    if not holds.get(type(first), True):
                        name = ast.unparse(middle)
                        yield Finding(
                            ("rules", index, "when"),
                            f"{shown(ast.unparse(node))} never holds: for a value between two "
                            f"numbers write {min(low, high)} < {name} < {max(low, high)}, for one "
                            f"outside {name} < {min(low, high)} or {name} > {max(low, high)}",
                        )


def _is_constant(tree: ast.AST) -> bool:
    """Return True if an expression has no names but those of functions."""
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return all(node in called for node in ast.walk(tree) if isinstance(node, ast.Name))


def _holds(when: str) -> bool:
    return compile_condition(when, Names((), (), None, None)).holds(None, lambda path: None)


def _takes_job(action: Action) -> bool:
    """Return True if the effect of an action depends on the triggering job."""
    if action.jobs == "trigger" or action.name in OF_JOB:
        return True
    expressions = action.expressions or {}
    return action.name == "submit" and (
        expressions.get("params") == "trigger" or "{job." in str(expressions)
    )


def _unsubmitted(group: str) -> str:
    return f"the rule waits for jobs of group {group!r}, and no rule submits that"


def _without_retries(comparison: Comparison, path: MetricPath, group: Group) -> str | None:
    """Return the reason that no job ever gives up; None if some can."""
    _, operator, number = comparison
    least = number + (operator == ">")
    if (
        path.variable != "gave-up"
        or operator not in (">", ">=", "==")
        or least <= 0
        or any(job_set.retries.times for job_set in group.sets)
    ):
        return None
    return (
        f"'{path} {operator} {number:g}' can never hold: group {group.name!r} has no 'retries', so "
        "no job of it gives up"
    )


def _unreachable(comparison: Comparison, path: MetricPath, most: float) -> str | None:
    """Return the reason that a counter cannot reach the number; None if it can."""
    _, operator, number = comparison
    if operator in (">", ">=", "=="):
        least = number if operator != ">" else number + 1
        if least > 0 and most == 0:
            return _unsubmitted(path.group)
        if least > most:
            return (
                f"'{path} {operator} {number:g}' can never hold: the rules submit at most "
                f"{most:g} jobs of group {path.group!r}"
            )
    if operator == "==" and not (number >= 0 and number.is_integer()):
        return f"'{path} == {number:g}' can never hold: a counter is an integer >= 0"
    return None


def _asked(spec: Spec, *, tries: bool = True) -> dict[str, float]:
    """The most jobs of each group that the rules can submit; with `tries` each try counts."""
    asked: dict[str, float] = dict.fromkeys(spec.groups, 0.0)
    for rule in spec.rules:
        for action in rule.actions:
            if action.name in SUBMITS:
                asked[spec.named[ON_ENTRIES[action.name]][action.label or ""].group] = math.inf
            elif action.name == "submit" and action.label is not None:
                asked[action.label] += _most(spec, rule, action, tries)
    for rule in spec.rules:
        if any(action.name in AGAIN for action in rule.actions):
            for name in rule.groups or spec.groups:
                asked[name] *= math.inf if asked[name] else 1
    return asked


def _most(spec: Spec, rule: Rule, action: Action, tries: bool) -> float:
    group = spec.groups[action.label or ""]
    # An ensemble starts once.
    once = rule.trigger == "start" and rule.scope != "member"
    repetitions = 1 if once else rule.action.repetitions
    again = tries and any(job_set.retries.times for job_set in group.sets)
    if again or repetitions is None or action.expressions is not None:
        return math.inf
    return float(repetitions * len(group.submission(action.count, action.params)))


def _comparisons(rule: Rule) -> Iterator[Comparison]:
    """Yield the comparisons that must all hold for the condition of a rule to hold."""
    if rule.when is None:
        return
    for term in terms_of(rule.when, rule.name):
        if term.comparison is not None:
            yield term.comparison


def _path(name: str, spec: Spec) -> MetricPath | None:
    """The metric with this name; None if it is the name of something else."""
    statistics = [statistic.name for statistic in spec.statistics]
    with suppress(ValueError):
        return parse_path(name, spec.groups, statistics, spec.by)
    return None


# -- simulations --------------------------------------------------------------------


def _unsimulated(spec: Spec) -> Iterable[Finding]:
    known = {*STREAMS, *GAUGES, *COUNTERS}
    for index, rule in enumerate(spec.rules):
        names = [] if rule.name is None else [rule.name]
        if rule.when is not None:
            names += [name for term in terms_of(rule.when, rule.name) for name in term.names]
        paths = {_path(name, spec) for name in names}
        if rule.detector is not None:
            paths.add(MetricPath("", rule.detector.group, rule.detector.variable))
        for path in paths - {None}:
            assert path is not None
            simulated = spec.simulate.get(path.group)
            variable = unsplit(path.variable)
            if simulated and variable not in known and variable not in simulated.memo:
                yield Finding(
                    ("rules", index),
                    f"no simulated job publishes the memo key {shown(variable)}: 'simulate' "
                    f"does not say so of group {path.group!r}",
                    note=True,
                )


def futile(spec: Spec) -> Iterator[tuple[Path, str]]:
    """Yield the requests of rules that can never succeed, each with its place.

    Args:
        spec: the checked document.

    >>> from flux_ensemble.document.loading import load_text
    >>> spec = load_text('''
    ... members: [{name: pool, count: 4}]
    ... jobs: [{name: a, command: x}]
    ... rules: [{trigger: job-fail, action: {name: shrink, label: pool}}]
    ... ''', name="demo")
    >>> [place for place, _ in futile(spec)]
    [('rules', 0)]
    """
    pools = {pool.name: pool for pool in spec.members}
    for index, rule in enumerate(spec.rules):
        for action in rule.actions:
            message = _never_ends(action, pools) or _too_many(action, spec)
            if message is not None:
                yield ("rules", index), message


def _never_ends(action: Action, pools: Mapping[str, Pool]) -> str | None:
    """Return the reason that a `shrink` ends no member; None if it can."""
    pool = pools.get(action.label or "") if action.name == "shrink" else None
    if pool is None or pool.low < pool.high:
        return None
    if pool.uri is not None:
        return f"'shrink' ends no member of {pool.name!r}, an instance that is there already"
    return (
        f"'shrink' ends no member of {pool.name!r}, which has {pool.low} at least and at most; "
        f"write 'count: {{min: 1, max: {max(2, pool.high)}}}' there"
    )


def _too_many(action: Action, spec: Spec) -> str | None:
    """Return the reason that a `submit` fails the ensemble at once; None if it does not."""
    if action.name != "submit" or action.label is None or action.expressions is not None:
        return None
    jobs = len(spec.groups[action.label].submission(action.count, action.params))
    if jobs <= spec.limits.jobs:
        return None
    return (
        f"the ensemble fails when this submits {jobs} jobs, because limits.jobs is "
        f"{spec.limits.jobs}; write 'limits: {{jobs: {jobs}}}', or more"
    )


def never_true(spec: Spec) -> Iterator[tuple[Path, str]]:
    """Find conditions about values of parameters that no job has.

    Rules, users and features can give parameters other values than the document lists: those
    parameters are left out.

    Args:
        spec: the checked document.

    Yields:
        The place of each, and what to say of it.

    >>> from flux_ensemble.document.loading import load_text
    >>> spec = load_text('''
    ... jobs: [{name: a, command: "x {mode}", params: {mode: [fast, exact]}}]
    ... rules: [{trigger: job-fail, when: job.params.mode == "fst", action: {name: terminate}}]
    ... ''', name="demo")
    >>> [message for _, message in never_true(spec)]
    ["'job.params.mode' is never 'fst' (values: fast, exact)"]
    """
    values = _Values(spec)
    for index, rule in enumerate(spec.rules):
        at: Path = ("rules", index)
        if isinstance(rule.when, str):
            for message in values.conflicts(rule):
                yield (*at, "when"), message
        if rule.trigger == "metric" and rule.name is not None:
            for message in values.stream(rule.name.partition(".")[2]):
                yield (*at, "name"), message
        for place, name in enumerate(rule.by if rule.more_groups else ()):
            apart = values.apart(rule.groups, name)
            if apart is not None:
                yield (*at, "by", place), apart


def _looks(value: Any) -> tuple[Any, Any]:
    """Return what a reader takes a value for: its number, and its text."""
    return number(value), as_text(value)


def _typed(value: Any) -> str:
    """Return a value as a document has it: texts in quotes."""
    return shown(value) if type(value) is str else as_text(value)


class _Values:
    """The values that parameters can have, as far as the document lists them all."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._open = given_values(spec)

    def of(self, groups: Collection[str], name: str) -> Sequence[Any] | None:
        """The values of a parameter of jobs of these groups; None where there may be others."""
        known: list[Any] = []
        for group in groups:
            for job_set in self._spec.groups[group].sets:
                values = (job_set.sweep.params or {}).get(name, ())
                if (group, name) in self._open or name in job_set.sweep.numbered:
                    return None
                if len(values) + len(known) > _MOST:
                    return None
                known += values
        given = {entry.group for entries in self._spec.features.values() for entry in entries}
        return None if given & set(groups) else known

    def conflicts(self, rule: Rule) -> Iterator[str]:
        """Yield warnings about values in a rule's condition that no job has."""
        try:
            tree = parse_expression(str(rule.when).strip())
        except SyntaxError:
            # A comparison with the metric in `name`.
            return
        for node in ast.walk(tree):
            keys = keys_of(node)
            if keys and len(keys) == 2 and keys[0] not in (COUNT, JOB):
                yield from self.stream(keys[1])
            if not isinstance(node, ast.Compare):
                continue
            operands = [node.left, *node.comparators]
            for operator, left, right in zip(node.ops, operands, operands[1:], strict=False):
                if isinstance(operator, ast.Eq):
                    yield from self._compared(rule, left, [right])
                    yield from self._compared(rule, right, [left])
                elif isinstance(operator, ast.In) and isinstance(right, (ast.Tuple, ast.List)):
                    yield from self._compared(rule, left, right.elts)

    def apart(self, groups: Sequence[str], name: str) -> str | None:
        """Return a warning if two groups of a join share no value of a parameter; None if not."""
        each = [(group, values) for group in groups if (values := self.of((group,), name))]
        for (one, ours), (other, theirs) in combinations(each, 2):
            # As a join distinguishes values: by type, and by spelling.
            if {(type(value), value) for value in ours} & {
                (type(value), value) for value in theirs
            }:
                continue
            alike = {look: value for value in theirs for look in _looks(value)}
            equal = next(
                ((value, alike[look]) for value in ours for look in _looks(value) if look in alike),
                None,
            )
            remedy = (
                ""
                if equal is None
                else f": {_typed(equal[0])} and {_typed(equal[1])} are two values, write them alike"
            )
            return (
                f"groups {one!r} and {other!r} have no value of {name!r} in common, so they are "
                f"never joined{remedy}"
            )
        return None

    def _compared(self, rule: Rule, node: ast.expr, others: Sequence[ast.expr]) -> Iterator[str]:
        keys = keys_of(node)
        if not keys or len(keys) != 3 or keys[:2] != [JOB, PARAMS]:
            return
        literals: list[Any] = [one.value for one in others if isinstance(one, ast.Constant)]
        values = self.of(rule.groups or tuple(self._spec.groups), keys[2])
        if len(literals) != len(others) or not values:
            return
        if not any(same(literal, value) for literal in literals for value in values):
            what = " or ".join(map(shown, literals))
            there = listed(map(as_text, values))
            yield f"'{JOB}.{PARAMS}.{keys[2]}' is never {what} (values: {there})"

    def stream(self, name: str) -> Iterator[str]:
        """Yield warnings about the name of a metric by value, such as `md-fom[t=300]`."""
        try:
            group, variable = split_stream(name, self._spec.groups)
        except ValueError:
            return
        base = unsplit(variable)
        for param, value in (values_of(variable[len(base) + 1 :]) or {}).items():
            values = self.of((group,), param) if base != variable else None
            if values and value not in map(number, values):
                yield (
                    f"no job has {param}={as_text(value)}, as in {shown(name)} "
                    f"(values: {listed(map(as_text, values))})"
                )
