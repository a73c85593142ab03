"""gRPC's services for health and reflection.

`Health.Watch` is not implemented. The health changes only when the server ends, and a client
without that method considers the server healthy, as gRPC specifies.
"""

from __future__ import annotations

from collections.abc import Sequence

from grpc import StatusCode
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from flux_ensemble.k8s.grpc.admission import AdmittedCall, CallKind
from flux_ensemble.k8s.grpc.calls import Method, once
from flux_ensemble.k8s.grpc.errors import RequestProblem

_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class Health:
    """The service `grpc.health.v1.Health`.

    Args:
        services: full names of the services to report, besides the server as a whole.
    """

    def __init__(self, services: Sequence[str]) -> None:
        self._services = ("", *services)
        self._status = health_pb2.HealthCheckResponse.SERVING

    def methods(self) -> dict[str, Method]:
        """Return the methods by full name."""
        check = Method(CallKind.CHECK, health_pb2.HealthCheckRequest, once(self._check))
        return {f"/{_HEALTH}/Check": check}

    def stop(self) -> None:
        """Report everything as not serving."""
        self._status = health_pb2.HealthCheckResponse.NOT_SERVING

    async def _check(
        self, call: AdmittedCall, request: health_pb2.HealthCheckRequest
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in self._services:
            raise RequestProblem(
                StatusCode.NOT_FOUND, f"no service is named {request.service[:80]!r}"
            )
        return health_pb2.HealthCheckResponse(status=self._status)


class Reflection:
    """The service `grpc.reflection.v1alpha.ServerReflection`.

    Args:
        services: full names of the services to list, besides health and itself.
    """

    def __init__(self, services: Sequence[str]) -> None:
        names = (*services, _HEALTH, reflection.SERVICE_NAME)
        self._servicer = reflection.ReflectionServicer(names)

    def methods(self) -> dict[str, Method]:
        """Return the methods by full name."""
        info = Method(
            CallKind.REFLECTION,
            reflection_pb2.ServerReflectionRequest,
            once(self._info),
            many=True,
        )
        return {f"/{reflection.SERVICE_NAME}/ServerReflectionInfo": info}

    async def _info(
        self, call: AdmittedCall, request: reflection_pb2.ServerReflectionRequest
    ) -> reflection_pb2.ServerReflectionResponse:
        return next(self._servicer.ServerReflectionInfo(iter([request]), None))
