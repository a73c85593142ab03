"""Checks of the queue: that it accepts and starts jobs, that nodes are up, that no jobs wait."""

from __future__ import annotations

import errno

from flux_ensemble.deploy.checks.instance import Finding, InstanceInfo
from flux_ensemble.queues.flux.refusals import refusal
from flux_ensemble.service.status.conditions import BEHIND, NODES, Conditions, conditions
from flux_ensemble.texts import listed

#: Most reasons of waits, and most ensembles with one reason, that are named.
_MOST = 5

#: The reason of jobs that wait for nodes that are not up, or behind such a job.
_FOR_NODES = "wait for nodes that are not up"


def queue(instance: InstanceInfo) -> Finding:
    """Check that the queues accept jobs, and start them."""
    try:
        instance.ask("job-ingest.stats-get", {})
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        text = f"no job can be submitted: {error.strerror}"
        return Finding("queue", "problem", text, refusal(error).advice.replace("'", "`"))
    if instance.modules is not None and "job-exec" not in instance.modules:
        text = "no job can start: the module job-exec is not loaded"
        return Finding("queue", "problem", text, "load it with `flux module load job-exec`")
    found = _conditions(instance)
    wrong = [
        *(_named(name, "takes no jobs", why) for name, why in found.disabled.items()),
        *(_named(name, "is stopped", why) for name, why in found.stopped.items()),
    ]
    if wrong:
        remedies = [
            *(f"enable it with `flux queue enable {name or '--all'}`" for name in found.disabled),
            *(found.start(name).replace("'", "`") for name in found.stopped),
        ]
        return Finding("queue", "warning", "; ".join(wrong), "; ".join(remedies))
    if not found.has_default:
        text = "there are queues and no default one: jobs that name none are not taken"
        advice = (
            "give each group a `queue`, or set `queue` in [policy.jobspec.defaults.system] of the "
            "configuration"
        )
        return Finding("queue", "warning", text, advice)
    return Finding("queue", "ok", "jobs are taken, and started")


def nodes(instance: InstanceInfo) -> Finding:
    """Check that all nodes are up."""
    found = _conditions(instance)
    if found.nodes_up < found.nodes:
        advice = found.advice.replace("'", "`")
        return Finding("nodes", "warning", found.nodes_text, advice)
    return Finding("nodes", "ok", f"{found.nodes} up")


def waits(instance: InstanceInfo) -> Finding:
    """Check that no jobs of ensembles wait for something that a person has to do."""
    if isinstance(instance.service, OSError):
        return Finding("waits", "ok", "not known: there is no service that says so")
    if any("waits" not in ensemble for ensemble in instance.ensembles):
        return Finding("waits", "ok", "not known: only the owner of the instance is told")
    names: dict[str, dict[str, None]] = {}
    for ensemble in instance.ensembles:
        for wait in ensemble["waits"]:
            # The check of the nodes says which of them are not up.
            reason = _FOR_NODES if wait["kind"] in (NODES, BEHIND) else wait["reason"]
            names.setdefault(reason, {})[ensemble["name"]] = None
    texts = [f"{_first(list(those))}: {reason}" for reason, those in names.items()]
    if not texts:
        return Finding("waits", "ok", "no ensemble's jobs wait for more than free nodes")
    more = f"; and {len(texts) - _MOST} more" if len(texts) > _MOST else ""
    advice = "`flux ensemble status NAME` says which jobs, and what ends it"
    return Finding("waits", "warning", "; ".join(texts[:_MOST]) + more, advice)


def _first(names: list[str]) -> str:
    """Return the first names, and the number of the others."""
    more = f", and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return listed(names[:_MOST]) + more


def _named(name: str, what: str, why: str) -> str:
    which = f"queue {name!r}" if name else "the queue"
    return f"{which} {what}" + (f" ({why})" if why else "")


def _conditions(instance: InstanceInfo) -> Conditions:
    names = instance.ask("job-manager.queue-list", {})["queues"]
    topic = "job-manager.queue-status"
    queues = {name: instance.ask(topic, {"name": name}) for name in names}
    return conditions(
        queues or {"": instance.ask(topic, {})},
        instance.ask("resource.status", {}),
        instance.ask("config.get", {}),
    )
