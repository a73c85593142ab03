"""Flux messages as the service handles them: credentials, responses, streams.

Requests arrive through message handlers made by `listen`; the same table serves the broker module
and the client that `flux ensemble serve` runs.
"""

from __future__ import annotations

import errno
import json
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from flux.constants import FLUX_MSGTYPE_REQUEST
from flux.core.handle import Flux
from flux.core.inner import ffi, lib
from flux.message import Message

from flux_ensemble.client.topics import TOPICS
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.eventlog import Stored
from flux_ensemble.queues.flux.loop import Guard
from flux_ensemble.runtime.answers import Answer
from flux_ensemble.runtime.eventlog import Log
from flux_ensemble.service.logger import log_exception
from flux_ensemble.service.requests.limits import Bounds, check_followers
from flux_ensemble.texts import bounded


def is_owner(message: Message) -> bool:
    """Return True if the sender is the owner of the instance."""
    return bool(message.rolemask & lib.FLUX_ROLE_OWNER)


def listen(
    handle: Flux,
    service: str,
    guard: Guard,
    request: Callable[[str, Message], None],
    gone: Callable[[Message], None],
) -> list[Any]:
    """Register handlers for the requests to a service.

    Flux itself responds to requests for other methods (ENOSYS), and to guests if `TOPICS` does not
    admit them (EPERM).

    Args:
        handle: Flux handle.
        service: the name that topics begin with.
        guard: wraps the handlers.
        request: receives the method and message of a request in `TOPICS`.
        gone: receives the message that a client has disconnected, or cancels a stream.

    Returns:
        The message handlers; they stop when they are destroyed.
    """
    everybody = lib.FLUX_ROLE_OWNER | lib.FLUX_ROLE_USER

    def watch(method: str, handler: Callable[[Message], None], guests: bool) -> Any:
        guarded = guard(handler)
        watcher = handle.msg_watcher_create(
            lambda _handle, _watcher, message, _args: guarded(message),
            FLUX_MSGTYPE_REQUEST,
            f"{service}.{method}",
            rolemask=everybody if guests else None,
        )
        watcher.start()
        return watcher

    watchers = [
        watch(method, partial(request, method), topic.guest) for method, topic in TOPICS.items()
    ]
    watchers += [
        watch(f"{method}-cancel", gone, topic.guest)
        for method, topic in TOPICS.items()
        if topic.streaming
    ]
    watchers.append(watch("disconnect", gone, True))
    return watchers


class Responder:
    """Admits requests and sends responses.

    If a requester cannot be reached, that is logged and is no error.
    """

    def __init__(self, handle: Flux, log_error: Callable[[str], None]) -> None:
        self._handle = handle
        self._log_error = log_error
        self._bounds = Bounds(time.monotonic)
        # Weak, so that a request to which nobody has a reference any more does not count for ever.
        self._waiting: weakref.WeakSet[Message] = weakref.WeakSet()

    def admit(self, method: str, message: Message) -> str | None:
        """Admit a request, if it is within bounds.

        Args:
            method: a key of `TOPICS`.
            message: the request.

        Returns:
            Its payload.

        Raises:
            RequestError: it is out of bounds (`service.requests.limits`), or its payload is not
                text.
        """
        size, waiting = _payload_size(message), len(self._waiting) - (message in self._waiting)
        if is_owner(message):
            self._bounds.owner(method, size, waiting)
        else:
            self._bounds.guest(method, size, waiting, message.userid)
        try:
            text: str | None = message.payload_str
        except (OSError, ValueError):
            raise RequestError(
                errno.EPROTO, f"ensemble.{method}: the payload is not JSON text"
            ) from None
        if not TOPICS[method].streaming:
            self._waiting.add(message)
        return text

    def respond(self, message: Message, payload: Mapping[str, Any]) -> None:
        """Send a response."""
        self._waiting.discard(message)
        # As in the bindings, which cannot encode a lone surrogate.
        text = json.dumps(payload, ensure_ascii=False).encode(errors="replace")
        try:
            self._handle.respond(message, text)
        except OSError as error:
            self._log_error(f"cannot respond to {message.topic}: {error}")

    def refuse(self, message: Message, number: int, reason: str) -> None:
        """Send an error response, of a bounded length; it ends a stream."""
        self._waiting.discard(message)
        try:
            self._handle.respond_error(message, number, bounded(reason))
        except OSError as error:
            self._log_error(f"cannot respond to {message.topic}: {error}")

    def answer_to(self, message: Message) -> Answer:
        """Return a function that responds to a request with its result, or refuses it."""

        def answer(result: Mapping[str, Any] | RequestError) -> None:
            if isinstance(result, RequestError):
                self.refuse(message, result.errno, str(result))
            else:
                self.respond(message, result)

        return answer

    def fail(self, method: str, message: Message, error: BaseException) -> None:
        """Refuse a request because of an unexpected exception, and log that."""
        log_exception(error, self._log_error)
        reason = f"internal error in ensemble.{method}: {error!r} (see flux dmesg)"
        self.refuse(message, errno.EIO, reason)

    def close(self, number: int, reason: str) -> None:
        """Refuse all requests that wait for their response."""
        for message in list(self._waiting):
            self.refuse(message, number, reason)


