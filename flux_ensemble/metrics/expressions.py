"""Expressions in conditions, compiled once to steps that a loop evaluates.

    text ──ast──► checked tree ──► steps ──evaluate──► true or false

Texts come from users, and some values from other people's jobs, so evaluation is bounded by
construction: one step for each part of the expression, and no recursion. A value is a number
bounded by `numbers.finite`, text, or None for "no value". No operation makes text, and the
results of arithmetic are bounded again.

A comparison with no value is false, and so is one with a division by zero or an overflow. Text can
only be compared for equality; any other use of it makes the whole expression false.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from flux_ensemble.metrics.numbers import Number, finite
from flux_ensemble.texts import shortened

#: Longest expression, in characters, and deepest nesting. Each term of a sum counts as a level.
MAX_LENGTH = 4096
MAX_DEPTH = 200

#: No float has more digits before or after the point.
_MAX_DIGITS = 308

#: What a name in an expression stands for.
Variable = TypeVar("Variable")

#: What operations take and return; see above.
Value = Number | str | None


class _Unfit(Exception):
    """A value that the expression cannot use, which makes it false."""


class Step(NamedTuple):
    """One step of an evaluation on a stack of values.

    Args:
        kind: "value" puts `what` on the stack, and "name" the value of the variable `what`.
            "call" replaces the last `number` values by what the function `what` gives for
            them. "and" and "or" go on at step `number` if the last value decides, and drop it
            if not. "chain" compares the last two values with `what`: it keeps the last one if
            that holds, and goes on at step `number` with False if not.
        what, number: as above.
    """

    kind: str
    what: Any = None
    number: int = 0


class Expression(Generic[Variable]):
    """An expression.

    Args:
        steps: the compiled steps.
        variables: what its names resolve to.
    """

    __slots__ = ("steps", "variables")

    def __init__(self, steps: tuple[Step, ...], variables: frozenset[Variable]) -> None:
        self.steps = steps
        self.variables = variables

    def holds(self, lookup: Callable[[Variable], Any]) -> bool:
        """Whether it is true.

        Args:
            lookup: returns the value of a variable, of any type.

        >>> expression = compile_expression("loss < 0.1 and steps >= 100", ".".join)
        >>> expression.holds({"loss": 0.05, "steps": 200}.get)
        True
        >>> expression.holds({"loss": 0.05}.get)
        False
        """
        steps, stack, at = self.steps, list[Any](), 0
        try:
            while at < len(steps):
                kind, what, number = steps[at]
                at += 1
                if kind == "call":
                    operands = stack[-number:]
                    del stack[-number:]
                    stack.append(what(*operands))
                elif kind == "name":
                    stack.append(_taken(lookup(what)))
                elif kind == "value":
                    stack.append(what)
                elif kind == "chain":
                    right, left = stack.pop(), stack.pop()
                    if what(left, right):
                        stack.append(right)
                    else:
                        stack.append(False)
                        at = number
                elif _truth(stack[-1]) is (kind == "or"):
                    at = number
                else:
                    stack.pop()
            return _truth(stack.pop())
        except _Unfit:
            return False


# -- values -----------------------------------------------------------------------------


def _taken(value: Any) -> Value:
    """A value from outside as an operand; lists and mappings cannot be used."""
    kind = type(value)
    if kind is bool or kind is str or value is None:
        return value
    if kind is int or kind is float:
        return finite(value)
    raise _Unfit


def _truth(value: Value) -> bool:
    if type(value) is str:
        raise _Unfit
    return bool(value)


def _not(value: Value) -> bool:
    return not _truth(value)


def _arithmetic(compute: Callable[..., Number]) -> Callable[..., Value]:
    def bounded(*operands: Value) -> Value:
        if None in operands:
            return None
        if str in map(type, operands):
            raise _Unfit
        try:
            return finite(compute(*operands))
        except (ArithmeticError, TypeError):
            # A division by zero, or arguments that a function does not take.
            return None

    return bounded


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    def guarded(left: Value, right: Value) -> bool:
        if left is None or right is None:
            return False
        if type(left) is str or type(right) is str:
            raise _Unfit
        return compare(left, right)

    return guarded


def _equal(left: Value, right: Value) -> bool:
    return left is not None and right is not None and left == right


def _unequal(left: Value, right: Value) -> bool:
    return left is not None and right is not None and left != right


def _round(number: Number, *digits: int) -> Number:
    if digits and not -_MAX_DIGITS <= digits[0] <= _MAX_DIGITS:
        raise TypeError
    return round(number, *digits)


_OPERATORS: Mapping[type[ast.AST], Callable[..., Value]] = {
    ast.Not: _not,
    ast.USub: _arithmetic(operator.neg),
    ast.UAdd: _arithmetic(operator.pos),
    ast.Add: _arithmetic(operator.add),
    ast.Sub: _arithmetic(operator.sub),
    ast.Mult: _arithmetic(operator.mul),
    ast.Div: _arithmetic(operator.truediv),
    ast.FloorDiv: _arithmetic(operator.floordiv),
    ast.Mod: _arithmetic(operator.mod),
    ast.Eq: _equal,
    ast.NotEq: _unequal,
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
}
_FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "abs": _arithmetic(abs),
    "max": _arithmetic(max),
    "min": _arithmetic(min),
    "round": _arithmetic(_round),
}


# -- compiling --------------------------------------------------------------------------


def compile_expression(text: str, resolve: Callable[[list[str]], Variable]) -> Expression[Variable]:
    """Compile an expression.

    Args:
        text: of at most MAX_LENGTH characters.
        resolve: returns the variable for the keys of a name: `a.b["c"]` has the keys a, b, c.

    Raises:
        SyntaxError, RecursionError, MemoryError: the text is not a Python expression.
        ValueError: it uses unsupported syntax, or `resolve` refuses a name.

    >>> sorted(compile_expression("max(a.b, c['d-e']) > 1", ".".join).variables)
    ['a.b', 'c.d-e']
    >>> compile_expression("open('file')", ".".join)
    Traceback (most recent call last):
    ValueError: 'open' is not a function of conditions (functions: abs, max, min, round)
    """
    tree = ast.parse(text, mode="eval").body
    _check_depth(tree)
    compiler = _Compiler(resolve)
    compiler.add(tree)
    return Expression(tuple(compiler.steps), frozenset(compiler.variables))


def _check_depth(tree: ast.expr) -> None:
    """Refuse a tree that is too deep for recursion.

    Raises:
        ValueError: it is too deep.
    """
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.expr)
        ]
        if not level:
            return
    raise ValueError(
        f"an expression nests at most {MAX_DEPTH} levels deep, where each term of a sum counts "
        "as one"
    )


class _Compiler(Generic[Variable]):
    """Turns a tree into steps, and refuses syntax that conditions do not have."""

    def __init__(self, resolve: Callable[[list[str]], Variable]) -> None:
        self._resolve = resolve
        self.steps: list[Step] = []
        self.variables: list[Variable] = []

    def add(self, node: ast.expr) -> None:
        """Add the steps that put the value of a node on the stack."""
        keys = _keys(node)
        if keys is not None:
            variable = self._resolve(keys)
            self.variables.append(variable)
            self.steps.append(Step("name", variable))
            return
        match node:
            case ast.Constant():
                self.steps.append(Step("value", _literal(node.value)))
            case ast.Call():
                self._call(node)
            case ast.UnaryOp():
                step = Step("call", _operation(node.op), 1)
                self.add(node.operand)
                self.steps.append(step)
            case ast.BinOp():
                step = Step("call", _operation(node.op), 2)
                self.add(node.left)
                self.add(node.right)
                self.steps.append(step)
            case ast.BoolOp():
                step = Step("or" if isinstance(node.op, ast.Or) else "and")
                *before, last = node.values
                jumps = [self._then(operand, step) for operand in before]
                self.add(last)
                self._land(jumps)
            case ast.Compare():
                *before, last = node.comparators
                *chained, operation = map(_operation, node.ops)
                self.add(node.left)
                jumps = [
                    self._then(operand, Step("chain", compare))
                    for operand, compare in zip(before, chained, strict=True)
                ]
                self._then(last, Step("call", operation, 2))
                self._land(jumps)
            case _:
                raise _refusal(node)

    def _then(self, node: ast.expr, step: Step) -> int:
        """Add a node and a step after it; returns the step's index."""
        self.add(node)
        self.steps.append(step)
        return len(self.steps) - 1

    def _land(self, jumps: list[int]) -> None:
        """Let the steps at these indices jump to the end of the steps so far."""
        for place in jumps:
            self.steps[place] = self.steps[place]._replace(number=len(self.steps))

    def _call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in _FUNCTIONS:
            raise ValueError(
                f"{shortened(repr(ast.unparse(node.func)))} is not a function of conditions "
                f"(functions: {', '.join(_FUNCTIONS)})"
            )
        if node.keywords or not node.args:
            raise ValueError(f"{name}() takes one or more plain arguments")
        for argument in node.args:
            self.add(argument)
        self.steps.append(Step("call", _FUNCTIONS[name], len(node.args)))


def _operation(node: ast.AST) -> Callable[..., Value]:
    operation = _OPERATORS.get(type(node))
    if operation is None:
        raise _refusal(node)
    return operation


def _refusal(node: ast.AST) -> ValueError:
    what = ast.unparse(node) or type(node).__name__
    return ValueError(f"{shortened(repr(what))} is not allowed in a condition")


def _literal(value: Any) -> Value:
    """The value of a literal.

    Raises:
        ValueError: it is neither text nor a finite number.
    """
    if isinstance(value, (bool, str)):
        return value
    number = finite(value) if isinstance(value, (int, float)) else None
    if number is None:
        raise ValueError(f"{shortened(repr(value))} is not allowed in a condition")
    return number


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
