"""Recordings: every event of an ensemble with its commands, and their replay.

A recording is a file of JSON lines. The first line is `{"recording": 1, "by": version, "name":
..., "directory": ..., "document": ...}`, then one line for each event, `{"event": {...},
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

from flux_ensemble import __version__
from flux_ensemble.document.loading import load_mapping, load_text
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.codec import command_from_json, encode, event_from_json
from flux_ensemble.engine.commands import CallCustom, Command
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import Event
from flux_ensemble.files import create
from flux_ensemble.metrics.names import NEWER_COUNTERS
from flux_ensemble.metrics.paths import COUNT
from flux_ensemble.metrics.statistics import NUMBER
from flux_ensemble.runtime.durability.format import BY
from flux_ensemble.runtime.durability.lines import MAX_LINE
from flux_ensemble.texts import clip

VERSION = 1

#: Most characters of an error text: it can quote the file.
MAX_QUOTE = 200


class RecordingError(ValueError):
    """The file is no recording, is cut short, or is of another version."""


class Recorder:
    """A writer of a recording; give it to `runtime.driver.Driver` as its `tap`.

    If the file cannot be written any more, the recording ends there, and the ensemble goes on.

    Args:
        path: the file, which is replaced.
        spec: the ensemble.
        document: the source of the ensemble, text or mapping.

    Attributes:
        problem: the reason why the recording is incomplete, or None.
        failed: called once when writing fails, except in `close`. The call comes from within the
            driver, which must not receive events meanwhile.

    Raises:
        OSError: the file cannot be written, or is no regular file.
    """

    def __init__(self, path: str | Path, spec: Spec, document: str | Mapping[str, Any]) -> None:
        self.problem: str | None = None
        self.failed: Callable[[], object] = lambda: None
        self._path = path
        # Flushing each line would cost a system call for each event; the end is flushed.
        self._file: IO[str] | None = _open(path)
        self._events = 0
        self._write(
            {
                "recording": VERSION,
                BY: __version__,
                "name": spec.name,
                "directory": spec.directory,
                "document": document,
            }
        )

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:
        """Write an event and its commands."""
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
        """Write the end, and close the file; a recorder that is closed already is no error."""
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
            # Closing the file tries to write the rest.
            file.close()
        self.problem = f"the recording {self._path} cannot be written on: {error.strerror}"

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(line) + "\n")


def _open(path: str | Path) -> IO[str]:
    """Open a file for a recording, without waiting for a reader.

    Raises:
        OSError: the file cannot be opened, is no regular file, or was put in its place by
            another user.
    """
    return open(create(path, regular=True), "w", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of a replay: the event, and its commands then and now, encoded."""

    line: int
    event: str
    recorded: tuple[str, ...]
    replayed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a replay: the number of events, and the first difference or None."""

    name: str
    events: int
    state: str
    difference: Difference | None


def replay(path: str | Path) -> Replay:
    """Feed a recording to a fresh engine, up to the first difference.

    Raises:
        RecordingError: the file is not a complete recording of this version.
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
            # Only a forged file can have this event.
            what = repr(error)[:MAX_QUOTE]
            raise RecordingError(f"{path}:{number}: not an event of a run: {what}") from None
        if recorded != replayed:
            difference = Difference(number, text, recorded, replayed)
            return Replay(engine.spec.name, events, engine.state, difference)
    return Replay(engine.spec.name, events, engine.state, None)


def _as_then(command: Command, recorded: Any) -> Command:
    """Return a command as the version that made the recording would have given it.

    The metrics for custom functions have more entries now.
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
    """Yield the lines of a recording except the last, with their numbers; the first is a header.

    Raises:
        RecordingError: the file is not a complete recording of this version.
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
    """Open a file for reading; a FIFO is not waited for."""
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
        by = line.get(BY)
        whose = f"flux-ensemble {clip(by)}" if isinstance(by, str) else "another flux-ensemble"
        raise RecordingError(
            f"{path}: a recording of version {line['recording']!r}, written by {whose}; this one "
            f"({__version__}) reads version {VERSION}"
        )
