"""The brokers of a Flux MiniCluster: the gRPC service changes its size, in Kubernetes.

    client = connect("ensemble-service:50051", "default/ensemble", cert=..., key=..., ca=...)
    scaler = ElasticInstance(broker, MiniCluster(broker, client))

The Flux Operator makes the brokers of a MiniCluster, with the ranks from 0 up to its size. When
the MiniCluster shrinks, the operator removes the highest ranks with all that runs there. So the
rest is done as for any instance (`queues.elastic.scaler`): before a smaller size is requested,
ranks are drained and their jobs end; a greater size is reached when the brokers are online.

The client of the service blocks. One thread calls it, one call at a time, and the results are
handed to the reactor. While the service is down the call is repeated, with growing pauses, for
as long as the change may take; `MiniCluster.trouble` then has the reason.

Every few seconds the service is told how many nodes and jobs there are (`Reporter`).
"""

from __future__ import annotations

import errno
import math
import os
import queue as queues
import threading
from collections import deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from grpc import StatusCode

from flux_ensemble.k8s.grpc.client import RpcClient, RpcError
from flux_ensemble.k8s.grpc.tls import TlsError, TlsFiles
from flux_ensemble.queues.elastic.provisioner import BrokerFleet
from flux_ensemble.queues.elastic.scaler import START_SECONDS
from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.flux.steps import Resume, Steps, run
from flux_ensemble.runtime.ports import Loop
from flux_ensemble.service.status.instance import numbers

#: Seconds that one call may take, including the client's own retries.
CALL_SECONDS = 10.0

#: Pauses between calls in seconds: the first, and the longest.
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0

#: Seconds until the first report, between two, and after which the same numbers are reported again.
FIRST_REPORT = 1.0
REPORT_SECONDS = 10.0
AGAIN_SECONDS = 300.0

#: gRPC's status codes after which a later call may succeed.
PASSING = (
    StatusCode.UNAVAILABLE,
    StatusCode.DEADLINE_EXCEEDED,
    StatusCode.RESOURCE_EXHAUSTED,
    StatusCode.ABORTED,
)

#: Receives the size that was granted, or the error.
Granting = Callable[[int | Exception], None]


def connect(
    target: str,
    cluster: str,
    *,
    cert: str = "",
    key: str = "",
    ca: str = "",
    timeout: float = CALL_SECONDS,
) -> RpcClient:
    """Make a client of the gRPC service; nothing is sent yet.

    Args:
        target: HOST:PORT.
        cluster: NAMESPACE/NAME of the MiniCluster.
        cert, key, ca: files in PEM: all of them, or none for plaintext.
        timeout: seconds that one call may take.

    Raises:
        ValueError: a file is missing or not usable; a sentence.
    """
    tls = None
    if cert or key or ca:
        if not (cert and key and ca):
            raise ValueError("scaler: expected all of tls-cert, tls-key and tls-ca, or none")
        tls = TlsFiles(Path(cert), Path(key), Path(ca))
    try:
        return RpcClient(target, cluster=cluster, tls=tls, timeout=timeout)
    except TlsError as error:
        raise ValueError(f"scaler: {error}") from None


class Thread:
    """A thread that makes blocking calls for a loop, one after the other.

    The thread is a daemon: the end of the process does not wait for a call.
    """

    def __init__(self, loop: Loop, name: str) -> None:
        self._calls: queues.SimpleQueue[tuple[Callable[[], int], Granting] | None]
        self._calls = queues.SimpleQueue()
        self._results: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._loop = loop
        self._reader = loop.reader(self._wake, self._woken)
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def call(self, function: Callable[[], int], done: Granting) -> None:
        """Call a function in the thread.

        Args:
            function: the call.
            done: called from the loop, with the result or the exception of the call.
        """
        self._calls.put((function, done))

    def close(self) -> None:
        """End the thread after its present call; no callback is called any more."""
        self._reader.cancel()
        with self._lock:
            self._closed = True
        self._calls.put(None)
        # The reactor only notices in its next turn that the descriptor is no longer watched, and
        # fails if it is closed by then. If there is no next turn, the process ends anyway.
        self._loop.timer(0.0, partial(os.close, self._wake))

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, done = call
            result: int | Exception
            try:
                result = function()
            except Exception as error:
                result = error
            self._results.append(partial(done, result))
            with self._lock:
                if not self._closed:
                    os.eventfd_write(self._wake, 1)

    def _woken(self) -> None:
        os.eventfd_read(self._wake)
        while self._results and not self._closed:
            self._results.popleft()()


