"""Notices that the Flux instance is shutting down.

In the state CLEANUP the broker cancels the jobs that run, and these cancels look like a
user's. `state-machine.monitor` (flux-core, `src/broker/state_machine.c`) tells of each new
state before what happens in it, by a number that differs between versions of Flux;
`state-machine.get` gives the name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flux.core.handle import Flux

from flux_ensemble.queues.flux.inbox import Inbox
from flux_ensemble.queues.flux.loop import Guard
from flux_ensemble.queues.flux.stream import StreamingRequest

#: The states of a broker after RUN.
_ENDING = frozenset(
    ("cleanup", "shutdown", "finalize", "goodbye", "unload-builtins", "unload_builtins", "exit")
)


class Shutdown:
    """Watches the state of the broker.

    Args:
        handle: Flux handle.
        guard: wraps what is called from the reactor.
        inbox: what job events go through, too.
        begins: called once, when the shutdown begins.
        moves: called with each state but the first, before anything that happens in it is told, and
            before the name of the state is known.

    Attributes:
        begun: the instance is shutting down.
    """

    def __init__(
        self,
        handle: Flux,
        guard: Guard,
        inbox: Inbox,
        begins: Callable[[], None],
        moves: Callable[[], None] = lambda: None,
    ) -> None:
        self._handle = handle
        self._guard = guard
        self._begins = begins
        self._moves = moves
        self._states = 0
        self.begun = False
        # A Flux that has no such stream says so, and nothing is noticed.
        self._stream: StreamingRequest | None = StreamingRequest(
            handle, inbox, "state-machine.monitor", {}, self._changed, self._ended
        )

    def stop(self) -> None:
        """Watch no more."""
        self._ended()

    def _changed(self, *_: Any) -> None:
        self._states += 1
        if self._states > 1:
            self._moves()
        try:
            future = self._handle.rpc("state-machine.get")
        except OSError:
            return  # of a member, whose broker is gone by now
        future.then(self._guard(self._named))

    def _named(self, future: Any) -> None:
        if future.get()["state"].lower() in _ENDING and not self.begun:
            self.begun = True
            self._begins()

    def _ended(self, *_: Any) -> None:
        self._stream = None
