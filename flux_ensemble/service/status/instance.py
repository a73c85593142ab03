"""The instance's part of `ensemble.status`: nodes, jobs by state, what keeps these waiting.

Requests to Flux, asynchronous and with a time limit. If a request is not answered (no scheduler, no
job-list, or too slow) every value of its object is None.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

from flux.resource import ResourceSet

from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.steps import Step, Steps, run, together
from flux_ensemble.runtime.ports import Numbers
from flux_ensemble.service.status.cache import Take
from flux_ensemble.service.status.conditions import Conditions, conditions

#: Seconds to wait for each response.
PATIENCE = 5.0

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
    nodes = _numbers(broker, "resource.sched-status", NODES, count_nodes)
    jobs = _numbers(broker, "job-list.job-stats", STATES, count_jobs)
    found = _conditions(broker)
    done(*(yield together(partial(run, nodes), partial(run, jobs), partial(run, found))))


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
        return conditions(dict(zip(names or [""], states, strict=True)), resources, config)
    except Exception as error:
        if not isinstance(error, OSError):
            broker.report(error)
        return None


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
