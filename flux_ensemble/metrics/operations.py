"""The operations of expressions: values of operands, operators and functions.

A value is a number bounded by `numbers.finite`, text, or None for "no value". A number with its own
spelling, such as 1.10, is a number that also equals its text (`Spelled`). An empty cell of a sheet
is text where it is compared for equality, and else no value (`EMPTY`). An operation raises
`Unfit` for operands that it does not accept, and returns None if it has no result, as for a
division by zero.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.metrics.numbers import Number, finite
from flux_ensemble.scalars import EMPTY, Empty, Spelled, number

#: No float has more digits before or after the point.
_MAX_DIGITS = 308

#: The operands and results of operations; see above.
Value = Number | str | None


class Unfit(Exception):
    """A value that an expression cannot use, which makes a condition false."""


def taken(value: Any) -> Value:
    """Convert a value from outside to an operand.

    Raises:
        Unfit: the value is a list or a mapping.

    >>> taken("text"), taken(1.0), taken(float("nan"))
    ('text', 1.0, None)
    """
    kind = type(value)
    if kind is bool or kind is str or value is None or kind is Spelled or kind is Empty:
        return value
    if kind is int or kind is float:
        return finite(value)
    raise Unfit


def plain(value: Value) -> Value:
    """Return a value without its spelling; None for an empty cell.

    >>> plain(Spelled("1.10")), plain("1.10"), plain(EMPTY)
    (1.1, '1.10', None)
    """
    if value is EMPTY:
        return None
    return taken(number(value)) if type(value) is Spelled else value


def truth(value: Value) -> bool:
    """Return whether a value is true.

    Raises:
        Unfit: the value is text.

    >>> truth(0.5), truth(None)
    (True, False)
    """
    if type(value) is Spelled:
        value = plain(value)
    if type(value) is str:
        raise Unfit
    return bool(value)


def _not(value: Value) -> bool:
    return not truth(value)


def _arithmetic(compute: Callable[..., Number]) -> Callable[..., Value]:
    def bounded(*operands: Value) -> Value:
        kinds = [type(operand) for operand in operands]
        if Spelled in kinds or Empty in kinds:
            return bounded(*map(plain, operands))
        if None in operands:
            return None
        if str in kinds:
            raise Unfit
        try:
            return finite(compute(*operands))
        except (ArithmeticError, TypeError):
            # Examples: a division by zero; arguments that a function does not accept.
            return None

    return bounded


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    def guarded(left: Value, right: Value) -> bool:
        if left is None or right is None:
            return False
        if isinstance(left, str) or isinstance(right, str):
            left, right = plain(left), plain(right)
            if left is None or right is None:
                return False
            if type(left) is str or type(right) is str:
                raise Unfit
        return compare(left, right)

    return guarded


def same(left: Value, right: Value) -> bool:
    """Return whether two values are equal; a spelled number equals both its number and its text.

    >>> same(Spelled("1.10"), 1.1), same(Spelled("1.10"), "1.10"), same("1.10", 1.1)
    (True, True, False)
    """
    if (type(left) is Spelled and type(right) is not str) or (
        type(right) is Spelled and type(left) is not str
    ):
        left, right = plain(left), plain(right)
        return left is not None and left == right
    return left == right


def _equal(left: Value, right: Value) -> bool:
    return left is not None and right is not None and same(left, right)


def _unequal(left: Value, right: Value) -> bool:
    return left is not None and right is not None and not same(left, right)


def _in(left: Value, right: Any) -> bool:
    """Return whether a value is in a list of literals, or text is part of other text."""
    if left is None or right is None:
        return False
    if type(right) is tuple:
        return any(same(left, literal) for literal in right)
    if isinstance(left, str) and isinstance(right, str):
        return left in right
    raise Unfit


def _not_in(left: Value, right: Any) -> bool:
    return left is not None and right is not None and not _in(left, right)


def _round(number: Number, *digits: int) -> Number:
    if digits and not -_MAX_DIGITS <= digits[0] <= _MAX_DIGITS:
        raise TypeError
    return round(number, *digits)


def _floating(compute: Callable[..., float]) -> Callable[..., float]:
    """Return a function of `math` that returns NaN outside its domain, as for a logarithm of 0."""

    def guarded(*operands: float) -> float:
        try:
            return compute(*operands)
        except ValueError:
            return math.nan

    return guarded


#: Node of a syntax tree -> the function that computes it.
OPERATORS: Mapping[type[ast.AST], Callable[..., Value]] = {
    ast.Not: _not,
    ast.USub: _arithmetic(operator.neg),
    ast.UAdd: _arithmetic(operator.pos),
    ast.Add: _arithmetic(operator.add),
    ast.Sub: _arithmetic(operator.sub),
    ast.Mult: _arithmetic(operator.mul),
    ast.Div: _arithmetic(operator.truediv),
    ast.FloorDiv: _arithmetic(operator.floordiv),
    ast.Mod: _arithmetic(operator.mod),
    # Of floats, since powers of integers can have any number of digits.
    ast.Pow: _arithmetic(_floating(math.pow)),
    ast.Eq: _equal,
    ast.NotEq: _unequal,
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.In: _in,
    ast.NotIn: _not_in,
}
#: Name -> function.
FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "abs": _arithmetic(abs),
    "max": _arithmetic(max),
    "min": _arithmetic(min),
    "round": _arithmetic(_round),
    "floor": _arithmetic(math.floor),
    "ceil": _arithmetic(math.ceil),
    **{
        name: _arithmetic(_floating(getattr(math, name)))
        for name in ("sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan", "tanh", "pow")
    },
}
