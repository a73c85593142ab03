"""The names that the expressions of a rule can use."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.keys.rules import KNOWN_AT
from flux_ensemble.document.model import Rule, Spec
from flux_ensemble.metrics.by_value import unsplit
from flux_ensemble.metrics.conditions import SUBJECTS, Names
from flux_ensemble.metrics.job_fields import IDLE, JobScope, idle_scope, scope_of

#: Variables whose values come with an event of a job -> the trigger on that; others are memo keys.
_EVENTS = {"duration": "job-finish", "pending": "job-start"}


def job_scope(
    triggers: Sequence[str],
    selected: Collection[str],
    groups: Mapping[str, Group],
    by: Collection[str] = (),
) -> JobScope | None:
    """Return the names of the triggering job; None if no job triggers the rule.

    Args:
        triggers: the rule's.
        selected: the groups that it selects; empty for all jobs.
        groups: of the document.
        by: parameters by whose values an `idle` rule fires; these alone are known then.

    >>> job_scope(["timer"], (), {}) is None
    True
    """
    known = [groups[name] for name in selected if name in groups] or list(groups.values())
    params = frozenset(param for group in known for param in group.params)
    if IDLE in triggers:
        return idle_scope(by, params)
    features = frozenset(feature for group in known for feature in group.features)
    if not triggers or not KNOWN_AT.keys() >= set(triggers):
        return None
    knows = max(KNOWN_AT[trigger] for trigger in triggers)
    return scope_of(triggers[0], knows, params, features)


def scope_of_rule(rule: Rule, groups: Mapping[str, Group]) -> JobScope | None:
    """Return the names of the triggering job that expressions of a checked rule can use.

    Args:
        rule: the rule.
        groups: of the document.

    >>> from flux_ensemble.document.model import Action
    >>> scope_of_rule(Rule("stop", "start", Action("terminate")), {}) is None
    True
    """
    if rule.detector is not None:
        return detector_scope(rule.trigger, rule.detector.group, rule.detector.variable, groups)
    return job_scope(rule.triggers, rule.groups, groups, rule.by)


def detector_scope(
    trigger: str, group: str, variable: str, groups: Mapping[str, Group]
) -> JobScope | None:
    """Return the names of the job whose value triggers a rule with a detector.

    Args:
        trigger: the rule's.
        group, variable: the stream.
        groups: of the document.

    >>> scope = detector_scope("anomaly", "md", "duration", {})
    >>> scope.trigger, str(scope.resolve(["job", "runtime"]))
    ('anomaly', 'job.runtime')
    """
    event = _EVENTS.get(unsplit(variable), "job-memo")
    scope = job_scope([event], [group], groups)
    return None if scope is None else scope._replace(trigger=trigger)


def names_of(rule: Rule, spec: Spec, statistics: Collection[str]) -> Names:
    """The names for the expressions of a checked rule.

    Args:
        rule: of the ensemble, or to be added to it.
        spec: the ensemble.
        statistics: the names of the statistics that are kept.

    >>> from flux_ensemble.document.loading import load_text
    >>> from flux_ensemble.document.model import Action
    >>> spec = load_text("jobs: [{name: md, command: run}]", name="demo")
    >>> names = names_of(Rule("stop", "job-fail", Action("terminate")), spec, ["mean"])
    >>> str(names.resolve(["job", "returncode"]))
    'job.returncode'
    """
    return Names(
        spec.groups,
        statistics,
        SUBJECTS.get(rule.trigger),
        scope_of_rule(rule, spec.groups),
        spec.bested,
        spec.by,
        spec.named,
    )
