"""The service `flux_ensemble.v1.EnsembleService`: messages to operations and back."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from google.protobuf import json_format
from grpc import StatusCode

from flux_ensemble.k8s.grpc.admission import AdmittedCall, CallKind
from flux_ensemble.k8s.grpc.calls import Method, once
from flux_ensemble.k8s.grpc.errors import RequestProblem
from flux_ensemble.k8s.grpc.operations import Operations, submitted
from flux_ensemble.k8s.grpc.protocol import ensemble_pb2 as pb
from flux_ensemble.k8s.grpc.requests import json_object


class TypedService:
    """Answers the requests of `protocol/ensemble.proto`.

    Args:
        operations: perform the requests.
    """

    #: The service's full name.
    name = pb.DESCRIPTOR.services_by_name["EnsembleService"].full_name

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def methods(self) -> dict[str, Method]:
        """Return the methods by full name."""
        return {
            f"/{self.name}/Status": Method(CallKind.REQUEST, pb.StatusRequest, once(self._status)),
            f"/{self.name}/Submit": Method(CallKind.REQUEST, pb.SubmitRequest, once(self._submit)),
            f"/{self.name}/Action": Method(CallKind.REQUEST, pb.ActionRequest, once(self._action)),
            f"/{self.name}/Log": Method(CallKind.STREAM, pb.LogRequest, self._log),
            f"/{self.name}/Metrics": Method(
                CallKind.REQUEST, pb.MetricsRequest, once(self._metrics)
            ),
            f"/{self.name}/Pause": Method(CallKind.REQUEST, pb.PauseRequest, once(self._pause)),
            f"/{self.name}/Resume": Method(CallKind.REQUEST, pb.ResumeRequest, once(self._resume)),
            f"/{self.name}/Load": Method(CallKind.REQUEST, pb.LoadRequest, once(self._load)),
            f"/{self.name}/Report": Method(CallKind.REQUEST, pb.ReportRequest, once(self._report)),
        }

    async def _status(self, call: AdmittedCall, request: pb.StatusRequest) -> pb.StatusResponse:
        status = await self._operations.status(
            call, request.cluster, request.ensemble or None, size_only=request.size_only
        )
        for ensemble in status.get("ensembles", ()):
            for counts in ensemble.get("groups", {}).values():
                counts["gave_up"] = counts.pop("gave-up", 0)
        response = pb.StatusResponse()
        # The fields have the names of the service's keys; it may have more of them.
        json_format.ParseDict(status, response, ignore_unknown_fields=True)
        return response

    async def _submit(self, call: AdmittedCall, request: pb.SubmitRequest) -> pb.SubmitResponse:
        _require(request, "ensemble", "group")
        result = await self._operations.submit(
            call,
            request.cluster,
            request.ensemble,
            request.group,
            request.count if request.HasField("count") else None,
            json_object(request.params, "params") if request.params else None,
        )
        return pb.SubmitResponse(**submitted(result))

    async def _action(self, call: AdmittedCall, request: pb.ActionRequest) -> pb.ActionResponse:
        match request.WhichOneof("what"):
            case "scale":
                return await self._scale(call, request)
            case "ensemble":
                _require(request.ensemble, "name", "action")
                action = json_object(request.ensemble.action, "action")
                result = await self._operations.action(
                    call, request.cluster, request.ensemble.name, action
                )
                performed = pb.Performed(firing=result["firing"], **submitted(result))
                return pb.ActionResponse(performed=performed)
            case _:
                raise _missing("scale or ensemble")

    async def _log(
        self, call: AdmittedCall, request: pb.LogRequest
    ) -> AsyncGenerator[pb.LogEntry, None]:
        _require(request, "ensemble")
        entries = self._operations.log(
            call,
            request.cluster,
            request.ensemble,
            follow=request.follow,
            events=request.events,
        )
        async with aclosing(entries):
            async for entry in entries:
                yield pb.LogEntry(
                    timestamp=entry["timestamp"],
                    name=entry["name"],
                    context=json.dumps(entry.get("context", {})),
                )

    async def _metrics(self, call: AdmittedCall, request: pb.MetricsRequest) -> pb.MetricsResponse:
        metrics = await self._of_ensemble("metrics", call, request)
        return pb.MetricsResponse(metrics=json.dumps(metrics))

    async def _pause(self, call: AdmittedCall, request: pb.PauseRequest) -> pb.StateResponse:
        return pb.StateResponse(state=(await self._of_ensemble("pause", call, request))["state"])

    async def _resume(self, call: AdmittedCall, request: pb.ResumeRequest) -> pb.StateResponse:
        return pb.StateResponse(state=(await self._of_ensemble("resume", call, request))["state"])

    async def _of_ensemble(self, op: str, call: AdmittedCall, request: Any) -> dict[str, Any]:
        _require(request, "ensemble")
        return await self._operations.of_ensemble(op, call, request.cluster, request.ensemble)

    async def _load(self, call: AdmittedCall, request: pb.LoadRequest) -> pb.LoadResponse:
        loaded = await self._operations.load(
            call,
            request.cluster,
            request.document,
            name=request.name or None,
            cwd=request.cwd,
            environment=dict(request.environment),
            workers=request.workers if request.HasField("workers") else None,
        )
        return pb.LoadResponse(name=loaded["name"], state=loaded["state"])

    async def _report(self, call: AdmittedCall, request: pb.ReportRequest) -> pb.ReportResponse:
        parts = {"nodes": request.nodes, "queue": request.queue}
        report = {
            name: {field.name: value for field, value in part.ListFields()}
            for name, part in parts.items()
        }
        await self._operations.report(call, request.cluster, report)
        return pb.ReportResponse()

    async def _scale(self, call: AdmittedCall, request: pb.ActionRequest) -> pb.ActionResponse:
        scale = request.scale
        match scale.WhichOneof("size"):
            case "to":
                grant = await self._operations.scale(call, request.cluster, to=scale.to)
            case "by":
                grant = await self._operations.scale(call, request.cluster, by=scale.by)
            case _:
                raise _missing("scale.to or scale.by")
        return pb.ActionResponse(scaled=pb.Scaled(before=grant.before, size=grant.size))


def _require(request: Any, *fields: str) -> None:
    for field in fields:
        if not getattr(request, field):
            raise _missing(field)


def _missing(field: str) -> RequestProblem:
    return RequestProblem(StatusCode.INVALID_ARGUMENT, f"the request has no {field}")
