"""Conditions: the text of `when`, compiled once and evaluated often.

A condition has one of three forms: a number (equality), a comparison with a number ("> 5.5"), and
an expression over metrics and the triggering job ("count.a.success >= 3 and job.returncode == 1"),
which `metrics.expressions` compiles and evaluates.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, NamedTuple

from flux_ensemble.metrics.best import Best
from flux_ensemble.metrics.by_value import ByValue
from flux_ensemble.metrics.domains import number
from flux_ensemble.metrics.expressions import MAX_LENGTH, Expression, compile_expression
from flux_ensemble.metrics.families import FAMILIES, NO_FAMILIES, Families
from flux_ensemble.metrics.hints import meant, remedy
from flux_ensemble.metrics.job_fields import (
    IDLE,
    IDLE_FIELDS,
    JOB,
    IdleField,
    JobField,
    JobScope,
)
from flux_ensemble.metrics.job_row import PARAMS, fitted
from flux_ensemble.metrics.names import COUNTERS, MEMBER_METRICS, RATE
from flux_ensemble.metrics.operations import Value
from flux_ensemble.metrics.paths import (
    BEST,
    COUNT,
    OF_NAMES,
    MetricPath,
    not_of_member,
    not_of_pool,
    parse_path,
)
from flux_ensemble.metrics.statistics import NUMBER
from flux_ensemble.suggestions import elsewhere, hint
from flux_ensemble.texts import listed, shortened, shown

#: Returns the value of a metric: a number, None, or for a parameter of a best job also text.
Lookup = Callable[[MetricPath], Any]
Subject = Literal["metric", "memo"] | None

#: The best jobs that are kept, by name, with the parameters that they can have.
Bested = Mapping[str, tuple[Best, Collection[str]]]
NO_BESTS: Bested = {}

#: The names of parameters at the end of a metric that is kept by their values: `[t,seed]`.
_OF_VALUE = re.compile(r"(?P<name>.+)\[(?P<params>[A-Za-z_][\w-]*(?:\s*,\s*[A-Za-z_][\w-]*)*)\]")

#: The name of a variable with hyphens, without brackets, after a statistic and the group: nothing
#: of another name that is subtracted.
_VARIABLE = r"\b{}\.({}-[A-Za-z_]\w*(?:-[A-Za-z_]\w*(?![\w.]))*)"

#: Returns the value of a field of the triggering job, of any type; None if it has none.
JobLookup = Callable[[JobField | IdleField], Any]


class OfValue(NamedTuple):
    """A statistic that is kept by value, for the values of the job that triggers the rule.

    >>> of_value = OfValue("mean", ByValue("md", "fom", ("t",)))
    >>> str(of_value), str(of_value.path(lambda field: 300))
    ('mean.md-fom[t]', 'mean.md-fom[t=300]')
    """

    statistic: str
    by: ByValue

    def path(self, job: JobLookup) -> MetricPath:
        """Return the metric for the values of a job."""
        values = {name: job(JobField(PARAMS, name)) for name in self.by.params}
        variable = self.by.variable + self.by.suffix(values)
        return MetricPath(self.statistic, self.by.group, variable)

    def __str__(self) -> str:
        params = ",".join(self.by.params)
        return f"{self.statistic}.{self.by.group}-{self.by.variable}[{params}]"


#: The meaning of a name in an expression; text is the key of a memo.
Variable = MetricPath | JobField | IdleField | OfValue | str

#: Trigger -> the data that a `when` can use besides the metrics that it names.
SUBJECTS: Mapping[str, Subject] = {"metric": "metric", "job-memo": "memo"}

#: An expression in braces.
_HEADS = "|".join((JOB, IDLE, COUNT, BEST, *FAMILIES, "params"))
_FILLED = re.compile(rf"\{{\s*((?:{_HEADS})[.\[][^{{}}]*?)\s*\}}")

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}
_COMPARISON = re.compile(
    r"\s*(?P<operator><=|>=|==|!=|=|<|>)?\s*"
    r"(?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*"
)


class Condition:
    """A compiled `when`.

    Args:
        text: the text in the document.
        compare, number: operator and number of a comparison with the rule's metric.
        expression: the expression, if the condition is not such a comparison.

    Attributes:
        paths: the metrics that an expression reads.
        compares: True if the condition compares the rule's metric with a number.
        of_values: the statistics by value that an expression reads for the triggering job.
        of_job: True if the condition reads fields of the triggering job.
        of_idle: True if the condition reads how the jobs went that an `idle` rule waited for.
    """

    __slots__ = (
        "_compare",
        "_expression",
        "_number",
        "compares",
        "of_idle",
        "of_job",
        "of_values",
        "paths",
        "text",
    )

    def __init__(
        self,
        text: str,
        *,
        compare: Callable[[Any, Any], bool] | None = None,
        number: float = 0.0,
        expression: Expression[Variable] | None = None,
    ) -> None:
        self.text = text
        self.compares = compare is not None
        self._compare = compare
        self._number = number
        self._expression = expression
        variables = expression.variables if expression is not None else ()
        self.paths = frozenset(
            variable for variable in variables if isinstance(variable, MetricPath)
        )
        self.of_values = [variable for variable in variables if isinstance(variable, OfValue)]
        self.of_job = any(isinstance(variable, JobField) for variable in variables)
        self.of_idle = any(isinstance(variable, IdleField) for variable in variables)

    def paths_of(self, job: JobLookup) -> list[MetricPath]:
        """Return the metrics that the condition reads for a job, in the order of their names."""
        return sorted({*self.paths, *(one.path(job) for one in self.of_values)})

    def holds(
        self,
        value: float | None,
        lookup: Lookup,
        memo: Mapping[str, Any] | None = None,
        job: JobLookup | None = None,
    ) -> bool:
        """Return whether the condition holds.

        Args:
            value: the value of the rule's own metric, for a number or a comparison.
            lookup: returns the value of a metric; None if it is empty.
            memo: the keys of a memo event, which an expression may name.
            job: returns the value of a field of the triggering job, which an expression may name.

        >>> condition = compile_condition("> 60", Names((), (), "metric", None))
        >>> condition.holds(75.0, lookup=lambda path: None)
        True
        """
        if self._compare is not None:
            return value is not None and self._compare(value, self._number)
        assert self._expression is not None
        return self._expression.holds(variables(lookup, memo, job))


def variables(
    lookup: Lookup, memo: Mapping[str, Any] | None = None, job: JobLookup | None = None
) -> Callable[[Variable], Any]:
    """Return a function from variables of an expression to values; arguments as for `holds`.

    >>> value_of = variables(lambda path: None, {"loss": 0.5}, lambda field: str(field))
    >>> value_of("loss"), value_of(JobField("id"))
    (0.5, 'job.id')
    """
    keys = memo or {}

    def value_of(variable: Variable) -> Any:
        if isinstance(variable, MetricPath):
            return lookup(variable)
        if isinstance(variable, (JobField, IdleField)):
            return None if job is None else job(variable)
        if isinstance(variable, OfValue):
            return None if job is None else lookup(variable.path(job))
        return keys.get(variable)

    return value_of


def compile_condition(when: float | str, names: Names) -> Condition:
    """Compile a `when`.

    Args:
        when: a number, a comparison with a number, or an expression.
        names: those that it can use.

    Raises:
        ValueError: the text does not parse, or names something that does not exist.

    >>> names = Names(["md"], ["mean"], None, None)
    >>> condition = compile_condition("count.md.success >= 3", names)
    >>> condition.holds(None, lookup={MetricPath("count", "md", "success"): 3}.get)
    True
    """
    if isinstance(when, bool) or not isinstance(when, (int, float, str)):
        raise ValueError(
            f"expected a number, a comparison or an expression, not {shortened(repr(when))}"
        )
    text = str(when).strip()
    if len(text) > MAX_LENGTH:
        raise ValueError(f"an expression has at most {MAX_LENGTH} characters, not {len(text)}")
    match = _COMPARISON.fullmatch(text)
    if match is not None:
        if names.subject != "metric":
            raise ValueError(
                f"{shown(when)} compares the metric of a metric rule; "
                f"this trigger has none, so write an expression such as 'count.GROUP.success > 3'"
            )
        number = float(match["number"])
        if not math.isfinite(number):
            raise ValueError(f"expected a finite number, not {shown(when)}")
        compare = _COMPARISONS[match["operator"] or "=="]
        return Condition(str(when), compare=compare, number=number)
    names.compared = any(sign in text for sign in "=<>")
    names.ordered = names.compared and "=" not in text
    try:
        names.text = text
        expression = compile_expression(text, names.resolve, fitted=names.fitted)
    except (SyntaxError, RecursionError, MemoryError) as error:
        block = "" if text else ' (put a comparison in quotes: when: "> 5")'
        raise ValueError(
            f"expected a number, a comparison such as '> 5', or an expression such as "
            f"'count.GROUP.success >= 3', not {shown(when)}{block or remedy(text)}"
        ) from error
    return Condition(text, expression=expression)


def split_comparison(when: float | str) -> tuple[str, float] | None:
    """Return operator and number of a `when` that compares the rule's metric; else None.

    >>> split_comparison("<= 5"), split_comparison(3), split_comparison("count.a.success > 5")
    (('<=', 5.0), ('==', 3.0), None)
    """
    match = _COMPARISON.fullmatch(str(when).strip())
    if match is None:
        return None
    operator = match["operator"]
    return "==" if operator in (None, "=") else operator, float(match["number"])


class Names:
    """Resolves the names in an expression.

    Args:
        groups: names of the job groups.
        statistics: names of the statistics that are kept.
        subject: the data that the rule provides: "metric" a value to compare, "memo" the keys of a
            memo, None nothing.
        job: the fields of the triggering job; None if no job triggers the rule.
        bests: the best jobs that are kept, by name, with the parameters that they can have.
        by: the metrics that are kept by value.
        named: what features have names for, by family and name.
        of_member: the metrics are those of one member.
        pools: names of the pools of members; None if names were checked before.
    """

    def __init__(
        self,
        groups: Collection[str],
        statistics: Collection[str],
        subject: Subject,
        job: JobScope | None,
        bests: Bested = NO_BESTS,
        by: Collection[ByValue] = (),
        named: Families = NO_FAMILIES,
        of_member: bool = False,
        pools: Collection[str] | None = None,
    ) -> None:
        #: The text of the expression, and whether it compares something.
        self.text = ""
        self.compared = False
        #: It compares numbers alone.
        self.ordered = False
        self._of_member = of_member
        self._pools = pools
        self._groups = groups
        self._statistics = statistics
        self.subject = subject
        self.job = job
        self._bests = bests
        self._by = by
        self._named = named

    def resolve(self, keys: list[str]) -> Variable:
        """Return the metric, the field of the triggering job or the memo key with this name.

        Raises:
            ValueError: nothing has this name.

        >>> Names(["md"], ["mean"], None, None).resolve(["count", "md", "success"])
        MetricPath(statistic='count', group='md', variable='success')
        """
        head = keys[0]
        for key in keys:
            if (inside := _FILLED.search(key)) is not None:
                raise ValueError(
                    f"{shown(key)} has braces, which nothing fills in within a name: "
                    f"name each value, or compare with {inside[1]} itself"
                )
        if head == JOB and len(keys) > 1:
            if self.job is None or not self.job.names:
                raise ValueError(
                    f"{'.'.join(keys)!r} is of a job, and no job triggers this rule "
                    "(only those of 'job-*', 'drift' and 'anomaly')"
                )
            return self.job.resolve(keys)
        if head == IDLE and len(keys) > 1:
            return self._idle(keys)
        if head == BEST and len(keys) > 1 and keys[1] in self._bests:
            best, params = self._bests[keys[1]]
            return best.path(keys, params)
        if head in FAMILIES and len(keys) > 1 and (named := self._named.get(head)):
            if keys[1] not in named:
                noun, plural, _ = FAMILIES[head]
                known = listed(sorted(named))
                raise ValueError(f"no {noun} named {keys[1]!r} ({plural}: {known})")
            return named[keys[1]].path(keys)
        # A memo may have a key `nodes`, or `n`.
        bare = len(keys) == 1 and self.subject == "memo"
        of_member = (head in MEMBER_METRICS or head == RATE) and not bare
        of_stream = head in self._statistics and not (bare and head == NUMBER)
        if of_stream and (of_value := self._of_value(keys)) is not None:
            return of_value
        if head == COUNT or of_stream or of_member:
            path = self._metric(keys)
            reason = self.objection(path)
            if reason is not None:
                raise ValueError(reason)
            return path
        if self.subject == "memo" and (len(keys) == 1 or (head == "memo" and len(keys) == 2)):
            return keys[-1]
        name = ".".join(keys)
        job = self.job
        said = "" if job is None else meant(name, job.names, job.params, compared=self.compared)
        if said and not (self.ordered and name in COUNTERS):
            raise ValueError(f"no metric named {name!r}{said}")
        heads = sorted({*self._statistics, COUNT, RATE, *MEMBER_METRICS})
        raise ValueError(
            f"no metric named {name!r} ({self._meant(keys, heads)}metrics begin with: "
            f"{', '.join(heads)})"
        )

    def _of_value(self, keys: list[str]) -> OfValue | None:
        """Return the statistic for the values of the job itself: `mean['md-fom[t]']`."""
        match = _OF_VALUE.fullmatch(".".join(keys[1:]))
        if match is None:
            return None
        params = {name.strip() for name in match["params"].split(",")}
        for by in self._by:
            if match["name"] == f"{by.group}-{by.variable}" and params == set(by.params):
                for name in by.params:
                    if self.job is None or not self.job.names:
                        raise ValueError(
                            f"{'.'.join(keys)!r} is for the values of a job, and no job triggers "
                            f"this rule: write them, as in {by.form!r}"
                        )
                    self.job.resolve([JOB, PARAMS, name])
                return OfValue(keys[0], by)
        return None

    def _idle(self, keys: list[str]) -> IdleField:
        """Return how many of the jobs that an `idle` rule waited for went as the name says."""
        name = ".".join(keys)
        if self.job is None or self.job.trigger != IDLE:
            raise ValueError(
                f"{name!r} tells how the jobs went that a rule on 'idle' waited for, and this is "
                "no such rule: write 'count.GROUP.failed', or 'trigger: idle'"
            )
        if len(keys) != 2 or keys[1] not in IDLE_FIELDS:
            meant = hint(keys[1], IDLE_FIELDS)
            known = listed(f"{IDLE}.{field}" for field in IDLE_FIELDS)
            raise ValueError(f"no name {name!r} ({meant}names: {known})")
        return IdleField(keys[1])

    def _meant(self, keys: list[str], heads: list[str]) -> str:
        """Return the question about the metric that was probably meant; "" if there is none."""
        parts = [key for key in keys if key != COUNT]
        groups = [key for key in parts if key in self._groups]
        counters = [key for key in parts if key in COUNTERS]
        if counters and len(groups) + len(counters) == len(parts) and self._groups:
            group = groups[0] if groups else min(self._groups)
            return f"did you mean '{COUNT}.{group}.{counters[0]}'? "
        head = elsewhere(keys[0], heads)
        return "" if head is None or len(keys) == 1 else f"did you mean {head!r}? "

    def fitted(self, variable: Variable, value: Value) -> Value:
        """Return a literal in the form of the values of the variable that it is compared with.

        Raises:
            ValueError: the variable can never have this value.

        >>> names = Names(["md"], ["mean"], None, None)
        >>> names.fitted(JobField("outcome"), "failed")
        'failed'
        >>> names.fitted(MetricPath("count", "md", "success"), "many")
        Traceback (most recent call last):
        ValueError: 'count.md.success' is a number, and never the text 'many'
        """
        if isinstance(value, str) and (inside := _FILLED.fullmatch(value)) is not None:
            raise ValueError(
                f"nothing fills in {shown(value)} within a condition: write {inside[1]} without "
                "quotes and braces"
            )
        if isinstance(variable, JobField):
            return fitted(variable.name, value, str(variable))
        if isinstance(variable, (IdleField, OfValue)) or (
            isinstance(variable, MetricPath) and variable.statistic not in OF_NAMES
        ):
            return number(str(variable), value)
        return value

    def objection(self, path: MetricPath) -> str | None:
        """Return why a metric cannot be named in the rule; None if it can."""
        reason = not_of_member(path) if self._of_member else None
        if reason is None and self._pools is not None:
            reason = not_of_pool(path, self._pools)
        return reason

    def _metric(self, keys: list[str]) -> MetricPath:
        head = keys[0]
        try:
            return parse_path(".".join(keys), self._groups, self._statistics, self._by)
        except ValueError as error:
            # Among the metrics of the member, only those of the queue have a hyphen.
            if head not in (COUNT, RATE, "nodes", "time") and len(keys) == 2 and "-" not in keys[1]:
                group = keys[1] if keys[1] in self._groups else "GROUP"
                example = MEMBER_METRICS.get(head, (f"{group}-duration",))[0]
                # `mean.md-loss` is a difference to Python. A variable can be any memo.
                meant = re.search(_VARIABLE.format(head, re.escape(group)), self.text)
                example = meant[1] if head not in MEMBER_METRICS and meant else example
                raise ValueError(
                    f"{error}; in an expression a name with a hyphen is written in brackets: "
                    f"{head}['{example}']"
                ) from None
            raise
