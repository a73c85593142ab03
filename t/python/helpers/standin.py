"""Stands in for the Flux Operator, the Job controller and the kubelet, with real brokers here.

It polls an API (`memory_api`, `apiserver`) as their administrator. A MiniCluster is checked as the
Flux Operator does, and becomes a Job; each pod of it is a broker of one Flux instance, which has
all hosts up to the greatest size from the beginning. Rank 0 runs the container's command, and its
summary becomes the message of the pod. A Deployment is its command as a process, with what its
image has and a token of its ServiceAccount. Paths of volumes become directories, and names of
Services this machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
from ensembles import no_pods, write_status
from image_packages import Image
from patience import PATIENCE

from flux_ensemble.operator import names, tls
from flux_ensemble.operator.cluster import Cluster, ClusterFailure

Object = dict[str, Any]

_MINICLUSTER = names.MINICLUSTER, "MiniCluster"
_JOB = "batch/v1", "Job"
_POD = "v1", "Pod"
_DEPLOYMENT = "apps/v1", "Deployment"

#: What is collected when its owner has gone, where nobody else does that.
_OWNED = (
    _MINICLUSTER,
    _JOB,
    _POD,
    _DEPLOYMENT,
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
)


class Standin:
    """Runs what a cluster would.

    Args:
        api: of the cluster.
        namespace: that is looked at.
        collect: delete what an owner has left behind.
    """

    def __init__(self, api: Any, namespace: str = "default", *, collect: bool = False) -> None:
        self._api = api
        self._cluster = Cluster(api.client())
        self._namespace = namespace
        self._collecting = collect
        # The paths of sockets have to be short.
        self.directory = Path(tempfile.mkdtemp(prefix="fe"))
        self._image = Image(self.directory / "image")
        self.brokers: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
        self.services: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, int] = {}
        self._uids: dict[str, str] = {}
        self._stopped = threading.Event()
        self._refused: set[str] = set()
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._work, name="standin")
        self._thread.start()

    def close(self) -> None:
        """End all that runs."""
        self._stopped.set()
        self._thread.join(PATIENCE)
        for child in [*self.brokers.values(), *self.services.values()]:
            _end(child)
        shutil.rmtree(self.directory, ignore_errors=True)

    def kill_service(self, name: str) -> None:
        """Kill the process of a service; it is started again."""
        child = self.services[name]
        child.kill()
        child.wait(PATIENCE)

    def logs(self) -> str:
        """What all have said."""
        return "\n".join(log.read_text() for log in self.directory.glob("*.log"))

    def _work(self) -> None:
        # Each look is a dozen requests, which the API server would be busy with.
        while not self._stopped.wait(0.3):
            try:
                self._look()
            except ClusterFailure as failure:
                # The API server is restarted; or somebody else has written at the same time.
                if failure.code not in (None, 401, 403, 404, 409, 500, 503):
                    self.errors.append(failure)
            except httpx2.HTTPError:
                pass  # It is restarted while a token is asked for.
            except Exception as error:
                self.errors.append(error)

    def _look(self) -> None:
        clusters = {
            one["metadata"]["name"]: one
            for one in self._cluster.list(*_MINICLUSTER, self._namespace)
        }
        for name in {name for name, _ in self.brokers} | set(self._uids):
            live = clusters.get(name)
            if live is None or live["metadata"]["uid"] != self._uids.get(name):
                self._forget(name)
        for one in clusters.values():
            self._minicluster(one)
        deployments = self._cluster.list(*_DEPLOYMENT, self._namespace)
        for deployment in deployments:
            self._deployment(deployment)
        for name in set(self.services) - {one["metadata"]["name"] for one in deployments}:
            _end(self.services.pop(name))
        if self._collecting:
            self._collect()

    # -- MiniClusters ------------------------------------------------------------------

    def _minicluster(self, one: Object) -> None:
        name, spec, status = one["metadata"]["name"], one["spec"], one.get("status") or {}
        size, most = spec.get("size", 1), spec.get("maxSize") or spec.get("size", 1)
        if most < size or (spec.get("minSize") or 1) > size:
            return  # The Flux Operator does nothing more with it.
        maximum = status.get("maximumSize") or most
        if size > maximum:
            self._cluster.resize(one, maximum)
            return
        wanted = {"maximumSize": maximum, "size": size, "selector": "", "jobid": ""}
        if {key: status.get(key) for key in wanted} != wanted:
            write_status(self._cluster, one, {**status, **wanted})
        job = self._cluster.get(*_JOB, self._namespace, name)
        if job is None:
            self._begin(one, maximum)
            return
        if (job.get("status") or {}).get("conditions"):
            return
        for rank in range(maximum):
            there = (name, rank) in self.brokers
            if rank < size and not there:
                self._start(one, rank)
            elif rank >= size and there:
                _end(self.brokers.pop((name, rank)))
                self._delete(*_POD, f"{name}-{rank}-pod")
        first = self.brokers.get((name, 0))
        if first is not None and first.poll() is not None:
            self._finish(name, job)

    def _begin(self, one: Object, most: int) -> None:
        name = one["metadata"]["name"]
        home = self.directory / name
        home.mkdir(exist_ok=True)
        self._uids[name] = one["metadata"]["uid"]
        subprocess.run(["flux", "keygen", str(home / "cert")], check=True)
        (home / "config.toml").write_text(
            f"""\
