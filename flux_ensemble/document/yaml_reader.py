"""Reads YAML into plain values, and keeps the line of each.

Text that libyaml would take too long to parse is refused first. One pass over the parser's events
builds dicts, lists and scalars. It limits size (through aliases) and depth, and refuses duplicate
keys, keys that are not text, and most tags. Scalars are resolved as yaml.SafeLoader does, with
fewer surprises: dates, `12:30:00` (sexagesimal) and `010` (octal) stay text, and `1e-3` is a
number, as in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from flux_ensemble.document.bounds import MAX_BYTES, MAX_DEPTH, MAX_VALUES
from flux_ensemble.document.problems import DocumentError, Path, Problem, Problems, TooMany
from flux_ensemble.document.yaml_errors import remedy
from flux_ensemble.scalars import plain_scalar, spelled
from flux_ensemble.texts import shortened, shown

#: Most %TAG directives. libyaml compares each with all others.
MAX_DIRECTIVES = 100

#: Most blanks, or empty lines, in a row. For each word libyaml clears as much memory as the
#: longest row so far needed.
MAX_BLANKS = 4096

_UNPRINTABLE = re.compile(
    "[^\x09\x0a\x0d\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
_BREAK = "(?:\r\n|[\n\r\x85\u2028\u2029])"
_DIRECTIVE = re.compile(f"(?:^|{_BREAK})%TAG")
# Possessive: no character is looked at twice.
_BLANKS = re.compile("[ \t]++")
_EMPTY_LINES = re.compile(f"(?:{_BREAK}[ \t]*+)++")
_BREAKS = re.compile(_BREAK)

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG = "tag:yaml.org,2002:"
_TAGS = {
    f"{_TAG}int": int,
    f"{_TAG}float": float,
    f"{_TAG}bool": bool,
    f"{_TAG}null": type(None),
}
#: Words that are true or false as values, and text as keys: `retries` has a key `on`.
_TEXT_AS_KEYS = frozenset({"on", "off", "yes", "no", "y", "n"})

_TOO_DEEP = f"a document nests at most {MAX_DEPTH} levels deep"

#: A tag that is the beginning of a condition.
_WORDLESS = re.compile(r"!(=|\w+\.|\()")

_SKIPPED = object()
_MERGE = object()


class Document:
    """The values of a document, with their lines.

    Args:
        value: the root. It has lines only if it was read from text.

    Attributes:
        start: the line of the root.
        size: how many values it has, if it was read from text.
        texts: (id of a container, key or position) -> the original text of a number or boolean.
        blocks: the same for a `|` block -> the line on which its text begins.

    >>> document, problems = read_yaml("jobs: [{name: a}, {name: b}]")
    >>> document.line(("jobs", 1)), document.value["jobs"][1]
    (1, {'name': 'b'})
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.start: int | None = None
        self.size = 0
        self.texts: dict[tuple[int, str | int], str] = {}
        self.blocks: dict[tuple[int, str | int], int] = {}
        #: id of a container -> the container (an id is only good while it lives), and key
        #: or position -> line, from 1.
        self._kept: dict[int, tuple[Any, dict[str | int, int]]] = {}

    def keep(self, container: Any, lines: dict[str | int, int]) -> None:
        """Remember the lines of a container's items."""
        self._kept[id(container)] = (container, lines)

    def told(self, path: Path, message: str) -> tuple[Path, str]:
        """A problem of the value at `path`, in the words of those who wrote the document."""
        return path, message

    def line(self, path: Path) -> int | None:
        """The line of the value at `path`, or of the closest enclosing value."""
        line, value = self.start, self.value
        for step in path:
            _, lines = self._kept.get(id(value), (None, {}))
            if step not in lines:
                break
            line, value = lines[step], value[step]
        return line

    def file(self, path: Path) -> str | None:
        """The file of the value at `path`, if the document is not all in one."""
        return None

    def is_pair(self, path: Path) -> bool:
        """Return whether the value at `path` was written as a pair, which is no list of choices."""
        return False

    def text(self, path: Path) -> str | None:
        """The original text of the number or boolean at `path`; None if unknown."""
        return self.texts.get(self._place(path))

    def written(self, path: Path, value: Any) -> Any:
        """A value with the spellings of its numbers and booleans, if it is one or a list of them.

        Args:
            path: where it is.
            value: what is there, as far as it is right; what has been put there has no spelling.

        >>> document, _ = read_yaml("{x: [1.10, NO, '1.10', 5]}")
        >>> [type(one).__name__ for one in document.written(("x",), document.value["x"])]
        ['Spelled', 'Spelled', 'str', 'int']
        """
        try:
            if not isinstance(value, list):
                text = None if isinstance(value, (str, Mapping)) else self.text(path)
                return value if text is None else spelled(text)
            there: Any = self.value
            for step in path:
                there = there[step]
        except (LookupError, TypeError):
            return value
        if not isinstance(there, list) or len(there) != len(value):
            return value
        texts = [self.texts.get((id(there), place)) for place in range(len(value))]
        return [
            one if text is None else spelled(text) for one, text in zip(value, texts, strict=True)
        ]

    def block_line(self, path: Path) -> int | None:
        """The first line of the text of the `|` block at `path`."""
        return self.blocks.get(self._place(path))

    def _place(self, path: Path) -> tuple[int, str | int]:
        value = self.value
        for step in path[:-1]:
            value = value[step]
        return id(value), path[-1]

    def merge(self, into: dict[str, Any], source: Mapping[str, Any]) -> None:
        """Add the keys of another mapping that are missing, with their lines."""
        lines, origin = self._kept[id(into)][1], self._kept[id(source)][1]
        for key in [key for key in source if key not in into]:
            here, there = (id(into), key), (id(source), key)
            into[key] = source[key]
            lines[key] = origin[key]
            if there in self.texts:
                self.texts[here] = self.texts[there]
            if there in self.blocks:
                self.blocks[here] = self.blocks[there]


