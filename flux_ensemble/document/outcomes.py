"""Conditions that the trigger of their rule rules out: a job that succeeded has the exit code 0."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from flux_ensemble.document.keys.rules import OUTCOME_TRIGGERS
from flux_ensemble.metrics.expressions import keys_of, parse_expression
from flux_ensemble.metrics.job_fields import JOB
from flux_ensemble.texts import listed, shown

#: What fields of a job that succeeded are; None for one that has no value.
_SUCCESS = {"returncode": 0, "signal": None}


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
