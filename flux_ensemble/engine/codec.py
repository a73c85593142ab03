"""Events and commands as JSON objects, for recordings, logs and replay.

An object is the fields of the dataclass plus `"type"`, the name of its class.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from math import isfinite
from typing import Any

from flux_ensemble.engine import commands, events
from flux_ensemble.engine.commands import Command, SubmitJobs
from flux_ensemble.engine.events import Event, JobEvent, Tag

_EVENTS = {cls.__name__: cls for cls in events.Event.__args__}
_COMMANDS = {cls.__name__: cls for cls in commands.Command.__args__}
_FIELDS = {
    cls: tuple(field.name for field in fields(cls))
    for cls in (*_EVENTS.values(), *_COMMANDS.values())
}

#: One for all that is written: to make it takes a fifth of the time of an event.
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def to_json(item: Event | Command) -> dict[str, Any]:
    """The event or command as a JSON object."""
    cls = type(item)
    value: dict[str, Any] = {"type": cls.__name__}
    for name in _FIELDS[cls]:
        value[name] = getattr(item, name)
    if cls is SubmitJobs and not value["ordinal"]:
        # Of the first versions, and of documents without members.
        del value["ordinal"]
    return value


def event_from_json(value: Mapping[str, Any]) -> Event:
    """The event of a JSON object.

    Raises:
        ValueError: `type` is unknown, or a field is missing, unknown or of another shape.
    """
    event: Event = _from_json(value, _EVENTS)
    return event


def command_from_json(value: Mapping[str, Any]) -> Command:
    """The command of a JSON object.

    Raises:
        ValueError: as `event_from_json`.
    """
    command: Command = _from_json(value, _COMMANDS)
    return command


def _from_json(value: Mapping[str, Any], classes: Mapping[str, Any]) -> Any:
    cls = classes.get(value.get("type", ""))
    if cls is None:
        raise ValueError(f"no event or command of type {value.get('type')!r}")
    arguments = {name: field for name, field in value.items() if name != "type"}
    try:
        if arguments.get("tag") is not None:
            arguments["tag"] = Tag(*arguments["tag"])
        for name in ("jobs", "ids"):
            if name in arguments:
                arguments[name] = tuple(arguments[name])
        return cls(**arguments)
    except TypeError as error:
        raise ValueError(f"{cls.__name__}: {error}") from None


def encode(item: Event | Command) -> str:
    """One line of canonical JSON: equal items give equal text."""
    if type(item) is JobEvent and not item.foreign and item.job_name is None:
        # Nearly all are; to take it as a mapping takes three times as long.
        context = _encode(item.context) if item.context else "{}"
        tag = "null" if item.tag is None else _encode(item.tag)
        # Of a float, JSON has the same, if it is finite.
        t = repr(item.t) if type(item.t) is float and isfinite(item.t) else _encode(item.t)
        return (
            f'{{"context":{context},"foreign":false,"job":{item.job},"job_name":null,'
            f'"name":{_encode(item.name)},"t":{t},"tag":{tag},"type":"JobEvent"}}'
        )
    return _encode(to_json(item))
