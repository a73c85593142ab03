"""Problems of a document: each is one sentence, with a line and a path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, NoReturn

from flux_ensemble.texts import shortened

#: Steps from the document's root to a value: keys of mappings and positions in lists.
Path = tuple[str | int, ...]

#: Most problems of one document. More are usually of the same kind, and each takes time.
MAX_PROBLEMS = 100

#: Longest text about a document, in bytes, and about one problem of it, in characters.
MAX_TEXT = 64 * 1024
MAX_MESSAGE = 4096

_MORE = "there are more problems than these"

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,128}")


class Problem(NamedTuple):
    """A problem of a document. `line` is None where the document has no lines."""

    line: int | None
    path: str
    message: str


class PlacedProblem(Problem):
    """A problem whose line is in another file than the document: one that is made in Python."""

    file: str = ""


def placed(problem: Problem, file: str | None) -> Problem:
    """The problem, in a file if it is not the document's.

    >>> DocumentError([placed(Problem(3, "jobs[0]", "expected a command"), "study.py")])
    DocumentError('study.py:3: jobs[0]: expected a command')
    """
    if file is None:
        return problem
    result = PlacedProblem(*problem)
    result.file = file
    return result


class DocumentError(ValueError):
    """The document has problems.

    Args:
        problems: all of them, or the first ones.
        file: the document's file name, or None.
        more: whether there are more problems.

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
        file = problem.file if isinstance(problem, PlacedProblem) else self.file
        where = shortened(file or "document", MAX_MESSAGE)
        if problem.line is not None:
            where += f":{problem.line}"
        return ": ".join(part for part in (where, problem.path, problem.message) if part)


class TooMany(Exception):
    """The document is too large or has too many problems to continue checking."""


class Problems:
    """Collects problems, each message once for each path.

    Args:
        line: returns the line of a path; None if there are no lines.
        file: returns the file of a path; None if it is the document's.
        told: says a problem of a path as one of the document that people wrote, where that is
            another one: `document.use`.

    Attributes:
        full: whether the rest is not checked.
        more: whether there are more problems than were collected.
        renamed: path of a value -> the path that the document has for it, with an old key.

    >>> problems = Problems()
    >>> problems.add(("rules", 0, "when"), "expected a number")
    >>> problems.blames(("rules",)), problems.blames(("jobs",))
    (True, False)
    >>> problems.sentences()
    'rules[0].when: expected a number'
    """

    def __init__(
        self,
        line: Callable[[Path], int | None] = lambda path: None,
        file: Callable[[Path], str | None] = lambda path: None,
        told: Callable[[Path, str], tuple[Path, str]] = lambda path, message: (path, message),
    ) -> None:
        self._line = line
        self._file = file
        self._told = told
        self._collected: dict[tuple[Path, str], int | None] = {}
        self._blamed: set[Path] = set()
        self._left: set[Path] = set()
        self.full = False
        self.more = False
        self.renamed: dict[Path, Path] = {}

    def __bool__(self) -> bool:
        return bool(self._collected)

    def blames(self, path: Path) -> bool:
        """Return True if a problem is known at `path` or below it."""
        return path in self._blamed

    def add(self, path: Path, message: str, line: int | None = None) -> None:
        """Add a problem of the value at `path`; `line` overrides the path's line.

        Raises:
            TooMany: there are `MAX_PROBLEMS` already.
        """
        key = path, shortened(message, MAX_MESSAGE)
        if len(self._collected) == MAX_PROBLEMS and key not in self._collected:
            self.full = self.more = True
            raise TooMany
        self._collected[key] = line
        self._blamed.update(path[:length] for length in range(len(path) + 1))

    def leave(self, path: Path) -> None:
        """Note that the value at `path` is not known, so that nothing is said of what follows."""
        self._left.add(path)
        self._blamed.update(path[:length] for length in range(len(path) + 1))

    def give_up(self, path: Path, message: str) -> NoReturn:
        """Add a problem and stop, because checking the rest would take too long.

        Raises:
            TooMany: always.
        """
        self.add(path, message)
        self.full = True
        raise TooMany

    def take(self, others: Problems, at: Path) -> None:
        """Add the problems of the value at `at`, which was checked separately.

        Raises:
            TooMany: as for `add`, or `others` is full.
        """
        for (path, message), line in others._collected.items():
            self.add((*at, *path), message, line)
        for path in others._left:
            self.leave((*at, *path))
        self.more = self.more or others.more
        if others.full:
            self.full = True
            raise TooMany

    def listed(self) -> list[Problem]:
        """The problems, ordered by line."""
        problems = []
        for (at, message), line in self._collected.items():
            path = self.renamed.get(at, at)
            place, told = self._told(path, message)
            problem = Problem(line or self._line(path), dotted(place), told)
            problems.append(placed(problem, self._file(path)))
        return sorted(problems, key=lambda problem: problem.line or 0)

    def error(self, file: str | None = None) -> DocumentError:
        """An error with the problems; `file` is the document's file name."""
        return DocumentError(self.listed(), file, more=self.more)

    def sentences(self) -> str:
        """The problems on one line, for values that are not in a file."""
        return _joined(
            (
                f"{problem.path}: {problem.message}" if problem.path else problem.message
                for problem in self.listed()
            ),
            "; ",
            _MORE,
            self.more,
        )


def _joined(sentences: Iterable[str], separator: str, last: str, more: bool) -> str:
    """Join sentences to at most `MAX_TEXT` bytes, with `last` at the end if some are left out."""
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
    """A path as text, such as `rules[1].action.label`.

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
