"""What is wrong with a document: each problem is one sentence, at a line and a path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple, NoReturn

from flux_ensemble.texts import _LONGEST, _MOST, shortened

#: Steps from the document's root to a value: keys of mappings and positions in lists.
Path = tuple[str | int, ...]

#: Most problems of one document. Who has more has them of one kind, and each costs time.
MAX_PROBLEMS = 100

#: Longest text about a document, in bytes, and about one problem of it, in characters.
MAX_TEXT = 64 * 1024
MAX_MESSAGE = 4096

_MORE = "there are more problems than these"

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,128}")


class Problem(NamedTuple):
    """One problem. `line` is None where the document has no lines."""

    line: int | None
    path: str
    message: str


class DocumentError(ValueError):
    """A document that cannot be used.

    Args:
        problems: all that is wrong with it, or the first of them.
        file: the document's file as the user knows it, None if it has none.
        more: there are more problems than these.

    >>> print(DocumentError([Problem(3, "jobs[0]", "expected a command")], "a.yaml"))
    a.yaml:3: jobs[0]: expected a command
    """

    def __init__(
        self, problems: Iterable[Problem], file: str | None = None, *, more: bool = False
    ) -> None:
        self.problems = list(problems)
        self.file = file
        self.more = more
        super().__init__(str(self))

    def __str__(self) -> str:
        last = self._sentence(Problem(None, "", _MORE))
        return _joined(map(self._sentence, self.problems), "\n", last, self.more)

    def _sentence(self, problem: Problem) -> str:
        where = shortened(self.file or "document", MAX_MESSAGE)
        if problem.line is not None:
            where += f":{problem.line}"
        return ": ".join(part for part in (where, problem.path, problem.message) if part)


class TooMany(Exception):
    """A document has so many problems, or is so large, that no more are looked for."""


class Problems:
    """Collects problems; a sentence is kept once for each path.

    Args:
        line: gives the line of a path, None where there are no lines.

    Attributes:
        full: no more are collected, and there may be more.

    >>> problems = Problems()
    >>> problems.add(("rules", 0, "when"), "expected a number")
    >>> problems.blames(("rules",)), problems.blames(("jobs",))
    (True, False)
    >>> problems.sentences()
    'rules[0].when: expected a number'
    """

    def __init__(self, line: Callable[[Path], int | None] = lambda path: None) -> None:
        self._line = line
        self._collected: dict[tuple[Path, str], int | None] = {}
        self._blamed: set[Path] = set()
        self.full = False

    def __bool__(self) -> bool:
        return bool(self._collected)

    def blames(self, path: Path) -> bool:
        """Whether there is a problem at `path` or below it."""
        return path in self._blamed

    def add(self, path: Path, message: str, line: int | None = None) -> None:
        """Note that what is at `path` has a problem; `line` is where, if it is elsewhere.

        Raises:
            TooMany: there are `MAX_PROBLEMS` of them, and this is another one.
        """
        key = path, shortened(message, MAX_MESSAGE)
        if len(self._collected) == MAX_PROBLEMS and key not in self._collected:
            self.full = True
            raise TooMany
        self._collected[key] = line
        self._blamed.update(path[:length] for length in range(len(path) + 1))

    def give_up(self, path: Path, message: str) -> NoReturn:
        """Note a problem, after which the rest is not to be looked at: that would take too long.

        Raises:
            TooMany: always.
        """
        self.add(path, message)
        self.full = True
        raise TooMany

    def take(self, others: Problems, at: Path) -> None:
        """Add the problems of what stands at `at`, which was looked at by itself.

        Raises:
            TooMany: as for `add`, or there are more of the others too.
        """
        for (path, message), line in others._collected.items():
            self.add((*at, *path), message, line)
        if others.full:
            self.full = True
            raise TooMany

    def listed(self) -> list[Problem]:
        """The problems in the order of their lines."""
        problems = [
            Problem(line or self._line(path), dotted(path), message)
            for (path, message), line in self._collected.items()
        ]
        return sorted(problems, key=lambda problem: problem.line or 0)

    def error(self, file: str | None = None) -> DocumentError:
        """The error that tells them; `file` is the document's, as the user knows it."""
        return DocumentError(self.listed(), file, more=self.full)

    def sentences(self) -> str:
        """The problems on one line, for a value that is not in a file."""
        return _joined(
            (
                f"{problem.path}: {problem.message}" if problem.path else problem.message
                for problem in self.listed()
            ),
            "; ",
            _MORE,
            self.full,
        )


def _joined(sentences: Iterable[str], separator: str, last: str, more: bool) -> str:
    """Sentences as one text of at most `MAX_TEXT`, with `last` where there are more of them."""
    kept: list[str] = []
    left = MAX_TEXT - _size(last)
    for sentence in sentences:
        left -= _size(sentence) + len(separator)
        if left < 0:
            more = True
            break
        kept.append(sentence)
    return separator.join([*kept, last] if more else kept)


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


def dotted(path: Sequence[str | int]) -> str:
    """A path as people write it: `rules[1].action.label`.

    >>> dotted(("rules", 1, "action", "label")), dotted(("memo", "a b"))
    ('rules[1].action.label', "memo['a b']")
    """
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{shortened(repr(step))}]"
    return text


def hint(name: str, known: Iterable[str]) -> str:
    """The name that was probably meant, as the beginning of a remark in brackets.

    >>> hint("sucess", ["success", "failed"])
    "did you mean 'success'? "
    """
    near = get_close_matches(name, list(known)[:_MOST], 1) if len(name) <= _LONGEST else ()
    return f"did you mean {near[0]!r}? " if near else ""
