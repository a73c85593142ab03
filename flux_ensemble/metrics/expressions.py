"""Expressions of conditions: compiled once to steps, which a loop evaluates.

    text ──ast──► checked tree ──► steps ──evaluate──► true or false

The text is a user's and some of the values are of other people's jobs, so an evaluation is
bounded by its construction. It has as many steps as the expression has parts, and no
recursion. A value is a number that `numbers.finite` bounds, text, or None, which is "no
value": no operation makes text, and what comes of arithmetic is bounded again.

No value makes a comparison false, and so do a division by zero and what is too large for a
float. Text can be equal to something or not. Where it is to be anything else, the expression
is false as a whole.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from flux_ensemble.metrics.numbers import Number, finite
from flux_ensemble.texts import shortened

#: Longest expression that is accepted, in characters, and how deep it may nest. Each term of a
#: sum nests one level deeper than the one after it.
MAX_LENGTH = 4096
MAX_DEPTH = 200

#: More digits than these, before or after the point, no number has.
_MAX_DIGITS = 308

#: What a name in an expression stands for.
Variable = TypeVar("Variable")

#: What an operation takes and gives: see the description of this module.
Value = Number | str | None


class _Unfit(Exception):
    """A value that the expression cannot use, so that it is false."""


class Step(NamedTuple):
    """One step of an evaluation, which works on a stack of values.

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
        steps: how it is evaluated.
        variables: what its names stand for.
    """

    __slots__ = ("steps", "variables")

    def __init__(self, steps: tuple[Step, ...], variables: frozenset[Variable]) -> None:
        self.steps = steps
        self.variables = variables

    def holds(self, lookup: Callable[[Variable], Any]) -> bool:
        """Whether it is true.

        Args:
            lookup: gives the value of a variable, whatever that is.

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
    """A value from outside as an expression takes it; lists and mappings are of no use."""
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
        resolve: gives what a name stands for, by its keys: `a.b["c"]` has the keys a, b, c.

    Raises:
        SyntaxError, RecursionError, MemoryError: the text is no expression of Python.
        ValueError: it has what expressions of conditions do not have, or `resolve` refuses it.

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
    """Refuse what is too deep to be walked through by recursion.

    Raises:
        ValueError: it is.
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
    """Makes steps of a tree, and refuses other syntax than that of conditions."""

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
        """Add a node, and a step after it; where that is."""
        self.add(node)
        self.steps.append(step)
        return len(self.steps) - 1

    def _land(self, jumps: list[int]) -> None:
        """Have the steps at these places go on after what is there by now."""
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
        ValueError: it is neither text nor a number that is finite as a float.
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
