"""Expressions that choose jobs: `flux ensemble jobs --filter` and `ensemble.jobs`.

They are the expressions of conditions over the fields of a job (docs/rpc.md, `ensemble.jobs`), with
or without `job.` in front: `job.returncode != 0 and params.t > 300`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.metrics.domains import fitted
from flux_ensemble.metrics.expressions import MAX_LENGTH, compile_expression
from flux_ensemble.metrics.hints import remedy
from flux_ensemble.metrics.operations import Value
from flux_ensemble.scalars import as_spelling
from flux_ensemble.texts import listed, shown

#: Fields of a job that have a value.
FIELDS = (
    "id",
    "name",
    "state",
    "group",
    "member",
    "rule",
    "firing",
    "index",
    "attempt",
    "copy_of",
    "trial",
    "trial_state",
    "nnodes",
    "ntasks",
    "ncores",
    "ngpus",
    "duration",
    "urgency",
    "ranks",
    "t_submit",
    "t_alloc",
    "t_run",
    "t_end",
    "pending",
    "runtime",
    "outcome",
    "interrupted",
    "returncode",
    "signal",
    "memo_left_out",
    "output",
    "error",
)

#: Fields that have keys: those that there are, or None where there may be any.
NESTED: Mapping[str, tuple[str, ...] | None] = {
    "params": None,
    "memo": None,
    "exception": ("type", "note"),
}


def compile_filter(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """Compile an expression over the fields of a job.

    Args:
        text: the expression.

    Returns:
        A function that says whether it holds for a job.

    Raises:
        ValueError: the text is not an expression, or names a field that jobs do not have.

    >>> long_ones = compile_filter("job.runtime > 60 and params.t == 300")
    >>> long_ones({"runtime": 75.0, "params": {"t": 300}})
    True
    >>> compile_filter("job.colour == 1")
    Traceback (most recent call last):
    ValueError: a job has no field 'colour' (fields: id, name, ...
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"an expression has at most {MAX_LENGTH} characters, not {len(text)}")
    try:
        expression = compile_expression(text.strip(), _resolve, fitted=_fitted)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"expected an expression such as 'job.returncode != 0', not {shown(text)}{remedy(text)}"
        ) from error
    return lambda job: expression.holds(lambda path: _value(job, path))


def value_of(field: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that gives the value of a field of a job, None where it has none.

    Args:
        field: such as "runtime", "job.params.t" or "memo.loss".

    Raises:
        ValueError: jobs have no such field.

    >>> value_of("params.t")({"params": {"t": 300}})
    300
    """
    path = _resolve(field.strip().split("."))
    return lambda job: _value(job, path)


def _resolve(keys: list[str]) -> tuple[str, ...]:
    path = tuple(keys[1:] if keys[0] == "job" and len(keys) > 1 else keys)
    head = path[0]
    if head in FIELDS and len(path) == 1:
        return path
    if head in NESTED and len(path) == 2:
        known = NESTED[head]
        if known is None or path[1] in known:
            return path
    nested = [f"{name}.{key}" for name, keys in NESTED.items() for key in keys or ("NAME",)]
    name = ".".join(path)
    hint = "" if len(path) > 1 else f"; a parameter is {shown(f'params.{name}')}"
    fields = listed((*FIELDS, *nested))
    raise ValueError(f"a job has no field {shown(name)} (fields: {fields}){hint}")


def _fitted(path: tuple[str, ...], value: Value) -> Value:
    """A literal that a field is compared with, as the field has it."""
    if path[0] in ("params", "memo"):
        return value
    return fitted(".".join(path), value, attempts=True)


def _value(job: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The value of a field; None where there is none, also if it cannot be compared.

    A parameter that was written as a number equals its text, and the number.
    """
    value: Any = job
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, (list, Mapping)):
        return None
    return as_spelling(value) if path[0] == "params" else value
