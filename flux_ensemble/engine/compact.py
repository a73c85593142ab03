"""Short forms of many objects for snapshots: columns, and only unusual values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from flux_ensemble.document.model import Action, Rule


def columns(items: Sequence[Any], names: Iterable[str]) -> dict[str, list[Any]]:
    """Return attributes as columns: one list for each."""
    return {name: list(map(attrgetter(name), items)) for name in names}


def unusual(items: Sequence[Any], usual: Mapping[str, Any]) -> list[Any]:
    """Return the attributes with unusual values, for the items that have any.

    Args:
        items: the objects.
        usual: the usual values of two or more attributes.

    Returns:
        [[position, {attribute: value, ...}], ...]
    """
    get, usual_values = attrgetter(*usual), tuple(usual.values())
    return [
        [
            position,
            {
                name: value
                for name, value, default in zip(usual, values, usual_values, strict=True)
                if value != default
            },
        ]
        for position, values in enumerate(map(get, items))
        if values != usual_values
    ]


def not_default(item: Action | Rule) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    return {
        field.name: value
        for field in fields(item)
        if (value := getattr(item, field.name)) != field.default
    }
