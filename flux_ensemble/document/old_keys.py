"""Keys of documents that were renamed: they are read as the new ones, with a warning."""

from __future__ import annotations

from typing import Any

from flux_ensemble.document.keys.document import FORMER, below
from flux_ensemble.document.problems import Path, Problems

#: Paths of the mappings that have renamed keys below them.
_ABOVE = {path[:end] for path in FORMER for end in range(len(path)) if path[end] == "." or not end}


def with_new_keys(value: Any, problems: Problems, path: str = "", at: Path = ()) -> Any:
    """Return the value of a document with its old keys renamed; the value itself is not changed.

    Problems of a renamed key are reported under the key that the document has.

    Args:
        value: of the document, or of a part of it.
        problems: collects the problems, and which keys were renamed.
        path: of the key whose value it is.
        at: where the document has it.

    >>> problems = Problems()
    >>> with_new_keys({"scaling": {"max-size": 3}}, problems)
    {'scaling': {'max-nodes': 3}}
    >>> problems.renamed
    {('scaling', 'max-nodes'): ('scaling', 'max-size')}
    """
    if path not in _ABOVE:
        return value
    if isinstance(value, list):
        return [
            with_new_keys(item, problems, path, (*at, place)) for place, item in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    made = {}
    for key, item in value.items():
        here = below(path, key) if isinstance(key, str) else ""
        new = FORMER[here].rpartition(".")[2] if here in FORMER else None
        if new is None:
            made[key] = with_new_keys(item, problems, here, (*at, key)) if here else item
        elif new in value:
            problems.add(
                (*at, key), f"{new!r} is the new name of this key, and is there too: take one out"
            )
        else:
            problems.renamed[(*at, new)] = (*at, key)
            made[new] = item
    return made
