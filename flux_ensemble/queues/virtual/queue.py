"""A queue without a resource manager: jobs on a virtual cluster, with a real job's events.

    commands ──► VirtualMember ──► VirtualQueue ──scheduler──► Runner (processes, or virtual time)
                                       │  ▲                        │
        events of RFC 21 ◄─────────────┘  └──── started, ended ────┘

The local queue and the simulator are this queue with different runners and clocks, so a
document behaves the same on both.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol

from flux_ensemble.document.job_sets import JobSet, Submission
from flux_ensemble.document.keys.rules import JOB_EVENTS
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.commands import CancelJobs, Scale, SubmitJobs, UpdateJobs
from flux_ensemble.engine.events import CommandDone, CommandFailed, JobEvent, Tag
from flux_ensemble.engine.intervals import joined
from flux_ensemble.queues.virtual.cluster import Shape, UnsatisfiableError
from flux_ensemble.queues.virtual.scheduler import Claim, Scheduler
from flux_ensemble.runtime.ports import Done

#: An event: its name and its context (RFC 21).
Notice = tuple[str, Mapping[str, Any]]

_NOTHING: Mapping[str, int] = MappingProxyType({})

# Events that are always the same.
_VALIDATE: Notice = ("validate", {})
_DEPEND: Notice = ("depend", {})
_ALLOC: Notice = ("alloc", {})
_RELEASE: Notice = ("release", {"ranks": "all", "final": True})
_FREE: Notice = ("free", {})
_CLEAN: Notice = ("clean", {})


@cache
def _beginning(urgency: int) -> tuple[Notice, ...]:
    """Return the events of a new job; cached, since jobs are many and urgencies few."""
    submit, priority = {"urgency": urgency}, {"priority": urgency}
    return ("submit", submit), _VALIDATE, _DEPEND, ("priority", priority)


class VirtualJob:
    """An active job.

    Not a dataclass: see `engine.jobs.ActiveJob`.

    Args:
        id: its number.
        tag: the firing, and the index within it.
        job_set: as the document has it.
        params: its parameter values.
        claim: its place in the queue and on the cluster.

    Attributes:
        state: "pending", "placed" (it has nodes), "allocated" (and its alloc event was
            posted), "running", or "ended".
        t_alloc: when its alloc event was posted.
    """

    def __init__(
        self, id: int, tag: Tag, job_set: JobSet, params: Mapping[str, Any], claim: Claim
    ) -> None:
        self.id = id
        self.tag = tag
        self.job_set = job_set
        self.params = params
        self.claim = claim
        self.state = "pending"
        self.t_alloc = 0.0


class Runner(Protocol):
    """A way to run jobs that have their resources."""

    def start(self, job: VirtualJob) -> None:
        """Start the job; `VirtualQueue.started` and later `VirtualQueue.ended` are called."""
        ...

    def stop(self, job: VirtualJob) -> None:
        """End the running job soon; `VirtualQueue.ended` is called when it has ended."""
        ...

    def limit_changed(self, job: VirtualJob) -> None:
        """Apply a changed time limit to a running job."""
        ...


class VirtualQueue:
    """The jobs of one ensemble on a virtual cluster.

    Args:
        scheduler: chooses the nodes of jobs.
        now: returns the time in seconds.
        post: receives each job event.
        runner: runs the jobs.
        wake: called when `schedule` has to be called soon.
        wants: names of the events that are posted.
        after: the ids of its jobs begin after this one.

    Attributes:
        last_id: the last job id that was used.
        t_gone: the time when the latest job ended.
        refused: the reason why jobs of a group cannot run, by group.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        now: Callable[[], float],
        post: Callable[[JobEvent], None],
        runner: Runner,
        wake: Callable[[], None],
        wants: Container[str] = frozenset(JOB_EVENTS),
        after: int = 0,
    ) -> None:
        self.scheduler = scheduler
        self._now = now
        self._post = post
        self._runner = runner
        self._wake = wake
        self._wants = wants
        self.jobs: dict[int, VirtualJob] = {}
        self.last_id = after
        self.t_gone = 0.0
        self.refused: dict[str, str] = {}

    def submit(self, tag: Tag, job_set: JobSet, params: Mapping[str, Any], shape: Shape) -> int:
        """Take in a job.

        Returns:
            Its id. A job that the cluster cannot run ends with an exception, as in Flux.
        """
        self.last_id += 1
        id = self.last_id
        claim = Claim(id, shape, job_set.urgency, job_set.duration)
        job = self.jobs[id] = VirtualJob(id, tag, job_set, params, claim)
        self._post_of(job, *_beginning(job_set.urgency))
        self._enqueue(job)
        return id

    def adopt(
        self, id: int, tag: Tag, job_set: JobSet, params: Mapping[str, Any], shape: Shape
    ) -> None:
        """Take in a job that an earlier queue had taken in and not started."""
        claim = Claim(id, shape, job_set.urgency, job_set.duration)
        job = self.jobs[id] = VirtualJob(id, tag, job_set, params, claim)
        self.last_id = max(self.last_id, id)
        self._enqueue(job)

    def schedule(self) -> None:
        """Start the jobs that can start now."""
        jobs: list[VirtualJob] = []
        for claim in self.scheduler.start(self._now()):
            job = self.jobs[claim.job]
            job.state = "placed"
            jobs.append(job)
        # An event can cause the cancellation of this job or of a later one.
        for job in jobs:
            if job.state == "placed":
                job.state = "allocated"
                job.t_alloc = self._post_of(job, _ALLOC)
            if job.state == "allocated":
                job.state = "running"
                self._runner.start(job)

    def started(self, job: VirtualJob, t: float | None = None) -> None:
        """Post that a job runs; the event has the time and place of its allocation, as on Flux.

        Args:
            job: the job.
            t: the time since when it runs, in epoch seconds, if that is not now.
        """
        placed = job.claim.placed or ()
        ranks = str(placed[0]) if len(placed) == 1 else joined(placed)
        self._post_of(job, ("start", {"t_alloc": job.t_alloc, "ranks": ranks}), t=t)

    def memo(self, job: VirtualJob, values: Mapping[str, Any]) -> None:
        """Post values that the job publishes."""
        if job.state != "ended":
            self._post_of(job, ("memo", values))

    def exception(self, job: VirtualJob, kind: str, note: str, t: float | None = None) -> None:
        """Post the reason that ends the job: a timeout, a cancellation, a missing command.

        Args:
            job: the job.
            kind: of the exception.
            note: the sentence.
            t: its time in epoch seconds, if that is not now.
        """
        self._post_of(job, ("exception", {"type": kind, "severity": 0, "note": note}), t=t)

    def timed_out(self, job: VirtualJob, t: float | None = None) -> None:
        """Post that a job has reached its time limit, now or at the time `t`."""
        self.exception(job, "timeout", "resource allocation expired", t)

    def ended(
        self,
        job: VirtualJob,
        status: int,
        t: float | None = None,
        used: Mapping[str, int] = _NOTHING,
    ) -> None:
        """Post that the job's processes are gone, and release its nodes.

        Args:
            job: the job.
            status: a wait status (wait(2)).
            t: the time since when they are gone, in epoch seconds, if that is not now.
            used: what the job used, as in the context of `finish` (`engine.events.CPU`), if known.
        """
        self._post_of(job, ("finish", {"status": status, **used}), _RELEASE, t=t)
        self.scheduler.release(job.claim)
        self._remove(job, _FREE, _CLEAN)
        if self.scheduler.waiting:
            self._wake()

    def cancel(self, id: int, note: str) -> None:
        """Cancel a job; a job that is not active is no error."""
        job = self.jobs.get(id)
        if job is None:
            return
        self.exception(job, "cancel", note)
        if job.state == "running":
            self._runner.stop(job)
            return
        if job.state == "pending":
            self.scheduler.remove(job.claim)
        else:
            self.scheduler.release(job.claim)
        self._remove(job, *((_FREE, _CLEAN) if job.state == "allocated" else (_CLEAN,)))
        self._wake()

    def expire(self, job: VirtualJob) -> None:
        """End a job that has reached its time limit."""
        self.timed_out(job)
        self._runner.stop(job)

    def update(self, id: int, urgency: int | None, duration: float | None) -> None:
        """Change an active job; the urgency of a running job stays."""
        job = self.jobs.get(id)
        if job is None:
            return
        if urgency is not None and job.state == "pending":
            self._post_of(
                job, ("urgency", {"urgency": urgency}), ("priority", {"priority": urgency})
            )
        self.scheduler.change(job.claim, urgency, duration, self._now())
        if duration is not None:
            self._post_of(job, ("jobspec-update", {"attributes.system.duration": duration}))
            if job.state == "running":
                self._runner.limit_changed(job)
        self._wake()

    def _post_of(self, job: VirtualJob, *events: Notice, t: float | None = None) -> float:
        """Post the wanted ones of a job's events, with the time `t` or now; return the time."""
        now = self._now() if t is None else t
        for name, context in events:
            if name in self._wants:
                tag = job.tag if name == "submit" else None
                self._post(JobEvent(now, job.id, name, context, tag))
        return now

    def _enqueue(self, job: VirtualJob) -> None:
        try:
            self.scheduler.add(job.claim)
        except UnsatisfiableError as error:
            note = f"unsatisfiable request: {error}"
            self.refused.setdefault(job.tag.group, note)
            self.exception(job, "alloc", note)
            self._remove(job, _CLEAN)
        else:
            self._wake()

    def _remove(self, job: VirtualJob, *events: Notice) -> None:
        """Forget the job, and post its last events."""
        job.state = "ended"
        del self.jobs[job.id]
        self.t_gone = self._post_of(job, *events)


