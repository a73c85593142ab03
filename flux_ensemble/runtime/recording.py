"""Recordings: every event of an ensemble with the commands it brought about, and replay.

A recording is a file of JSON lines. The first line is `{"recording": 1, "name": ...,
"directory": ..., "document": ...}`, then one line for each event, `{"event": {...},
"commands": [...]}` in the form of `engine.codec`, and last `{"end": N}` with the number
of events. Replay feeds the events to a fresh engine and compares its commands.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

from flux_ensemble.document.loading import load_mapping, load_text
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.codec import command_from_json, encode, event_from_json
from flux_ensemble.engine.commands import CallCustom, Command
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import Event
from flux_ensemble.files import create
from flux_ensemble.metrics.names import NEWER_COUNTERS, NUMBER
from flux_ensemble.metrics.paths import COUNT
from flux_ensemble.runtime.durability.lines import MAX_LINE

VERSION = 1

#: How much of what is wrong is told, in characters: it can quote the file.
MAX_QUOTE = 200


class RecordingError(ValueError):
    """A file that is no recording, is cut short, or is of another version."""


class Recorder:
    """Writes a recording; give it to `runtime.driver.Driver` as its `tap`.

    When the file cannot be written on, the recording ends there, and the ensemble goes on.

    Args:
        path: the file, which is replaced.
        spec: the ensemble.
        document: what it was loaded from, text or mapping.

    Attributes:
        problem: why the recording is not whole, or None.
        failed: called once when it turns out not to be, but for that in `close`. This is from
            within the driver, which may not be given events meanwhile.

    Raises:
        OSError: the file cannot be written, or is no regular file.
    """

    def __init__(self, path: str | Path, spec: Spec, document: str | Mapping[str, Any]) -> None:
        self.problem: str | None = None
        self.failed: Callable[[], object] = lambda: None
        self._path = path
        # Unbuffered by lines would cost a system call for each event; the end is flushed.
        self._file: IO[str] | None = _open(path)
        self._events = 0
        self._write(
            {
                "recording": VERSION,
                "name": spec.name,
                "directory": spec.directory,
                "document": document,
            }
        )

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:
        """Take down one event and its commands."""
        if self._file is None:
            return
        encoded = ",".join(map(encode, commands))
        try:
            self._file.write(f'{{"event":{encode(event)},"commands":[{encoded}]}}\n')
        except OSError as error:
            self._give_up(error)
            self.failed()
        self._events += 1

    def close(self) -> None:
        """Write the end; a recorder that is closed already is no error."""
        if self._file is None:
            return
        try:
            self._write({"end": self._events})
            self._file.close()
        except OSError as error:
            self._give_up(error)
        self._file = None

    def _give_up(self, error: OSError) -> None:
        file, self._file = self._file, None
        assert file is not None
        with contextlib.suppress(OSError):
            # Closing it tries to write what is left.
            file.close()
        self.problem = f"the recording {self._path} cannot be written on: {error.strerror}"

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(line) + "\n")


def _open(path: str | Path) -> IO[str]:
    """Open a file for a recording, and wait for nobody who might read it.

    Raises:
        OSError: it cannot be opened, is no regular file, or is one that another user has put in
            its place.
    """
    return open(create(path, regular=True), "w", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay differs: the event, and the commands then and now, encoded."""

    line: int
    event: str
    recorded: tuple[str, ...]
    replayed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of a replay: how many events, and the first difference or None."""

    name: str
    events: int
    state: str
    difference: Difference | None


def replay(path: str | Path) -> Replay:
    """Feed a recording to a fresh engine; it stops at the first difference.

    Raises:
        RecordingError: the file is no whole recording of this version.
        DocumentError: its document is not valid any more.
        OSError: the file cannot be read.
    """
    lines = read_lines(Path(path))
    header = next(lines)[1]
    where = {"name": header["name"], "directory": header["directory"]}
    document = header["document"]
    load = load_text if isinstance(document, str) else load_mapping
    engine = Engine(load(document, **where))
    events = 0
    for number, line in lines:
        try:
            event = event_from_json(line["event"])
            recorded = tuple(encode(command_from_json(one)) for one in line["commands"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = str(error)[:MAX_QUOTE]
            raise RecordingError(f"{path}:{number}: not an event with commands: {what}") from None
        events += 1
        try:
            text = encode(event)
            pairs = zip_longest(engine.handle(event), line["commands"])
            replayed = tuple(encode(_as_then(*pair)) for pair in pairs if pair[0] is not None)
        except Exception as error:
            # Only somebody who made the file up can have written that.
            what = repr(error)[:MAX_QUOTE]
            raise RecordingError(f"{path}:{number}: not an event of a run: {what}") from None
        if recorded != replayed:
            difference = Difference(number, text, recorded, replayed)
            return Replay(engine.spec.name, events, engine.state, difference)
    return Replay(engine.spec.name, events, engine.state, None)


def _as_then(command: Command, recorded: Any) -> Command:
    """A command as the version that made the recording would have had it.

    The metrics that a custom function gets have more in them than they had.
    """
    if not isinstance(command, CallCustom) or not isinstance(recorded, dict):
        return command
    try:
        then = recorded["kwargs"]["metrics"]
        now = dict(command.kwargs["metrics"])
        if NUMBER not in then:
            now.pop(NUMBER, None)
        counts = {group: dict(of_group) for group, of_group in now[COUNT].items()}
        for counter in NEWER_COUNTERS:
            if any(counter in of_group for of_group in then[COUNT].values()):
                continue
            for of_group in counts.values():
                newer = of_group.pop(counter)
                if counter == "attempts":
                    of_group["finished"] = newer
        now[COUNT] = counts
    except (LookupError, TypeError):
        return command
    return replace(command, kwargs={**command.kwargs, "metrics": now})


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a recording but for the last, with their numbers; the first is a header.

    Raises:
        RecordingError: the file is no whole recording of this version.
        OSError: the file cannot be read.
    """
    number, last, ended = 0, -1, False
    with _open_to_read(path) as file:
        while text := file.readline(MAX_LINE + 1):
            number += 1
            line = _parse(path, number, text)
            if number == 1:
                _check_header(path, line)
            elif "end" in line:
                ended = line["end"] == last
                break
            last += 1
            yield number, line
    if not number:
        raise RecordingError(f"{path}: the file is empty, not a recording")
    if not ended:
        raise RecordingError(f"{path}: the recording is cut short after line {number}")


