"""Finds rules whose outcome is another one because a rule before them resets what they compare.

The rules that one event triggers act in the order of the document. A rule after a `reset` sees the
statistics empty, and each comparison with a value that is missing is false.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from flux_ensemble.document.model import Action, Rule, Spec
from flux_ensemble.document.problems import Path
from flux_ensemble.metrics.by_value import unsplit
from flux_ensemble.metrics.names import MEMBER_METRICS, OUTCOMES, RATE, STREAMS
from flux_ensemble.metrics.paths import COUNT, OF_NAMES, MetricPath, parse_label, parse_path
from flux_ensemble.metrics.statistics import NUMBER
from flux_ensemble.metrics.terms import terms_of

#: Outcome -> the trigger of a job that ends so.
_ENDS = {"success": "success", "failed": "fail", "canceled": "cancel", "timeout": "timeout"}

#: A trigger, and the group of the job.
_Event = tuple[str, str]


def emptied(spec: Spec) -> Iterator[tuple[Path, str, bool]]:
    """Find rules that compare a statistic which a rule before them resets at the same event.

    Args:
        spec: the checked document.

    Yields:
        The place of each, what to say of it, and whether it can still fire at other times.

    >>> from flux_ensemble.document.loading import load_text
    >>> spec = load_text('''
    ... jobs: [{name: a, command: x}]
    ... rules:
    ... - {trigger: job-memo, group: a, action: {name: reset, label: a-x, repetitions: unlimited}}
    ... - {trigger: metric, name: mean.a-x, when: "> 1", action: {name: terminate}}
    ... ''', name="demo")
    >>> [(path, note) for path, _, note in emptied(spec)]
    [(('rules', 1), False)]
    """
    resets = [
        (index, rule, action, label)
        for index, rule in enumerate(spec.rules)
        if rule.scope == "ensemble"
        for action in rule.actions
        if action.name == "reset" and (label := _label(action, spec)) is not None
    ]
    if not resets:
        return
    for index, rule in enumerate(spec.rules):
        events = _events(rule, spec)
        for path, text in _compared(rule, spec):
            for before, other, action, label in resets:
                common = events & _events(other, spec)
                if before >= index or not common or not _covers(label, path):
                    continue
                always = events == common and other.when is None and _is_unlimited(action)
                so = "this rule never fires" if always else f"'{text}' is false"
                yield (
                    ("rules", index),
                    f"rule {other.id!r}, which acts before this one at the same event, resets "
                    f"{action.label!r}: '{path}' has no value then, and {so} (a rule that is to "
                    "see the values of before stands before the reset)",
                    not always,
                )
                return


def _label(action: Action, spec: Spec) -> tuple[str, str | None] | None:
    with suppress(ValueError):
        return parse_label(action.label or "", spec.groups, spec.by)
    return None


def _is_unlimited(action: Action) -> bool:
    return action.repetitions is None and not action.backoff and not action.cooldown


def _covers(label: tuple[str, str | None], path: MetricPath) -> bool:
    group, variable = label
    return group == path.group and variable in (None, path.variable, unsplit(path.variable))


def _compared(rule: Rule, spec: Spec) -> Iterator[tuple[MetricPath, str]]:
    """Yield the statistics that the condition of a rule compares, and the text of each term."""
    if rule.when is None or rule.scope != "ensemble":
        return
    for term in terms_of(rule.when, rule.name):
        if term.comparison is not None and (path := _path(term.comparison.name, spec)) is not None:
            kept = path.statistic not in (COUNT, RATE, NUMBER, *MEMBER_METRICS, *OF_NAMES)
            if kept:
                yield path, term.text


def _path(name: str, spec: Spec) -> MetricPath | None:
    statistics = [statistic.name for statistic in spec.statistics]
    with suppress(ValueError):
        return parse_path(name, spec.groups, statistics, spec.by)
    return None


def _events(rule: Rule, spec: Spec) -> frozenset[_Event]:
    """Return the events of jobs that trigger a rule, as far as its statistics are of jobs."""
    if rule.trigger == "metric":
        names = [rule.name] if rule.name is not None else []
        if rule.name is None and rule.when is not None:
            names = [name for term in terms_of(rule.when) for name in term.names]
        paths = [_path(name, spec) for name in names]
        return frozenset(
            event for path in paths if path is not None for event in _changes(path, spec)
        )
    groups = rule.groups or tuple(spec.groups)
    return frozenset(
        (trigger, group)
        for trigger in rule.triggers
        if trigger.startswith("job-") and trigger != "job-running"
        for group in groups
    )


def _changes(path: MetricPath, spec: Spec) -> Iterator[_Event]:
    """Yield the events that change a metric."""
    if path.statistic == COUNT:
        if path.variable in _ENDS:
            yield f"job-{_ENDS[path.variable]}", path.group
        return
    of = next((one.of for one in spec.statistics if one.name == path.statistic), None)
    variable = unsplit(path.variable)
    if variable == "duration":
        for outcome in OUTCOMES if of == "finished" else ("success",):
            yield f"job-{_ENDS[outcome]}", path.group
    elif variable not in STREAMS and path.statistic not in MEMBER_METRICS:
        yield "job-success" if of == "success" else "job-memo", path.group
