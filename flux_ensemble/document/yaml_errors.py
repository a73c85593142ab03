"""Says of text that is no YAML what its writer has to change, and on which line.

A parser reports where it gave up, in its own terms. The slip is often on the line before: a
missing colon, a key that stands too far to the right. What is recognised here are the slips
that people make; there is no remedy where none fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flux_ensemble.texts import shortened

#: A line with a key and a value, of a list or not.
_KEYED = re.compile(r"(?P<head>[\s-]*)(?P<key>[\w-]+):(?:\s+(?P<value>.*?))?\s*")

#: A comparison after a key, which YAML takes for the beginning of a block of text.
_COMPARISON = re.compile(r"[\s-]*(?P<key>[\w-]+):\s+(?P<value>>[^\n]*?)\s*")

#: A value among others in braces that has braces or brackets itself, and no quotes.
_INSIDE = re.compile(
    r"[{,]\s*(?P<key>[\w-]+):\s+(?P<value>[^\s\"'{}\[\],][^\"'{}\[\],]*[{\[][^,]*)"
)

#: A value among others in braces or brackets that begins as none without quotes may.
_NO_TOKEN = re.compile(r"[{,\[]\s*(?P<key>[\w-]+):\s+(?P<value>[%@`|>][^,{}\[\]]*)")

_JOINED = re.compile(r"(?P<head>[\s-]*)(?P<key>[A-Za-z_][\w-]*):(?P<value>[^\s:/\\].*?)\s*")
_DASHED = re.compile(r"\s*-(?P<rest>[A-Za-z_][\w-]*:.*?)\s*")
_BARE = re.compile(r"[\s-]*(?P<key>[A-Za-z_][\w-]*)\s*")

#: Blanks that are none to YAML, in the place of one that separates.
_ODD_BLANK = re.compile("[\u00a0\u2000-\u200a\u202f\u3000]")

#: Characters that no value without quotes begins with.
_NO_BEGINNING = "%@`*&!|>"

#: What `_remedies` gives: the place of a line, from 0, and what to do there.
Advice = tuple[int, str]


def remedy(lines: Sequence[str], at: int, begun: int, problem: str) -> Advice | None:
    """Return the line where a slip is, and the remedy; None if none is recognised.

    Args:
        lines: of the text.
        at: the line at which the parser gave up, from 0.
        begun: the line of what it was reading.
        problem: what it says.

    >>> remedy(["jobs:", "- name: a", "  command: echo a: b"], 2, 2, "mapping values are not ...")
    (2, "put the value in quotes: command: 'echo a: b'")
    """
    before = next((n for n in range(at - 1, -1, -1) if _is_written(lines[n])), at)
    near = list(dict.fromkeys((at, begun, before)))
    return next(_remedies(lines, near, at, before, problem), None)


def _is_written(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _remedies(
    lines: Sequence[str], near: Sequence[int], at: int, before: int, problem: str
) -> Iterator[Advice]:
    for number in near:
        line = lines[number]
        if "\t" in line[: len(line) - len(line.lstrip(" \t-"))]:
            yield number, "YAML is indented with spaces, not with tabs"
        odd = _ODD_BLANK.search(line)
        if odd is not None:
            yield (
                number,
                f"the line has a blank that is none to YAML, {odd[0]!a}: type it anew",
            )
        if line.lstrip().startswith("//"):
            yield number, "a comment begins with '#'"
    unquoted = _COMPARISON.fullmatch(lines[at])
    if unquoted is not None:
        key, value = unquoted["key"], shortened(unquoted["value"])
        yield at, f'put a comparison in quotes: {key}: "{value}"'
    inside = _NO_TOKEN.search(lines[at]) if "cannot start any token" in problem else None
    if inside is not None:
        key, value = inside["key"], shortened(inside["value"].rstrip())
        what = "a comparison" if value.startswith(">") else "the value"
        yield at, f'put {what} in quotes: {key}: "{value}"'
    if "quoted scalar" in problem:
        yield min(near), "the quote that begins on this line is not closed"
    for check in (_quotes, _spaces):
        for number in near:
            said = check(lines[number])
            if said is not None:
                yield number, said
    if "',' or ']'" in problem or "',' or '}'" in problem:
        for number in near:
            for opening, closing in ("[]", "{}"):
                if lines[number].count(opening) > lines[number].count(closing):
                    yield number, f"a {closing!r} is missing"
    elif (said := _column(lines, at, before)) is not None:
        yield at, said
    if "':'" in problem:
        for number in near:
            bare = _BARE.fullmatch(lines[number])
            if bare is not None:
                yield number, f"a colon is missing after {bare['key']!r}"
    bare = _BARE.fullmatch(lines[before])
    if "mapping values" in problem and bare is not None and before != at:
        yield before, f"a colon is missing after {bare['key']!r}"


def _quotes(line: str) -> str | None:
    """Return the remedy for a value that needs quotes, or has two pairs of them."""
    keyed = _KEYED.fullmatch(line)
    value = (keyed["value"] or "") if keyed is not None else ""
    closing = {"{": "}", "[": "]"}.get(value[:1])
    closed = _closed(value, value[0], closing) if closing is not None else None
    alone = closed is not None and not value[closed:].split("#")[0].strip()
    if keyed is None or not value or alone or (closing is not None and closed is None):
        inside = None if "'" in line and '"' in line else _INSIDE.search(line)
        if inside is None:
            return None
        value = inside["value"].rstrip()
        # The braces around all of it end there.
        while value.count("}") > value.count("{"):
            value = value[: value.rindex("}")].rstrip()
        return f"put the value in quotes: {_quoted(inside['key'], value)}"
    first = value[0]
    if first in "\"'":
        # A text of one kind of quotes that goes on after the closing one.
        if first not in value[1:-1]:
            return None
        whole = value[1:-1] if value.endswith(first) else value
        return (
            "a value has one pair of quotes around it, and quotes of the other kind inside: "
            + _quoted(keyed["key"], whole)
        )
    if (
        closing is None
        and first not in _NO_BEGINNING
        and ": " not in value
        and not value.endswith(":")
    ):
        return None
    return f"put the value in quotes: {_quoted(keyed['key'], value)}"


def _closed(value: str, opening: str, closing: str) -> int | None:
    """Return the place after the bracket that closes the first one."""
    depth = 0
    for place, character in enumerate(value):
        depth += (character == opening) - (character == closing)
        if depth == 0:
            return place + 1
    return None


def _quoted(key: str, value: str) -> str:
    value = shortened(value)
    if "'" in value and '"' not in value and "\\" not in value:
        return f'{key}: "{value}"'
    return f"{key}: '{value.replace(chr(39), chr(39) * 2)}'"


def _spaces(line: str) -> str | None:
    """Return the remedy for a colon, or a dash, that is followed by no space."""
    joined = _JOINED.fullmatch(line)
    if joined is not None:
        written = f"{joined['key']}: {joined['value']}"
        return f"a colon is followed by a space: {shortened(written)}"
    dashed = _DASHED.fullmatch(line)
    return (
        None if dashed is None else f"a dash is followed by a space: - {shortened(dashed['rest'])}"
    )


def _column(lines: Sequence[str], at: int, before: int) -> str | None:
    """Return the remedy for a key that stands at another column than those beside it."""
    here, there = _KEYED.fullmatch(lines[at]), _KEYED.fullmatch(lines[before])
    if here is None or there is None or here["head"].lstrip():
        return None
    column, other = len(here["head"]), len(there["head"])
    # Keys may begin below a key without a value.
    if column == other or (column > other and not there["value"]):
        return None
    return f"indent {here['key']!r} as far as {there['key']!r} on line {before + 1}"
