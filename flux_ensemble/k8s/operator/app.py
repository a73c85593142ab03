"""The operator as a process: watches the cluster, reconciles Ensembles, and yields to another one.

    Seen (objects of Ensembles) ──► queue ──► threads: reconcile ──► cluster
    every few minutes: all Ensembles ──┘

Watches only read, so a restart of the operator writes nothing. All Ensembles are reconciled
regularly, whatever the watches report: that sends no request to the cluster.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flux_ensemble.k8s.api_server import connect
from flux_ensemble.k8s.health_port import HealthPort
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.cluster import KubernetesCluster
from flux_ensemble.k8s.operator.lease import LEASE_SECONDS, Lease
from flux_ensemble.k8s.operator.metrics import OperatorMetrics
from flux_ensemble.k8s.operator.queue import WorkQueue
from flux_ensemble.k8s.operator.reconcile import Reconciler
from flux_ensemble.k8s.operator.render import Settings
from flux_ensemble.k8s.operator.watches import Seen

log = logging.getLogger(__name__)

#: Longest time in seconds in which everything watched is listed before reconciling begins.
_LISTED_SECONDS = 60.0

#: Seconds of silence of a watch after which the API server, or the connection to it, is considered
#: lost: the API server ends a watch after five minutes.
_SILENCE = 900.0

#: Seconds for which changes are gathered before an Ensemble is reconciled.
_GATHERED = 0.05

#: Seconds after which a call of the reconciler is considered hung.
_LONGEST_LOOK = 600.0

LEASE = "flux-ensemble-operator"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an operator.

    Args:
        namespaces: that it serves; none means all.
        settings: applied to each Ensemble.
        health_port: for probes and metrics; None for none, 0 for a free one.
        lease_namespace: of its Lease; default: that of its pod, or of KUBECONFIG.
        lease_seconds: seconds after which others take over a Lease that is not renewed.
        resync_seconds: seconds between two times at which all Ensembles are reconciled.
        workers: number of Ensembles that are reconciled at once.
    """

    namespaces: Sequence[str] = ()
    settings: Settings = field(default_factory=Settings)
    health_port: int | None = None
    lease_namespace: str | None = None
    lease_seconds: float = LEASE_SECONDS
    resync_seconds: float = 300.0
    workers: int = 4


def run(options: Options) -> None:
    """Run an operator until SIGTERM or SIGINT.

    Raises:
        ClusterError: there is no cluster.
        OSError: the health port is taken.
    """
    stopped = threading.Event()
    with contextlib.ExitStack() as stack:
        client = connect(field_manager=names.MANAGER)
        stack.callback(client.close)
        metrics = OperatorMetrics()
        looks = _Looks(options)
        if options.health_port is not None:
            health = HealthPort(options.health_port, metrics.registry, healthy=looks.trouble)
            stack.callback(health.close)
            log.info("probes and metrics: port %d", health.port)
        stack.enter_context(_signals(stopped))
        lease = Lease(
            KubernetesCluster(client),
            options.lease_namespace or client.namespace,
            LEASE,
            f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
            seconds=options.lease_seconds,
        )
        log.info("wait for the lease")
        if not lease.wait(stopped.is_set):
            return
        stack.callback(lease.release)
        # A call under way could write after another operator has begun, so the process exits at
        # once.
        lease.keep(lambda: os._exit(1))
        metrics.leader.set(1)
        log.info("begin")
        places = {}
        for namespace in options.namespaces or ("*",):
            places[namespace] = connect(field_manager=names.MANAGER)
            stack.callback(places[namespace].close)
        looks.start(Seen(client, places, looks.add), metrics, stopped)
        stack.callback(looks.close)
        stopped.wait()


@contextlib.contextmanager
def _signals(stopped: threading.Event) -> Iterator[None]:
    """Set an event at the signals that end the operator."""
    chosen = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in chosen}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Looks:
    """Reconciles Ensembles that have changed, and all of them regularly.

    Args:
        options: of the operator.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._queue: WorkQueue | None = None
        self._seen: Seen | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, namespace: str, name: str) -> None:
        """Reconcile an Ensemble soon."""
        if self._queue is not None:
            self._queue.add((namespace, name), _GATHERED)

    def start(self, seen: Seen, metrics: OperatorMetrics, stopped: threading.Event) -> None:
        """Begin.

        Args:
            seen: the cluster, which calls `add`.
            metrics: counts.
            stopped: ends the wait for the first lists of the watches.
        """

        def told(seconds: float, good: bool) -> None:
            metrics.seconds.observe(seconds)
            metrics.reconciles.labels("success" if good else "error").inc()

        self._seen = seen
        seen.start(_LISTED_SECONDS, stopped.is_set)
        reconciler = Reconciler(seen, self._options.settings, metrics)
        self._queue = WorkQueue(reconciler.reconcile, told, threads=self._options.workers)
        self._thread = threading.Thread(target=self._work, name="looks", daemon=True)
        self._thread.start()

    def trouble(self) -> str | None:
        """Return what keeps the operator from its work; None before it has begun."""
        if self._seen is None or self._queue is None:
            return None
        age, kind = self._seen.silence()
        if age > _SILENCE:
            return f"the API server has not answered the watch of {kind} for {age:.0f} s"
        age = self._queue.age()
        return f"a look has lasted for {age:.0f} s" if age > _LONGEST_LOOK else None

    def close(self) -> None:
        """Stop, and wait for the threads."""
        self._stopped.set()
        if self._seen is not None:
            self._seen.close()
        if self._queue is not None:
            self._queue.close()
        if self._thread is not None:
            self._thread.join(30.0)

    def _work(self) -> None:
        assert self._queue is not None
        assert self._seen is not None
        while True:
            for key in self._seen.ensembles():
                self._queue.add(key)
            if self._stopped.wait(self._options.resync_seconds):
                return
