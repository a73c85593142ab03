"""The members of a service that are jobs of the enclosing instance, or are reached by a URI.

    start, connect, drain, end ──► Site ──► a MemberJob each ──► Told
    journal of the enclosing instance ──┘

A new service passes to `past` what it reads in the journal: the members of the previous service are
in the queue, are known by their tags, and are attached again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from flux.job import JobID

from flux_ensemble.queues.flux.delivery import FIRST_PAUSE
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.flux.queue import FluxQueue
from flux_ensemble.queues.flux.refusals import is_held
from flux_ensemble.queues.flux.steps import Steps, run
from flux_ensemble.queues.flux.submission import LONGEST_WAIT
from flux_ensemble.queues.nested.callbacks import Told
from flux_ensemble.queues.nested.instance import IDENTITY
from flux_ensemble.queues.nested.jobspec import (
    MemberTag,
    Program,
    member_drain,
    member_program,
    member_tag,
)
from flux_ensemble.queues.nested.life import UNNEEDED, Phase
from flux_ensemble.queues.nested.member_job import MemberJob
from flux_ensemble.queues.nested.service_handle import Channel
from flux_ensemble.texts import bounded

#: Default of the seconds after which a member that cannot be connected to is given up.
RECONNECT_SECONDS = 60.0

#: Identity of a member, whichever service started it.
Key = tuple[str, int, int]


class Site:
    """The members of a service.

    Args:
        queue: of the enclosing instance.
        owner: userid of the instance owner: a tag on another user's job is a forgery.
        told: the callbacks.
        log_error: writes a line to the service's log.
        follows: returns the names of job events of members that are followed besides the usual
            ones, and whether the places of jobs are needed.
        reconnect: seconds after which a member that cannot be connected to is given up.

    Attributes:
        settled: the journal has shown all jobs that earlier services sent.
    """

    def __init__(
        self,
        queue: FluxQueue,
        *,
        owner: int,
        told: Told,
        log_error: Callable[[str], None],
        follows: Callable[[], tuple[frozenset[str], bool]] = lambda: (frozenset(), False),
        reconnect: float = RECONNECT_SECONDS,
    ) -> None:
        # Do not wait for a broker that has died (flux-core `libflux/connector_local.c`).
        os.environ.setdefault("FLUX_LOCAL_CONNECTOR_RETRY_COUNT", "0")
        self._queue = queue
        self._owner = owner
        self._told = told
        self._log_error = log_error
        self._follows = follows
        self._reconnect = reconnect
        self.settled = False
        self._members: dict[Key, MemberJob] = {}
        self._past: dict[int, tuple[MemberTag, float, Program, Sequence[Mapping[str, Any]]]] = {}
        self._jobs: dict[int, MemberJob] = {}
        #: The latest member that each instance was, by the instance's IDENTITY.
        self._instances: dict[str, Key] = {}
        future = queue.broker.handle.rpc("attr.get", {"name": IDENTITY}, 0)
        self._enclosing = future.get()["value"]

    def __getitem__(self, tag: MemberTag) -> MemberJob:
        return self._members[_key(tag)]

    def __contains__(self, tag: MemberTag) -> bool:
        return _key(tag) in self._members

    # -- requests ---------------------------------------------------------------------

    def start(self, jobspec: Mapping[str, Any]) -> None:
        """Start a member; a member that exists is left as it is.

        Args:
            jobspec: of the member, from `member_jobspec`.
        """
        tag = member_tag(jobspec)
        assert tag is not None
        if tag not in self:
            member = self._new(tag, member_drain(jobspec), member_program(jobspec))
            run(self._submit(member, json.dumps(jobspec)))

    def _submit(self, member: MemberJob, text: str) -> Steps:
        pause = FIRST_PAUSE
        while True:
            send = partial(self._queue.send, text, 16, validate=True)
            try:
                job = yield partial(
                    self._queue.outcomes.begin,
                    send,
                    lambda: member.job,
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

    def connect(self, tag: MemberTag, uri: str, silence: float = 0.0) -> None:
        """Make an existing instance a member.

        Args:
            tag: of the member.
            uri: of the instance.
            silence: seconds that it may be silent until it is given up; 0 for ever.
        """
        if tag not in self:
            self._new(tag, 0.0, Program.INSTANCE, silence).connect(uri)

    def attached(self, tag: MemberTag, channel: Channel, load: Mapping[str, Any]) -> bool:
        """Accept a call of a member's service: see `MemberJob.attached`."""
        return self[tag].attached(channel, load)

    def drain(self, tag: MemberTag, reason: str) -> None:
        """Send a member no more jobs: see `MemberJob.drain`."""
        if tag in self:
            self[tag].drain(reason)

    def end(self, tag: MemberTag) -> None:
        """End a member; a member that is reached by a URI is only released."""
        if tag in self:
            self[tag].end()

    def forget(self, tag: MemberTag) -> None:
        """Forget a member that is gone."""
        member = self._members.pop(_key(tag), None)
        if member is not None and member.job is not None:
            self._jobs.pop(member.job, None)

    def __iter__(self) -> Iterator[MemberTag]:
        return iter([member.tag for member in self._members.values()])

    def close(self) -> None:
        """Release all members: they go on, and so do their jobs."""
        for member in self._members.values():
            member.close()

    # -- the journal of the enclosing instance ------------------------------------------

    def event(self, job: int, entry: Mapping[str, Any], jobspec: Mapping[str, Any] | None) -> None:
        """Take in an event of the enclosing instance's journal; those of FLEET_EVENTS matter."""
        if jobspec is not None:
            tag = self._owned(entry, jobspec)
            if tag is not None:
                self._show(tag, job, member_drain(jobspec), member_program(jobspec))
        member = self._jobs.get(job)
        if member is not None:
            member.parent_event(entry)
            if member.phase is Phase.GONE:
                self._jobs.pop(job, None)

    def past(
        self, job: int, jobspec: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]
    ) -> None:
        """Take in a job that was there when the journal was opened, with its entries in order.

        Jobs come in any order; `caught_up` follows the last one.
        """
        tag = self._owned(entries[0], jobspec) if entries else None
        if tag is not None:
            self._past[job] = tag, member_drain(jobspec), member_program(jobspec), entries

    def caught_up(self) -> None:
        """Find the members of earlier services again, once `past` has received all jobs.

        Of several jobs with one tag the first is the member, even if it has ended.
        """
        past, self._past = self._past, {}
        firsts: dict[Key, int] = {}
        for job, (tag, drain, program, entries) in sorted(past.items()):
            first = firsts.setdefault(_key(tag), job)
            over = entries[-1]["name"] in ("clean", "invalidate")
            if first != job:
                if not over:
                    self._cancel_copy(tag, job)
            elif tag in self or not over:
                self._show(tag, job, drain, program)
                for entry in entries[1:]:
                    self.event(job, entry, None)

    def _show(self, tag: MemberTag, job: int, drain: float, program: Program) -> None:
        """Attach the member of a job; cancel the job if its tag belongs to another one."""
        if tag not in self and self.settled:
            self._cancel_copy(tag, job)
            return
        if tag not in self:
            # The previous service sent this job and died before it knew the id.
            self._new(tag, drain, program)
        member = self[tag]
        if member.job not in (None, job):
            self._cancel_copy(tag, job)
        else:
            self._submitted(member, job)

    def _cancel_copy(self, tag: MemberTag, job: int) -> None:
        """Cancel a job that has the tag of a member which is another job."""
        reason = f"its tag is that of member {bounded(tag.member)}, which is another job"
        self._log_error(f"{bounded(tag.name)}: job {JobID(job).f58} is cancelled: {reason}")
        self.cancel(job, reason)

    def cancel(self, job: int, reason: str) -> None:
        """Cancel a job of the enclosing instance."""
        run(self._cancel(job, reason))

    def _cancel(self, job: int, reason: str) -> Steps:
        try:
            yield partial(self._queue.broker.cancel, job, reason)
        except Exception as error:
            self._log_error(f"cannot cancel job {JobID(job).f58}: {sentence(error)}")

    def _owned(
        self, submit: Mapping[str, Any], jobspec: Mapping[str, Any] | None
    ) -> MemberTag | None:
        if (submit.get("context") or {}).get("userid") != self._owner:
            return None
        return member_tag(jobspec)

    def _submitted(self, member: MemberJob, job: int) -> None:
        if member.job is None:
            self._jobs[job] = member
        member.submitted(job)

    def _new(
        self, tag: MemberTag, drain: float, program: Program, silence: float = 0.0
    ) -> MemberJob:
        member = self._members[_key(tag)] = MemberJob(
            tag,
            self._queue.broker,
            self._told,
            drain=drain,
            program=program,
            reconnect=self._reconnect,
            silence=silence,
            follows=self._follows,
            log_error=self._log_error,
            objection=partial(self._objection, _key(tag)),
        )
        return member

    def _objection(self, key: Key, identity: str) -> str | None:
        """Return why an instance cannot be a member, or None: its jobs must not be those of two."""
        if identity == self._enclosing:
            return "it is the instance that the service is in, which is no member of its own"
        other = self._instances.setdefault(identity, key)
        # A member that has been forgotten meanwhile does not count.
        if other != key and other in self._members and other[:2] == key[:2]:
            return f"it is member {self._members[other].tag.member} already"
        self._instances[identity] = key
        return None


def _key(tag: MemberTag) -> Key:
    return tag.name, tag.run, tag.ordinal