class Reporter:
    """Reports to the service how many nodes and jobs the instance has, for the Ensemble's status.

    A report is sent at most once in `REPORT_SECONDS`, and only if the numbers have changed, or the
    last one is old: whoever keeps them may have lost them. A report that fails is not repeated.

    Args:
        broker: of the instance.
        client: of the service.
    """

    def __init__(self, broker: Broker, client: RpcClient) -> None:
        self._broker = broker
        self._client = client
        # A service that does not answer must not keep requests for another size waiting.
        self._thread = Thread(broker.loop, "report")
        self._busy = False
        self._reported: dict[str, dict[str, int]] = {}
        self._t_reported = -math.inf
        self._timer = broker.loop.timer(FIRST_REPORT, self._look, every=REPORT_SECONDS)

    def close(self) -> None:
        """End: a report that is being sent is not waited for."""
        self._timer.cancel()
        self._thread.close()

    def _look(self) -> None:
        if not self._busy:
            self._busy = True
            run(numbers(self._broker), self._known)

    def _known(self, found: Any) -> None:
        if isinstance(found, Exception):
            self._busy = False
            self._broker.report(found)
            return
        report = {
            part: {key: value for key, value in values.items() if value is not None}
            for part, values in zip(("nodes", "queue"), found, strict=True)
        }
        now = self._broker.loop.now()
        if report == self._reported and now < self._t_reported + AGAIN_SECONDS:
            self._busy = False
            return
        self._reported, self._t_reported = report, now
        self._thread.call(partial(self._send, report), self._sent)

    def _send(self, report: Mapping[str, Mapping[str, int]]) -> int:
        self._client.report(report)
        return 0

    def _sent(self, result: int | Exception) -> None:
        self._busy = False
        if isinstance(result, Exception):
            self._t_reported = -math.inf
            if not isinstance(result, RpcError):
                self._broker.report(result)


@dataclass(eq=False, slots=True)
class _Wish:
    """A size that is requested from the service until it is granted or refused.

    Attributes:
        size: of the MiniCluster, in nodes.
        asking: called before each request.
        done: receives the size that the service has granted, or the error.
        pause: seconds before the next request.
    """

    size: int
    asking: Callable[[], None]
    done: Resume
    pause: float = FIRST_PAUSE


