"""What is wrong with a document: each problem is one sentence, at a line and a path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

#: Steps from the document's root to a value: keys of mappings and positions in lists.
Path = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST = 60
_MOST = 60


class Problem(NamedTuple):
    """One problem. `line` is None where the document has no lines."""

    line: int | None
    path: str
    message: str


class DocumentError(ValueError):
    """A document that cannot be used.

    Args:
        problems: all that is wrong with it.
        file: the document's file as the user knows it, None if it has none.
    """

    def __init__(self, problems: Iterable[Problem], file: str | None = None) -> None:
        self.problems = list(problems)
        self.file = file
        super().__init__(str(self))

    def __str__(self) -> str:
        return "\n".join(map(self._sentence, self.problems))

    def _sentence(self, problem: Problem) -> str:
        where = self.file or "document"
        if problem.line is not None:
            where += f":{problem.line}"
        return ": ".join(part for part in (where, problem.path, problem.message) if part)


class Problems:
    """Collects problems; a sentence is kept once for each path.

    Args:
        line: gives the line of a path, None where there are no lines.
    """

    def __init__(self, line: Callable[[Path], int | None] = lambda path: None) -> None:
        self._line = line
        self._found: dict[tuple[Path, str], int | None] = {}
        self._blamed: set[Path] = set()

    def __bool__(self) -> bool:
        return bool(self._found)

    def blames(self, path: Path) -> bool:
        """Whether there is a problem at `path` or below it."""
        return path in self._blamed

    def add(self, path: Path, message: str, line: int | None = None) -> None:
        """Note that what is at `path` has a problem; `line` is where, if it is elsewhere."""
        self._found[path, message] = line
        self._blamed.update(path[:length] for length in range(len(path) + 1))

    def listed(self) -> list[Problem]:
        """The problems in the order of their lines."""
        found = [
            Problem(line or self._line(path), dotted(path), message)
            for (path, message), line in self._found.items()
        ]
        return sorted(found, key=lambda problem: problem.line or 0)

    def sentences(self) -> str:
        """The problems on one line, for a value that is not in a file."""
        return "; ".join(
            f"{problem.path}: {problem.message}" if problem.path else problem.message
            for problem in self.listed()
        )


def dotted(path: Sequence[str | int]) -> str:
    """A path as people write it: `rules[1].action.label`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{shortened(repr(step))}]"
    return text


def shown(value: Any) -> str:
    """A value as a sentence quotes it: as YAML has it, and never long."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        what, part = ("mapping", "key") if isinstance(value, dict) else ("list", "item")
        return f"a {what} with {len(value)} {part}{'s'[: len(value) != 1]}"
    return shortened(repr(value))


def listed(names: Iterable[str]) -> str:
    """Names as a sentence lists them, the first ones where they are many."""
    known = list(names)
    more = len(known) - _MOST
    return ", ".join(known[:_MOST] + [f"and {more} more"] * (more > 0)) or "none"


def hint(name: str, known: Iterable[str]) -> str:
    """The name that was probably meant, as the beginning of a remark in brackets."""
    near = get_close_matches(name, list(known)[:_MOST], 1) if len(name) <= _LONGEST else ()
    return f"did you mean {near[0]!r}? " if near else ""


def shortened(text: str) -> str:
    """Text that is quoted in a sentence, without the rest where it is long."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
