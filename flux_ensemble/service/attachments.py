"""Connections to the services of members: their requests, and the channel back to each of them.

    attach ──► Fleets.attached ──► AttachedInstance
      its responses ◄──── down ──── Way ──── put ◄────────┘ ▲
    report, one at a time ──── up ──► Way ──► taken ┘

Both sides send numbered messages (`queues.nested.link`): a lost message is sent again, and a
repeated one does no harm. The requests arrive through Flux (`service.requests.attach`), or through
a connection of the worker's own (`service.home`).
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Protocol

from flux_ensemble import __version__
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.queues.nested.link import FORMAT, Link, LinkError
from flux_ensemble.queues.nested.shape import MemberTag
from flux_ensemble.runtime.ports import Handle, Loop
from flux_ensemble.texts import bounded
from flux_ensemble.words import in_words

#: Most seconds by which clocks may differ; a call may be handled late, too.
CLOCK_SECONDS = 300.0

#: Seconds after which a message that was not acknowledged is sent again.
AGAIN_SECONDS = 10.0


class Way:
    """The channel to a service of a member: a `queues.nested.service_handle.Channel`.

    Args:
        contact: its name.
        respond: sends a response to the request that it answers.
        loop: times the repetition of messages.
        over: called when the channel is closed.
    """

    def __init__(
        self,
        contact: str,
        respond: Callable[[Mapping[str, Any]], None],
        loop: Loop,
        over: Callable[[Way], None],
    ) -> None:
        self.contact = contact
        self._respond = respond
        self._loop = loop
        self._over = over
        self._link = Link()
        self._taken: Callable[[list[Any]], None] = lambda items: None
        self._lost: Callable[[], None] = lambda: None
        self._closed = False
        self._taking = False
        self._late: Handle | None = None
        self._soon: Handle | None = None

    def open(self, taken: Callable[[list[Any]], None], lost: Callable[[], None]) -> None:
        """Open the channel: see `Channel.open`."""
        self._taken, self._lost = taken, lost

    def put(self, item: list[Any]) -> None:
        """Send an item, together with the other items of this turn of the loop."""
        self._link.put(item)
        if self._soon is None and not (self._taking or self._link.unanswered or self._closed):
            self._soon = self._loop.timer(0.0, self._say)

    def _say(self) -> None:
        self._soon = None
        if not self._closed:
            self._send(self._link.next())

    def close(self) -> None:
        """Send and receive nothing more; the service of the member attaches again if it lives."""
        if not self._closed:
            self._closed = True
            if self._soon is not None:
                self._soon.cancel()
            self._watch()
            self._over(self)

    def lost(self) -> None:
        """Close the channel because the service of the member is gone, and report that."""
        if not self._closed:
            self.close()
            self._lost()

    def take(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Process a message; return the answer to it, or None if there is none.

        Raises:
            LinkError: the message cannot come at this point.
        """
        items = self._link.take(message)
        self._taking = True
        try:
            if items:
                self._taken(items)
        finally:
            self._taking = False
        answer = None if self._closed else self._link.next()
        self._watch()
        return answer

    def _send(self, message: Mapping[str, Any] | None) -> None:
        if message is not None and not self._closed:
            self._respond({"contact": self.contact, **message})
        self._watch()

    def _watch(self) -> None:
        """Arrange for unacknowledged messages to be sent again."""
        if self._link.unanswered and not self._closed:
            if self._late is None:
                self._late = self._loop.timer(AGAIN_SECONDS, self._again)
        elif self._late is not None:
            self._late.cancel()
            self._late = None

    def _again(self) -> None:
        self._late = None
        self._send(self._link.again())


def other_clock(clock: float | None, now: float) -> str | None:
    """Return why the service of a member is refused by its clock; None if that is nearly this one.

    Args:
        clock: the time there; None if it has not said it.
        now: the time here.

    >>> other_clock(7200.0, 3600.0)
    "its clock is 1h ahead of this machine's, and times of its jobs would be wrong: set the clocks"
    >>> other_clock(3500.0, 3600.0), other_clock(None, 3600.0)
    (None, None)
    """
    if clock is None or abs(clock - now) <= CLOCK_SECONDS:
        return None
    where = "ahead of" if clock > now else "behind"
    return (
        f"its clock is {in_words(abs(clock - now))} {where} this machine's, and times of its jobs "
        "would be wrong: set the clocks"
    )


def other_format(version: str, number: int) -> str | None:
    """Return why the service of a member is refused by its format; None if that is this one's.

    Args:
        version: of flux-ensemble that it is.
        number: of the format of its messages.

    >>> print(other_format("0.3", FORMAT + 1))  # doctest: +ELLIPSIS
    its service is flux-ensemble 0.3, whose messages have format 2, and this one ..., with format \
1: load the document with a PATH on which ...
    >>> other_format("0.3", FORMAT)
    """
    if number == FORMAT:
        return None
    return (
        f"its service is flux-ensemble {bounded(version)}, whose messages have format {number}, "
        f"and this one {__version__}, with format {FORMAT}: load the document with a PATH on which "
        "'flux ensemble' is this one"
    )


class AttachableMembers(Protocol):
    """The members whose services attach: see `service.fleets.Fleets`."""

    def attached(self, tag: MemberTag, channel: Way) -> bool | None: ...

    def unfit(self, tag: MemberTag, reason: str) -> bool: ...


class Attachments:
    """The connections to the services of members.

    Args:
        members: of the service.
        loop: times the repetition of messages.
        epoch: returns the number of this service.
    """

    def __init__(self, members: AttachableMembers, loop: Loop, epoch: Callable[[], int]) -> None:
        self._members = members
        self._loop = loop
        self._epoch = epoch
        self._ways: dict[str, Way] = {}
        self._numbers = count(1)

    def attach(
        self,
        payload: Mapping[str, Any],
        respond: Callable[[Mapping[str, Any]], None],
        over: Callable[[], None],
    ) -> Way:
        """Connect to the service of a member.

        Args:
            payload: of its request.
            respond: sends a response, each of which is a message to that service.
            over: ends the request, since the channel is closed.

        Raises:
            RequestError: it is refused.
        """
        tag = MemberTag(**{key: payload[key] for key in MemberTag.__slots__})
        reason = other_format(payload["version"], payload.get("format", 0))
        reason = reason or other_clock(payload.get("clock"), time.time())
        if reason is not None and self._members.unfit(tag, reason):
            raise RequestError(errno.EPROTONOSUPPORT, f"member {tag.member!r}: {reason}")

        def closed(way: Way) -> None:
            if self._ways.pop(way.contact, None) is not None:
                over()

        way = Way(f"{self._epoch()}.{next(self._numbers)}", respond, self._loop, closed)
        self._ways[way.contact] = way
        attached = self._members.attached(tag, way)
        if attached:
            return way
        del self._ways[way.contact]
        if attached is None:
            reason = f"ensemble {tag.name!r} has no member {tag.member!r} with the number"
            raise RequestError(errno.ENOENT, f"{reason} {tag.ordinal}")
        raise RequestError(errno.EAGAIN, f"member {tag.member!r} is not waited for; retry later")

    def report(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Process a report from the service of a member; return the answer to it.

        Raises:
            RequestError: there is no such contact, or the report cannot come at this point.
        """
        way = self._ways.get(payload["contact"])
        if way is None:
            raise RequestError(errno.ESTALE, f"there is no contact {payload['contact']!r}; attach")
        try:
            return way.take(payload) or {}
        except LinkError as error:
            way.lost()
            raise RequestError(errno.EPROTO, f"ensemble.report: {error}") from None
