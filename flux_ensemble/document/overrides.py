"""What a submission can have in place of what its group says: `nodes`, `duration`, and so on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.texts import as_text
from flux_ensemble.texts import shown

#: Overrides that a jobspec says itself.
SHAPE = ("nodes", "tasks", "cores", "gpus")

_MAX_INT = 2**31 - 1


def _integer(least: int, most: int = _MAX_INT) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        # A division gives a float.
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not least <= value <= most:
            upper = "" if most == _MAX_INT else f" and <= {most}"
            raise ValueError(f"expected an integer >= {least}{upper}, not {shown(value)}")
        return value

    return read


def _text(value: Any) -> str:
    if isinstance(value, (dict, list)) or value in ("", None):
        raise ValueError(f"expected text that is not empty, not {shown(value)}")
    return as_text(value)


def _environment(value: Any) -> dict[str, str]:
    for name, setting in value.items():
        if not name or "=" in name:
            raise ValueError(f"expected the name of an environment variable, not {shown(name)}")
        if not isinstance(setting, (str, int, float)):
            raise ValueError(
                f"{name}: expected text, a number, true or false, not {shown(setting)}"
            )
    return {name: as_text(setting) for name, setting in value.items()}


def _attributes(value: Any) -> dict[str, Any]:
    system = dict(value.get("system", {}))
    # An expression can give a number where a jobspec has text.
    if "cwd" in system:
        system["cwd"] = _text(system["cwd"])
    if "environment" in system:
        system["environment"] = _environment(system["environment"])
    if "dependencies" in system:
        system["dependencies"] = [
            {**item, "scheme": as_text(item["scheme"]), "value": as_text(item["value"])}
            for item in system["dependencies"]
        ]
    return {**value, "system": system} if system else dict(value)


#: Keys of a submission's overrides -> what reads a value, or raises ValueError.
OVERRIDES: Mapping[str, Callable[[Any], Any]] = {
    "nodes": _integer(1),
    "tasks": _integer(1),
    "cores": _integer(1),
    "gpus": _integer(0),
    "duration": parse_duration,
    "urgency": _integer(0, 31),
    "queue": _text,
    "bank": _text,
    "environment": _environment,
    "workdir": _text,
    "attributes": _attributes,
}

#: Keys of other actions whose values expressions can give -> the same.
VALUES: Mapping[str, Callable[[Any], Any]] = {
    **OVERRIDES,
    "count": _integer(1),
    "value": _integer(1),
    "reason": _text,
}
