"""Clusters that share nodes by the gRPC service: how exactly each gets its part of them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "helpers"))

from rpc_servers import serving

from flux_ensemble.k8s.grpc.backend import DryRun
from flux_ensemble.k8s.grpc.client import RpcClient, RpcError
from flux_ensemble.k8s.grpc.shared_nodes import SharedNodes

#: Nodes that are shared, and the most that each cluster needs.
NODES = 12
NEEDS = {"n/eager": 12, "n/patient": 12, "n/small": 2}

#: The part of each: what the small one does not need goes to the others.
PARTS = {"n/eager": 5, "n/patient": 5, "n/small": 2}

#: Seconds between two requests of a cluster to grow, those for which it has a node, and of the run;
#: and those that are not looked at in the beginning.
PAUSES = {"n/eager": 0.01, "n/patient": 0.1, "n/small": 0.1}
NEEDED, RUN, SETTLED = 2.0, 60.0, 5.0


class _Cluster:
    """A cluster that asks for the nodes that it needs, gives each back after a while, and asks."""

    def __init__(self, name: str, client: RpcClient) -> None:
        self._name = name
        self._client = client
        self._random = Random(name)
        #: When its size changed, and to what.
        self.sizes: list[tuple[float, int]] = []

    def run(self, begin: float, end: Callable[[], bool]) -> None:
        size = self._client.size().nodes
        self._note(begin, size)
        due: list[float] = []
        while not end():
            now = time.monotonic()
            if due and due[0] <= now:
                due.pop(0)
                size = self._client.shrink().size
                self._note(begin, size)
            if size < NEEDS[self._name]:
                before = size
                try:
                    size = self._client.scale(NEEDS[self._name]).size
                except RpcError as error:
                    if not error.refused:
                        raise
                due += (now + NEEDED * self._random.uniform(0.5, 1.5) for _ in range(before, size))
                due.sort()
                self._note(begin, size)
            time.sleep(PAUSES[self._name])

    def _note(self, begin: float, size: int) -> None:
        self.sizes.append((round(time.monotonic() - begin, 4), size))


def measure(smoke: bool) -> Numbers:
    """The sizes of the clusters, in seconds since the begin."""
    seconds = 1.0 if smoke else RUN
    shared = SharedNodes(DryRun(1, NODES), NODES, NEEDS)
    over = threading.Event()
    with serving(shared, tuple(NEEDS)) as target, ThreadPoolExecutor(len(NEEDS)) as threads:
        clusters = {name: _Cluster(name, RpcClient(target, cluster=name)) for name in NEEDS}
        begin = time.monotonic()
        runs = [threads.submit(cluster.run, begin, over.is_set) for cluster in clusters.values()]
        over.wait(seconds)
        over.set()
        for run in runs:
            run.result()
    return {"run": seconds, "sizes": {name: one.sizes for name, one in clusters.items()}}


def _held(sizes: list[list[float]], begin: float, end: float) -> float:
    """Node-seconds of a cluster between two times."""
    total = 0.0
    for (t, size), (later, _) in zip(sizes, [*sizes[1:], [end, 0]], strict=True):
        total += max(0.0, min(later, end) - max(t, begin)) * size
    return total


def rows(numbers: Numbers) -> list[Row]:
    """How far each is from its part, and how many nodes were had."""
    begin, end = min(SETTLED, numbers["run"] / 4), numbers["run"]
    held = {
        name: _held(sizes, begin, end) / (end - begin) for name, sizes in numbers["sizes"].items()
    }
    words = ", ".join(
        f"{name.partition('/')[2]} {held[name]:.2f} of {PARTS[name]}" for name in held
    )
    # The patient one asks a tenth as often; the small one needs less than a third of the nodes.
    rivals = held["n/eager"], held["n/patient"]
    return [
        Row(
            f"{len(NEEDS)} clusters that share {NODES} nodes: how far the node-seconds of one that "
            "asks ten times as often are from those of another",
            100 * abs(rivals[0] / rivals[1] - 1), "<=", 10, "%", words,
        ),
        Row(
            "the same, nodes that are had", 100 * sum(held.values()) / NODES, ">=", 90, "%",
            f"a node is given back after about {NEEDED:g} s",
        ),
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """Nodes of each over time."""
    axes = figure.subplots()
    colors = (plots.OTHER, plots.OURS, "0.6")
    for (name, sizes), color in zip(numbers["sizes"].items(), colors, strict=True):
        held = partial(_held, sizes)
        seconds = range(int(numbers["run"]))
        nodes = [held(t, t + 1) for t in seconds]
        axes.step(seconds, nodes, label=name.partition("/")[2], color=color)
    axes.set_xlabel("seconds")
    axes.set_ylabel("nodes")
    plots.legend(axes)


BENCHMARK = Benchmark(
    "shared-nodes",
    "Clusters that share nodes",
    """Three clusters of a gRPC service with `--shared-nodes 12` ask for all the nodes that they
    need, again and again until they have them, and give each back after about two seconds. One
    asks ten times as often as another, and one needs two nodes only. Sizes are those granted.""",
    measure,
    rows,
    plot,
)
