"""Members that are jobs of the enclosing Flux instance.

    start ──► Outcomes ──► journal of the enclosing instance ──► what the member is told

The journal is the record: a new service passes to `past` what it reads there, and the members of
the previous service, which are known by their tags, are found again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from flux.job import JobID

from flux_ensemble.engine.jobs import RESTARTED
from flux_ensemble.queues.flux.allocations import expires_at
from flux_ensemble.queues.flux.delivery import FIRST_PAUSE
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.flux.queue import FluxQueue
from flux_ensemble.queues.flux.refusals import is_held
from flux_ensemble.queues.flux.steps import Steps, run
from flux_ensemble.queues.flux.submission import LONGEST_WAIT
from flux_ensemble.queues.nested.jobspec import (
    member_drain,
    member_jobspec,
    member_program,
    member_tag,
)
from flux_ensemble.queues.nested.life import UNNEEDED
from flux_ensemble.queues.nested.provider import JobName, Started, Written
from flux_ensemble.queues.nested.shape import MemberTag, Program, Shape
from flux_ensemble.texts import bounded

#: Identity of a member, whichever service started it.
Key = tuple[str, int, int]

#: Returns the member of a tag that a job has, or None if there can be none.
Adopt = Callable[[MemberTag, float, Program], Started | None]


class FluxProvider:
    """A `queues.nested.provider.Provider`.

    Args:
        queue: of the enclosing instance.
        owner: userid of the instance owner: a tag on another user's job is a forgery.
        log_error: writes a line to the service's log.

    Attributes:
        adopt: finds the member of a job; set before the journal is read.
    """

    adopt: Adopt
    tells = True
    prints = "'flux job attach' of its job"

    def __init__(self, queue: FluxQueue, owner: int, log_error: Callable[[str], None]) -> None:
        self._queue = queue
        self._owner = owner
        self._log_error = log_error
        self._jobs: dict[JobName, Started] = {}
        self._past: dict[int, tuple[MemberTag, float, Program, Sequence[Mapping[str, Any]]]] = {}

    # -- requests ---------------------------------------------------------------------

    def describe(self, shape: Shape) -> Mapping[str, Any]:
        """Return the jobspec of a member."""
        return member_jobspec(
            shape.tag,
            shape.size,
            drain=shape.drain,
            labels=shape.labels,
            prefix=shape.prefix,
            program=shape.program,
            attributes=shape.attributes,
            environment=shape.environment,
            cwd=shape.cwd,
        )

    def start(self, member: Started, job: Mapping[str, Any], written: Written) -> None:
        """Submit the job of a member."""
        run(self._submit(member, json.dumps(job)))

    def _submit(self, member: Started, text: str) -> Steps:
        pause = FIRST_PAUSE
        while True:
            send = partial(self._queue.send, text, 16, validate=True)
            try:
                job = yield partial(
                    self._queue.outcomes.begin,
                    send,
                    partial(_known, member),
                    trouble=member.waits,
                    over=lambda: member.unwanted,
                )
                break
            except Exception as error:
                if not is_held(error):
                    member.refused(sentence(error))
                    return
                member.waits(error)
            yield self._queue.broker.pause(pause)
            pause = min(2 * pause, LONGEST_WAIT)
            if member.unwanted:
                member.give_up(UNNEEDED)
                return
        self._submitted(member, job)

    def find(self, member: Started, home: str, job: str | None) -> None:
        """Do nothing: the journal shows all jobs."""

    def end(self, job: JobName, reason: str, done: Report) -> None:
        """Cancel a job."""
        assert isinstance(job, int)
        self._queue.broker.cancel(job, reason, done)

    def cancel(self, job: int, reason: str) -> None:
        """Cancel a job that is no member, and log it if that fails."""
        run(self._cancel(job, reason))

    def _cancel(self, job: int, reason: str) -> Steps:
        try:
            yield partial(self.end, job, reason)
        except Exception as error:
            self._log_error(f"cannot cancel job {JobID(job).f58}: {sentence(error)}")

    def why(self, job: JobName) -> str | None:
        """Return None: why a job waits is what Flux says of it."""
        return None

    def forget(self, job: JobName) -> None:
        """Follow a job no more."""
        self._jobs.pop(job, None)

    def close(self) -> None:
        """Follow nothing any more."""
        self._jobs.clear()

    # -- the journal ------------------------------------------------------------------

    def event(self, job: int, entry: Mapping[str, Any], jobspec: Mapping[str, Any] | None) -> None:
        """Take in an event of the enclosing instance's journal; those of FLEET_EVENTS matter."""
        if jobspec is not None:
            tag = self._owned(entry, jobspec)
            if tag is not None:
                self._show(tag, job, member_drain(jobspec), member_program(jobspec))
        member = self._jobs.get(job)
        if member is not None:
            _tell(member, entry)

    def past(
        self, job: int, jobspec: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]
    ) -> None:
        """Take in a job that was there when the journal was opened, with its entries in order.

        Jobs come in any order; `caught_up` follows the last one.
        """
        tag = self._owned(entries[0], jobspec) if entries else None
        if tag is not None:
            self._past[job] = tag, member_drain(jobspec), member_program(jobspec), entries

    def caught_up(self, known: Callable[[MemberTag], bool]) -> None:
        """Find the members of earlier services again, once `past` has received all jobs.

        Of several jobs with one tag the first is the member, even if it has ended.

        Args:
            known: returns whether there is a member with that tag.
        """
        past, self._past = self._past, {}
        firsts: dict[Key, int] = {}
        for job, (tag, drain, program, entries) in sorted(past.items()):
            first = firsts.setdefault(tag.key, job)
            over = entries[-1]["name"] in ("clean", "invalidate")
            if first != job:
                if not over:
                    self._cancel_copy(tag, job)
            elif known(tag) or not over:
                self._show(tag, job, drain, program)
                for entry in entries[1:]:
                    self.event(job, entry, None)

    def _show(self, tag: MemberTag, job: int, drain: float, program: Program) -> None:
        """Attach the member of a job; cancel the job if its tag belongs to another one."""
        member = self.adopt(tag, drain, program)
        if member is None or member.job not in (None, job):
            self._cancel_copy(tag, job)
        else:
            self._submitted(member, job)

    def _cancel_copy(self, tag: MemberTag, job: int) -> None:
        """Cancel a job that has the tag of a member which is another job."""
        reason = f"its tag is that of member {bounded(tag.member)}, which is another job"
        self._log_error(f"{bounded(tag.name)}: job {JobID(job).f58} is cancelled: {reason}")
        self.cancel(job, reason)

    def _owned(
        self, submit: Mapping[str, Any], jobspec: Mapping[str, Any] | None
    ) -> MemberTag | None:
        if (submit.get("context") or {}).get("userid") != self._owner:
            return None
        return member_tag(jobspec)

    def _submitted(self, member: Started, job: int) -> None:
        if member.job is None:
            self._jobs[job] = member
        member.submitted(job)


def _known(member: Started) -> int | None:
    """Return the id of a member's job, as soon as the journal has shown it."""
    assert not isinstance(member.job, str)
    return member.job


def _tell(member: Started, entry: Mapping[str, Any]) -> None:
    """Tell a member of an event of its job."""
    name, context = entry["name"], entry.get("context") or {}
    if name == "memo" and "uri" in context:
        member.reached(str(context["uri"]))
    elif name == "start":
        member.began()
    elif name == "exception" and context.get("severity") == 0:
        note = str(context.get("note") or "")
        reason = ": ".join(filter(None, (str(context.get("type")), note)))
        member.broke(reason, note.startswith(RESTARTED))
    elif name == "resource-update" and "expiration" in context:
        member.expires(expires_at(context["expiration"]))
    elif name in ("clean", "invalidate"):
        member.over()
