"""How a member is, from what the cluster has of it; pure.

A `MemberKind` knows which object a member is made of, and how to read its state there. There is
one kind, the MiniCluster of the Flux Operator: an Indexed Job, whose pod of index 0 runs the
ensemble and leaves how that ended in its termination message (`run --summary`). The exit code tells
nothing:
the Flux Operator's script ends with 0 unless its logging is strict. Whether a pod's end is that of
the member is the Job's to say: after one that was evicted it makes another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from flux_ensemble.operator import names
from flux_ensemble.operator.differences import annotation
from flux_ensemble.operator.minicluster import minicluster

Resource = Mapping[str, Any]

#: States of a member that has ended, by the state of its ensemble.
ENDED = {"completed": "Completed", "failed": "Failed", "canceled": "Canceled"}
OVER = frozenset(ENDED.values())

#: Why a member has no object.
NOT_MADE = "it is not made yet"

#: Which pod of an Indexed Job it is.
_INDEX = "batch.kubernetes.io/job-completion-index"

#: The label of a Job that Kueue starts when there is room for it.
_QUEUE = "kueue.x-k8s.io/queue-name"

#: Reasons for which a container waits that go by themselves.
_PASSING = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True, slots=True)
class Observed:
    """What the cluster has of a member.

    Args:
        resource: what it is made of; None if that is not there.
        job: of it.
        pods: of the job.
        warnings: what events say of the job, the last one last.
        suspended: the Ensemble has been suspended.
    """

    resource: Resource | None = None
    job: Resource | None = None
    pods: Sequence[Resource] = ()
    warnings: Sequence[str] = ()
    suspended: bool = False


class MemberKind(Protocol):
    """What a member can be: `members[].kind`.

    Attributes:
        api_version, kind: of the object that it is made of.
    """

    api_version: str
    kind: str

    def render(self, ensemble: Resource, member: Resource) -> dict[str, Any]:
        """Its object, with the size that it begins with."""
        ...

    def status(self, member: Resource, observed: Observed) -> dict[str, Any]:
        """What `status.members` says of it: {state, reason, size, wanted, min, max, ...}."""
        ...


class MiniClusterKind:
    """A MiniCluster of the Flux Operator."""

    api_version = names.MINICLUSTER
    kind = "MiniCluster"

    def render(self, ensemble: Resource, member: Resource) -> dict[str, Any]:
        return minicluster(ensemble, member)

    def status(self, member: Resource, observed: Observed) -> dict[str, Any]:
        own = member["minicluster"]["spec"]
        spec = own if observed.resource is None else observed.resource["spec"]
        size = spec.get("size", 1)
        running = [
            pod
            for pod in observed.pods
            if _phase(pod) == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]
        status = {
            "size": len(running),
            "wanted": size,
            "min": spec.get("minSize") or 1,
            "max": spec.get("maxSize") or size,
            **_state(observed),
        }
        if observed.resource is not None:
            status["uid"] = observed.resource["metadata"]["uid"]
            status["template"] = annotation(observed.resource, names.TEMPLATE)
        return status


KINDS: Mapping[str, MemberKind] = {"MiniCluster": MiniClusterKind()}


def kind_of(member: Resource) -> MemberKind:
    """What a member is."""
    return KINDS[member.get("kind", "MiniCluster")]


def _state(observed: Observed) -> dict[str, Any]:
    suspended = "the Ensemble is suspended"
    if observed.resource is None:
        return {"state": "Pending", "reason": suspended if observed.suspended else NOT_MADE}
    if observed.suspended:
        # It begins anew afterwards, so how it ended is nothing that is known of it any more.
        return {"state": "Ending", "reason": suspended}
    if observed.resource["metadata"].get("deletionTimestamp"):
        return {"state": "Ending", "reason": "its MiniCluster is being deleted"}
    of_rank_0 = _of_rank_0(observed.pods)
    conditions = _conditions(observed.job)
    if conditions.keys() & {"Complete", "Failed"} or _rank_0_is_done(observed.job):
        told = [pod for pod in of_rank_0 if _phase(pod) == "Succeeded"] or of_rank_0
        return _outcome(told[-1] if told else None, conditions)
    # What becomes of a pod that ends is the Job's to say: it may make another one.
    live = [pod for pod in of_rank_0 if not has_ended(pod) and not _leaves(pod)]
    first = live[-1] if live else None
    if _phase(first) == "Running":
        lacking = "; ".join(_troubles(observed))
        begun = first["status"].get("startTime") if first else None
        state = {"state": "Running", "reason": lacking}
        return {**state, "startTime": begun} if begun else state
    lost = [_lost(of_rank_0[-1])] if of_rank_0 and not live else []
    return {
        "state": "Pending",
        "reason": "; ".join([*lost, *_troubles(observed)]) or "its pods start",
    }


def _lost(pod: Resource) -> str:
    """What became of a pod of rank 0 after which its Job makes another one."""
    status = pod.get("status") or {}
    said = f"{status.get('reason', '')}: {status.get('message', '')}".strip(": ")
    said = said or ("it is being deleted" if _leaves(pod) else "it has ended")
    return f"the pod of rank 0 was lost ({said}), and its Job makes another one"


def _rank_0_is_done(job: Resource | None) -> bool:
    """Whether the Job says that index 0 has succeeded; workers may still be leaving."""
    completed = str(((job or {}).get("status") or {}).get("completedIndexes", ""))
    return re.match(r"0($|[,-])", completed) is not None


def _outcome(first: Resource | None, job: Mapping[str, Resource]) -> dict[str, Any]:
    summary, times = _summary(first)
    failed = job.get("Failed")
    if summary is None and failed is not None:
        said = f"{failed.get('reason', '')}: {failed.get('message', '')}".strip(": ")
        return {"state": "Failed", "reason": said or "its Job failed", **times}
    if first is None:
        return {"state": "Failed", "reason": "how it ended is not known: the pod of rank 0 is gone"}
    if summary is None:
        return {
            "state": "Failed",
            "reason": "rank 0 ended without a word on the ensemble: see its log",
            **times,
        }
    # How it ended is what `run` says: its exit code, and its sentence of what went wrong.
    state = ENDED.get(str(summary.get("state", "")))
    if state is None or (state == "Completed" and summary.get("exit_code")):
        state = "Failed" if summary.get("exit_code") else "Completed"
    reason = summary.get("error") or summary.get("reason") or ""
    result: dict[str, Any] = {"state": state, "reason": str(reason), **times}
    if summary.get("trouble"):
        result["trouble"] = str(summary["trouble"])
    if isinstance(summary.get("jobs"), Mapping):
        result["jobs"] = {
            str(key): value for key, value in summary["jobs"].items() if isinstance(value, int)
        }
    return result


def _summary(pod: Resource | None) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """What the container that ran the ensemble left, and when it began and ended."""
    times: dict[str, str] = {}
    found = None
    for container in _containers(pod):
        terminated = container.get("state", {}).get("terminated") or container.get(
            "lastState", {}
        ).get("terminated")
        if not terminated:
            continue
        message = _parsed(terminated.get("message", ""))
        if message is not None or not times:
            times = {
                name: terminated[key]
                for name, key in (("startTime", "startedAt"), ("completionTime", "finishedAt"))
                if terminated.get(key)
            }
        found = message if message is not None else found
    return found, times


def _parsed(message: str) -> dict[str, Any] | None:
    try:
        value = json.loads(message)
    except ValueError:
        return None
    return value if isinstance(value, dict) and "exit_code" in value else None


def waiting(pods: Iterable[Resource], deployment: Resource | None = None) -> list[str]:
    """Why pods that should run do not; each reason once.

    Args:
        pods: those that there are.
        deployment: that of the pods, which says why there are not more of them.
    """
    found: dict[str, None] = {}
    for pod in pods:
        for condition in _conditions(pod, "False").values():
            if condition.get("reason") == "Unschedulable":
                found[f"cannot be scheduled: {condition.get('message', '')}"] = None
        for container in _containers(pod):
            state = container.get("state", {}).get("waiting") or {}
            reason = state.get("reason", "")
            if reason and reason not in _PASSING:
                found[f"{reason}: {state.get('message', '')}".rstrip(": ")] = None
    failure = _conditions(deployment).get("ReplicaFailure")
    if failure is not None:
        found[f"{failure.get('reason')}: {failure.get('message')}"] = None
    return list(found)


def _troubles(observed: Observed) -> list[str]:
    """Why a member has not as many pods that run as it should; each reason once."""
    found = waiting(observed.pods)
    if ((observed.job or {}).get("spec") or {}).get("suspend"):
        said = _conditions(observed.job).get("Suspended", {}).get("message", "")
        queue = ((observed.job or {})["metadata"].get("labels") or {}).get(_QUEUE)
        of_queue = f" until the queue {queue!r} admits it" if queue else ""
        found.append(": ".join(filter(None, (f"its Job is suspended{of_queue}", said))))
    wanted = observed.resource["spec"].get("size", 1) if observed.resource else 0
    if len(observed.pods) < wanted and observed.warnings:
        found.append(observed.warnings[-1])
    return found


def _of_rank_0(pods: Iterable[Resource]) -> list[Resource]:
    """The pods of index 0, the latest one last."""

    def index(pod: Resource) -> str:
        metadata = pod["metadata"]
        found = (metadata.get("annotations") or {}).get(_INDEX)
        return str(found or (metadata.get("labels") or {}).get(_INDEX, ""))

    chosen = [pod for pod in pods if index(pod) == "0"]
    return sorted(chosen, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))


def has_ended(pod: Resource) -> bool:
    """Whether none of a pod's containers runs or will run any more."""
    return _phase(pod) in ("Succeeded", "Failed")


def _leaves(pod: Resource) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _phase(pod: Resource | None) -> str:
    return str((pod.get("status") or {}).get("phase", "")) if pod is not None else ""


def _containers(pod: Resource | None) -> Iterator[Mapping[str, Any]]:
    status = (pod or {}).get("status") or {}
    for key in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(key) or ()


def _conditions(resource: Resource | None, status: str = "True") -> dict[str, Resource]:
    conditions = ((resource or {}).get("status") or {}).get("conditions") or ()
    return {one["type"]: one for one in conditions if one.get("status") == status}
