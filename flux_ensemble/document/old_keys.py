"""Keys of documents that were renamed: they are read as the new ones, with a warning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.renamed import DOCUMENT_KEYS


def with_new_keys(value: Any, problems: Problems) -> Any:
    """Return the value of a document with its old keys renamed; the value itself is not changed.

    Problems of a renamed key are reported under the key that the document has.

    >>> problems = Problems()
    >>> with_new_keys({"scaling": {"max-size": 3}}, problems)
    {'scaling': {'max-nodes': 3}}
    >>> problems.renamed
    {('scaling', 'max-nodes'): ('scaling', 'max-size')}
    """
    if not isinstance(value, dict):
        return value
    made = {
        section: _renamed(section, value[section], names, problems)
        for section, names in DOCUMENT_KEYS.items()
        if isinstance(value.get(section), dict)
    }
    return {**value, **made}


def _renamed(
    section: str, entries: Mapping[Any, Any], names: Mapping[str, str], problems: Problems
) -> dict[Any, Any]:
    made = {}
    for key, entry in entries.items():
        new = names.get(key) if isinstance(key, str) else None
        if new is None:
            made[key] = entry
        elif new in entries:
            at: Path = (section, key)
            problems.add(at, f"{new!r} is the new name of this key, and is there too: take one out")
        else:
            problems.renamed[section, new] = (section, key)
            made[new] = entry
    return made
