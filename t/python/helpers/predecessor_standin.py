"""Stands in for the Flux Operator and the kubelets under ensemble-operator, with real brokers.

A member of its second design runs ensemble-python, which sends requests to ensemble-python's own
service, with the token of its ServiceAccount. One of its first design runs what its container `api`
runs. What their pods would install comes from ENSEMBLE_PYTHON, and the folder of the first design.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ensembles import write_status
from memory_jobs import INDEX
from ports import free_ports
from standin import Standin

Object = dict[str, Any]

#: Runs a file in the Python of ensemble-python, with flux's own path.
_PROGRAM = """\
#!/bin/sh
PYTHONPATH={path} exec flux env {python} -u {file} "$@"
"""

_SECOND = "from ensemble.client import run_ensemble\nrun_ensemble()\n"

#: A list of jobs was one answer of Flux when the first design was written. Now there are several,
#: and then an error, which is the first one if there are no jobs.
_FIRST = """\
import flux.job
listed = flux.job.job_list

class Jobs:
    def __init__(self, *args, **options):
        self._future = listed(*args, **options)

    def get(self):
        jobs = []
        try:
            while True:
                jobs += self._future.get()["jobs"]
                self._future.reset()
        except OSError:
            return {"jobs": jobs}

flux.job.job_list = Jobs
from ensemble_operator.server import main
main()
"""

#: Runs its service where there is no pod, and so no configuration in one.
_SERVICE = """\
from kubernetes import config
config.load_incluster_config = config.load_kube_config
from ensemble.server import main
main()
"""


class PredecessorStandin(Standin):
    """Runs the members of ensemble-operator.

    Args:
        api: of the cluster.
        python: has ensemble-python, and the client of Kubernetes.
        first: the folder of the first design, if that is what runs.
    """

    def __init__(self, api: Any, python: str, first: Path | None = None) -> None:
        self._python = python
        self._first = first
        #: Where the services of the members of the first design are, by MiniCluster.
        self.member_ports: dict[str, int] = {}
        super().__init__(api)

    def _begin(self, one: Object, most: int) -> None:
        name, spec = one["metadata"]["name"], one["spec"]
        container = {"volumes": {}, **spec["containers"][0]}
        program = self.directory / "member"
        if self._first is None:
            _, *words = container["command"].split()
            given = dict(itertools.pairwise(words))
            rest = [f"--host={name.rpartition('-')[0]}.default.svc", f"--port={given['--port']}"]
            rest += [f"--name={given['--name']}", words[-1]]
            container["command"] = f"{program} run --executor=minicluster {' '.join(rest)}"
            path, code = "", _SECOND
        else:
            container["command"] = f"{program} start --host={name}.default.svc --port=0"
            path, code = str(self._first / "python"), _FIRST
        # Nothing is installed in a pod: it is all there.
        container["commands"] = {}
        file = program.with_suffix(".py")
        file.write_text(code)
        program.write_text(_PROGRAM.format(path=path, python=self._python, file=file))
        program.chmod(0o755)
        made = {**spec, "containers": [container], "pod": {"labels": {}}}
        super()._begin({**one, "spec": made}, most)

    def _start(self, one: Object, pod: Object) -> None:
        # The Flux Operator gives the first pod this label, and a kubelet its address.
        metadata = pod["metadata"]
        if metadata["labels"][INDEX] == "0":
            if "job-index" not in metadata["labels"]:
                metadata["labels"]["job-index"] = "0"
                pod = self._cluster.replace(pod)
            address = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
            status = {**(pod.get("status") or {}), **address}
            write_status(self._cluster, pod, status)
            live = self._cluster.get("v1", "Pod", self._namespace, metadata["name"])
            assert live is not None
            pod = live
        super()._start(one, pod)

    def _port(self, service: str) -> int:
        return self.member_ports[service] if self._first else super()._port(service)

    def _deployment(self, one: Object) -> None:
        name = one["metadata"]["name"]
        if name in self.services:
            return
        (container,) = one["spec"]["template"]["spec"]["containers"]
        assert container["command"][:2] == ["ensemble-server", "start"]
        config = self.directory / f"{name}.config"
        token = self._api.account_token(self._namespace, name)
        config.write_text(self._api.kubeconfig(token, self._namespace))
        (port,) = free_ports(1)
        words = ["start", "--kubernetes", "--host=localhost", f"--port={port}"]
        with (self.directory / f"{name}.log").open("wb") as log:
            self.services[name] = subprocess.Popen(
                [self._python, "-u", "-c", _SERVICE, *words],
                stdout=log,
                stderr=log,
                env={"KUBECONFIG": str(config), "PATH": str(Path(shutil.which("sh") or "").parent)},
            )
        self._ports[name] = port
