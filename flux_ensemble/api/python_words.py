"""Sentences about documents in the words of Python, for documents that a program has composed.

Sentences about documents say what to write as YAML does. Here that becomes what to write in Python:

    add 'rules: [{trigger: start, action: {name: submit, label: a}}]'  ──►
    add 'rules=[Rule(trigger="start", action=Action(name="submit", label="a"))]'
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from keyword import iskeyword

from flux_ensemble.entry_keys import ActionKeys, EnsembleKeys, JobKeys, RuleKeys
from flux_ensemble.scalars import plain_scalar

#: The keywords of `Ensemble`, `Job`, `Rule` and `Action`.
_KEYWORDS = frozenset(
    {"jobs", "rules", "name"}.union(
        *(keys.__annotations__ for keys in (ActionKeys, EnsembleKeys, JobKeys, RuleKeys))
    )
)

#: A key that has a hyphen, as a word in quotes or in a list of keys.
_KEY = re.compile(r"(?<=[' ])[a-z]+(?:-[a-z]+)+(?=[',)])")

#: The beginning of a quoted line of YAML, such as `'rules: [`.
_LINE = re.compile(r"(?<=')([a-z][a-z-]*): (?:([a-z][\w-]*)(?='))?")

#: Phrases about how YAML is laid out, and those for Python.
_PHRASES = (
    ("a list, of which each item begins with a dash", "put it in brackets: [...]"),
    ("each begins with a dash: '- name: ...'", "put it in brackets: [...]"),
    ("leave out the dash before", "leave out the brackets around the mapping of"),
)


def keyword_of(key: str) -> str:
    """Return the keyword of Python for a key of a document.

    >>> keyword_of("max-active"), keyword_of("with")
    ('max_active', 'with_')
    """
    return f"{key}_" if iskeyword(key) else key.replace("-", "_")


def in_words_of_python(message: str, *, keywords: bool) -> str:
    """Return a sentence about a document in the words of Python.

    Args:
        message: the sentence.
        keywords: the keys that it names are keywords of an entry; else those of a plain mapping.

    >>> in_words_of_python("write {range: [0, 5]}; no '{x}'", keywords=False)
    'write {"range": [0, 5]}; no \\'{x}\\''
    >>> in_words_of_python("an action such as {name: submit, label: GROUP}", keywords=True)
    'an action such as Action(name="submit", label="GROUP")'
    >>> print(in_words_of_python("'{x:.2f}' is left as it is", keywords=True))
    '{x:.2f}' is left as it is
    >>> print(in_words_of_python("with 'sweep: zip'", keywords=True))
    with 'sweep="zip"'
    >>> in_words_of_python("unknown key 'a' (did you mean 'max-active'? keys: name, on-lost)",
    ...                    keywords=True)
    "unknown key 'a' (did you mean 'max_active'? keys: name, on_lost)"
    """
    for yaml, python in _PHRASES:
        message = message.replace(yaml, python)
    if keywords:
        message = _KEY.sub(_keyword, message)
    message = _LINE.sub(lambda line: _assigned(line[1], line[2]), message)
    parts, place = [], 0
    while (start := message.find("{", place)) >= 0:
        try:
            text, end = _Flow(message, start).read()
        except ValueError:
            text, end = message[start], start + 1
        parts += [message[place:start], text]
        place = end
    return "".join([*parts, message[place:]])


def _keyword(key: re.Match[str]) -> str:
    keyword = keyword_of(key[0])
    return keyword if keyword in _KEYWORDS else key[0]


def _assigned(key: str, word: str | None) -> str:
    keyword, value = keyword_of(key), "" if word is None else json.dumps(word)
    return f"{keyword}={value}" if keyword in _KEYWORDS else f'"{key}": {value}'


class _Flow:
    """Reads a mapping as it is written in a line of YAML, and writes it as Python.

    Args:
        text: that contains it.
        place: where it begins.
    """

    def __init__(self, text: str, place: int) -> None:
        self._text = text
        self._place = place

    def read(self) -> tuple[str, int]:
        """Return the Python, and the place behind what was read.

        Raises:
            ValueError: this is no mapping.
        """
        return self._mapping(), self._place

    def _next(self, pattern: str) -> str:
        found = re.compile(pattern).match(self._text, self._place)
        if found is None:
            raise ValueError("another form")
        self._place = found.end()
        return found[0]

    def _value(self, key: str = "") -> str:
        here = self._text[self._place : self._place + 1]
        if here == "{":
            return self._mapping(key)
        if here == "[":
            return self._items(r"\[", self._value, r"\]", "[{}]".format)
        if here in ("'", '"'):
            return json.dumps(self._next(r"'[^']*'|\"[^\"]*\"")[1:-1])
        word = self._next(r"\.\.\.|[^\[\]{},'\"]+").strip()
        value = plain_scalar(word)
        if word == "..." or type(value) in (int, float):
            return word
        return repr(value) if value is None or type(value) is bool else json.dumps(word)

    def _items(
        self, begin: str, item: Callable[[], str], end: str, made: Callable[[str], str]
    ) -> str:
        self._next(begin)
        items = [item()]
        while self._text[self._place : self._place + 1] == ",":
            self._next(", *")
            items.append(item())
        self._next(end)
        return made(", ".join(items))

    def _mapping(self, key: str = "") -> str:
        pairs: dict[str, str] = {}

        def item() -> str:
            name = self._next(r"\.\.\.|[A-Za-z][A-Za-z0-9_-]*")
            if name != "...":
                self._next(": +")  # else it is a format, such as {x:.2f}
                pairs[name] = self._value(name)
            return name

        names = self._items(r"\{", item, r"\}", str).split(", ")
        entry = _entry_of(pairs, key)
        more = ["..."] * (names[-1] == "...")
        if entry is not None:
            words = [f"{keyword_of(name)}={value}" for name, value in pairs.items()]
            return f"{entry}({', '.join([*words, *more])})"
        words = [f"{json.dumps(name)}: {value}" for name, value in pairs.items()]
        return f"{{{', '.join([*words, *more])}}}"


def _entry_of(pairs: Mapping[str, str], key: str) -> str | None:
    """Return the class of the entry that a mapping is, if it is one.

    Args:
        pairs: of the mapping.
        key: whose value it is.
    """
    if key in ("action", "actions") or {"name", "label"} == pairs.keys():
        return "Action"
    if "trigger" in pairs:
        return "Rule"
    return "Job" if {"name", "command"} <= pairs.keys() else None