def read_yaml(text: str, file: str | None = None) -> tuple[Document, Problems]:
    """Read the one document in `text`.

    Args:
        text: YAML, or JSON.
        file: its name, for messages.

    Returns:
        The document, and problems that did not prevent reading it.

    Raises:
        DocumentError: it cannot be read.

    >>> document, problems = read_yaml("{seed: 0x10, day: 2024-01-01, share: 1e-3}")
    >>> document.value
    {'seed': 16, 'day': '2024-01-01', 'share': 0.001}
    >>> read_yaml("{seed: !odd 1}", "a.yaml")
    Traceback (most recent call last):
    flux_ensemble.document.problems.DocumentError: a.yaml:1: the tag '!odd' is not supported on '1'
    """
    builder = _Builder()
    try:
        check_text(text)
        for event in yaml.parse(text, Loader=_PARSER):
            builder.take(event)
        return builder.finish()
    except TooMany:
        raise builder.problems.error(file) from None
    except yaml.MarkedYAMLError as error:
        raise DocumentError([_malformed(text, error)], file) from None
    except UnreadableError as error:
        raise DocumentError([Problem(error.line, "", str(error))], file) from None


def _malformed(text: str, error: yaml.MarkedYAMLError) -> Problem:
    if error.problem == "exceeded maximum nesting depth":
        # libyaml has a limit of its own, and its scanner is ahead of the events.
        return Problem((error.problem_mark.line if error.problem_mark else 0) + 1, "", _TOO_DEEP)
    problem, context = error.problem_mark, error.context_mark
    # The parser stands behind the last line where the text ends too early.
    lines = text.rstrip("\n").split("\n")
    at = min(problem.line if problem else 0, len(lines) - 1)
    said = error.problem or "it cannot be parsed"
    if error.context and context and context.line < at:
        said = f"{error.context} from line {context.line + 1}, {said}"
    begun = context.line if context and context.line < at else at
    advice = remedy(lines, at, begun, said)
    if advice is not None:
        at, what = advice
        said += f" ({what})"
    return Problem(at + 1, "", f"malformed YAML: {said}")


class _Frame:
    """A mapping or list that is being read.

    Attributes:
        line: its first line.
        key: the key whose value comes next, None where a key comes next.
        merged: the mappings that `<<` named.
        odd: the key whose value comes next, where that is no text.
        size: how many values it has, itself included.
        height: how many levels of mappings and lists it has.
    """

    __slots__ = ("anchor", "height", "key", "key_line", "line", "lines", "merged", "odd", "size",
                 "value")  # fmt: skip

    def __init__(self, value: Any, anchor: str | None, line: int) -> None:
        self.value = value
        self.anchor = anchor
        self.line = line
        self.lines: dict[str | int, int] = {}
        self.merged: list[dict[str, Any]] = []
        self.size = 1
        self.height = 1
        self.odd: str | None = None
        self.key: Any = None
        self.key_line = 0

    @property
    def wants_key(self) -> bool:
        return self.key is None and isinstance(self.value, dict)


