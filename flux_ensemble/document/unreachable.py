"""Parts of a valid document that can never take effect.

Comparisons with values that no parameter of the document has are never true; requests of rules
that no instance can fulfil are refused whenever the rules fire.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from flux_ensemble.document.job_lint import given_values
from flux_ensemble.document.members import Pool
from flux_ensemble.document.model import Action, Rule, Spec
from flux_ensemble.document.problems import Path
from flux_ensemble.metrics.by_value import unsplit, values_of
from flux_ensemble.metrics.expressions import keys_of, parse_expression
from flux_ensemble.metrics.job_fields import JOB
from flux_ensemble.metrics.job_row import PARAMS
from flux_ensemble.metrics.operations import same
from flux_ensemble.metrics.paths import COUNT, split_stream
from flux_ensemble.scalars import as_text, number
from flux_ensemble.texts import listed, shown


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


#: Parameters with more values are not looked at.
_MOST = 1000


def never_true(spec: Spec) -> Iterator[tuple[Path, str]]:
    """Find conditions about values of parameters that no job has.

    Rules, users and searches can give parameters other values than the document lists: those
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
        searched = {search.group for search in self._spec.searches}
        return None if searched & set(groups) else known

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
