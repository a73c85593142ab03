"""Documents with any key of the table: a key that was added to it yesterday occurs, too."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from random import Random
from typing import Any

from flux_ensemble.document.editor_schema import Explained, explained

#: Mappings whose keys are names that users give.
_NAMED = ("simulate", "search.variables", "simulate.memo")


def keyed(random: Random, document: Any, keys: Sequence[Explained]) -> tuple[Any, list[str]]:
    """Return a copy of a document with some keys of the table, and their paths.

    A key has one of its examples, choices or its default. What it is in is made of an example,
    if the document does not have it.

    Args:
        random: decides everything.
        document: as plain data.
        keys: those that it can be given.
    """
    made, added = copy.deepcopy(document), []
    for entry in random.sample(keys, random.choice([1, 1, 2, 3])):
        holder = _holder(random, made, entry.path.split(".")[:-1])
        values = _values(entry)
        if isinstance(holder, dict) and values:
            holder[entry.path.rpartition(".")[2]] = copy.deepcopy(random.choice(values))
            added.append(entry.path)
    return made, added


def _holder(random: Random, value: Any, path: Sequence[str]) -> Any:
    """Return what a key is in, which is made if the document does not have it."""
    for depth, name in enumerate(path):
        value = _one(random, value)
        if not isinstance(value, dict):
            return None
        at = ".".join(path[: depth + 1])
        if name == "action" and "actions" in value:
            name = "actions"
        if name not in value:
            examples = _values(_KEYS[at])
            if not examples:
                return None
            value[name] = copy.deepcopy(random.choice(examples))
        value = value[name]
        if at in _NAMED and isinstance(value, dict):
            value = list(value.values())
    return _one(random, value)


def _one(random: Random, value: Any) -> Any:
    while isinstance(value, list) and value:
        value = random.choice(value)
    return value


def _values(entry: Explained) -> list[Any]:
    default = [] if entry.key.default is None else [entry.key.default]
    return [*entry.key.examples, *entry.choices, *default]


_KEYS = {entry.path: entry for entry in explained()}
