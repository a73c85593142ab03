"""What of a Flux instance can keep jobs waiting: queues that are stopped, nodes that are not up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.engine.intervals import ids
from flux_ensemble.texts import bounded

#: Ranks that a sentence names.
_MOST = 3

#: Why Flux has stopped queues when it has no scheduler (flux-core, `job-manager/queues.c`).
OFFLINE = "Scheduler is offline"


@dataclass(frozen=True, slots=True)
class Conditions:
    """The queues and nodes of an instance.

    Args:
        stopped: the queues that are stopped, and why; "" is the one without a name.
        disabled: those that take no jobs, and why.
        default_queue: where jobs go that name none; "" where queues have no names, or none is set.
        has_default: jobs that name no queue can be submitted.
        nodes: how many nodes there are.
        nodes_up: how many of them are up and not drained.
        cores_up: how many cores these have; None where that is not known.
        missing: what is wrong with the others, in words.
        drained: whether some of them are drained.
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

    @property
    def troubled(self) -> bool:
        """Something may keep jobs waiting."""
        return bool(self.stopped) or self.nodes_up < self.nodes

    def start(self, queue: str) -> str:
        """What has a stopped queue start jobs again.

        After a crash of the broker between the allocation of a job and its record, Flux 0.88 gives
        its scheduler up over that job, each time anew.

        >>> Conditions({"batch": "later"}).start("batch")
        "'flux queue start batch'"
        """
        if self.stopped[queue] == OFFLINE:
            return (
                "cancel a job that is 'already allocated' by 'flux dmesg', if there is one, and "
                "'flux module reload -f sched-simple'"
            )
        return f"'flux queue start {queue}'" if queue else "'flux queue start'"

    @property
    def nodes_text(self) -> str:
        """How many nodes are up, and what is wrong with the others."""
        up = "none" if not self.nodes_up else str(self.nodes_up)
        verb = "is" if self.nodes_up < 2 else "are"
        text = f"{up} of {self.nodes} {verb} up"
        return f"{text}: {self.missing}" if self.missing else text

    @property
    def advice(self) -> str:
        """What brings nodes back."""
        return "'flux resource undrain RANKS' brings them back" if self.drained else ""


def conditions(
    queues: Mapping[str, Mapping[str, Any]],
    resources: Mapping[str, Any],
    config: Mapping[str, Any],
) -> Conditions:
    """Read what Flux says.

    Args:
        queues: the responses to `job-manager.queue-status` by the queues' names, which is "" where
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
