"""The keys that a submission can have in place of those of its group: `nodes`, `duration`, ..."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.keys.forms import (
    ATTRIBUTES,
    DURATION,
    ENVIRONMENT,
    URGENCY,
    Key,
    Schema,
    integer,
    no_scalar,
    or_text,
    text,
)
from flux_ensemble.scalars import MAX_INT, as_text, number
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown


@dataclass(frozen=True, slots=True)
class Whole:
    """The integers from `least` to `most`."""

    least: int
    most: int = MAX_INT

    @classmethod
    def of(cls, form: Schema) -> Whole:
        """Return those that a form allows.

        >>> Whole.of(integer(1))
        Whole(least=1, most=2147483647)
        """
        return cls(form["minimum"], form["maximum"])

    def check(self, number: int | None, value: Any) -> int:
        """Return a number if it is one of them.

        Args:
            number: what a value was read as; None if it is no integer.
            value: as it is written, for the message.

        Raises:
            ValueError: it is not.

        >>> Whole(0, 31).check(32, "32")
        Traceback (most recent call last):
        ValueError: expected an integer >= 0 and <= 31, not '32'
        """
        if number is None or not self.least <= number <= self.most:
            upper = "" if self.most == MAX_INT else f" and <= {self.most}"
            raise ValueError(f"expected an integer >= {self.least}{upper}, not {shown(value)}")
        return number


def computed(form: Schema) -> Callable[[Any], int]:
    """Return what reads an integer of a form that an expression may have given.

    >>> computed(integer(1))(4.0)
    4
    """
    whole = Whole.of(form)

    def read(value: Any) -> int:
        value = number(value)
        # A division gives a float.
        if type(value) is float and value.is_integer():
            value = int(value)
        return whole.check(value if type(value) is int else None, value)

    return read


def _duration(value: Any) -> float:
    return parse_duration(number(value))


def read_text(value: Any) -> str:
    """Read a text, which an expression may have given.

    Raises:
        ValueError: it is none, or empty.

    >>> read_text(300)
    '300'
    """
    if isinstance(value, (dict, list)) or value in ("", None):
        raise ValueError(f"expected text that is not empty, not {shown(value)}")
    return as_text(value)


def _environment(value: Any) -> dict[str, str]:
    value = _mapping(value)
    for name, setting in value.items():
        if not name or "=" in name:
            raise ValueError(f"expected the name of an environment variable, not {shown(name)}")
        if not isinstance(setting, (str, int, float)):
            raise ValueError(f"{name}: {no_scalar(setting)}")
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
            system[name] = read_text(system[name])
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
    return {**dependency, **{key: read_text(dependency.get(key)) for key in ("scheme", "value")}}


#: How many of something, at least one, and at least none.
SOME = or_text(integer(1))
ANY = or_text(integer(0))

#: Among the overrides of a job that runs again, the values that its retries gave to parameters.
GIVEN = "params"

#: They can have expressions, in an action and in `with` of `retries`.
OVERRIDE_KEYS = (
    Key(
        "nodes",
        SOME,
        "Nodes of a job, in place of what the group says.",
        ("{job.nnodes * 2}",),
        read=computed(SOME),
        expression=True,
        in_jobspec=True,
    ),
    Key(
        "tasks",
        SOME,
        "Tasks of a job, in place of what the group says.",
        (8,),
        read=computed(SOME),
        expression=True,
        in_jobspec=True,
    ),
    Key(
        "cores",
        SOME,
        "Cores of a task, in place of what the group says.",
        (4,),
        read=computed(SOME),
        expression=True,
        in_jobspec=True,
    ),
    Key(
        "gpus",
        ANY,
        "GPUs of a task, in place of what the group says.",
        (1,),
        read=computed(ANY),
        expression=True,
        in_jobspec=True,
    ),
    Key(
        "duration",
        DURATION,
        "Time limit of a job, in place of the group's.",
        ("{job.duration * 2}", "2h"),
        read=_duration,
        expression=True,
    ),
    Key(
        "urgency",
        or_text(URGENCY),
        "Urgency of a job from 0 to 31, in place of the group's.",
        (31,),
        read=computed(URGENCY),
        expression=True,
    ),
    Key(
        "queue",
        text(),
        "Queue to submit to, in place of the group's.",
        ("debug",),
        read=read_text,
        expression=True,
    ),
    Key(
        "bank",
        text(),
        "Bank to submit to, in place of the group's.",
        ("physics",),
        read=read_text,
        expression=True,
    ),
    Key(
        "environment",
        ENVIRONMENT,
        "Environment variables, over those of the group.",
        ({"MODE": "fine"},),
        read=_environment,
        expression=True,
    ),
    Key(
        "workdir",
        text(),
        "Working directory, in place of the group's.",
        ("runs/{job.id}",),
        read=read_text,
        expression=True,
        python="str | PathLike[str]",
    ),
    Key(
        "attributes",
        ATTRIBUTES,
        "Attributes of the jobspec, merged over those of the group.",
        ({"system": {"constraints": {"hostlist": ["node1"]}}},),
        read=_attributes,
        expression=True,
    ),
)

#: Their names -> what reads a value, or raises ValueError.
OVERRIDES: Mapping[str, Callable[[Any], Any]] = {
    key.name: key.read for key in OVERRIDE_KEYS if key.read is not None
}

#: Those that a jobspec says itself.
SHAPE = tuple(key.name for key in OVERRIDE_KEYS if key.in_jobspec)

#: Keys whose texts differ from job to job: parameters, and what they are filled into.
OF_EACH = (
    "params",
    *(key.name for key in OVERRIDE_KEYS if key.form["type"] in ("string", "object")),
)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` overridden by `over`, with mappings merged recursively.

    >>> merged({"environment": {"A": "1", "B": "2"}}, {"environment": {"B": "3"}, "nodes": 2})
    {'environment': {'A': '1', 'B': '3'}, 'nodes': 2}
    """
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        result[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return result


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
