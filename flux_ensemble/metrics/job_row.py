"""The row of a job: its fields with all their properties, in one place.

`JobRow` is the form of a job outside the engine: in `ensemble.jobs`, in the files of a local run,
in exports, and in Python. The engine makes rows (`engine/job_view.py`). Names, order, types and
headings of the fields, the fields for guests, and those for filters and rules follow from
`COLUMNS`, which is derived from the class.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    NotRequired,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
)

from flux_ensemble.feature_list import parts
from flux_ensemble.metrics.columns import Column, Known
from flux_ensemble.metrics.domains import (
    exit_code,
    flag,
    number,
    one_of,
    signal_number,
    text,
    whole,
)
from flux_ensemble.metrics.names import ATTEMPT_OUTCOMES, INTERRUPTED, OUTCOMES, REASONS
from flux_ensemble.metrics.operations import Value

#: States of a job, as in flux-jobs(1), and of a trial.
STATES = ("pending", "running", "inactive")
TRIAL_STATES = (
    "active",
    "complete",
    "infeasible",
    "failed",
    "canceled",
    "pruned",
    INTERRUPTED,
)

#: A parameter or a key of a memo in brackets.
_BRACKETS = re.compile(r"""\b(params|memo)\[(["'])(.*?)\2\]""")

#: Fields with keys that users choose.
PARAMS, MEMO = "params", "memo"


def _anything(name: str, value: Value) -> Value:
    return value


def _outcome(name: str, value: Value) -> Value:
    return one_of(ATTEMPT_OUTCOMES, name, value)


def _reason(name: str, value: Value) -> Value:
    return one_of(tuple(REASONS), name, value)


def _state(name: str, value: Value) -> Value:
    return one_of(STATES, name, value)


def _trial_state(name: str, value: Value) -> Value:
    return one_of(TRIAL_STATES, name, value)


_SUBMISSION, _START, _END = Known.SUBMISSION, Known.START, Known.END


# fmt: off
class JobException(TypedDict):
    """The first fatal exception of a job; both fields are None if there is none."""

    type: Annotated[str | None, Column(
        "the type of its first fatal exception, as in flux-jobs(1)", known=_START)]
    note: Annotated[str | None, Column("the note of that exception", known=_START)]


class JobRow(TypedDict):
    """A job in `jobs` (docs/rpc.md, `ensemble.jobs`); unknown values are None.

    Times are epoch seconds. Keys that are not required exist in some ensembles only, or are new:
    services and local runs of older versions do not have these. Guests receive some keys only.
    """

    id: Annotated[int, Column(
        "its id, as in flux-jobs(1)", "JOBID", guests=True, known=_SUBMISSION, check=_anything,
        in_rules="its id; after the name of its member and a colon where it has one",
    )]
    member: NotRequired[Annotated[str, Column(
        "the [member](members.md) that it is on, of a document that has some; its `id` is one of "
        "that instance", guests=True,
    )]]
    name: Annotated[str, Column("its name, as in flux-jobs(1)", guests=True)]
    state: Annotated[str, Column(
        "`pending`, `running`, `inactive`", guests=True, check=_state)]
    group: Annotated[str, Column("the job group that it is of", guests=True)]
    rule: Annotated[str, Column(
        "the rule that submitted it; that of a job that is tried again is `retry`")]
    firing: Annotated[int, Column("which firing of the rule did, from 0")]
    index: Annotated[int, Column(
        "its number among the jobs of its submission, from 0", known=_SUBMISSION)]
    attempt: Annotated[int, Column("how often it ran before, from 0", known=_SUBMISSION)]
    copy_of: NotRequired[Annotated[str, Column(
        "of a [copy](glossary.md), the rule and the firing of the job that it does the same as, "
        "`RULE:FIRING`; its `index` is the same",
    )]]
    trial: NotRequired[Annotated[int, Column(
        "of a job of a [search](searches.md), the number of its trial")]]
    trial_state: NotRequired[Annotated[str, Column(
        "what this job has made of its trial: `active`, `complete`, `infeasible`, `failed`, "
        "`canceled`, `pruned`, or `interrupted`: the trial runs again", check=_trial_state,
    )]]
    params: Annotated[dict[str, Any], Column(
        "the values of its parameters; one that is not written as JSON has it, such as `1.10` or "
        "`NO`, is a text. A filter compares it with a number, or with its text", known=_SUBMISSION,
        in_rules="its parameter",
    )]
    nnodes: Annotated[int | None, Column(
        "how many nodes it has, null before it starts", guests=True, known=_SUBMISSION,
        in_rules="how many nodes it asked for, in all",
    )]
    ntasks: NotRequired[Annotated[int, Column(
        "how many tasks it asked for, in all", known=_SUBMISSION)]]
    ncores: NotRequired[Annotated[int, Column(
        "how many cores it asked for, in all", known=_SUBMISSION)]]
    ngpus: NotRequired[Annotated[int, Column(
        "how many GPUs it asked for, in all", known=_SUBMISSION)]]
    duration: NotRequired[Annotated[float, Column(
        "its time limit in seconds, 0 without one", known=_SUBMISSION)]]
    urgency: NotRequired[Annotated[int, Column(
        "the urgency that it was submitted with", known=_SUBMISSION)]]
    ranks: Annotated[str | None, Column("the ranks that it has, such as `0-3`")]
    t_submit: Annotated[float, Column(
        "when it was submitted, in epoch seconds", guests=True, is_time=True)]
    t_alloc: Annotated[float | None, Column(
        "when it got its resources, in epoch seconds", is_time=True)]
    t_run: Annotated[float | None, Column(
        "when it started, in epoch seconds", guests=True, is_time=True)]
    t_end: Annotated[float | None, Column(
        "when it finished (where it never ran: was gone), in epoch seconds. Of a job that was lost "
        "with a local run that was killed, it is when that was last known to go on; with a Flux "
        "instance that was killed, it is as Flux has it, when the instance was started again",
        guests=True, is_time=True,
    )]
    pending: NotRequired[Annotated[float | None, Column(
        "how many seconds it waited until it started", known=_START)]]
    runtime: Annotated[float | None, Column(
        "how many seconds it has run, as in flux-jobs(1)", guests=True, known=_START,
        in_rules="how many seconds it ran, or has run until now",
    )]
    cpu_seconds: NotRequired[Annotated[float | None, Column(
        "its [processor time](howto/resources.md) in seconds", known=_END,
        in_rules="its [processor time](howto/resources.md) in seconds; empty where its queue does "
        "not know it",
    )]]
    max_rss: NotRequired[Annotated[float | None, Column(
        "the peak memory of its largest process in MB", known=_END,
        in_rules="the peak memory of its largest process in MB (1,000,000 bytes), likewise",
    )]]
    efficiency: NotRequired[Annotated[float | None, Column(
        "the share of its cores kept busy", known=_END,
        in_rules="`cpu_seconds / (runtime * ncores)`: the share of its cores that it kept busy, "
        "likewise",
    )]]
    outcome: Annotated[str | None, Column(
        "`success`, `failed`, `canceled`, `timeout`, `interrupted`; null while it is active",
        guests=True, known=_END, check=_outcome,
        in_rules='its [outcome](metrics.md#outcomes), text: `job.outcome in ["failed", "timeout"]`',
    )]
    interrupted: NotRequired[Annotated[bool, Column(
        "whether its end was [no doing of its own](retries.md#interrupted-jobs), whatever the "
        "outcome", known=_END,
    )]]
    replaced: NotRequired[Annotated[str, Column(
        "of an attempt that was [interrupted](retries.md#interrupted-jobs), or whose job was "
        "[run again](howto/rerun.md), the rule and the firing by which that was to be, "
        "`retry:FIRING`: `jobs` and `export` leave it out if there is a row of that; others do not "
        "have the key", guests=True,
    )]]
    returncode: Annotated[int | None, Column(
        "its exit code, or the negative number of the signal that ended it. Null where nothing of "
        "it has ended: it is active, or never ran. A shell, and so Flux, exits with 128 and the "
        "number of the signal: 139 is told as -11, and as SIGSEGV by `failures`",
        "RC", known=_END, check=exit_code, is_signed=True,
        in_rules="its exit code, or the negative number of the signal that ended it; empty where "
        "it never ran",
    )]
    signal: Annotated[int | None, Column(
        "the number of the signal that ended it", known=_END, check=signal_number,
        in_rules="the number of the signal that ended it, empty where none did. Names are compared "
        'like numbers: `job.signal == "SIGSEGV"`',
    )]
    reason: NotRequired[Annotated[str | None, Column(
        "why it did not succeed, in a [word](retries.md#the-reason-in-a-word): `exit`, `signal`, "
        "`oom`, `timeout`, `canceled`, `node` or `start`; null if it succeeded, or is active",
        known=_END, check=_reason,
        in_rules="why it did not succeed, in a [word](retries.md#the-reason-in-a-word)",
    )]]
    exception: JobException
    memo: Annotated[dict[str, Any], Column(
        "what its memos said", known=_START, in_rules="what its [memos](metrics.md) said last")]
    memo_left_out: Annotated[int, Column("how many values of its memos did not fit in")]
    output: Annotated[str | None, Column(
        "the path of its standard output, null where Flux keeps that in the KVS")]
    error: Annotated[str | None, Column("the path of its standard error, likewise")]
    waits: NotRequired[Annotated[str, Column(
        "of a job that has not started, what it waits for besides other jobs, where something is "
        "known to keep it (`waits` in [the status](status.md#waits))", filtered=False,
    )]]
# fmt: on


#: Fields that only the expressions of rules have, since no record keeps their data.
ONLY_IN_RULES: Final[Mapping[str, Column]] = {
    **{name: column for part in parts("fields") for name, column in part.FIELDS.items()},
}  # fmt: skip

#: Type of a field -> the check of literals that it is compared with.
_CHECKS: Final[Mapping[Any, Callable[[str, Value], Value]]] = {
    bool: flag,
    int: whole,
    float: number,
    str: text,
    dict: _anything,
}


class Field(NamedTuple):
    """A field of a row.

    Args:
        name: the name; "exception.type" is the key `type` of the field `exception`.
        type: the type of the value: bool, int, float, str, or dict if users choose its keys.
        nullable: the value may be None.
        required: every row has the field.
        column: the other properties.
    """

    name: str
    type: type[Any]
    nullable: bool
    required: bool
    column: Column

    @property
    def heading(self) -> str:
        """The heading of the field's column in tables."""
        return self.column.heading or self.name.upper().replace(".", "-")


def _fields(row: Any, prefix: str = "") -> Iterator[Field]:
    """Yield the fields of a class, in their order."""
    for name, hint in get_type_hints(row, include_extras=True).items():
        if get_origin(hint) is NotRequired:
            (hint,) = get_args(hint)
        if hint is JobException:
            yield from _fields(hint, f"{name}.")
            continue
        whole_type, column = get_args(hint)
        nullable = type(None) in get_args(whole_type)
        of = get_args(whole_type)[0] if nullable else get_origin(whole_type) or whole_type
        yield Field(prefix + name, of, nullable, name in row.__required_keys__, column)


#: The fields of a row by their names, in the order of its keys.
COLUMNS: Final[Mapping[str, Field]] = {field.name: field for field in _fields(JobRow)}

#: The fields that every job has, without those whose keys users choose: the columns of no jobs.
OF_ALL: Final = tuple(
    field.name for field in COLUMNS.values() if field.required and field.type is not dict
)

#: The fields of a job that guests see if a site allows it: none that the job's owner has written.
GUESTS: Final = tuple(field.name for field in COLUMNS.values() if field.column.guests)

#: The fields of a job in the expressions of rules.
IN_RULES: Final[Mapping[str, Column]] = {
    name: column
    for name, column in (
        *((field.name, field.column) for field in COLUMNS.values()),
        *ONLY_IN_RULES.items(),
    )
    if column.known is not Known.NEVER
}


def dotted(name: str) -> str:
    """Return a field that is spelled as in expressions, with brackets, in the spelling with a dot.

    >>> dotted('memo["p-value"]'), dotted("-job.params['t max']"), dotted("memo.p-value")
    ('memo.p-value', '-job.params.t max', 'memo.p-value')
    """
    return _BRACKETS.sub(r"\1.\3", name)


def fitted(field: str, value: Value, name: str | None = None, *, attempts: bool = False) -> Value:
    """Return a literal in the form of the values of the field that it is compared with.

    Args:
        field: a field such as `outcome`; a field that can have any value accepts any literal.
        value: the literal.
        name: the expression's name of the field, for the message.
        attempts: interrupted attempts, of which no rule is triggered, are among the jobs compared.

    Raises:
        ValueError: the field can never have this value.

    >>> fitted("returncode", 137), fitted("signal", "SEGV"), fitted("memo", "any")
    (-9, 11, 'any')
    >>> fitted("outcome", "fail")
    Traceback (most recent call last):
    ValueError: 'outcome' is never 'fail' (did you mean 'failed'? one of: success, ...)
    """
    if field == "outcome" and not attempts:
        return one_of(OUTCOMES, name or field, value)
    known = COLUMNS.get(field)
    column = ONLY_IN_RULES.get(field) if known is None else known.column
    if column is None:
        return value
    check = column.check or _CHECKS[str if known is None else known.type]
    return check(name or field, value)
