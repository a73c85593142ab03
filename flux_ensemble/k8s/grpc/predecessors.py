"""The service for clients of ensemble-python (`protocol/predecessors.proto`).

A request never fails as a call, because those clients do not check that. Instead the error is in
the status of the response, and its sentence in the payload as {"error": SENTENCE}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from grpc import StatusCode

from flux_ensemble.k8s.grpc.admission import AdmittedCall, CallKind
from flux_ensemble.k8s.grpc.calls import Method, once
from flux_ensemble.k8s.grpc.errors import RequestProblem
from flux_ensemble.k8s.grpc.operations import Operations
from flux_ensemble.k8s.grpc.protocol import predecessors_pb2 as pb
from flux_ensemble.k8s.grpc.requests import json_object

#: Types of a cluster that the clients may send; ensemble-python sends the plural.
TYPES = ("minicluster", "miniclusters", "flux")

#: Custom resource that a client of ensemble-python names.
RESOURCE = {"group": "flux-framework.org", "version": "v1alpha2"}

_STATUS = {
    StatusCode.UNAUTHENTICATED: pb.Response.DENIED,
    StatusCode.PERMISSION_DENIED: pb.Response.DENIED,
    StatusCode.FAILED_PRECONDITION: pb.Response.DENIED,
    StatusCode.ALREADY_EXISTS: pb.Response.EXISTS,
}


class PredecessorService:
    """Answers the requests of `protocol/predecessors.proto`.

    Args:
        operations: perform the requests.
    """

    #: The service's full name.
    name = pb.DESCRIPTOR.services_by_name["EnsembleOperator"].full_name

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def methods(self) -> dict[str, Method]:
        """Return the methods by full name."""
        return {
            f"/{self.name}/RequestStatus": Method(
                CallKind.REQUEST, pb.StatusRequest, once(self._status), _failed
            ),
            f"/{self.name}/RequestAction": Method(
                CallKind.REQUEST, pb.ActionRequest, once(self._action), _failed
            ),
        }

    async def _status(self, call: AdmittedCall, request: pb.StatusRequest) -> pb.Response:
        _check_type(request.member)
        status = await self._operations.status(call, request.name, None)
        return _done({"member": status["cluster"], **status})

    async def _action(self, call: AdmittedCall, request: pb.ActionRequest) -> pb.Response:
        _check_type(request.member)
        payload = json_object(request.payload, "payload") if request.payload else {}
        match request.action:
            case "grow" | "shrink":
                by = _change(request.action, payload)
                grant = await self._operations.scale(call, request.name, by=by)
                return _done({"before": grant.before, "size": grant.size})
            case "submit":
                return _done(await self._submit(call, request.name, payload))
            case unknown:
                raise _invalid(f"unknown action {unknown!r} (actions: grow, shrink, submit)")

    async def _submit(
        self, call: AdmittedCall, cluster: str, payload: Mapping[str, Any]
    ) -> dict[str, Any]:
        unknown = payload.keys() - {"ensemble", "group", "count", "params", *RESOURCE}
        if unknown:
            raise _invalid(
                f"payload of submit: unknown key {min(unknown)!r} "
                "(keys: ensemble, group, count, params)"
            )
        for key in ("ensemble", "group"):
            if not isinstance(payload.get(key), str):
                raise _invalid(
                    f"payload of submit: {key}: expected a string, not {payload.get(key)!r}"
                )
        return await self._operations.submit(
            call,
            cluster,
            payload["ensemble"],
            payload["group"],
            payload.get("count"),
            payload.get("params"),
        )


def _done(payload: Mapping[str, Any]) -> pb.Response:
    return pb.Response(payload=json.dumps(payload), status=pb.Response.SUCCESS)


def _failed(problem: RequestProblem) -> pb.Response:
    status = _STATUS.get(problem.code, pb.Response.ERROR)
    return pb.Response(payload=json.dumps({"error": str(problem)}), status=status)


def _check_type(kind: str) -> None:
    if kind not in TYPES:
        raise _invalid(f"unknown type of cluster {kind!r} (types: {', '.join(TYPES)})")


def _change(action: str, payload: Mapping[str, Any]) -> int:
    """Return the change of size that a payload requests.

    Without a number it is 1. A shrink may be a negative number, as in ensemble-python.
    """
    for key, expected in RESOURCE.items():
        if payload.get(key, expected) != expected:
            raise _invalid(
                f"payload of {action}: {key}: expected {expected!r}, not {payload[key]!r}"
            )
    number = payload.get(action)
    if number is None:
        number = 1
    if type(number) is not int or not number or (number < 0 and action == "grow"):
        raise _invalid(
            f"payload of {action}: {action}: expected a number of nodes, 1 or more, "
            f"not {payload[action]!r}"
        )
    return number if action == "grow" else -abs(number)


def _invalid(sentence: str) -> RequestProblem:
    return RequestProblem(StatusCode.INVALID_ARGUMENT, sentence)
