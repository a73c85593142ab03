"""What the operator costs an API server and its node, and how soon a MiniCluster is there.

`flux-ensemble operator run` on a real API server, with its controllers. Ensembles are created one
after the other, then many at once; then there are some whose pods wait for nodes, and some whose
pods run, as kubelets would leave them. Its requests are those of its user in the audit log.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row, middle, percentile

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "helpers"))

from apiserver import ApiServer, api_server, binaries, controller_manager
from ensembles import CRDS, KUBERNETES, ensemble, job_of, member, objects, write_status

from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.cluster import ClusterFailure, KubernetesCluster
from flux_ensemble.k8s.operator.watches import ObjectWatch, WatchedKind

TOKEN = "flux-ensemble-flux-ensemble-operator"
ACCOUNT = "system:serviceaccount:flux-ensemble:flux-ensemble-operator"

#: How many Ensembles are created one after the other, how many at once, how many have pods that
#: wait before all of them run, and for how many seconds it is looked at what they cost.
ALONE, AT_ONCE, WAITING, SECONDS = 10, 200, 100, 120

#: How often it is looked whether something has come, in seconds, and how long that may take.
_LOOK, _LONGEST = 0.2, 900.0

#: The operator has done its work when it has asked for no more than its Lease for so many seconds.
_QUIET = 10.0

_MINICLUSTER = names.MINICLUSTER, "MiniCluster"
_POD = "v1", "Pod"

_WAITS = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient cpu.",
        }
    ],
}
_RUNS = {"phase": "Running", "conditions": []}


def lacks() -> str | None:
    """What is not there that it needs."""
    if binaries() is None or controller_manager() is None:
        return "kube-apiserver, etcd and kube-controller-manager are not on PATH"
    return None


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + _LONGEST
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(_LOOK)


class Bench:
    """An operator on an API server.

    Args:
        server: the API server.
        pid: of the operator.
    """

    def __init__(self, server: ApiServer, pid: int) -> None:
        self._server, self._pid = server, pid
        self.admin = KubernetesCluster(server.client())
        self._numbers = itertools.count()
        # When MiniClusters came, by name.
        self._t: dict[str, float] = {}
        kind = WatchedKind(*_MINICLUSTER)
        self.watch = ObjectWatch(server.client(), kind, "default", self._came, lambda: None)
        self.watch.start()
        assert self.watch.wait(_LONGEST)

    def _came(self, one: dict[str, Any]) -> None:
        self._t.setdefault(one["metadata"]["name"], time.monotonic())

    # -- what it costs -----------------------------------------------------------------

    def requests(self) -> int:
        """How many requests the operator has made."""
        return len(self._server.requests_of(ACCOUNT))

    def seconds(self) -> float:
        """The processor time of the operator."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def over(self, seconds: float) -> dict[str, float]:
        """What it costs from now on, once it is quiet: a minute, and in percent of a core."""
        quiet, used = time.monotonic(), self.seconds()
        while time.monotonic() < quiet + min(seconds, _QUIET):
            time.sleep(_LOOK)
            if (now := self.seconds()) > used + 0.05:
                quiet, used = time.monotonic(), now
        begun, requests, used = time.monotonic(), self.requests(), self.seconds()
        time.sleep(seconds)
        passed = time.monotonic() - begun
        return {
            "requests": (self.requests() - requests) * 60 / passed,
            "core": (self.seconds() - used) * 100 / passed,
        }

    # -- Ensembles ---------------------------------------------------------------------

    def create(self, count: int) -> tuple[list[str], list[float]]:
        """Create Ensembles at once: their names, and after how long each has a MiniCluster."""
        chosen = [f"bench-{next(self._numbers)}" for _ in range(count)]
        begun: dict[str, float] = {}

        def work(part: Sequence[str]) -> None:
            for name in part:
                begun[name] = time.monotonic()
                self.admin.create(ensemble(name, member(size=1)))

        threads = [threading.Thread(target=work, args=(chosen[at::8],)) for at in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: all(f"{name}-solve" in self._t for name in chosen), "no MiniCluster")
        return chosen, [self._t[f"{name}-solve"] - begun[name] for name in chosen]

    def pods(self, chosen: Sequence[str], status: dict[str, Any]) -> None:
        """Each has a pod that is so, as the Flux Operator, the Job controller and kubelets do."""
        missing = {f"{name}-solve" for name in chosen}
        jobs = {one["metadata"]["name"] for one in self.admin.list("batch/v1", "Job", "default")}
        for name in missing - jobs:
            cluster = self.admin.get(*_MINICLUSTER, "default", name)
            assert cluster is not None
            self.admin.create(job_of(cluster))

        def told() -> bool:
            for pod in self.admin.list(*_POD, "default"):
                name = pod["metadata"]["labels"].get(names.JOB_LABEL)
                if name in missing:
                    with contextlib.suppress(ClusterFailure):
                        write_status(self.admin, pod, {**(pod.get("status") or {}), **status})
                        missing.discard(name)
            return not missing

        until(told, "there are no pods")


