"""The status of ensembles as families of metrics, named by Prometheus' rules: base units, `_total`.

Labels are names of ensembles, groups, outcomes, rules and members, never job ids or parameters. So
the number of series depends on the number of groups and rules, and has a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    StateSetMetricFamily,
)

from flux_ensemble.metrics.names import ATTEMPT_OUTCOMES

PREFIX = "flux_ensemble_"

#: Most series of ensembles, unless another bound is given.
MOST_SERIES = 10_000

STATES = ("running", "paused", "ending", "completed", "failed", "canceled")
MEMBER_STATES = ("starting", "up", "draining", "lost")

_GROUP = ("ensemble", "group")
_RULE = ("ensemble", "rule")
_POOL = ("ensemble", "pool")
_POOL_MEMBER = ("ensemble", "pool", "member")


def families(status: Mapping[str, Any] | None, most_series: int = MOST_SERIES) -> Iterator[Metric]:
    """Yield the metrics of a service, its instance and its ensembles.

    Args:
        status: as in the response to `ensemble.status`; None if there was no response.
        most_series: most series of ensembles; those of further ensembles are left out.
    """
    yield GaugeMetricFamily(
        f"{PREFIX}up", "Whether the service answered (1) or not (0).", value=status is not None
    )
    if status is None:
        return
    yield from _service(status.get("service", {}))
    yield from _instance(status)
    yield from _members(status.get("members", {}))
    chosen, left_out = _bounded(status["ensembles"], most_series)
    yield GaugeMetricFamily(
        f"{PREFIX}ensembles", "Ensembles that are known, ended ones included.",
        value=len(status["ensembles"]),
    )  # fmt: skip
    yield GaugeMetricFamily(
        f"{PREFIX}series_left_out",
        "Series of ensembles that are left out because there are too many.",
        value=left_out,
    )
    yield from _ensembles(chosen)
    yield from _groups(chosen)
    yield from _rules(chosen)
    yield from _pools(chosen)


def _bounded(
    ensembles: Iterable[Mapping[str, Any]], most: int
) -> tuple[list[Mapping[str, Any]], int]:
    """Return the ensembles within the bound, live ones first, and the number of series left out."""
    chosen, used, left_out = [], 0, 0
    order = sorted(
        ensembles,
        key=lambda ensemble: (ensemble["t_end"] is not None, -(ensemble["t_start"] or 0.0)),
    )
    for ensemble in order:
        series = (
            len(STATES)
            + 5
            + (4 + len(ATTEMPT_OUTCOMES)) * len(ensemble["groups"])
            + 3 * len(ensemble.get("rules", ()))
            + sum(
                2 + (4 + len(MEMBER_STATES)) * len(pool["members"])
                for pool in ensemble.get("pools", {}).values()
            )
        )
        if used + series > most:
            left_out += series
            continue
        used += series
        chosen.append(ensemble)
    return chosen, left_out


def _service(service: Mapping[str, Any]) -> Iterator[Metric]:
    if "pid" not in service:  # Guests receive the version only; the local queue has no service.
        return
    info = {"version": service["version"], "mode": service["mode"], "python": service["python"]}
    yield InfoMetricFamily(f"{PREFIX}service", "The service.", value=info)
    perf = service["perf"]
    gauges = {
        "service_start_time_seconds": ("When the service began.", service["t_start"]),
        "service_ready": ("Whether the service takes changes.", service["state"] == "ready"),
        "service_waiting_jobs": ("Jobs asked for and not sent to the queue yet.", perf["waiting"]),
        "service_lag_mean_seconds": ("How late its reactor was, mean.", perf["lag_mean_seconds"]),
        "service_lag_max_seconds": ("How late its reactor was at most.", perf["lag_max_seconds"]),
        "service_max_resident_memory_bytes": ("Most memory of its process.", perf["rss_bytes"]),
    }
    for name, (text, value) in gauges.items():
        if value is not None:
            yield GaugeMetricFamily(PREFIX + name, text, value=value)
    counters = {
        "service_cpu_seconds": ("Processor time of its process.", perf["cpu_seconds"]),
        "service_events": ("Job events that it has handled.", service["events"]),
        "service_commands": ("Commands that its engines gave.", service["commands"]),
        "service_firings": ("Runs of the actions of rules.", service["firings"]),
    }
    for name, (text, value) in counters.items():
        if value is not None:
            yield CounterMetricFamily(PREFIX + name, text, value=value)


#: Gauges of the Flux instance: the end of the name, the text, and the keys in `status`.
_OF_INSTANCE = {
    "nodes": ("Nodes that are up.", "nodes", "node_up_count"),
    "nodes_free": ("Nodes that no job has.", "nodes", "node_free_count"),
    "cores": ("Cores that are up.", "nodes", "node_cores_up"),
    "cores_free": ("Cores that no job has.", "nodes", "node_cores_free"),
    "jobs_waiting": ("Jobs of all that wait for resources.", "queue", "sched"),
    "jobs_running": ("Jobs of all that run.", "queue", "run"),
}


def _instance(status: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield gauges of the Flux instance, if the status is of one that the user owns."""
    instance = status.get("instance")
    if instance is None:
        return
    for name, (text, part, key) in _OF_INSTANCE.items():
        if (number := status[part].get(key)) is not None:
            yield GaugeMetricFamily(f"{PREFIX}instance_{name}", text, value=number)
    if instance["t_expires"] is not None:
        yield GaugeMetricFamily(
            f"{PREFIX}instance_expiration_time_seconds",
            "When its allocation ends.",
            value=instance["t_expires"],
        )