def _open_to_read(path: Path) -> IO[bytes]:
    """Open a file for reading, also a FIFO, if there is somebody at its other end."""
    file = open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK))  # noqa: SIM115
    os.set_blocking(file.fileno(), True)
    return file


def _parse(path: Path, number: int, text: bytes) -> dict[str, Any]:
    if len(text) > MAX_LINE:
        raise RecordingError(f"{path}:{number}: expected a line of at most {MAX_LINE} bytes")
    try:
        line = json.loads(text.decode())
    except UnicodeDecodeError:
        raise RecordingError(f"{path}: not a recording: it is not text") from None
    except (ValueError, RecursionError):
        line = None
    if isinstance(line, dict):
        return line
    if number == 1:
        raise RecordingError(f"{path}: not a recording (see 'flux ensemble run --record')")
    raise RecordingError(f"{path}:{number}: the recording is cut short or damaged here")


def _check_header(path: Path, line: Mapping[str, Any]) -> None:
    texts = (line.get("name"), line.get("directory"))
    if (
        "recording" not in line
        or not all(isinstance(text, str) for text in texts)
        or not isinstance(line.get("document"), str | dict)
    ):
        raise RecordingError(f"{path}: not a recording (see 'flux ensemble run --record')")
    if line["recording"] != VERSION:
        raise RecordingError(
            f"{path}: a recording of version {line['recording']!r}, and this is version {VERSION}"
        )
