"""The driver: it passes events to the engine, and the engine's commands to their host.

    events ──► Driver.post ──► Engine.handle ──► commands ──► queue, caller, timers, output
                   ▲                                                   │
                   └──────────────── outcomes ◄────────────────────────┘

The driver is the same on every queue and in virtual time; `ports` has its contracts. No fault
escapes `Driver.post`: an exception in the engine or in the performance of a command breaks this one
ensemble, and its `Output` is informed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from flux_ensemble.engine.commands import (
    Ask,
    CallCustom,
    CancelJobs,
    Command,
    DrainMember,
    EndMember,
    Finish,
    Record,
    Reply,
    Scale,
    StartMember,
    StartTimer,
    StopTimer,
    SubmitJobs,
    UpdateJobs,
)
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import CommandDone, CommandFailed, Event, JobsAlike, TimerFired
from flux_ensemble.faults import ENDINGS
from flux_ensemble.runtime.host import Host
from flux_ensemble.runtime.ports import (
    Advice,
    Adviser,
    CallResult,
    Handle,
    Output,
    Tap,
    WriteAhead,
)

#: Commands that are output, for people.
_TOLD = frozenset((Record, Reply, Finish))


class Driver:
    """The driver of one engine.

    Args:
        engine: the ensemble's engine.
        host: has the loop, and who performs the commands.
        output: receives records, replies and the end.
        tap: receives each event with its commands, if given.
        ahead: writes each event down, if given.

    Attributes:
        commands: number of commands that have been performed.
    """

    def __init__(
        self,
        engine: Engine,
        host: Host,
        output: Output,
        tap: Tap | None = None,
        ahead: WriteAhead | None = None,
    ) -> None:
        self._engine = engine
        self._queue = queue = host.queue
        self._loop = host.loop
        self._start_caller = host.custom
        self._output = output
        self._tap = tap
        self._ahead = ahead
        self._marker = host.marker
        self.commands = 0
        self._work: deque[Event | list[Command]] = deque()
        #: Output, which waits until all other commands have been performed.
        self._told: deque[Command] = deque()
        self._working = False
        self._held = 0
        self._closed = False
        self._timers: dict[str, Handle] = {}
        self._caller = host.caller
        self._calls: set[int] = set()
        self._start_adviser = host.adviser
        self._adviser: Adviser | None = None
        self._asks: set[int] = set()
        self._perform: dict[type, Callable[[Any], None]] = {
            SubmitJobs: lambda command: queue.submit(command, self.post),
            CancelJobs: lambda command: queue.cancel(command, self.post),
            UpdateJobs: lambda command: queue.update(command, self.post),
            CallCustom: self._call,
            Scale: lambda command: queue.scale(command, self.post),
            Ask: self._ask,
            StartTimer: self._start_timer,
            StopTimer: lambda command: self._stop_timer(command.key),
            Record: output.record,
            Reply: output.reply,
            Finish: self._finish,
        }
        if (fleet := host.fleet) is not None:
            self._perform[StartMember] = lambda command: fleet.start(command, self.post)
            self._perform[DrainMember] = lambda command: fleet.drain(command, self.post)
            self._perform[EndMember] = lambda command: fleet.end(command, self.post)

    def post(self, *events: Event) -> None:
        """Take in events, one after the other, and perform their commands.

        Events that are posted from within wait until the earlier ones have been handled. A closed
        driver ignores events.
        """
        if self._closed:
            return
        self._work.extend(events)
        self._work_off()

    def post_several(
        self,
        events: Sequence[Event],
        wanted: Callable[[Any], Event | None],
        *,
        together: bool = True,
    ) -> None:
        """Take in events that come together, as `post` would one after the other.

        Their commands are performed when all of them have been handled.

        Args:
            events: the events.
            wanted: returns the part of an event that is for the engine, or None. It is called when
                the earlier events have been handled, even by a closed driver, which ignores the
                events.
            together: `wanted` is not called for jobs with the same events that the engine knows.
        """
        if self._closed or self._working:
            for event in chain.from_iterable(map(_of_jobs, events)):
                own = wanted(event)
                if own is not None and not self._closed:
                    self._work.append(own)
        else:
            self._work_off(partial(self._take_several, events, wanted, together))

    def _work_off(self, first: Callable[[], None] | None = None) -> None:
        """Take in posted events, and perform the commands of events that were written down."""
        if self._working:
            return
        self._working = True
        work = self._work
        try:
            if first is not None:
                first()
            while work or self._told:
                if not work:
                    self._tell()
                    continue
                item = work.popleft()
                if type(item) is list:
                    self._held -= 1
                    self._perform_all(item)
                else:
                    self._take(item)  # type: ignore[arg-type]
            self._output.settled()
        except ENDINGS:
            raise
        except BaseException as error:
            try:
                self.close()
            finally:
                self._output.broken(error)
        finally:
            self._working = False

    def _take_several(
        self, events: Sequence[Event], wanted: Callable[[Any], Event | None], together: bool
    ) -> None:
        if self._ahead is not None:
            self._ahead.hold()
        try:
            for event in events:
                if isinstance(event, JobsAlike):
                    self._take_alike(event, wanted, together)
                else:
                    self._take_wanted(event, wanted)
        finally:
            if self._ahead is not None:
                self._ahead.release()

    def _take_alike(
        self, alike: JobsAlike, wanted: Callable[[Any], Event | None], together: bool
    ) -> None:
        if together and not self._closed and self._engine.knows(alike):
            self._take(alike)
            return
        for event in alike.each():
            self._take_wanted(event, wanted)

    def _take_wanted(self, event: Event, wanted: Callable[[Any], Event | None]) -> None:
        own = wanted(event)
        if own is not None and not self._closed:
            self._take(own)

    def _take(self, event: Event) -> None:
        """Have an event handled, write it down, and perform its commands if that is enough."""
        marker = self._marker
        if marker is None:
            commands = self._engine.handle(event)
        else:
            marker.begin(event)
            commands = self._engine.handle(event)
            marker.end()
        if self._tap is not None:
            self._tap(event, commands)
        if self._ahead is not None and not self._ahead.write(
            event, commands, partial(self._put_down, commands)
        ):
            self._held += bool(commands)
        elif commands:
            self._perform_all(commands)

    def _put_down(self, commands: list[Command]) -> None:
        if not self._closed:
            self._work.append(commands)
            self._work_off()

    def _perform_all(self, commands: list[Command]) -> None:
        # The queue waits for its commands; people do not wait for the output.
        for command in commands:
            # A command can cause the driver to be closed.
            if self._closed:
                break
            if type(command) in _TOLD:
                self._told.append(command)
            else:
                self.commands += 1
                self._perform[type(command)](command)
        if commands and not self._engine.acting:
            self._queue.revoke()

    def _tell(self) -> None:
        """Perform the commands that are output for the host."""
        told = self._told
        while told:
            command = told.popleft()
            self.commands += 1
            self._perform[type(command)](command)

    @property
    def quiet(self) -> bool:
        """True if no commands wait for their event to be written down."""
        return not self._held

    def perform(self, commands: list[Command]) -> None:
        """Perform commands that the engine gave before it had this driver."""
        self._held += 1
        self._put_down(commands)

    def close(self) -> None:
        """Stop for good: timers, custom functions and events have no effect any more."""
        self._closed = True
        self._work.clear()
        self._held = 0
        try:
            self._tell()
        finally:
            self._queue.revoke()
            self._stop()

    def _call(self, command: CallCustom) -> None:
        if self._caller is None:
            self._caller = self._start_caller(self._engine.function_states)
        self._calls.add(command.id)
        self._caller.call(
            command.function, command.kwargs, command.timeout, partial(self._called, command.id)
        )

    def _called(self, command: int, result: CallResult) -> None:
        if command not in self._calls:
            return
        self._calls.remove(command)
        now = self._loop.now()
        if result.ok:
            state = {} if result.state is None else {"state": result.state}
            self.post(CommandDone(now, command, {"returned": result.returned, **state}))
        else:
            self.post(CommandFailed(now, command, "EIO", result.reason, result.detail))

    def _ask(self, command: Ask) -> None:
        needs = self._engine.hooks.commands[Ask].needs
        trials = None if needs is None else needs(command)
        if trials is None:
            # Given up in the meantime.
            return
        if self._adviser is None:
            assert self._start_adviser is not None
            self._adviser = self._start_adviser()
        self._asks.add(command.id)
        self._adviser.ask(command, trials, partial(self._asked, command.id))

    def _asked(self, command: int, advice: Advice) -> None:
        if command not in self._asks:
            return
        self._asks.remove(command)
        now = self._loop.now()
        if advice.ok:
            result = {"points": advice.points, "seconds": advice.seconds}
            self.post(CommandDone(now, command, result))
        else:
            self.post(CommandFailed(now, command, "EIO", advice.reason, advice.detail))

    def _start_timer(self, command: StartTimer) -> None:
        self._stop_timer(command.key)
        self._timers[command.key] = self._loop.timer(
            command.after, partial(self._fired, command.key, bool(command.every)), command.every
        )

    def _fired(self, key: str, repeats: bool) -> None:
        if not repeats:
            self._timers.pop(key, None)
        self.post(TimerFired(self._loop.now(), key))

    def _stop_timer(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _finish(self, command: Finish) -> None:
        self._stop()
        self._output.finish(command)

    def _stop(self) -> None:
        """Cancel the timers, and end the running custom functions and requests; these fail."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        caller, self._caller = self._caller, None
        if caller is not None:
            caller.close()
        adviser, self._adviser = self._adviser, None
        if adviser is not None:
            adviser.close()
        self._asks.clear()
        calls, self._calls = sorted(self._calls), set()
        for command in calls:
            self.post(
                CommandFailed(self._loop.now(), command, "ECANCELED", "the ensemble has ended")
            )


def _of_jobs(event: Event) -> Iterable[Event]:
    return event.each() if isinstance(event, JobsAlike) else (event,)
