"""The values of one parameter: a list, one value, numbers in equal steps, or a column of a file.

Numbers in steps are computed when they are needed, so a billion of them take no memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from flux_ensemble.document.keys.forms import no_scalar
from flux_ensemble.document.problems import Path
from flux_ensemble.scalars import WRITTEN, as_text, number, spelled
from flux_ensemble.texts import shown

#: Largest exponent of `logspace`, and its negative the smallest.
MAX_EXPONENT = 300

#: Most characters of a float as text, such as -2.2250738585072014e-308.
_FLOAT_CHARACTERS = 24

_FORMS = (
    "a list of values or {range: [start, stop, step]}, {linspace: [first, last, number]}, "
    "{logspace: [first exponent, last exponent, number]}, {file: FILE}, {written: [text, ...]}"
)

#: Keys of a range in other tools, by what they say of it.
_FIRST = ("start", "from", "min", "first", "low", "begin")
_LAST = ("stop", "to", "max", "last", "high", "end")
_STEPS = ("step", "by", "increment")
_NUMBERS = ("num", "number", "n", "count", "points")
_LISTS = ("values", "list", "choice", "choices", "categorical", "in", "items", "enum")
_FILES = ("csv", "tsv", "sheet", "table", "path", "filename")
_RANDOM = ("uniform", "loguniform", "normal", "int", "float", "randint", "random", "log-uniform")


@dataclass(frozen=True)
class Steps(Sequence[float]):
    """Floats in equal steps. They are the decimal numbers that one would write: 0.3, and not
    0.1 + 0.1 + 0.1.

    Args:
        start, step: of the numbers; exact.
        number: how many there are.
        exponents: the numbers are exponents of the values, powers of ten.

    >>> list(Steps(Fraction(1, 10), Fraction(1, 10), 3))
    [0.1, 0.2, 0.3]
    >>> list(Steps(Fraction(-2), Fraction(1), 3, exponents=True))
    [0.01, 0.1, 1.0]
    """

    start: Fraction
    step: Fraction
    number: int
    exponents: bool = False

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: Any) -> Any:
        if index < 0:
            index += self.number
        if not 0 <= index < self.number:
            raise IndexError(f"there is no value {index}")
        value = self.start + index * self.step
        if not self.exponents:
            return float(value)
        return float(Fraction(10) ** value) if value.denominator == 1 else 10.0 ** float(value)


@dataclass(frozen=True)
class FileColumn(Sequence[Any]):
    """A column of a file. Columns of the same file are taken side by side.

    Args:
        file: the file's name.
        values: one for each row.
        first_empty: the line of the first cell that is empty, if one is.
        empty: how many are.

    >>> FileColumn("points.csv", (1, 20, 300)).characters
    3
    """

    file: str
    values: tuple[Any, ...]
    first_empty: tuple[int, ...] = ()
    empty: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    @cached_property
    def characters(self) -> int:
        """The bytes of the longest value as text. Many job sets may have the column."""
        return max(len(as_text(value).encode(errors="replace")) for value in self.values)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The first of the values that is text, if there is one."""
        texts = ((value,) for value in self.values if isinstance(number(value), str))
        return next(texts, ())


def texts_among(values: Sequence[Any]) -> Sequence[Any]:
    """Values that are no numbers, of those that a parameter can have; not always all of them.

    >>> texts_among(range(10**9)), texts_among((1, 2.5, "fast"))
    ((), ['fast'])
    """
    if isinstance(values, (range, Steps)):
        return ()
    if isinstance(values, FileColumn):
        return values.texts
    return [value for value in values if type(number(value)) not in (int, float)]


def longest(values: Sequence[Any], size: Callable[[Any], int]) -> int:
    """The size of the longest value as text.

    Args:
        values: of a parameter.
        size: of one value.

    >>> longest(range(1, 10**9), lambda value: len(str(value)))
    9
    """
    if isinstance(values, Steps):
        return _FLOAT_CHARACTERS
    if isinstance(values, FileColumn):
        return values.characters
    ends = (values[0], values[-1]) if isinstance(values, range) else values
    return max(map(size, ends))


class ItemsError(ValueError):
    """Items of a list are no values of a parameter.

    Args:
        messages: about each, by its path within the parameter.

    Attributes:
        path: of the first.
    """

    def __init__(self, messages: Mapping[Path, str]) -> None:
        self.messages = messages
        self.path, message = next(iter(messages.items()))
        super().__init__(message)


def parse_values(entry: Any) -> Sequence[Any]:
    """The values of one parameter: a list, a mapping such as `{"range": [start, stop, step?]}`,
    or a scalar. `{"written": ["1.10", "NO"]}` has texts that mean what plain scalars mean in YAML.

    Raises:
        ItemsError: items of a list are not text, a number or a boolean.
        ValueError: no values, one that is not text, a number or a boolean, or an invalid range.

    >>> parse_values([300, 310]), parse_values({"range": [0, 10, 2]}), parse_values("fast")
    ((300, 310), range(0, 10, 2), ('fast',))
    >>> list(parse_values({"linspace": [0, 1, 5]})), list(parse_values({"logspace": [-2, 0, 3]}))
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.01, 0.1, 1.0])
    >>> version, count = parse_values({"written": ["1.10", "300"]})
    >>> version, version.value, count
    ('1.10', 1.1, 300)
    """
    values: Sequence[Any]
    if isinstance(entry, Mapping):
        ((kind, arguments),) = entry.items() if len(entry) == 1 else ((None, None),)
        if kind not in _KINDS:
            raise ValueError(f"expected {_FORMS}, not {shown(entry)}{_meant(entry)}")
        values = _KINDS[kind](arguments)
    else:
        several = isinstance(entry, (list, tuple))
        values = tuple(map(_one, entry)) if several else (entry,)
        wrong: dict[Path, str] = {
            (place,): _no_item(value)
            for place, value in enumerate(values)
            if not isinstance(value, (str, int, float))
        }
        if wrong:
            raise ItemsError(wrong) if several else ValueError(no_scalar(entry))
    try:
        number = len(values)
    except OverflowError:
        raise ValueError(f"expected fewer values than {shown(entry)} has") from None
    if not number:
        what = f"not {shown(entry)}"
        if isinstance(entry, Mapping):
            what = ", ".join(f"and {{{kind}: {given}}} has none" for kind, given in entry.items())
        raise ValueError(f"expected at least one value, {what}")
    return values


