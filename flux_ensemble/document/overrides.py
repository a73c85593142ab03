"""What a submission can have in place of what its group says: `nodes`, `duration`, and so on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.problems import hint
from flux_ensemble.document.sizes import SIZES, URGENCY, Whole
from flux_ensemble.scalars import as_text, number
from flux_ensemble.texts import listed, shown

#: Keys whose texts differ from job to job: parameters, and what they are filled into.
OF_EACH = ("params", "queue", "bank", "environment", "workdir", "attributes")

#: Overrides that a jobspec says itself.
SHAPE = ("nodes", "tasks", "cores", "gpus")


def _integer(whole: Whole) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        value = number(value)
        # A division gives a float.
        if type(value) is float and value.is_integer():
            value = int(value)
        return whole.check(value if type(value) is int else None, value)

    return read


def _text(value: Any) -> str:
    if isinstance(value, (dict, list)) or value in ("", None):
        raise ValueError(f"expected text that is not empty, not {shown(value)}")
    return as_text(value)


def _environment(value: Any) -> dict[str, str]:
    value = _mapping(value)
    for name, setting in value.items():
        if not name or "=" in name:
            raise ValueError(f"expected the name of an environment variable, not {shown(name)}")
        if not isinstance(setting, (str, int, float)):
            raise ValueError(
                f"{name}: expected text, a number, true or false, not {shown(setting)}"
            )
    return {name: as_text(setting) for name, setting in value.items()}


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a mapping, not {shown(value)}")
    return dict(value)


def _attributes(value: Any) -> dict[str, Any]:
    """Attributes of a jobspec, as far as jobs are built with them; Flux checks the rest."""
    attributes = _mapping(value)
    for key in attributes:
        if key not in ("system", "user"):
            raise ValueError(f"expected the keys system and user, not {shown(key)}")
    system = _mapping(attributes.get("system", {}))
    _mapping(attributes.get("user", {}))
    for key in ("job", "shell"):
        _mapping(system.get(key, {}))
    options = _mapping(_mapping(system.get("shell", {})).get("options", {}))
    for stream in _mapping(options.get("output", {})).values():
        _mapping(stream)
    # An expression can give a number where a jobspec has text.
    for name in ("cwd", "queue", "bank"):
        if name in system:
            system[name] = _text(system[name])
    if "environment" in system:
        system["environment"] = _environment(system["environment"])
    if "dependencies" in system:
        dependencies = system["dependencies"]
        if not isinstance(dependencies, list):
            raise ValueError(f"expected a list of dependencies, not {shown(dependencies)}")
        system["dependencies"] = list(map(_dependency, dependencies))
    return {**attributes, "system": system} if system else attributes


def _dependency(value: Any) -> dict[str, Any]:
    dependency = _mapping(value)
    return {**dependency, **{key: _text(dependency.get(key)) for key in ("scheme", "value")}}


#: Keys of a submission's overrides -> what reads a value, or raises ValueError.
OVERRIDES: Mapping[str, Callable[[Any], Any]] = {
    **{key: _integer(whole) for key, whole in SIZES.items()},
    "duration": lambda value: parse_duration(number(value)),
    "urgency": _integer(URGENCY),
    "queue": _text,
    "bank": _text,
    "environment": _environment,
    "workdir": _text,
    "attributes": _attributes,
}


def read_overrides(values: Mapping[str, Any]) -> dict[str, Any]:
    """Read overrides that are not in a document.

    Args:
        values: by key.

    Raises:
        ValueError: a key is unknown, or its value does not fit.

    >>> read_overrides({"nodes": 4, "duration": "2h"})
    {'nodes': 4, 'duration': 7200.0}
    >>> read_overrides({"nodes": 0})
    Traceback (most recent call last):
    ValueError: nodes: expected an integer >= 1, not 0
    """
    overrides = {}
    for key, value in values.items():
        if key not in OVERRIDES:
            raise ValueError(
                f"no value of a group {shown(key)} can be replaced "
                f"({hint(key, OVERRIDES)}values: {listed(OVERRIDES)})"
            )
        try:
            overrides[key] = OVERRIDES[key](value)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return overrides


#: Keys of other actions whose values expressions can give -> the same.
VALUES: Mapping[str, Callable[[Any], Any]] = {
    **OVERRIDES,
    "count": _integer(Whole(1)),
    "value": _integer(Whole(1)),
    "reason": _text,
}
