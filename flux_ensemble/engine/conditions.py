"""Conditions: what `when` says, compiled once and evaluated often.

Three forms: a number (equality), a comparison with a number ("> 5.5"), and an
expression over metrics ("count.a.success >= 3 and mean['a-duration'] < 60").

An expression is checked against a short list of allowed syntax, each metric in it is
replaced by a plain name, and simpleeval evaluates it, so that the sandbox only ever sees
numbers, names and operators. A metric that is empty (None), a division by zero and
operands of unlike types make a comparison false.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from simpleeval import DEFAULT_OPERATORS, InvalidExpression, SimpleEval

from flux_ensemble.engine.paths import COUNT, MetricPath, parse_path
from flux_ensemble.spec.model import MEMBER_METRICS

#: Longest expression that is accepted, in characters.
MAX_LENGTH = 4096

Lookup = Callable[[MetricPath], float | None]
Subject = Literal["metric", "memo"] | None

#: What a `when` looks at besides metrics, by trigger.
SUBJECTS: Mapping[str, Subject] = {"metric": "metric", "job-memo": "memo"}

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
    r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*"
)
_ALLOWED = (
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.USub,
    ast.UAdd,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.Call,
)


def _none_is_false(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    def guarded(left: Any, right: Any) -> bool:
        return left is not None and right is not None and bool(compare(left, right))

    return guarded


def _none_is_none(compute: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*operands: Any) -> Any:
        if any(operand is None for operand in operands):
            return None
        try:
            return compute(*operands)
        except ZeroDivisionError:
            return None

    return guarded


_COMPARING = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_OPERATORS = {
    kind: function
    if kind is ast.Not
    else (_none_is_false if kind in _COMPARING else _none_is_none)(function)
    for kind, function in DEFAULT_OPERATORS.items()
    if issubclass(kind, _ALLOWED)
}
_FUNCTIONS = {
    "abs": _none_is_none(abs),
    "max": _none_is_none(max),
    "min": _none_is_none(min),
    "round": _none_is_none(round),
}


class Condition:
    """A compiled `when`.

    Attributes:
        text: as the document has it.
        paths: the metrics that an expression reads.
        compares: it compares a subject (the rule's metric) with a number.
    """

    __slots__ = (
        "_compare",
        "_evaluator",
        "_number",
        "_tree",
        "_variables",
        "compares",
        "paths",
        "text",
    )

    def __init__(
        self,
        text: str,
        *,
        compare: Callable[[Any, Any], bool] | None = None,
        number: float = 0.0,
        tree: ast.expr | None = None,
        variables: Mapping[str, MetricPath | str] | None = None,
    ) -> None:
        self.text = text
        self.compares = compare is not None
        self._compare = compare
        self._number = number
        self._tree = tree
        self._variables = dict(variables or {})
        self.paths = frozenset(
            variable for variable in self._variables.values() if isinstance(variable, MetricPath)
        )
        self._evaluator = SimpleEval(operators=_OPERATORS, functions=_FUNCTIONS)

    def holds(
        self, value: float | None, lookup: Lookup, memo: Mapping[str, Any] | None = None
    ) -> bool:
        """Whether the condition holds.

        Args:
            value: the value of the rule's own metric, for a number or a comparison.
            lookup: gives the value of a metric, None where it is empty.
            memo: the keys of a memo event, which an expression may name.
        """
        if self._compare is not None:
            return value is not None and self._compare(value, self._number)
        self._evaluator.names = {
            name: lookup(variable)
            if isinstance(variable, MetricPath)
            else (memo or {}).get(variable)
            for name, variable in self._variables.items()
        }
        try:
            return bool(self._evaluator.eval(self.text, previously_parsed=self._tree))
        except (InvalidExpression, TypeError, ValueError, ArithmeticError, RecursionError):
            return False


def compile_condition(
    when: float | str,
    *,
    groups: Collection[str],
    statistics: Collection[str],
    subject: Subject,
) -> Condition:
    """Compile a `when`.

    Args:
        when: a number, a comparison with a number, or an expression.
        groups: names of the job groups.
        statistics: names of the statistics that are kept.
        subject: what a rule of this trigger looks at: "metric" has a value to compare,
            "memo" has the keys of a memo, None has nothing of its own.

    Raises:
        ValueError: the text does not parse, or names what does not exist.
    """
    if isinstance(when, bool) or not isinstance(when, (int, float, str)):
        raise ValueError(f"expected a number, a comparison or an expression, not {when!r}")
    match = _COMPARISON.fullmatch(str(when))
    if match is not None:
        if subject != "metric":
            raise ValueError(
                f"{when!r} compares the metric of a metric rule; "
                f"this trigger has none, so write an expression such as 'count.GROUP.success > 3'"
            )
        number = float(match["number"])
        if not math.isfinite(number):
            raise ValueError(f"expected a finite number, not {when!r}")
        compare = _COMPARISONS[match["operator"] or "=="]
        return Condition(str(when), compare=compare, number=number)
    text = str(when).strip()
    if len(text) > MAX_LENGTH:
        raise ValueError(f"an expression has at most {MAX_LENGTH} characters, not {len(text)}")
    try:
        reader = _References(groups, statistics, subject)
        tree = reader.visit(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"expected a number, a comparison such as '> 5', or an expression such as "
            f"'count.GROUP.success >= 3', not {when!r}"
        ) from error
    return Condition(text, tree=tree, variables=reader.variables)


class _References(ast.NodeTransformer):
    """Replaces each metric in an expression by a name, and refuses other syntax."""

    def __init__(
        self, groups: Collection[str], statistics: Collection[str], subject: Subject
    ) -> None:
        self._groups = groups
        self._statistics = statistics
        self._subject = subject
        self.variables: dict[str, MetricPath | str] = {}

    def visit(self, node: ast.AST) -> Any:
        keys = _keys(node)
        if keys is not None:
            return self._reference(keys)
        if isinstance(node, ast.Call):
            return self._call(node)
        if not isinstance(node, _ALLOWED):
            shown = ast.unparse(node) or type(node).__name__
            raise ValueError(f"{shown!r} is not allowed in a condition")
        if isinstance(node, ast.Constant) and (
            not isinstance(node.value, (int, float, str)) or node.value in (math.inf, -math.inf)
        ):
            raise ValueError(f"{node.value!r} is not allowed in a condition")
        return self.generic_visit(node)

    def _call(self, node: ast.Call) -> ast.Call:
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
            raise ValueError(
                f"{ast.unparse(node.func)!r} is not a function of conditions "
                f"(functions: {', '.join(_FUNCTIONS)})"
            )
        if node.keywords or not node.args:
            raise ValueError(f"{node.func.id}() takes one or more plain arguments")
        node.args = [self.visit(argument) for argument in node.args]
        return node

    def _reference(self, keys: list[str]) -> ast.Name:
        head = keys[0]
        # A memo may well have a key `nodes`.
        of_member = head in MEMBER_METRICS and (len(keys) > 1 or self._subject != "memo")
        if head == COUNT or head in self._statistics or of_member:
            variable: MetricPath | str = self._metric(keys)
        elif self._subject == "memo" and (len(keys) == 1 or (head == "memo" and len(keys) == 2)):
            variable = keys[-1]
        else:
            known = ", ".join(sorted({*self._statistics, COUNT, *MEMBER_METRICS}))
            raise ValueError(f"no metric named {'.'.join(keys)!r} (metrics begin with: {known})")
        name = f"v{len(self.variables)}"
        self.variables[name] = variable
        return ast.Name(id=name, ctx=ast.Load())

    def _metric(self, keys: list[str]) -> MetricPath:
        head = keys[0]
        try:
            return parse_path(".".join(keys), self._groups, self._statistics)
        except ValueError as error:
            # Of the metrics of the member, only those of the queue have a hyphen.
            if head not in (COUNT, "nodes") and len(keys) == 2 and "-" not in keys[1]:
                example = MEMBER_METRICS.get(head, ("GROUP-duration",))[0]
                raise ValueError(
                    f"{error}; in an expression a name with a hyphen is written in brackets: "
                    f"{head}['{example}']"
                ) from None
            raise


def _keys(node: ast.AST) -> list[str] | None:
    """The keys of `a.b`, `a['b']` or a mixture, from the left; None for other nodes."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        left, key = _keys(node.value), node.attr
    elif (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    ):
        left, key = _keys(node.value), node.slice.value
    else:
        return None
    return None if left is None else [*left, key]
