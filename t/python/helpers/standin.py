"""Stands in for the Flux Operator and the kubelets, with real brokers here.

It polls an API (`memory_api`, `apiserver`) as their administrator. A MiniCluster is checked as the
Flux Operator does, and becomes a ConfigMap with what its pods run, and a Job, whose pods are the
Job controller's. Each of these pods runs a script like that of the Flux Operator: a broker of one
Flux instance, which has all hosts up to the greatest size from the beginning. Rank 0 runs the
container's command, and its summary becomes the message of the pod. A pod that is deleted, or
evicted, has its processes killed, jobs included.

A Deployment is its command as a process, with what its image has and a token of its ServiceAccount.
Paths of volumes become directories, those of claims stay for as long as this runs, and names of
Services are this machine.
"""

from __future__ import annotations

import contextlib
import json
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
from ensembles import entrypoint_of, job_of, remove_pod, write_status
from image_packages import Image
from memory_jobs import INDEX
from patience import PATIENCE

from flux_ensemble.certificates import decoded
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.cluster import ClusterFailure, KubernetesCluster

Object = dict[str, Any]

_MINICLUSTER = names.MINICLUSTER, "MiniCluster"
_JOB = "batch/v1", "Job"
_POD = "v1", "Pod"
_DEPLOYMENT = "apps/v1", "Deployment"

#: The variable by which the processes of a pod are told.
_MARK = "FLUX_ENSEMBLE_TEST_POD"

#: The variable that has the uid of the MiniCluster.
RUN_VARIABLE = "TEST_MINICLUSTER"