[bootstrap]
curve_cert = "{home}/cert"
default_bind = "ipc://{home}/%h"
default_connect = "ipc://{home}/%h"
hosts = [{{host = "{name}-[0-{most - 1}]"}}]
[resource]
noverify = true
[[resource.config]]
hosts = "{name}-[0-{most - 1}]"
cores = "0-1"
"""
        )
        labels = one["spec"]["pod"]["labels"]
        template = {"metadata": {"labels": labels}, "spec": _POD_SPEC}
        self._cluster.create(
            {
                "apiVersion": _JOB[0],
                "kind": _JOB[1],
                "metadata": {
                    "name": name,
                    "namespace": self._namespace,
                    "ownerReferences": [_owner(one, *_MINICLUSTER)],
                },
                "spec": {"template": template, "completionMode": "Indexed", "completions": 1},
            }
        )

    def _start(self, one: Object, rank: int) -> None:
        name, home = one["metadata"]["name"], self.directory / one["metadata"]["name"]
        container = one["spec"]["containers"][0]
        made = self._pod(one, rank)
        if made is None:
            return
        pod = self.directory / f"{name}-{rank}"
        pod.mkdir(exist_ok=True)
        command = [
            "flux",
            "start",
            f"--config-path={home}/config.toml",
            f"-Shostname={name}-{rank}",
            f"-Srundir={pod}",
            f"-Slocal-uri=local://{pod}/local",
            f"-Sbroker.quorum={one['spec'].get('minSize') or 1}",
            "-Stbon.fanout=256",
        ]
        if rank == 0:
            paths = self._mount(container, pod)
            words = [_put(word, paths) for word in container["command"].split()]
            host = next(word for word in words if word.startswith("--host="))
            service = re.fullmatch(r"--host=([-a-z0-9]+)\.[-a-z0-9]+\.svc", host)
            assert service is not None, host
            options = {"--host": "localhost", "--port": self._port(service[1])}
            command += [_set(word, options) for word in words]
        self._pod_status(made, {"phase": "Running", "startTime": _now()})
        with (self.directory / f"{name}-{rank}.log").open("ab") as log:
            child = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=pod, env=_environment(), start_new_session=True
            )
        self.brokers[name, rank] = child

    def _pod(self, one: Object, rank: int) -> Object | None:
        """The pod of a rank; None if it may not be made, which an event of the Job says."""
        job = one["metadata"]["name"]
        name, owner = f"{job}-{rank}-pod", _owner(one, *_MINICLUSTER)
        there = self._cluster.get(*_POD, self._namespace, name)
        if there is not None and there["metadata"]["ownerReferences"] == [owner]:
            return there
        labels = {"job-name": job, "batch.kubernetes.io/job-completion-index": str(rank)}
        try:
            return self._cluster.create(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": name,
                        "namespace": self._namespace,
                        "labels": {**one["spec"]["pod"]["labels"], **labels},
                        "ownerReferences": [owner],
                    },
                    "spec": _POD_SPEC,
                }
            )
        except ClusterFailure as failure:
            if "exceeded quota" not in str(failure):
                raise
            if name not in self._refused:
                self._refused.add(name)
                no_pods(self._cluster, job, f"Error creating: {failure}", self._namespace)
            return None

    def _finish(self, name: str, job: Object) -> None:
        """Rank 0 has ended: so do the workers, and the Job is complete."""
        summary = self.directory / f"{name}-0" / "summary"
        message = summary.read_text() if summary.exists() else ""
        for key in [key for key in self.brokers if key[0] == name]:
            _end(self.brokers.pop(key))
        terminated = {"exitCode": 0, "message": message, "finishedAt": _now(), "startedAt": _now()}
        pod = self._cluster.get(*_POD, self._namespace, f"{name}-0-pod")
        assert pod is not None
        state = {
            "name": "flux",
            "state": {"terminated": terminated},
            "image": "a",
            "imageID": "a",
            "ready": False,
            "restartCount": 0,
        }
        self._pod_status(pod, {"phase": "Succeeded", "containerStatuses": [state]})
        ended = [
            {"type": kind, "status": "True", "lastTransitionTime": _now()}
            for kind in ("SuccessCriteriaMet", "Complete")
        ]
        write_status(
            self._cluster,
            job,
            {
                "conditions": ended,
                "startTime": _now(),
                "completionTime": _now(),
                "succeeded": 1,
                "completedIndexes": "0",
            },
        )

    def _pod_status(self, pod: Object, status: Object) -> None:
        write_status(self._cluster, pod, status)

    def _forget(self, name: str) -> None:
        for key in [key for key in self.brokers if key[0] == name]:
            _end(self.brokers.pop(key))
        self._uids.pop(name, None)
        for path in self.directory.glob(f"{name}*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)

    # -- Deployments -------------------------------------------------------------------

    def _deployment(self, one: Object) -> None:
        name, spec = one["metadata"]["name"], one["spec"]["template"]["spec"]
        live = self.services.get(name)
        if live is not None and live.poll() is not None:
            del self.services[name]
            self._ready(one, 0)
            live = None
        if not one["spec"].get("replicas", 1):
            if live is not None:
                _end(self.services.pop(name))
            return
        pod = self.directory / name
        pod.mkdir(exist_ok=True)
        (container,) = spec["containers"]
        secret = spec["volumes"][0]["secret"]["secretName"]
        # A kubelet puts a Secret that has changed in place, too.
        self._write_secret(secret, pod)
        log = self.directory / f"{name}.log"
        if live is None:
            token = self._api.account_token(self._namespace, spec["serviceAccountName"])
            config = pod / "config"
            config.write_text(self._api.kubeconfig(token, self._namespace))
            paths = {names.TLS_PATH: str(pod)}
            options = {
                "--host": "localhost",
                "--health-port": 0,
                "--port": self._ports.get(name, 0),
            }
            program, *given = container["command"] + container["args"]
            assert program == "flux-ensemble"
            words = [_set(_put(word, paths), options) for word in given]
            with log.open("wb") as output:
                self.services[name] = subprocess.Popen(
                    self._image.command(*words),
                    stdout=output,
                    stderr=output,
                    env={**self._image.environment, "KUBECONFIG": str(config)},
                )
            return
        found = re.search(r"the gRPC service: localhost:(\d+)", log.read_text())
        if found is not None:
            self._ports[name] = int(found[1])
            self._ready(one, 1)

    def _ready(self, deployment: Object, count: int) -> None:
        if (deployment.get("status") or {}).get("readyReplicas", 0) != count:
            status = {"replicas": 1, "readyReplicas": count, "availableReplicas": count}
            write_status(self._cluster, deployment, status)

    # -- volumes -----------------------------------------------------------------------

    def _mount(self, container: Object, pod: Path) -> dict[str, str]:
        """Writes the volumes of a container; where its paths are."""
        paths = {names.SUMMARY_PATH: str(pod / "summary")}
        for name, volume in container["volumes"].items():
            here = pod / name
            here.mkdir(exist_ok=True)
            paths[volume["path"]] = str(here)
            if "secretName" in volume:
                self._write_secret(volume["secretName"], here)
            else:
                found = self._cluster.get(
                    "v1", "ConfigMap", self._namespace, volume["configMapName"]
                )
                assert found is not None
                for key, file in volume["items"].items():
                    (here / file).write_text(found["data"][key])
        return paths

    def _write_secret(self, name: str, where: Path) -> None:
        found = self._cluster.get("v1", "Secret", self._namespace, name)
        if found is None:
            raise ClusterFailure(f"there is no Secret {name!r} yet", 404)
        for key, value in tls.decoded(found["data"]).items():
            file = where / key
            if not file.exists() or file.read_bytes() != value:
                file.write_bytes(value)

    def _port(self, service: str) -> int:
        """Where a service is on this machine; waits until it is there."""
        deadline = time.monotonic() + PATIENCE
        while service not in self._ports:
            assert time.monotonic() < deadline, f"the service {service!r} does not run"
            for one in self._cluster.list(*_DEPLOYMENT, self._namespace):
                self._deployment(one)
            time.sleep(0.1)
        return self._ports[service]

    # -- garbage -----------------------------------------------------------------------

    def _delete(self, api_version: str, kind: str, name: str) -> None:
        live = self._cluster.get(api_version, kind, self._namespace, name)
        if live is not None:
            self._cluster.delete(live)

    def _collect(self) -> None:
        """Delete what is owned by something that is not there any more."""
        kinds = ((names.API_VERSION, names.KIND), *_OWNED)
        found = {
            one["metadata"]["uid"]: (kind, one)
            for kind in kinds
            for one in self._cluster.list(*kind, self._namespace)
        }
        for kind, one in found.values():
            owners = one["metadata"].get("ownerReferences") or ()
            if owners and not any(owner["uid"] in found for owner in owners):
                self._delete(*kind, one["metadata"]["name"])


def _put(word: str, paths: dict[str, str]) -> str:
    """A word of a command with paths of this machine."""
    for path, here in paths.items():
        word = word.replace(path, here)
    return word


def _set(word: str, options: dict[str, Any]) -> str:
    """A word of a command, with another value if it is one of these options."""
    option, equal, _ = word.partition("=")
    return f"{option}={options[option]}" if equal and option in options else word


_POD_SPEC = {"containers": [{"name": "flux", "image": "a"}], "restartPolicy": "OnFailure"}


def _owner(one: Object, api_version: str, kind: str) -> Object:
    metadata = one["metadata"]
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FLUX_")}
    # The package's own command is beside the Python that runs the tests.
    return {**kept, "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}"}


def _end(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(PATIENCE / 4)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(PATIENCE)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@contextlib.contextmanager
def standin(api: Any, **options: Any) -> Iterator[Standin]:
    """Runs what a cluster would, until the end."""
    running = Standin(api, **options)
    try:
        yield running
    finally:
        running.close()