@contextlib.contextmanager
def running() -> Iterator[Bench]:
    """An operator on an API server, with the rights that it is shipped with."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="operator")))
        server = stack.enter_context(api_server(directory, {TOKEN: ACCOUNT}, audit=True))
        admin = KubernetesCluster(server.client())
        install(admin)
        config, log = directory / "config", directory / "log"
        config.write_text(server.kubeconfig(TOKEN, "flux-ensemble"))
        child = subprocess.Popen(
            [sys.executable, "-m", "flux_ensemble.cli.main", "operator", "run"],
            env={**os.environ, "KUBECONFIG": str(config)},
            stdout=stack.enter_context(log.open("w")),
            stderr=subprocess.STDOUT,
        )
        stack.callback(child.wait)
        stack.callback(child.kill)
        until(lambda: "begin" in log.read_text(), "the operator does not begin")
        bench = Bench(server, child.pid)
        stack.callback(bench.watch.close)
        yield bench
        assert child.poll() is None, log.read_text()[-2000:]


def install(admin: KubernetesCluster) -> None:
    """The CRDs and the operator's rights."""
    from lightkube.codecs import from_dict

    for one in objects(KUBERNETES / "install.yaml", CRDS[1]):
        admin.client.create(from_dict(one))

    def served() -> bool:
        try:
            for kind in ((names.API_VERSION, names.KIND), _MINICLUSTER):
                admin.list(*kind, "default")
        except ClusterFailure:
            return False
        return True

    until(served, "the CRDs are not established")


def measure(smoke: bool) -> Numbers:
    """Create Ensembles, and let them be."""
    alone, at_once, waiting, seconds = (1, 2, 1, 1) if smoke else (ALONE, AT_ONCE, WAITING, SECONDS)
    with running() as bench:
        one = [bench.create(1) for _ in range(alone)]
        requests, used = bench.requests(), bench.seconds()
        chosen, many = bench.create(at_once)
        numbers: Numbers = {
            "one": [took for _, (took,) in one],
            "many": many,
            "requests_each": (bench.requests() - requests) / at_once,
            "seconds_each": (bench.seconds() - used) / at_once,
        }
        bench.pods(chosen[:waiting], _WAITS)
        numbers["waiting"] = {"count": waiting, **bench.over(seconds)}
        chosen += [name for (name,), _ in one]
        bench.pods(chosen, _RUNS)
        numbers["running"] = {"count": len(chosen), **bench.over(seconds)}
        numbers["load"] = os.getloadavg()[0]
    return numbers


def rows(numbers: Numbers) -> list[Row]:
    """Its goals, and what one more Ensemble costs."""
    one, many = numbers["one"], numbers["many"]
    waiting, runs = numbers["waiting"], numbers["running"]
    load = f"load {numbers['load']:.1f}"
    wait = f"{waiting['count']} Ensembles whose pods wait for nodes: the operator's"
    run = f"{runs['count']} Ensembles that run: the operator's"
    return [
        Row(f"{wait} requests a minute", waiting["requests"], "<=", 600, "", load),
        Row(f"{wait} processor time, of a core", waiting["core"], "<=", 2, "%", load),
        Row(f"{run} requests a minute", runs["requests"], "<=", 300, "", load),
        Row(
            "from an Ensemble to its MiniCluster",
            *(middle(one), "<=", 1, "s"),
            f"median of {len(one)}, at most {max(one):.2f} s; {load}",
        ),
        Row(
            f"from an Ensemble to its MiniCluster, {len(many)} at once",
            *(middle(many), "<=", 5, "s"),
            f"median; p90 {percentile(many, 90):.1f} s; {load}",
        ),
        Row(
            "an Ensemble: processor time of the operator to make what it consists of",
            *(1000 * numbers["seconds_each"], "", 0, "ms"),
            f"{numbers['requests_each']:.1f} requests, of {len(many)} at once",
        ),
        Row(f"{run} processor time, of a core", runs["core"], "", 0, "%", load),
    ]


def plot(figure: Any, numbers: Numbers) -> None:
    """How soon MiniClusters are there, and what Ensembles cost that do not change."""
    left, right = figure.subplots(1, 2)
    plots.ecdf(left, numbers["one"], "one after the other", plots.OURS)
    plots.ecdf(left, numbers["many"], f"{len(numbers['many'])} at once", plots.THIRD)
    left.set_xlabel("seconds to its MiniCluster")
    plots.goal(left, x=5, label="goal of the median at once")
    values = {
        f"{one['count']} {what}": [one["requests"]]
        for what, one in (("wait", numbers["waiting"]), ("run", numbers["running"]))
    }
    plots.bars(right, values, [plots.OURS, plots.THIRD])
    right.set_xlabel("requests a minute")
    plots.legend(left, columns=1)


BENCHMARK = Benchmark(
    name="operator",
    title="The operator",
    about="""Ensembles on a real API server with its controllers, and the operator beside it, with
    the rights that it is shipped with. Ten are created one after the other, then 200 at once; then
    100 of them have pods that wait for nodes, the others none, and then all have pods that run, for
    two minutes each. Requests are those of the operator in the audit log, those for its Lease
    included; processor time is that of its process.""",
    measure=measure,
    rows=rows,
    plot=plot,
    lacks=lacks,
)


if __name__ == "__main__":
    print(json.dumps(measure("--smoke" in sys.argv)))
