"""Conditions of a Flux instance that can keep jobs waiting: stopped queues, nodes not up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.engine.intervals import ids
from flux_ensemble.service.settings import EXPIRING
from flux_ensemble.texts import bounded
from flux_ensemble.words import counted

#: Number of ranks that a sentence names.
_MOST = 3

#: Reason for which Flux stops queues if it has no scheduler (flux-core, `job-manager/queues.c`).
OFFLINE = "Scheduler is offline"

#: Kinds of waits for nodes that are not up: of jobs that need them, and of those behind such a job.
NODES, BEHIND = "nodes", "behind"


@dataclass(frozen=True, slots=True)
class First:
    """The first job in the queue, if the scheduler starts jobs in their order only.

    Args:
        job: its id, as users see it.
        nodes, cores: that it needs, as far as Flux says so; 0 if not.
    """

    job: str
    nodes: int
    cores: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """The queues and nodes of an instance.

    Args:
        stopped: the queues that are stopped, with reasons; "" is the queue without a name.
        disabled: the queues that accept no jobs, with reasons.
        default_queue: receives jobs that name no queue; "" if queues have no names, or none is set.
        has_default: jobs that name no queue can be submitted.
        nodes: number of nodes.
        nodes_up: number of nodes that are up and not drained.
        cores_up: number of cores of these nodes; None if unknown.
        missing: what is wrong with the other nodes, in words.
        drained: some of the other nodes are drained.
        first: of the jobs in the queue; None if the scheduler starts others before it, if there is
            none, or if it is unknown.
    """

    stopped: Mapping[str, str] = field(default_factory=dict)
    disabled: Mapping[str, str] = field(default_factory=dict)
    default_queue: str = ""
    has_default: bool = True
    nodes: int = 0
    nodes_up: int = 0
    cores_up: int | None = None
    missing: str = ""
    drained: bool = False
    first: First | None = None

    @property
    def troubled(self) -> bool:
        """A condition may keep jobs waiting."""
        return bool(self.stopped) or self.nodes_up < self.nodes

    def start(self, queue: str) -> str:
        """Return the advice that makes a stopped queue start jobs again.

        If the broker crashes between the allocation of a job and its record, Flux 0.88 gives up its
        scheduler because of that job, again after each start.

        >>> Conditions({"batch": "later"}).start("batch")
        "start it with 'flux queue start batch'"
        """
        if self.stopped[queue] == OFFLINE:
            return (
                "cancel a job that is 'already allocated' by 'flux dmesg', if there is one, and "
                "load the scheduler again with 'flux module reload -f sched-simple'"
            )
        if self.stopped[queue] == EXPIRING:
            return "the service starts it again if the allocation is extended"
        return f"start it with 'flux queue start{f' {queue}' if queue else ''}'"

    @property
    def nodes_text(self) -> str:
        """The number of nodes that are up, and what is wrong with the others."""
        up = "none" if not self.nodes_up else str(self.nodes_up)
        verb = "is" if self.nodes_up < 2 else "are"
        text = f"{up} of {self.nodes} {verb} up"
        return f"{text}: {self.missing}" if self.missing else text

    def lack(self, nodes: int, cores: int) -> str:
        """Return what keeps a job with these needs waiting; "" if enough nodes are up.

        >>> Conditions(nodes=4, nodes_up=1).lack(2, 2)
        'needs 2 nodes, and 1 of 4 is up'
        """
        if nodes > self.nodes_up:
            return f"needs {counted(nodes, 'node')}, and {self.nodes_text}"
        if self.cores_up is not None and cores > self.cores_up:
            return f"needs {cores} cores, and {self.cores_up} are up: {self.missing}"
        return ""

    @property
    def advice(self) -> str:
        """The advice that brings nodes back; "" if there is none."""
        return "'flux resource undrain RANKS' brings them back" if self.drained else ""


def conditions(
    queues: Mapping[str, Mapping[str, Any]],
    resources: Mapping[str, Any],
    config: Mapping[str, Any],
) -> Conditions:
    """Read the responses of Flux.

    Args:
        queues: the responses to `job-manager.queue-status` by the queues' names; the name is "" if
            queues have none.
        resources: the response to `resource.status`.
        config: the instance's configuration.

    >>> resources = {"R": {"version": 1, "execution": {"R_lite": [
    ...     {"rank": "0-1", "children": {"core": "0-3"}}]}},
    ...     "drain": {"1": {"reason": "bad memory"}}, "online": "0-1", "offline": "",
    ...     "exclude": "", "torpid": ""}
    >>> queues = {"": {"enable": True, "start": False, "stop_reason": "later"}}
    >>> found = conditions(queues, resources, {})
    >>> found.stopped, found.nodes_text, found.cores_up
    ({'': 'later'}, "1 of 2 is up: rank 1 is drained ('bad memory')", 4)
    """
    system = config.get("policy", {}).get("jobspec", {}).get("defaults", {}).get("system", {})
    default = system.get("queue") if isinstance(system, Mapping) else None
    cores = {
        rank: len(_ids(part["children"].get("core", "")))
        for part in resources["R"]["execution"]["R_lite"]
        for rank in _ids(part["rank"])
    }
    usable = cores.keys() - _ids(resources.get("exclude", ""))
    drained = {
        rank: str(entry.get("reason") or "")
        for ranks, entry in resources["drain"].items()
        for rank in _ids(ranks)
        if rank in usable
    }
    offline = _ids(resources.get("offline", "")) & usable
    down = offline | drained.keys()
    words = [
        *(f"rank {rank} is offline" for rank in sorted(offline - drained.keys())),
        *(
            f"rank {rank} is drained" + (f" ({bounded(why)!r})" if why else "")
            for rank, why in sorted(drained.items())
        ),
    ]
    more = f", and {len(words) - _MOST} more" if len(words) > _MOST else ""
    return Conditions(
        stopped={n: q.get("stop_reason") or "" for n, q in queues.items() if not q["start"]},
        disabled={n: q.get("disable_reason") or "" for n, q in queues.items() if not q["enable"]},
        default_queue=default if isinstance(default, str) else "",
        has_default="" in queues or isinstance(default, str),
        nodes=len(usable),
        nodes_up=len(usable - down),
        cores_up=sum(cores[rank] for rank in usable - down),
        missing=", ".join(words[:_MOST]) + more,
        drained=bool(drained),
    )


def _ids(idset: str) -> set[int]:
    return set(ids(idset)) if idset else set()
