"""The mappings of a document, as a Python program writes and reads them: `Job`, `Rule`, `Action`.

Each is a dictionary with the keys of docs/document.md, which can be read as attributes, and given
as keywords with an underscore for a hyphen:

>>> rule = Rule(trigger="job-fail", on_error="fail", action=Action(name="terminate"))
>>> rule
Rule({'trigger': 'job-fail', 'on-error': 'fail', 'action': Action({'name': 'terminate'})})
>>> rule.on_error, rule.action.name
('fail', 'terminate')

Nothing is checked here. Documents are checked as a whole, as their YAML would be, and the service
checks the results of custom functions. The types of the keywords are for type checkers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Unpack

    from flux_ensemble.entry_keys import ActionKeys, JobKeys, RuleKeys

#: A file and a line in it.
Place = tuple[str, int]


def caller() -> Place | None:
    """Return the file and line at which a program calls this package.

    >>> caller()[0].endswith("entries.py")
    False
    """
    frame = sys._getframe(1)
    while frame is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == __name__.partition(".")[0]


def key_of(keyword: str) -> str:
    """Return the key of a document that a keyword stands for.

    >>> key_of("max_active"), key_of("with_")
    ('max-active', 'with')
    """
    return keyword.rstrip("_").replace("_", "-")


class DocumentEntry(dict[str, Any]):
    """A mapping of the document, with its keys readable as attributes.

    Args:
        mapping: keys as in a document.
        keys: further keys, as keywords; None leaves one out.

    Attributes:
        place: the line of the program that made it.
    """

    #: The key of what is most likely to be given without a keyword.
    _first = "name"

    def __init__(
        self,
        mapping: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        /,
        *more: Any,
        **keys: Any,
    ) -> None:
        given: object = mapping
        if more or isinstance(given, str):
            called = type(self).__name__
            raise TypeError(f"{called}: its arguments are keywords: {self._first}={given!r}")
        super().__init__(mapping)
        self.update({key_of(key): value for key, value in keys.items() if value is not None})
        object.__setattr__(self, "place", caller())

    place: Place | None

    def __getattr__(self, name: str) -> Any:
        for key in (name, name.replace("_", "-")):
            if key in self:
                return self[key]
        known = ", ".join(map(str, self)) or "none"
        raise AttributeError(f"the {type(self).__name__} has no key {name!r} (keys: {known})")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"


class Action(DocumentEntry):
    """An action of a rule.

    >>> Action(name="submit", label="echo", count=2).count
    2
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            mapping: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
            /,
            **keys: Unpack[ActionKeys],
        ) -> None: ...


class Rule(DocumentEntry):
    """A rule; a plain mapping under `action` becomes an `Action`.

    >>> Rule(trigger="start", action={"name": "submit", "label": "echo"}).action.label
    'echo'
    """

    _first = "trigger"

    if TYPE_CHECKING:

        def __init__(
            self,
            mapping: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
            /,
            **keys: Unpack[RuleKeys],
        ) -> None: ...

    else:

        def __init__(self, mapping=(), /, *more, **keys):
            super().__init__(mapping, *more, **keys)
            action = self.get("action")
            if isinstance(action, dict) and not isinstance(action, Action):
                self["action"] = Action(action)


class Job(DocumentEntry):
    """A job set: an entry of `jobs`. Entries of one name form a group.

    >>> Job(name="md", command="md -t {t}", params={"t": [280, 300]}, max_active=4)["max-active"]
    4
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            mapping: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
            /,
            **keys: Unpack[JobKeys],
        ) -> None: ...


def plain(value: Any, places: dict[tuple[str | int, ...], Place] | None = None) -> Any:
    """Return a value as plain data; a value without such a form is left as it is.

    Tuples, and arrays and columns of other packages, become lists, `range` becomes
    `{"range": [...]}`, `timedelta` seconds, and a path its text. A DataFrame of pandas or Polars
    that is the parameters of a group becomes its columns, side by side: a job for each row.

    Args:
        value: what a program has.
        places: receives the lines that made the entries in it, by their paths.

    >>> plain({"t": range(280, 320, 20), "after": timedelta(minutes=2), "words": ("a", 1)})
    {'t': {'range': [280, 320, 20]}, 'after': 120.0, 'words': ['a', 1]}
    """
    return _convert(value, (), {} if places is None else places)


def is_table(value: Any) -> bool:
    """Return whether a value is a DataFrame of pandas or Polars."""
    return hasattr(value, "columns") and hasattr(value, "to_dict")


def _convert(
    value: Any, path: tuple[str | int, ...], places: dict[tuple[str | int, ...], Place]
) -> Any:
    kind = type(value)
    if kind in (str, int, float, bool) or value is None:
        return value
    if isinstance(value, Mapping):
        if isinstance(value, DocumentEntry) and value.place is not None:
            places[path] = value.place
        table: Any = value.get("params")
        if is_table(table) and (isinstance(value, Job) or "command" in value):
            columns = {str(name): _column(table, name) for name in table.columns}
            value = {"sweep": "zip", **value, "params": columns}
        return {key: _convert(item, (*path, key), places) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_convert(item, (*path, index), places) for index, item in enumerate(value)]
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    for method in ("tolist", "to_list"):  # arrays and scalars of numpy, and columns of tables
        if hasattr(value, method):
            return _convert(getattr(value, method)(), path, places)
    return _base(value)


class Missing:
    """A cell of a DataFrame without a value, which no parameter can have.

    Args:
        table: the DataFrame.
        column: its name.
        row: its number, from 0 on.
    """

    def __init__(self, table: object, column: object, row: int) -> None:
        self._pandas = hasattr(table, "dropna")
        self._column = column
        self._row = row

    @property
    def sentence(self) -> str:
        """The problem, and its remedy."""
        remedy = (
            "df.dropna() leaves such rows out, df.fillna(VALUE) fills them in"
            if self._pandas
            else "df.drop_nulls().drop_nans() leaves such rows out, df.fill_null(VALUE) and "
            "df.fill_nan(VALUE) fill them in"
        )
        return f"row {self._row} of the DataFrame has no value of {str(self._column)!r}: {remedy}"


def _column(table: Any, name: object) -> list[Any]:
    """Return the values of a column; those that are missing have a place for it."""
    column = table[name]
    values = column.tolist() if hasattr(column, "tolist") else column.to_list()
    return [
        Missing(table, name, row) if _is_missing(one) else one for row, one in enumerate(values)
    ]


def _is_missing(value: Any) -> bool:
    if type(value).__name__ in ("NAType", "NaTType"):
        return True
    return value is None or (isinstance(value, float) and value != value)


def _base(value: Any) -> Any:
    """Return the value as the plain type that it extends (as enumeration members do), if any."""
    for kind in (str, bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value
