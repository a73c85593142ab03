"""Statistics by the values of parameters: the names of their streams, such as `fom[t=300]`.

A metric that is kept by value has its own stream, and one more for each combination of the values
of some parameters among its jobs. Equal numbers are one value, however they are written; text that
could be read as something else is quoted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.scalars import number
from flux_ensemble.texts import shown

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[^\s,=\[\]\"']+")
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
_ITEM = re.compile(
    r"\s*(?P<name>[A-Za-z_][A-Za-z0-9_-]*)\s*=\s*"
    r"(?P<value>\"(?:[^\"\\]|\\.)*\"|[^\s,=\[\]\"']+)\s*(?:,|\Z)"
)
_SPLIT = re.compile(r"(?P<variable>.+?)\[\s*[A-Za-z_][A-Za-z0-9_-]*\s*=.*\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ByValue:
    """A metric that is kept by value: `variable` of the jobs of `group`, by values of `params`."""

    group: str
    variable: str
    params: tuple[str, ...]

    def suffix(self, values: Mapping[str, Any]) -> str:
        """Return the suffix of the variable's name for some values of the parameters.

        >>> ByValue("md", "fom", ("t", "mode")).suffix({"mode": "fast", "t": 300.0, "x": 1})
        '[t=300,mode=fast]'
        """
        return (
            f"[{','.join(f'{name}={_written(number(values.get(name)))}' for name in self.params)}]"
        )

    @property
    def form(self) -> str:
        """The form of the metric's name: `md-fom[t=VALUE]`."""
        values = ",".join(f"{name}=VALUE" for name in self.params)
        return f"{self.group}-{self.variable}[{values}]"


def parse_variable(group: str, variable: str, kept: Collection[ByValue]) -> str:
    """Return the variable for a written name, which may be one by value.

    Args:
        group: the group.
        variable: the name as written: `fom`, or `fom[t = 300.0]`.
        kept: the metrics that are kept by value.

    Raises:
        ValueError: the variable is not kept by these parameters, or a value is malformed.

    >>> kept = [ByValue("md", "fom", ("t",))]
    >>> parse_variable("md", "fom[t = 300.0]", kept), parse_variable("md", "loss[0]", kept)
    ('fom[t=300]', 'loss[0]')
    >>> parse_variable("md", "fom[p=1]", kept)
    Traceback (most recent call last):
    ValueError: no statistics 'md-fom[p=1]': expected md-fom[t=VALUE]
    """
    own = [by for by in kept if by.group == group and variable.startswith(f"{by.variable}[")]
    name = f"{group}-{variable}"
    if not own:
        base = unsplit(variable)
        if base == variable:
            return variable
        raise ValueError(
            f"no statistics {shown(name)}: {f'{group}-{base}'!r} is not kept by value, such as "
            f"with {{of: {group}-{base}, by: [NAME]}} under 'metrics'"
        )
    for by in own:
        values = values_of(variable[len(by.variable) + 1 :])
        if values is not None and values.keys() == set(by.params):
            return by.variable + by.suffix(values)
    raise ValueError(f"no statistics {shown(name)}: expected {' or '.join(by.form for by in own)}")


def unsplit(variable: str) -> str:
    """Return the variable without values of parameters.

    >>> unsplit("fom[t=300]"), unsplit("loss[0]")
    ('fom', 'loss[0]')
    """
    match = _SPLIT.fullmatch(variable) if variable.endswith("]") else None
    return variable if match is None else match["variable"]


def values_of(text: str) -> dict[str, Any] | None:
    """Return the values in text such as `t=300,mode=fast]`; None if it has another form.

    >>> values_of("t=300,mode=fast]")
    {'t': 300, 'mode': 'fast'}
    """
    if not text.endswith("]"):
        return None
    text, at = text[:-1], 0
    values: dict[str, Any] = {}
    while at < len(text):
        match = _ITEM.match(text, at)
        if match is None or match["name"] in values:
            return None
        values[match["name"]] = _read(match["value"])
        at = match.end()
    return values


def _read(text: str) -> Any:
    """Return the value of its written form."""
    if text.startswith('"'):
        try:
            return json.loads(text)
        except ValueError:
            return text
    if _NUMBER.fullmatch(text):
        return _plain(json.loads(text))
    return _WORDS.get(text, text)


def _written(value: Any) -> str:
    """Return the written form of a value, from which `_read` makes the same value."""
    if isinstance(value, str) and _WORD.fullmatch(value) and _read(value) == value:
        return value
    return json.dumps(_plain(value), separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Return a whole float as an integer, and any other value unchanged."""
    whole = isinstance(value, float) and math.isfinite(value) and value.is_integer()
    return int(value) if whole else value
