"""The JobSet of a member: how it is made of a template, and what is read of it and its pods.

    template, tag, credentials ──► a JobSet with one pod, and a Secret that the JobSet owns
    JobSet, pods, Workload of Kueue ──► alive, over, why it waits, why it has ended

The name is made of the member's ordinal and of what identifies the run, and a cluster gives a name
once. So whoever asks a second time, because the answer was lost or an earlier home has died, is
told that the JobSet is there.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from flux_ensemble.queues.local.binding import GPU_VARIABLES
from flux_ensemble.queues.nested.shape import CORES, SECONDS, MemberTag, Program, Shape
from flux_ensemble.queues.providers.jobset.template import (
    API_VERSION,
    KIND,
    VOLUME,
    cores_of,
    gpus_of,
    pod_of,
    worker_of,
)

Object = Mapping[str, Any]

#: Labels of all objects of a member: the run, and the member.
RUN_LABEL = "flux-ensemble.dev/run"
WORKER_LABEL = "flux-ensemble.dev/worker"

#: The annotation with the tag of a member.
TAG = "flux-ensemble.dev/tag"

#: Label of a JobSet that a queue of Kueue starts.
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"

#: Where a worker finds what it needs to call its home.
_DIRECTORY, _FILE = "/flux-ensemble", "credentials"

#: Seconds after which a JobSet that has ended is deleted, unless the template says otherwise.
_KEPT_SECONDS = 86400

#: Seconds after its duration at which Kubernetes ends a pod. A worker counts from its own start.
_LATE_SECONDS = 60

#: Most characters of an ensemble's name in those of its JobSets: the longest name is that of a pod,
#: with at most 63.
_LONGEST = 16


def run_label(tag: MemberTag, home: str) -> str:
    """Return what the objects of one run have as RUN_LABEL.

    >>> run_label(MemberTag("a b", 1, "pool.2", 3, 7), "12.5")
    '4855465a8f17'
    """
    return hashlib.sha256(json.dumps([home, tag.name, tag.run]).encode()).hexdigest()[:12]


def job_set_name(tag: MemberTag, home: str) -> str:
    """Return the name of a member's JobSet.

    >>> job_set_name(MemberTag("A study_of x", 1, "pool.2", 3, 7), "12.5")
    'a-study-of-x-1d7d312ddf2b-3'
    """
    word = re.sub(r"[^a-z0-9]+", "-", tag.name.lower()).strip("-")[:_LONGEST].strip("-")
    if not word[:1].isalpha():
        word = f"e-{word}"
    return f"{word}-{run_label(tag, home)}-{tag.ordinal}"


def mark(tag: MemberTag, home: str) -> str:
    """Return the tag of a JobSet, without what differs between homes.

    >>> mark(MemberTag("a b", 1, "pool.2", 3, 7), "12.5")
    '["12.5","a b",1,3]'
    """
    return json.dumps([home, tag.name, tag.run, tag.ordinal], separators=(",", ":"))


def describe(shape: Shape, namespace: str) -> dict[str, Any]:
    """Return the JobSet and the Secret of a member.

    Args:
        shape: of the member.
        namespace: in which they are, unless the template names one.

    Raises:
        ValueError: it is no worker, or there is no home that it could call.
    """
    if shape.program is not Program.WORKER or not shape.credentials or shape.template is None:
        raise ValueError(
            "members in Kubernetes are workers, which call a home without Flux: run the document "
            "outside of a Flux instance ('flux-ensemble run')"
        )
    tag = shape.tag
    name = job_set_name(tag, shape.home)
    made: dict[str, Any] = copy.deepcopy(dict(shape.template))
    labels = {RUN_LABEL: run_label(tag, shape.home), WORKER_LABEL: name}
    metadata = made.setdefault("metadata", None) or {}
    made["metadata"] = metadata = {"namespace": namespace, **metadata, "name": name}
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        TAG: mark(tag, shape.home),
    }
    spec = made["spec"]
    # Nothing asks for the names of pods, and a Service for each JobSet is one more object.
    spec.setdefault("network", {"enableDNSHostnames": False})
    spec.setdefault("ttlSecondsAfterFinished", _KEPT_SECONDS)
    replicated = spec["replicatedJobs"][0]
    replicated["replicas"] = 1
    job = replicated["template"]["spec"]
    job |= {"parallelism": 1, "completions": 1, "backoffLimit": 0}
    pod = pod_of(made)
    for one in (made, replicated["template"], pod):
        inner = one["metadata"] = one.get("metadata") or {}
        inner["labels"] = {**(inner.get("labels") or {}), **labels}
    _fill_in(pod["spec"], made, name, shape.size.duration)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": metadata["namespace"], "name": name, "labels": labels},
        "stringData": {_FILE: shape.credentials},
    }
    return {"jobset": made, "secret": secret}


def _fill_in(pod: dict[str, Any], made: Object, name: str, duration: float) -> None:
    """Make the worker's container call home, once."""
    pod["restartPolicy"] = "Never"
    # A worker needs no rights in the cluster.
    pod.setdefault("automountServiceAccountToken", False)
    pod["volumes"] = [
        *(pod.get("volumes") or []),
        {"name": VOLUME, "secret": {"secretName": name, "defaultMode": 0o440}},
    ]
    worker = worker_of(made)
    mounts = worker.get("volumeMounts") or []
    mount = {"name": VOLUME, "mountPath": _DIRECTORY, "readOnly": True}
    worker["volumeMounts"] = [*mounts, mount]
    worker["command"] = worker.get("command") or ["python3"]
    worker["args"] = ["-P", "-m", "flux_ensemble.service.worker", f"{_DIRECTORY}/{_FILE}"]
    cores, gpus = cores_of(worker), gpus_of(worker)
    limit = {"resourceFieldRef": {"resource": "limits.cpu"}}
    given: list[dict[str, Any]] = [
        {"name": CORES, "valueFrom": limit}
        if cores is None
        else {"name": CORES, "value": f"{cores}"}
    ]
    if gpus:
        names = ",".join(map(str, range(gpus)))
        given += [{"name": variable, "value": names} for variable in GPU_VARIABLES]
    if duration:
        pod["activeDeadlineSeconds"] = math.ceil(duration) + _LATE_SECONDS
        given.append({"name": SECONDS, "value": f"{duration:g}"})
    worker["env"] = [*(worker.get("env") or []), *given]


