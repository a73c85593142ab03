"""The submission of an ensemble's jobs to Flux's queue.

    SubmitJobs ──► known already? ──► Outcomes ──► FluxQueue.send
                                         ▲
                     journal ──► seen ───┘

The jobs of a job set that have the same size are alike, apart from the texts into which parameters
are put. The validators of job-ingest are processes of their own, so they check one of these jobs:
until one has been accepted, each command's first job is validated, and the others wait for its
outcome.

This module does not use Flux: any queue with `send` and `release` will do (the real one is
`queues.flux.queue.FluxQueue`). Each job carries its tag, and the journal shows each job with its
tag, so it can always be found out whether a job got into the queue: see `queues.flux.delivery`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from flux_ensemble.document.job_sets import JobSet, Submission
from flux_ensemble.document.jobspec import Links
from flux_ensemble.document.keys.overrides import GIVEN
from flux_ensemble.document.model import Spec
from flux_ensemble.document.texts import NUMBER
from flux_ensemble.engine.commands import SubmitJobs
from flux_ensemble.engine.events import CommandDone, CommandFailed, Tag
from flux_ensemble.queues.flux.delivery import FIRST_PAUSE, SLICE, Answer
from flux_ensemble.queues.flux.errors import errno_name, sentence
from flux_ensemble.queues.flux.pipeline import Calls, Report
from flux_ensemble.queues.flux.refusals import is_held, refusal
from flux_ensemble.queues.flux.steps import Step, run
from flux_ensemble.runtime.outputs import Outputs
from flux_ensemble.runtime.ports import Done, Outcome

if TYPE_CHECKING:
    from flux_ensemble.queues.flux.queue import FluxQueue
from uuid import uuid4

from flux_ensemble.document import jobspec
from flux_ensemble.encoding import dumps

#: Number of split jobspecs that are kept; a sweep goes through its combinations in order.
KEPT = 16


class _Encoded(NamedTuple):
    """An encoded jobspec: its text before and after the tag, and the inputs of its job."""

    before: str
    after: str
    links: Links | None


class TagTemplates:
    """Encoded jobspecs of one ensemble.

    Args:
        environment: of the jobs.
        cwd: working directory of the jobs.
        prefix: of the jobs' names.
        built: receives each jobspec that is built, with the placeholder.
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        cwd: str,
        prefix: str = "",
        built: Callable[[Mapping[str, Any]], None] = lambda jobspec: None,
    ) -> None:
        self._prefix = prefix
        self._built = built
        self._environment = environment
        self._cwd = cwd
        self._placeholder = {"placeholder": uuid4().hex}
        self._mark = json.dumps(self._placeholder)
        self._halves: dict[tuple[Any, ...], _Encoded] = {}

    def jobspec(
        self,
        job_set: JobSet,
        params: Mapping[str, Any],
        tag: Mapping[str, Any],
        variant: str = "",
        off: str = "",
        fault: str = "",
    ) -> str:
        """Return the encoded jobspec of a job.

        Args:
            job_set, params: of the job.
            tag: of the job.
            variant: distinguishes forms of one job set.
            off: the ranks that it is kept off, as an idset (RFC 22).
            fault: why the job must not run, if so. It has this in place of a program, which the job
                shell cannot find: so it fails, and its exception has the reason, even if the
                service is killed meanwhile.
        """
        encoded = self.prepare(job_set, params, variant, off, fault)
        return f"{encoded.before}{dumps(tag)}{encoded.after}"

    def prepare(
        self,
        job_set: JobSet,
        params: Mapping[str, Any],
        variant: str = "",
        off: str = "",
        fault: str = "",
    ) -> _Encoded:
        """Return the jobspec's text without its tag; build it if necessary."""
        values = json.dumps(params) if params else ""
        numbers = job_set.numbers.values()
        key = (job_set.name, job_set.index, *numbers, values, variant, off, fault)
        halves = self._halves.get(key)
        if halves is None:
            halves = self._split(job_set, params, off, fault)
            if len(self._halves) >= KEPT:
                del self._halves[next(iter(self._halves))]
            self._halves[key] = halves
        return halves

    def _split(self, job_set: JobSet, params: Mapping[str, Any], off: str, fault: str) -> _Encoded:
        whole = jobspec.anchored(
            jobspec.build(
                job_set,
                params,
                environment=self._environment,
                cwd=self._cwd,
                tag=self._placeholder,
                prefix=self._prefix,
            )
        )
        self._built(whole)
        if off:
            whole = jobspec.kept_off(whole, off)
        links = jobspec.links_of(job_set, params, self._cwd, whole)
        if fault:
            whole = jobspec.failing(whole, fault)
        before, after = json.dumps(whole).split(self._mark)
        return _Encoded(before, after, links)


