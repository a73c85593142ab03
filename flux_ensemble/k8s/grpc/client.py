"""Client of the gRPC service `flux_ensemble.v1`, with retries.

    with RpcClient("localhost:50051", cluster="default/ensemble") as client:
        grant = client.grow(2)
        print(grant.before, grant.size)

It needs gRPC, but not Flux. Idempotent requests are retried with a growing pause until their
timeout; other requests only if they certainly have not started.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from flux_ensemble.job_ids import JobIds
from flux_ensemble.k8s.grpc.backend import Grant, Refused, Size, target
from flux_ensemble.k8s.grpc.protocol import SAID_BY_SERVICE
from flux_ensemble.k8s.grpc.protocol import ensemble_pb2 as pb
from flux_ensemble.k8s.grpc.protocol import ensemble_pb2_grpc as api
from flux_ensemble.k8s.grpc.tls import Reloaded, TlsFiles
from flux_ensemble.renamed import takes_old_arguments
from flux_ensemble.tokens import read_token

T = TypeVar("T")

#: The pause before the second attempt in seconds, and the longest one; it doubles in between.
_BACKOFF_SECONDS = 0.1
_LONGEST_SECONDS = 5.0

#: Codes after which nothing has been done, and a retry may succeed.
_NOT_BEGUN = {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ABORTED}

#: Code after which it is unknown whether anything has been done.
_UNKNOWN = grpc.StatusCode.UNAVAILABLE


class RpcError(Exception):
    """A request failed, with the status code and the service's sentence."""

    def __init__(self, code: grpc.StatusCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code

    @property
    def refused(self) -> bool:
        """The service refused the request, so that retrying does not help."""
        return self.code in (
            grpc.StatusCode.FAILED_PRECONDITION,
            grpc.StatusCode.PERMISSION_DENIED,
            grpc.StatusCode.UNAUTHENTICATED,
        )


class RpcClient:
    """A cluster of a gRPC service.

    Args:
        target: HOST:PORT of the service, or unix:PATH of its socket.
        cluster: the cluster's name; empty is the only one that the service has.
        tls: the client's files; None is plaintext.
        token_file: file with the token of the service, if there is one.
        timeout: seconds for a method with all its attempts.

    Attributes:
        t_expires: when the client's certificate expires, in epoch seconds; None in plaintext. Its
            files are read again when they change.

    Raises:
        TlsError: the files are not usable.
        TokenError: the file has no usable token.
    """

    @takes_old_arguments
    def __init__(
        self,
        target: str,
        *,
        cluster: str = "",
        tls: TlsFiles | None = None,
        token_file: str | Path | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.target = target
        self.cluster = cluster
        self.timeout = timeout
        self._files = None if tls is None else Reloaded(tls)
        self._metadata: tuple[tuple[str, str], ...] = ()
        if token_file is not None:
            token = read_token(Path(token_file))
            self._metadata = (("authorization", f"Bearer {token}"),)
        self._old: list[grpc.Channel] = []
        self._connect()

    def __enter__(self) -> RpcClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def t_expires(self) -> float | None:
        return None if self._files is None else self._files.t_expires

    def close(self) -> None:
        """Close the connection; open requests fail."""
        for channel in (self._channel, *self._old):
            channel.close()

    def _connect(self) -> None:
        if self._files is None:
            self._channel = grpc.insecure_channel(self.target)
        else:
            self._channel = grpc.secure_channel(self.target, self._files.channel_credentials())

    def _renewed(self) -> grpc.Channel:
        """Return a connection with the current certificate; streams of older ones continue."""
        if self._files is not None and self._files.renewed() is not None:
            self._old.append(self._channel)
            self._connect()
        return self._channel

    @property
    def _stub(self) -> Any:
        return api.EnsembleServiceStub(self._renewed())

    @property
    def _health(self) -> Any:
        return health_pb2_grpc.HealthStub(self._renewed())

    def status(self, ensemble: str = "") -> pb.StatusResponse:
        """Return the cluster's size, its Flux instance, and its ensembles or the one of that name.

        Raises:
            RpcError: see docs/grpc.md; so do all methods.
        """
        request = pb.StatusRequest(cluster=self.cluster, ensemble=ensemble)
        return self._again(self._stub.Status, request, time.monotonic() + self.timeout)

    def size(self) -> Size:
        """Return the cluster's intended size, and its bounds, without its ensembles."""
        return self._size(time.monotonic() + self.timeout)[1]

    def scale(self, to: int) -> Grant:
        """Change the cluster's size to `to` nodes, or as close as its bounds allow."""
        return self._scale(to, time.monotonic() + self.timeout)

    def grow(self, nodes: int = 1) -> Grant:
        """Add nodes, up to the upper bound."""
        return self._change(nodes)

    def shrink(self, nodes: int = 1) -> Grant:
        """Remove nodes, down to the lower bound."""
        return self._change(-nodes)

    def submit(
        self,
        ensemble: str,
        group: str,
        *,
        count: int | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> JobIds:
        """Submit a job group again; return the job ids once the queue has accepted them."""
        request = pb.SubmitRequest(
            cluster=self.cluster,
            ensemble=ensemble,
            group=group,
            count=count,
            params="" if params is None else json.dumps(dict(params)),
        )
        answer = self._once(self._stub.Submit, request)
        return JobIds(_submitted(answer))

    def action(self, ensemble: str, action: Mapping[str, Any]) -> dict[str, Any]:
        """Perform one action; return its firing number and, for submit, the job ids."""
        what = pb.EnsembleAction(name=ensemble, action=json.dumps(dict(action)))
        request = pb.ActionRequest(cluster=self.cluster, ensemble=what)
        performed = self._once(self._stub.Action, request).performed
        return {"firing": performed.firing, **_submitted(performed)}

    def metrics(self, ensemble: str) -> dict[str, Any]:
        """Return the counts and statistics of an ensemble, as `Client.metrics` does."""
        request = pb.MetricsRequest(cluster=self.cluster, ensemble=ensemble)
        deadline = time.monotonic() + self.timeout
        metrics: dict[str, Any] = json.loads(
            self._again(self._stub.Metrics, request, deadline).metrics
        )
        return metrics

    def pause(self, ensemble: str) -> str:
        """Keep the rules of an ensemble from acting until `resume`; return its state."""
        request = pb.PauseRequest(cluster=self.cluster, ensemble=ensemble)
        return self._again(self._stub.Pause, request, time.monotonic() + self.timeout).state

    def resume(self, ensemble: str) -> str:
        """Resume a paused ensemble; return its state."""
        request = pb.ResumeRequest(cluster=self.cluster, ensemble=ensemble)
        return self._again(self._stub.Resume, request, time.monotonic() + self.timeout).state

    def load(
        self,
        document: str,
        *,
        cwd: str,
        environment: Mapping[str, str],
        name: str | None = None,
        workers: int | None = None,
    ) -> str:
        """Load a document, which starts the ensemble.

        Args:
            document: its text, YAML or JSON.
            cwd: an absolute path in the cluster, the working directory of its jobs.
            environment: of its jobs.
            name: of the ensemble; default: the document's.
            workers: run the jobs as tasks of so many workers.

        Returns:
            The ensemble's name.
        """
        request = pb.LoadRequest(
            cluster=self.cluster,
            document=document,
            name=name or "",
            cwd=cwd,
            environment=environment,
            workers=workers,
        )
        return self._once(self._stub.Load, request).name

    def report(self, report: Mapping[str, Mapping[str, int]]) -> None:
        """Report what the cluster's own Flux instance has, for the status of its Ensemble.

        It is sent once: the next report replaces it.

        Args:
            report: numbers by "nodes" and "queue", as in the response to `ensemble.status`.
        """
        request = pb.ReportRequest(
            cluster=self.cluster,
            nodes=pb.Nodes(**report.get("nodes", {})),
            queue=pb.Queue(**report.get("queue", {})),
        )
        self._attempt(self._stub.Report, request, time.monotonic() + self.timeout, set())

    def log(
        self, ensemble: str, *, follow: bool = False, events: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield the entries of an ensemble's eventlog, oldest first.

        Args:
            ensemble: its name.
            follow: continue with new entries until the ensemble and its jobs have ended; then only
                the service limits the time.
            events: while following, also yield each job event, as an entry "job-event".
        """
        request = pb.LogRequest(
            cluster=self.cluster, ensemble=ensemble, follow=follow, events=events
        )
        timeout = None if follow else self.timeout
        stream = self._stub.Log(request, timeout=timeout, metadata=self._metadata)
        try:
            for entry in stream:
                yield {
                    "timestamp": entry.timestamp,
                    "name": entry.name,
                    "context": json.loads(entry.context),
                }
        except grpc.RpcError as exc:
            raise self._failure(exc) from exc
        finally:
            stream.cancel()

    def _size(self, deadline: float) -> tuple[str, Size]:
        """Return the cluster's full name, and its size."""
        request = pb.StatusRequest(cluster=self.cluster, size_only=True)
        status = self._again(self._stub.Status, request, deadline)
        return status.cluster, Size(status.size.nodes, status.size.minimum, status.size.maximum)

    def _change(self, by: int) -> Grant:
        """Make a change that is safe to retry: the size to change to is computed here."""
        deadline = time.monotonic() + self.timeout
        name, now = self._size(deadline)
        try:
            size = target(name, now, by=by)
        except Refused as exc:
            raise RpcError(grpc.StatusCode.FAILED_PRECONDITION, str(exc)) from exc
        # The change counts from the size that was read: an attempt whose response was lost may
        # already have changed the size.
        return Grant(now.nodes, self._scale(size, deadline).size)

    def _scale(self, to: int, deadline: float) -> Grant:
        request = pb.ActionRequest(cluster=self.cluster, scale=pb.Scale(to=to))
        scaled = self._again(self._stub.Action, request, deadline).scaled
        return Grant(scaled.before, scaled.size)

    def _again(self, method: Callable[..., T], request: Any, deadline: float) -> T:
        """Send a request that may be performed twice."""
        return self._attempt(method, request, deadline, _NOT_BEGUN | {_UNKNOWN})

    def _once(self, method: Callable[..., T], request: Any) -> T:
        """Send a request that must not be performed twice, once the service answers."""
        deadline = time.monotonic() + self.timeout
        self._again(self._health.Check, health_pb2.HealthCheckRequest(), deadline)
        return self._attempt(method, request, deadline, _NOT_BEGUN)

    def _attempt(
        self,
        method: Callable[..., T],
        request: Any,
        deadline: float,
        codes: set[grpc.StatusCode],
    ) -> T:
        """Send a request until it succeeds, fails with a code not in `codes`, or is late."""
        pause = _BACKOFF_SECONDS
        while True:
            try:
                timeout = max(0.0, deadline - time.monotonic())
                return method(request, timeout=timeout, metadata=self._metadata)
            except grpc.RpcError as exc:
                wait = random.uniform(pause / 2, pause)
                late = time.monotonic() + wait >= deadline
                if late or exc.code() not in codes or not _can_pass(exc):
                    raise self._failure(exc) from exc
            time.sleep(wait)
            pause = min(2 * pause, _LONGEST_SECONDS)

    def _failure(self, exc: grpc.RpcError) -> RpcError:
        code, said = exc.code(), exc.details() or "no reason given"
        if _is_from_service(exc):
            return RpcError(code, said)
        if _is_handshake(exc):
            return RpcError(
                code, f"{self.target} and this client do not accept each other's keys: {said}"
            )
        if code is _UNKNOWN:
            return RpcError(code, f"the gRPC service at {self.target} is not available: {said}")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return RpcError(
                code, f"the gRPC service at {self.target} did not answer in time: {said}"
            )
        return RpcError(code, said)


def _is_from_service(exc: grpc.RpcError) -> bool:
    """Return True if the service itself has raised this error."""
    metadata = exc.trailing_metadata() or ()
    return any(tuple(pair) in SAID_BY_SERVICE for pair in metadata)


def _can_pass(exc: grpc.RpcError) -> bool:
    """Return True if a retry may succeed, in cases that the status code does not distinguish.

    gRPC itself uses RESOURCE_EXHAUSTED also for a message that is too large, and distinguishes that
    from a server that is full only by the text.
    """
    if exc.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and not _is_from_service(exc):
        return (exc.details() or "").startswith("Concurrent RPC limit exceeded")
    return not _is_handshake(exc)


def _is_handshake(exc: grpc.RpcError) -> bool:
    """Return True if TLS failed; gRPC distinguishes that from an absent server only by the text."""
    said = (exc.details() or "").lower()
    return exc.code() is _UNKNOWN and not _is_from_service(exc) and "handshake" in said


def _submitted(answer: Any) -> dict[str, Any]:
    """Return the response about submitted jobs, as the service has it."""
    told: dict[str, Any] = {"ids": list(answer.ids)}
    if answer.members or answer.waiting:
        told |= {"members": list(answer.members), "waiting": answer.waiting}
    return told