class VirtualMember:
    """The view of an ensemble on a virtual queue: a `runtime.ports.Queue`.

    Args:
        spec: the ensemble's document.
        queue: of its jobs.
        shape: returns the shape of a job set.
        now: returns the time in seconds.
    """

    elastic = False

    def __init__(
        self,
        spec: Spec,
        queue: VirtualQueue,
        *,
        shape: Callable[[JobSet], Shape],
        now: Callable[[], float],
    ) -> None:
        self._spec = spec
        self._queue = queue
        self._shape = shape
        self._now = now
        self.known: dict[Tag, int] = {}
        self._latest: tuple[tuple[str, int], Submission] | None = None

    def submit(self, command: SubmitJobs, done: Done) -> None:
        """Submit jobs."""
        submission = self._submission(command)
        ids = []
        for index in range(command.first, command.first + command.count):
            tag = Tag(command.group, command.rule, command.firing, index)
            if self.known and tag in self.known:
                ids.append(self.known.pop(tag))
                continue
            job_set, params = submission[index]
            ids.append(self._queue.submit(tag, job_set, params, self._shape(job_set)))
        done(CommandDone(self._now(), command.id, {"ids": ids}))

    def _submission(self, command: SubmitJobs) -> Submission:
        """Return the jobs of a firing; kept, since many commands in a row may belong to it."""
        firing = command.rule, command.firing
        if self._latest is None or self._latest[0] != firing:
            group = self._spec.groups[command.group]
            self._latest = firing, group.submission(command.each, command.params, command.overrides)
        return self._latest[1]

    def cancel(self, command: CancelJobs, done: Done) -> None:
        """Cancel jobs."""
        for job in command.jobs:
            self._queue.cancel(job, command.reason)
        done(CommandDone(self._now(), command.id))

    def update(self, command: UpdateJobs, done: Done) -> None:
        """Change the urgency or the duration of jobs."""
        for job in command.jobs:
            self._queue.update(job, command.urgency, command.duration)
        done(CommandDone(self._now(), command.id))

    def scale(self, command: Scale, done: Done) -> None:
        """Refuse: the number of nodes is fixed."""
        reason = "the instance has a fixed size"
        done(CommandFailed(self._now(), command.id, "EINVAL", reason))

    def seen(self, tag: Tag, job: int) -> None:
        """Do nothing: every submission gets its response."""

    def refused(self, job: int) -> None:
        """Do nothing: no job is refused after it was taken in."""

    def revoke(self) -> None:
        """Do nothing: submissions are immediate, so none is in progress."""