def owned(secret: Object, jobset: Object) -> dict[str, Any]:
    """Return a Secret that is deleted with a JobSet."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": jobset["metadata"]["name"],
        "uid": jobset["metadata"]["uid"],
    }
    return {**secret, "metadata": {**secret["metadata"], "ownerReferences": [owner]}}


def owner_of(one: Object) -> str | None:
    """Return the uid of the first owner of an object."""
    owners = one["metadata"].get("ownerReferences") or ()
    return owners[0]["uid"] if owners else None


def condition(one: Object, kind: str) -> Mapping[str, Any] | None:
    """Return a condition of an object, if it holds."""
    for found in (one.get("status") or {}).get("conditions") or ():
        if found.get("type") == kind and found.get("status") == "True":
            return found
    return None


def alive(one: Object) -> bool:
    """Return True if something of a Job or a pod may run, or will."""
    if one["kind"] == "Pod":
        return (one.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    return not (condition(one, "Complete") or condition(one, "Failed"))


def runs(pods: Iterable[Object]) -> bool:
    """Return True if a pod runs."""
    return any((pod.get("status") or {}).get("phase") == "Running" for pod in pods)


def ended(jobset: Object, pods: Iterable[Object]) -> str | None:
    """Return why a JobSet is over or is about to be; None if it goes on."""
    for kind, text in (("Failed", "its JobSet has failed"), ("Completed", "its worker has ended")):
        found = condition(jobset, kind)
        if found is not None:
            why = next(filter(None, map(_end_of, pods)), None) or found.get("message")
            return f"{text}: {why}" if why and kind == "Failed" else text
    if jobset["metadata"].get("deletionTimestamp"):
        return "its JobSet was deleted"
    return None


def _end_of(pod: Object) -> str | None:
    """Return how a pod has ended, if it has."""
    status = pod.get("status") or {}
    if status.get("reason"):
        # As Evicted, or Preempting.
        message = status.get("message")
        return f"{status['reason']}: {message}" if message else str(status["reason"])
    for container in status.get("containerStatuses") or ():
        over = (container.get("state") or {}).get("terminated")
        if over is not None and over.get("exitCode"):
            reason = over.get("reason") or "Error"
            return f"its pod ended with exit code {over['exitCode']} ({reason})"
    return None


def waits(jobset: Object, pods: Iterable[Object], workloads: Iterable[Object]) -> str | None:
    """Return why a member does not run yet, as in "waits for its pod"; None if it does."""
    pods = [pod for pod in pods if alive(pod)]
    if runs(pods):
        return None
    if jobset["spec"].get("suspend"):
        queue = (jobset["metadata"].get("labels") or {}).get(QUEUE_LABEL)
        for workload in workloads:
            if owner_of(workload) == jobset["metadata"].get("uid"):
                message = _said(workload, "QuotaReserved") or _said(workload, "Admitted")
                return f"waits in Kueue: {message or f'queue {queue}'}"
        return f"waits in Kueue: queue {queue}" if queue else "waits: its JobSet is suspended"
    for pod in pods:
        status = pod.get("status") or {}
        message = _said(pod, "PodScheduled")
        if message is not None:
            return f"waits in Kubernetes: {message}"
        states = status.get("initContainerStatuses") or (), status.get("containerStatuses") or ()
        for container in (*states[0], *states[1]):
            why = (container.get("state") or {}).get("waiting")
            if why is not None and why.get("reason") not in (None, "PodInitializing"):
                text = f"{why['reason']}: {why['message']}" if why.get("message") else why["reason"]
                return f"waits for its pod: {text}"
    return "waits for its pod" if pods else "waits: its JobSet has no pod yet"


def _said(one: Object, kind: str) -> str | None:
    """Return what a condition says that does not hold."""
    for found in (one.get("status") or {}).get("conditions") or ():
        if found.get("type") == kind and found.get("status") == "False":
            reason, message = found.get("reason"), found.get("message")
            return ": ".join(filter(None, (reason, message))) or None
    return None
