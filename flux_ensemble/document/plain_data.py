"""Plain data: the values that YAML and JSON share and that can be sent to Flux as JSON."""

from __future__ import annotations

import math
from typing import Any

from flux_ensemble.document.bounds import MAX_BYTES, MAX_DEPTH, MAX_VALUES
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.entries import Missing, is_table
from flux_ensemble.texts import shown

#: Most characters of all texts together; an aliased text counts each time it is used.
MAX_CHARACTERS = 4 * MAX_BYTES

_INT64 = 2**63


def check_plain(value: Any, problems: Problems, at: Path = ()) -> set[Path]:
    """Check that a value consists of mappings, lists, text, finite numbers, booleans and nulls.

    Args:
        value: from YAML, JSON or a Python program.
        problems: collects the problems.
        at: the path of the value.

    Returns:
        The paths within `value` that are wrong; the root if it is too large or too deep to check.

    >>> problems = Problems()
    >>> check_plain({"limits": [1, float("nan")]}, problems)
    {('limits', 1)}
    >>> problems.sentences()
    'limits[1]: expected a finite number, not nan'
    """
    walk = _Walk(problems, at)
    try:
        walk.visit(value, ())
    except _TooLarge as error:
        problems.add(at, str(error))
        return {()}
    return walk.wrong


def text_problem(text: str) -> str | None:
    r"""Return the reason that Flux cannot take a text, as a sentence; None if it can.

    >>> text_problem("plain"), text_problem("\ud800")
    (None, 'expected UTF-8 text, not a lone surrogate')
    """
    if "\0" in text:
        return "expected text without the character '\\0'"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "expected UTF-8 text, not a lone surrogate"
    return None


def _instead(value: Any, path: Path) -> str:
    """Return what to write in place of a value of Python that is no plain data."""
    if is_table(value):
        column = next(iter(value.columns), "x")
        return f": write its columns as lists, such as {{{str(column)!r}: list(df[{column!r}])}}"
    if callable(value) and path[:1] == ("custom",):
        name = getattr(value, "__name__", "f")
        return f": write its source, inspect.getsource({name}), or name its file under 'plugins'"
    if callable(value) and path[-1:] == ("label",):
        return f": write its name, {getattr(value, '__name__', 'f')!r}"
    if isinstance(value, set | frozenset):
        return ": write a list"
    if hasattr(value, "isoformat"):
        return f": write its text, such as {str(value)!r}"
    if callable(value):
        return (
            ": a job runs a command, so write a program that calls it (docs/python.md, "
            "'Within a job')"
        )
    return ""


def _named(value: Any) -> str:
    """Return a value as a sentence quotes it: a table, whose form has many lines, by its kind."""
    return "a DataFrame" if is_table(value) else shown(value)


class _TooLarge(Exception):
    """The value is too large or too deep to check."""


class _Walk:
    """Visits all values; `wrong` has the paths of the invalid ones."""

    def __init__(self, problems: Problems, at: Path) -> None:
        self.wrong: set[Path] = set()
        self._values = MAX_VALUES
        self._characters = MAX_CHARACTERS
        self._problems = problems
        self._at = at

    def _refuse(self, path: Path, message: str) -> None:
        self.wrong.add(path)
        self._problems.add(self._at + path, message)

    def visit(self, value: Any, path: Path) -> None:
        self._values -= 1
        if self._values < 0:
            raise _TooLarge(f"expected at most {MAX_VALUES} values")
        kind = type(value)
        if kind is str:
            self._text(value, path)
        elif kind is dict or kind is list:
            if len(path) >= MAX_DEPTH:
                raise _TooLarge(f"expected at most {MAX_DEPTH} levels of mappings and lists")
            if kind is dict:
                self._mapping(value, path)
            else:
                for index, item in enumerate(value):
                    self.visit(item, (*path, index))
        elif kind is float:
            if not math.isfinite(value):
                self._refuse(path, f"expected a finite number, not {value}")
        elif kind is int:
            if not -_INT64 <= value < _INT64:
                self._refuse(path, "expected an integer of at most 64 bits")
        elif isinstance(value, Missing):
            self._refuse(path, value.sentence)
        elif value is not None and kind is not bool:
            self._refuse(path, f"expected plain data, not {_named(value)}{_instead(value, path)}")

    def _mapping(self, value: dict[Any, Any], path: Path) -> None:
        for key, item in value.items():
            if isinstance(key, str):
                self._text(key, path)
                self.visit(item, (*path, key))
            else:
                self._refuse(path, f"expected a key that is text, not {shown(key)}")

    def _text(self, text: str, path: Path) -> None:
        self._characters -= len(text)
        if self._characters < 0:
            raise _TooLarge(f"expected at most {MAX_CHARACTERS} characters of text")
        problem = text_problem(text)
        if problem is not None:
            self._refuse(path, problem)
