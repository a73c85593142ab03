"""The reactor of a member's handle, run in turns from the service's own.

    descriptor of the handle ──► turns, without waiting ──► none had a message ──► wait
                                     │        └── up to TURNS, or busy ──► more, by a timer of 0 s
                                     └── FLUX_POLLERR ──► what is left is read ──► lost

A handle cannot share the service's reactor: when the member's broker dies, Flux stops the reactor
of the handle (flux-core `src/common/libflux/msg_handler.c`), and a broker module whose reactor
stops takes its instance with it. So each handle keeps the one that Flux gives it, and the service's
reactor only watches the descriptor.

The descriptor tells of a message once, as it comes (flux-core `src/common/libflux/handle.c`), and
whoever asks a handle for its events uses that up. So a turn ends only after two in which no message
was received: what waits for a future goes on one turn after its response came. And who asks whether
there is something to be read (`Pump.more`) has the pump run if there is.

Timers of such a handle would stand still while nothing comes. There are none: they are on the
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

#: How often `finish` runs the turns of one time.
FINISHING = 4096

#: Turns without a message after which nothing is left to be done.
EMPTY_TURNS = 2


class Pump:
    """Runs the reactor of a handle.

    Args:
        handle: of a member; nobody else runs its reactor.
        loop: of the service.
        lost: called once, when the broker is gone and all that it sent has been handed out.
        report: gets what is raised on the handle's reactor.

    Attributes:
        over: the connection is lost, or was closed.
        turns: how many have been run.
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
        """Run as soon as the loop gets to it."""
        if self._asked is None and not self.over:
            self._asked = self._loop.timer(0.0, self._answer)

    def more(self) -> bool:
        """There are messages to be read; they will be."""
        if self.over:
            return False
        more = bool(lib.flux_pollevents(self._handle.handle) & FLUX_POLLIN)
        if more:
            self.ask()
        return more

    def has_room(self, later: Callable[[], None]) -> bool:
        """The broker takes in what is sent, so that sending does not wait.

        Args:
            later: called once when it does, if it does not now; it replaces the one before.
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
        """Read all that a broker that is gone has sent, or what there is of one that is not."""
        for _ in range(FINISHING):
            self.run()
            if self.over or self._asked is None:
                break
            self._asked.cancel()
            self._asked = None

    def close(self) -> None:
        """Run no more; its streams end without a word."""
        if not self.over:
            self._end()
        forget(self._handle)

    def _answer(self) -> None:
        self._asked = None
        self.run()

    def run(self) -> None:
        """Read what there is to be read, as far as a turn of the loop goes."""
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
        """Run the reactor once; True if a message was received."""
        self.turns += 1
        before = self._received()
        if lib.flux_reactor_run(self._reactor, lib.FLUX_REACTOR_NOWAIT) < 0:
            # The bindings keep what a callback has raised, for whoever runs the reactor.
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
        """The broker is gone: hand out what it sent before, which its reactor does not."""
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
