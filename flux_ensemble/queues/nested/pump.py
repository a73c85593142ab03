"""The reactor of a member's handle, run in turns from the service's own.

    descriptor of the handle ──► turns, without waiting ──► none had a message ──► wait
                                     │        └── up to TURNS, or busy ──► more, by a timer of 0 s
                                     └── FLUX_POLLERR ──► the rest is read ──► lost

A handle cannot share the service's reactor: when the member's broker dies, Flux stops the reactor
of the handle (flux-core `src/common/libflux/msg_handler.c`), and a broker module whose reactor
stops takes its instance with it. So each handle keeps the one that Flux gives it, and the service's
reactor only watches the descriptor.

The descriptor signals a message once, when it comes (flux-core `src/common/libflux/handle.c`), and
any query of a handle's events consumes that signal. So the pump only stops after two turns in which
no message was received: code that waits for a future goes on one turn after its response came. And
a query whether there is something to be read (`Pump.more`) has the pump run if there is.

Timers of such a handle would stand still while no message comes. There are none: they are on the
service's reactor (`queues.flux.broker`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flux.constants import (
    FLUX_MSGTYPE_ANY,
    FLUX_O_NONBLOCK,
    FLUX_POLLERR,
    FLUX_POLLIN,
    FLUX_POLLOUT,
)
from flux.core.handle import Flux
from flux.core.inner import ffi, lib

from flux_ensemble.queues.flux.stream import forget, hand_over
from flux_ensemble.runtime.ports import Handle, Loop

#: Turns after which the service's own reactor has its turn.
TURNS = 256

#: Number of times that `finish` runs the pump.
FINISHING = 4096

#: Turns without a message after which there is nothing left to do.
EMPTY_TURNS = 2


class Pump:
    """Runner of a handle's reactor.

    Args:
        handle: of a member; its reactor is run by this object alone.
        loop: of the service.
        lost: called once, when the broker is gone and all that it sent has been passed on.
        report: receives exceptions from the handle's reactor.

    Attributes:
        over: the connection is lost, or was closed.
        turns: number of turns that have been run.
    """

    def __init__(
        self,
        handle: Flux,
        loop: Loop,
        lost: Callable[[], None],
        report: Callable[[BaseException], None],
    ) -> None:
        self._handle = handle
        self._reactor = handle.get_reactor()
        self._loop = loop
        self._lost = lost
        self._report = report
        self._counters = ffi.new("flux_msgcounters_t *")
        self._asked: Handle | None = None
        self._wants_room: Callable[[], None] | None = None
        self.over = False
        self.turns = 0
        self._reader = loop.reader(lib.flux_pollfd(handle.handle), self.run)
        self.ask()

    def ask(self) -> None:
        """Run the reactor in the loop's next turn."""
        if self._asked is None and not self.over:
            self._asked = self._loop.timer(0.0, self._answer)

    def more(self) -> bool:
        """Return whether there are messages to be read; if so, they will be."""
        if self.over:
            return False
        more = bool(lib.flux_pollevents(self._handle.handle) & FLUX_POLLIN)
        if more:
            self.ask()
        return more

    def has_room(self, later: Callable[[], None]) -> bool:
        """Return whether a message can be sent without blocking.

        Args:
            later: called once when there is room, if there is none now; it replaces an earlier one.
        """
        if self.over:
            return False
        events = lib.flux_pollevents(self._handle.handle)
        if events & (FLUX_POLLIN | FLUX_POLLERR):
            self.ask()
        if events & FLUX_POLLOUT:
            return True
        self._wants_room = later
        return False

    def finish(self) -> None:
        """Read all that a dead broker has sent, or all that there is of a living one."""
        for _ in range(FINISHING):
            self.run()
            if self.over or self._asked is None:
                break
            self._asked.cancel()
            self._asked = None

    def close(self) -> None:
        """Run no more; the streams of the handle end without notice."""
        if not self.over:
            self._end()
        forget(self._handle)

    def _answer(self) -> None:
        self._asked = None
        self.run()

    def run(self) -> None:
        """Read what there is to be read, within the limits of one turn of the loop."""
        empty, busy = 0, False
        for _ in range(TURNS):
            if self.over:
                return
            events = lib.flux_pollevents(self._handle.handle)
            if events & FLUX_POLLERR:
                self._lose()
                return
            if events & FLUX_POLLOUT and self._wants_room is not None:
                later, self._wants_room = self._wants_room, None
                later()
            if self._turn():
                empty, busy = 0, True
            else:
                empty += 1
                if empty == EMPTY_TURNS:
                    break
        if busy:
            self.ask()

    def _turn(self) -> bool:
        """Run the reactor once; return True if a message was received."""
        self.turns += 1
        before = self._received()
        if lib.flux_reactor_run(self._reactor, lib.FLUX_REACTOR_NOWAIT) < 0:
            # The bindings keep an exception of a callback for the code that runs the reactor.
            error = Flux.set_exception(None)
            if error is not None:
                self._report(error)
        return self._received() != before

    def _received(self) -> int:
        counters = self._counters
        lib.flux_get_msgcounters(self._handle.handle, counters)
        return int(
            counters.response_rx + counters.event_rx + counters.request_rx + counters.control_rx
        )

    def _lose(self) -> None:
        """Pass on the messages that a dead broker has sent: its reactor does not."""
        self._end()
        match: Any = {"typemask": FLUX_MSGTYPE_ANY, "matchtag": 0, "topic_glob": ffi.NULL}
        every = ffi.new("struct flux_match *", match)
        while True:
            message = lib.flux_recv(self._handle.handle, every[0], FLUX_O_NONBLOCK)
            if message == ffi.NULL:
                break
            try:
                hand_over(self._handle, message)
            finally:
                lib.flux_msg_destroy(message)
        self._lost()

    def _end(self) -> None:
        self.over = True
        self._reader.cancel()
        if self._asked is not None:
            self._asked.cancel()
            self._asked = None
