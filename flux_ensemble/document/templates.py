"""Texts of actions with expressions in braces, such as `{job.params.t}` or `run-{job.index}`.

A text that is one expression alone gives its value with its type; otherwise values become text.
`{{` and `}}` are braces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from flux_ensemble.document.plain_data import text_problem
from flux_ensemble.document.texts import NUMBERED
from flux_ensemble.metrics.conditions import Names, Variable
from flux_ensemble.metrics.expressions import MAX_LENGTH, Expression, compile_expression
from flux_ensemble.metrics.hints import remedy
from flux_ensemble.scalars import as_text
from flux_ensemble.texts import shortened, shown

#: Most expressions in one text.
MAX_EXPRESSIONS = 100

#: Most variables whose values are named where an expression has no value.
MAX_VALUES = 3

_NOT_WORD = re.compile(r"\W")

#: A part of a text without expressions.
_PLAIN = re.compile(r"(?:[^{}]++|\{\{|\}\})++")


class Template:
    """A text with expressions.

    Args:
        parts: texts, and expressions with their own text.

    >>> template = compile_template("run {count.md.success}", Names(["md"], [], None, None))
    >>> template.fill(lambda variable: 3)
    'run 3'
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: tuple[str | tuple[str, Expression[Variable]], ...]) -> None:
        self._parts = parts

    def fill(self, lookup: Callable[[Variable], Any]) -> Any:
        """The text with the values of its expressions, or the value of its only part.

        Args:
            lookup: returns the value of a variable.

        Raises:
            ValueError: an expression has no value, or one with characters that a job cannot have.
        """
        values = [part if isinstance(part, str) else _value(*part, lookup) for part in self._parts]
        value = values[0] if len(values) == 1 else "".join(map(as_text, values))
        problem = text_problem(value) if isinstance(value, str) else None
        if problem is not None:
            raise ValueError(problem)
        return value

    @classmethod
    def within(cls, value: Any, names: Names, of_each: bool = False) -> Any:
        """A value, with templates in place of the texts in it that have expressions.

        Args:
            value: plain data.
            names: resolves the names in expressions.
            of_each: `{index}` and `{number}` stay, for each job to have its own number there.

        Raises:
            ValueError: as for `compile_template`.
        """
        if isinstance(value, str):
            template = compile_template(value, names, of_each)
            return value if template is None else template
        if isinstance(value, Mapping):
            return {key: cls.within(item, names, of_each) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [cls.within(item, names, of_each) for item in value]
        return value

    @classmethod
    def variables(cls, value: Any) -> Iterator[Variable]:
        """The variables in what `within` returned.

        >>> names = Names(["md"], [], None, None)
        >>> [str(path) for path in Template.variables(Template.within("{count.md.success}", names))]
        ['count.md.success']
        """
        if isinstance(value, Template):
            for part in value._parts:
                if not isinstance(part, str):
                    yield from part[1].variables
        elif isinstance(value, (dict, list)):
            for item in value.values() if isinstance(value, dict) else value:
                yield from cls.variables(item)

    @classmethod
    def filled(cls, value: Any, lookup: Callable[[Variable], Any]) -> Any:
        """Return a result of `within` with the values of its expressions filled in.

        Args:
            value: may be or hold templates.
            lookup: returns the value of a variable.

        Raises:
            ValueError: as for `fill`.

        >>> names = Names(["md"], [], None, None)
        >>> value = Template.within({"t": ["{count.md.success}", 7]}, names)
        >>> Template.filled(value, lambda variable: 3)
        {'t': [3, 7]}
        """
        if isinstance(value, Template):
            return value.fill(lookup)
        if isinstance(value, dict):
            return {key: cls.filled(item, lookup) for key, item in value.items()}
        if isinstance(value, list):
            return [cls.filled(item, lookup) for item in value]
        return value


def _value(text: str, expression: Expression[Variable], lookup: Callable[[Variable], Any]) -> Any:
    try:
        value = expression.value(lookup)
    except ValueError as error:
        raise ValueError(f"{shortened(f'{{{text}}}')} has no value: {error}") from None
    if value is None:
        where = ", ".join(_values(text, expression.variables, lookup))
        raise ValueError(f"{shortened(f'{{{text}}}')} has no value{where and f' where {where}'}")
    return value


def _values(
    text: str, variables: Iterable[Variable], lookup: Callable[[Variable], Any]
) -> Iterator[str]:
    """Yield what the variables are of an expression without a value: those that are empty, or all.

    >>> list(_values("log(x)", ["x"], lambda variable: -1))
    ['x is -1']
    """
    values = {str(variable): lookup(variable) for variable in variables}
    empty = [name for name, value in values.items() if value is None]
    for name in sorted(empty or values)[:MAX_VALUES]:
        # One that stands alone is named already.
        if _NOT_WORD.sub("", text) != _NOT_WORD.sub("", name):
            yield f"{name} is {'empty' if name in empty else shown(values[name])}"


def compile_template(text: str, names: Names, of_each: bool = False) -> Template | None:
    """Compile a text; None where it has no brace, and stands for itself.

    Args:
        text: of an action.
        names: resolves the names in expressions.
        of_each: `{index}` and `{number}` stay, for each job to have its own number there.

    Raises:
        ValueError: a brace is not closed, or an expression does not parse or names something
            that does not exist.

    >>> compile_template("plain", Names([], [], None, None)) is None
    True
    >>> compile_template("{{id}}", Names([], [], None, None)).fill(lambda variable: None)
    '{id}'
    >>> compile_template("{job.id", Names([], [], None, None))
    Traceback (most recent call last):
    ValueError: a '{' is not closed in '{job.id' (write '{{' for a brace)
    """
    if "{" not in text and "}" not in text:
        return None
    parts: list[str | tuple[str, Expression[Variable]]] = []
    plain: list[str] = []
    expressions = at = 0
    while at < len(text):
        match = _PLAIN.match(text, at)
        if match is not None:
            plain.append(match[0].replace("{{", "{").replace("}}", "}"))
            at = match.end()
            continue
        if text[at] == "}":
            raise ValueError(f"a '}}' is not opened in {shown(text)} (write '}}}}' for a brace)")
        expressions += 1
        if expressions > MAX_EXPRESSIONS:
            raise ValueError(f"expected at most {MAX_EXPRESSIONS} expressions in a text")
        end = _end(text, at + 1)
        if plain:
            parts.append("".join(plain))
            plain.clear()
        inside = text[at + 1 : end].strip()
        if of_each and inside in NUMBERED:
            plain.append(NUMBERED[inside])
            at = end + 1
            continue
        parts.append((inside, compiled(inside, names)))
        at = end + 1
    if plain or not parts:
        parts.append("".join(plain))
    return Template(tuple(parts))


def _end(text: str, at: int) -> int:
    """Return the end of the expression that begins at `at`; braces in quotes do not count."""
    quote = ""
    for place in range(at, len(text)):
        character = text[place]
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "}":
            return place
        elif character == "{":
            break
    raise ValueError(f"a '{{' is not closed in {shown(text)} (write '{{{{' for a brace)")


def has_braces(value: Any) -> bool:
    """Return True if a value is, or holds, text with braces.

    >>> has_braces({"t": ["{job.params.t}"]}), has_braces({"t": [300, "plain"]})
    (True, False)
    """
    if isinstance(value, str):
        return "{" in value or "}" in value
    if isinstance(value, Mapping):
        return any(map(has_braces, value.values()))
    return isinstance(value, (list, tuple)) and any(map(has_braces, value))


def most_expressions(value: Any) -> int:
    """Return an upper bound of the expressions in the texts of a value.

    >>> most_expressions({"t": ["{job.params.t}", "run-{job.id}-{job.index}"]})
    3
    """
    if isinstance(value, str):
        return value.count("{")
    if isinstance(value, Mapping):
        value = value.values()
    return sum(map(most_expressions, value)) if isinstance(value, Iterable) else 0


def _plain_brace(text: str) -> str:
    """The remedy where braces may be meant as text, or as a format of Python's."""
    name, colon, _ = text.partition(":")
    if colon and name.isidentifier():
        return f" (there are no formats: write '{{{{{name}}}}}', or round it with round(x, 2))"
    return " (write '{{' for a brace)"


def compiled(text: str, names: Names) -> Expression[Variable]:
    """Compile an expression of a document.

    Args:
        text: without braces.
        names: resolves the names in it.

    Raises:
        ValueError: it does not parse, or names something that does not exist.

    >>> compiled("count.md.success + 1", Names(["md"], [], None, None)).value(lambda variable: 3)
    4
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"an expression has at most {MAX_LENGTH} characters, not {len(text)}")
    try:
        return compile_expression(text, names.resolve, fitted=names.fitted)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(
            f"expected an expression such as 'job.params.NAME', not {shown(text)}"
            f"{remedy(text) or _plain_brace(text)}"
        ) from None
