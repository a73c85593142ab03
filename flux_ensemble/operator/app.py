"""The operator as a process: watches, looks, and gives way to another one.

    kopf (Ensembles, MiniClusters, Deployments, Jobs) ──► queue ──► threads: reconcile ──► cluster
    every few minutes: all Ensembles                ──┘

kopf does the watching only: it writes nothing, neither annotations nor finalizers, so a restart of
the operator writes nothing either. A watch can end without a word (kopf issue 1276); each is opened
anew after some minutes, and all Ensembles are looked at regularly, whatever the watches say.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import kopf

from flux_ensemble.gateway.backends.kubernetes_client import connect
from flux_ensemble.gateway.health_port import HealthPort
from flux_ensemble.operator import names
from flux_ensemble.operator.cluster import Cluster, ClusterFailure
from flux_ensemble.operator.lease import LEASE_SECONDS, Lease
from flux_ensemble.operator.metrics import Metrics
from flux_ensemble.operator.queue import Queue
from flux_ensemble.operator.reconcile import Reconciler
from flux_ensemble.operator.render import Settings

log = logging.getLogger(__name__)

#: How long the API server keeps a watch, and how long an answer of it may take, in seconds.
_WATCH_SECONDS = 300

#: A look that lasts longer hangs.
_LONGEST_LOOK = 600.0

LEASE = "flux-ensemble-operator"


@dataclass(frozen=True, slots=True)
class Options:
    """How an operator runs.

    Args:
        namespaces: that it looks after; none are all.
        settings: what it adds to each Ensemble.
        health_port: for probes and metrics; None is none, 0 a free one.
        lease_namespace: where its Lease is; default: that of its pod, or of KUBECONFIG.
        lease_seconds: how long others wait for one that does not renew its Lease.
        resync_seconds: how often all Ensembles are looked at.
        workers: how many are looked at at once.
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
    # What kopf says of each event it says at INFO.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    with contextlib.ExitStack() as stack:
        client = connect(field_manager=names.MANAGER)
        stack.callback(client.close)
        cluster = Cluster(client)
        metrics = Metrics()
        sweep = _Sweep(cluster, options)
        if options.health_port is not None:
            health = HealthPort(options.health_port, metrics.registry, healthy=sweep.trouble)
            stack.callback(health.close)
            log.info("probes and metrics: port %d", health.port)
        stopped = threading.Event()
        with _signals(stopped):
            lease = Lease(
                cluster,
                options.lease_namespace or client.namespace,
                LEASE,
                f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
                seconds=options.lease_seconds,
            )
            log.info("wait for the lease")
            if not lease.wait(stopped.is_set):
                return
        stack.callback(lease.release)
        # A call that is under way could write after another operator has begun.
        lease.keep(lambda: os._exit(1))
        metrics.leader.set(1)
        log.info("begin")

        def told(seconds: float, good: bool) -> None:
            metrics.seconds.observe(seconds)
            metrics.reconciles.labels("success" if good else "error").inc()

        reconciler = Reconciler(cluster, options.settings, metrics)
        queue = Queue(reconciler.reconcile, told, threads=options.workers)
        stack.callback(queue.close)
        sweep.start(queue)
        stack.callback(sweep.close)
        asyncio.run(_watch(queue, options))


@contextlib.contextmanager
def _signals(stopped: threading.Event) -> Iterator[None]:
    """Sets an event at the signals that end the operator, until kopf has its own handlers."""
    chosen = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in chosen}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _watch(queue: Queue, options: Options) -> None:
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = _WATCH_SECONDS
    settings.watching.client_timeout = _WATCH_SECONDS + 30
    settings.networking.request_timeout = 30

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=registry)
    async def ensemble(namespace: str | None, name: str | None, **_: Any) -> None:
        if namespace and name:
            queue.add((namespace, name))

    async def child(namespace: str | None, labels: Mapping[str, str], **_: Any) -> None:
        owner = labels.get(names.ENSEMBLE_LABEL)
        if namespace and owner:
            queue.add((namespace, owner))

    ours = {names.ENSEMBLE_LABEL: kopf.PRESENT}
    kopf.on.event("flux-framework.org", "v1alpha2", "miniclusters", registry=registry, labels=ours)(
        child
    )

    kopf.on.event("apps", "v1", "deployments", registry=registry, labels=ours)(child)

    @kopf.on.event("batch", "v1", "jobs", registry=registry)
    async def job(namespace: str | None, body: kopf.Body, **_: Any) -> None:
        # The Flux Operator puts our labels on the pods of a Job, and its own on the Job.
        template = body.get("spec", {}).get("template", {}).get("metadata", {})
        owner = (template.get("labels") or {}).get(names.ENSEMBLE_LABEL)
        if namespace and owner:
            queue.add((namespace, owner))

    await kopf.operator(
        registry=registry,
        settings=settings,
        standalone=True,
        clusterwide=not options.namespaces,
        namespaces=list(options.namespaces),
    )


class _Sweep:
    """Looks at all Ensembles regularly, and tells whether that goes on."""

    def __init__(self, cluster: Cluster, options: Options) -> None:
        self._cluster = cluster
        self._namespaces = tuple(options.namespaces) or ("*",)
        self._every = options.resync_seconds
        self._stopped = threading.Event()
        self._t_last: float | None = None
        self._queue: Queue | None = None
        self._thread: threading.Thread | None = None

    def start(self, queue: Queue) -> None:
        """Begin."""
        self._queue = queue
        self._t_last = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="sweep", daemon=True)
        self._thread.start()

    def trouble(self) -> str | None:
        """What keeps the operator from its work; None before it has begun."""
        if self._t_last is None or self._queue is None:
            return None
        age = time.monotonic() - self._t_last
        if age > 3 * self._every + 60:
            return f"no Ensembles were listed for {age:.0f} s"
        age = self._queue.age()
        return f"a look has lasted for {age:.0f} s" if age > _LONGEST_LOOK else None

    def close(self) -> None:
        """End."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(30.0)

    def _work(self) -> None:
        assert self._queue is not None
        while True:
            for namespace in self._namespaces:
                try:
                    found = self._cluster.list(names.API_VERSION, names.KIND, namespace)
                except ClusterFailure as failure:
                    log.warning("cannot list the Ensembles: %s", failure)
                    continue
                self._t_last = time.monotonic()
                for ensemble in found:
                    metadata = ensemble["metadata"]
                    self._queue.add((metadata["namespace"], metadata["name"]))
            if self._stopped.wait(self._every):
                return
