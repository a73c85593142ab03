"""A queue that is no resource manager: jobs on a virtual cluster, with a real job's events.

    commands ──► VirtualMember ──► VirtualQueue ──scheduler──► Runner (processes, or virtual time)
                                       │  ▲                        │
        events of RFC 21 ◄─────────────┘  └──── started, ended ────┘

The local queue and the simulator are this queue with different runners and clocks, so a
document behaves the same on both.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import cache
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

# The events that are always the same.
_VALIDATE: Notice = ("validate", {})
_DEPEND: Notice = ("depend", {})
_ALLOC: Notice = ("alloc", {})
_RELEASE: Notice = ("release", {"ranks": "all", "final": True})
_FREE: Notice = ("free", {})
_CLEAN: Notice = ("clean", {})


@cache
def _beginning(urgency: int) -> tuple[Notice, ...]:
    """The events of a job that is taken in; jobs are many, and urgencies few."""
    submit, priority = {"urgency": urgency}, {"priority": urgency}
    return ("submit", submit), _VALIDATE, _DEPEND, ("priority", priority)


class VirtualJob:
    """One active job.

    Not a dataclass: see `engine.jobs.RunningJob`.

    Args:
        id: its number.
        tag: which job of which firing it is.
        job_set: as the document has it.
        params: its parameter values.
        claim: its place in the queue and in the cluster.

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
    """Runs jobs that have their resources."""

    def start(self, job: VirtualJob) -> None:
        """Start the job; calls `VirtualQueue.started`, later `VirtualQueue.ended`."""
        ...

    def stop(self, job: VirtualJob) -> None:
        """End the running job soon; its `VirtualQueue.ended` still comes."""
        ...

    def limit_changed(self, job: VirtualJob) -> None:
        """The time limit of the running job is another one now."""
        ...


class VirtualQueue:
    """Jobs of one ensemble on a virtual cluster.

    Args:
        scheduler: who gets which nodes.
        now: gives the time in seconds.
        post: gets each job event.
        runner: runs the jobs.
        wake: called when `schedule` is to be called soon.
        wants: names of the events that are posted.
        after: what the ids of its jobs come after.

    Attributes:
        last_id: the last job id that was used.
        t_gone: when a job left last.
        refused: why jobs of a group cannot run, by the name of each such group.
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
            Its id. What the cluster cannot run ends with an exception, as in Flux.
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
        """Take in a job that an earlier queue took in and did not start."""
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
        # An event can bring about that this job or a later one is cancelled.
        for job in jobs:
            if job.state == "placed":
                job.state = "allocated"
                job.t_alloc = self._post_of(job, _ALLOC)
            if job.state == "allocated":
                job.state = "running"
                self._runner.start(job)

    def started(self, job: VirtualJob, t: float | None = None) -> None:
        """The job runs; the event says when and where it was given its nodes, as on Flux.

        Args:
            job: it.
            t: since when, in epoch seconds, where that is not now.
        """
        placed = job.claim.placed or ()
        ranks = str(placed[0]) if len(placed) == 1 else joined(placed)
        self._post_of(job, ("start", {"t_alloc": job.t_alloc, "ranks": ranks}), t=t)

    def memo(self, job: VirtualJob, values: Mapping[str, Any]) -> None:
        """The job publishes values."""
        if job.state != "ended":
            self._post_of(job, ("memo", values))

    def exception(self, job: VirtualJob, kind: str, note: str) -> None:
        """Something ends the job: a timeout, a cancel, a command that does not exist."""
        self._post_of(job, ("exception", {"type": kind, "severity": 0, "note": note}))

    def ended(self, job: VirtualJob, status: int, t: float | None = None) -> None:
        """The job's processes are gone.

        Args:
            job: it.
            status: a wait status (wait(2)).
            t: since when, in epoch seconds, where that is not now.
        """
        self._post_of(job, ("finish", {"status": status}), _RELEASE, t=t)
        self.scheduler.release(job.claim)
        self._remove(job, _FREE, _CLEAN)
        if self.scheduler.waiting:
            self._wake()

    def cancel(self, id: int, note: str) -> None:
        """Cancel a job; one that is not active is no error."""
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
        """The job has reached its time limit."""
        self.exception(job, "timeout", "resource allocation expired")
        self._runner.stop(job)

    def update(self, id: int, urgency: int | None, duration: float | None) -> None:
        """Change a job that is active; the urgency of one that runs stays."""
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
        """Post those events of the job that are wanted; they happen at `t`, or now: returned."""
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
    """A `runtime.ports.Queue` on a virtual queue.

    Args:
        spec: the ensemble's document.
        queue: where its jobs go.
        shape: gives the shape of a job set.
        now: gives the time in seconds.
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
        """The jobs of the firing; a large one comes in many commands, one after the other."""
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
        """Change urgency or duration of jobs."""
        for job in command.jobs:
            self._queue.update(job, command.urgency, command.duration)
        done(CommandDone(self._now(), command.id))

    def scale(self, command: Scale, done: Done) -> None:
        """Refuse: the cluster has as many nodes as it was given."""
        reason = "the instance has a fixed size"
        done(CommandFailed(self._now(), command.id, "EINVAL", reason))

    def seen(self, tag: Tag, job: int) -> None:
        """Every submission gets its response, so there is nothing to learn from this."""

    def refused(self, job: int) -> None:
        """No job is refused after it was taken in."""

    def revoke(self) -> None:
        """Submissions are immediate, so none is under way."""