def _payload_size(message: Message) -> int:
    """Return the size of a message's payload in bytes."""
    if not message.pimpl.has_payload():
        return 0
    size = ffi.new("size_t [1]")
    message.pimpl.get_payload(ffi.new("const void *[1]"), size)
    return int(size[0])


class LogStream:
    """A request for a log's entries: a `runtime.eventlog.Follower`."""

    def __init__(
        self,
        responder: Responder,
        message: Message,
        log: Log,
        events: bool,
        over: Callable[[LogStream], None],
    ) -> None:
        self._responder = responder
        self.message = message
        self._log = log
        self.events = events
        self._over = over

    def send(self, entry: Stored) -> None:
        """Send an entry."""
        self._responder.respond(self.message, entry)

    def end(self, number: int = errno.ENODATA, reason: str = "end of the log") -> None:
        """End the stream with an error, which is ENODATA by convention (RFC 6)."""
        self._over(self)
        self._responder.refuse(self.message, number, reason)

    def stop(self) -> None:
        """Stop following the log; nothing more is sent."""
        self._log.leave(self)
        self._over(self)


class Answered(Protocol):
    """A request that has many responses."""

    message: Message

    def stop(self) -> None:
        """Send nothing more."""
        ...


class Streams:
    """The open requests that have many responses."""

    def __init__(self, responder: Responder) -> None:
        self._responder = responder
        self._open: dict[Answered, None] = {}

    def __iter__(self) -> Iterator[Answered]:
        return iter(list(self._open))

    def add(self, stream: Answered) -> None:
        """Add a request that is going to be answered.

        Raises:
            RequestError: EAGAIN; there are too many already.
        """
        check_followers(len(self._open))
        self._open[stream] = None

    def over(self, stream: Answered) -> None:
        """Remove a request that has been answered."""
        self._open.pop(stream, None)

    def open(
        self, message: Message, log: Log, *, follow: bool, events: bool, skip: int = 0
    ) -> None:
        """Send the entries of a log after the first `skip`, and with `follow` future ones, too.

        Raises:
            RequestError: EAGAIN; too many requests follow logs already.
        """
        stream = LogStream(self._responder, message, log, events, self.over)
        self.add(stream)
        try:
            log.read(stream, follow=follow, skip=skip)
        except Exception:
            stream.stop()
            raise

    def gone(self, message: Message) -> None:
        """Stop the streams of a client that has disconnected, or cancels a stream: see `listen`."""
        if message.topic.endswith(".disconnect"):
            for stream in self:
                if lib.flux_disconnect_match(message.handle, stream.message.handle):
                    stream.stop()
            return
        for stream in self:
            if lib.flux_cancel_match(message.handle, stream.message.handle):
                stream.stop()
                self._responder.refuse(stream.message, errno.ENODATA, "canceled")

    def close(self, number: int, reason: str) -> None:
        """End all streams with an error."""
        for stream in self:
            stream.stop()
            self._responder.refuse(stream.message, number, reason)
