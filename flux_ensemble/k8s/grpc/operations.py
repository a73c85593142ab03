"""The operations on clusters, for both protocols."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

from grpc import StatusCode

from flux_ensemble.client.guests import status_for_guests
from flux_ensemble.client.responses import Entry
from flux_ensemble.k8s.grpc.admission import AdmittedCall
from flux_ensemble.k8s.grpc.backend import Backend, BackendError, Grant, Report
from flux_ensemble.k8s.grpc.clusters import Cluster, Clusters
from flux_ensemble.k8s.grpc.errors import RequestProblem, problem
from flux_ensemble.k8s.grpc.instances import ClusterInstance
from flux_ensemble.k8s.grpc.requests import check_plain
from flux_ensemble.k8s.grpc.threads import Lane

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Calls of the back end for one cluster that run at once, and that may wait. Together they are more
#: than one client may have open, so that a client cannot keep the others out.
_THREADS = 4
_WAITING = 124

#: Share of the time of a status request that its parts may take: the result has yet to be sent.
_STATUS_SHARE = 0.8

#: Keys of an action by which a client can choose what runs, as by a document: LD_PRELOAD and PATH,
#: files in a directory, and the options of the shell that starts the job.
_RUNNING = ("environment", "workdir", "attributes")

#: Codes with which a part of a status is left out; any other code fails the request.
_OUT_OF_REACH = {
    StatusCode.UNAVAILABLE,
    StatusCode.DEADLINE_EXCEEDED,
    StatusCode.FAILED_PRECONDITION,
}


class Expiring(Protocol):
    """A certificate, which may be renewed."""

    @property
    def t_expires(self) -> float:
        """The time when it expires, in epoch seconds."""
        ...


class Operations:
    """Performs requests, each for one cluster.

    Args:
        clusters: the table of clusters.
        backend: changes their size; None if nothing does.
        certificate: the server's, with its current validity; None without TLS.
        allow_load: clients may load documents.
    """

    def __init__(
        self,
        clusters: Clusters,
        backend: Backend | None,
        certificate: Expiring | None = None,
        *,
        allow_load: bool = False,
    ) -> None:
        self._clusters = clusters
        self._backend = backend
        self._certificate = certificate
        self._allow_load = allow_load
        self._lane = _lane("the back end")
        # A back end may send requests to each cluster: one that hangs must not keep others waiting.
        self._lanes = {name: _lane(f"the back end of cluster {name!r}") for name in clusters.listed}
        self._instances = {
            name: ClusterInstance(cluster)
            for name, cluster in clusters.listed.items()
            if cluster.has_flux
        }

    async def status(
        self, call: AdmittedCall, cluster: str, ensemble: str | None, *, size_only: bool = False
    ) -> dict[str, Any]:
        """Return the status of a cluster, with errors in place of unknown parts.

        Args:
            call: the request.
            cluster: the cluster's name.
            ensemble: only this ensemble; None for all.
            size_only: send no request to its Flux instance, and fail if the size is unknown.

        Returns:
            `cluster`; `size` as {nodes, minimum, maximum}, or `size_error`; the response to the
            status request of docs/rpc.md, as guests see it where the client does not say who it is,
            or `flux_error`; `t_certificate_expires` with TLS.

        Raises:
            Problem: UNAVAILABLE, nothing is known.
            EnsembleError: the ensemble service refuses the request.
            BackendError: the size is unknown, and only the size was requested; or the back end
                knows no such cluster.
        """
        target = self._find(call, cluster)
        now = time.monotonic()
        deadline = now + _STATUS_SHARE * (call.deadline - now)
        known: dict[str, Any] = {"cluster": target.name}
        if self._certificate is not None:
            known["t_certificate_expires"] = self._certificate.t_expires
        if size_only:
            return known | await self._size(target, deadline)
        size, flux = await asyncio.gather(
            _or_error("size_error", self._size, target, deadline),
            _or_error("flux_error", self._flux_status, target, ensemble, deadline),
        )
        if "size_error" in size and "flux_error" in flux:
            raise RequestProblem(
                StatusCode.UNAVAILABLE, f"{flux['flux_error']}; {size['size_error']}"
            )
        if not call.known and "flux_error" not in flux:
            flux = status_for_guests(flux)
        return known | size | flux

    async def submit(
        self,
        call: AdmittedCall,
        cluster: str,
        ensemble: str,
        group: str,
        count: int | None,
        params: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        """Submit a job group of an ensemble once more, and return the result of `submitted`."""
        instance = self._instance(self._find_for(call, cluster))
        payload = {"name": ensemble, "group": group, "count": count, "params": params}
        for key, value in payload.items():
            check_plain(value, key)
        result: dict[str, Any] = await instance.call("submit", payload, call.deadline)
        return submitted(result)

    async def action(
        self, call: AdmittedCall, cluster: str, ensemble: str, action: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Perform one action of an ensemble; return {firing}, and the result of `submitted`.

        Raises:
            Problem: PERMISSION_DENIED, it would change the commands of the jobs.
        """
        target = self._find_for(call, cluster)
        if not self._allow_load:
            _check_harmless(action)
        instance = self._instance(target)
        payload = {"name": ensemble, "action": action}
        check_plain(action, "action")
        result: dict[str, Any] = await instance.call("action", payload, call.deadline)
        return result

    async def of_ensemble(
        self, op: str, call: AdmittedCall, cluster: str, ensemble: str
    ) -> dict[str, Any]:
        """Send a request that names an ensemble and has no other keys: `metrics`, `pause`, ..."""
        instance = self._instance(self._find_for(call, cluster))
        check_plain(ensemble, "name")
        result: dict[str, Any] = await instance.call(op, {"name": ensemble}, call.deadline)
        return result

    async def load(
        self,
        call: AdmittedCall,
        cluster: str,
        document: str,
        *,
        name: str | None,
        cwd: str,
        environment: Mapping[str, str],
        workers: int | None = None,
    ) -> dict[str, Any]:
        """Load a document, and return {name, state}.

        Args:
            call: the request.
            cluster: the cluster's name.
            document: its text.
            name: of the ensemble; None is the document's.
            cwd: the working directory of its jobs.
            environment: of its jobs.
            workers: run the jobs as tasks of so many workers.

        Raises:
            Problem: PERMISSION_DENIED, clients may not load documents; INVALID_ARGUMENT.
        """
        target = self._find_for(call, cluster)
        if not self._allow_load:
            raise RequestProblem(
                StatusCode.PERMISSION_DENIED,
                "this gRPC service lets no client load documents, which run commands of the "
                "client's choice: 'grpc start --allow-load' does",
            )
        instance = self._instance(target)
        if not cwd.startswith("/"):
            raise RequestProblem(
                StatusCode.INVALID_ARGUMENT, f"cwd: expected an absolute path, not {cwd[:80]!r}"
            )
        payload: dict[str, Any] = {
            "text": document, "name": name, "cwd": cwd, "environment": dict(environment)
        }  # fmt: skip
        check_plain(payload["environment"], "environment")
        if workers is not None:
            payload["workers"] = workers
        loaded: dict[str, Any] = await instance.call("load", payload, call.deadline)
        log.info("loaded ensemble %r in cluster %r", loaded["name"], target.name)
        return loaded

    async def scale(
        self, call: AdmittedCall, cluster: str, *, to: int | None = None, by: int | None = None
    ) -> Grant:
        """Change the size of a cluster.

        Raises:
            BackendError: see `Backend.scale`.
            Problem: FAILED_PRECONDITION, there is no back end; DEADLINE_EXCEEDED.
        """
        name = self._find(call, cluster).name
        backend = self._backend
        if backend is None:
            raise RequestProblem(StatusCode.FAILED_PRECONDITION, _no_backend(name))
        asked = f"to {to}" if to is not None else f"by {by:+d}"
        try:
            grant = await self._blocking(
                name,
                lambda: backend.scale(name, deadline=call.deadline, to=to, by=by),
                call.deadline,
            )
        except BackendError as exc:
            log.info("scale cluster %r %s: no: %s", name, asked, exc)
            raise
        log.info("scale cluster %r %s: from %d to %d", name, asked, grant.before, grant.size)
        return grant

    async def report(self, call: AdmittedCall, cluster: str, report: Report) -> None:
        """Pass on what a cluster says of its nodes and its queue.

        Raises:
            BackendError: see `Backend.report`.
            Problem: FAILED_PRECONDITION, there is no back end; DEADLINE_EXCEEDED.
        """
        name = self._find_for(call, cluster).name
        backend = self._backend
        if backend is None:
            raise RequestProblem(StatusCode.FAILED_PRECONDITION, _no_backend(name))
        await self._blocking(
            name, lambda: backend.report(name, report, call.deadline), call.deadline
        )

    def log(
        self, call: AdmittedCall, cluster: str, ensemble: str, *, follow: bool, events: bool
    ) -> AsyncGenerator[Entry, None]:
        """Return the entries of an ensemble's eventlog."""
        instance = self._instance(self._find_for(call, cluster))
        return instance.log(ensemble, follow=follow, events=events)

    def close(self) -> None:
        """End the threads."""
        for lane in (self._lane, *self._lanes.values()):
            lane.close()
        for instance in self._instances.values():
            instance.close()

    def _find_for(self, call: AdmittedCall, requested: str) -> Cluster:
        """Return the cluster of a request that only authenticated clients may send."""
        call.check_known()
        return self._find(call, requested)

    def _find(self, call: AdmittedCall, requested: str) -> Cluster:
        name = self._clusters.name(requested, call.clusters)
        # Checked first, so that a client does not learn which other clusters there are.
        call.check_cluster(name, self._clusters.canonical, explicit=bool(requested))
        return self._clusters.find(name, call.clusters)

    def _instance(self, cluster: Cluster) -> ClusterInstance:
        if not cluster.has_flux:
            raise RequestProblem(StatusCode.FAILED_PRECONDITION, _no_flux(cluster.name))
        return self._instances[cluster.name]

    async def _size(self, cluster: Cluster, deadline: float) -> dict[str, Any]:
        backend = self._backend
        if backend is None:
            raise RequestProblem(StatusCode.FAILED_PRECONDITION, _no_backend(cluster.name))
        size = await self._blocking(
            cluster.name, lambda: backend.size(cluster.name, deadline), deadline
        )
        return {"size": asdict(size)}

    async def _flux_status(
        self, cluster: Cluster, ensemble: str | None, deadline: float
    ) -> dict[str, Any]:
        status: dict[str, Any] = await self._instance(cluster).call(
            "status", {"name": ensemble}, deadline
        )
        return status

    async def _blocking(self, cluster: str, call: Callable[[], T], deadline: float) -> T:
        # Any number of clusters may be unlisted, but all of them are of one back end.
        lane = self._lanes.get(cluster, self._lane)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await lane.run(call)
        except TimeoutError:
            raise RequestProblem(
                StatusCode.DEADLINE_EXCEEDED, "the back end did not answer in time"
            ) from None


