"""Reads the values of an entry whose keys a table declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flux_ensemble.document.keys.forms import Key
from flux_ensemble.document.problems import Path, Problems


def read_keys(
    keys: Iterable[Key], entry: Mapping[str, Any], problems: Problems, at: Path
) -> dict[str, Any]:
    """Return the fields of a Spec that keys of an entry give; the others have their defaults.

    Keys that the reader of their family reads, and those with problems, are left out.

    Args:
        keys: the table.
        entry: the valid part of the entry.
        problems: collects the problems.
        at: the path of the entry.

    >>> from flux_ensemble.document.keys.jobs import JOB_KEYS
    >>> problems = Problems()
    >>> entry = {"name": "md", "duration": "1m", "on-lost": "fail", "count": 5}
    >>> read_keys(JOB_KEYS, entry, problems, ("jobs", 0))
    {'name': 'md', 'duration': 60.0, 'on_lost': 'fail'}
    """
    fields: dict[str, Any] = {}
    for key in keys:
        if key.read is not None and key.name in entry:
            try:
                fields[key.field or key.name.replace("-", "_")] = key.read(entry[key.name])
            except ValueError as error:
                problems.add((*at, key.name), str(error))
    return fields
