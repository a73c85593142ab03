"""Units of what jobs publish: `units` of a status, by the key of a memo or by GROUP-KEY.

Nothing is computed from them: they are shown beside the keys, as in "loss [eV]".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from flux_ensemble.metrics.by_value import unsplit

#: Most characters of a unit.
MAX_UNIT = 32


def checked(unit: str) -> str:
    """Return a unit that fits into a line and a heading.

    Raises:
        ValueError: it does not.

    >>> checked("kcal/mol")
    'kcal/mol'
    """
    if not unit.isprintable() or unit != unit.strip() or not 0 < len(unit) <= MAX_UNIT:
        raise ValueError(
            f"expected a unit (1 to {MAX_UNIT} printable characters, no blank at its ends), "
            f"not {unit!r}"
        )
    return unit


def unit_of(units: Mapping[str, str], group: str, variable: str) -> str:
    """Return the unit of a variable of a group; "" if it has none.

    Args:
        units: those of the document; that of a group's key precedes that of the key.
        group: the group.
        variable: what its jobs publish, or what is kept of it by value.

    >>> units = {"loss": "eV", "md-loss": "meV"}
    >>> unit_of(units, "md", "loss"), unit_of(units, "train", "loss[t=300]")
    ('meV', 'eV')
    """
    key = unsplit(variable)
    return units.get(f"{group}-{key}") or units.get(key, "")


def with_unit(status: Mapping[str, Any], groups: Collection[str], key: str, name: str = "") -> str:
    """Return a key with its unit, as for a heading, if it has the same one in all of the groups.

    Args:
        status: the ensemble's.
        groups: whose values are shown.
        key: of what they publish.
        name: what is shown of the key, if it is not the key itself.

    >>> status = {"units": {"loss": "eV", "md-loss": "meV"}}
    >>> with_unit(status, ["md"], "loss"), with_unit(status, ["md", "train"], "loss")
    ('loss [meV]', 'loss')
    """
    units = {unit_of(status.get("units", {}), group, key) for group in groups}
    unit = units.pop() if len(units) == 1 else ""
    return f"{name or key} [{unit}]" if unit else name or key
