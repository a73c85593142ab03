"""The texts of a job: splitting commands and filling in parameters.

The longest possible text is computed from the longest value of each parameter, before any job is
built. So every job of a checked document can be built and started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from flux_ensemble.document.bounds import MAX_BYTES, MAX_VALUES
from flux_ensemble.document.values import longest
from flux_ensemble.scalars import as_text
from flux_ensemble.texts import shown

#: Longest word of a command, and longest environment variable with its name, in bytes: Linux's
#: MAX_ARG_STRLEN without the null byte.
MAX_WORD = 128 * 1024 - 1

#: Most bytes of all texts of one job together.
MAX_TEXTS = MAX_BYTES

#: What a text is, its length in bytes, and of each placeholder how often it is there, and the
#: length of all of these.
Measured = tuple[str, int, dict[str, tuple[int, int]]]

#: The name of a job's number within its submission, where no parameter is called so, and how it
#: stands in a text.
INDEX = "index"
INDICES = f"{{{INDEX}}}"

#: The same for a job's number among all jobs of its group.
NUMBER = "number"
NUMBERS = f"{{{NUMBER}}}"

#: The name of how often a job was tried before, where no parameter is called so, and how it stands
#: in a text.
ATTEMPT = "attempt"
ATTEMPTS = f"{{{ATTEMPT}}}"

#: What stands for a number of each job in its texts and values.
NUMBERED = {INDEX: INDICES, NUMBER: NUMBERS}

#: The names that are filled in besides those of parameters, and how many digits they have at most.
COUNTERS = frozenset((INDEX, NUMBER, ATTEMPT))
_DIGITS = 10

# First what is not replaced: mustache templates of Flux, and shell variables.
_PLACEHOLDER = re.compile(
    r"\{\{[A-Za-z_][\w-]*\}\}|\$\{[A-Za-z_][\w-]*\}|\{(?P<name>[A-Za-z_][\w-]*)\}", re.ASCII
)

# A command, part by part. No part is looked at twice, so a long one takes no longer than
# many short ones; `shlex` takes time that grows with the square of a word.
_PART = re.compile(
    r"""(?P<space>[ \t\r\n]++)|(?P<plain>[^ \t\r\n'"\\]++)|'(?P<single>[^']*+)'"""
    r"""|"(?P<double>(?:[^"\\]++|\\.)*+)"|\\(?P<escaped>.)|(?P<open>['"\\])""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"""\\(["\\])""")


def split_command(command: str) -> list[str]:
    """Split a command like a shell and `shlex.split` do.

    Raises:
        ValueError: bad quotes, no word, or too many words.

    >>> split_command("echo 'hello world' again")
    ['echo', 'hello world', 'again']
    """
    words: list[str] = []
    parts: list[str] = []
    for match in _PART.finditer(command):
        kind, text = match.lastgroup, match[match.lastindex or 0]
        if kind == "space":
            if parts:
                words.append("".join(parts))
                parts.clear()
        elif kind == "open":
            missing = _missing(command[match.start() :])
            raise ValueError(f"bad quotes in {shown(command)}: {missing}")
        else:
            parts.append(_ESCAPED.sub(r"\1", text) if kind == "double" else text)
    if parts:
        words.append("".join(parts))
    if not words:
        raise ValueError("expected a command of at least one word")
    if len(words) > MAX_VALUES:
        raise ValueError(f"expected a command of at most {MAX_VALUES} words, not {len(words)}")
    return words


def quoted_words(command: str) -> list[list[tuple[str, str]]]:
    """The words of a command by their parts: how each is quoted, and its text.

    Args:
        command: one that `split_command` splits.

    >>> quoted_words("echo 'a b'c")
    [[('plain', 'echo')], [('single', 'a b'), ('plain', 'c')]]
    """
    words: list[list[tuple[str, str]]] = [[]]
    for match in _PART.finditer(command):
        kind = match.lastgroup or ""
        if kind == "space":
            words.append([])
        else:
            words[-1].append((kind, match[match.lastindex or 0]))
    return [word for word in words if word]


def _missing(rest: str) -> str:
    """Name the missing part of a command that ends with `rest`, from a quote or backslash on."""
    inside = rest[1:]
    escapes = len(inside) - len(inside.rstrip("\\"))
    ends_in_escape = rest[0] == "\\" or (rest[0] == '"' and escapes % 2 == 1)
    return "no escaped character" if ends_in_escape else "no closing quotation"


