"""What a submission can have in place of what its group says: `nodes`, `duration`, and so on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.texts import as_text
from flux_ensemble.texts import shown

if TYPE_CHECKING:
    from flux_ensemble.document.model import JobSet

#: Overrides that a jobspec says itself.
_SHAPE = ("nodes", "tasks", "cores", "gpus")

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


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value)


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
    "attributes": _mapping,
}

#: Keys of other actions whose values expressions can give -> the same.
VALUES: Mapping[str, Callable[[Any], Any]] = {
    **OVERRIDES,
    "count": _integer(1),
    "value": _integer(1),
    "reason": _text,
}


def overridden(job_set: JobSet, overrides: Mapping[str, Any]) -> JobSet:
    """The job set with some of its fields replaced.

    Args:
        job_set: of the group.
        overrides: values that `OVERRIDES` has read.

    Raises:
        ValueError: the job set is from a jobspec, and they change its shape.

    >>> from flux_ensemble.document.model import JobSet
    >>> md = overridden(JobSet("md", 0, ("run",)), {"nodes": 4, "duration": 60.0})
    >>> md.nodes, md.tasks, md.duration
    (4, 4, 60.0)
    """
    if job_set.jobspec is not None:
        for key in _SHAPE:
            if key in overrides:
                raise ValueError(
                    f"{key!r} cannot be replaced in group {job_set.name!r}, whose jobspec says it"
                )
    changed = replace(job_set, **overrides)
    if "nodes" in overrides and "tasks" not in overrides and job_set.tasks == job_set.nodes:
        # One task for each node, as where neither is given.
        return replace(changed, tasks=changed.nodes)
    return replace(changed, tasks=max(changed.tasks, changed.nodes))
