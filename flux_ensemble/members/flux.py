"""The Flux member: jobs go to Flux's queue, asynchronously and pipelined.

`FluxQueue` is what all ensembles of a service share: the handle, and a bounded number of
submissions and other calls under way, taken in turns. `FluxMember` is one ensemble's
view of it: it makes jobspecs with the environment and working directory of the user who
loaded the document, and reports each command's outcome.

Submissions take the validated path of job-ingest, so a site's validators and
frobnicators apply. A response can be lost for good (job-ingest reloaded under load), so
nothing is awaited without a limit; a job whose submit event the journal has shown
(`FluxMember.seen`) counts as accepted all the same.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import flux.job
from flux.constants import FLUX_POLLIN
from flux.core.handle import Flux
from flux.core.inner import lib

from flux_ensemble.engine.commands import CancelJobs, SubmitJobs, UpdateJobs
from flux_ensemble.engine.events import CommandDone, CommandFailed, Tag
from flux_ensemble.members.base import Done
from flux_ensemble.members.pipeline import Batch, Pipeline, Report
from flux_ensemble.members.template import TagTemplates
from flux_ensemble.spec.model import Spec

#: Wraps a callback so that no exception escapes it: one that does kills a broker module.
Guard = Callable[[Callable[..., None]], Callable[..., None]]

#: Submissions, and other calls, under way at once over all ensembles.
SUBMISSIONS = 512
CALLS = 256

#: Seconds after which a call without a response is given up.
PATIENCE = 60.0

#: What a refusal usually means, by errno.
HINTS = {
    errno.ENOSYS: "job-ingest is not loaded: see 'flux module list'",
    errno.EHOSTUNREACH: "job-ingest went away: see 'flux module list'",
}


def guard(report: Callable[[Exception], None]) -> Guard:
    """Make a `Guard` that gives exceptions to `report`."""

    def wrap(callback: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any) -> None:
            try:
                callback(*args)
            except Exception as error:
                report(error)

        return call

    return wrap


def errno_name(error: Exception) -> str:
    """The errno name of an exception, EINVAL where it has none."""
    return errno.errorcode.get(getattr(error, "errno", None) or errno.EINVAL, "EINVAL")


def sentence(error: Exception) -> str:
    """What is wrong, in Flux's words where they are its own."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error) if isinstance(error, ValueError) else f"internal error: {error!r}"


