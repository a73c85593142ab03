"""The service of a member: `flux ensemble serve --attach`, the initial program of its instance.

    journal of the member ──► Instance ──► items ──► Link ──ensemble.report──► service of the
    queue of the member ◄── NestedMember ◄── items ◄── Link ◄──ensemble.attach── ensemble

It does for that service what that does by itself where members have none: it submits jobs, and
follows them. It calls the service through the broker of the enclosing instance on its node, so no
member is reached by ssh, and what Flux takes for each job is done in the member.

Nothing is kept here: what was submitted is in the member's journal, and what is to be submitted is
in the log of the ensemble. So it ends when the service does not answer any more, or anew, and the
script that it was started by starts another, which attaches, reads the journal, raises a fence, and
says all that it has found, before it is asked for more. It registers with its broker, so nothing of
the one before it can come later than that fence.
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

#: Seconds that an answer to that may take.
ATTACH_SECONDS = 10.0

#: Refusals that would come again.
_FOR_GOOD = frozenset((errno.ENOENT, errno.EINVAL, errno.EPERM, errno.EPROTO))


class Child:
    """The service of a member.

    Args:
        parent: handle of the enclosing instance; its reactor is run.
        uri: of the member.
        tag: of the member: `MemberTag.dump()`.
        service: the name of the service of the ensemble.

    Attributes:
        code: what it exits with: 0 where the member is to end.
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
        """Serve; returns what to exit with."""
        self._attach()
        self._parent.reactor_run()
        return self.code

    def end(self, code: int, reason: str = "") -> None:
        """Serve no more."""
        self.code = code
        if reason:
            print(f"flux-ensemble: {reason}", file=sys.stderr, flush=True)
        if self._contact is not None:
            self._contact.close()
        self._parent.reactor_stop()

    def _attach(self) -> None:
        """Call; a service that was killed does not answer, and another one is called then."""
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
            # The one that is started next may be of another version, where that is being replaced.
            self.end(1, sentence(error))
        elif error.errno in _FOR_GOOD:
            self.end(0, sentence(error))
        else:
            self._again(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _unexpected(self, error: BaseException) -> None:
        self.end(1, "".join(traceback.format_exception(error)))


def attach(handle: Flux, uri: str, tag: Mapping[str, Any]) -> int:
    """Be the service of a member.

    Args:
        handle: of the enclosing instance.
        uri: of the member.
        tag: of the member: `MemberTag.dump()`.

    Returns:
        What to exit with: 0 where the member is to end, else it is to be started again.
    """
    return Child(handle, uri, tag).run()
