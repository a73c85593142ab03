"""A member's side of its contact with the service of the ensemble: commands in, reports out.

    jobs of the member ──► Heard ──► items ──► Conversation ──► service of the ensemble
    queue of the member ◄── commands ◄── items ◄── Conversation ◄──┘

The jobs are those of a Flux instance (`service.child`), or processes of a worker
(`service.task_queue`), for which no Flux is needed. Nothing here says how messages are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flux_ensemble.document.job_sets import TAG_KEY
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.codec import command_from_json, to_json
from flux_ensemble.engine.commands import CancelJobs, SubmitJobs, UpdateJobs
from flux_ensemble.engine.events import CommandFailed, Tag
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.flux.steps import Step, Steps, run
from flux_ensemble.queues.local.root import StateError
from flux_ensemble.queues.nested.listener import Heard
from flux_ensemble.queues.nested.refusals import RefusedError
from flux_ensemble.queues.nested.service_handle import brief
from flux_ensemble.queues.virtual.cluster import UnsatisfiableError
from flux_ensemble.queues.virtual.queue import VirtualMember
from flux_ensemble.runtime.ports import Loop, Outcome
from flux_ensemble.service.conversation import QUIET_SECONDS, Conversation, Send
from flux_ensemble.service.requests.documents import read_document
from flux_ensemble.service.task_queue import TaskQueue
from flux_ensemble.service.tracker import LAST_EVENTS

if TYPE_CHECKING:
    from flux_ensemble.queues.nested.instance import Instance
    from flux_ensemble.queues.nested.member import NestedMember


class UnservedError(Exception):
    """The jobs of an ensemble cannot be run here; the text is a sentence."""


#: Begins to serve an ensemble: its document, what else is known of it, the callbacks, a function
#: that sends a mark, and one that receives sentences about mistakes of jobs. Returns what reports
#: the jobs, and what submits them. Raises UnservedError.
Serve = Callable[
    [Spec, Mapping[str, Any], Heard, Callable[[int], None], Callable[[str], None]],
    "tuple[Instance, NestedMember] | tuple[TaskQueue, VirtualMember]",
]


def serve_tasks(queue: TaskQueue) -> Serve:
    """Return the function by which the jobs of a worker serve an ensemble."""

    def serve(
        spec: Spec,
        load: Mapping[str, Any],
        heard: Heard,
        mark: Callable[[int], None],
        warn: Callable[[str], None],
    ) -> tuple[TaskQueue, VirtualMember]:
        try:
            queue.serve(spec, load, heard, mark, warn)
        except (UnsatisfiableError, StateError, OSError) as error:
            raise UnservedError(sentence(error)) from None
        return queue, queue.member

    return serve


class Contact:
    """A contact with the service of the ensemble: commands in, reports out.

    Args:
        loop: for timers.
        send: sends a report.
        serve: takes what the service says of the ensemble when the contact begins.
        version: of Flux; "" if the jobs are no jobs of Flux.
        end: ends the contact, with an exit code and a reason.
        here: what is otherwise here than the service says of its own place, such as the
            environment.
        quiet: see `Conversation`.
    """

    def __init__(
        self,
        loop: Loop,
        send: Send,
        serve: Serve,
        version: str,
        end: Callable[[int, str], None],
        here: Mapping[str, Any] = MappingProxyType({}),
        quiet: float = QUIET_SECONDS,
    ) -> None:
        self._serve = serve
        self._here = here
        self._version = version
        #: Active jobs of the ensemble.
        self._jobs: set[int] = set()
        self._talk = Conversation(loop, send, self._asked, lambda: len(self._jobs), end, quiet)
        self._instance: Instance | TaskQueue | None = None
        self._nested: NestedMember | VirtualMember | None = None
        self._name = ("", 0)
        self._does: dict[str, Callable[..., None]] = {
            "load": self._load,
            "follow": self._follow,
            "hold": self._hold,
            "submit": self._submit,
            "cancel": self._cancel,
            "update": self._update,
            "revoke": self._revoke,
            "stop": self._stop,
            "look": self._look,
            "eventlog": self._eventlog,
            "output": self._output,
            "kept": self._kept,
            "end": lambda: end(0, "the member is not needed any more"),
        }

    def take(self, message: Mapping[str, Any]) -> None:
        """Process a message of the service."""
        self._talk.take(message)

    def close(self) -> None:
        """Stop; jobs continue."""
        self._talk.close()
        if isinstance(self._instance, TaskQueue):
            self._instance.silence()
        elif self._instance is not None:
            self._instance.close()

    def _asked(self, item: list[Any]) -> None:
        kind, *rest = item
        self._does[kind](*rest)

    # -- commands of the service -------------------------------------------------------------

    def _load(self, load: Mapping[str, Any], names: list[str], places: bool) -> None:
        load = {**load, **self._here}
        spec = read_document(load, load["files"], elastic=True)
        self._name = spec.name, load["run"]
        heard = Heard(
            event=self._event,
            past=self._past,
            caught_up=lambda: self._talk.say("caught-up"),
            ending=lambda: self._talk.say("ending"),
            lost=self._lost,
            objection=lambda identity: None,
        )
        try:
            self._instance, self._nested = self._serve(spec, load, heard, self._mark, self._warn)
        except UnservedError as error:
            self._talk.say("refused", str(error), True)
            return
        self._instance.attach(self._version, self._up, names=frozenset(names), places=places)

    def _up(self, error: Exception | None) -> None:
        if error is not None:
            self._talk.say("refused", sentence(error), isinstance(error, RefusedError))
            return
        assert self._instance is not None
        self._facts()
        self._talk.say("up", self._instance.newest)

    def _facts(self) -> None:
        assert self._instance is not None
        facts = self._instance.facts
        assert facts is not None
        self._talk.say("facts", facts.nodes, facts.cores, facts.gpus, facts.t_expires)

    def _hold(self, seconds: float) -> None:
        """Set for how many seconds events of jobs may be held back for others."""
        self._talk.held.seconds = seconds

    def _follow(self, names: list[str], places: bool) -> None:
        if self._instance is not None:
            self._instance.follow(frozenset(names), places)

    def _submit(self, number: int, value: Mapping[str, Any], known: list[list[Any]]) -> None:
        command = command_from_json(value)
        assert isinstance(command, SubmitJobs)
        assert self._nested is not None
        for *tag, job in known:
            self._nested.known[Tag(*tag)] = job
        self._nested.submit(command, lambda outcome: self._submitted(number, command, outcome))

    def _cancel(self, number: int, value: Mapping[str, Any]) -> None:
        command = command_from_json(value)
        assert isinstance(command, CancelJobs)
        assert self._nested is not None
        self._nested.cancel(command, lambda outcome: self._outcome(number, outcome))

    def _update(self, number: int, value: Mapping[str, Any]) -> None:
        command = command_from_json(value)
        assert isinstance(command, UpdateJobs)
        assert self._nested is not None
        self._nested.update(command, lambda outcome: self._outcome(number, outcome))

    def _outcome(self, number: int, outcome: Outcome) -> None:
        self._talk.say("outcome", number, to_json(outcome))

    def _submitted(self, number: int, command: SubmitJobs, outcome: Outcome) -> None:
        """Report the outcome of a submission; a success may precede the events of its jobs."""
        if isinstance(outcome, CommandFailed):
            self._outcome(number, outcome)
        else:
            self._talk.outcome(["outcome", number, to_json(brief(command, outcome))])

    def _revoke(self) -> None:
        if self._nested is not None:
            self._nested.revoke()

    def _stop(self, number: int, reason: str) -> None:
        assert self._instance is not None
        run(self._answer(number, partial(self._instance.stop_queue, reason)))

    def _look(self) -> None:
        assert self._instance is not None
        run(self._instance.look(), lambda error: self._facts())

    def _eventlog(self, number: int, job: int) -> None:
        assert self._instance is not None
        run(self._answer(number, partial(self._instance.eventlog, job)))

    def _output(self, number: int, job: int) -> None:
        assert isinstance(self._instance, TaskQueue)
        self._talk.say("outcome", number, {"entries": self._instance.output(job)})

    def _mark(self, number: int) -> None:
        self._talk.say("mark", number)

    def _kept(self, number: int) -> None:
        assert isinstance(self._instance, TaskQueue)
        self._instance.kept(number)

    def _answer(self, number: int, step: Step) -> Steps:
        try:
            entries = yield step
        except Exception as error:
            outcome = {"reason": sentence(error)}
        else:
            outcome = {} if entries is None else {"entries": entries}
        self._talk.say("outcome", number, outcome)

    # -- events of the member ------------------------------------------------------------------

    def _past(self, job: int, jobspec: Mapping[str, Any], entries: list[Mapping[str, Any]]) -> None:
        tag = self._tag_of(jobspec)
        if tag is None:
            # Only the id matters: by it the service finds whether jobs were purged.
            self._talk.say("past", job, None, entries[:1])
            return
        if entries[-1]["name"] not in LAST_EVENTS:
            self._jobs.add(job)
        self._seen(job, tag)
        if entries[-1]["name"] == "invalidate":
            self._refused(job)
        self._talk.say("past", job, tag, entries)

    def _event(
        self,
        job: int,
        entry: Mapping[str, Any],
        jobspec: Mapping[str, Any] | None,
        interrupted: bool,
    ) -> None:
        name, context = entry["name"], entry.get("context") or {}
        tag = None if jobspec is None else self._tag_of(jobspec)
        if tag is not None:
            self._jobs.add(job)
            self._seen(job, tag)
        elif job not in self._jobs:
            return
        if name in LAST_EVENTS:
            self._jobs.remove(job)
            self._talk.held.ended()
            if name == "invalidate":
                self._refused(job)
        # The end of the member interrupts its jobs, which is no event of theirs.
        if not interrupted:
            values = None if tag is None else [tag[field] for field in Tag._fields]
            self._talk.event(job, entry["timestamp"], name, context, values)

    def _seen(self, job: int, tag: Mapping[str, Any]) -> None:
        if self._nested is not None:
            self._nested.seen(Tag(*(tag[field] for field in Tag._fields)), job)

    def _refused(self, job: int) -> None:
        if self._nested is not None:
            self._nested.refused(job)

    def _tag_of(self, jobspec: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the tag of a job of the ensemble, or None if the job is another one."""
        tag = ((jobspec.get("attributes") or {}).get("user") or {}).get(TAG_KEY)
        if not isinstance(tag, dict) or (tag.get("name"), tag.get("run")) != self._name:
            return None
        if list(map(type, (tag.get(field) for field in Tag._fields))) != [str, str, int, int]:
            return None
        return tag

    def _lost(self) -> None:
        """Report that the broker of the member is gone; all that preceded has been reported."""
        self._talk.dead = True
        self._talk.say("dead")

    def _warn(self, text: str) -> None:
        self._talk.say("warn", text)
