"""Events and commands as JSON objects, for recordings, logs and replay.

An object holds the fields of the dataclass and `"type"`, the name of its class.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from math import isfinite
from typing import Any

from flux_ensemble.engine import commands, events
from flux_ensemble.engine.commands import Command, SubmitJobs
from flux_ensemble.engine.events import Absent, Event, JobEvent, JobsAlike, MemberEnded, Tag

_EVENTS = {cls.__name__: cls for cls in events.Event.__args__}
_COMMANDS = {cls.__name__: cls for cls in commands.Command.__args__}
_FIELDS = {
    cls: tuple(field.name for field in fields(cls))
    for cls in (*_EVENTS.values(), *_COMMANDS.values())
}

#: One encoder for everything: to make one takes a fifth of the time that encoding an event takes.
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode

#: Text -> its JSON, for names of events, groups and rules, and texts in contexts, which are few.
_TEXTS: dict[str, str] = {}

#: The most texts that are kept, and the most characters of each.
_MAX_TEXTS, _MAX_LENGTH = 1000, 100

#: The most keys of a context that is encoded here; the encoder does larger ones.
_MAX_KEYS = 4


def _text(text: str) -> str:
    """Return a text as JSON; short texts are encoded once and kept."""
    known = _TEXTS.get(text)
    if known is None:
        known = _encode(text)
        if len(text) <= _MAX_LENGTH:
            if len(_TEXTS) == _MAX_TEXTS:
                _TEXTS.clear()
            _TEXTS[text] = known
    return known


def _number(value: float) -> str:
    """Return a number as JSON; for a finite float this is the same text as in Python."""
    return repr(value) if type(value) is float and isfinite(value) else _encode(value)


def _context(context: Mapping[str, Any]) -> str:
    """Return the context of an event as JSON; most contexts have a few numbers and texts."""
    if len(context) > _MAX_KEYS:
        return _encode(context)
    parts = []
    for key in sorted(context):
        value: Any = context[key]
        kind = type(value)
        if kind is int:
            text = str(value)
        elif kind is str:
            text = _text(value)
        elif kind is float:
            text = _number(value)
        else:
            return _encode(context)
        parts.append(f"{_text(key)}:{text}")
    return f"{{{','.join(parts)}}}"


def _tag(tag: Any) -> str:
    """Return a tag as JSON."""
    group, rule, firing, index = tag
    if type(group) is str and type(rule) is str and type(firing) is int and type(index) is int:
        return f"[{_text(group)},{_text(rule)},{firing},{index}]"
    return _encode(tag)


def to_json(item: Event | Command) -> dict[str, Any]:
    """Return the event or command as a JSON object."""
    cls = type(item)
    value: dict[str, Any] = {"type": cls.__name__}
    for name in _FIELDS[cls]:
        value[name] = getattr(item, name)
    if cls is SubmitJobs and not value["ordinal"]:
        # Recordings of the first versions, and of documents without members, have no ordinal.
        del value["ordinal"]
    if cls is SubmitJobs and not value["off"]:
        del value["off"]
    if cls is JobsAlike and value["used"] is None:
        del value["used"]
    if cls is MemberEnded and not value["outage"]:
        del value["outage"]
    if cls is Absent and not value["undone"]:
        del value["undone"], value["ended"]
    return value


def event_from_json(value: Mapping[str, Any]) -> Event:
    """Return the event of a JSON object.

    Raises:
        ValueError: `type` is unknown, or a field is missing, unknown or of another shape.
    """
    event: Event = _from_json(value, _EVENTS)
    return event


def command_from_json(value: Mapping[str, Any]) -> Command:
    """Return the command of a JSON object.

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
        for name in ("jobs", "ids", "off"):
            if name in arguments:
                arguments[name] = tuple(arguments[name])
        return cls(**arguments)
    except TypeError as error:
        raise ValueError(f"{cls.__name__}: {error}") from None


def encode(item: Event | Command) -> str:
    """Return the item as one line of canonical JSON: equal items give equal text."""
    if type(item) is JobEvent and not item.foreign and item.job_name is None:
        # Nearly all items are such events; encoding them as a mapping takes three times as long.
        context = _context(item.context) if item.context else "{}"
        tag = "null" if item.tag is None else _tag(item.tag)
        return (
            f'{{"context":{context},"foreign":false,"job":{item.job},"job_name":null,'
            f'"name":{_text(item.name)},"t":{_number(item.t)},"tag":{tag},"type":"JobEvent"}}'
        )
    return _encode(to_json(item))
