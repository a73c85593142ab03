"""Constraints on the outcomes of trials: `subject-to: mass <= 3`.

A constraint is a comparison, or a chain of them, and names keys of memos and variables. Its
violation is a number: by how much it does not hold, here `mass` - 3. It is 0 or less if it holds.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from flux_ensemble.metrics.expressions import (
    Expression,
    compile_expression,
    parse_expression,
)
from flux_ensemble.metrics.numbers import finite
from flux_ensemble.texts import listed, shown

#: The first key of a name that is the key of a memo in brackets: `memo["val-loss"]`.
_MEMO = "memo"

#: Comparisons that have a distance, and those whose left side is to be the smaller one.
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_BELOW = (ast.Lt, ast.LtE)

#: The violation of `a < b` if both are equal: more than 0, and less than any other.
_EQUAL = sys.float_info.min


class Name(NamedTuple):
    """A name in a constraint: a variable, or the key of a memo."""

    key: str
    is_variable: bool


class OutcomeConstraint:
    """A constraint on what a trial comes to.

    Args:
        text: the expression.
        variables: the names of the search's variables.

    Attributes:
        keys: the keys of the memo that it names, in their order.

    Raises:
        SyntaxError, RecursionError, MemoryError: the text is not a Python expression.
        ValueError: it is no such constraint.

    >>> mass = OutcomeConstraint("1 <= mass <= 2 * layers", ["layers"])
    >>> mass.keys, mass.violation({"layers": 1}, {"mass": 2.5})
    (('mass',), 0.5)
    >>> mass.violation({"layers": 2}, {"mass": 2.5})
    -1.5
    """

    def __init__(self, text: str, variables: Sequence[str]) -> None:
        self.text = text
        self._variables = variables
        whole = compile_expression(text, self._resolve)
        tree = parse_expression(text)
        if not isinstance(tree, ast.Compare) or not all(isinstance(op, _ORDERS) for op in tree.ops):
            raise ValueError(
                f"expected a comparison such as 'mass <= 3', which has a distance, not "
                f"{shown(text)}{_instead(tree)}"
            )
        self.keys = tuple(sorted(one.key for one in whole.variables if not one.is_variable))
        if not self.keys:
            raise ValueError(
                "it names nothing that a trial publishes, and variables alone are for 'where'"
            )
        sides = [tree.left, *tree.comparators]
        self._distances: list[tuple[Expression[Name], bool]] = []
        for operator, left, right in zip(tree.ops, sides, sides[1:], strict=False):
            below, above = (left, right) if isinstance(operator, _BELOW) else (right, left)
            distance = ast.unparse(ast.BinOp(below, ast.Sub(), above))
            strict = isinstance(operator, (ast.Lt, ast.Gt))
            self._distances.append((compile_expression(distance, self._resolve), strict))

    def _resolve(self, keys: list[str]) -> Name:
        if len(keys) == 1:
            return Name(keys[0], keys[0] in self._variables)
        if keys[0] == _MEMO and len(keys) == 2:
            return Name(keys[1], False)
        raise ValueError(
            f"no name {shown('.'.join(keys))} (names are keys of memos, such as mass or "
            f"memo['val-loss'], and variables: {listed(self._variables)})"
        )

    def check(self, params: Mapping[str, Any]) -> None:
        """Check that it computes with numbers.

        Args:
            params: a value of each variable.

        Raises:
            ValueError: it does not.
        """
        for expression, _ in self._distances:
            expression.value(lambda name: params.get(name.key, 1.0) if name.is_variable else 1.0)

    def violation(self, params: Mapping[str, Any], memo: Mapping[str, Any]) -> float:
        """Return by how much the constraint does not hold; 0 or less if it holds.

        One that names a variable which the trial does not have does not apply: 0.

        Args:
            params: the values of the variables that the trial has.
            memo: what its job has published.

        Raises:
            ValueError: that is unknown; the text is the reason.
        """
        for expression, _ in self._distances:
            if any(one.is_variable and params.get(one.key) is None for one in expression.variables):
                return 0.0
        known: dict[Name, Any] = {
            Name(key, False): published(memo, key, or_boolean=True) for key in self.keys
        }

        def lookup(name: Name) -> Any:
            return params[name.key] if name.is_variable else known[name]

        violations = []
        for expression, strict in self._distances:
            distance = expression.value(lookup)
            if not isinstance(distance, (bool, int, float)):
                raise ValueError(f"{self.text!r} has no value, as after a division by zero")
            violations.append(_EQUAL if strict and not distance else float(distance))
        return max(violations)


def published(memo: Mapping[str, Any], key: str, *, or_boolean: bool = False) -> float:
    """Return a number that a job has published.

    Args:
        memo: what it has published.
        key: of the number.
        or_boolean: it may be true or false.

    Raises:
        ValueError: there is no finite number.
    """
    given = memo.get(key)
    if or_boolean and type(given) is bool:
        return given
    value = finite(given) if type(given) in (int, float) else None
    if value is None:
        others = f", but {listed(memo)}" if memo and given is None else ""
        raise ValueError(f"it published no number {key!r}{others}")
    return value


def _instead(tree: ast.expr) -> str:
    """Return what to write in place of an expression that has no distance, in parentheses."""
    match tree:
        case ast.Compare(left, [ast.Eq()], [right]):
            both = ast.unparse(ast.BinOp(left, ast.Sub(), right))
            return f" (an equation has a tolerance: 'abs({both}) <= 0.01')"
        case ast.BoolOp(ast.And()):
            return " (several constraints are a list)"
        case ast.Name() | ast.Attribute() | ast.Subscript():
            return f" (of true and false: '{ast.unparse(tree)} >= 1')"
    return ""


def violated(violations: Sequence[float]) -> float:
    """Return by how much a trial violates its constraints in all; 0 if it is feasible.

    >>> violated([0.5, -3.0, 1.0]), violated([-1.0]), violated([])
    (1.5, 0, 0)
    """
    return sum(one for one in violations if one > 0)


@lru_cache(maxsize=64)
def outcomes_of(
    texts: tuple[str, ...], variables: tuple[str, ...]
) -> tuple[OutcomeConstraint, ...]:
    """Return the constraints of a search."""
    return tuple(OutcomeConstraint(text, variables) for text in texts)
