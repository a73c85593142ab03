"""What counts as a fault: in Flux's log, in an answer, in what the service says of itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hostile.documents import MARK
from hostile.values import PERCENT

#: The longest error that anybody could want to read, in bytes.
LONGEST_ERROR = 1 << 20

#: A line of the service in Flux's log, and in it the end of a traceback, or the mark of a function.
_LINE = re.compile(r" ensemble\.\w+\[\d+\]: (.*)$")
_RAISED = re.compile(r"[\w.]+(:|$)")
_MARKED = re.compile(rf"\b{MARK} (\d+): (.*)$")

#: It may be in JSON text.
_INTERNAL = re.compile(r'internal error[^\\"\n]{0,200}')


@dataclass(frozen=True)
class Finding:
    """A fault.

    Args:
        kind: what sort it is.
        text: what was seen.
        vague: many faults look like this.
        step: what was answered in this way, or not at all.
    """

    kind: str
    text: str
    vague: bool = False
    step: Mapping[str, Any] | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """The same for what is probably the same fault."""
        text = re.sub(r"'[^']*'|\"[^\"]*\"", "'...'", self.text)
        text = re.sub(r"\\u\w{4}|\w*[0-9]\w*", "#", text)
        return f"{self.kind}: {text[:160]}"

    def __str__(self) -> str:
        text = self.text if len(self.text) < 600 else f"{self.text[:300]} ... {self.text[-300:]}"
        return f"{self.kind}: {text.encode('ascii', 'backslashreplace').decode()}"


class FluxLog:
    """Flux's log, which the broker also writes to a file.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._traceback: list[str] = []

    def new(self) -> Iterator[Finding]:
        """The faults that it shows since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._at += end
        for line in data[:end].decode("utf-8", "backslashreplace").split("\n"):
            found = _LINE.search(line)
            if found is not None:
                yield from self._line(found[1])

    def _line(self, text: str) -> Iterator[Finding]:
        if text.startswith("Traceback (most recent call last)"):
            self._traceback = [text]
        elif self._traceback:
            self._traceback.append(text)
            if _RAISED.match(text):
                places = [one.strip() for one in self._traceback if one.startswith("  File ")]
                self._traceback = []
                yield Finding("traceback in the log", f"{text} at {_place(places)}")
        elif _INTERNAL.search(text):
            yield Finding("internal error in the log", _INTERNAL.search(text)[0])  # type: ignore[index]
        else:
            mark = _MARKED.search(text)
            if mark is not None and mark[2] != PERCENT[int(mark[1]) % len(PERCENT)]:
                yield Finding("garbage in the log", f"a function printed {mark[0]!r}")


def _place(places: list[str]) -> str:
    """Where an exception was raised: the last line of the service itself."""
    own = [place for place in places if "/flux_ensemble/" in place] or places or ["?"]
    return re.sub(r'File ".*/(flux_ensemble/[^"]*)"', r"\1", own[-1])


def faults_of(errnum: int, text: bytes, step: Mapping[str, Any]) -> Iterator[Finding]:
    """The faults in an answer.

    Args:
        errnum: 0, or why the request was refused.
        text: the payload, or the sentence.
        step: the request; `refused` says that it had to be.
    """
    topic = step["topic"]
    if b"internal error" in text:
        found = _INTERNAL.search(text.decode("utf-8", "replace"))
        yield Finding("internal error in an answer", found[0] if found else "?", step=step)
    if errnum and len(text) > LONGEST_ERROR:
        start = text[:100].decode("utf-8", "replace")
        yield Finding("long error", f"{topic}: {len(text)} bytes: {start}", step=step)
    if step.get("refused") and not errnum:
        yield Finding("not refused", f"{topic} was done", vague=True, step=step)


def faults_of_status(text: bytes) -> Iterator[Finding]:
    """The faults in the service's answer to `ensemble.status`."""
    status: dict[str, Any] = json.loads(text)
    for name, reason in status["service"]["unreadable"].items():
        yield Finding("not restored", f"{name}: {reason}")
    for one in status["ensembles"]:
        for error in one["errors"]:
            if str(error).startswith("the recording "):
                # The disk is full, or what was named is no file: the recording alone ends.
                continue
            last = str(error).strip().splitlines()[-1:]
            yield Finding("broken ensemble", "".join(last) or one["reason"])
