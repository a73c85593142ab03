"""The server: both protocols, health and reflection, on one port.

    await serve(members, DryRun(), host="localhost", port=50051, ready=print)

Everything runs on one event loop and nothing in it blocks; what does block runs on lanes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from flux_ensemble.rpc.backends.base import Backend
from flux_ensemble.rpc.gate import Gate, Limits
from flux_ensemble.rpc.members import Members
from flux_ensemble.rpc.operations import Operations
from flux_ensemble.rpc.predecessors import PredecessorService
from flux_ensemble.rpc.protocol import (
    ensemble_pb2,
    ensemble_pb2_grpc,
    predecessors_pb2,
    predecessors_pb2_grpc,
)
from flux_ensemble.rpc.tls import TlsFiles
from flux_ensemble.rpc.typed import TypedService

#: How long open requests may go on when the server stops, in seconds.
_GRACE_SECONDS = 5.0

#: Requests of health and reflection, beyond those of the two protocols. gRPC itself refuses
#: more, without a sentence.
_SPARE_REQUESTS = 64

#: The full names of the two services.
SERVICES = (
    ensemble_pb2.DESCRIPTOR.services_by_name["EnsembleService"].full_name,
    predecessors_pb2.DESCRIPTOR.services_by_name["EnsembleOperator"].full_name,
)


#: Where gRPC logs what it could not do for a request.
_GRPC_LOG = logging.getLogger("grpc._cython.cygrpc")


class ServerError(Exception):
    """The server cannot start; the text is one sentence."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def serve(
    members: Members,
    backend: Backend | None,
    *,
    host: str,
    port: int,
    ready: Callable[[int], None],
    stop: asyncio.Event,
    tls: TlsFiles | None = None,
    insecure: bool = False,
    limits: Limits | None = None,
) -> None:
    """Serves until `stop` is set.

    Args:
        members: the table of members.
        backend: what changes their size, if anything does.
        host: a name or address of this machine.
        port: 0 chooses a free one.
        ready: called with the port when the server answers.
        stop: ends it; requests that are open may go on for some seconds.
        tls: the server's files; None is plaintext.
        insecure: allows plaintext on a host that other machines can connect to.
        limits: bounds of the requests; default: `Limits()`.

    Raises:
        ServerError: plaintext is not allowed there, or the port is taken.
        TlsError: the files are not usable.
    """
    if tls is None and not insecure and not is_loopback(host):
        raise ServerError(
            f"host {host!r} can be reached from other machines: give --tls-cert, --tls-key and "
            "--tls-ca, or write out --insecure"
        )
    limits = limits or Limits()
    # Once, however often this is called: a logger has a filter once.
    _GRPC_LOG.addFilter(_client_is_there)
    server = _server(limits)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    # Both raise RuntimeError where the port cannot be had.
    try:
        if tls is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, tls.server_credentials())
    except RuntimeError as exc:
        raise ServerError(
            f"cannot listen at {address}: the port is taken, or the host is not this machine's"
        ) from exc
    operations = Operations(members, backend, tls.expires() if tls else None)
    checks = await _add_services(server, operations, Gate(limits, tls=tls is not None))
    await server.start()
    ready(bound)
    try:
        await stop.wait()
    finally:
        await checks.enter_graceful_shutdown()
        await server.stop(_GRACE_SECONDS)
        operations.close()


def _client_is_there(record: logging.LogRecord) -> bool:
    """Keeps out of the log that an answer could not be sent.

    The client has gone (both sides have its deadline), and gRPC says so with a traceback if
    it has not heard of that before. The exception has no public name.
    """
    error = record.exc_info[1] if record.exc_info else None
    return type(error).__name__ != "ExecuteBatchError"


def _server(limits: Limits) -> grpc.aio.Server:
    return grpc.aio.server(
        maximum_concurrent_rpcs=limits.requests + limits.streams + _SPARE_REQUESTS,
        options=[
            ("grpc.max_receive_message_length", limits.message_bytes),
            ("grpc.max_send_message_length", limits.message_bytes),
            # Else a second server on the port would take half of the requests.
            ("grpc.so_reuseport", 0),
        ],
    )


async def _add_services(
    server: grpc.aio.Server, operations: Operations, gate: Gate
) -> health.aio.HealthServicer:
    ensemble_pb2_grpc.add_EnsembleServiceServicer_to_server(TypedService(operations, gate), server)
    predecessors_pb2_grpc.add_EnsembleOperatorServicer_to_server(
        PredecessorService(operations, gate), server
    )
    checks = health.aio.HealthServicer()
    for name in SERVICES:
        await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    reflection.enable_server_reflection(
        (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server
    )
    return checks
