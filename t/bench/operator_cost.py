"""What the operator costs an API server and its node, and how soon a MiniCluster is there.

    operator_cost.py [--waiting 100] [--idle 200] [--at-once 200] [--seconds 120] [--memory]

Runs `flux-ensemble operator run` on the API server that tests use (`apiserver`), or with `--memory`
on that in memory, which counts requests and tells nothing of time. There are Ensembles whose pods
wait, and Ensembles whose pods run, as the Job controller and kubelets would leave them; then one
after the other, and then many at once are created. Prints one line of JSON.

Goals: 100 that wait make under 600 requests a minute and 2 % of a core, 200 that run under 300
requests a minute; a MiniCluster is there in under 1 s, the median of 200 at once under 5 s.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "helpers"))

from ends import unwind_at_signals
from ensembles import CRDS, KUBERNETES, ensemble, install, member, write_status

from flux_ensemble.operator import names
from flux_ensemble.operator.cluster import Cluster, ClusterFailure, resource_class

TOKEN = "flux-ensemble-flux-ensemble-operator"
ACCOUNT = "system:serviceaccount:flux-ensemble:flux-ensemble-operator"

#: A Lease as long as that of a busy machine has to be.
RUN = ("operator", "run", "--lease-seconds=120")

MINICLUSTER = names.MINICLUSTER, "MiniCluster"


@contextlib.contextmanager
def server(memory: bool, directory: Path) -> Iterator[Any]:
    """An API that has the CRDs and the shipped roles."""
    if memory:
        from memory_api import memory_api

        with memory_api() as api:
            install(api)
            api.account_token("flux-ensemble", "flux-ensemble-operator")
            yield api
        return
    import apiserver
    from lightkube.codecs import load_all_yaml

    with apiserver.api_server(directory, {TOKEN: ACCOUNT}) as real:
        admin = real.client()
        files = (KUBERNETES / "install.yaml", CRDS[1])
        for loaded in load_all_yaml("---\n".join(file.read_text() for file in files)):
            admin.create(loaded)
        cluster = Cluster(admin)
        until(lambda: served(cluster))
        yield real


def served(cluster: Cluster) -> bool:
    try:
        cluster.list(names.API_VERSION, names.KIND, "default")
        cluster.list(*MINICLUSTER, "default")
    except ClusterFailure:
        return False
    return True


def until(holds: Any, seconds: float = 900.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


class Costs:
    """Requests to a server, and what a process has used."""

    def __init__(self, api: Any, pid: int, memory: bool) -> None:
        self._api, self._pid, self._memory = api, pid, memory
        self._client = api.client()
        self._count = 0
        if memory:
            api.instead = self._note

    def _note(self, method: str, path: str) -> None:
        self._count += 1

    def requests(self) -> int:
        """How many there were; the server's own ones, too."""
        if self._memory:
            return self._count
        text = self._client._client._client.get("/metrics").text
        counted = re.findall(r"^apiserver_request_total\{[^}]*\} (\S+)$", text, re.MULTILINE)
        return round(sum(map(float, counted)))

    def seconds(self) -> float:
        """The CPU time of the process."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def mebibytes(self) -> float:
        status = Path(f"/proc/{self._pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def over(self, seconds: float) -> dict[str, float]:
        """What is used from now on, in a minute and in % of a core."""
        begun, requests, used = time.monotonic(), self.requests(), self.seconds()
        time.sleep(seconds)
        passed = time.monotonic() - begun
        return {
            "requests_a_minute": round((self.requests() - requests) * 60 / passed, 1),
            "core_percent": round((self.seconds() - used) * 100 / passed, 2),
            "rss_mib": round(self.mebibytes()),
        }


def pods(admin: Cluster, name: str, phase: str) -> None:
    """The Job of a MiniCluster, and its pod: one that runs, or for which there is no node."""
    cluster = admin.get(*MINICLUSTER, "default", f"{name}-solve")
    assert cluster is not None
    labels = cluster["spec"]["pod"]["labels"]
    spec = {"containers": [{"name": "flux", "image": "a"}], "restartPolicy": "OnFailure"}
    job = admin.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": owned(cluster, f"{name}-solve"),
            "spec": {
                "template": {"metadata": {"labels": labels}, "spec": spec},
                "completionMode": "Indexed",
                "completions": 1,
            },
        }
    )
    metadata = owned({**job, "apiVersion": "batch/v1", "kind": "Job"}, f"{name}-solve-0-x")
    index = {
        "job-name": f"{name}-solve",
        "batch.kubernetes.io/job-completion-index": "0",
        "batch.kubernetes.io/job-name": f"{name}-solve",
    }
    metadata["labels"] = {**labels, **index}
    pod = admin.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    waits["message"] = "0/3 nodes are available: 3 Insufficient cpu."
    status: dict[str, Any] = {"phase": phase}
    if phase == "Pending":
        status["conditions"] = [waits]
    write_status(admin, pod, status)


def owned(owner: dict[str, Any], name: str) -> dict[str, Any]:
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    return {
        "name": name,
        "namespace": "default",
        "ownerReferences": [{**reference, "controller": True}],
    }


class Arrivals:
    """When MiniClusters came, by name, as a watch tells."""

    def __init__(self, api: Any) -> None:
        self.t: dict[str, float] = {}
        self._client = api.client()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        resource = resource_class(*MINICLUSTER)
        with contextlib.suppress(Exception):
            for what, one in self._client.watch(resource, namespace="default"):
                if what == "ADDED":
                    self.t.setdefault(one["metadata"]["name"], time.monotonic())

    def after(self, admin: Cluster, given: list[str]) -> list[float]:
        """Create Ensembles at once; after how many seconds each MiniCluster is there."""
        begun: dict[str, float] = {}

        def create(part: list[str]) -> None:
            for name in part:
                begun[name] = time.monotonic()
                admin.create(ensemble(name, member(size=1)))

        threads = [threading.Thread(target=create, args=(given[at::8],)) for at in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: all(f"{name}-solve" in self.t for name in given))
        return [self.t[f"{name}-solve"] - begun[name] for name in given]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for option, default in (("waiting", 100), ("idle", 200), ("at-once", 200), ("seconds", 120)):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--memory", action="store_true")
    given = parser.parse_args()
    unwind_at_signals()
    found: dict[str, Any] = {"load": os.getloadavg()[0], "cores": os.cpu_count()}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        api = stack.enter_context(server(given.memory, directory))
        admin = Cluster(api.client())
        config = directory / "config"
        config.write_text(api.kubeconfig(TOKEN, "flux-ensemble"))
        baseline = Costs(api, os.getpid(), given.memory).over(20)["requests_a_minute"]
        found["baseline_requests_a_minute"] = baseline
        log = stack.enter_context((directory / "log").open("w"))
        child = subprocess.Popen(
            [sys.executable, "-m", "flux_ensemble.cli.main", *RUN],
            env={**os.environ, "KUBECONFIG": str(config)},
            stdout=log,
            stderr=log,
        )
        stack.callback(child.wait)
        stack.callback(child.kill)
        until(lambda: "begin" in (directory / "log").read_text())
        arrivals = Arrivals(api)
        time.sleep(2)
        alone = [arrivals.after(admin, [f"alone-{number}"])[0] for number in range(10)]
        found["one_seconds"] = rounded(alone)
        costs = Costs(api, child.pid, given.memory)
        many = [f"many-{number}" for number in range(given.at_once)]
        used = costs.seconds()
        found["at_once_seconds"] = rounded(arrivals.after(admin, many))
        found["at_once_core_seconds"] = round(costs.seconds() - used, 1)
        every = [*many, *(f"alone-{number}" for number in range(10))]
        for phase, count, key in (
            ("Pending", given.waiting, "waiting"),
            ("Running", given.idle, "idle"),
        ):
            remove(admin, every[count:] if phase == "Pending" else every)
            chosen = every[:count] if phase == "Pending" else []
            if phase == "Running":
                chosen = [f"idle-{number}" for number in range(count)]
                arrivals.after(admin, chosen)
            for name in chosen:
                pods(admin, name, phase)
            time.sleep(30)
            found[key] = {"ensembles": count, **costs.over(given.seconds)}
            every = chosen
        found["load_after"] = os.getloadavg()[0]
        assert child.poll() is None, (directory / "log").read_text()[-2000:]
    print(json.dumps(found))


def remove(admin: Cluster, given: list[str]) -> None:
    """Delete Ensembles, and what is of them: nobody collects it here."""
    for name in given:
        found = admin.get(names.API_VERSION, names.KIND, "default", name)
        if found is not None:
            admin.delete(found)
    for kind in (MINICLUSTER, ("batch/v1", "Job"), ("v1", "Pod")):
        for one in admin.list(*kind, "default"):
            if any(one["metadata"]["name"].startswith(f"{name}-solve") for name in given):
                with contextlib.suppress(ClusterFailure):
                    admin.delete(one)


def rounded(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "median": round(statistics.median(ordered), 2),
        "p90": round(ordered[int(len(ordered) * 0.9) - 1], 2),
        "most": round(ordered[-1], 2),
    }


if __name__ == "__main__":
    main()