#: A job set with the size of its jobs, its overrides, and the queue and bank of its jobs.
Kind = tuple[str | int, ...]

#: Seconds for which jobs wait before this is reported.
TELL_SECONDS = 1.0

#: The longest pause in seconds between two attempts to find out whether the queue takes jobs again.
#: Flux publishes no event for this, so one job is sent for all that wait.
LONGEST_WAIT = 5.0

#: The kind of waits for jobs of other ensembles, and the remedy.
SHARE = "share"
ADVICE = "'share' in the document weighs an ensemble"


@dataclass(frozen=True, slots=True)
class SubmissionWait:
    """A reason why jobs of a group wait to be submitted.

    Args:
        group: the group's name.
        kind: the name of the kind of refusal (`queues.flux.refusals`).
        reason: the text of the queue.
        advice: the remedy.
        t: the time since when they wait.
    """

    group: str
    kind: str
    reason: str
    advice: str
    t: float


@dataclass(slots=True, eq=False)
class _Batch:
    """A command in progress.

    Attributes:
        command: the command.
        submission: the whole of which it is a part: job sets with parameters, by a job's index.
        variant: the text of its overrides; empty without any.
        off: the ranks that its jobs are kept off, as an idset (RFC 22).
        ids: of its jobs that the queue has.
        known: those of them that the queue had before, with the urgency that they are to have.
        calls: one for each job.
    """

    command: SubmitJobs
    submission: Submission
    variant: str
    off: str = ""
    ids: list[int] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)
    calls: Calls = field(init=False)


@dataclass(slots=True, eq=False)
class _SentJob:
    """A job that was sent and has no outcome yet.

    Attributes:
        batch: of the command that submits it.
        tag: of the job.
        job_set: of the job.
        params: its parameters.
        kind: what it has in common with all jobs for which one validation is enough.
        apart: other jobs of the command may go elsewhere: parameters name the queue or bank.
        report: receives its outcome.
        shown: its id, once the journal has shown it.
        refused: the journal has shown that the job manager refused it.
        lost: its outcome is unknown.
        fault: why its inputs cannot be linked; empty if they can.
    """

    batch: _Batch
    tag: Tag
    job_set: JobSet
    params: Mapping[str, Any]
    kind: Kind
    apart: bool
    report: Report
    shown: int | None = None
    refused: bool = False
    lost: bool = False
    fault: str = ""

    def linked(self, reason: str | None) -> None:
        """Note whether the inputs of the job could be linked."""
        self.fault = reason or ""

    def outcome(self) -> int | None:
        """Return the id that the journal has shown.

        A refused job, whose reason was lost, has none: it is sent again, to receive the reason.
        """
        if self.refused:
            self.forget()
        return self.shown

    def forget(self) -> None:
        """Forget what the journal has shown, before the job is sent again."""
        self.shown = None
        self.refused = False


@dataclass(slots=True, eq=False)
class _Closed:
    """Jobs of one kind that wait, because the queue takes none of them for now.

    Attributes:
        waiting: those that are not sent, in order.
        probe: the job that was sent to find out whether the queue takes them again, or None.
        pause: seconds until the next one is sent.
    """

    waiting: deque[_SentJob] = field(default_factory=deque)
    probe: _SentJob | None = None
    pause: float = FIRST_PAUSE


@dataclass(frozen=True, slots=True)
class EnsembleRun:
    """A loaded ensemble, as far as its jobs depend on it.

    Args:
        spec: its document.
        number: distinguishes it from others of its name.
        environment: of the jobs.
        cwd: working directory of the jobs.
    """

    spec: Spec
    number: int
    environment: Mapping[str, str]
    cwd: str

    @classmethod
    def of(cls, spec: Spec, load: Mapping[str, Any]) -> EnsembleRun:
        """Return that of a document and of the request that loaded it."""
        return cls(spec, load["run"], load["environment"], load["cwd"])


