"""Notices that the Flux instance is shutting down.

In the state CLEANUP the broker cancels the running jobs, and these cancellations look like a
user's. `state-machine.monitor` (flux-core, `src/broker/state_machine.c`) reports each new state
before anything happens in it, by a number that differs between versions of Flux;
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
    """A watcher of the broker's state.

    Args:
        handle: Flux handle.
        guard: wraps callbacks of the reactor.
        inbox: the one through which job events go, too.
        begins: called once, when the shutdown begins.
        moves: called for each state but the first, before events of that state are handled, and
            before the name of the state is known.

    Attributes:
        begun: True if the instance is shutting down.
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
        # A Flux without such a stream responds with an error, and no shutdown is noticed.
        self._stream: StreamingRequest | None = StreamingRequest(
            handle, inbox, "state-machine.monitor", {}, self._changed, self._ended
        )

    def stop(self) -> None:
        """Stop watching."""
        self._ended()

    def _changed(self, *_: Any) -> None:
        self._states += 1
        if self._states > 1:
            self._moves()
        try:
            future = self._handle.rpc("state-machine.get")
        except OSError:
            return  # the broker of a member, which is gone by now
        future.then(self._guard(self._named))

    def _named(self, future: Any) -> None:
        if future.get()["state"].lower() in _ENDING and not self.begun:
            self.begun = True
            self._begins()

    def _ended(self, *_: Any) -> None:
        self._stream = None
