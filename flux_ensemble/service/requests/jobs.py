"""The handler of requests for jobs (docs/rpc.md, `ensemble.jobs`)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from flux.job import JobID
from flux.message import Message

from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.faults import ENDINGS
from flux_ensemble.metrics.job_filter import check_outcome, compile_filter
from flux_ensemble.metrics.job_row import GUESTS, JobRow
from flux_ensemble.metrics.paths import no_group
from flux_ensemble.runtime.answers import Answer
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.job_query import COUNT, JobQuery, LastJobs
from flux_ensemble.runtime.ports import Loop
from flux_ensemble.runtime.rerun import Choice
from flux_ensemble.service.registry import Ensembles
from flux_ensemble.service.requests.messages import Responder, Streams, is_owner
from flux_ensemble.service.requests.registration import request_handler
from flux_ensemble.service.status.reports import Reports
from flux_ensemble.service.status.waits import Cause
from flux_ensemble.texts import listed

Payload = Mapping[str, Any]

#: Keys of a request that choose jobs, of which the last are not known without reading all.
_CHOOSING = ("filter", "group", "outcome", "after", "count")


class JobRequests:
    """Handles requests for the jobs of ensembles.

    Args:
        responder, streams: send the responses.
        ensembles: all ensembles.
        loop: runs the steps of a search, and has the time.
        reports: know what jobs wait for.
    """

    def __init__(
        self,
        responder: Responder,
        streams: Streams,
        ensembles: Ensembles,
        loop: Loop,
        reports: Reports,
    ) -> None:
        self._reports = reports
        self._responder = responder
        self._streams = streams
        self._ensembles = ensembles
        self._loop = loop

    @request_handler("jobs")
    def jobs(self, message: Message, payload: Payload) -> None:
        """Respond with jobs of an ensemble, some per response, and at last where to continue."""
        if not message.pimpl.is_streaming():
            raise RequestError(errno.EPROTO, "ensemble.jobs: expected a streaming request")
        ensemble = self._ensembles.get(payload["name"])
        keys = None if is_owner(message) else GUESTS
        search = _query(ensemble, payload, keys)
        answer = _Answer(self._responder, self._streams, message, ensemble, search, keys)
        self._streams.add(answer)

        def begin(cause_of: Callable[[ActiveJob], Cause | None]) -> None:
            answer.cause_of = cause_of
            answer.go_on(self._loop)

        self._reports.job_waits(ensemble, begin)


def _query(
    ensemble: Ensemble, payload: Payload, keys: tuple[str, ...] | None
) -> JobQuery | LastJobs:
    """Return the query that a request asks for; `keys` are those of a guest."""
    what = ensemble.engine, ensemble.records, describer_of(ensemble)
    if "last" in payload:
        if beside := [key for key in _CHOOSING if key in payload]:
            raise RequestError(
                errno.EINVAL, f"ensemble.jobs: last: expected without {listed(beside)}"
            )
        every = payload.get("interrupted", False)
        return LastJobs(*what, payload["last"], every=every, guest=keys is not None)
    if "interrupted" in payload:
        reason = "ensemble.jobs: interrupted: expected with last; without it all attempts are sent"
        raise RequestError(errno.EINVAL, reason)
    return JobQuery(
        *what,
        matches=_matches(payload.get("filter"), keys),
        group=_group(ensemble, payload.get("group")),
        outcome=_outcome(payload.get("outcome")),
        after=payload.get("after", 0),
        count=payload.get("count", COUNT),
    )


class Reruns:
    """Handles requests to run jobs again.

    Args:
        responder: sends the responses.
        ensembles: all ensembles.
        loop: runs the steps of a choice, and has the time.
    """

    def __init__(self, responder: Responder, ensembles: Ensembles, loop: Loop) -> None:
        self._responder = responder
        self._ensembles = ensembles
        self._loop = loop

    @request_handler("rerun")
    def rerun(self, message: Message, payload: Payload) -> None:
        """Run jobs again, and respond with how many there are, by their outcomes."""
        ensemble = self._ensembles.get(payload["name"])
        choice = ensemble.choice(describer_of(ensemble), payload)
        answer = self._responder.answer_to(message)
        dry_run = payload.get("dry_run", False)
        self._go_on(ensemble, choice, answer, dry_run=dry_run)

    def _go_on(self, ensemble: Ensemble, choice: Choice, answer: Answer, *, dry_run: bool) -> None:
        """Take a step, and the next one after the other work of the service."""
        try:
            choice.step(self._loop.now())
            if choice.over:
                # It may have been unloaded meanwhile.
                self._ensembles.get(ensemble.name)
                ensemble.rerun(choice, answer, dry_run=dry_run)
                return
        except RequestError as refusal:
            answer(refusal)
            return
        go_on = partial(self._go_on, ensemble, choice, answer, dry_run=dry_run)
        self._loop.timer(0.0, go_on)


def describer_of(ensemble: Ensemble) -> Describer:
    """Return what describes the jobs of an ensemble."""
    engine = ensemble.engine
    return Describer(
        engine.spec,
        ensemble.cwd,
        lambda id: str(JobID(id).f58),
        _names(ensemble),
        rerun=engine.rerun,
        absences=engine.workload.absences,
    )


class _Answer:
    """The responses to one request."""

    def __init__(
        self,
        responder: Responder,
        streams: Streams,
        message: Message,
        ensemble: Ensemble,
        search: JobQuery | LastJobs,
        keys: tuple[str, ...] | None,
    ) -> None:
        self._responder = responder
        self._streams = streams
        self.message = message
        self._ensemble = ensemble
        self._search = search
        self._keys = keys
        self._stopped = False
        self.cause_of: Callable[[ActiveJob], Cause | None] = lambda job: None

    def go_on(self, loop: Loop) -> None:
        """Take a step, and the next one after the other work of the service."""
        if self._stopped:
            return
        try:
            found = self._search.step(loop.now())
        except ENDINGS:
            raise
        except BaseException as error:
            self.stop()
            self._responder.fail("jobs", self.message, error)
            return
        self._say_waits(found)
        if found:
            self._responder.respond(self.message, {"jobs": _cut(found, self._keys)})
        if not self._search.over:
            loop.timer(0.0, lambda: self.go_on(loop))
            return
        records = self._ensemble.engine.records
        last: dict[str, Any] = {
            "jobs": [],
            "next": self._search.next,
            "recorded": records.total,
            "dropped": records.dropped,
        }
        if isinstance(self._search, LastJobs):
            last |= {"total": self._search.total, "left_out": self._search.left_out}
        self._responder.respond(self.message, last)
        self.stop()
        self._responder.refuse(self.message, errno.ENODATA, "end of the jobs")

    def _say_waits(self, found: list[JobRow]) -> None:
        """Add what jobs that have not started wait for, if it is known."""
        jobs = self._ensemble.engine.workload.jobs
        for described in found:
            job = jobs.get(described["id"]) if described["state"] == "pending" else None
            cause = None if job is None or "member" in described else self.cause_of(job)
            if cause is not None:
                described["waits"] = cause.reason

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True
        self._streams.over(self)


def _matches(text: str | None, keys: tuple[str, ...] | None) -> Callable[[JobRow], bool]:
    """Compile a filter of jobs; a guest's filter sees no more of a job than the guest does."""
    if text is None:
        return lambda _: True
    try:
        matches = compile_filter(text)
    except ValueError as error:
        raise RequestError(errno.EINVAL, f"ensemble.jobs: filter: {error}") from None
    return matches if keys is None else lambda job: matches(_cut([job], keys)[0])


def _cut(jobs: list[JobRow], keys: tuple[str, ...] | None) -> list[JobRow]:
    if keys is None:
        return jobs
    return [cast(JobRow, {key: value for key, value in job.items() if key in keys}) for job in jobs]


def _names(ensemble: Ensemble) -> Callable[[int], str]:
    """Return a function that maps the numbers of the ensemble's members to their names."""
    members = ensemble.engine.members
    return str if members is None else members.name_of


def _group(ensemble: Ensemble, group: str | None) -> str | None:
    groups = ensemble.engine.spec.groups
    if group is not None and group not in groups:
        raise RequestError(errno.ENOENT, no_group(group, groups))
    return group


def _outcome(outcome: str | None) -> str | None:
    try:
        check_outcome(outcome)
    except ValueError as error:
        raise RequestError(errno.EINVAL, f"ensemble.jobs: {error}") from None
    return outcome
