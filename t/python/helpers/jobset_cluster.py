"""Stands in for the JobSet controller and the kubelets, with real workers here.

It polls an API server (`apiserver`) as its administrator. A JobSet becomes a Job, as its controller
makes it, and ends with it; the pod is that of the Job controller. The pod is a process here: the
command of its container, with the files of its Secret. A pod that is deleted has its process
killed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from ensembles import remove_pod, write_status
from pages import ROOT
from patience import PATIENCE

from flux_ensemble.k8s.operator.cluster import ClusterFailure, KubernetesCluster
from flux_ensemble.queues.providers.jobset.job import WORKER_LABEL
from flux_ensemble.queues.providers.jobset.template import API_VERSION, KIND

Object = dict[str, Any]

_JOBSET = API_VERSION, KIND
_JOB = "batch/v1", "Job"
_POD = "v1", "Pod"

_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

#: What a cluster has to know of JobSets.
CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "jobsets.jobset.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "jobset.x-k8s.io",
        "names": {"kind": KIND, "plural": "jobsets", "singular": "jobset"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": _ANY, "status": _ANY},
                    }
                },
            }
        ],
    },
}


def workers_template(cores: int, *variables: str) -> str:
    """A template of workers.

    Args:
        cores: of each.
        variables: of their containers, as YAML.
    """
    return f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
spec:
  replicatedJobs:
    - name: worker
      template:
        spec:
          template:
            spec:
              terminationGracePeriodSeconds: 1
              containers:
                - name: worker
                  image: example.org/flux-ensemble
                  resources: {{limits: {{cpu: {cores}}}}}
                  env: [{", ".join(variables)}]
"""


def post(api: Any, path: str, one: Object) -> None:
    """Create an object; one that is there is no error."""
    answer = api.client()._client._client.request("POST", path, json=one)
    assert answer.is_success or answer.status_code == 409, answer.text


