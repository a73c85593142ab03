"""The service that clients of ensemble-python speak to (`protocol/predecessors.proto`).

A request never fails as a call, because those clients do not look: what went wrong is in
the status of the response, and its sentence in the payload as {"error": SENTENCE}.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from grpc import StatusCode

from flux_ensemble.rpc.answers import as_problem, json_object
from flux_ensemble.rpc.gate import Call, Gate
from flux_ensemble.rpc.operations import Operations
from flux_ensemble.rpc.problems import Problem
from flux_ensemble.rpc.protocol import predecessors_pb2 as pb
from flux_ensemble.rpc.protocol import predecessors_pb2_grpc as api

#: What the clients may call the type of a member; ensemble-python sends the plural.
TYPES = ("minicluster", "miniclusters", "flux")

#: What a client of ensemble-python says of the custom resource that it means.
RESOURCE = {"group": "flux-framework.org", "version": "v1alpha2"}

_STATUS = {
    StatusCode.PERMISSION_DENIED: pb.Response.DENIED,
    StatusCode.FAILED_PRECONDITION: pb.Response.DENIED,
    StatusCode.ALREADY_EXISTS: pb.Response.EXISTS,
}


class PredecessorService(api.EnsembleOperatorServicer):
    """Answers the requests of `protocol/predecessors.proto`.

    Args:
        operations: what does them.
        gate: what bounds them.
    """

    def __init__(self, operations: Operations, gate: Gate) -> None:
        self._operations = operations
        self._gate = gate

    async def RequestStatus(self, request: pb.StatusRequest, context: Any) -> pb.Response:
        async def status(call: Call) -> Mapping[str, Any]:
            _check_type(request.member)
            return await self._operations.status(call, request.name, None)

        return await self._answer(context, status)

    async def RequestAction(self, request: pb.ActionRequest, context: Any) -> pb.Response:
        async def action(call: Call) -> Mapping[str, Any]:
            _check_type(request.member)
            payload = json_object(request.payload, "payload") if request.payload else {}
            match request.action:
                case "grow" | "shrink":
                    by = _change(request.action, payload)
                    grant = await self._operations.scale(call, request.name, by=by)
                    return {"before": grant.before, "size": grant.size}
                case "submit":
                    return {"ids": await self._submit(call, request.name, payload)}
                case unknown:
                    raise _invalid(f"unknown action {unknown!r} (actions: grow, shrink, submit)")

        return await self._answer(context, action)

    async def _answer(
        self, context: Any, work: Callable[[Call], Awaitable[Mapping[str, Any]]]
    ) -> pb.Response:
        try:
            async with self._gate.request(context) as call:
                payload = await work(call)
        except Exception as exc:
            found = as_problem(exc)
            status = _STATUS.get(found.code, pb.Response.ERROR)
            return pb.Response(payload=json.dumps({"error": str(found)}), status=status)
        return pb.Response(payload=json.dumps(payload), status=pb.Response.SUCCESS)

    async def _submit(self, call: Call, member: str, payload: Mapping[str, Any]) -> list[int]:
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
            member,
            payload["ensemble"],
            payload["group"],
            payload.get("count"),
            payload.get("params"),
        )


def _check_type(kind: str) -> None:
    if kind not in TYPES:
        raise _invalid(f"unknown type of member {kind!r} (types: {', '.join(TYPES)})")


def _change(action: str, payload: Mapping[str, Any]) -> int:
    """The change of size that a payload asks for.

    Without a number it is 1. A shrink may be given as a negative number, as ensemble-python
    takes it.
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


def _invalid(sentence: str) -> Problem:
    return Problem(StatusCode.INVALID_ARGUMENT, sentence)
