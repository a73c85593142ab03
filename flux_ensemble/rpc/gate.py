"""The way into the service: how many requests, for how long, and for which members."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from grpc import StatusCode

from flux_ensemble.rpc.problems import Problem
from flux_ensemble.rpc.tls import members_named


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the requests.

    `requests` and `streams` are how many may be open at once. `default_seconds` is the time
    of a request whose client sets no deadline, `most_seconds` that of any other, and
    `stream_seconds` that of any stream. `message_bytes` bounds each message, either way.
    """

    requests: int = 64
    streams: int = 16
    default_seconds: float = 30.0
    most_seconds: float = 300.0
    stream_seconds: float = 86400.0
    message_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Call:
    """One request on its way through the service.

    `deadline` is on the clock of `time.monotonic`. `members` are those that the client's
    certificate names, and None without TLS.
    """

    deadline: float
    members: frozenset[str] | None

    def check_member(self, name: str, canonical: Callable[[str], str]) -> None:
        """Checks that the client may act for a member.

        Args:
            name: a canonical name.
            canonical: makes a name canonical.

        Raises:
            Problem: PERMISSION_DENIED.
        """
        if self.members is None or name in map(canonical, self.members):
            return
        named = ", ".join(sorted(self.members)) or "none"
        raise Problem(
            StatusCode.PERMISSION_DENIED,
            f"the client's certificate does not name member {name!r} (members it names: {named})",
        )


class Gate:
    """Counts the open requests of both protocols, and bounds them.

    Args:
        limits: the bounds.
        tls: clients show certificates.
    """

    def __init__(self, limits: Limits, *, tls: bool) -> None:
        self._limits = limits
        self._tls = tls
        self._requests = 0
        self._streams = 0

    @asynccontextmanager
    async def request(self, context: Any) -> AsyncIterator[Call]:
        """Lets a request in whose response is one message.

        Raises:
            Problem: RESOURCE_EXHAUSTED, or DEADLINE_EXCEEDED once the body takes too long.
        """
        limits = self._limits
        given = context.time_remaining()
        seconds = limits.default_seconds if given is None else min(given, limits.most_seconds)
        if self._requests >= limits.requests:
            raise _too_many(limits.requests, "requests")
        self._requests += 1
        try:
            async with self._timed(context, seconds) as call:
                yield call
        finally:
            self._requests -= 1

    @asynccontextmanager
    async def stream(self, context: Any) -> AsyncIterator[Call]:
        """Lets a request in whose response is a stream.

        Raises:
            Problem: as for `request`.
        """
        limits = self._limits
        given = context.time_remaining()
        seconds = min(limits.stream_seconds if given is None else given, limits.stream_seconds)
        if self._streams >= limits.streams:
            raise _too_many(limits.streams, "streams")
        self._streams += 1
        try:
            async with self._timed(context, seconds) as call:
                yield call
        finally:
            self._streams -= 1

    @asynccontextmanager
    async def _timed(self, context: Any, seconds: float) -> AsyncIterator[Call]:
        members = members_named(context) if self._tls else None
        try:
            async with asyncio.timeout(seconds):
                yield Call(time.monotonic() + seconds, members)
        except TimeoutError:
            raise Problem(
                StatusCode.DEADLINE_EXCEEDED, f"not done within {seconds:g} seconds"
            ) from None


def _too_many(limit: int, what: str) -> Problem:
    return Problem(
        StatusCode.RESOURCE_EXHAUSTED,
        f"the service has {limit} {what} open, which is all it takes: try again later",
    )
