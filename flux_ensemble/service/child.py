"""The service of a member: the initial program of its instance, or the program of a worker.

    journal of the member ──► Instance ──► items ──► Link ──ensemble.report──► service of the
    queue of the member ◄── NestedMember ◄── items ◄── Link ◄──ensemble.attach── ensemble

`flux ensemble serve --attach` is the first, and `flux ensemble serve --worker` the second, whose
jobs are processes (`service.task_queue`). Here is what they share.

For the service of the ensemble this process does what that service does by itself if an ensemble
has no members: it submits jobs, and follows them. It calls that service through the broker of the
enclosing instance on its node. So no member is reached by ssh, and the work that Flux has with each
job is done in the member.

Nothing is kept here: submitted jobs are in the member's journal, and jobs yet to be submitted are
in the log of the ensemble. So the process ends when the service does not answer any more, or has
begun anew, and the script that started the process starts another one. That one attaches, reads the
journal, raises a fence, and reports all that it has found before it receives commands. It registers
with its broker, so nothing that its predecessor sent can arrive later than the fence. The jobs of a
worker end with this process, so there it attaches again by itself; and it ends with its job, since
those jobs run elsewhere when that is over.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flux.core.handle import Flux
from flux.job import JobID

from flux_ensemble import __version__
from flux_ensemble.document.job_sets import TAG_KEY
from flux_ensemble.engine.codec import command_from_json, to_json
from flux_ensemble.engine.commands import CancelJobs, SubmitJobs, UpdateJobs
from flux_ensemble.engine.events import CommandFailed, Tag
from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.flux.steps import Step, Steps, run
from flux_ensemble.queues.flux.stream import StreamingRequest
from flux_ensemble.queues.flux.submission import EnsembleRun
from flux_ensemble.queues.local.binding import Binding
from flux_ensemble.queues.local.root import StateError
from flux_ensemble.queues.nested.attempts import Attempts
from flux_ensemble.queues.nested.instance import Heard, Instance, facts
from flux_ensemble.queues.nested.link import FORMAT
from flux_ensemble.queues.nested.member import NestedMember
from flux_ensemble.queues.nested.refusals import RefusedError
from flux_ensemble.queues.nested.service_handle import brief
from flux_ensemble.queues.nested.tails import Tails
from flux_ensemble.queues.virtual.cluster import UnsatisfiableError
from flux_ensemble.queues.virtual.queue import VirtualMember
from flux_ensemble.runtime.ports import Handle, Outcome
from flux_ensemble.service.conversation import Conversation
from flux_ensemble.service.handles import register
from flux_ensemble.service.requests.documents import read_document
from flux_ensemble.service.task_queue import TaskQueue
from flux_ensemble.service.tracker import LAST_EVENTS

#: Name by which the contact is registered with the broker of its member.
NAME = "ensemble-child"

#: Seconds between two attempts to attach: at first, and at most.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0

#: Seconds to wait for the response to an attempt to attach.
ATTACH_SECONDS = 10.0

#: From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1

#: Errors with which every further attempt to attach would be refused, too.
_FOR_GOOD = frozenset((errno.ENOENT, errno.EINVAL, errno.EPERM, errno.EPROTO))


class Contact:
    """A contact with the service of the ensemble: commands in, reports out.

    Args:
        parent: the broker of the enclosing instance.
        member: the URI of the member, or the jobs of the worker.
        topic: of reports.
        contact: name of the contact.
        end: ends the contact, with an exit code and a reason.
    """

    def __init__(
        self,
        parent: Broker,
        member: str | TaskQueue,
        topic: str,
        contact: str,
        end: Callable[[int, str], None],
    ) -> None:
        self._parent = parent
        self._member = member
        #: Active jobs of the ensemble.
        self._jobs: set[int] = set()
        self._talk = Conversation(parent, topic, contact, self._asked, lambda: len(self._jobs), end)
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
        if isinstance(self._member, TaskQueue):
            try:
                self._member.serve(spec, load, heard, self._mark, self._warn)
            except (UnsatisfiableError, StateError, OSError) as error:
                self._talk.say("refused", sentence(error), True)
                return
            self._instance, self._nested = self._member, self._member.member
        else:
            handle = Flux(self._member)
            register(handle, handle, NAME)
            self._instance = Instance(handle, self._parent, heard, Attempts(), self._warn)
            self._nested = NestedMember(
                self._instance,
                EnsembleRun.of(spec, load),
                # The command was durable before it was sent here.
                durable=lambda then: then(),
                warn=self._warn,
            )
        version = self._parent.handle.attr_get("version")
        self._instance.attach(version, self._up, names=frozenset(names), places=places)

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


class Child:
    """The process that serves a member.

    Args:
        parent: handle of the enclosing instance; its reactor is run.
        member: the URI of the member; None if it is a worker.
        tag: of the member: `MemberTag.dump()`.
        service: the name of the service of the ensemble.

    Attributes:
        code: the exit code of the process: 0 if the member is to end.
    """

    def __init__(
        self, parent: Flux, member: str | None, tag: Mapping[str, Any], service: str = "ensemble"
    ) -> None:
        self.code = 1
        self._parent = parent
        self._tag = tag
        self._service = service
        self._broker = Broker(parent, self._unexpected)
        self._pause = FIRST_PAUSE
        self._contact: Contact | None = None
        self._stream: StreamingRequest | None = None
        self._retry: Handle | None = None
        self._member: str | TaskQueue = self._make_tasks() if member is None else member

    def _make_tasks(self) -> TaskQueue:
        resources = self._parent.rpc(
            "job-info.lookup",
            {"id": int(JobID(os.environ["FLUX_JOB_ID"])), "keys": ["R"], "flags": 0},
        ).get()["R"]
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        binding = Binding(sorted(os.sched_getaffinity(0)), gpus.split(",") if gpus else ())
        found = facts(json.loads(resources))
        fail = partial(self.end, 1)
        return TaskQueue(self._broker.loop, found, binding, fail, Tails(sys.stdout.fileno()))

    def run(self) -> int:
        """Serve until the contact ends, or until the worker is to end; return the exit code."""
        self._attach()
        try:
            self._parent.reactor_run()
        finally:
            if isinstance(self._member, TaskQueue):
                self._member.close()
        return self.code

    def end(self, code: int, reason: str = "") -> None:
        """Stop serving."""
        self.code = code
        self._leave(reason)
        self._parent.reactor_stop()

    def _leave(self, reason: str) -> None:
        if reason:
            print(f"flux-ensemble: {reason}", file=sys.stderr, flush=True)
        if self._contact is not None:
            self._contact.close()

    def _over(self, code: int, reason: str = "") -> None:
        """End the contact, and with it this process unless it has jobs."""
        if isinstance(self._member, str) or not code:
            self.end(code, reason)
        else:
            self._leave(reason)
            self._contact = self._stream = None
            self._again(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _attach(self) -> None:
        """Attach to the service; one that was killed does not answer, so the call is repeated."""
        if self._contact is None:
            topic, inbox = f"{self._service}.attach", self._broker.inbox
            request = {**self._tag, "version": __version__, "format": FORMAT}
            self._stream = StreamingRequest(
                self._parent, inbox, topic, request, self._told, self._refused
            )
            self._again(ATTACH_SECONDS)

    def _again(self, seconds: float) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._broker.loop.timer(seconds, self._attach)

    def _told(self, stream: StreamingRequest, text: str) -> None:
        if stream is not self._stream:
            return
        message = json.loads(text)
        if self._contact is None:
            self._contact = Contact(
                self._broker,
                self._member,
                f"{self._service}.report",
                message["contact"],
                self._over,
            )
            self._pause = FIRST_PAUSE
        self._contact.take(message)

    def _refused(self, stream: StreamingRequest, error: OSError) -> None:
        if stream is not self._stream:
            return
        if self._contact is not None:
            self._over(1, f"the service of the ensemble is gone: {sentence(error)}")
        elif error.errno == errno.EPROTONOSUPPORT:
            # During an upgrade the process that is started next may be of another version.
            self.end(1, sentence(error))
        elif error.errno in _FOR_GOOD:
            self.end(0, sentence(error))
        else:
            self._again(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _unexpected(self, error: BaseException) -> None:
        self.end(1, "".join(traceback.format_exception(error)))


def attach(handle: Flux, member: str | None, tag: Mapping[str, Any]) -> int:
    """Run the service of a member.

    Args:
        handle: of the enclosing instance.
        member: the URI of the member; None if it is a worker.
        tag: of the member: `MemberTag.dump()`.

    Returns:
        The exit code: 0 if the member is to end, else the process is to be started again.
    """
    if member is None and not _tied_to_job():
        return 1
    return Child(handle, member, tag).run()


def _tied_to_job() -> bool:
    """Have this process killed when its parent ends, the job shell; return False if it has."""
    shell = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == shell
