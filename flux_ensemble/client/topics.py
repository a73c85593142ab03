"""The requests of the service as a table: their topics, their keys, and who may send them.

`service.requests.protocol` checks payloads against it, and docs/rpc.md explains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flux_ensemble.scalars import MAX_INT
from flux_ensemble.texts import shown

#: The most of the last jobs that a request names.
MOST_LAST = 10_000


class Field(NamedTuple):
    """A key of a request.

    Args:
        kind: its type in Python; bool is no int.
        expected: what error messages call that type.
        required: the key must be present.
        minimum: of a number.
        maximum: of a number, or of the number of characters of a text.

    >>> Field(int, "a number of jobs, 1 or more", minimum=1).problem(0)
    'expected a number of jobs, 1 or more, not 0'
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


class Topic(NamedTuple):
    """A kind of request.

    Args:
        fields: its keys.
        response: the response, for people; "" if it is no request of users.
        reads: it changes nothing: the service answers it early and late, and the client can repeat
            it.
        guest: a site may open it to guests.
        streaming: it has many responses.
        local: a run on the local queue answers it, too (`queues.local.control`).
    """

    fields: Mapping[str, Field] = {}
    response: str = ""
    reads: bool = False
    guest: bool = False
    streaming: bool = False
    local: bool = False


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
        },
        response="`{name, state}`",
    ),
    "list": Topic(
        response="`{ensembles}`",
        reads=True,
        guest=True,
    ),
    "status": Topic(
        {"name": _name("the name of an ensemble")},
        response="`{service, nodes, queue, instance, ensembles}`",
        reads=True,
        guest=True,
    ),
    "submit": Topic(
        {
            "name": _NAME,
            "group": _name("the name of a job group", required=True),
            "count": Field(int, "a number of jobs, 1 or more", minimum=1),
            "params": Field(dict, "an object of parameter values"),
            "overrides": Field(dict, 'an object such as {"nodes": 4}'),
        },
        response="`{ids, members?, waiting?}`",
        local=True,
    ),
    "metrics": Topic(
        {"name": _NAME},
        response="statistics and counts",
        reads=True,
    ),
    "why": Topic(
        {"name": _NAME, "rule": _name("the id of a rule")},
        response="`{state, reason, t, rules}`",
        reads=True,
    ),
    "log": Topic(
        {
            "name": _NAME,
            "follow": _FLAG,
            "events": _FLAG,
            "skip": Field(int, "a number of entries, 0 or more"),
        },
        response="entries, one in each response",
        reads=True,
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
        response="jobs, some in each response",
        reads=True,
        local=True,
        guest=True,
        streaming=True,
    ),
    "output": Topic(
        {
            "name": _NAME,
            "member": _name("the name of a member", required=True),
            "id": Field(int, "the id of a job", True, 1, 2**63 - 1),
        },
        response="`{output}`",
        reads=True,
        local=True,
    ),
    "pause": Topic(
        {"name": _NAME},
        response="`{state}`",
        local=True,
    ),
    "resume": Topic(
        {"name": _NAME},
        response="`{state}`",
        local=True,
    ),
    "terminate": Topic(
        {"name": _NAME, "cancel": _FLAG},
        response="`{state}`",
        local=True,
    ),
    "cancel": Topic(
        {
            "name": _NAME,
            "group": _name("the name of a job group"),
            "reason": _name("why the ensemble is cancelled"),
        },
        response="`{state, jobs?}`",
        local=True,
    ),
    "unload": Topic(
        {"name": _NAME},
        response="`{state}`",
    ),
    "rules": Topic(
        {
            "name": _NAME,
            "id": _name("the id of a rule", required=True),
            "enabled": Field(bool, "true or false", required=True),
        },
        response="`{}`",
        local=True,
    ),
    "scale": Topic(
        {"to": Field(int, "a number of nodes, 1 or more", True, 1)},
        response="`{before, size}`",
    ),
    "rerun": Topic(
        {
            "name": _NAME,
            "filter": Field(str, "an expression"),
            "failed": _FLAG,
            "dry_run": _FLAG,
        },
        response="`{jobs, outcomes, state, entries, unsent?, reopened?, trials?, dropped?}`",
        local=True,
    ),
    "search": Topic(
        {
            "name": _NAME,
            "search": _name("the id of a search"),
            "more": Field(int, "a number of trials, 1 or more", minimum=1),
            "points": Field(list, "a list of points"),
        },
        response="`{search, trials, added, reopened, state, entries}`",
        local=True,
    ),
    "action": Topic(
        {"name": _NAME, "action": Field(dict, "an action", required=True)},
        response="`{firing, ids?, members?, waiting?}`",
        local=True,
    ),
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
        },
    ),
}

#: The requests that only read.
READING = frozenset(name for name, topic in TOPICS.items() if topic.reads)