class _Builder:
    """Turns parser events into a `Document`."""

    def __init__(self) -> None:
        self.document = Document(None)
        self.problems = Problems(self.document.line)
        self._stack: list[_Frame] = []
        #: anchor -> (value, size, height, text of a number or boolean); None while what it names
        #: is being read.
        self._anchors: dict[str, tuple[Any, int, int, str | None] | None] = {}
        self._values = 0
        self._documents = 0

    def take(self, event: Any) -> None:
        kind = type(event)
        line = event.start_mark.line + 1
        if kind is yaml.ScalarEvent:
            self._scalar(event, line)
        elif kind is yaml.MappingStartEvent:
            self._open(event, {}, line)
        elif kind is yaml.SequenceStartEvent:
            self._open(event, [], line)
        elif kind in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
            self._close()
        elif kind is yaml.AliasEvent:
            self._alias(event.anchor, line)
        elif kind is yaml.DocumentStartEvent:
            self._documents += 1
            if self._documents > 1:
                raise UnreadableError(line, "expected one document, not several")

    def finish(self) -> tuple[Document, Problems]:
        if self.document.value is None:
            raise UnreadableError(None, "the document is empty")
        self.document.size = self._values
        return self.document, self.problems

    def _scalar(self, event: Any, line: int) -> None:
        text = event.value
        plain = event.implicit[0] and event.tag is None
        if event.tag not in (None, "!"):
            value = _tagged(event.tag, text, line)
        else:
            value = plain_scalar(text) if plain else text
        self._count(1, line)
        written = None if value is None or isinstance(value, str) else text
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1, 0, written)
        if self._stack and self._stack[-1].wants_key:
            if type(value) is bool and text in _TEXT_AS_KEYS:
                value = text
            self._key(_MERGE if plain and text == "<<" else value, text, line)
            return
        place = self._place(value, line, 1, 0)
        if place is not None:
            if written is not None:
                self.document.texts[place] = written
            elif event.style == "|":
                self.document.blocks[place] = line + 1

    def _key(self, key: Any, text: str, line: int) -> None:
        frame = self._stack[-1]
        frame.key_line = line
        if key is _MERGE:
            frame.key = _MERGE
        elif not isinstance(key, str):
            frame.key = _SKIPPED
            frame.odd = text
        elif key in frame.value:
            frame.key = _SKIPPED
            message = f"duplicate key {shown(key)} (first on line {frame.lines[key]})"
            self.problems.add((*self._path(), key), message, line)
        else:
            frame.key = key

    def _path(self) -> Path:
        """The path of the innermost container."""
        return tuple(
            len(frame.value) if isinstance(frame.value, list) else frame.key
            for frame in self._stack[:-1]
            if frame.key is not _SKIPPED and frame.key is not _MERGE
        )

    def _open(self, event: Any, value: Any, line: int) -> None:
        if event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            raise UnreadableError(line, f"the tag {_short_tag(event.tag)!r} is not supported")
        if self._stack and self._stack[-1].wants_key:
            raise UnreadableError(line, "expected a key that is text, not a mapping or list")
        self._count(1, line)
        self._check_depth(1, line)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        frame = _Frame(value, event.anchor, line)
        self._stack.append(frame)
        self.document.keep(value, frame.lines)

    def _close(self) -> None:
        frame = self._stack.pop()
        for merged in frame.merged:
            self.document.merge(frame.value, merged)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = (frame.value, frame.size, frame.height, None)
        self._place(frame.value, frame.line, frame.size, frame.height)

    def _alias(self, anchor: str, line: int) -> None:
        named = shortened(anchor)
        if anchor not in self._anchors:
            raise UnreadableError(line, f"the alias '*{named}' has no anchor '&{named}' before it")
        target = self._anchors[anchor]
        if target is None:
            raise UnreadableError(line, f"the alias '*{named}' stands inside of what it names")
        value, size, height, text = target
        self._count(size, line)
        if self._stack[-1].wants_key:
            if isinstance(value, (dict, list)):
                raise UnreadableError(line, "expected a key that is text, not a mapping or list")
            self._key(value, f"*{anchor}", line)
            return
        self._check_depth(height, line)
        place = self._place(value, line, size, height)
        if place is not None and text is not None:
            self.document.texts[place] = text

    def _count(self, values: int, line: int) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise UnreadableError(line, f"a document has at most {MAX_VALUES} values")

    def _check_depth(self, levels: int, line: int) -> None:
        if len(self._stack) + levels > MAX_DEPTH:
            raise UnreadableError(line, _TOO_DEEP)

    def _place(self, value: Any, line: int, size: int, height: int) -> tuple[int, Any] | None:
        """Add a value to its container.

        Returns:
            The id of the container and the key there; None if there is none.
        """
        if not self._stack:
            self.document.value = value
            self.document.start = line
            return None
        frame = self._stack[-1]
        if frame.odd is not None:
            odd, frame.odd = frame.odd, None
            self.problems.add(self._path(), _odd_key(frame.value, odd, value), frame.key_line)
        frame.size += size
        frame.height = max(frame.height, height + 1)
        if isinstance(frame.value, list):
            frame.lines[len(frame.value)] = line
            frame.value.append(value)
            return id(frame.value), len(frame.value) - 1
        key, frame.key = frame.key, None
        if key is _MERGE:
            frame.merged += _mappings(value, line)
        elif key is not _SKIPPED:
            frame.lines[key] = frame.key_line
            frame.value[key] = value
            return id(frame.value), key
        return None


