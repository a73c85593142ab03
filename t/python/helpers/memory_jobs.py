"""The Job controller of an API in memory: what kube-controller-manager does with Indexed Jobs.

A pod belongs to its Job by uid. One that fails, is deleted or is evicted is replaced, as often as
`backoffLimit` says; an index whose pod has succeeded is done for good, whatever becomes of the pod.
There are no pauses between attempts.
"""

from __future__ import annotations

import copy
import time
import uuid
from typing import Any

Object = dict[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"


def parse_indexes(text: str) -> set[int]:
    """The numbers of `status.completedIndexes`: "0,2-4"."""
    indexes: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        indexes |= set(range(int(first), int(last or first) + 1))
    return indexes


def index_of(pod: Object) -> int:
    return int(pod["metadata"]["labels"][INDEX])


def ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


class Jobs:
    """The controller.

    Args:
        api: the `memory_api.MemoryApi`; its lock is held by the caller.
    """

    def __init__(self, api: Any) -> None:
        self._api = api
        # Pods that have been counted, by the uid of their Job.
        self._failed: dict[str, set[str]] = {}
        self._seen: dict[str, dict[str, Object]] = {}

    def look(self) -> bool:
        """Do what is to be done for all Jobs; whether something was."""
        before = self._api.version
        for key, job in list(self._api.objects("jobs").items()):
            if not job["metadata"].get("deletionTimestamp"):
                self._job(key, job)
        return bool(self._api.version != before)

    def _job(self, key: tuple[str, str], job: Object) -> None:
        spec, uid = job["spec"], job["metadata"]["uid"]
        if spec.get("completionMode") != "Indexed":
            return
        status = copy.deepcopy(job.get("status") or {})
        conditions = {one["type"] for one in status.get("conditions") or ()}
        pods = {
            pod["metadata"]["uid"]: pod
            for (namespace, _), pod in self._api.objects("pods").items()
            if namespace == key[0]
            and any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences") or ())
        }
        seen, failed = self._seen.setdefault(uid, {}), self._failed.setdefault(uid, set())
        done = parse_indexes(status.get("completedIndexes", ""))
        completions = spec.get("completions", 1)
        for pod_uid, pod in {**seen, **pods}.items():
            phase = (pod.get("status") or {}).get("phase")
            if phase == "Succeeded":
                done.add(index_of(pod))
            elif index_of(pod) < completions and (
                pod_uid not in pods or phase == "Failed" or _leaves(pod)
            ):
                failed.add(pod_uid)
        self._seen[uid] = pods
        if conditions & {"Complete", "Failed"}:
            return
        done = {index for index in done if index < completions}
        live = [pod for pod in pods.values() if not ended(pod) and not _leaves(pod)]
        if len(done) == completions:
            self._end(key, job, status, done, live, "Complete", "CompletionsReached", "")
            return
        if len(failed) > spec.get("backoffLimit", 6):
            said = "Job has reached the specified backoff limit"
            self._end(key, job, status, done, live, "Failed", "BackoffLimitExceeded", said)
            return
        wanted = set() if spec.get("suspend") else set(range(completions)) - done
        for pod in live:
            if index_of(pod) not in wanted:
                self._api.delete_pod(pod)
        refused = False
        for index in sorted(wanted - {index_of(pod) for pod in live}) if self._api.replaces else ():
            refused = refused or not self._make(job, index)
        _tell_suspension(status, bool(spec.get("suspend")))
        self._write(key, status, done, len(failed))

    def _end(
        self,
        key: tuple[str, str],
        job: Object,
        status: Object,
        done: set[int],
        live: list[Object],
        kind: str,
        reason: str,
        message: str,
    ) -> None:
        for pod in live:
            self._api.delete_pod(pod)
        said = {"status": "True", "reason": reason, "message": message}
        status["conditions"] = [*(status.get("conditions") or []), {"type": kind, **said}]
        self._write(key, status, done, len(self._failed[job["metadata"]["uid"]]))

    def _write(self, key: tuple[str, str], status: Object, done: set[int], failed: int) -> None:
        self._api.put_status(
            "jobs",
            key,
            {
                **status,
                "completedIndexes": ",".join(map(str, sorted(done))),
                "succeeded": len(done),
                "failed": failed,
            },
        )

    def _make(self, job: Object, index: int) -> bool:
        """Make a pod; whether it could be made. Why not is an event of the Job."""
        metadata, template = job["metadata"], job["spec"]["template"]
        labels = {
            **(template.get("metadata", {}).get("labels") or {}),
            "job-name": metadata["name"],
            "batch.kubernetes.io/job-name": metadata["name"],
            "batch.kubernetes.io/controller-uid": metadata["uid"],
            INDEX: str(index),
        }
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        refusal = self._api.make_pod(
            metadata["namespace"],
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{metadata['name']}-{index}-{uuid.uuid4().hex[:5]}",
                    "labels": labels,
                    "annotations": {INDEX: str(index)},
                    "ownerReferences": [owner],
                },
                "spec": copy.deepcopy(template["spec"]),
            },
        )
        if refusal is None:
            return True
        self._api.tell(job, "FailedCreate", f"Error creating: {refusal}", time.time())
        return False


def _tell_suspension(status: Object, suspended: bool) -> None:
    """Have the conditions of a Job say that it is suspended, or goes on."""
    conditions = status.setdefault("conditions", [])
    told = next((one for one in conditions if one["type"] == "Suspended"), None)
    if told is None and suspended:
        told = {"type": "Suspended"}
        conditions.append(told)
    if told is not None:
        verb = "suspended" if suspended else "resumed"
        told |= {
            "status": "True" if suspended else "False",
            "reason": f"Job{verb.capitalize()}",
            "message": f"Job {verb}",
        }


def _leaves(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
