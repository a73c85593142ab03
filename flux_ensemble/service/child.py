"""The service of a member: `flux ensemble serve --attach`, the initial program of its instance.

    journal of the member ──► Instance ──► items ──► Link ──ensemble.report──► service of the
    queue of the member ◄── NestedMember ◄── items ◄── Link ◄──ensemble.attach── ensemble

For the service of the ensemble this process does what that service does by itself if an ensemble
has no members: it submits jobs, and follows them. It calls that service through the broker of the
enclosing instance on its node. So no member is reached by ssh, and the work that Flux has with each
job is done in the member.

Nothing is kept here: submitted jobs are in the member's journal, and jobs yet to be submitted are
in the log of the ensemble. So the process ends when the service does not answer any more, or has
begun anew, and the script that started the process starts another one. That one attaches, reads the
journal, raises a fence, and reports all that it has found before it receives commands. It registers
with its broker, so nothing that its predecessor sent can arrive later than the fence.
"""

from __future__ import annotations

import errno
import json
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from flux.core.handle import Flux

from flux_ensemble import __version__
from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.flux.stream import StreamingRequest
from flux_ensemble.runtime.ports import Handle
from flux_ensemble.service.contact import Contact

#: Seconds between two attempts to attach: at first, and at most.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0

#: Seconds to wait for the response to an attempt to attach.
ATTACH_SECONDS = 10.0

#: Errors with which every further attempt to attach would be refused, too.
_FOR_GOOD = frozenset((errno.ENOENT, errno.EINVAL, errno.EPERM, errno.EPROTO))


class Child:
    """The process that serves a member.

    Args:
        parent: handle of the enclosing instance; its reactor is run.
        uri: of the member.
        tag: of the member: `MemberTag.dump()`.
        service: the name of the service of the ensemble.

    Attributes:
        code: the exit code of the process: 0 if the member is to end.
    """

    def __init__(
        self, parent: Flux, uri: str, tag: Mapping[str, Any], service: str = "ensemble"
    ) -> None:
        self.code = 1
        self._parent = parent
        self._uri = uri
        self._tag = tag
        self._service = service
        self._broker = Broker(parent, self._unexpected)
        self._pause = FIRST_PAUSE
        self._contact: Contact | None = None
        self._stream: StreamingRequest | None = None
        self._retry: Handle | None = None

    def run(self) -> int:
        """Serve until the contact ends; return the exit code."""
        self._attach()
        self._parent.reactor_run()
        return self.code

    def end(self, code: int, reason: str = "") -> None:
        """Stop serving."""
        self.code = code
        if reason:
            print(f"flux-ensemble: {reason}", file=sys.stderr, flush=True)
        if self._contact is not None:
            self._contact.close()
        self._parent.reactor_stop()

    def _attach(self) -> None:
        """Attach to the service; one that was killed does not answer, so the call is repeated."""
        if self._contact is None:
            topic, inbox = f"{self._service}.attach", self._broker.inbox
            request = {**self._tag, "version": __version__}
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
                self._broker, self._uri, f"{self._service}.report", message["contact"], self.end
            )
        self._contact.take(message)

    def _refused(self, stream: StreamingRequest, error: OSError) -> None:
        if stream is not self._stream:
            return
        if self._contact is not None:
            self.end(1, f"the service of the ensemble is gone: {sentence(error)}")
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


def attach(handle: Flux, uri: str, tag: Mapping[str, Any]) -> int:
    """Run the service of a member.

    Args:
        handle: of the enclosing instance.
        uri: of the member.
        tag: of the member: `MemberTag.dump()`.
    Returns:
        The exit code: 0 if the member is to end, else the process is to be started again.
    """
    return Child(handle, uri, tag).run()