def _odd_key(mapping: dict[str, Any], key: str, value: Any) -> str:
    """Return the problem of a key that is no text.

    Without a value, it is the item of a list without brackets: of the value before it, as in
    `{range: 1, 10}`, which becomes the list that was meant, or as in `{1, 2}`, a set in Python.
    """
    if value is not None:
        return f"expected a key that is text, not {shortened(key)} (put it in quotes)"
    last = next(reversed(mapping), None)
    if last is None or isinstance(mapping[last], (dict, list)):
        return f"expected a key that is text, not {shortened(key)} (a list has brackets: [1, 2])"
    before = mapping[last]
    mapping[last] = [before, plain_scalar(key)]
    items = f"{shortened(str(before))}, {shortened(key)}"
    return f"a list has brackets: '{shortened(last)}: [{items}]'"


def _mappings(value: Any, line: int) -> list[dict[str, Any]]:
    mappings = value if isinstance(value, list) else [value]
    for mapping in mappings:
        if not isinstance(mapping, dict):
            raise UnreadableError(line, f"'<<' merges mappings, not {shown(mapping)}")
    return mappings


def _tagged(tag: str, text: str, line: int) -> Any:
    if tag == f"{_TAG}str":
        return text
    value = plain_scalar(text)
    if tag == f"{_TAG}float" and type(value) is int:
        value = float(value)
    if type(value) is not _TAGS.get(tag):
        raise UnreadableError(
            line,
            f"the tag {_short_tag(tag)!r} is not supported on {shown(text)}"
            + (" (text that begins with '!' is put in quotes)" if _WORDLESS.match(tag) else ""),
        )
    return value


def _short_tag(tag: str) -> str:
    return shortened(tag.replace(_TAG, "!!"))


class UnreadableError(Exception):
    """A document that cannot be read.

    Attributes:
        line: the line; None if it is the whole document.
    """

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line


def check_text(text: str) -> None:
    """Check the text of a document.

    Raises:
        UnreadableError: it is too large, not UTF-8, not allowed in YAML, or would take too long
            to parse.

    >>> check_text("a:" + 5000 * " " + "1")
    Traceback (most recent call last):
    flux_ensemble.document.yaml_reader.UnreadableError: expected at most 4096 blanks in a row, ...
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise UnreadableError(_line_at(text, error.start), "expected UTF-8 text") from None
    if size > MAX_BYTES:
        raise UnreadableError(None, f"a document has at most {MAX_BYTES} bytes, not {size}")
    match = _UNPRINTABLE.search(text)
    if match is not None:
        message = f"malformed YAML: the character {match[0]!r} is not allowed"
        raise UnreadableError(_line_at(text, match.start()), message)
    if sum(1 for _ in _DIRECTIVE.finditer(text)) > MAX_DIRECTIVES:
        raise UnreadableError(None, f"a document has at most {MAX_DIRECTIVES} %TAG directives")
    _check_blanks(text)


def _check_blanks(text: str) -> None:
    for match in _BLANKS.finditer(text):
        size = match.end() - match.start()
        if size > MAX_BLANKS:
            message = f"expected at most {MAX_BLANKS} blanks in a row, not {size}"
            raise UnreadableError(_line_at(text, match.start()), message)
    for match in _EMPTY_LINES.finditer(text):
        if match.end() - match.start() > MAX_BLANKS:
            lines = sum(1 for _ in _BREAKS.finditer(match[0]))
            if lines > MAX_BLANKS:
                message = f"expected at most {MAX_BLANKS} empty lines in a row, not {lines}"
                raise UnreadableError(_line_at(text, match.start()), message)


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