class _Watcher:
    """A `members.base.Handle` for a Flux watcher."""

    def __init__(self, watcher: Any) -> None:
        self._watcher = watcher
        watcher.start()

    def cancel(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop()
            watcher.destroy()


class FluxLoop:
    """A `members.base.Loop` on the reactor of a Flux handle."""

    def __init__(self, handle: Flux, guard: Guard) -> None:
        self._handle = handle
        self._guard = guard
        self._reactor = handle.get_reactor()

    def now(self) -> float:
        return time.time()

    def timer(self, after: float, callback: Callable[[], None], every: float = 0.0) -> _Watcher:
        # The reactor's idea of now dates from the start of its present turn.
        lib.flux_reactor_now_update(self._reactor)
        guarded = self._guard(callback)

        def fire(*_: Any) -> None:
            if not every:
                handle.cancel()
            guarded()

        handle = _Watcher(
            self._handle.timer_watcher_create(max(after, 0.0), fire, repeat=max(every, 0.0))
        )
        return handle

    def reader(self, fd: int, callback: Callable[[], None]) -> _Watcher:
        guarded = self._guard(callback)
        return _Watcher(
            self._handle.fd_watcher_create(fd, lambda *_: guarded(), events=FLUX_POLLIN)
        )


class FluxQueue:
    """Flux's queue, for any number of ensembles.

    Args:
        handle: Flux handle.
        report: gets exceptions that are nobody's business but the programmer's.
    """

    def __init__(self, handle: Flux, report: Callable[[Exception], None]) -> None:
        self.handle = handle
        self.report = report
        self.guard = guard(report)
        self.submissions = Pipeline(SUBMISSIONS)
        self.calls = Pipeline(CALLS)

    def call(self, future: Any, receive: Callable[[Any], None], report: Report) -> None:
        """Report what comes of a future: what `receive` raises for it, or success."""

        def answered(future: Any) -> None:
            try:
                receive(future)
            except Exception as error:
                report(error)
            else:
                report(None)

        future.then(self.guard(answered), timeout=PATIENCE)


class FluxMember:
    """One ensemble's jobs in Flux's queue: a `members.base.Member`.

    Args:
        queue: the queue that it shares.
        spec: the ensemble's document.
        run: a number that tells this ensemble from others of its name.
        environment: of the jobs.
        cwd: working directory of the jobs.
    """

    elastic = False

    def __init__(
        self, queue: FluxQueue, spec: Spec, *, run: int, environment: Mapping[str, str], cwd: str
    ) -> None:
        self._queue = queue
        self._spec = spec
        self._templates = TagTemplates(environment=environment, cwd=cwd)
        self._tag = {"name": spec.name, "run": run}
        self._unanswered: dict[Tag, int | None] = {}

    def seen(self, tag: Tag, job: int) -> None:
        """The journal has shown the submit event of a job: it was accepted."""
        if tag in self._unanswered:
            self._unanswered[tag] = job

    def submit(self, command: SubmitJobs, done: Done) -> None:
        """Submit jobs; at the first refusal no more of the command are sent."""
        submission = self._spec.groups[command.group].submission(command.each, command.params)
        ids: list[int] = []

        def start(call: int, report: Report) -> None:
            tag = Tag(command.group, command.rule, command.firing, command.first + call)
            one, params = submission[tag.index]
            text = self._templates.jobspec(one, params, {**self._tag, **tag._asdict()})
            future = flux.job.submit_async(self._queue.handle, text, urgency=one.urgency)
            self._unanswered[tag] = None
            self._queue.call(future, partial(self._accepted, tag, ids), report)

        def finish(batch: Batch) -> None:
            if batch.errors:
                call, error = batch.errors[0]
                done(self._refused(command, command.first + call, error, tuple(ids)))
            elif batch.revoked:
                reason = "the ensemble ended before all jobs were submitted"
                done(CommandFailed(time.time(), command.id, "ECANCELED", reason, ids=tuple(ids)))
            else:
                done(CommandDone(time.time(), command.id, {"ids": ids}))

        self._queue.submissions.add(self, Batch(command.count, start, finish, stop_at_error=True))

    def _accepted(self, tag: Tag, ids: list[int], future: Any) -> None:
        shown = self._unanswered.pop(tag, None)
        try:
            ids.append(int(future.get_id()))
        except OSError as error:
            if error.errno != errno.ETIMEDOUT:
                raise
            if shown is None:
                raise OSError(
                    errno.ETIMEDOUT,
                    f"no response within {PATIENCE:g} s, and the journal does not show the job; "
                    "whether it will run is unknown",
                ) from None
            ids.append(shown)

    def _refused(
        self, command: SubmitJobs, index: int, error: Exception, ids: tuple[int, ...]
    ) -> CommandFailed:
        if not isinstance(error, (OSError, ValueError)):
            self._queue.report(error)
        reason = f"job {index}: {sentence(error)} ({errno_name(error)})"
        hint = HINTS.get(getattr(error, "errno", None) or 0)
        if hint:
            reason = f"{reason}; {hint}"
        return CommandFailed(time.time(), command.id, errno_name(error), reason, ids=ids)

    def cancel(self, command: CancelJobs, done: Done) -> None:
        """Raise a cancel exception on each job."""

        def start(call: int, report: Report) -> None:
            future = flux.job.cancel_async(self._queue.handle, command.jobs[call], command.reason)
            self._queue.call(future, _unless_inactive, report)

        self._run(command.id, "cancel", command.jobs, start, done)

    def update(self, command: UpdateJobs, done: Done) -> None:
        """Set urgency, or duration, or both, of each job."""
        requests: list[tuple[str, dict[str, Any]]] = []
        if command.urgency is not None:
            requests.append(("job-manager.urgency", {"urgency": command.urgency}))
        if command.duration is not None:
            updates = {"attributes.system.duration": command.duration}
            requests.append(("job-manager.update", {"updates": updates}))

        def start(call: int, report: Report) -> None:
            index, which = divmod(call, len(requests))
            topic, payload = requests[which]
            future = self._queue.handle.rpc(topic, {"id": command.jobs[index], **payload})
            self._queue.call(future, _unless_inactive, report)

        jobs = tuple(job for job in command.jobs for _ in requests)
        self._run(command.id, "update", jobs, start, done)

    def _run(
        self,
        command: int,
        verb: str,
        jobs: tuple[int, ...],
        start: Callable[[int, Report], None],
        done: Done,
    ) -> None:
        def finish(batch: Batch) -> None:
            if not batch.errors:
                done(CommandDone(time.time(), command))
                return
            lines = [
                f"{flux.job.JobID(jobs[call]).f58}: {sentence(error)} ({errno_name(error)})"
                for call, error in batch.errors
            ]
            reason = f"cannot {verb} {len(lines)} of {len(jobs)} jobs: {lines[0]}"
            failed = errno_name(batch.errors[0][1])
            done(CommandFailed(time.time(), command, failed, reason, "\n".join(lines)))

        batch = Batch(len(jobs), start, finish, stop_at_error=False)
        self._queue.calls.add(self, batch)

    def revoke(self) -> None:
        """Send no more jobs of the submissions under way."""
        self._queue.submissions.revoke(self)


def _unless_inactive(future: Any) -> None:
    """Raise the future's error, except where the job has ended or can no longer be changed.

    The job manager tells these apart by its sentence alone (`urgency.c`, `update.c` and
    `raise.c` in flux-core's job-manager).
    """
    try:
        future.get()
    except OSError as error:
        over = "inactive" in sentence(error) or "once resources are allocated" in sentence(error)
        if error.errno != errno.ENOENT and not over:
            raise
