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
from flux_ensemble.document.model import Spec
from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.flux.stream import StreamingRequest
from flux_ensemble.queues.flux.submission import EnsembleRun
from flux_ensemble.queues.local.binding import Binding
from flux_ensemble.queues.nested.attempts import Attempts
from flux_ensemble.queues.nested.instance import Instance, facts
from flux_ensemble.queues.nested.link import FORMAT
from flux_ensemble.queues.nested.listener import Heard
from flux_ensemble.queues.nested.member import NestedMember
from flux_ensemble.queues.nested.tails import Tails
from flux_ensemble.runtime.ports import Handle
from flux_ensemble.service.contact import Contact, Serve, serve_tasks
from flux_ensemble.service.conversation import ANSWER_SECONDS, Send
from flux_ensemble.service.handles import register
from flux_ensemble.service.task_queue import TaskQueue

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
        self._member = member
        self._tag = tag
        self._service = service
        self._broker = Broker(parent, self._unexpected)
        self._pause = FIRST_PAUSE
        self._contact: Contact | None = None
        self._stream: StreamingRequest | None = None
        self._retry: Handle | None = None
        self._tasks = self._make_tasks() if member is None else None
        self._serve: Serve = self._serve_instance
        if self._tasks is not None:
            self._serve = serve_tasks(self._tasks)

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

    def _serve_instance(
        self,
        spec: Spec,
        load: Mapping[str, Any],
        heard: Heard,
        mark: Callable[[int], None],
        warn: Callable[[str], None],
    ) -> tuple[Instance, NestedMember]:
        """Serve an ensemble by the member that is a Flux instance; see `contact.Serve`."""
        handle = Flux(self._member)
        register(handle, handle, NAME)
        instance = Instance(handle, self._broker, heard, Attempts(), warn)
        # The command was durable before it was sent here.
        run_of = EnsembleRun.of(spec, load)
        nested = NestedMember(instance, run_of, durable=lambda then: then(), warn=warn)
        return instance, nested

    def _send(self, contact: str) -> Send:
        """Return the function that sends the reports of a contact."""

        def send(
            message: Mapping[str, Any], answered: Callable[[Mapping[str, Any] | Exception], None]
        ) -> None:
            payload = {"contact": contact, **message}
            future = self._parent.rpc(f"{self._service}.report", payload)
            self._broker.call(future, answered, seconds=ANSWER_SECONDS)

        return send

    def run(self) -> int:
        """Serve until the contact ends, or until the worker is to end; return the exit code."""
        self._attach()
        try:
            self._parent.reactor_run()
        finally:
            if self._tasks is not None:
                self._tasks.close()
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
        if self._tasks is None or not code:
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
                self._broker.loop,
                self._send(message["contact"]),
                self._serve,
                self._parent.attr_get("version"),
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