class Submitter:
    """The submissions of a Flux member, and their state.

    Args:
        queue: the queue that it shares.
        ensemble: whose jobs are submitted.
        warn: receives a sentence about a problem that keeps no job from being submitted.
        news: called when a change of `waits` may have to be reported.

    Attributes:
        known: jobs that the queue has, although no submission has reported them: they count as
            accepted when a command submits them, and are not submitted again. The code that
            performs commands again after a crash fills it.
    """

    def __init__(
        self,
        queue: FluxQueue,
        ensemble: EnsembleRun,
        *,
        warn: Callable[[str], None] = lambda text: None,
        news: Callable[[], None] = lambda: None,
    ) -> None:
        self._queue = queue
        self._spec = spec = ensemble.spec
        self._news = news
        self._strict = spec.durability == "strict"
        self._outputs = Outputs(queue.broker.loop, warn, ensemble.cwd)
        self._templates = TagTemplates(
            environment=ensemble.environment,
            cwd=ensemble.cwd,
            prefix=spec.job_prefix,
            built=self._outputs.make,
        )
        self._tag = {"name": spec.name, "run": ensemble.number}
        self._sent: dict[Tag, _SentJob] = {}
        self._submitting: dict[int, SubmitJobs] = {}
        #: The commands whose jobs are being sent.
        self._begun: dict[int, _Batch] = {}
        self._held: dict[int, int] = {}
        self._valid: set[Kind] = set()
        self._closed: dict[Kind, _Closed] = {}
        self._over = False
        self._waits: dict[Kind, SubmissionWait] = {}
        #: Number of jobs of each kind whose outcome is unknown.
        self._lost = Counter[Kind]()
        self.known: dict[Tag, int] = {}

    def waits(self) -> list[SubmissionWait]:
        """Return why jobs wait, oldest first: one entry for each group and kind of refusal."""
        waits = {(wait.group, wait.kind): wait for wait in reversed(self._waits.values())}
        return sorted(waits.values(), key=lambda wait: wait.t)

    def waits_for_share(self) -> list[SubmissionWait]:
        """Return the groups whose jobs wait for those of other ensembles."""
        waiting = self._queue.submissions.turns.waiting(self)
        if waiting is None:
            return []
        return [
            SubmissionWait(group, SHARE, waiting.reason, ADVICE, waiting.t)
            for group in self.unsent()
        ]

    def unsent(self) -> Counter[str]:
        """Return how many jobs of each group are to be sent yet."""
        unsent = Counter[str]()
        for batch in self._begun.values():
            if batch.calls.waiting:
                unsent[batch.command.group] += batch.calls.waiting
        return unsent

    def on_their_way(self) -> Counter[str]:
        """Return how many jobs of each group were sent, and have not been seen in the queue."""
        return Counter(sent.tag.group for sent in self._sent.values() if sent.shown is None)

    def holds(self, job: int) -> bool:
        """Return whether a job is held until its record is on disk."""
        return job in self._held

    def seen(self, tag: Tag, job: int) -> None:
        """Note that the journal has shown the submit event of a job."""
        sent = self._sent.get(tag)
        if sent is not None:
            if sent.shown is None:
                sent.shown = job
                self._hold(job, self._urgency(sent.job_set))
                sent.batch.calls.arrived(tag.index - sent.batch.command.first)
        elif any(_asks_for(command, tag) for command in self._submitting.values()):
            self.known.setdefault(tag, job)

    def refused(self, job: int) -> None:
        """Note that the journal shows a refusal of the job manager (event `invalidate`)."""
        for sent in self._sent.values():
            if sent.shown == job:
                sent.refused = True

    def submit(self, command: SubmitJobs, done: Done) -> None:
        """Submit jobs; after the first refusal no more jobs of the command are sent."""
        self._over = False  # an ensemble that had ended goes on
        submission = self._spec.groups[command.group].submission(
            command.each, command.params, command.overrides
        )
        # Values of parameters and numbers of jobs are in what is known of a job anyway.
        own = (GIVEN, NUMBER)
        other = {key: one for key, one in (command.overrides or {}).items() if key not in own}
        variant = json.dumps(other) if other else ""
        run(self._steps(_Batch(command, submission, variant)), done)

    def _steps(self, batch: _Batch) -> Generator[Step, Any, Outcome]:
        self._submitting[batch.command.id] = batch.command
        if batch.command.off:
            yield from self._keep_off(batch)
        yield partial(self._begin, batch)
        del self._submitting[batch.command.id], self._begun[batch.command.id]
        self._take_known(batch)
        outcome = self._outcome(batch)
        if not self._strict or not batch.ids:
            return outcome
        for job, urgency in batch.known.items():
            self._hold(job, urgency)
        group = batch.command.group
        trouble = partial(self._note, ("release", batch.command.id), group)
        try:
            yield partial(
                self._queue.release, self, self._held, batch.ids, batch.known, trouble=trouble
            )
        except Exception as error:
            if isinstance(outcome, CommandDone):
                name = errno_name(error)
                reason = f"jobs are held that cannot be released: {sentence(error)} ({name})"
                return _failed(batch, name, reason)
        finally:
            self._clear(("release", batch.command.id))
        return replace(outcome, t=time.time())

    def _keep_off(self, batch: _Batch) -> Generator[Step, Any, None]:
        """Find out which of the ranks where a job failed it can be kept off."""
        command = batch.command
        job_set, params = batch.submission[command.first]
        tag = self._tag_of(_tag(command, 0))
        jobspec = json.loads(self._templates.jobspec(job_set, params, tag, batch.variant))
        batch.off = yield from self._queue.others.without(jobspec, command.off)

    def _begin(self, batch: _Batch, resume: Callable[[Calls], None]) -> None:
        start = partial(self._start, batch)
        batch.calls = Calls(batch.command.count, start, resume, stop_at_error=True)
        self._begun[batch.command.id] = batch
        if self._over and batch.command.off:
            # The ensemble ended while `_keep_off` waited.
            batch.calls.revoked = True
            batch.calls.finish_if_over()
            return
        self._queue.submissions.add(self, batch.calls)

    def _start(self, batch: _Batch, call: int, report: Report) -> None:
        """Submit a job of a command, unless the queue has it already."""
        tag = _tag(batch.command, call)
        job_set, params = batch.submission[tag.index]
        job = self.known.pop(tag, None)
        if job is not None:
            batch.known[job] = job_set.urgency
            batch.ids.append(job)
            report(None)
            return
        size = job_set.nodes, job_set.tasks, job_set.cores, job_set.gpus
        where = [text for text in (job_set.queue, job_set.bank) if text and "{" in text]
        kind: Kind = job_set.name, job_set.index, *size, batch.variant
        if where:
            kind += tuple(map(job_set.filler(params), where))
        if kind not in self._valid:
            batch.calls.alone = call
        sent = self._sent[tag] = _SentJob(batch, tag, job_set, params, kind, bool(where), report)
        if kind in self._closed:
            self._wait(sent)
        else:
            self._call(sent)

    def _call(self, sent: _SentJob) -> None:
        sent.forget()
        # An error in the jobspec is reported when the job is sent.
        with contextlib.suppress(Exception):
            encoded = self._templates.prepare(
                sent.job_set, sent.params, sent.batch.variant, sent.batch.off
            )
            if encoded.links is not None:
                self._outputs.link(encoded.links, sent.linked)
        if self._outputs.are_made:
            self._deliver(sent)
        else:
            self._outputs.when_made(partial(self._deliver_late, sent))

    def _deliver_late(self, sent: _SentJob) -> None:
        """Send a job whose directories are made, unless a fence has begun meanwhile."""
        if self._queue.submissions.on_hold:
            self._queue.broker.loop.timer(FIRST_PAUSE, partial(self._deliver_late, sent))
        else:
            self._deliver(sent)

    def _deliver(self, sent: _SentJob) -> None:
        self._queue.outcomes.begin(
            partial(self._send, sent),
            sent.outcome,
            partial(self._answered, sent),
            trouble=partial(self._lose, sent),
            over=lambda: self._over,
        )

    def _send(self, sent: _SentJob, answer: Answer) -> None:
        if sent.batch.calls.revoked:
            raise OSError(errno.ECANCELED, "the ensemble has ended")
        text = self._templates.jobspec(
            sent.job_set,
            sent.params,
            self._tag_of(sent.tag),
            sent.batch.variant,
            sent.batch.off,
            sent.fault,
        )
        urgency = 0 if self._strict else self._urgency(sent.job_set)
        answered = partial(self._pass_on, sent, answer)
        self._queue.send(text, urgency, answered, validate=sent.kind not in self._valid)

    def _pass_on(self, sent: _SentJob, answer: Answer, given: int | Exception) -> None:
        """Pass Flux's answer on; an id that the journal has not shown before is an error.

        If the job manager refuses a job with a text that is not UTF-8, such as a long queue name
        that it has cut off, job-ingest answers with an id (flux-core 0.88, `set_errorf` in
        job-manager's `submit.c`).
        """
        if not isinstance(given, Exception) and sent.shown is None:
            given = OSError(errno.EPROTO, "the queue has given it an id, and does not have it")
        answer(given)

    def _lose(self, sent: _SentJob, error: Exception) -> None:
        """Note that the outcome of a job is unknown for now."""
        if not sent.lost:
            sent.lost = True
            self._lost[sent.kind] += 1
        self._note(sent.kind, sent.tag.group, error)

    def _answered(self, sent: _SentJob, answer: int | Exception) -> None:
        if sent.lost:
            sent.lost = False
            self._lost[sent.kind] -= 1
        if isinstance(answer, Exception) and is_held(answer):
            if sent.shown is not None:
                self._held.pop(sent.shown, None)
            if self._over:
                self._drop(sent)
            else:
                self._note(sent.kind, sent.tag.group, answer)
                self._wait(sent)
            return
        if isinstance(answer, Exception) and sent.batch.off and not self._over:
            # The queue may object to the constraint that keeps the job off nodes.
            sent.batch.off = ""
            self._call(sent)
            return
        self._end(sent, answer)
        if self._waits and not self._lost[sent.kind]:
            self._clear(sent.kind)
        if self._closed:
            self._reopen(sent.kind)

    def _end(self, sent: _SentJob, answer: int | Exception) -> None:
        """Report the outcome of a job."""
        del self._sent[sent.tag]
        if isinstance(answer, Exception):
            if sent.shown is not None:
                self._held.pop(sent.shown, None)
            sent.report(answer)
        else:
            self._valid.add(sent.kind)
            self._hold(answer, self._urgency(sent.job_set))
            sent.batch.ids.append(answer)
            sent.report(None)

    # -- while the queue takes no jobs ------------------------------------------------

    def _wait(self, sent: _SentJob) -> None:
        """Have a job wait with others of its kind, without delaying any other job."""
        closed = self._closed.get(sent.kind)
        if closed is None:
            closed = self._closed[sent.kind] = _Closed()
            self._later(sent.kind, closed)
        if closed.probe is sent:
            closed.probe = None
            closed.waiting.appendleft(sent)
            self._later(sent.kind, closed)
        else:
            closed.waiting.append(sent)
        calls, call = sent.batch.calls, sent.tag.index - sent.batch.command.first
        if not sent.apart:
            calls.alone = call
        elif calls.alone == call:
            calls.alone = None
        calls.arrived(call)

    def _later(self, kind: Kind, closed: _Closed) -> None:
        self._queue.broker.loop.timer(closed.pause, partial(self._try, kind, closed))
        closed.pause = min(2 * closed.pause, LONGEST_WAIT)

    def _try(self, kind: Kind, closed: _Closed) -> None:
        """Send one of the jobs that wait; its outcome applies to all of them."""
        if self._closed.get(kind) is not closed:
            return
        if self._queue.submissions.on_hold:
            self._later(kind, closed)
        elif closed.waiting:
            closed.probe = closed.waiting.popleft()
            self._call(closed.probe)
        else:
            del self._closed[kind]

    def _reopen(self, kind: Kind) -> None:
        """Send the jobs that wait: the queue has taken or finally refused one of their kind."""
        closed = self._closed.pop(kind, None)
        if closed is not None:
            self._send_on(kind, closed.waiting)

    def _send_on(self, kind: Kind, waiting: deque[_SentJob]) -> None:
        for _ in range(min(SLICE, len(waiting))):
            sent = waiting.popleft()
            if sent.tag not in self._sent:
                continue  # dropped meanwhile
            if kind in self._closed:
                self._wait(sent)
            else:
                self._call(sent)
        if waiting:
            self._queue.broker.loop.timer(0.0, partial(self._send_on, kind, waiting))

    def revoke(self) -> None:
        """Send no more jobs of submissions in progress: the ensemble has ended."""
        self._over = True
        self._queue.submissions.revoke(self)
        closed, self._closed = self._closed, {}
        for kind, one in closed.items():
            self._clear(kind)
            for sent in one.waiting:
                self._drop(sent)

    def _drop(self, sent: _SentJob) -> None:
        sent.batch.calls.revoked = True
        self._end(sent, OSError(errno.ECANCELED, "the ensemble has ended"))

    def _note(self, kind: Kind, group: str, error: Exception) -> None:
        """Note the reason why jobs wait."""
        what, before = refusal(error), self._waits.get(kind)
        t = time.time()
        if before is not None and before.kind == what.name:
            t = before.t
        else:
            self._queue.broker.loop.timer(TELL_SECONDS, self._news)
        self._waits[kind] = SubmissionWait(group, what.name, sentence(error), what.advice, t)

    def _clear(self, kind: Kind) -> None:
        """Note that jobs of a kind wait no longer."""
        if self._waits.pop(kind, None) is not None:
            self._news()

    # -- outcomes ---------------------------------------------------------------------

    def _take_known(self, batch: _Batch) -> None:
        """Take the command's known jobs that were not started before it stopped."""
        command = batch.command
        for call in range(command.count) if self.known else ():
            job = self.known.pop(_tag(command, call), None)
            if job is not None and call >= batch.calls.started:
                batch.known[job] = batch.submission[command.first + call][0].urgency
                batch.ids.append(job)

    def _outcome(self, batch: _Batch) -> Outcome:
        calls = batch.calls
        if calls.revoked:
            reason = "the ensemble ended before all jobs were submitted"
            return _failed(batch, "ECANCELED", reason)
        if calls.errors:
            call, error = calls.errors[0]
            return self._refused(batch, batch.command.first + call, error)
        return CommandDone(time.time(), batch.command.id, {"ids": batch.ids})

    def _tag_of(self, tag: Tag) -> dict[str, Any]:
        """Return the value of `attributes.user.ensemble` for a job."""
        return {**self._tag, **tag._asdict()}

    def _urgency(self, job_set: JobSet) -> int:
        """Return the urgency in Flux of a job, which can be above those of other ensembles."""
        return self._queue.submissions.turns.urgency(self, job_set.urgency)

    def _hold(self, job: int, urgency: int) -> None:
        """Note that a job is held, and the urgency that it is to have."""
        if self._strict and urgency:
            self._held.setdefault(job, urgency)

    def _refused(self, batch: _Batch, index: int, error: Exception) -> CommandFailed:
        if not isinstance(error, (OSError, ValueError)):
            self._queue.broker.report(error)
        name = errno_name(error)
        reason = f"job {index}: {sentence(error)} ({name})"
        what = refusal(error)
        hint = "" if what.own else what.advice
        return _failed(batch, name, f"{reason}; {hint}" if hint else reason)


def _failed(batch: _Batch, name: str, reason: str) -> CommandFailed:
    return CommandFailed(time.time(), batch.command.id, name, reason, ids=tuple(batch.ids))


def _tag(command: SubmitJobs, call: int) -> Tag:
    """Return the tag of a job of a command."""
    return Tag(command.group, command.rule, command.firing, command.first + call)


def _asks_for(command: SubmitJobs, tag: Tag) -> bool:
    """Return whether the tag is that of a job of the command."""
    call = tag.index - command.first
    return 0 <= call < command.count and tag == _tag(command, call)
