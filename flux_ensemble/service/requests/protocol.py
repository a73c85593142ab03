"""The requests of the service: their topics, their keys, and who may send them.

`TOPICS` is the whole protocol as a table (docs/rpc.md explains it); `parse` checks a payload
against it. The meaning of a value, such as whether a group exists, is checked by the topic's
handler (`requests.registration`). Which of them change nothing is known to the client, too
(`client.connection.READING`).
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.document.keys.forms import MAX_INT
from flux_ensemble.document.plain_data import check_plain
from flux_ensemble.document.problems import Problems
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.runtime.job_query import MOST_LAST
from flux_ensemble.texts import shown


@dataclass(frozen=True, slots=True)
class Field:
    """A key of a request.

    Args:
        kind: its type in Python; bool is no int.
        expected: what error messages call that type.
        required: the key must be present.
        minimum: of a number.
        maximum: of a number, or of the number of characters of a text.
    """

    kind: type
    expected: str
    required: bool = False
    minimum: int = 0
    maximum: int = MAX_INT

    def problem(self, value: Any) -> str | None:
        """Return what is wrong with a value, or None if the value is valid."""
        if type(value) is not self.kind or (isinstance(value, int) and value < self.minimum):
            return f"expected {self.expected}, not {shown(value)}"
        if isinstance(value, int) and value > self.maximum:
            return f"expected at most {self.maximum}, not {shown(value)}"
        if isinstance(value, str) and len(value) > self.maximum:
            return f"expected at most {self.maximum} characters, not {len(value)}"
        return None


@dataclass(frozen=True, slots=True)
class Topic:
    """A kind of request.

    Args:
        fields: its keys.
        guest: a site may open it to guests.
        streaming: it has many responses.
    """

    fields: Mapping[str, Field] = field(default_factory=dict)
    guest: bool = False
    streaming: bool = False


def _name(expected: str, required: bool = False) -> Field:
    # No name or path is longer; a bound is needed because requests are noted in the ensemble's log.
    return Field(str, expected, required, maximum=4096)


_NAME = _name("the name of an ensemble", required=True)
_FLAG = Field(bool, "true or false")

TOPICS: Mapping[str, Topic] = {
    "load": Topic(
        {
            "text": Field(str, "the text of a document"),
            "spec": Field(dict, "a document as an object"),
            "name": _name("a name for the ensemble"),
            "file": _name("the name of the document's file"),
            "scaler": Field(dict, "an object of keys of a scaler"),
            "workers": Field(int, "a number of workers, 1 or more", minimum=1),
            "record": _name("the absolute path of a file to record to"),
            "cwd": Field(str, "a directory", required=True),
            "environment": Field(dict, "an object of strings", required=True),
        }
    ),
    "list": Topic(guest=True),
    "status": Topic({"name": _name("the name of an ensemble")}, guest=True),
    "submit": Topic(
        {
            "name": _NAME,
            "group": _name("the name of a job group", required=True),
            "count": Field(int, "a number of jobs, 1 or more", minimum=1),
            "params": Field(dict, "an object of parameter values"),
            "overrides": Field(dict, 'an object such as {"nodes": 4}'),
        }
    ),
    "metrics": Topic({"name": _NAME}),
    "why": Topic({"name": _NAME, "rule": _name("the id of a rule")}),
    "log": Topic(
        {
            "name": _NAME,
            "follow": _FLAG,
            "events": _FLAG,
            "skip": Field(int, "a number of entries, 0 or more"),
        },
        streaming=True,
    ),
    "jobs": Topic(
        {
            "name": _NAME,
            "filter": Field(str, "an expression"),
            "group": _name("the name of a job group"),
            "outcome": Field(str, "an outcome"),
            "after": Field(int, "a number of jobs, 0 or more"),
            "count": Field(int, "a number of jobs, 1 or more", minimum=1),
            "last": Field(int, "a number of jobs, 1 or more", minimum=1, maximum=MOST_LAST),
            "interrupted": _FLAG,
        },
        guest=True,
        streaming=True,
    ),
    "output": Topic(
        {
            "name": _NAME,
            "member": _name("the name of a member", required=True),
            "id": Field(int, "the id of a job", True, 1, 2**63 - 1),
        },
    ),
    "pause": Topic({"name": _NAME}),
    "resume": Topic({"name": _NAME}),
    "terminate": Topic({"name": _NAME, "cancel": _FLAG}),
    "cancel": Topic(
        {
            "name": _NAME,
            "group": _name("the name of a job group"),
            "reason": _name("why the ensemble is cancelled"),
        }
    ),
    "unload": Topic({"name": _NAME}),
    "rules": Topic(
        {
            "name": _NAME,
            "id": _name("the id of a rule", required=True),
            "enabled": Field(bool, "true or false", required=True),
        }
    ),
    "scale": Topic({"to": Field(int, "a number of nodes, 1 or more", True, 1)}),
    "rerun": Topic(
        {
            "name": _NAME,
            "filter": Field(str, "an expression"),
            "failed": _FLAG,
            "dry_run": _FLAG,
        }
    ),
    "search": Topic(
        {
            "name": _NAME,
            "search": _name("the id of a search"),
            "more": Field(int, "a number of trials, 1 or more", minimum=1),
            "points": Field(list, "a list of points"),
        }
    ),
    "action": Topic({"name": _NAME, "action": Field(dict, "an action", required=True)}),
    "attach": Topic(
        {
            "name": _NAME,
            "run": Field(int, "the number of a run", True, maximum=2**63 - 1),
            "member": _name("the name of a member", required=True),
            "ordinal": Field(int, "the number of a member, 1 or more", True, 1),
            "epoch": Field(int, "the number of a service", True),
            "version": _name("a version of flux-ensemble", required=True),
            "format": Field(int, "the number of a format", minimum=0),
        },
        streaming=True,
    ),
    "report": Topic(
        {
            "contact": _name("a contact that ensemble.attach began", required=True),
            "number": Field(int, "the number of a message, 0 or more", True),
            "taken": Field(int, "the number of a message, 0 or more", True),
            "items": Field(list, "a list of what is reported", True),
        }
    ),
}

#: Keys whose values are not checked here. The values of `load` are checked as a document is, with
#: the line of each problem; reports from services of members are large, and made by this package.
UNCHECKED = frozenset(("text", "spec", "items"))


def parse(method: str, text: str | None) -> dict[str, Any]:
    """Check the payload of a request.

    Args:
        method: a key of `TOPICS`.
        text: the payload, or None if there is none.

    Returns:
        The payload, with only the keys that the request has.

    Raises:
        RequestError: EINVAL; it is no JSON object, or a key is unknown, missing or of a wrong
            type, or holds what JSON cannot portably hold: text that is not UTF-8, a NUL, a number
            that is not finite or too large.
    """
    try:
        payload = json.loads(text) if text is not None else {}
    except ValueError as error:
        raise _invalid(method, f"the payload is not JSON ({error})") from None
    except RecursionError:
        raise _invalid(method, "the payload nests too deep") from None
    if not isinstance(payload, dict):
        raise _invalid(method, f"expected an object, not {shown(payload)}")
    fields = TOPICS[method].fields
    problems = Problems()
    for key, value in payload.items():
        if key not in fields:
            known = ", ".join(fields) or "none"
            raise _invalid(method, f"unknown key {shown(key)} (keys: {known})")
        problem = fields[key].problem(value)
        if problem is not None:
            raise _invalid(method, f"{key}: {problem}")
        if key not in UNCHECKED:
            check_plain(value, problems, (key,))
    for key, known_field in fields.items():
        if known_field.required and key not in payload:
            raise _invalid(method, f"key {key!r} is missing: expected {known_field.expected}")
    if problems:
        raise _invalid(method, problems.sentences())
    return payload


def _invalid(method: str, reason: str) -> RequestError:
    return RequestError(errno.EINVAL, f"ensemble.{method}: {reason}")
