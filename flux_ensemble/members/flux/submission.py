"""The submission of an ensemble's jobs to Flux's queue.

    SubmitJobs ──► known already? ──► Outcomes ──► FluxQueue.send
                                         ▲
                     journal ──► seen ───┘

The jobs of a job set that have the same size are alike but for the texts that parameters are put
into, so the validators of job-ingest, which are processes of their own, look at one of them: until
one has been accepted, each command's first job takes the validated path, and the others wait for
what becomes of it.

It knows no Flux itself: a queue with `send` and `release` is enough for it (the real one is
`members.flux.queue.FluxQueue`). Each job carries its tag, and the journal shows each job with
its tag, so it can always be told whether a job got into the queue: see `members.flux.delivery`.
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from flux_ensemble.document.model import Spec
from flux_ensemble.engine.commands import SubmitJobs
from flux_ensemble.engine.events import CommandDone, CommandFailed, Tag
from flux_ensemble.members.flux.delivery import Answer
from flux_ensemble.members.flux.errors import errno_name, sentence
from flux_ensemble.members.flux.jobspecs import TagTemplates
from flux_ensemble.members.flux.outputs import Outputs
from flux_ensemble.members.flux.pipeline import Calls, Report
from flux_ensemble.runtime.ports import Done, Outcome

if TYPE_CHECKING:
    from flux_ensemble.members.flux.queue import FluxQueue

#: What a refusal usually means, by errno.
HINTS = {
    errno.ENOSYS: "job-ingest is not loaded: see 'flux module list'",
    errno.EHOSTUNREACH: "job-ingest went away: see 'flux module list'",
    errno.ETIMEDOUT: "the queue does not respond, and whether the job will run is unknown",
}


class _Sent:
    """A submission that has no outcome yet.

    Attributes:
        urgency: of the job.
        arrived: called when the journal shows the job.
        shown: the job's id, once the journal has shown it.
        refused: the journal has shown that the job manager refused it.
    """

    __slots__ = ("arrived", "refused", "shown", "urgency")

    def __init__(self, urgency: int, arrived: Callable[[], None]) -> None:
        self.urgency = urgency
        self.arrived = arrived
        self.shown: int | None = None
        self.refused = False

    def outcome(self) -> int | Exception | None:
        """What the journal has shown of it."""
        if self.refused:
            return OSError(errno.EINVAL, "the job manager refused it; the reason was lost")
        return self.shown


class Submitter:
    """What a Flux member submits, and what it knows of that.

    Args:
        queue: the queue that it shares.
        spec: the ensemble's document.
        run: a number that tells this ensemble from others of its name.
        environment: of the jobs.
        cwd: working directory of the jobs.
        warn: gets a sentence about what is wrong, and keeps no job from being submitted.

    Attributes:
        known: jobs that the queue has although no submission has said so: they count as
            accepted when a command asks for them, and are not submitted again. Whoever performs
            commands again after a crash fills it.
    """

    def __init__(
        self,
        queue: FluxQueue,
        spec: Spec,
        *,
        run: int,
        environment: Mapping[str, str],
        cwd: str,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._queue = queue
        self._spec = spec
        self._strict = spec.durability == "strict"
        self._templates = TagTemplates(
            environment=environment, cwd=cwd, prefix=spec.job_prefix, built=Outputs(warn).make
        )
        self._tag = {"name": spec.name, "run": run}
        self._sent: dict[Tag, _Sent] = {}
        self._submitting: dict[int, SubmitJobs] = {}
        self._held: dict[int, int] = {}
        self._valid: set[tuple[str | int, ...]] = set()
        self.known: dict[Tag, int] = {}

    def seen(self, tag: Tag, job: int) -> None:
        """The journal has shown the submit event of a job."""
        sent = self._sent.get(tag)
        if sent is not None:
            if sent.shown is None:
                sent.shown = job
                self._hold(job, sent.urgency)
                sent.arrived()
        elif any(_asks_for(command, tag) for command in self._submitting.values()):
            self.known.setdefault(tag, job)

    def refused(self, job: int) -> None:
        """The journal has shown that the job manager refused a job (event `invalidate`)."""
        for sent in self._sent.values():
            if sent.shown == job:
                sent.refused = True

    def submit(self, command: SubmitJobs, done: Done) -> None:
        """Submit jobs; at the first refusal no more of the command are sent."""
        submission = self._spec.groups[command.group].submission(
            command.each, command.params, command.overrides
        )
        variant = json.dumps(command.overrides) if command.overrides else ""
        ids: list[int] = []
        known: dict[int, int] = {}
        self._submitting[command.id] = command

        def start(call: int, report: Report) -> None:
            tag = _tag(command, call)
            one, params = submission[tag.index]
            job = self.known.pop(tag, None)
            if job is not None:
                known[job] = one.urgency
                ids.append(job)
                report(None)
                return
            sent = self._sent[tag] = _Sent(one.urgency, partial(calls.arrived, call))
            kind = one.name, one.index, one.nodes, one.tasks, one.cores, one.gpus, variant
            if kind not in self._valid:
                calls.alone = call

            def send(answer: Answer) -> None:
                if calls.revoked:
                    raise OSError(errno.ECANCELED, "the ensemble has ended")
                text = self._templates.jobspec(one, params, self._tag_of(tag), variant)
                urgency = 0 if self._strict else one.urgency
                self._queue.send(text, urgency, answer, validate=kind not in self._valid)

            def answered(answer: int | Exception) -> None:
                del self._sent[tag]
                if isinstance(answer, Exception):
                    if sent.shown is not None:
                        self._held.pop(sent.shown, None)
                    report(answer)
                else:
                    self._valid.add(kind)
                    self._hold(answer, one.urgency)
                    ids.append(answer)
                    report(None)

            self._queue.outcomes.begin(send, sent.outcome, answered)

        def finish(calls: Calls) -> None:
            del self._submitting[command.id]
            for call in range(command.count) if self.known else ():
                job = self.known.pop(_tag(command, call), None)
                if job is not None and call >= calls.started:
                    known[job] = submission[command.first + call][0].urgency
                    ids.append(job)
            outcome: Outcome
            if calls.revoked:
                reason = "the ensemble ended before all jobs were submitted"
                outcome = CommandFailed(
                    time.time(), command.id, "ECANCELED", reason, ids=tuple(ids)
                )
            elif calls.errors:
                call, error = calls.errors[0]
                outcome = self._refused(command, command.first + call, error, tuple(ids))
            else:
                outcome = CommandDone(time.time(), command.id, {"ids": ids})
            if self._strict and ids:
                self._release(outcome, ids, known, done)
            else:
                done(outcome)

        calls = Calls(command.count, start, finish, stop_at_error=True)
        self._queue.submissions.add(self, calls)

    def _tag_of(self, tag: Tag) -> dict[str, Any]:
        """What a job carries in `attributes.user.ensemble`."""
        return {**self._tag, **tag._asdict()}

    def _hold(self, job: int, urgency: int) -> None:
        """Note that a job is held, and the urgency that it is to have."""
        if self._strict and urgency:
            self._held.setdefault(job, urgency)

    def _release(
        self, outcome: Outcome, ids: list[int], known: Mapping[int, int], done: Done
    ) -> None:
        """Release the held jobs of a command, then say what came of it."""
        for job, urgency in known.items():
            self._hold(job, urgency)

        def released(error: Exception | None) -> None:
            if error is None or isinstance(outcome, CommandFailed):
                done(replace(outcome, t=time.time()))
                return
            reason = f"jobs are held that cannot be released: {sentence(error)}"
            name = errno_name(error)
            done(
                CommandFailed(
                    time.time(), outcome.command, name, f"{reason} ({name})", ids=tuple(ids)
                )
            )

        self._queue.release(self, self._held, ids, known, released)

    def _refused(
        self, command: SubmitJobs, index: int, error: Exception, ids: tuple[int, ...]
    ) -> CommandFailed:
        if not isinstance(error, (OSError, ValueError)):
            self._queue.broker.report(error)
        reason = f"job {index}: {sentence(error)} ({errno_name(error)})"
        hint = HINTS.get(getattr(error, "errno", None) or 0)
        if hint:
            reason = f"{reason}; {hint}"
        return CommandFailed(time.time(), command.id, errno_name(error), reason, ids=ids)


def _tag(command: SubmitJobs, call: int) -> Tag:
    """The tag of a job of a command."""
    return Tag(command.group, command.rule, command.firing, command.first + call)


def _asks_for(command: SubmitJobs, tag: Tag) -> bool:
    """The tag is that of a job of the command."""
    call = tag.index - command.first
    return 0 <= call < command.count and tag == _tag(command, call)
