"""Reads the files that a document names outside of the event loop, with a time limit.

A file can be on a file system that does not answer, or be one that never ends or never begins, such
as `/proc/kmsg`. So a separate process reads it, and is given up if it takes too long.

    load request ──► a first look at the document: which files? ──► FileReads ──► texts, or why not
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping

from flux_ensemble.document.bounds import MAX_SHEET
from flux_ensemble.runtime.ports import Loop

#: Seconds within which all files of a document have to be read.
SECONDS = 20.0

#: Reads the files given as arguments. For each, prints its name on a line before it is opened, then
#: its text, or null if it is not a regular file that can be read.
_PROGRAM = f"""
import json, os, stat, sys
for name in sys.argv[1:]:
    print(json.dumps(name), flush=True)
    text = None
    try:
        file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if stat.S_ISREG(os.fstat(file).st_mode):
            text = open(file, "rb").read({MAX_SHEET} + 1).decode()
    except (OSError, ValueError):
        pass
    print(json.dumps([text]), flush=True)
"""

#: Processes that were given up and have not ended yet.
_given_up: list[subprocess.Popen[bytes]] = []

#: Receives the texts by name, of those files that could be read; or a sentence.
Take = Callable[[dict[str, str] | str], None]


class WantedFiles(dict[str, str]):
    """Texts of files by name, which notes the files that it does not have.

    Attributes:
        tried: files that cannot be read; `in` is False for them.
        missing: the names of other files that were asked for, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tried: set[str] = set()
        self.missing: dict[str, None] = {}

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name):
            return True
        if isinstance(name, str) and name not in self.tried:
            self.missing[name] = None
        return name not in self.tried

    def __missing__(self, name: str) -> str:
        return ""

    def take(self, texts: Mapping[str, str]) -> None:
        """Add the texts of the missing files that could be read; note the others as tried."""
        self.update(texts)
        self.tried.update(self.missing.keys() - texts.keys())
        self.missing.clear()


def read_files(loop: Loop, names: Iterable[str], directory: str, take: Take) -> None:
    """Read files, and call back once.

    Args:
        loop: of the service.
        names: the files, relative to `directory`.
        directory: the base of relative names.
        take: receives the texts, without files that cannot be read; or a sentence, if a file takes
            too long.
    """
    _Reading(loop, list(names), directory, take)


class _Reading:
    def __init__(self, loop: Loop, names: list[str], directory: str, take: Take) -> None:
        self._names = names
        self._take: Take | None = take
        self._said = bytearray()
        paths = [os.path.join(directory, name) for name in names]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, *paths],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._reader = loop.reader(self._output, self._read)
        self._limit = loop.timer(SECONDS, self._late)

    def _read(self) -> None:
        try:
            data = os.read(self._output, 1 << 20)
        except BlockingIOError:
            return
        self._said += data
        if not data:
            self._end(self._texts())

    def _late(self) -> None:
        lines = self._said.decode().splitlines()
        name = self._names[min(len(lines) // 2, len(self._names) - 1)]
        if len(lines) % 2:
            name = self._names[len(lines) // 2]
        self._end(
            f"cannot read {name!r}: it gave nothing within {SECONDS:g} s (is it on a file system "
            "that does not answer, or no file that ends?)"
        )

    def _texts(self) -> dict[str, str]:
        lines = self._said.decode().splitlines()
        values = [json.loads(line)[0] for line in lines[1::2]]
        return {
            name: text for name, text in zip(self._names, values, strict=False) if text is not None
        }

    def _end(self, result: dict[str, str] | str) -> None:
        take, self._take = self._take, None
        if take is None:
            return
        self._reader.cancel()
        self._limit.cancel()
        assert self._process.stdout is not None
        self._process.stdout.close()
        if isinstance(result, str):
            # A process that waits for a disk ends only when the disk answers.
            self._process.kill()
            _given_up.append(self._process)
        else:
            self._process.wait()
        _given_up[:] = [process for process in _given_up if process.poll() is None]
        take(result)
