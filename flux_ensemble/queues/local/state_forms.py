"""The forms of the local queue's files, to distinguish them from anything else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from flux_ensemble.metrics.job_row import COLUMNS
from flux_ensemble.metrics.names import IGNORED
from flux_ensemble.metrics.paths import BEST, COUNT

#: A check of a value; or an object with a form for each required key, or for every value, under
#: `...`; or a list whose values all have one form.
Form = Callable[[Any], bool] | dict[Any, "Form"] | list["Form"]

#: Names of statistics, which are columns of a table.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

#: The greatest time: the end of the year 9999, the last that dates in tables can have.
_MAX_TIME = 253402300799.0


_NUMBERS = (float, int)


def parse(data: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is no JSON, or nests too deep.
    """
    try:
        # `json.loads` would make a decoder for each line.
        return _DECODER.decode(data.decode())
    except RecursionError:
        raise ValueError("expected JSON that is less deep") from None


def fits(value: Any, form: Form) -> bool:
    """Return whether a JSON value has a form."""
    return check_of(form)(value)


def check_of(form: Form) -> Callable[[Any], bool]:
    """Return the function that `fits` calls, which is made once for many values.

    >>> check_of({"t": [_text]})({"t": ["a", "b"]})
    True
    """
    if callable(form):
        return form
    if isinstance(form, list):
        item = check_of(form[0])
        return lambda value: isinstance(value, list) and all(map(item, value))
    if ... in form:
        item = check_of(form[...])
        return lambda value: isinstance(value, dict) and all(map(item, value.values()))
    checks = [(key, check_of(one)) for key, one in form.items()]

    def check(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        return all(key in value and one(value[key]) for key, one in checks)

    return check


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _number(value: Any) -> bool:
    # An integer that no float can hold cannot be printed as one.
    return type(value) is float or (type(value) is int and abs(value) < 10**300)


def _time(value: Any) -> bool:
    return type(value) in _NUMBERS and 0 <= value <= _MAX_TIME


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _or_none(form: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or form(value)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


#: The counts that a group has to have; later versions have more.
_COUNTED: Form = dict.fromkeys(
    ("waiting", "pending", "running", "submitted", "finished",
     "success", "failed", "canceled", "timeout"),
    _count,
)  # fmt: skip


def _group(value: Any) -> bool:
    return fits(value, _COUNTED) and fits(value, {...: _count})


_RULE: dict[Any, Form] = {
    "id": _text,
    "trigger": _text,
    "action": _text,
    "label": _or_none(_text),
    "actions": [_text],
    "enabled": _flag,
    "fired": _count,
    "repetitions": _or_none(_count),
    "error": _or_none(_text),
}


def _value(value: Any) -> bool:
    # A parameter of a best job can be any plain value.
    return value is None or type(value) in (bool, str) or _number(value)


_TERM: Form = {
    "text": _text,
    "holds": _or_none(_flag),
    "values": {...: _value},
    "missing": _or_none(_text),
}

#: The explanation of a rule.
_REASON: Form = {
    **{
        key: _RULE[key]
        for key in ("id", "trigger", "action", "label", "actions", "enabled", "fired", "error")
    },
    "left": _or_none(_count),
    "terms": [_TERM],
    "skips": _count,
    "t_cooldown": _or_none(_time),
    "t_next": _or_none(_time),
    "waits": _or_none(_text),
    "never": _or_none(_text),
}


def _reason(value: Any) -> bool:
    return fits(value, _REASON) and fits(value.get("unmet", []), [_text])


WHY: Form = {"t": _time, "rules": [_reason]}

_STATUS: Form = {
    "name": _text,
    "state": _text,
    "reason": _text,
    "t_start": _or_none(_time),
    "t_end": _or_none(_time),
    "groups": {...: _group},
    "rules": [_RULE],
    "jobs": {"waiting": _count, "active": _count},
    "errors": [_text],
}

_FRONT: Form = [{"trial": _count, "values": [_number], "params": _object}]

_IMPORTANCES: Form = {...: [{"name": _text, "share": _number, "trials": _count}]}

_NEAREST: Form = {"trial": _count, "violations": {...: _number}, "params": _object}

_SEARCH: Form = {
    **dict.fromkeys(("id", "group", "state", "reason", "sampler", "objective", "direction"), _text),
    **dict.fromkeys(
        ("trials", "parallel", "active", "stock", "complete", "failed", "canceled", "asks"), _count
    ),
    **dict.fromkeys(("ask_seconds", "trial_seconds"), _or_none(_number)),
    "idle_seconds": _number,
    "trouble": _or_none(_text),
    "best": [{"trial": _count, "value": _number, "params": _object}],
}

#: The trials of others that a search begins with, and what stands for none.
_TOLD: Form = {"trials": _count, "best": _or_none(lambda one: fits(one, _TOLD_BEST))}
_TOLD_BEST: Form = {"value": _number, "params": _object}
_NOT_TOLD = {"trials": 0, "best": None}

#: A best job: its id, or its member and id.
_BEST: Form = {
    "value": _number,
    "job": lambda value: _count(value) or _text(value),
    "params": _object,
}

#: A best job in the status, whose value and job can still be missing.
_BEST_OF: Form = {
    **dict.fromkeys(("name", "group", "of", "mode"), _text),
    "running": _flag,
    "value": lambda value: value is None or _number(value),
    "job": lambda value: value is None or _count(value) or _text(value),
    "params": _object,
}


def _absence(value: Any) -> bool:
    return (
        fits(value, {"since": _time, "until": _time})
        and fits(value.get("undone", 0), _count)
        and fits(value.get("ended", 0.0), _time)
    )


def _status(value: Any) -> bool:
    # The keys are missing without a search, a best job or a unit.
    return (
        fits(value, _STATUS)
        and fits(value.get("away", 0.0), _time)
        and fits(value.get("absences", []), [_absence])
        and fits(value.get("best", []), [_BEST_OF])
        and fits(value.get("units", {}), {...: _text})
        and fits(value.get("searches", []), [_SEARCH])
        and all(
            fits(search.get("front", []), _FRONT)
            and fits(search.get("front_size", 0), _count)
            and fits(search.get("importances", {}), _IMPORTANCES)
            and fits(search.get("infeasible", 0), _count)
            and fits(search.get("subject_to", []), [_text])
            and fits([search["nearest"]] if "nearest" in search else [], [_NEAREST])
            and fits(search.get("warm_start", _NOT_TOLD), _TOLD)
            for search in value.get("searches", [])
        )
    )


_COUNTS: Form = {...: {...: _count}}

#: Metrics that are not statistics.
_OF_METRICS: dict[str, Form] = {
    COUNT: _COUNTS,
    IGNORED: _COUNTS,
    BEST: {...: _BEST},
    "search": lambda value: _searches(value),
}


def _searches(value: Any) -> bool:
    """Check the results of searches, or a statistic of that name if there is no search."""
    found: Form = {**dict.fromkeys(("trials", "complete", "failed", "canceled"), _count)}
    return fits(value, {...: found}) or fits(value, {...: _or_none(_number)})


def _metrics(value: Any) -> bool:
    """Check the counts of each group, the statistics with a value for each stream, and the best."""
    return fits(value, {COUNT: _COUNTS}) and all(
        fits(one, _OF_METRICS[name])
        if name in _OF_METRICS
        else _NAME.fullmatch(name) and fits(one, {...: _or_none(_number)})
        for name, one in value.items()
    )


#: `status.json`.
SNAPSHOT: Form = {"status": _status, "metrics": _metrics, "events": _count}

#: A line of the eventlog (RFC 18).
ENTRY: Form = {"timestamp": _time, "name": _text, "context": _object}

#: The forms of the values of jobs, by type.
_OF_TYPES: dict[type, Callable[[Any], bool]] = {
    bool: _flag,
    int: _count,
    float: _number,
    str: _text,
    dict: _object,
}


def _jobs(required: bool) -> dict[Any, Form]:
    """Return the forms of the keys that each job has, or of those that it may have."""
    forms: dict[Any, Any] = {}
    for field in COLUMNS.values():
        if field.required is required:
            form = _OF_TYPES[field.type]
            if field.column.is_time or field.column.is_signed:
                form = _time if field.column.is_time else _number
            name, _, key = field.name.partition(".")
            within = forms.setdefault(name, {}) if key else forms
            within[key or name] = _or_none(form) if field.nullable else form
    return forms


#: A key of a job, the types of which every value is right, and the check of the others.
_Field = tuple[str, frozenset[type], Callable[[Any], bool]]

#: Those types, by form.
_RIGHT = {_text: str, _flag: bool, _object: dict, _number: float}


def _fields(required: bool) -> list[_Field]:
    """Return `_jobs` in a form that is fast for many jobs."""
    fields: list[_Field] = []
    for name, form in _jobs(required).items():
        column = COLUMNS.get(name)
        right: set[type] = set()
        if column is not None:
            right = {type(None)} if column.nullable else set()
            plain = _OF_TYPES[column.type]
            if plain in _RIGHT and not column.column.is_time:
                right.add(_RIGHT[plain])
        fields.append((name, frozenset(right), check_of(form)))
    return fields


_ALWAYS, _SOMETIMES = _fields(True), _fields(False)


def _job(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    for name, right, check in _ALWAYS:
        if name not in value or (type(value[name]) not in right and not check(value[name])):
            return False
    for name, right, check in _SOMETIMES:
        if name in value and type(value[name]) not in right and not check(value[name]):
            return False
    return True


#: A line of the jobs that have ended.
JOB: Form = _job
