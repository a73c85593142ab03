"""The keys of `members`: pools of Flux instances that the jobs are shared out over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.keys.forms import (
    ATTRIBUTES,
    BOOLEAN,
    DURATION,
    OBJECT,
    ON_LOST,
    PARAMETER,
    PARAMETER_RULE,
    PROBABILITY,
    Key,
    choice,
    integer,
    list_of,
    mapping,
    text,
)
from flux_ensemble.document.keys.provider import pool_providers
from flux_ensemble.document.keys.simulation import distribution
from flux_ensemble.provider_list import PROVIDERS
from flux_ensemble.texts import shown

#: Who follows the jobs of a member and submits them: the ensemble's own service, or one in the
#: member. The default is the first.
SERVICES = ("parent", "child", "auto")

#: What the jobs of a member are: jobs of Flux, or processes of a worker. The default is the first.
TASKS = "tasks"
RUNS = ("jobs", TASKS)

#: Most members of one pool, and of all pools together.
MAX_MEMBERS = 100_000

#: So many different jobs in a row that fail at once put a member in doubt.
BREAKER_JOBS = 20

#: The operators of constraints (RFC 31) on values, and on other constraints.
_OF_VALUES = ("properties", "hostlist", "ranks")
_OF_CONSTRAINTS = ("and", "or", "not")

_NAME = text(PARAMETER_RULE, pattern=PARAMETER)


def read_constraint(value: Any) -> dict[str, Any]:
    """Read a constraint on nodes (RFC 31).

    Raises:
        ValueError: it has another form.

    >>> read_constraint({"not": [{"hostlist": ["node1"]}]})
    {'not': [{'hostlist': ['node1']}]}
    >>> read_constraint({"property": ["gpu"]})
    Traceback (most recent call last):
    ValueError: expected properties, hostlist, ranks, and, or, or not, not 'property'
    """
    if not isinstance(value, dict):
        raise ValueError(f"expected a constraint such as {{properties: [gpu]}}, not {shown(value)}")
    if len(value) != 1:
        raise ValueError(
            f"expected a constraint with one key, not {len(value)}; several are joined by "
            "{and: [{...}, {...}]}"
        )
    ((operator, values),) = value.items()
    if operator not in (*_OF_VALUES, *_OF_CONSTRAINTS):
        raise ValueError(
            f"expected properties, hostlist, ranks, and, or, or not, not {shown(operator)}"
        )
    if not isinstance(values, list) or not values:
        raise ValueError(f"{operator}: expected a list, such as [gpu], not {shown(values)}")
    for each in values:
        if operator in _OF_CONSTRAINTS:
            read_constraint(each)
        elif not isinstance(each, str):
            raise ValueError(f"{operator}: expected text, not {shown(each)}")
    return value


#: What alone has some of the keys: members that are started, not those that have a `uri`.
STARTED = "started"

#: What alone has the others: members that have a `uri`.
THERE = "there"

_COUNT_KEYS = (
    Key(
        "min",
        integer(0, MAX_MEMBERS),
        "The number of members at first, and the least that 'shrink' leaves.",
        (2,),
        1,
    ),
    Key(
        "max",
        integer(1, MAX_MEMBERS),
        "The greatest number of members at once.",
        (8,),
        required=True,
    ),
)

_SIMULATE_KEYS = (
    Key(
        "wait",
        distribution("a duration", DURATION),
        "How long a member waits in the queue of its site until it begins.",
        ({"lognormal": {"median": "20m", "sigma": 0.8}},),
        0,
    ),
    Key(
        "startup",
        distribution("a duration", DURATION),
        "How long a member takes from its beginning until it is up.",
        ("30s",),
        "2s",
    ),
    Key(
        "loss",
        distribution("a duration", DURATION),
        "How long it is up until it is lost. The default is never.",
        ({"exponential": {"mean": "20h"}},),
    ),
    Key(
        "broken",
        PROBABILITY,
        "The probability that a member fails each of its jobs.",
        (0.1,),
        0,
    ),
)

SITE_LIMIT_KEYS = (
    Key(
        "queued",
        integer(1),
        "How many members of the pool wait in the queue of the site at once at most.",
        (5,),
        unset="any number",
        more="The others wait in line.",
    ),
    Key(
        "spacing",
        DURATION,
        "Time between two submissions.",
        ("10s",),
        0,
        read=parse_duration,
    ),
    Key(
        "node-hours",
        {"type": "number", "description": "a number > 0", "exclusiveMinimum": 0},
        "How many node hours the members of the pool may use in all. One that is there or asked "
        "for counts with its `duration`, and one that has ended with the time that it was up.",
        (40,),
        read=float,
        unset="any number",
    ),
)


def _joined(parts: Sequence[str], word: str) -> str:
    return (
        f" {word} ".join(parts)
        if len(parts) < 3
        else f"{', '.join(parts[:-1])}, {word} {parts[-1]}"
    )


_SITES = pool_providers()
_FROM = _joined([f"{one.starts} ({name})" for name, one in _SITES.items()], "or")
_PAGES = _joined([one.page for one in _SITES.values() if one.page], "and")
_COMMANDS = _joined([one.command for one in _SITES.values() if one.command], "or")
_WITH_OPTIONS = _joined([f"`from: {name}`" for name, one in _SITES.items() if one.command], "or")

MEMBER_KEYS = (
    Key(
        "name",
        _NAME,
        "Name of the pool: its members are NAME.0, NAME.1 and so on.",
        ("pool",),
        required=True,
        more="A number is not used twice.",
    ),
    Key(
        "count",
        {
            **mapping("an integer >= 1, or a mapping such as {min: 2, max: 8}", _COUNT_KEYS),
            "type": ["integer", "object"],
            "minimum": 1,
            "maximum": MAX_MEMBERS,
        },
        "How many members there are, or a mapping with bounds.",
        (4,),
        1,
        only=(STARTED,),
        read=None,
        more="`min` (1) are started at first and `shrink` leaves no fewer; `grow` starts no more "
        "than `max`.",
    ),
    Key(
        "from",
        choice("who starts the members", PROVIDERS),
        f"Who starts the members: {_FROM}.",
        ("slurm",),
        PROVIDERS[0],
        only=(STARTED,),
        field="provider",
        more=f"See {_PAGES}.",
    ),
    *(replace(key, only=(STARTED,)) for one in pool_providers().values() for key in one.keys),
    Key(
        "options",
        {**OBJECT, "description": f"options of {_COMMANDS} such as {{partition: batch}}"},
        f"Options of {_COMMANDS} for the job of each member, by their long names; only with "
        f"{_WITH_OPTIONS}.",
        ({"partition": "batch", "account": "abc"},),
        only=(STARTED,),
        read=None,
    ),
    Key(
        "limits",
        mapping("a mapping with the keys queued, spacing and node-hours", SITE_LIMIT_KEYS),
        "Limits on what the site is asked for; not for members that Flux starts.",
        ({"queued": 5, "spacing": "10s", "node-hours": 40},),
        only=(STARTED,),
        read=None,
        more="See [limits](slurm-members.md#limits).",
    ),
    Key(
        "idle",
        DURATION,
        "How long a member beyond 'min' may be without use until it ends; 0 is for ever.",
        ("2m",),
        only=(STARTED,),
        read=parse_duration,
        unset="5 minutes; 0 with Flux",
        more="See [members that no job needs](slurm-members.md#members-that-no-job-needs).",
    ),
    Key("nodes", integer(1), "Nodes of each member.", (4,), 1, only=(STARTED,)),
    Key(
        "exclusive",
        BOOLEAN,
        "Whether the nodes are the member's alone, with all that they have.",
        (False,),
        True,
        only=(STARTED,),
        more="With false a member has `cores` and `gpus` of each of its nodes, beside other jobs.",
    ),
    Key(
        "cores",
        integer(1),
        "Cores on each node of a member that has no nodes alone.",
        (4,),
        1,
        only=(STARTED,),
        more="Only with `exclusive: false`.",
    ),
    Key(
        "gpus",
        integer(0),
        "GPUs on each node of a member that has no nodes alone.",
        (1,),
        0,
        only=(STARTED,),
        more="Only with `exclusive: false`.",
    ),
    Key(
        "duration",
        DURATION,
        "Time limit of each member; 0 is no limit of its own.",
        ("4h",),
        0,
        only=(STARTED,),
        read=parse_duration,
        more="A [duration](document.md#durations).",
    ),
    Key(
        "drain",
        DURATION,
        "The time before a member's end from which no job is placed on it, and those that "
        "wait move. The default is 30s, and half of a shorter duration.",
        ("5m",),
        only=(STARTED,),
        read=parse_duration,
        unset="30 seconds",
        more="The member is *draining* then.",
    ),
    Key(
        "queue",
        text(),
        "Queue of the enclosing instance to which the members are submitted.",
        ("debug",),
        only=(STARTED,),
        more="The default is that of Flux. See [queues](members.md#queues-and-nodes-of-members).",
    ),
    Key("bank", text(), "Bank of the members' jobs.", ("physics",), only=(STARTED,)),
    Key(
        "constraint",
        OBJECT,
        "Which nodes the members may have (RFC 31).",
        ({"properties": ["gpu"]}, {"not": [{"hostlist": ["node[1-2]"]}]}),
        only=(STARTED,),
        read=read_constraint,
        more="A mapping with one of `properties`, `hostlist`, `ranks`, `and`, `or` and `not`, and "
        "a list.",
    ),
    Key(
        "attributes",
        ATTRIBUTES,
        "Attributes that are merged into those of the members' jobs (RFC 14).",
        ({"system": {"dependencies": [{"scheme": "afterok", "value": "f2Hu4Rn"}]}},),
        only=(STARTED,),
    ),
    Key(
        "on-lost",
        choice("what becomes of the jobs of a member that is lost", ON_LOST),
        "What becomes of jobs that had not ended when their member was lost: resubmit has them run "
        "again, fail counts them as failed, hold submits them with urgency 0.",
        ("fail", "hold"),
        ON_LOST[0],
        more="The `on-lost` of their group overrides it. `hold` is until an `update` raises the "
        "urgency.",
    ),
    Key(
        "breaker",
        integer(0),
        "The number of different jobs in a row that fail within 5 seconds after which a "
        "member is in doubt; it is drained if others run such jobs well. 0 is never.",
        (50, 0),
        BREAKER_JOBS,
        more="See [a member that fails everything](members.md#a-member-that-fails-everything).",
    ),
    Key(
        "labels",
        {**list_of("a list of labels", _NAME), "minItems": 1},
        "What jobs can ask for with 'member', besides the name.",
        (["gpu"],),
        read=lambda names: tuple(dict.fromkeys(names)),
    ),
    Key(
        "service",
        choice("the service that submits the jobs of a member", SERVICES),
        "Who submits and follows the jobs of a member: the service of the ensemble (parent), or a "
        "service in the member, which calls that one (child). With auto it is child where there "
        "may be more than 8 members. Where ssh reaches no other node of the instance, it is child "
        "by default.",
        ("child", "auto"),
        SERVICES[0],
        only=(STARTED,),
        read=None,
        more="See [many members](members.md#many-members).",
    ),
    Key(
        "runs",
        choice("what the jobs of a member are", RUNS),
        "What the jobs of a member are: jobs of a Flux instance (jobs), or processes that a worker "
        "starts on its node (tasks), which is much faster for short ones.",
        (TASKS,),
        RUNS[0],
        only=(STARTED,),
        more="See [short tasks](howto/short-tasks.md).",
    ),
    Key(
        "uri",
        text("the URI of a Flux instance"),
        "A Flux instance that is there already.",
        ("ssh://host/run/flux/local",),
        more="It has no keys of members that are started, such as `count` and `queue`: see [there]"
        "(uri-members.md).",
    ),
    Key(
        "silence",
        DURATION,
        "How long an instance with a 'uri' may leave requests without an answer until it is lost; "
        "0 is for ever.",
        ("5m",),
        0,
        only=(THERE,),
        read=parse_duration,
        more="See [an instance that hangs](uri-members.md#an-instance-that-hangs).",
    ),
    Key(
        "simulate",
        mapping(
            "a mapping such as {startup: 5s, loss: {exponential: {mean: 20h}}}", _SIMULATE_KEYS
        ),
        "How the members behave in a simulation.",
        ({"startup": "5s", "loss": {"exponential": {"mean": "20h"}}},),
        read=None,
        more="`wait` (0) is how long one waits in the queue of its site, `startup` (2 seconds) how "
        "long it takes then until it is up, and `loss` (never) how "
        "long it is up until it is lost; durations or "
        "[distributions](simulate.md#what-the-jobs-do). `broken` (0) is "
        "the probability that a member fails each of its jobs.",
    ),
)

MEMBER = mapping("a member such as {name: pool, nodes: 4, duration: 4h}", MEMBER_KEYS)
