"""The members of a service: jobs that providers start, and instances that are reached by a URI.

start, find, connect, drain, end ──► Site ──► a MemberJob each ──► MemberCallbacks
                            providers ────────────┘
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from flux_ensemble.queues.nested.callbacks import MemberCallbacks
from flux_ensemble.queues.nested.listener import IDENTITY
from flux_ensemble.queues.nested.member_job import MemberJob
from flux_ensemble.queues.nested.provider import Provider, Written
from flux_ensemble.queues.nested.service_handle import Channel
from flux_ensemble.queues.nested.shape import MemberTag, Program, Shape
from flux_ensemble.runtime.ports import Loop

if TYPE_CHECKING:
    from flux_ensemble.queues.flux.broker import Broker

#: Default of the seconds after which a member that cannot be connected to is given up.
RECONNECT_SECONDS = 60.0

#: Identity of a member, whichever service started it.
Key = tuple[str, int, int]


class Site:
    """The members of a service.

    Args:
        loop: for timers.
        broker: of the enclosing instance; None if all members call.
        told: the callbacks.
        log_error: writes a line to the service's log.
        follows: returns the names of job events of members that are followed besides the usual
            ones, and whether the places of jobs are needed.
        reconnect: seconds after which a member that cannot be connected to is given up.

    Attributes:
        settled: all that earlier services sent is known.
    """

    def __init__(
        self,
        loop: Loop,
        broker: Broker | None,
        *,
        told: MemberCallbacks,
        log_error: Callable[[str], None],
        follows: Callable[[], tuple[frozenset[str], bool]] = lambda: (frozenset(), False),
        reconnect: float = RECONNECT_SECONDS,
    ) -> None:
        # Do not wait for a broker that has died (flux-core `libflux/connector_local.c`).
        os.environ.setdefault("FLUX_LOCAL_CONNECTOR_RETRY_COUNT", "0")
        self._loop = loop
        self._broker = broker
        self._told = told
        self._log_error = log_error
        self._follows = follows
        self._reconnect = reconnect
        self.settled = False
        self._members: dict[Key, MemberJob] = {}
        #: The latest member that each instance was, by the instance's IDENTITY.
        self._instances: dict[str, Key] = {}
        self._enclosing = None
        if broker is not None:
            future = broker.handle.rpc("attr.get", {"name": IDENTITY}, 0)
            self._enclosing = future.get()["value"]

    def __getitem__(self, tag: MemberTag) -> MemberJob:
        return self._members[tag.key]

    def __contains__(self, tag: MemberTag) -> bool:
        return tag.key in self._members

    # -- requests ---------------------------------------------------------------------

    def start(
        self,
        provider: Provider,
        shape: Shape,
        written: Written,
    ) -> None:
        """Start a member; a member that exists is left as it is.

        Args:
            provider: starts it.
            shape: of the member.
            written: see `Provider.start`.

        Raises:
            ValueError: there cannot be such a member.
        """
        tag = shape.tag
        if tag not in self:
            job = provider.describe(shape)
            provider.start(self._new(tag, provider, shape.drain, shape.program), job, written)

    def find(self, provider: Provider, shape: Shape, job: str | None) -> None:
        """Follow a member that an earlier service started, where its provider has to look for it.

        Args:
            provider: has started it.
            shape: of the member.
            job: the id that was written down, if one was.
        """
        tag = shape.tag
        if tag not in self:
            member = self._new(tag, provider, shape.drain, shape.program)
            provider.find(member, shape.home, job)

    def adopt(
        self, provider: Provider, tag: MemberTag, drain: float, program: Program
    ) -> MemberJob | None:
        """Return the member of a tag that a job has; an earlier service may have sent that.

        Args:
            provider: of the job.
            tag, drain, program: as in the job.

        Returns:
            None if there can be no such member any more.
        """
        if tag not in self:
            if self.settled:
                return None
            # The previous service sent this job and died before it knew the id.
            self._new(tag, provider, drain, program)
        return self[tag]

    def connect(self, tag: MemberTag, uri: str, silence: float = 0.0) -> None:
        """Make an existing instance a member.

        Args:
            tag: of the member.
            uri: of the instance.
            silence: seconds that it may be silent until it is given up; 0 for ever.
        """
        if tag not in self:
            self._new(tag, None, 0.0, Program.INSTANCE, silence).connect(uri)

    def attached(self, tag: MemberTag, channel: Channel, load: Mapping[str, Any]) -> bool:
        """Accept a call of a member's service: see `MemberJob.attached`."""
        return self[tag].attached(channel, load)

    def drain(self, tag: MemberTag, reason: str) -> None:
        """Send a member no more jobs: see `MemberJob.drain`."""
        if tag in self:
            self[tag].drain(reason)

    def end(self, tag: MemberTag) -> None:
        """End a member; a member that is reached by a URI is only released."""
        if tag in self:
            self[tag].end()

    def forget(self, tag: MemberTag) -> None:
        """Forget a member that is gone."""
        member = self._members.pop(tag.key, None)
        if member is not None and member.provider is not None and member.job is not None:
            member.provider.forget(member.job)

    def __iter__(self) -> Iterator[MemberTag]:
        return iter([member.tag for member in self._members.values()])

    def close(self) -> None:
        """Release all members: they go on, and so do their jobs."""
        for member in self._members.values():
            member.close()

    def _new(
        self,
        tag: MemberTag,
        provider: Provider | None,
        drain: float,
        program: Program,
        silence: float = 0.0,
    ) -> MemberJob:
        member = self._members[tag.key] = MemberJob(
            tag,
            self._loop,
            self._broker,
            provider,
            self._told,
            drain=drain,
            program=program,
            reconnect=self._reconnect,
            silence=silence,
            follows=self._follows,
            log_error=self._log_error,
            objection=partial(self._objection, tag.key),
        )
        return member

    def _objection(self, key: Key, identity: str) -> str | None:
        """Return why an instance cannot be a member, or None: its jobs must not be those of two."""
        if identity == self._enclosing:
            return "it is the instance that the service is in, which is no member of its own"
        other = self._instances.setdefault(identity, key)
        # A member that has been forgotten meanwhile does not count.
        if other != key and other in self._members and other[:2] == key[:2]:
            return f"it is member {self._members[other].tag.member} already"
        self._instances[identity] = key
        return None
