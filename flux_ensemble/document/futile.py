"""Finds what rules ask for in vain: it is valid, and refused whenever they fire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flux_ensemble.document.members import Pool
from flux_ensemble.document.model import Action, Spec
from flux_ensemble.document.problems import Path


def futile(spec: Spec) -> Iterator[tuple[Path, str]]:
    """What rules ask for in vain, with the place of each.

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
    """Why a `shrink` ends no member; None if it can."""
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
    """Why a `submit` has the ensemble fail at once; None if it does not."""
    if action.name != "submit" or action.label is None or action.expressions is not None:
        return None
    jobs = len(spec.groups[action.label].submission(action.count, action.params))
    if jobs <= spec.limits.jobs:
        return None
    return (
        f"the ensemble fails when this submits {jobs} jobs, because limits.jobs is "
        f"{spec.limits.jobs}; write 'limits: {{jobs: {jobs}}}', or more"
    )
