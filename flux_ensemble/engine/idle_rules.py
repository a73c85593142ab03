"""Rules on `idle` that have used up their repetitions, while their condition still holds.

A rule that samples until a mean is known well enough ends without an answer then, and nothing else
shows it. The condition is evaluated anew, so nothing is kept for this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flux_ensemble.engine.combinations import parse_name
from flux_ensemble.engine.rule_state import RuleState
from flux_ensemble.engine.rules import idle_of
from flux_ensemble.metrics.conditions import Condition, JobLookup, Lookup
from flux_ensemble.metrics.numbers import finite
from flux_ensemble.texts import listed
from flux_ensemble.words import each_pair


def used_up(state: RuleState, lookup: Lookup, busy_of: Callable[[str | None], int]) -> str | None:
    """Return, in words, that a rule would fire once more if it had repetitions left; else None.

    A rule that is to fire once is left out: its condition commonly holds afterwards, too.

    Args:
        state: of the rule.
        lookup: returns the value of a metric.
        busy_of: returns the number of jobs of a group or combination that are not over.
    """
    rule, condition, times = state.rule, state.condition, state.rule.action.repetitions
    if rule.trigger != "idle" or not state.enabled or condition is None or condition.of_idle:
        return None
    if times is None or times < 2:
        return None
    each = []
    for name, params in _spent(state):
        job = of(params)
        if any(map(busy_of, idle_of(rule, name))) or not condition.holds(None, lookup, None, job):
            continue
        values = read_by(condition, params, lookup)
        which = " ".join(each_pair(params))
        each.append(f"{which} ({values})" if which and values else which or values)
    if not each:
        return None
    where = f" for {listed(each)}" if rule.by else f" ({each[0]})" if each[0] else ""
    return f"it has fired its {times} repetitions{where}, and its condition still holds"


def read_by(condition: Condition, params: Mapping[str, Any], lookup: Lookup) -> str:
    """Return, in words, the metrics that a condition reads for a combination, with their values."""
    paths = condition.paths_of(of(params))
    return ", ".join(f"{path} is {_shown(lookup(path))}" for path in paths)


def of(params: Mapping[str, Any]) -> JobLookup:
    """Return the lookup of what jobs of a combination have in common: its parameters."""
    return lambda field: params.get(getattr(field, "key", None) or "")


def _spent(state: RuleState) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
    """Yield what a rule has no repetitions left for: a combination, or a group, and its values."""
    if not state.rule.by:
        if state.left == 0:
            yield state.rule.group, {}
        return
    for name, turns in state.turns.items():
        if turns.left == 0:
            yield name, parse_name(name)[1]


def _shown(value: Any) -> str:
    known = finite(value) if isinstance(value, float) else value
    return "empty" if known is None else f"{known:.6g}" if type(known) is float else str(known)