def _meant(entry: Mapping[str, Any]) -> str:
    """Return, in brackets, how values that other tools write as a mapping are written here."""

    def of(names: Sequence[str]) -> Any:
        return next((entry[name] for name in names if name in entry), None)

    if len(entry) == 1:
        ((kind, value),) = entry.items()
        if kind in _LISTS and isinstance(value, (list, tuple)):
            return f" (write a list alone: {_written(value)})"
        if kind in _FILES and isinstance(value, str):
            return f" (write {{file: {shown(value)}}})"
    if not entry.keys().isdisjoint(_RANDOM) or "distribution" in entry:
        return " (values that are drawn are 'variables' of a 'search')"
    first, last, step, many = of(_FIRST), of(_LAST), of(_STEPS), of(_NUMBERS)
    if last is None:
        return ""
    if many is not None:
        return f" (write {{linspace: [{shown(first or 0)}, {shown(last)}, {shown(many)}]}})"
    steps = [first or 0, last, *(() if step is None else (step,))]
    return f" (write {{range: {_written(steps)}}}, which ends before {shown(last)})"


def _numbers(arguments: Any, *numbers: int) -> bool:
    """Return True if the arguments are a list of finite numbers, of one of the lengths."""
    return (
        isinstance(arguments, (list, tuple))
        and len(arguments) in numbers
        and all(
            type(number) is int or (type(number) is float and math.isfinite(number))
            for number in arguments
        )
    )


def _exact(number: float) -> Fraction:
    """The decimal number that was written, and not the float that is nearest to it."""
    return Fraction(repr(number))


def _range(arguments: Any) -> Sequence[Any]:
    if not _numbers(arguments, 2, 3) or 0 in arguments[2:]:
        meant = f" (write [0, {arguments}])" if type(arguments) is int else ""
        raise ValueError(
            f"expected a range such as [start, stop, step], not {_written(arguments)}{meant}"
        )
    if all(type(bound) is int for bound in arguments):
        return range(*arguments)
    start, stop, step = map(_exact, (*arguments, 1)[:3])
    return Steps(start, step, max(0, -((start - stop) // step)))


def _linspace(arguments: Any) -> Steps:
    if not _numbers(arguments, 3) or type(arguments[2]) is not int or arguments[2] < 1:
        raise ValueError(
            f"expected a list such as [first, last, number], the number an integer >= 1, "
            f"not {_written(arguments)}"
        )
    *ends, number = arguments
    start, stop = map(_exact, ends)
    return Steps(start, (stop - start) / max(1, number - 1), number)


def _logspace(arguments: Any) -> Steps:
    steps = _linspace(arguments)
    for exponent in arguments[:2]:
        if abs(exponent) > MAX_EXPONENT:
            raise ValueError(
                f"expected exponents of ten from -{MAX_EXPONENT} to {MAX_EXPONENT}, "
                f"not {shown(exponent)}"
            )
    return Steps(steps.start, steps.step, steps.number, exponents=True)


def _one(value: Any) -> Any:
    """An item of a list: a value, or its text as `{written: TEXT}`."""
    if isinstance(value, Mapping) and value.keys() == {WRITTEN} and isinstance(value[WRITTEN], str):
        return _written_value(value[WRITTEN])
    return value


def _no_item(value: Any) -> str:
    """The message about an item of a list that is no value."""
    if isinstance(value, Mapping) and value.keys() == {WRITTEN}:
        return _no_text(value[WRITTEN])
    return no_scalar(value)


def _no_text(value: Any) -> str:
    return f"expected a value as text, such as '1.10', not {shown(value)}"


def _written_values(arguments: Any) -> tuple[Any, ...]:
    if arguments is None:
        # A choice of a search.
        return (None,)
    several = isinstance(arguments, (list, tuple))
    texts = arguments if several else [arguments]
    wrong: dict[Path, str] = {
        (WRITTEN, place) if several else (WRITTEN,): _no_text(text)
        for place, text in enumerate(texts)
        if not isinstance(text, str)
    }
    if wrong:
        raise ItemsError(wrong)
    return tuple(map(_written_value, texts))


def _written_value(text: str) -> Any:
    value = spelled(text)
    # What means null without quotes is a text here.
    return text if value is None else value


def _written(arguments: Any) -> str:
    if isinstance(arguments, (list, tuple)) and 0 < len(arguments) <= 4:
        return f"[{', '.join(map(shown, arguments))}]"
    return shown(arguments)


_KINDS: Mapping[Any, Callable[[Any], Sequence[Any]]] = {
    "range": _range,
    "linspace": _linspace,
    "logspace": _logspace,
    WRITTEN: _written_values,
}