def _members(members: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    """Yield the same gauges by their former names."""
    for name, (text, part, key) in _OF_INSTANCE.items():
        family = GaugeMetricFamily(f"{PREFIX}member_{name}", text, labels=("member",))
        for member, about in members.items():
            if about[part].get(key) is not None:
                family.add_metric((member,), about[part][key])
        yield family
    expires = GaugeMetricFamily(
        f"{PREFIX}member_expiration_time_seconds", "When its allocation ends.", labels=("member",)
    )
    for member, about in members.items():
        if about["t_expires"] is not None:
            expires.add_metric((member,), about["t_expires"])
    yield expires


def _ensembles(ensembles: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    label = ("ensemble",)
    state = StateSetMetricFamily(f"{PREFIX}state", "The state of the ensemble.", labels=label)
    start = GaugeMetricFamily(f"{PREFIX}start_time_seconds", "When it began.", labels=label)
    end = GaugeMetricFamily(f"{PREFIX}end_time_seconds", "When it ended.", labels=label)
    predicted = GaugeMetricFamily(
        f"{PREFIX}predicted_end_time_seconds",
        "When its jobs are predicted to be over.",
        labels=label,
    )
    again = CounterMetricFamily(f"{PREFIX}retries", "Jobs that ran again.", labels=label)
    errors = GaugeMetricFamily(f"{PREFIX}errors", "Errors inside the service.", labels=label)
    for ensemble in ensembles:
        name = (ensemble["name"],)
        state.add_metric(name, {state: ensemble["state"] == state for state in STATES})
        times = (
            (start, ensemble["t_start"]),
            (end, ensemble["t_end"]),
            (predicted, ensemble.get("t_predicted")),
        )
        for family, t in times:
            if t is not None:
                family.add_metric(name, t)
        again.add_metric(name, ensemble.get("retries", 0))
        errors.add_metric(name, len(ensemble.get("errors", ())))
    yield from (state, start, end, predicted, again, errors)


def _groups(ensembles: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    gauges = {
        "waiting": "Jobs that are asked for and not in the queue yet.",
        "pending": "Jobs in the queue that have not started.",
        "running": "Jobs that run.",
    }
    made = {
        key: GaugeMetricFamily(f"{PREFIX}jobs_{key}", text, labels=_GROUP)
        for key, text in gauges.items()
    }
    submitted = CounterMetricFamily(
        f"{PREFIX}jobs_submitted", "Jobs that the queue has accepted.", labels=_GROUP
    )
    ended = CounterMetricFamily(
        f"{PREFIX}jobs_ended", "Jobs that ended, each attempt.", labels=(*_GROUP, "outcome")
    )
    for ensemble in ensembles:
        for group, counts in ensemble["groups"].items():
            names = (ensemble["name"], group)
            for key, family in made.items():
                family.add_metric(names, counts[key])
            submitted.add_metric(names, counts["submitted"])
            for outcome in ATTEMPT_OUTCOMES:
                ended.add_metric((*names, outcome), counts.get(outcome, 0))
    yield from (*made.values(), submitted, ended)


def _rules(ensembles: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    fired = CounterMetricFamily(
        f"{PREFIX}rule_firings", "How often the actions of the rule ran.", labels=_RULE
    )
    enabled = GaugeMetricFamily(f"{PREFIX}rule_enabled", "Whether it is enabled.", labels=_RULE)
    wrong = GaugeMetricFamily(
        f"{PREFIX}rule_error", "Whether its last action failed.", labels=_RULE
    )
    for ensemble in ensembles:
        for rule in ensemble.get("rules", ()):
            names = (ensemble["name"], rule["id"])
            fired.add_metric(names, rule["fired"])
            enabled.add_metric(names, rule["enabled"])
            wrong.add_metric(names, rule["error"] is not None)
    yield from (fired, enabled, wrong)


def _pools(ensembles: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    """Yield metrics of the members of ensembles, which are Flux instances of their own."""
    gauges = {
        "nodes": ("nodes", "Nodes of the member."),
        "cores": ("cores", "Cores of the member."),
        "jobs": ("jobs", "Jobs that were sent to the member and are not over."),
        "expiration_time_seconds": ("t_expires", "When the time of the member is up."),
    }
    made = {
        key: GaugeMetricFamily(f"{PREFIX}pool_member_{name}", text, labels=_POOL_MEMBER)
        for name, (key, text) in gauges.items()
    }
    state = StateSetMetricFamily(
        f"{PREFIX}pool_member_state", "The state of the member.", labels=_POOL_MEMBER
    )
    ended = CounterMetricFamily(
        f"{PREFIX}pool_members_ended", "Members that have ended.", labels=_POOL
    )
    lost = CounterMetricFamily(
        f"{PREFIX}pool_members_lost", "Members that have ended and were lost.", labels=_POOL
    )
    for ensemble in ensembles:
        for name, pool in ensemble.get("pools", {}).items():
            ended.add_metric((ensemble["name"], name), pool["ended"])
            lost.add_metric((ensemble["name"], name), pool["lost"])
            for member in pool["members"]:
                names = (ensemble["name"], name, member["name"])
                state.add_metric(
                    names, {known: member["state"] == known for known in MEMBER_STATES}
                )
                for key, family in made.items():
                    if member[key] is not None:
                        family.add_metric(names, member[key])
    yield from (state, *made.values(), ended, lost)