class Standin:
    """Runs what a cluster would.

    Args:
        api: of the cluster.
        namespace: that is looked at.
    """

    def __init__(self, api: Any, namespace: str = "default") -> None:
        self._api = api
        self._cluster = KubernetesCluster(api.client())
        self._namespace = namespace
        # The paths of sockets have to be short.
        self.directory = Path(tempfile.mkdtemp(prefix="fe"))
        self._image = Image(self.directory / "image")
        self.brokers: dict[str, subprocess.Popen[bytes]] = {}
        self.services: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, int] = {}
        # The MiniCluster that a Job was made of, by the uid of the Job.
        self._made: dict[str, Object] = {}
        self._stopped = threading.Event()
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._work, name="standin")
        self._thread.start()

    def close(self) -> None:
        """End all that runs."""
        self._stopped.set()
        self._thread.join(PATIENCE)
        for uid in list(self.brokers):
            self._kill(uid)
        for child in self.services.values():
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
        for one in self._cluster.list(*_MINICLUSTER, self._namespace):
            self._minicluster(one)
        pods = {pod["metadata"]["uid"]: pod for pod in self._cluster.list(*_POD, self._namespace)}
        for uid in set(self.brokers) - set(pods):
            self._kill(uid)
        for pod in pods.values():
            self._pod(pod)
        deployments = self._cluster.list(*_DEPLOYMENT, self._namespace)
        for deployment in deployments:
            self._deployment(deployment)
        for name in set(self.services) - {one["metadata"]["name"] for one in deployments}:
            _end(self.services.pop(name))

    # -- the Flux Operator -------------------------------------------------------------

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
        elif job["spec"]["completions"] != size and not (job.get("status") or {}).get("conditions"):
            job["spec"] |= {"completions": size, "parallelism": size}
            self._cluster.replace(job)

    def _begin(self, one: Object, most: int) -> None:
        home = self._home(one)
        home.mkdir(exist_ok=True)
        name = one["metadata"]["name"]
        if not (home / "cert").exists():
            subprocess.run(["flux", "keygen", str(home / "cert")], check=True)
        config = home / "config"
        config.mkdir(exist_ok=True)
        (config / "broker.toml").write_text(
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
        entrypoint = self._cluster.get("v1", "ConfigMap", self._namespace, names.entrypoint(name))
        if entrypoint is None:
            entrypoint = self._cluster.create(entrypoint_of(one))
        made = self._cluster.create(job_of(one))
        runs = {**one, "spec": json.loads(entrypoint["data"]["spec"])}
        self._made[made["metadata"]["uid"]] = runs

    def _home(self, one: Object) -> Path:
        """The directory of a MiniCluster."""
        return self.directory / str(one["metadata"]["uid"])[:8]

    # -- kubelets ----------------------------------------------------------------------

    def _pod(self, pod: Object) -> None:
        metadata = pod["metadata"]
        uid, phase = metadata["uid"], (pod.get("status") or {}).get("phase")
        owners = metadata.get("ownerReferences") or ()
        one = next((self._made[o["uid"]] for o in owners if o["uid"] in self._made), None)
        if one is None:
            return
        child = self.brokers.get(uid)
        if metadata.get("deletionTimestamp"):
            self._kill(uid)
            remove_pod(self._cluster, pod)
        elif phase in ("Succeeded", "Failed"):
            self._kill(uid)
        elif child is None:
            self._start(one, pod)
        elif child.poll() is not None:
            self._finish(pod, child.returncode)

    def _start(self, one: Object, pod: Object) -> None:
        metadata = pod["metadata"]
        name, home = one["metadata"]["name"], self._home(one)
        rank = int(metadata["labels"][INDEX])
        own = self.directory / metadata["uid"][:8]
        own.mkdir(exist_ok=True)
        (container,) = one["spec"]["containers"]
        paths = self._mount(container, own)
        script = own / "start.sh"
        script.write_text(_put(self._script(one, container, name, rank, home, own), paths))
        run = one["metadata"]["uid"]
        environment = {**_environment(), _MARK: metadata["uid"], RUN_VARIABLE: run}
        with (self.directory / f"{name}-{rank}.log").open("ab") as log:
            self.brokers[metadata["uid"]] = subprocess.Popen(
                ["bash", str(script)],
                stdout=log,
                stderr=log,
                cwd=own,
                env=environment,
                start_new_session=True,
            )
        write_status(
            self._cluster,
            pod,
            {**(pod.get("status") or {}), "phase": "Running", "startTime": _now()},
        )

    def _script(
        self, one: Object, container: Object, name: str, rank: int, home: Path, own: Path
    ) -> str:
        """What the Flux Operator's script does, but for what has no effect here."""
        commands = container.get("commands") or {}
        options = [
            f"-Shostname={name}-{rank}",
            f"-Srundir={own}",
            f"-Slocal-uri=local://{own}/local",
            f"-Sbroker.quorum={one['spec'].get('minSize') or 1}",
            "-Stbon.fanout=256",
        ]
        lines = [
            f"cfg={home}/config",
            f"mainHost={name}-0",
            f"hostname() {{ echo {name}-{rank}; }}",
            f'brokerOptions="{" ".join(options)}"',
            commands.get("pre", ""),
        ]
        if rank == 0:
            command = container["command"]
            host = next(word for word in command.split() if word.startswith("--host="))
            service = re.fullmatch(r"--host=([-a-z0-9]+)\.[-a-z0-9]+\.svc", host)
            assert service is not None, host
            given = {"--host": "localhost", "--port": self._port(service[1])}
            command = " ".join(_set(word, given) for word in command.split())
            lines += [
                f"cp -r $cfg {own}/config; cfg={own}/config",
                commands.get("brokerPre", ""),
                f"flux start --config-path=$cfg $brokerOptions {command}",
            ]
        else:
            over = (one["spec"].get("flux") or {}).get("completeWorkers")
            lines += [
                commands.get("workerPre", ""),
                "while true; do",
                "flux start --config-path=$cfg $brokerOptions && break",
                "break" if over else "sleep 1",
                "done",
            ]
        return "\n".join([*lines, commands.get("post", ""), "exit 0"]) + "\n"

    def _finish(self, pod: Object, code: int) -> None:
        """The script of a pod has ended."""
        uid = pod["metadata"]["uid"]
        summary = self.directory / uid[:8] / "summary"
        message = summary.read_text() if summary.exists() else ""
        terminated = {
            "exitCode": code,
            "message": message,
            "finishedAt": _now(),
            "startedAt": (pod.get("status") or {}).get("startTime") or _now(),
        }
        state = {
            "name": "flux",
            "state": {"terminated": terminated},
            "image": "a",
            "imageID": "a",
            "ready": False,
            "restartCount": 0,
        }
        phase = "Failed" if code else "Succeeded"
        before = pod.get("status") or {}
        write_status(self._cluster, pod, {**before, "phase": phase, "containerStatuses": [state]})
        self._kill(uid)

    def _kill(self, uid: str) -> None:
        """Kill the processes of a pod, jobs included."""
        child = self.brokers.pop(uid, None)
        if child is None:
            return
        while marked := _marked(uid):
            for process in marked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            child.poll()
            time.sleep(0.01)
        child.wait(PATIENCE)
        shutil.rmtree(self.directory / uid[:8], ignore_errors=True)

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
            if "claimName" in volume:
                claim = self._claim(volume["claimName"])
                claim.mkdir(parents=True, exist_ok=True)
                paths[volume["path"]] = str(claim)
            elif "secretName" in volume:
                self._write_secret(volume["secretName"], here)
            else:
                found = self._cluster.get(
                    "v1", "ConfigMap", self._namespace, volume["configMapName"]
                )
                if found is None:
                    # A kubelet waits for it, too.
                    raise ClusterFailure(
                        f"there is no ConfigMap {volume['configMapName']!r} yet", 404
                    )
                for key, file in volume["items"].items():
                    (here / file).write_text(found["data"][key])
        return paths

    def _claim(self, name: str) -> Path:
        """Where a volume is: that of a claim, which another one of its name has not.

        Claims of users need not be made here.
        """
        found = self._cluster.get("v1", "PersistentVolumeClaim", self._namespace, name)
        return self.directory / "claims" / (found["metadata"]["uid"][:8] if found else name)

    def _write_secret(self, name: str, where: Path) -> None:
        found = self._cluster.get("v1", "Secret", self._namespace, name)
        if found is None:
            raise ClusterFailure(f"there is no Secret {name!r} yet", 404)
        for key, value in decoded(found["data"]).items():
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


def _put(word: str, paths: dict[str, str]) -> str:
    """A word of a command with paths of this machine."""
    for path, here in paths.items():
        word = word.replace(path, here)
    return word


def _set(word: str, options: dict[str, Any]) -> str:
    """A word of a command, with another value if it is one of these options."""
    option, equal, _ = word.partition("=")
    return f"{option}={options[option]}" if equal and option in options else word


def _marked(uid: str) -> list[int]:
    """The processes of a pod."""
    mark = f"{_MARK}={uid}".encode()
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        # It has ended meanwhile, or is another user's.
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


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
