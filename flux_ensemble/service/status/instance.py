"""What `ensemble.status` says about the instance: free nodes and jobs by state.

Two requests to Flux, asynchronous and with a limit. Where one is not answered (no
scheduler, no job-list, or too slow) every value of its object is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flux.resource import ResourceSet

from flux_ensemble.members.flux.broker import Broker
from flux_ensemble.runtime.ports import Numbers
from flux_ensemble.service.status.cache import Take

#: Seconds to wait for each response.
PATIENCE = 5.0

NODES = ("node_cores_free", "node_cores_up", "node_up_count", "node_free_count")
STATES = ("new", "depend", "priority", "sched", "run", "cleanup", "inactive")


def query(broker: Broker, done: Take) -> None:
    """Ask for nodes and jobs.

    Args:
        broker: where.
        done: gets the answer.
    """
    answers: dict[str, Numbers] = {}

    def ask(topic: str, names: tuple[str, ...], count: Callable[[Any], Numbers]) -> None:
        answer: Numbers = dict.fromkeys(names)

        def receive(future: Any) -> None:
            nonlocal answer
            answer = count(future.get())

        def report(error: Exception | None) -> None:
            answers[topic] = answer
            if not isinstance(error, OSError | None):
                broker.report(error)
            if len(answers) == 2:
                done(answers["resource.sched-status"], answers["job-list.job-stats"])

        broker.call(broker.handle.rpc(topic, {}), receive, report, PATIENCE)

    ask("resource.sched-status", NODES, count_nodes)
    ask("job-list.job-stats", STATES, count_jobs)


def count_nodes(response: Mapping[str, Any]) -> Numbers:
    """Counts from the resource sets `all`, `down` and `allocated` (RFC 20)."""
    up = ResourceSet(response["all"]) - ResourceSet(response["down"])
    free = up - ResourceSet(response["allocated"])
    return {
        "node_cores_free": free.ncores,
        "node_cores_up": up.ncores,
        "node_up_count": up.nnodes,
        "node_free_count": free.nnodes,
    }


def count_jobs(response: Mapping[str, Any]) -> Numbers:
    """Counts by state; Flux does not count jobs in state new, which lasts an instant."""
    states = response["job_states"]
    return {state: states.get(state, 0) for state in STATES}
