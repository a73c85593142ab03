"""The state of a member, from its objects in the cluster; pure.

A `MemberKind` defines the object that a member is made of, and how its state is read. There is one
kind, the MiniCluster of the Flux Operator: an Indexed Job, whose pod of index 0 runs the ensemble
and leaves the result in its termination message (`run --summary`). The exit code means nothing: the
Flux Operator's script exits with 0 unless its logging is strict. The end of a pod is not always the
end of the member: the Job decides that, and makes another pod after one that was evicted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from flux_ensemble.k8s.grpc.backend import Report
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.differences import annotation
from flux_ensemble.k8s.operator.minicluster import minicluster

Resource = Mapping[str, Any]

#: States of a member that has ended, by the state of its ensemble.
ENDED = {"completed": "Completed", "failed": "Failed", "canceled": "Canceled"}
OVER = frozenset(ENDED.values())

#: Reason for which a member has no object.
NOT_MADE = "it is not made yet"

#: Label or annotation with the index of a pod of an Indexed Job.
_INDEX = "batch.kubernetes.io/job-completion-index"

#: Reasons for which a container waits, but not for long.
_PASSING = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True, slots=True)
class Observed:
    """The objects of a member in the cluster.

    Args:
        resource: the object that it is made of; None if that does not exist.
        job: of that object.
        pods: of the job.
        warnings: messages of the job's events, latest last.
        workload: of the job, where Kueue has suspended that.
        report: what its Flux instance says of its nodes and its queue.
        suspended: the Ensemble has been suspended.
    """

    resource: Resource | None = None
    job: Resource | None = None
    pods: Sequence[Resource] = ()
    warnings: Sequence[str] = ()
    workload: Resource | None = None
    report: Report | None = None
    suspended: bool = False


class MemberKind(Protocol):
    """A kind of member: `members[].kind`.

    Attributes:
        api_version, kind: of the object that it is made of.
    """

    api_version: str
    kind: str

    def render(self, ensemble: Resource, member: Resource) -> dict[str, Any]:
        """Return the object of a member, with its initial size."""
        ...

    def status(self, member: Resource, observed: Observed) -> dict[str, Any]:
        """Return the entry of `status.members`: {state, reason, size, wanted, min, max, ...}."""
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
            queue = (spec.get("jobLabels") or {}).get(names.QUEUE_LABEL)
            if queue is not None:
                admitted = observed.job is not None and not is_suspended(observed.job)
                status |= {"queue": queue, "admitted": admitted}
            if observed.report and status["state"] == "Running":
                status["flux"] = observed.report
        return status


KINDS: Mapping[str, MemberKind] = {"MiniCluster": MiniClusterKind()}


def kind_of(member: Resource) -> MemberKind:
    """Return the kind of a member."""
    return KINDS[member.get("kind", "MiniCluster")]


def _state(observed: Observed) -> dict[str, Any]:
    suspended = "the Ensemble is suspended"
    if observed.resource is None:
        return {"state": "Pending", "reason": suspended if observed.suspended else NOT_MADE}
    if observed.suspended:
        # A suspended member begins anew afterwards, so its earlier end is dropped.
        return {"state": "Ending", "reason": suspended}
    if observed.resource["metadata"].get("deletionTimestamp"):
        return {"state": "Ending", "reason": "its MiniCluster is being deleted"}
    of_rank_0 = _of_rank_0(observed.pods)
    conditions = _conditions(observed.job)
    if conditions.keys() & {"Complete", "Failed"} or _rank_0_is_done(observed.job):
        told = [pod for pod in of_rank_0 if _phase(pod) == "Succeeded"] or of_rank_0
        return _outcome(told[-1] if told else None, conditions)
    # The Job decides about a pod that ends: it may make another one.
    live = [pod for pod in of_rank_0 if not has_ended(pod) and not _leaves(pod)]
    first = live[-1] if live else None
    if _phase(first) == "Running":
        lacking = "; ".join(_troubles(observed))
        begun = first["status"].get("startTime") if first else None
        state = {"state": "Running", "reason": lacking}
        return {**state, "startTime": begun} if begun else state
    if of_rank_0 and not live and _phase(of_rank_0[-1]) == "Succeeded":
        return {"state": "Ending", "reason": "rank 0 has ended, and its Job has yet to say so"}
    lost = [_lost(of_rank_0[-1])] if of_rank_0 and not live else []
    return {
        "state": "Pending",
        "reason": "; ".join([*lost, *_troubles(observed)]) or "its pods start",
    }


def _lost(pod: Resource) -> str:
    """Return what happened to a pod of rank 0 after which its Job makes another one."""
    status = pod.get("status") or {}
    said = f"{status.get('reason', '')}: {status.get('message', '')}".strip(": ")
    said = said or ("it is being deleted" if _leaves(pod) else "it has ended")
    return f"the pod of rank 0 was lost ({said}), and its Job makes another one"


def _rank_0_is_done(job: Resource | None) -> bool:
    """Return True if the Job reports the success of index 0; workers may still be ending."""
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
    # The outcome is the one that `run` reported: its exit code, and its sentence about the error.
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
    """Return the summary left by the container that ran the ensemble, and its start and end."""
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
    """Return the reasons why pods that should run do not; each reason once.

    Args:
        pods: the existing pods.
        deployment: of the pods, which knows why there are not more of them.
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


def is_suspended(job: Resource | None) -> bool:
    """Return True if a Job has been suspended, by Kueue or by a user."""
    return bool(((job or {}).get("spec") or {}).get("suspend"))


def said_by_kueue(workload: Resource | None) -> str:
    """Return why the Workload of a suspended Job waits, or was evicted, as Kueue says it."""
    evicted = _conditions(workload).get("Evicted")
    waits = _conditions(workload, "False").get("QuotaReserved")
    said = [one.get("message", "") for one in (waits,) if one is not None]
    if evicted is not None:
        said.insert(0, f"{evicted.get('reason')}: {evicted.get('message')}")
    return "; ".join(filter(None, said))


def _troubles(observed: Observed) -> list[str]:
    """Return the reasons why a member has fewer running pods than it should; each reason once."""
    found = waiting(observed.pods)
    if observed.job is not None and is_suspended(observed.job):
        said = said_by_kueue(observed.workload)
        said = said or _conditions(observed.job).get("Suspended", {}).get("message", "")
        queue = (observed.job["metadata"].get("labels") or {}).get(names.QUEUE_LABEL)
        of_queue = f" until the queue {queue!r} admits it" if queue else ""
        found.append(": ".join(filter(None, (f"its Job is suspended{of_queue}", said))))
    wanted = observed.resource["spec"].get("size", 1) if observed.resource else 0
    if len(observed.pods) < wanted and observed.warnings:
        found.append(observed.warnings[-1])
    return found


def _of_rank_0(pods: Iterable[Resource]) -> list[Resource]:
    """Return the pods of index 0, the latest one last."""

    def index(pod: Resource) -> str:
        metadata = pod["metadata"]
        found = (metadata.get("annotations") or {}).get(_INDEX)
        return str(found or (metadata.get("labels") or {}).get(_INDEX, ""))

    chosen = [pod for pod in pods if index(pod) == "0"]
    return sorted(chosen, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))


def has_ended(pod: Resource) -> bool:
    """Return True if no container of a pod runs or will run any more."""
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