async def _or_error(
    key: str, part: Callable[..., Awaitable[dict[str, Any]]], *arguments: Any
) -> dict[str, Any]:
    """Return a part of a status, or {key: SENTENCE} if it is out of reach."""
    try:
        return await part(*arguments)
    except Exception as exc:
        sentence = _out_of_reach(exc)
        if sentence is None:
            raise
        return {key: sentence}


def _out_of_reach(exc: Exception) -> str | None:
    """Return the sentence of an exception that leaves out a part of a status, or None."""
    refusal = problem(exc)
    return str(refusal) if refusal is not None and refusal.code in _OUT_OF_REACH else None


def _check_harmless(action: Mapping[str, Any]) -> None:
    """Check that an action keeps the document's commands, environment and directories of jobs.

    Raises:
        Problem: PERMISSION_DENIED.
    """
    for key in _RUNNING:
        if key in action:
            raise RequestProblem(
                StatusCode.PERMISSION_DENIED,
                f"action: {key!r} can make jobs run commands of the client's choice, which this "
                "gRPC service lets no client do: 'grpc start --allow-load' does",
            )


def _lane(name: str) -> Lane:
    return Lane(name, threads=_THREADS, waiting=_WAITING)


def submitted(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the response about submitted jobs: {ids, members?, waiting?}."""
    return {key: result[key] for key in ("ids", "members", "waiting") if key in result}


def _no_backend(cluster: str) -> str:
    return f"cluster {cluster!r} has a fixed size: the gRPC service runs without --backend"


def _no_flux(cluster: str) -> str:
    return (
        f"the gRPC service has no connection to the Flux instance of cluster {cluster!r}: "
        "--cluster NAME=URI gives it one"
    )
