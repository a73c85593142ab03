"""The text of `explain expressions`; its names are taken from the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from flux_ensemble.feature_list import FEATURES
from flux_ensemble.metrics.columns import Known
from flux_ensemble.metrics.job_fields import IDLE, IDLE_FIELDS, scope_of
from flux_ensemble.metrics.job_row import MEMO, PARAMS
from flux_ensemble.metrics.names import (
    COUNTERS,
    GAUGES,
    MEMBER_METRICS,
    STREAMS,
)
from flux_ensemble.metrics.operations import FUNCTIONS
from flux_ensemble.metrics.statistics import ALWAYS

_WIDTH, _INDENT = 88, 11

_BEGIN = """\
An expression stands in 'when' of a rule, in 'on' of retries, in '--filter', and in braces in
an action: count.sim.success >= 3 and job.params.t < 300; nodes: "{job.nnodes * 2}".
"""

_END = """\
A name with a hyphen is written in brackets: mean['sim-duration'], count.sim['gave-up']. A name
or a value that cannot be is an error when the document is read. What has no value yet makes a
comparison false. In YAML a comparison is put in quotes: when: "> 5"."""


def expression_help() -> Iterator[str]:
    """Give the lines of the explanation.

    >>> any("job.returncode" in line for line in expression_help())
    True
    """
    yield from _BEGIN.splitlines()
    yield ""
    for what, names in expression_names():
        for number, line in enumerate(wrap(", ".join(names), _WIDTH - _INDENT)):
            yield f"{'' if number else what:<{_INDENT}}{line}"
    yield ""
    yield from _END.splitlines()


def expression_names() -> Iterator[tuple[str, Sequence[str]]]:
    """Give all that an expression can have, by kind.

    >>> dict(expression_names())["join"]
    ('and', 'or', 'not')
    """
    yield "numbers", ("3", "0.5", "1e-3; durations are seconds: 1800 for 30 minutes")
    yield "text", ("in quotes: 'failed'",)
    yield "compare", ("== != < <= > >=", "in", "not in: job.outcome in ['failed']")
    yield "join", ("and", "or", "not")
    yield "compute", ("+ - * / // % **", *(f"{name}()" for name in FUNCTIONS))
    scope = scope_of("job-fail", Known.END, [], FEATURES)
    names = (f"{name}.NAME" if name in (PARAMS, MEMO) else name for name in sorted(scope.names))
    yield "the job", [f"job.{name}" for name in names]
    yield "idle jobs", [f"{IDLE}.{name}" for name in IDLE_FIELDS]
    yield "counts", [f"count.GROUP.{name}" for name in COUNTERS]
    yield "statistics", [f"{name}['GROUP-VARIABLE']" for name in ALWAYS]
    yield "variables", [*STREAMS, *GAUGES, "keys of memos (flux job memo)"]
    of_queue = [f"{head}.{name}" for head, names in MEMBER_METRICS.items() for name in names]
    yield "the queue", [*of_queue, "rate.GROUP"]
    yield "found", ("best.NAME.value", "best.NAME.params.X", "search.ID.best.VARIABLE")
