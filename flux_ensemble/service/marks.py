"""Notes of the event being handled, kept where they outlive the process: in a mapped file.

    marks = Marks()
    marks.open(path)                 # reads the notes of the previous service
    mark = marks.of(name, run)       # of one ensemble: a `runtime.ports.Marker`
    mark.begin(event)                # before an engine handles an event
    mark.end()                       # after it
    marks.fatal(name, run)           # at which event `DEATHS` services in a row died, or None
    marks.close()                    # the service ends in good order

A service that dies while an engine handles an event would die again whenever it comes to that
event. So its successor notes the event as suspected; if the successor and the next service die at
it, too, the ensemble is to be set aside. A suspicion ends when the event has been handled. Two
deaths are not enough: a service that is killed by chance at the same event of a recovery as its
predecessor would cost an ensemble. A service that ends in good order forgets the fatal event, so
the service that its user starts after an upgrade tries the event again.

The kernel keeps what was written to the mapping when the process is killed. The notes do not
outlive the node, and need not: then the service did not die of an event.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from flux_ensemble.engine.events import (
    CommandDone,
    CommandFailed,
    Event,
    JobEvent,
    JobEvents,
    JobsAlike,
    Request,
    TimerFired,
)

#: Bytes of a note, of which the first two hold the length of the rest; 0 is no note.
_SIZE = 1024
_HEAD = 2

#: Offsets of the notes: the event being handled, the suspected one, and the latest fatal one; then
#: of the number of services in a row that died of the suspected one, and the size of it all.
_NOW, _SUSPECT, _FATAL, _COUNT, _BYTES = 0, _SIZE, 2 * _SIZE, 3 * _SIZE, 3 * _SIZE + 1

#: Number of services in a row that die of an event before its ensemble is set aside.
DEATHS = 3

_NOTHING = bytes(_HEAD)

#: Prefix of the description of an event that was handled before, and is replayed.
REPLAY = "the replay of "


def describe(event: Event) -> str:
    """Describe an event, in the same words when it comes again after a crash."""
    kind = type(event)
    if kind is JobEvent:
        return f"event {event.name!r} of job {event.job} at {event.t}"  # type: ignore[union-attr]
    if type(event) is JobEvents:
        return f"{len(event.events)} events of job {event.job} until {event.t}"
    if type(event) is JobsAlike:
        return f"{', '.join(event.names)} of {len(event.steps)} jobs until {event.t}"
    if isinstance(event, TimerFired):
        return f"timer {event.key!r}"
    if isinstance(event, (CommandDone, CommandFailed)):
        return f"outcome of command {event.command}"
    if isinstance(event, Request):
        return f"request {event.op!r} number {event.request}"
    return kind.__name__


class Marks:
    """The notes of a service; before `open` they do not outlive it."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, _BYTES)
        self._opened = False
        self._suspect = self._fatal = b""

    def open(self, path: Path) -> None:
        """Continue from the notes of the previous service; only the first call has an effect.

        Args:
            path: the file; created if missing. Only one service may have it open.

        Raises:
            OSError: the file cannot be opened or mapped.
        """
        if self._opened:
            return
        self._map = _mapped(path)
        self._opened = True
        died_at, suspect = self._read(_NOW), self._read(_SUSPECT)
        if died_at:
            deaths = self._map[_COUNT] + 1 if died_at == suspect else 1
            self._map[_COUNT] = min(deaths, DEATHS)
            if deaths >= DEATHS:
                self._write(_FATAL, died_at)
        self._fatal = self._read(_FATAL)
        self._suspect = died_at
        self._write(_SUSPECT, died_at)
        self._write(_NOW, b"")

    def close(self) -> None:
        """Forget the fatal event, because the service ends in good order."""
        self._write(_FATAL, b"")

    def of(self, name: str, run: int, *, replay: bool = False) -> Mark:
        """Return the mark of an ensemble, for its events or for their replay."""
        return Mark(self, _key(name, run) + (REPLAY.encode() if replay else b""))

    def fatal(self, name: str, run: int) -> str | None:
        """Return the event of an ensemble at which `DEATHS` services in a row died, or None."""
        key = _key(name, run)
        if not self._fatal.startswith(key):
            return None
        return self._fatal.removeprefix(key).decode(errors="replace")

    def begin(self, note: bytes) -> None:
        """Note the event that is being handled."""
        self._write(_NOW, note)

    def end(self, note: bytes) -> None:
        """Remove the note of an event that has been handled."""
        self._map[:_HEAD] = _NOTHING
        if note == self._suspect:
            self._suspect = b""
            self._write(_SUSPECT, b"")

    def _read(self, place: int) -> bytes:
        size = int.from_bytes(self._map[place : place + _HEAD], "little")
        start = place + _HEAD
        return self._map[start : start + min(size, _SIZE - _HEAD)]

    def _write(self, place: int, note: bytes) -> None:
        size = len(note)
        self._map[place : place + _HEAD + size] = size.to_bytes(_HEAD, "little") + note


class Mark:
    """Notes the events of one ensemble: a `runtime.ports.Marker`."""

    __slots__ = ("_key", "_marks", "_note")

    def __init__(self, marks: Marks, key: bytes) -> None:
        self._marks = marks
        self._key = key
        self._note = b""

    def begin(self, event: Event) -> None:
        """Note that the engine begins to handle an event."""
        self._note = (self._key + describe(event).encode(errors="replace"))[: _SIZE - _HEAD]
        self._marks.begin(self._note)

    def end(self) -> None:
        """Note that the engine has handled the event."""
        self._marks.end(self._note)


def _key(name: str, run: int) -> bytes:
    return f"{name} {run}: ".encode()


def _mapped(path: Path) -> mmap.mmap:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        if os.fstat(file).st_size != _BYTES:
            os.ftruncate(file, 0)
            os.ftruncate(file, _BYTES)
        # On a full disk, a write to a hole of the mapping would raise SIGBUS.
        os.posix_fallocate(file, 0, _BYTES)
        return mmap.mmap(file, _BYTES)
    finally:
        os.close(file)
