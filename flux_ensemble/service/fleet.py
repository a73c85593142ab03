"""The members of one ensemble: commands on them and their jobs, and events from them.

    engine ──commands──► Fleet ──► Site, NestedMember ──► members
                           └◄── MemberCallbacks: journals of the members, their beginning and end

A command to a member that is not connected is kept, and sent when the member is up. It is sent once
more if its outcome was lost with the connection. Before that, the member's journal is read for what
happened meanwhile, as the enclosing instance's is for the jobs there (`recovery.catchup`). So a
member that is found again after a crash of the service is treated like one whose connection was
lost.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from flux_ensemble.document.keys.members import TASKS
from flux_ensemble.document.keys.rules import JOB_EVENTS
from flux_ensemble.document.members import Pool
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.commands import (
    CancelJobs,
    DrainMember,
    EndMember,
    Scale,
    StartMember,
    SubmitJobs,
    UpdateJobs,
)
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.events import (
    CommandDone,
    CommandFailed,
    Event,
    MemberDraining,
    MemberEnded,
    MemberExpires,
    MemberLost,
    MemberUp,
    Tag,
)
from flux_ensemble.engine.job_keys import ENCLOSING, make, split
from flux_ensemble.queues.flux.submission import EnsembleRun, SubmissionWait
from flux_ensemble.queues.nested.callbacks import Gone
from flux_ensemble.queues.nested.commits import Durable
from flux_ensemble.queues.nested.listener import Facts
from flux_ensemble.queues.nested.member_job import MemberJob
from flux_ensemble.queues.nested.provider import SITE, Provider
from flux_ensemble.queues.nested.service_handle import (
    AttachedInstance,
    AttachedMember,
    Followed,
    Submitting,
)
from flux_ensemble.queues.nested.shape import MemberTag, Program, Shape, Size
from flux_ensemble.queues.nested.site import Site
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.interruption import shown, unseen
from flux_ensemble.runtime.ports import Done, Outcome
from flux_ensemble.service.fleet_member import FleetMember, MemberRequest, ask_all
from flux_ensemble.service.tracker import Tracker


class MemberFleet:
    """A `runtime.ports.Queue` and a `runtime.ports.Fleet` of Flux instances.

    Args:
        site: holds the members of all ensembles.
        providers: by the names that documents give them.
        spec: the ensemble's document.
        load: the payload of its load request: `environment`, `cwd` and `run` are used here, and
            the services of members get all of it.
        owner: userid of the instance owner.
        epoch: returns the number of the service.
        cancel: cancels a job of the enclosing instance, with a reason.
        warn: receives a sentence about a problem that keeps no job from being submitted.
        credentials: makes those of a worker that calls its home over TLS.

    Attributes:
        load: as given.
        ensemble: the ensemble that has the members, and
        durable: calls back after its commits; both are set before the first command.
        news: as for `queues.flux.submission.Submitter`.
    """

    elastic = False
    ensemble: Ensemble
    durable: Durable
    news: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self,
        site: Site,
        providers: Mapping[str, Provider],
        spec: Spec,
        load: Mapping[str, Any],
        *,
        owner: int,
        epoch: Callable[[], int],
        cancel: Callable[[int, str], None],
        warn: Callable[[str], None],
        credentials: Callable[[MemberTag], str] = lambda tag: "",
    ) -> None:
        self._credentials = credentials
        self._site = site
        self._providers = providers
        self._cancel = cancel
        self._spec = spec
        self.load = load
        self._run: int = load["run"]
        self._owner = owner
        self._epoch = epoch
        self._warn = warn
        self._pools = {pool.name: pool for pool in spec.members}
        self._members: dict[int, FleetMember] = {}
        #: Empty: the jobs of a member that are known are looked up when the member is up.
        self.known: dict[Tag, int] = {}

    def _tag(self, command: StartMember | DrainMember | EndMember) -> MemberTag:
        return MemberTag(self._spec.name, self._run, command.member, command.ordinal, self._epoch())

    def _member(self, ordinal: int) -> FleetMember:
        member = self._members.get(ordinal)
        if member is None:
            tracker = Tracker(self._owner, self._find, list)
            tracker.newest = make(ordinal, 0)
            member = self._members[ordinal] = FleetMember(ordinal, tracker)
        return member

    def _known(self, ordinal: int) -> FleetMember | None:
        """Return a member that is not gone; a service that has just begun may not know it yet."""
        members = self.ensemble.engine.members
        known = members is not None and ordinal in members.known
        return self._member(ordinal) if known else self._members.get(ordinal)

    def _find(self, name: str, run: int) -> Ensemble | None:
        """Return the ensemble if a tag with this name and run is its own, else None."""
        mine = self.ensemble.name, self.ensemble.run
        return self.ensemble if (name, run) == mine else None

    def _post(self, *events: Event) -> None:
        self.ensemble.post(events)

    # -- commands on members ----------------------------------------------------------

    def start(self, command: StartMember, done: Done) -> None:
        """Start a member; leave one that exists as it is."""
        pool, tag = self._pools[command.pool], self._tag(command)
        try:
            if pool.uri is not None:
                self._site.connect(tag, pool.uri, pool.silence)
            else:
                written = partial(self._started, command, done)
                shape = replace(self._shape(pool, tag), credentials=self._credentials(tag))
                self._site.start(self._providers[pool.provider], shape, written)
        except ValueError as error:
            done(CommandFailed(time.time(), command.id, "EINVAL", str(error)))
        else:
            if pool.started_by.enclosing:
                # The journal of the instance is the record.
                done(CommandDone(time.time(), command.id))

    def _started(
        self, command: StartMember, done: Done, job: str, then: Callable[[], None]
    ) -> None:
        """Write the id of a member's job down before the job may start."""
        done(CommandDone(time.time(), command.id, {"job": job}))
        self.durable(then)

    def _shape(self, pool: Pool, tag: MemberTag) -> Shape:
        # Nobody loads two ensembles of one name, with equal numbers of their runs, at once.
        home = f"{self.ensemble.engine.t_start or 0.0:.6f}"
        return Shape(
            tag,
            home,
            _size(pool),
            environment=self.load["environment"],
            cwd=self.load["cwd"],
            program=_program(pool),
            labels=pool.labels,
            drain=pool.drain,
            prefix=self._spec.job_prefix,
            attributes=pool.job_attributes(),
            options=pool.options,
            limits=pool.limits,
            template=pool.template,
        )

    def drain(self, command: DrainMember, done: Done) -> None:
        """Make the queue of a member start no more jobs."""
        self._site.drain(self._tag(command), "its ensemble drains it")
        done(CommandDone(time.time(), command.id))

    def end(self, command: EndMember, done: Done) -> None:
        """End a member, whatever it is doing."""
        tag = self._tag(command)
        gone = self._site.settled and tag not in self._site
        self._site.end(tag)
        done(CommandDone(time.time(), command.id))
        if gone:
            # It ended while the ensemble was over, and no service was there to report it.
            reason = "its job had ended before"
            self._post(MemberEnded(time.time(), tag.member, tag.ordinal, reason))

    # -- commands on jobs -------------------------------------------------------------

    def submit(self, command: SubmitJobs, done: Done) -> None:
        """Submit jobs to a member; if the member is lost, there is no outcome."""
        member = self._known(command.ordinal)
        if member is None:
            return
        told = partial(_submitted, member.ordinal, done)
        # The engine knows the outcome of the jobs of a member that is gone.
        member.ask(MemberRequest(partial(self._submit, command), told, lambda: None))

    def _submit(self, command: SubmitJobs, nested: Submitting, done: Done) -> None:
        jobs = shown(self.ensemble.engine, command)
        nested.known.update((tag, split(job)[1]) for tag, job in jobs)
        nested.submit(command, done)

    def cancel(self, command: CancelJobs, done: Done) -> None:
        """Cancel jobs; those of a member that is gone are no error."""
        members = []
        for key in command.jobs:
            ordinal, id = split(key)
            if ordinal == ENCLOSING:
                # A job there is not the ensemble's: it only carries the tag of one.
                self._cancel(id, command.reason)
            else:
                members.append(key)
        self._ask_all(
            replace(command, jobs=tuple(members)),
            lambda part, nested, told: nested.cancel(replace(command, jobs=part), told),
            done,
        )

    def update(self, command: UpdateJobs, done: Done) -> None:
        """Change urgency or duration of jobs; those of a member that is gone are no error."""
        self._ask_all(
            command,
            lambda part, nested, told: nested.update(replace(command, jobs=part), told),
            done,
        )

    def _ask_all(
        self,
        command: CancelJobs | UpdateJobs,
        ask: Callable[[tuple[int, ...], Submitting, Done], None],
        done: Done,
    ) -> None:
        """Send the command to each member that has such jobs; the first failure is the outcome."""
        parts: dict[int, list[int]] = {}
        for key in command.jobs:
            ordinal, id = split(key)
            if self._known(ordinal) is not None:
                parts.setdefault(ordinal, []).append(id)
        asks = [
            (self._members[ordinal], partial(ask, tuple(ids))) for ordinal, ids in parts.items()
        ]
        ask_all(asks, command.id, done)

    def scale(self, command: Scale, done: Done) -> None:
        """Refuse: the ensemble has no job on the enclosing instance."""
        reason = "the instance has a fixed size"
        done(CommandFailed(time.time(), command.id, "EINVAL", reason))

    def seen(self, tag: Tag, job: int) -> None:
        """Note that a job of the ensemble is in the journal of its member."""
        if (nested := self._nested(job)) is not None:
            nested.seen(tag, split(job)[1])

    def refused(self, job: int) -> None:
        """Note that a job in the journal was refused by its member."""
        if (nested := self._nested(job)) is not None:
            nested.refused(split(job)[1])

    def revoke(self) -> None:
        """Send no more jobs of the submissions under way."""
        for member in self._members.values():
            if member.nested is not None:
                member.nested.revoke()

    def _nested(self, job: int) -> Submitting | None:
        member = self._members.get(split(job)[0])
        return None if member is None else member.nested

    # -- events of members ------------------------------------------------------------

    @property
    def follows(self) -> tuple[frozenset[str], bool]:
        """The names of the job events that members are to send, and whether places are needed."""
        ensemble = self.ensemble
        more = JOB_EVENTS if ensemble.log.wants_events else ()
        return ensemble.engine.wants_events | frozenset(more), ensemble.needs_places

    def changed(self) -> None:
        """Follow other job events on the members, if the ensemble needs them."""
        for member in self._members.values():
            member.follow(*self.follows, self.ensemble.engine)

    def past(
        self, tag: MemberTag, job: int, jobspec: Mapping[str, Any], entries: list[Mapping[str, Any]]
    ) -> None:
        """Process a job that existed when a member was attached."""
        catch_up = self._member(tag.ordinal).history(self._live)
        catch_up.history(make(tag.ordinal, job), jobspec, entries)

    def caught_up(self, tag: MemberTag) -> None:
        """Note that all jobs that existed have been reported, and apply them."""
        instance = self._site[tag].instance
        assert instance is not None
        self._member(tag.ordinal).take_history(self._live, instance, self._warn)

    @property
    def _live(self) -> list[Ensemble]:
        return [self.ensemble] if self.ensemble.live else []

    def event(
        self,
        tag: MemberTag,
        job: int,
        entry: Mapping[str, Any],
        jobspec: Mapping[str, Any] | None,
        interrupted: bool,
    ) -> None:
        """Process an event of a member's job; what the member's end does to a job is no event."""
        member = self._member(tag.ordinal)
        again = partial(self.event, tag, job, entry, jobspec, interrupted)
        if not member.later(again) and not interrupted:
            member.tracker.event(make(tag.ordinal, job), entry, jobspec)

    def events(self, tag: MemberTag, events: list[list[Any]]) -> None:
        """Process events of the ensemble's jobs on a member: see `queues.nested.service_handle`."""
        member, ensemble = self._member(tag.ordinal), self.ensemble
        if not member.later(partial(self.events, tag, events)):
            ensemble.job_events(member.tracker.told(ensemble, tag.ordinal, events))

    def up(self, tag: MemberTag, instance: Followed, facts: Facts) -> None:
        """Begin to send jobs to a member, for the first time or after a new connection."""
        ensemble, member, now = self.ensemble, self._member(tag.ordinal), time.time()
        if member.later(partial(self.up, tag, instance, facts)) or instance.closed:
            # A connection that is lost by then is followed by another one, or is the last.
            return
        catch_up, member.caught_up = member.caught_up, None
        if not ensemble.live:
            self._site.end(tag)
            return
        # From here on the engine's commands are sent at once.
        waiting, before = list(member.asked), list(ensemble.engine.pending)
        member.instance = instance
        if isinstance(instance, AttachedInstance):
            member.nested = AttachedMember(instance, self.durable)
        else:
            from flux_ensemble.queues.nested.member import NestedMember

            member.nested = NestedMember(
                instance,
                EnsembleRun.of(self._spec, self.load),
                durable=self.durable,
                warn=self._warn,
                news=lambda: self.news(),
            )
        member.follow(*self.follows, ensemble.engine)
        if catch_up is not None and catch_up.settle(now, make(tag.ordinal, instance.newest)):
            self._post(*unseen(ensemble.engine, now, before, tag.ordinal))
        size = facts.nodes, facts.cores, facts.gpus, facts.t_expires
        self._post(MemberUp(now, tag.member, tag.ordinal, *size))
        # After a new connection the time can differ from the first one.
        self.expires(tag, instance.ends.t_expires)
        member.perform(waiting)

    def expires(self, tag: MemberTag, t_expires: float | None) -> None:
        """Report that a member's time limit changed; before it is up, `up` reports it."""
        members = self.ensemble.engine.members
        member = None if members is None else members.known.get(tag.ordinal)
        if member is not None and member.up is not None and member.up.t_expires != t_expires:
            self._post(MemberExpires(time.time(), tag.member, tag.ordinal, t_expires))

    def draining(self, tag: MemberTag, reason: str, ends: bool) -> None:
        """Report that a member gets no more jobs; `ends`: it has begun to end."""
        self._post(MemberDraining(time.time(), tag.member, tag.ordinal, reason, ends))

    def lost(self, tag: MemberTag, reason: str) -> None:
        """Report that a member ends although nobody asked it to."""
        self._post(MemberLost(time.time(), tag.member, tag.ordinal, reason))

    def gone(self, tag: MemberTag, gone: Gone) -> None:
        """Report the end of a member, after everything that it has reported about its jobs."""
        member = self._member(tag.ordinal)
        member.go_on()
        ended = MemberEnded(time.time(), tag.member, tag.ordinal, gone.reason, gone.outage)
        self._post(ended)
        del self._members[tag.ordinal]
        for asked in member.asked.values():
            asked.over()

    def settle(self) -> None:
        """Report members that are gone, now that all that earlier services sent is known."""
        engine = self.ensemble.engine
        if engine.members is None:
            return
        for member in engine.members.known.values():
            # Whoever has a record of its own has shown its members already.
            if member.job is not None and member.pool.uri is None:
                tag = MemberTag(self._spec.name, self._run, member.name, member.ordinal, 0)
                shape = self._shape(member.pool, tag)
                self._site.find(self._providers[member.pool.provider], shape, member.job)
        if not self.ensemble.live:
            return
        asked_for = {effect.ordinal for effect in engine.pending if isinstance(effect, StartMember)}
        now, why = time.time(), "its job had ended when the service began"
        lost: list[Event] = []
        ended: list[Event] = []
        for member in list(engine.members.known.values()):
            tag = MemberTag(self._spec.name, self._run, member.name, member.ordinal, 0)
            if member.ordinal in asked_for:
                continue
            if tag not in self._site and (uri := member.pool.uri) and member.state != "lost":
                # A member by URI is no job, so the journal of the instance does not hold it.
                self._site.connect(tag, uri)
            if tag not in self._site:
                where = member.name, member.ordinal, why
                if not member.ending:
                    lost.append(MemberLost(now, *where))
                ended.append(MemberEnded(now, *where, outage=True))
            else:
                self._member(tag.ordinal)
                if member.state == "lost":
                    # The previous service did not live to give it up.
                    self._site[tag].give_up(member.reason)
        # All are reported lost before one has ended, so that no job moves to another lost member.
        self._post(*lost, *ended)

    def _tags(self) -> Iterator[MemberTag]:
        return (tag for tag in self._site if (tag.name, tag.run) == (self._spec.name, self._run))

    def waits(self) -> Iterator[tuple[str, SubmissionWait]]:
        """Yield why jobs wait to be submitted to Flux, by member name; those of members, too."""
        for tag in self._tags():
            waiting = self._site[tag].waiting
            if waiting is not None and waiting.kind != SITE:
                yield tag.member, waiting
            member = self._members.get(tag.ordinal)
            nested = None if member is None else member.nested
            if nested is not None and not isinstance(nested, AttachedMember):
                for wait in nested.waits():
                    yield tag.member, wait

    def places(self) -> dict[str, dict[str, Any]]:
        """Return for each member its `job` at its provider, its `uri`, and why it waits."""
        places: dict[str, dict[str, Any]] = {}
        for tag in self._tags():
            member = self._site[tag]
            place = places[tag.member] = {"job": member.job, "uri": member.uri}
            why = self._why(member)
            if why is not None:
                place["reason"] = why
        return places

    def waiting(self) -> Mapping[tuple[str, str], list[str]]:
        """Return the members that a site does not run yet, by pool and reason."""
        waiting: dict[tuple[str, str], list[str]] = {}
        for tag in self._tags():
            why = self._why(self._site[tag])
            if why is not None:
                waiting.setdefault((tag.member.rpartition(".")[0], why), []).append(tag.member)
        return waiting

    @staticmethod
    def _why(member: MemberJob) -> str | None:
        """Return why a site does not run a member, as "waits in Slurm: Priority"."""
        if member.provider is not None and member.job is not None:
            return member.provider.why(member.job)
        if member.waiting is not None and member.waiting.kind == SITE:
            return f"waits: {member.waiting.reason}"
        return None

    def output(self, name: str, job: int, done: Callable[[str | Exception | None], None]) -> None:
        """Read the end of what a job of a worker wrote.

        Args:
            name: of the member.
            job: its id there.
            done: receives the output, None if nothing of it is kept, or the error.

        Raises:
            RequestError: there is no such worker, or it is not connected.
        """
        for tag in self._tags():
            if tag.member == name:
                member = self._site[tag]
                if member.program is not Program.WORKER:
                    reason = f"member {name!r} is a Flux instance, which has the output of its jobs"
                    raise RequestError(errno.EINVAL, reason)
                if isinstance(member.instance, AttachedInstance) and not member.instance.closed:
                    return member.instance.output(job, done)
                raise RequestError(errno.EAGAIN, f"member {name!r} is not connected; retry later")
        raise RequestError(errno.ENOENT, f"ensemble {self._spec.name!r} has no member {name!r}")

    def end_all(self) -> None:
        """End all members: the ensemble is over."""
        for tag in self._tags():
            self._site.end(tag)


def _size(pool: Pool) -> Size:
    """Return the resources of each member of a pool."""
    if pool.exclusive:
        return Size(pool.nodes, duration=pool.duration)
    return Size(pool.nodes, pool.cores, pool.gpus, pool.duration)


def _program(pool: Pool) -> Program:
    """Return the program of the members of a pool."""
    if pool.runs == TASKS:
        return Program.WORKER
    return Program.SERVED if pool.calls else Program.INSTANCE


def _submitted(ordinal: int, done: Done, outcome: Outcome) -> None:
    """Pass on the outcome of a submission to a member, with job ids replaced by the jobs' keys."""
    if isinstance(outcome, CommandFailed):
        done(replace(outcome, ids=tuple(make(ordinal, id) for id in outcome.ids)))
    else:
        ids = [make(ordinal, id) for id in outcome.result["ids"]]
        done(CommandDone(outcome.t, outcome.command, {"ids": ids}))