def filler(params: Mapping[str, Any]) -> Callable[[str], str]:
    """A function that replaces each `{name}` of a parameter in a text by its value.

    >>> fill = filler({"t": 300})
    >>> fill("run-{t}.log"), fill("{{id}}.log"), fill("${t}")
    ('run-300.log', '{{id}}.log', '${t}')
    """
    if not params:
        return str
    values = {name: as_text(value) for name, value in params.items()}

    def replaced(match: re.Match[str]) -> str:
        return values.get(match["name"], match[0])

    return lambda text: _PLACEHOLDER.sub(replaced, text) if "{" in text else text


def has_numbers(text: str) -> bool:
    """Return whether a text has `{index}` or `{number}`.

    >>> has_numbers("seed-{number}"), has_numbers("{attempt}")
    (True, False)
    """
    return any(braces in text for braces in NUMBERED.values())


def numbered(value: Any, index: int, number: int) -> Any:
    """The value of a parameter in which a job's numbers stand for `{index}` and `{number}`.

    Args:
        value: as it was given.
        index: the job's number in its submission.
        number: the job's number among all jobs of its group.

    >>> numbered("{index}", 3, 11), numbered("seed-{number}", 3, 11), numbered(0.5, 3, 11)
    (3, 'seed-11', 0.5)
    """
    if not isinstance(value, str) or not has_numbers(value):
        return value
    whole = {INDICES: index, NUMBERS: number}.get(value)
    return filler({INDEX: index, NUMBER: number})(value) if whole is None else whole


def filled(value: Any, fill: Callable[[str], str]) -> Any:
    """Plain data in which each text is filled in.

    >>> filled({"a": ["{t}", 1]}, filler({"t": 300}))
    {'a': ['300', 1]}
    """
    if isinstance(value, str):
        return fill(value)
    if isinstance(value, Mapping):
        return {key: filled(item, fill) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [filled(item, fill) for item in value]
    return value


def texts_in(value: Any) -> Iterator[str]:
    """The texts in plain data.

    >>> list(texts_in({"a": ["b", 1], "c": "d"}))
    ['b', 'd']
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from texts_in(item)


def placeholders(text: str) -> set[str]:
    """The names in braces in a text that can be those of parameters.

    >>> sorted(placeholders("{a}-{b}.log")), placeholders("{{id}} ${t} {}")
    (['a', 'b'], set())
    """
    return {match["name"] for match in _PLACEHOLDER.finditer(text)} - {None}


def sizes(params: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """The length in bytes of the longest value of each parameter, as text.

    >>> sizes({"t": range(1, 1001), "mode": ("fast", "exact")})
    {'t': 4, 'mode': 5}
    """
    return {name: longest(values, _size) for name, values in params.items()}


def _size(value: Any) -> int:
    text = as_text(value)
    more = sum(text.count(braces) * (_DIGITS - len(braces)) for braces in NUMBERED.values())
    return len(text.encode(errors="replace")) + more


def measure(texts: Iterable[tuple[str, str]]) -> tuple[Measured, ...]:
    """Measure texts, for `check_sizes`.

    Args:
        texts: what each text is, for messages, and the text.

    >>> measure([("a word of a command", "{t}-{t}.log")])
    (('a word of a command', 11, {'t': (2, 6)}),)
    """
    measured: list[Measured] = []
    for what, text in texts:
        places: dict[str, tuple[int, int]] = {}
        for match in _PLACEHOLDER.finditer(text) if "{" in text else ():
            name = match["name"]
            if name is not None:
                times, length = places.get(name, (0, 0))
                places[name] = times + 1, length + len(match[0])
        measured.append((what, len(text.encode()), places))
    return tuple(measured)


def check_sizes(texts: Iterable[Measured], sizes: Mapping[str, int]) -> None:
    """Check that the texts of no job of a job set get too long.

    Args:
        texts: as `measure` returns them.
        sizes: as the function `sizes` returns them.

    Raises:
        ValueError: a text, or all of them together, can get too long.

    >>> check_sizes(measure([("a word of a command", "{name}")]), {"name": 200_000})
    Traceback (most recent call last):
    ValueError: expected a word of a command of at most 131071 bytes, not 200000
    """
    left = MAX_TEXTS
    for what, size, places in texts:
        for name, (times, length) in places.items():
            longest_value = sizes.get(name, _DIGITS if name in COUNTERS else None)
            if longest_value is not None:
                size += times * longest_value - length
        if size > MAX_WORD:
            raise ValueError(f"expected {what} of at most {MAX_WORD} bytes, not {size}")
        left -= size
    if left < 0:
        raise ValueError(
            f"expected a command and an environment of at most {MAX_TEXTS} bytes, "
            f"not {MAX_TEXTS - left}"
        )
