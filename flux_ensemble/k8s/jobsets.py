"""JobSets, their pods and their Secrets in a cluster, for members that are JobSets.

    loop ──create, get, list, delete──► threads ──► API server
         ◄──────────answers──────────────┘
         ◄──changed──────── watches ◄──────┘        (`operator.watches`)

Requests block, so threads send them; what comes back is passed to the loop by a socket, in order.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from lightkube import Client
from lightkube.types import CascadeType

from flux_ensemble.k8s.api_server import ClusterError, connect
from flux_ensemble.k8s.operator import names, watches
from flux_ensemble.k8s.operator.cluster import ClusterFailure, KubernetesCluster, Resource
from flux_ensemble.k8s.operator.watches import ObjectWatch, WatchedKind
from flux_ensemble.queues.nested.provider import UnavailableError
from flux_ensemble.queues.providers.jobset.provider import Answer, Trouble
from flux_ensemble.queues.providers.jobset.template import API_VERSION, KIND
from flux_ensemble.runtime.ports import Loop

#: Requests that are sent at once.
_THREADS = 4

#: Most different complaints of watches that are logged.
_MOST_COMPLAINTS = 100

#: The version of each kind.
_VERSIONS = {
    KIND: API_VERSION,
    "Job": "batch/v1",
    "Pod": "v1",
    "Secret": "v1",
    "Workload": names.WORKLOAD,
}


class _Log(logging.Handler):
    """Passes what watches complain of to someone."""

    def __init__(self, told: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told(record.getMessage())


class KubernetesNamespace:
    """A `queues.providers.jobset.provider.Cluster`.

    Args:
        loop: calls back.
        log: receives lines for people.
        client: of the API; that of the configuration by default.

    Attributes:
        namespace: that of the configuration, where objects are that name none.

    Raises:
        ClusterError: there is no configuration, or it cannot be used.
    """

    def __init__(
        self, loop: Loop, log: Callable[[str], None], client: Client | None = None
    ) -> None:
        self._client = client or connect(field_manager="flux-ensemble")
        self._cluster = KubernetesCluster(self._client)
        self.namespace: str = self._client.namespace
        self._log = log
        self._said: set[str] = set()
        self._threads = ThreadPoolExecutor(_THREADS, "kubernetes")
        self._watches: list[tuple[str, ObjectWatch]] = []
        self._posted: deque[Callable[[], None]] = deque()
        self._told, self._tell = socket.socketpair()
        for one in (self._told, self._tell):
            one.setblocking(False)
        self._reader = loop.reader(self._told.fileno(), self._take)
        self._closed = False
        # A line each time that a watch fails would otherwise be on the terminal.
        self._complaints = _Log(lambda text: self._post(partial(self._complain, text)))
        watches.log.addHandler(self._complaints)
        watches.log.propagate = False

    # -- threads ------------------------------------------------------------------------

    def _post(self, call: Callable[[], None]) -> None:
        """Have the loop call something; from any thread."""
        self._posted.append(call)
        try:
            self._tell.send(b".")
        except BlockingIOError:
            pass  # it has been told often enough
        except OSError:
            pass  # it is closed

    def _take(self) -> None:
        try:
            self._told.recv(4096)
        except BlockingIOError:
            return
        for _ in range(len(self._posted)):
            if not self._closed:
                self._posted.popleft()()

    def _ask(self, request: Callable[[], Any], done: Answer) -> None:
        def work() -> None:
            try:
                answer = request()
            except ClusterFailure as failure:
                answer = Trouble(str(failure), failure.code)
            except Exception as exc:
                answer = Trouble(f"the API server cannot be asked: {' '.join(str(exc).split())}")
            self._post(partial(done, answer))

        self._threads.submit(work)

    def _complain(self, text: str) -> None:
        """Log once what watches complain of."""
        if text not in self._said and len(self._said) < _MOST_COMPLAINTS:
            self._said.add(text)
            self._log(f"Kubernetes: {text}")

    # -- requests -----------------------------------------------------------------------

    def create(self, one: Any, done: Answer) -> None:
        """Create an object; fields that the API server does not know are refused."""

        def request() -> Any:
            if one["kind"] == KIND:
                self._cluster.try_out(one)
            return self._cluster.create(one)

        self._ask(request, done)

    def get(self, kind: str, namespace: str, name: str, done: Answer) -> None:
        """Read an object."""
        self._ask(partial(self._cluster.get, _VERSIONS[kind], kind, namespace, name), done)

    def list_live(self, namespace: str, label: str, value: str, done: Answer) -> None:
        """List Jobs and pods, as they are from now on."""

        def request() -> list[Resource]:
            # A Job that is listed as gone has made its last pod before.
            found = [
                self._cluster.list(_VERSIONS[kind], kind, namespace, labels=f"{label}={value}")
                for kind in ("Job", "Pod")
            ]
            return [one for part in found for one in part]

        self._ask(request, done)

    def delete(self, one: Any, done: Answer) -> None:
        """Delete a JobSet after all that it owns."""

        def request() -> None:
            live = one
            if "uid" not in one["metadata"]:
                metadata = one["metadata"]
                live = self._cluster.get(API_VERSION, KIND, metadata["namespace"], metadata["name"])
            if live is not None:
                self._cluster.delete(
                    {**live, "apiVersion": API_VERSION, "kind": KIND},
                    cascade=CascadeType.FOREGROUND,
                )

        self._ask(request, done)

    # -- watches ------------------------------------------------------------------------

    def watch(
        self, namespace: str, label: str, value: str, queues: bool, changed: Callable[[], None]
    ) -> None:
        """Follow JobSets and pods, and with `queues` Workloads of Kueue, from now on."""

        def happened(*_: Any) -> None:
            self._post(changed)

        kinds = [(kind, f"{label}={value}") for kind in (KIND, "Pod")]
        for kind, labels in (*kinds, *([("Workload", "")] if queues else ())):
            watched = WatchedKind(_VERSIONS[kind], kind, labels=labels)
            watch = ObjectWatch(self._client, watched, namespace, happened, happened)
            self._watches.append((kind, watch))
            watch.start()

    def seen(self, kind: str) -> Sequence[Resource] | None:
        """Return what is followed, as it was last; None if it is not known yet."""
        found: list[Resource] = []
        for watched, watch in self._watches:
            if watched == kind:
                try:
                    found += watch.select("*", "", "")
                except ClusterFailure:
                    return None
        return found

    def close(self) -> None:
        """Follow nothing any more."""
        if self._closed:
            return
        self._closed = True
        watches.log.removeHandler(self._complaints)
        for _, watch in self._watches:
            watch.close()
        # What is asked for goes on: a JobSet that has ended is deleted as the last thing.
        self._threads.shutdown(wait=False)
        self._reader.cancel()
        self._told.close()
        self._tell.close()


def make_cluster(loop: Loop, log: Callable[[str], None]) -> KubernetesNamespace:
    """Return the namespace of the user's configuration.

    Raises:
        UnavailableError: there is no configuration, or it cannot be used.
    """
    try:
        return KubernetesNamespace(loop, log)
    except ClusterError as error:
        raise UnavailableError(str(error)) from None


def try_out(made: Callable[[str], Any]) -> tuple[str | None, str]:
    """Have the API server check a JobSet as if it were created; wait for the answer.

    Args:
        made: returns the JobSet, given the namespace of the user's configuration.

    Returns:
        Why it is refused, None if it is not, and the namespace of the JobSet.

    Raises:
        UnavailableError: there is no configuration, or it cannot be used.
    """
    try:
        client = connect(field_manager="flux-ensemble")
    except ClusterError as error:
        raise UnavailableError(str(error)) from None
    jobset = made(client.namespace)
    namespace: str = jobset["metadata"]["namespace"]
    try:
        KubernetesCluster(client).try_out(jobset)
    except ClusterFailure as failure:
        return str(failure), namespace
    except Exception as exc:
        return f"the API server cannot be asked: {' '.join(str(exc).split())}", namespace
    return None, namespace
