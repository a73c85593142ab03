"""The handlers of requests about the service and its ensembles, each declared by its topic.

The handlers that load and unload an ensemble are in `service.load`.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from typing import Any

from flux.message import Message

from flux_ensemble.engine.commands import CancelJobs
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.rule_reasons import why
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.service.fleet import MemberFleet
from flux_ensemble.service.needs import Needs
from flux_ensemble.service.own_instance import OwnInstance
from flux_ensemble.service.registry import Ensembles
from flux_ensemble.service.requests.messages import Responder, Streams, is_owner
from flux_ensemble.service.requests.registration import request_handler
from flux_ensemble.service.status.reports import Reports
from flux_ensemble.service.tracker import Tracker

Payload = Mapping[str, Any]


class Handlers:
    """Handles requests: each handler responds, or raises `RequestError`.

    Args:
        responder, streams: send the responses.
        ensembles, own, tracker: the subjects of the requests.
        reports: the responses to `list` and `status`.
        needs: makes the journal deliver the events that followers of a log want.
    """

    def __init__(
        self,
        responder: Responder,
        streams: Streams,
        ensembles: Ensembles,
        own: OwnInstance,
        tracker: Tracker,
        reports: Reports,
        needs: Needs,
    ) -> None:
        self._responder = responder
        self._streams = streams
        self._ensembles = ensembles
        self._own = own
        self._tracker = tracker
        self._reports = reports
        self._needs = needs

    # -- requests that only read --------------------------------------------------------

    @request_handler("list")
    def list_ensembles(self, message: Message, payload: Payload) -> None:
        """Respond with a summary of each ensemble."""
        self._responder.respond(message, self._reports.list(is_owner(message)))

    @request_handler("status")
    def status(self, message: Message, payload: Payload) -> None:
        """Respond with the status of the service, and of one ensemble or all."""

        def answer(result: Payload | Exception) -> None:
            if isinstance(result, Exception):
                self._responder.fail("status", message, result)
            else:
                self._responder.respond(message, result)

        self._reports.status(payload.get("name"), is_owner(message), answer)

    @request_handler("metrics")
    def metrics(self, message: Message, payload: Payload) -> None:
        """Respond with the metrics of an ensemble."""
        ensemble = self._ensembles.get(payload["name"])
        self._responder.respond(message, ensemble.engine.metrics(time.time()))

    @request_handler("why")
    def why(self, message: Message, payload: Payload) -> None:
        """Respond with the reasons why rules of an ensemble fire or do not."""
        ensemble = self._ensembles.get(payload["name"])
        now = time.time()
        rules = why(ensemble.engine, now, payload.get("rule"))
        answer = {"state": ensemble.state, "reason": ensemble.reason, "t": now, "rules": rules}
        self._reports.waits(
            ensemble, lambda waits: self._responder.respond(message, {**answer, "waits": waits})
        )

    @request_handler("log")
    def read_log(self, message: Message, payload: Payload) -> None:
        """Respond with the entries of an ensemble's log, one per response."""
        if not message.pimpl.is_streaming():
            raise RequestError(errno.EPROTO, "ensemble.log: expected a streaming request")
        ensemble = self._ensembles.get(payload["name"])
        events = payload.get("events", False)
        follow = payload.get("follow", False)
        skip = payload.get("skip", 0)
        self._streams.open(message, ensemble.log, follow=follow, events=events, skip=skip)
        if ensemble.log.wants_events and ensemble.live:
            self._needs.watch(ensemble)

    @request_handler("output")
    def output(self, message: Message, payload: Payload) -> None:
        """Respond with the end of what a job of a worker wrote."""
        ensemble = self._ensembles.get(payload["name"])
        if not isinstance(ensemble.fleet, MemberFleet):
            raise RequestError(errno.EINVAL, f"ensemble {ensemble.name!r} has no members")

        def answer(output: str | Exception | None) -> None:
            if isinstance(output, Exception):
                self._responder.refuse(message, errno.EIO, str(output))
            else:
                self._responder.respond(message, {"output": output})

        ensemble.fleet.output(payload["member"], payload["id"], answer)

    # -- requests to the engine of an ensemble ------------------------------------------

    @request_handler("submit")
    def submit(self, message: Message, payload: Payload) -> None:
        """Submit jobs, and respond with their ids; with members also with where they are."""
        self._ask(message, payload, _accepted)

    @request_handler("rules", "action")
    def ask_engine(self, message: Message, payload: Payload) -> None:
        """Respond with the engine's reply as it is."""
        self._ask(message, payload, lambda result: result)

    @request_handler("search")
    def search(self, message: Message, payload: Payload) -> None:
        """Give a search more trials, and go on with an ensemble that has ended."""
        ensemble = self._ensembles.get(payload["name"])
        args = {key: value for key, value in payload.items() if key != "name"}
        ensemble.extend("search", args, self._responder.answer_to(message))

    @request_handler("pause", "resume", "terminate")
    def change_state(self, message: Message, payload: Payload) -> None:
        """Change the state of an ensemble, and respond with the resulting state."""
        ensemble = self._ensembles.get(payload["name"])
        self._ask(message, payload, lambda result: {**result, "state": ensemble.state})

    @request_handler("cancel")
    def cancel(self, message: Message, payload: Payload) -> None:
        """Cancel an ensemble, or the jobs of a group; also if the ensemble's engine has stopped."""
        ensemble = self._ensembles.get(payload["name"])
        if ensemble.stopped is not None:
            self._cancel_jobs(ensemble, message)
        else:
            self.change_state(message, payload)

    def _cancel_jobs(self, ensemble: Ensemble, message: Message) -> None:
        """Cancel the jobs that a broken ensemble has left in the queue."""
        command = CancelJobs(0, self._tracker.jobs_of(ensemble), "a request")
        ensemble.member.cancel(
            command, lambda _: self._responder.respond(message, {"state": ensemble.state})
        )

    def _ask(self, message: Message, payload: Payload, shape: Callable[[Payload], Payload]) -> None:
        """Pass a request to the engine, and respond with its result, shaped by `shape`."""
        ensemble = self._ensembles.get(payload["name"])
        answer = self._responder.answer_to(message)
        args = {key: value for key, value in payload.items() if key != "name"}
        ensemble.ask(
            message.topic.rpartition(".")[2],
            args,
            lambda result: answer(result if isinstance(result, RequestError) else shape(result)),
        )

    # -- requests to a member -----------------------------------------------------------

    @request_handler("scale")
    def scale(self, message: Message, payload: Payload) -> None:
        """Begin to change the size of the member, and respond with the future size."""
        self._responder.respond(message, self._own.scale(payload["to"]))


def _accepted(result: Payload) -> Payload:
    """Return the response to a submission."""
    return {key: result[key] for key in ("ids", "members", "waiting") if key in result}
