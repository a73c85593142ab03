"""Watches the nodes of a Flux instance: the ranks that are online, drained and busy.

Flux's journals of resources and of jobs report that something may have changed. Then Flux is
asked for the whole state, so that nothing has to be added up here:

    resource.journal          online, offline, drain, ... ──► look at once
    job-manager.events-journal    alloc, free ─────────────► look, but not too often
                                                                │
    resource.status, resource.sched-status ◄────────────────────┘──► Ranks

A journal that ends because its module is reloaded is opened again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Set
from functools import partial
from typing import Any

from flux.idset import IDset
from flux.resource import ResourceSet

from flux_ensemble.queues.elastic.ranks import Parents, Ranks, tree
from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.journal import TOPIC as JOBS
from flux_ensemble.queues.flux.steps import Step, run, together
from flux_ensemble.queues.flux.stream import StreamingRequest
from flux_ensemble.runtime.ports import Handle

#: Least time in seconds between looks that events of jobs cause.
SPACING_SECONDS = 0.5

#: Pause in seconds before an ended journal is opened again, or a failed look is repeated.
RETRY_SECONDS = 1.0

#: Seconds to wait for each response.
RESPONSE_SECONDS = 10.0

#: Receives the state of the ranks, or the error.
Look = Callable[[Ranks | Exception], None]


class Resources:
    """The watcher of an instance's ranks.

    Args:
        broker: for calls, timers and the handle, which has to be one of rank 0.
        changed: called after each look that succeeds.

    Attributes:
        ranks: as of the last look; None before the first.
        parents: the tree of brokers.
    """

    def __init__(self, broker: Broker, changed: Callable[[Ranks], None]) -> None:
        self._broker = broker
        self._changed = changed
        self.ranks: Ranks | None = None
        self.parents: Parents = {}
        self._closed = False
        self._waiting: list[Look] = []
        self._again = False
        self._looking = False
        self._pause: Handle | None = None
        self._streams: dict[str, StreamingRequest] = {}
        self._open("resource.journal", {})
        self._open(JOBS, {"full": False, "allow": {"alloc": 1, "free": 1}})
        self._look_later(0.0)

    def close(self) -> None:
        """Stop watching; callbacks that wait for a look are not called."""
        self._closed = True
        self._waiting.clear()
        if self._pause is not None:
            self._pause.cancel()
        for stream in self._streams.values():
            stream.cancel()

    def look(self, done: Look) -> None:
        """Find out the state of the ranks.

        Args:
            done: called once; the state that it receives is not older than this call.
        """
        self._waiting.append(done)
        self._ask()

    # -- when to look -----------------------------------------------------------------

    def _open(self, topic: str, payload: Mapping[str, Any]) -> None:
        if self._closed:
            return
        self._streams[topic] = StreamingRequest(
            self._broker.handle,
            self._broker.inbox,
            topic,
            payload,
            partial(self._told, topic),
            partial(self._ended, topic, payload),
        )

    def _told(self, topic: str, stream: StreamingRequest, text: str) -> None:
        if topic == JOBS:
            self._look_later(SPACING_SECONDS)
        else:
            self._look_again()

    def _ended(
        self, topic: str, payload: Mapping[str, Any], stream: StreamingRequest, error: Exception
    ) -> None:
        del self._streams[topic]
        self._broker.loop.timer(RETRY_SECONDS, partial(self._open, topic, payload))

    def _look_later(self, after: float) -> None:
        if self._pause is None and not self._closed:
            self._pause = self._broker.loop.timer(after, self._look_now)

    def _look_now(self) -> None:
        self._pause = None
        self._look_again()

    def _look_again(self) -> None:
        self._again = True
        self._ask()

    # -- looking ----------------------------------------------------------------------

    def _ask(self) -> None:
        """Send the requests; while others are in progress, `_looked` sends them afterwards."""
        if self._looking or self._closed:
            return
        self._looking = True
        self._again = False
        served, self._waiting = self._waiting, []
        run(self._seen(), partial(self._looked, served))

    def _seen(self) -> Generator[Step, Any, Ranks]:
        requests = [self._response("resource.status"), self._response("resource.sched-status")]
        if not self.parents:
            requests.append(self._response("overlay.topology", {"rank": 0}))
        status, scheduled, *topology = yield together(*requests)
        if topology:
            self.parents = tree(topology[0])
        return count(status, scheduled, self.parents.keys())

    def _response(self, topic: str, payload: Mapping[str, Any] | None = None) -> Step:
        future = self._broker.handle.rpc(topic, payload or {}, nodeid=0)
        return self._broker.response(future, seconds=RESPONSE_SECONDS)

    def _looked(self, served: list[Look], seen: Ranks | Exception) -> None:
        self._looking = False
        if self._closed:
            return
        if isinstance(seen, Exception):
            if not isinstance(seen, OSError):
                self._broker.report(seen)
            self._look_later(RETRY_SECONDS)
        else:
            self.ranks = seen
            self._changed(seen)
        for done in served:
            done(seen)
        if self._waiting or self._again:
            self._ask()


def count(status: Mapping[str, Any], scheduled: Mapping[str, Any], brokers: Set[int]) -> Ranks:
    """Combine the responses to `resource.status` and `resource.sched-status`.

    The first has idsets and an R (RFC 20, 22) of all ranks, including excluded ones (flux-core,
    `src/modules/resource/status.c`).

    Args:
        status, scheduled: the responses.
        brokers: the ranks that can have a broker; the R may have more ranks.
    """
    return Ranks(
        usable=(_ranks_of(status["R"]) & brokers) - _ranks(status["exclude"]),
        online=_ranks(status["online"]),
        torpid=_ranks(status.get("torpid", "")),
        drained={
            rank: entry["reason"] or ""
            for targets, entry in status["drain"].items()
            for rank in _ranks(targets)
        },
        allocated=_ranks_of(scheduled["allocated"]),
    )


def _ranks(idset: str) -> frozenset[int]:
    return frozenset(int(rank) for rank in IDset(idset))


def _ranks_of(resources: Any) -> frozenset[int]:
    return frozenset(int(rank) for rank in ResourceSet(resources).ranks)