class MiniCluster:
    """A provisioner that requests the size of a MiniCluster: a `Provisioner`; see the module.

    Args:
        broker: of the instance.
        client: of the service; `close` closes it.
        start_seconds: that the service may take to start or to stop brokers.
    """

    kind = "minicluster"
    together = True

    def __init__(
        self, broker: Broker, client: RpcClient, *, start_seconds: float = START_SECONDS
    ) -> None:
        self.stop_seconds = start_seconds
        self.trouble: str | None = None
        self._broker = broker
        self._client = client
        self._thread = Thread(broker.loop, "minicluster")
        self._wish: _Wish | None = None
        self._calling = False
        self._granted: int | None = None
        self._reporter = Reporter(broker, client)

    def report(self) -> dict[str, Any]:
        """Return the service, the size it granted last, and the end of its certificate."""
        return {
            "target": self._client.target,
            "cluster": self._client.cluster,
            # Its name before.
            "member": self._client.cluster,
            "granted": self._granted,
            "t_expires": self._client.t_expires,
        }

    def start(
        self,
        fleet: BrokerFleet,
        ranks: Set[int],
        after: Set[int],
        failed: Callable[[Set[int], str], None],
    ) -> None:
        """Request the size that includes all these ranks."""
        run(self._start(ranks, max(after) + 1, failed))

    def _start(self, ranks: Set[int], size: int, failed: Callable[[Set[int], str], None]) -> Steps:
        try:
            granted = yield partial(self._ask, size, _nothing)
        except OSError as error:
            failed(ranks, sentence(error))
            return
        lacking = {rank for rank in ranks if rank >= granted}
        if lacking:
            failed(lacking, f"the gRPC service grants no more than {granted} nodes")

    def stop(self, fleet: BrokerFleet, ranks: Set[int], after: Set[int], report: Report) -> None:
        """Request the size that excludes these ranks."""
        run(self._stop(fleet, ranks, max(after) + 1, report))

    def _stop(self, fleet: BrokerFleet, ranks: Set[int], size: int, report: Report) -> Steps:
        try:
            granted = yield partial(self._ask, size, partial(fleet.stops, ranks))
            if granted > min(ranks):
                raise OSError(errno.EIO, f"the gRPC service keeps {granted} nodes")
        except OSError as error:
            fleet.stays(ranks)
            report(error)

    def withdraw(self, size: int) -> None:
        """Request the present size: a pod that comes late would take a node for nothing."""
        self._ask(size, _nothing, _nothing)

    def abandon(self) -> None:
        """Stop requesting a size: the change is over."""
        self._wish = None
        self.trouble = None

    def close(self) -> None:
        """Close the connection, and end the threads."""
        self._reporter.close()
        self._thread.close()
        self._client.close()

    # -- requests ----------------------------------------------------------------------

    def _ask(self, size: int, asking: Callable[[], None], done: Resume) -> None:
        self._wish = wish = _Wish(size, asking, done)
        self._try(wish)

    def _try(self, wish: _Wish) -> None:
        if wish is self._wish and not self._calling:
            self._calling = True
            wish.asking()
            self._thread.call(partial(self._scale, wish.size), partial(self._answered, wish))

    def _scale(self, size: int) -> int:
        return self._client.scale(size).size

    def _answered(self, wish: _Wish, result: int | Exception) -> None:
        self._calling = False
        if wish is not self._wish:
            # A request that was made meanwhile has waited for this answer.
            if self._wish is not None:
                self._try(self._wish)
        elif not isinstance(result, Exception):
            self._wish = self.trouble = None
            self._granted = result
            wish.done(result)
        elif isinstance(result, RpcError) and result.code in PASSING:
            self.trouble = str(result)
            self._broker.loop.timer(wish.pause, partial(self._try, wish))
            wish.pause = min(2 * wish.pause, LONGEST_PAUSE)
        else:
            if not isinstance(result, RpcError):
                self._broker.report(result)
            self._wish = self.trouble = None
            wish.done(OSError(errno.EIO, str(result)))


def _nothing(_: object = None) -> None:
    """Ignore the result: no caller waits for it."""


def make_provisioner(
    broker: Broker, settings: Mapping[str, str], start_seconds: float
) -> MiniCluster:
    """Make the provisioner of the scaler "minicluster".

    Args:
        broker: of the instance.
        settings: keys of [ensemble] that only this scaler has.
        start_seconds: that the service may take to start or to stop brokers.

    Raises:
        ValueError: a file is missing or not usable; a sentence.
    """
    client = connect(
        settings["grpc-target"],
        settings.get("grpc-cluster", ""),
        cert=settings.get("tls-cert", ""),
        key=settings.get("tls-key", ""),
        ca=settings.get("tls-ca", ""),
    )
    return MiniCluster(broker, client, start_seconds=start_seconds)
