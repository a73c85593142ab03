"""Starts members by `sbatch`, follows them by `squeue`, and ends them by `scancel`.

    start ──► asked ──look──► sbatch, held ──► written ──► released ──┐
    find ───► sought ──look──┬───────────────────────────────────────►├──► followed ──► over
                             └── nothing there: over
    squeue, once for all members, each POLL_SECONDS ──► look

A start looks for a job with its tag first, because an earlier service may have submitted one, and
again when the answer of `sbatch` was lost. A job with the tag of a member which is another job is
cancelled: it is one whose submission was cut off, and has never been released.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.nested.life import UNNEEDED
from flux_ensemble.queues.nested.provider import JobName, SiteWaitError, Started, Written
from flux_ensemble.queues.nested.shape import Shape
from flux_ensemble.queues.providers.slurm.job import COLUMNS, SlurmJob, describe, mark, read
from flux_ensemble.runtime.command import Command, CommandResult
from flux_ensemble.runtime.ports import Handle, Loop
from flux_ensemble.texts import bounded

#: Seconds between two lists of the jobs.
POLL_SECONDS = 1.0

#: Seconds that `squeue` may take.
LIST_SECONDS = 60.0

#: Seconds that another command may take: a full queue blocks `sbatch` for 120 of them.
COMMAND_SECONDS = 150.0

#: Seconds after which it is said that sbatch has not answered, and why that may be.
SLOW_SECONDS = 5.0
SLOW = "sbatch has not answered yet, as where the queue of Slurm is full (MaxJobCount)"

#: Most seconds until sbatch is called again after it could not submit a job.
PAUSE_LIMIT = 60.0

#: How often a job has to be missing in the list until it counts as over: a controller that has just
#: begun may not list all of them.
MISSED = 3

#: Of the sentences in which Slurm says that it takes no job for now; any other is a refusal. The
#: limit can be one on the size of a job, too: Slurm has the same sentence for both.
_TROUBLES = (
    "unable to contact slurm controller",
    "socket timed out",
    "connection refused",
    "resource temporarily unavailable",
    "communication connection failure",
    "slurmctld is currently",
    "zero bytes were transmitted",
    "job submit limit",
)


@dataclass(slots=True)
class _Following:
    """A member, as the provider knows it.

    Attributes:
        member: is told.
        comment: the tag of its job.
        pause: seconds between the latest attempt to submit it, which failed, and the next one.
        t_next: when that is.
        job: asked for, until it is submitted; None for one that an earlier service started.
        written: see `Provider.start`; None for such a one, and once the id is written down.
        submitting: sbatch runs.
        t_asked: since when.
        id: of its job.
        released: it was, or is being released.
        seen: its job in the latest list.
        missed: in how many lists in a row it was not.
        began, reached: the member was told that it began, and its URI.
        unseen: an earlier service started it, and no list of this one has shown it alive.
        calm: by the latest list it has one job, which runs: the same list again changes nothing.
    """

    member: Started
    comment: str
    job: Mapping[str, Any] | None = None
    written: Written | None = None
    submitting: bool = False
    t_asked: float = 0.0
    pause: float = 0.0
    t_next: float = float("-inf")
    id: str | None = None
    released: bool = False
    seen: SlurmJob | None = None
    missed: int = 0
    reached: bool = False
    began: bool = False
    unseen: bool = False
    calm: bool = False


class SlurmProvider:
    """A `queues.nested.provider.Provider`.

    Args:
        loop: of the service.
        log_error: writes a line to the service's log.
        run: runs a command; see `Command`.
    """

    tells = False
    prints = "the output file of its job in Slurm (slurm-ID.out)"

    def __init__(
        self,
        loop: Loop,
        log_error: Callable[[str], None],
        run: Callable[..., Any] = Command,
    ) -> None:
        self._loop = loop
        self._log_error = log_error
        self._run = run
        self._members: dict[str, _Following] = {}
        self._jobs: dict[JobName, _Following] = {}
        self._latest = ""
        self._poll: Handle | None = None
        self._listing = False
        self._trouble: str | None = None
        self._closed = False

    # -- requests ---------------------------------------------------------------------

    def describe(self, shape: Shape) -> Mapping[str, Any]:
        """Return how sbatch is asked for a member."""
        return describe(shape)

    def start(self, member: Started, job: Mapping[str, Any], written: Written) -> None:
        """Submit the job of a member, once the list shows that there is none."""
        self._follow(_Following(member, job["comment"], job, written))

    def find(self, member: Started, home: str, job: str | None) -> None:
        """Follow the job of a member that is written down."""
        following = _Following(member, mark(member.tag, home), id=job, unseen=True)
        if job is not None:
            self._jobs[job] = following
        self._follow(following)

    def _follow(self, following: _Following) -> None:
        self._members[following.comment] = following
        self._look_soon(0.0)

    def end(self, job: JobName, reason: str, done: Report) -> None:
        """Cancel a job."""

        def ended(outcome: CommandResult) -> None:
            gone = outcome.error is not None and "invalid job id" in outcome.error.lower()
            failed = outcome.error is not None and not gone
            done(OSError(errno.EAGAIN, outcome.error) if failed else None)

        words = ["scancel", "--", str(job)]
        self._run(self._loop, words, ended, limit=COMMAND_SECONDS)

    def why(self, job: JobName) -> str | None:
        """Return Slurm's reason why a job waits, such as "waits in Slurm: Priority"."""
        following = self._jobs.get(job)
        seen = None if following is None else following.seen
        return f"waits in Slurm: {seen.why}" if seen is not None and seen.waits else None

    def forget(self, job: JobName) -> None:
        """Follow a job no more."""
        following = self._jobs.get(job)
        if following is not None:
            self._drop(following)

    def close(self) -> None:
        """Follow nothing any more."""
        self._closed = True
        self._members.clear()
        self._jobs.clear()
        if self._poll is not None:
            self._poll.cancel()

    # -- the list -----------------------------------------------------------------------

    def _look_soon(self, seconds: float) -> None:
        if self._listing or self._closed:
            return
        if self._poll is not None:
            self._poll.cancel()
        self._poll = self._loop.timer(seconds, self._look)

    def _look(self) -> None:
        """List the jobs of the user, as they are from now on."""
        self._poll = None
        if not self._members:
            return
        self._listing = True
        # Those that are asked for while squeue runs have to wait for the next list.
        asked = list(self._members.values())
        words = ["squeue", "--noheader", "--array", "--states=all", "--me", f"--format={COLUMNS}"]
        self._run(self._loop, words, partial(self._listed, asked), limit=LIST_SECONDS)

    def _listed(self, asked: list[_Following], outcome: CommandResult) -> None:
        self._listing = False
        if self._closed:
            return
        if outcome.error is not None:
            self._log_trouble(f"cannot ask Slurm for its jobs: {outcome.error}")
            for following in asked:
                if following.id is None:
                    following.member.waits(SiteWaitError(outcome.error))
        else:
            self._log_trouble(None)
            if outcome.output != self._latest or not all(each.calm for each in asked):
                self._latest = outcome.output
                jobs = read(outcome.output)
                for following in asked:
                    if self._members.get(following.comment) is following:
                        self._update(following, jobs.get(following.comment, {}))
        self._look_soon(POLL_SECONDS)

    def _log_trouble(self, trouble: str | None) -> None:
        """Log a trouble once, and when it is over."""
        if trouble != self._trouble:
            self._trouble = trouble
            self._log_error(trouble or "Slurm answers again")

    def _update(self, following: _Following, jobs: Mapping[str, SlurmJob]) -> None:
        member = following.member
        following.calm = False
        if following.submitting:
            if self._loop.now() - following.t_asked >= SLOW_SECONDS:
                member.waits(SiteWaitError(SLOW))
            return
        if following.id is None:
            found = next(iter(jobs.values()), None)
            if found is not None:
                # An earlier service, or an earlier attempt, has submitted it.
                self._submitted(following, found.job)
            elif member.unwanted:
                self._drop(following)
                member.give_up(UNNEEDED)
            elif self._loop.now() >= following.t_next:
                self._submit(following)
            return
        for seen in jobs.values():
            if seen.job != following.id and seen.alive:
                self._cancel_copy(following, seen)
        self._advance(following, jobs.get(following.id))
        following.calm = following.began and following.missed == 0 and len(jobs) == 1

    def _advance(self, following: _Following, seen: SlurmJob | None) -> None:
        """Tell a member what the list shows of its job."""
        member = following.member
        if seen is None:
            following.missed += 1
            if following.missed >= MISSED:
                self._over(following, "its job is not in Slurm's list any more")
            return
        following.missed = 0
        following.seen = seen
        if seen.alive:
            following.unseen = False
        if member.job is None:
            member.submitted(seen.job)
        if seen.held:
            if following.written is None:
                # Its id is written down, and the service that did so died before it released it.
                self._release(following)
            return
        if not seen.alive:
            why = "" if seen.reason in ("None", "") else f" ({seen.reason})"
            self._over(following, f"its job in Slurm is {seen.state}{why}")
        elif seen.state != "PENDING":
            if not following.began:
                following.began = True
                member.began()
            if seen.uri is not None and not following.reached:
                following.reached = True
                member.reached(seen.uri)

    def _over(self, following: _Following, reason: str) -> None:
        self._drop(following)
        # Its pool is filled again if it ended while no service was there.
        following.member.broke(reason, following.unseen)
        following.member.over()

    def _drop(self, following: _Following) -> None:
        self._members.pop(following.comment, None)
        if following.id is not None:
            self._jobs.pop(following.id, None)

    # -- submitting ---------------------------------------------------------------------

    def _submit(self, following: _Following) -> None:
        if following.job is None:
            # It was written down by nobody, so it was never released.
            self._over(following, "its job was never submitted")
            return
        following.submitting, following.t_asked = True, self._loop.now()
        self._run(
            self._loop,
            ["sbatch", *following.job["arguments"]],
            partial(self._answered, following),
            limit=COMMAND_SECONDS,
            environment=following.job["environment"],
            script=following.job["script"],
        )

    def _answered(self, following: _Following, outcome: CommandResult) -> None:
        following.submitting = False
        if self._closed:
            return
        job = outcome.output.strip().partition(";")[0]
        if outcome.error is None and job.isdecimal():
            self._submitted(following, job)
            return
        error = outcome.error or "sbatch printed no id"
        unknown = outcome.late or outcome.error is None
        if unknown or any(trouble in error.lower() for trouble in _TROUBLES):
            # The next list shows whether it was submitted nevertheless.
            following.pause = min(2.0 * following.pause or POLL_SECONDS, PAUSE_LIMIT)
            following.t_next = self._loop.now() + following.pause
            following.member.waits(SiteWaitError(error))
            return
        self._drop(following)
        following.member.refused(f"Slurm refuses its job: {error}")

    def _submitted(self, following: _Following, job: str) -> None:
        following.id = job
        self._jobs[job] = following
        following.member.submitted(job)
        if following.written is not None and self._members.get(following.comment) is following:
            following.written(job, partial(self._durable, following))

    def _durable(self, following: _Following) -> None:
        following.written = None
        if self._members.get(following.comment) is following:
            self._release(following)

    def _release(self, following: _Following) -> None:
        if following.released or following.id is None:
            return
        following.released = True
        self._run(
            self._loop,
            ["scontrol", "release", following.id],
            partial(self._did_release, following),
            limit=COMMAND_SECONDS,
        )

    def _did_release(self, following: _Following, outcome: CommandResult) -> None:
        if outcome.error is not None:
            # The next list shows whether it is still held.
            following.released = False
            self._log_trouble(f"cannot release job {following.id} in Slurm: {outcome.error}")

    def _cancel_copy(self, following: _Following, copy: SlurmJob) -> None:
        tag = following.member.tag
        self._log_error(
            f"{bounded(tag.name)}: job {copy.job} of Slurm is cancelled: its tag is that of member "
            f"{bounded(tag.member)}, which is job {following.id}"
        )
        self.end(copy.job, "a copy", lambda error: None)


def make(loop: Loop, log_error: Callable[[str], None], directory: Path | None) -> SlurmProvider:
    """Make the provider of a service: see `SlurmProvider`."""
    return SlurmProvider(loop, log_error)
