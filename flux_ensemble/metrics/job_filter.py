"""Expressions that choose jobs: `flux ensemble jobs --filter` and `ensemble.jobs`.

A filter is an expression as in conditions, over the fields of a job (docs/rpc.md, `ensemble.jobs`)
with or without `job.` in front: `job.returncode != 0 and params.t > 300`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.metrics.expressions import MAX_LENGTH, compile_expression
from flux_ensemble.metrics.hints import remedy
from flux_ensemble.metrics.job_row import COLUMNS, MEMO, PARAMS, dotted, fitted
from flux_ensemble.metrics.names import ATTEMPT_OUTCOMES
from flux_ensemble.metrics.operations import Value
from flux_ensemble.scalars import as_spelling, measured
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown

#: Names of fields that have a value, and of fields with keys that users choose.
FIELDS = tuple(
    field.name for field in COLUMNS.values() if field.column.filtered and field.type is not dict
)
_MAPPINGS = tuple(field.name for field in COLUMNS.values() if field.type is dict)


def compile_filter(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """Compile an expression over the fields of a job.

    Args:
        text: the expression.

    Returns:
        A function that returns whether the expression holds for a job.

    Raises:
        ValueError: the text is not an expression, or names a field that jobs do not have.

    >>> long_ones = compile_filter("job.runtime > 60 and params.t == 300")
    >>> long_ones({"runtime": 75.0, "params": {"t": 300}})
    True
    >>> compile_filter("job.colour == 1")
    Traceback (most recent call last):
    ValueError: a job has no field 'colour' (fields: id, member, name, ...
    """
    if not isinstance(text, str):  # what a program gives
        raise ValueError(f"expected an expression such as 'job.returncode != 0', not {shown(text)}")
    if len(text) > MAX_LENGTH:
        raise ValueError(f"an expression has at most {MAX_LENGTH} characters, not {len(text)}")
    try:
        expression = compile_expression(text.strip(), _operand, fitted=_fitted)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"expected an expression such as 'job.returncode != 0', not {shown(text)}{remedy(text)}"
        ) from error
    return lambda job: expression.holds(lambda path: _value(job, path))


def keys_in(filter: str) -> frozenset[str]:
    """Return the parameters and the keys of memos that a filter names.

    Args:
        filter: the expression, which is valid.

    >>> sorted(keys_in("memo.loss < 1 and job.params.t > 3 and job.runtime > 60"))
    ['memo.loss', 'params.t']
    """
    paths = compile_expression(filter.strip(), _resolve, fitted=_fitted).variables
    return frozenset(".".join(path) for path in paths if path[0] in _MAPPINGS)


def compile_choice(
    filter: str | None, group: str | None = None, outcome: str | None = None
) -> Callable[[Mapping[str, Any]], bool]:
    """Return a function that returns whether a job is chosen.

    Args:
        filter: an expression over the fields of a job; None for any job.
        group, outcome: the job's group and outcome; None for any.

    Raises:
        ValueError: as `compile_filter`.

    >>> compile_choice(None, outcome="failed")({"group": "md", "outcome": "success"})
    False
    """
    matches = None if filter is None else compile_filter(filter)
    return lambda job: (
        group in (None, job["group"])
        and outcome in (None, job["outcome"])
        and (matches is None or matches(job))
    )


def check_outcome(outcome: str | None) -> None:
    """Check the outcome of a choice.

    Raises:
        ValueError: no job ends so.

    >>> check_outcome("xyz")
    Traceback (most recent call last):
    ValueError: outcome: expected one of success, failed, canceled, timeout, interrupted, not 'xyz'
    """
    if outcome is not None and outcome not in ATTEMPT_OUTCOMES:
        expected = ", ".join(ATTEMPT_OUTCOMES)
        meant = f" ({near.strip()})" if (near := hint(outcome, ATTEMPT_OUTCOMES)) else ""
        raise ValueError(f"outcome: expected one of {expected}, not {shown(outcome)}{meant}")


def value_of(field: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that returns the value of a field of a job, None if it has none.

    Values of memos that are NaN or infinite are numbers here, not the texts that they are in JSON.

    Args:
        field: the name of the field, such as "runtime", "job.params.t" or "memo.loss".

    Raises:
        ValueError: jobs have no such field.

    >>> value_of("params.t")({"params": {"t": 300}})
    300
    >>> value_of('memo["p-value"]')({"memo": {"p-value": 0.5}})
    0.5
    """
    keys = dotted(field.strip()).removeprefix("job.").split(".")
    path = _resolve([keys[0], ".".join(keys[1:])] if keys[0] in _MAPPINGS and keys[1:] else keys)
    if path[0] == MEMO:
        return lambda job: measured(_value(job, path))
    return lambda job: _value(job, path)


def _operand(keys: list[str]) -> tuple[str, ...]:
    """Resolve a name in an expression, where it may be a text."""
    try:
        return _resolve(keys)
    except ValueError as error:
        if len(keys) > 1:
            raise
        raise ValueError(f"{error}; text is written in quotes: {keys[0]!r}") from None


def _resolve(keys: list[str]) -> tuple[str, ...]:
    path = tuple(keys[1:] if keys[0] == "job" and len(keys) > 1 else keys)
    name = ".".join(path)
    if name in FIELDS or (len(path) == 2 and path[0] in _MAPPINGS):
        return path
    param = (
        ""
        if len(path) > 1
        else f"; a parameter is {shown(f'params.{name}')}, and a value that jobs publish "
        f"{shown(f'memo.{name}')}"
    )
    fields = listed((*FIELDS, *(f"{mapping}.NAME" for mapping in _MAPPINGS)))
    near = hint(name, FIELDS)
    raise ValueError(f"a job has no field {shown(name)} ({near}fields: {fields}){param}")


def _fitted(path: tuple[str, ...], value: Value) -> Value:
    """Return a literal in the form of the values of the field that it is compared with."""
    return fitted(".".join(path), value, attempts=True)


def _value(job: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the value of a field; None if there is none, or if it cannot be compared.

    A parameter that was written as a number equals both its text and the number.
    """
    value: Any = job
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, (list, Mapping)):
        return None
    return as_spelling(value) if path[0] == PARAMS else value
