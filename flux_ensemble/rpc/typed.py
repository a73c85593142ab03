"""The service `flux_ensemble.v1.EnsembleService`: messages to operations and back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from google.protobuf import json_format
from grpc import StatusCode

from flux_ensemble.rpc.answers import as_problem, json_object
from flux_ensemble.rpc.gate import Gate
from flux_ensemble.rpc.operations import Operations
from flux_ensemble.rpc.problems import Problem
from flux_ensemble.rpc.protocol import SAID_BY_SERVICE
from flux_ensemble.rpc.protocol import ensemble_pb2 as pb
from flux_ensemble.rpc.protocol import ensemble_pb2_grpc as api


class TypedService(api.EnsembleServiceServicer):
    """Answers the requests of `protocol/ensemble.proto`.

    Args:
        operations: what does them.
        gate: what bounds them.
    """

    def __init__(self, operations: Operations, gate: Gate) -> None:
        self._operations = operations
        self._gate = gate

    async def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusResponse:
        async with _aborting(context), self._gate.request(context) as call:
            status = await self._operations.status(
                call, request.member, request.ensemble or None, size_only=request.size_only
            )
            response = pb.StatusResponse()
            # The fields have the names of the service's keys; it may have more of them.
            json_format.ParseDict(status, response, ignore_unknown_fields=True)
        return response

    async def Submit(self, request: pb.SubmitRequest, context: Any) -> pb.SubmitResponse:
        async with _aborting(context), self._gate.request(context) as call:
            _require(request, "ensemble", "group")
            ids = await self._operations.submit(
                call,
                request.member,
                request.ensemble,
                request.group,
                request.count if request.HasField("count") else None,
                json_object(request.params, "params") if request.params else None,
            )
        return pb.SubmitResponse(ids=ids)

    async def Action(self, request: pb.ActionRequest, context: Any) -> pb.ActionResponse:
        async with _aborting(context), self._gate.request(context) as call:
            match request.WhichOneof("what"):
                case "scale":
                    return await self._scale(call, request)
                case "ensemble":
                    _require(request.ensemble, "name", "action")
                    action = json_object(request.ensemble.action, "action")
                    result = await self._operations.action(
                        call, request.member, request.ensemble.name, action
                    )
                    performed = pb.Performed(firing=result["firing"], ids=result.get("ids", ()))
                    return pb.ActionResponse(performed=performed)
                case _:
                    raise _missing("scale or ensemble")
        raise AssertionError("_aborting does not return")

    async def Log(self, request: pb.LogRequest, context: Any) -> None:
        async with _aborting(context), self._gate.stream(context) as call:
            _require(request, "ensemble")
            entries = self._operations.log(
                call,
                request.member,
                request.ensemble,
                follow=request.follow,
                events=request.events,
            )
            async with aclosing(entries):
                async for entry in entries:
                    await context.write(
                        pb.LogEntry(
                            timestamp=entry["timestamp"],
                            name=entry["name"],
                            context=json.dumps(entry.get("context", {})),
                        )
                    )

    async def _scale(self, call: Any, request: pb.ActionRequest) -> pb.ActionResponse:
        scale = request.scale
        match scale.WhichOneof("size"):
            case "to":
                grant = await self._operations.scale(call, request.member, to=scale.to)
            case "by":
                grant = await self._operations.scale(call, request.member, by=scale.by)
            case _:
                raise _missing("scale.to or scale.by")
        return pb.ActionResponse(scaled=pb.Scaled(before=grant.before, size=grant.size))


@asynccontextmanager
async def _aborting(context: Any) -> AsyncIterator[None]:
    """Ends the request with a status code and a sentence if the body fails."""
    try:
        yield
    except Exception as exc:
        found = as_problem(exc)
        await context.abort(found.code, str(found), SAID_BY_SERVICE)


def _require(request: Any, *fields: str) -> None:
    for field in fields:
        if not getattr(request, field):
            raise _missing(field)


def _missing(field: str) -> Problem:
    return Problem(StatusCode.INVALID_ARGUMENT, f"the request has no {field}")
