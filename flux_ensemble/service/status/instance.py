"""The instance's part of `ensemble.status`: nodes, jobs by state, what keeps these waiting.

Requests to Flux, asynchronous and with a time limit. If a request is not answered (no scheduler, no
job-list, or too slow) every value of its object is None.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from flux.job import JobID
from flux.resource import ResourceSet

from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.steps import Step, Steps, run, together
from flux_ensemble.runtime.ports import Numbers
from flux_ensemble.service.status.cache import Take
from flux_ensemble.service.status.conditions import Conditions, First, conditions

#: Seconds to wait for each response.
PATIENCE = 5.0

#: Schedulers that start no job before the first one in the queue.
IN_ORDER = frozenset({"sched-simple"})

NODES = ("node_cores_free", "node_cores_up", "node_up_count", "node_free_count")
STATES = ("new", "depend", "priority", "sched", "run", "cleanup", "inactive")


def query(broker: Broker, done: Take) -> None:
    """Request the numbers of nodes and jobs.

    Args:
        broker: of the instance.
        done: receives the answer.
    """
    run(_query(broker, done))


def _query(broker: Broker, done: Take) -> Steps:
    found = _conditions(broker)
    (nodes, jobs), why = yield together(partial(run, numbers(broker)), partial(run, found))
    done(nodes, jobs, why)


def numbers(broker: Broker) -> Generator[Step, Any, tuple[Numbers, Numbers]]:
    """Request the numbers of nodes, and those of jobs by state."""
    nodes = _numbers(broker, "resource.sched-status", NODES, count_nodes)
    jobs = _numbers(broker, "job-list.job-stats", STATES, count_jobs)
    found = yield together(partial(run, nodes), partial(run, jobs))
    return found[0], found[1]


def _conditions(broker: Broker) -> Generator[Step, Any, Conditions | None]:
    """Request the conditions that can keep jobs waiting; None if Flux does not answer."""
    handle = broker.handle

    def ask(topic: str, payload: Mapping[str, Any]) -> Step:
        return broker.response(handle.rpc(topic, payload, nodeid=0), seconds=PATIENCE)

    try:
        config, resources, listed = yield together(
            ask("config.get", {}),
            ask("resource.status", {}),
            ask("job-manager.queue-list", {}),
        )
        names = listed["queues"]
        states = yield together(
            *(ask("job-manager.queue-status", {"name": name}) for name in names),
            *([] if names else [ask("job-manager.queue-status", {})]),
        )
        found = conditions(dict(zip(names or [""], states, strict=True)), resources, config)
    except Exception as error:
        if not isinstance(error, OSError):
            broker.report(error)
        return None
    if found.nodes_up == found.nodes or "" in found.stopped:
        return found
    try:
        modules, pending = yield together(
            ask("module.list", {"service": "sched"}),
            ask("job-list.list", _first(found.stopped)),
        )
        return replace(found, first=first_of(modules, pending))
    except Exception as error:
        if not isinstance(error, OSError):
            broker.report(error)
        return found


def _first(stopped: Iterable[str]) -> Mapping[str, Any]:
    """Return the request to `job-list.list` for the first job that the scheduler has (RFC 43)."""
    going: Mapping[str, Any] = {"not": [{"queue": list(stopped)}]}
    return {
        "max_entries": 1,
        "attrs": ["nnodes", "ncores", "ntasks", "priority"],
        "constraint": {"and": [{"states": ["sched"]}, going]},
    }


def first_of(modules: Mapping[str, Any], pending: Mapping[str, Any]) -> First | None:
    """Return the job that those after it wait for; None if the scheduler passes it over.

    Args:
        modules: the response to `module.list`.
        pending: the response to `job-list.list`.

    >>> modules = {"mods": [{"name": "sched-simple", "services": ["sched"]}]}
    >>> first_of(modules, {"jobs": [{"id": 1 << 30, "priority": 16, "nnodes": 2, "ntasks": 2}]})
    First(job='ƒ2dtD35', nodes=2, cores=2)
    """
    in_order = any(
        "sched" in one["services"] and one["name"] in IN_ORDER for one in modules["mods"]
    )
    # A job with priority 0 is held, and the last.
    jobs = [job for job in pending["jobs"] if job.get("priority")]
    if not in_order or not jobs:
        return None
    (job,) = jobs
    cores = job.get("ncores") or job.get("ntasks") or 0
    return First(str(JobID(job["id"]).f58), job.get("nnodes") or 0, cores)


def _numbers(
    broker: Broker, topic: str, names: tuple[str, ...], count: Callable[[Any], Numbers]
) -> Generator[Step, Any, Numbers]:
    future = broker.handle.rpc(topic, {})
    try:
        return count((yield broker.response(future, seconds=PATIENCE)))
    except Exception as error:
        if not isinstance(error, OSError):
            broker.report(error)
        return dict.fromkeys(names)


def count_nodes(response: Mapping[str, Any]) -> Numbers:
    """Count nodes and cores in the resource sets `all`, `down` and `allocated` (RFC 20)."""
    up = ResourceSet(response["all"]) - ResourceSet(response["down"])
    free = up - ResourceSet(response["allocated"])
    return {
        "node_cores_free": free.ncores,
        "node_cores_up": up.ncores,
        "node_up_count": up.nnodes,
        "node_free_count": free.nnodes,
    }


def count_jobs(response: Mapping[str, Any]) -> Numbers:
    """Count jobs by state; Flux does not count jobs in state new, which lasts an instant."""
    states = response["job_states"]
    return {state: states.get(state, 0) for state in STATES}