def install(api: Any) -> None:
    """Have a cluster know JobSets."""
    post(api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            KubernetesCluster(api.client()).list(*_JOBSET, "default")
        except ClusterFailure:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


def rights_of(user: str, namespace: str = "default") -> list[tuple[str, Object]]:
    """The rights that docs/jobset-members.md says a home needs, for a user: paths and objects."""
    page = (ROOT / "docs" / "jobset-members.md").read_text()
    (block,) = re.findall(r"```\n(apiVersion: rbac.*?)```", page, re.DOTALL)
    found = []
    for one in yaml.safe_load_all(block):
        one["metadata"]["namespace"] = namespace
        if one["kind"] == "RoleBinding":
            one["subjects"] = [{"kind": "User", "name": user}]
        group = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        found.append((f"{group}/{one['kind'].lower()}s", one))
    return found


class JobSetCluster:
    """Runs what a cluster would.

    Args:
        api: of the cluster.
        controller: makes Jobs of JobSets; otherwise another program does.
        schedules: gives each pod a node.
        nodes: for each of them the words before those of a worker; pods go round.

    Attributes:
        silent: the kubelets do nothing, and what runs goes on.
        workers: the processes of pods, by their uids.
        started: the names of the JobSets whose pods were started.
    """

    def __init__(
        self,
        api: Any,
        *,
        controller: bool = True,
        schedules: bool = True,
        nodes: Sequence[Sequence[str]] = ((),),
    ) -> None:
        self.cluster = KubernetesCluster(api.client())
        self.schedules = schedules
        self.controller = controller
        self.silent = False
        self._nodes = nodes
        self.directory = Path(tempfile.mkdtemp(prefix="fe"))
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.started: list[str] = []
        self.errors: list[BaseException] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="jobset-cluster")
        self._thread.start()

    def close(self) -> None:
        """End all that runs."""
        self._stopped.set()
        self._thread.join(PATIENCE)
        for uid in list(self.workers):
            self._kill(uid)

    def jobsets(self) -> list[Object]:
        """The JobSets."""
        return self.cluster.list(*_JOBSET, "default")

    def pods(self) -> list[Object]:
        """The pods."""
        return self.cluster.list(*_POD, "default")

    def asked(self) -> list[Object]:
        """What the pods were given that were started."""
        files = self.directory.glob("*/credentials")
        return [json.loads(file.read_text()) for file in files]

    def logs(self) -> str:
        """What all workers have said."""
        return "\n".join(log.read_text() for log in self.directory.glob("*.log"))

    def _work(self) -> None:
        while not self._stopped.wait(0.1):
            try:
                self._look()
            except ClusterFailure as failure:
                # The API server is restarted; or somebody else has written at the same time.
                if failure.code not in (None, 401, 403, 404, 409, 500, 503):
                    self.errors.append(failure)
            except Exception as error:
                self.errors.append(error)

    def _look(self) -> None:
        if self.controller:
            for jobset in self.jobsets():
                self._jobset(jobset)
        if self.silent:
            return
        pods = {pod["metadata"]["uid"]: pod for pod in self.pods()}
        for uid in set(self.workers) - set(pods):
            self._kill(uid)
        for pod in pods.values():
            self._pod(pod)

    # -- the controller ----------------------------------------------------------------

    def _jobset(self, jobset: Object) -> None:
        metadata, spec = jobset["metadata"], jobset["spec"]
        conditions = (jobset.get("status") or {}).get("conditions") or []
        if conditions or spec.get("suspend") or metadata.get("deletionTimestamp"):
            return
        (replicated,) = spec["replicatedJobs"]
        name = f"{metadata['name']}-{replicated['name']}-0"
        job = self.cluster.get(*_JOB, "default", name)
        if job is None:
            job = _job_of(jobset, replicated, name)
            if self.schedules:
                # A pod that is deleted and is on no node is gone at once, whatever runs.
                job["spec"]["template"]["spec"]["nodeName"] = "node"
            self.cluster.create(job)
            return
        for one in (job.get("status") or {}).get("conditions") or ():
            kind = {"Failed": "Failed", "Complete": "Completed"}.get(one["type"])
            if kind is not None and one["status"] == "True":
                text = f"jobset {kind.lower()} (first job: {name})"
                made = {"type": kind, "status": "True", "reason": "Ended", "message": text}
                made["lastTransitionTime"] = _now()
                write_status(self.cluster, jobset, {"restarts": 0, "conditions": [made]})

    # -- the kubelets ------------------------------------------------------------------

    def _pod(self, pod: Object) -> None:
        uid, status = pod["metadata"]["uid"], pod.get("status") or {}
        child = self.workers.get(uid)
        if pod["metadata"].get("deletionTimestamp"):
            self._kill(uid)
            remove_pod(self.cluster, pod)
        elif child is not None:
            if child.poll() is not None:
                self._finish(pod, child.returncode)
        elif status.get("phase", "Pending") == "Pending":
            if self.schedules:
                self._begin(pod)
            elif not status.get("conditions"):
                unschedulable = {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/1 nodes are available: 1 Insufficient cpu.",
                }
                write_status(self.cluster, pod, {**status, "conditions": [unschedulable]})

    def _begin(self, pod: Object) -> None:
        spec, uid = pod["spec"], pod["metadata"]["uid"]
        home = self.directory / uid[:8]
        home.mkdir(exist_ok=True)
        secret = spec["volumes"][0]["secret"]["secretName"]
        found = self.cluster.get("v1", "Secret", "default", secret)
        if found is None:
            return  # A kubelet waits for it, too.
        for key, text in found["data"].items():
            (home / key).write_bytes(base64.b64decode(text))
        (container,) = spec["containers"]
        (mount,) = container["volumeMounts"]
        words = [*container["command"], *container["args"]]
        words = [word.replace(mount["mountPath"], str(home)) for word in words]
        if words[0] == "python3":
            words[0] = sys.executable
        node = self._nodes[len(self.started) % len(self._nodes)]
        own = {one["name"]: _value(one, pod) for one in container["env"]}
        with (self.directory / f"{uid[:8]}.log").open("wb") as log:
            self.workers[uid] = subprocess.Popen(
                [*node, *words],
                cwd=home,
                env={"PATH": os.environ["PATH"], "WHERE": "pod", **own},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.started.append(pod["metadata"]["labels"][WORKER_LABEL])
        running = {"phase": "Running", "startTime": _now()}
        write_status(self.cluster, pod, {**(pod.get("status") or {}), **running})

    def _finish(self, pod: Object, code: int) -> None:
        status = pod.get("status") or {}
        phase = "Failed" if code else "Succeeded"
        if status.get("phase") == phase:
            return
        over = {
            "exitCode": code if code >= 0 else 128 - code,
            "reason": "Error" if code else "Completed",
        }
        state = {
            "name": "worker",
            "state": {"terminated": over},
            "image": "a",
            "imageID": "a",
            "ready": False,
            "restartCount": 0,
        }
        write_status(self.cluster, pod, {**status, "phase": phase, "containerStatuses": [state]})

    def _kill(self, uid: str) -> None:
        child = self.workers.pop(uid, None)
        if child is not None:
            # Nothing of a container outlives it.
            for pid in (child.pid, *_below(child.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            child.wait(PATIENCE)


def _below(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    found = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *_below(child)]
    return found


def _value(variable: Object, pod: Object) -> str:
    """A variable of a container; nodes have two cores."""
    if "value" in variable:
        return str(variable["value"])
    source = variable["valueFrom"]
    if "fieldRef" in source:
        found = re.fullmatch(r"metadata\.(\w+)(?:\['(.*)'\])?", source["fieldRef"]["fieldPath"])
        assert found is not None
        field, key = found.groups()
        value = pod["metadata"].get(field)
        return str(value if key is None else (value or {}).get(key, ""))
    return "2"


def _job_of(jobset: Object, replicated: Object, name: str) -> Object:
    """The Job that the controller makes."""
    metadata = jobset["metadata"]
    template = replicated["template"]
    labels = {
        "jobset.sigs.k8s.io/jobset-name": metadata["name"],
        "jobset.sigs.k8s.io/replicatedjob-name": replicated["name"],
        "jobset.sigs.k8s.io/job-index": "0",
    }
    pod = template["spec"]["template"]
    inner = pod.get("metadata") or {}
    pod = {
        "spec": dict(pod["spec"]),
        "metadata": {**inner, "labels": {**(inner.get("labels") or {}), **labels}},
    }
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    own = (template.get("metadata") or {}).get("labels") or {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {**own, **labels},
            "ownerReferences": [owner],
        },
        "spec": {**template["spec"], "completionMode": "Indexed", "template": pod},
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
