"""Expressions in conditions and actions, compiled once to steps that a loop evaluates.

    text ──ast──► checked tree ──► steps ──evaluate──► value, or true or false

Texts come from users, and some values from other people's jobs, so evaluation is bounded by
construction: one step for each part of the expression, and no recursion. No operation makes text,
and the results of arithmetic are bounded (`operations`).

A comparison with no value is false, and so is one with a division by zero or an overflow. Text can
only be compared for equality, and searched for with `in`. Any other use of text makes a whole
condition false, and is an error if a value is needed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from flux_ensemble.metrics.hints import bracketed, in_seconds, remedy
from flux_ensemble.metrics.keywords import parsed, parsed_with_keywords
from flux_ensemble.metrics.numbers import finite
from flux_ensemble.metrics.operations import (
    FUNCTIONS,
    OPERATORS,
    Unfit,
    Value,
    taken,
    truth,
)
from flux_ensemble.texts import shortened

#: The longest expression, in characters, and the deepest nesting. Each term of a sum counts as a
#: level.
MAX_LENGTH = 4096
MAX_DEPTH = 200

#: The meaning of a name in an expression.
Variable = TypeVar("Variable")


class Step(NamedTuple):
    """A step of an evaluation on a stack of values.

    Args:
        kind: "value" pushes `what`, and "name" pushes the value of the variable `what`.
            "call" replaces the last `number` values by the result of the function `what` for
            them. "and" and "or" jump to step `number` if the last value decides, and drop it
            if not. "chain" compares the last two values with `what`: if the comparison holds it
            keeps the last one; if not, it pushes False and jumps to step `number`.
        what, number: as above.
    """

    kind: str
    what: Any = None
    number: int = 0


class Expression(Generic[Variable]):
    """A compiled expression.

    Args:
        steps: the compiled steps.
        variables: the variables to which the names resolve.
    """

    __slots__ = ("steps", "variables")

    def __init__(self, steps: tuple[Step, ...], variables: frozenset[Variable]) -> None:
        self.steps = steps
        self.variables = variables

    def holds(self, lookup: Callable[[Variable], Any]) -> bool:
        """Return whether the expression is true.

        Args:
            lookup: returns the value of a variable, of any type.

        >>> expression = compile_expression("loss < 0.1 and steps >= 100", ".".join)
        >>> expression.holds({"loss": 0.05, "steps": 200}.get)
        True
        >>> expression.holds({"loss": 0.05}.get)
        False
        """
        try:
            return truth(self._evaluate(lookup))
        except Unfit:
            return False

    def value(self, lookup: Callable[[Variable], Any]) -> Value:
        """Return the value; None if there is none, as after a division by zero.

        Args:
            lookup: returns the value of a variable, of any type.

        Raises:
            ValueError: the expression computes with text, or a variable is a list or a mapping.

        >>> compile_expression("steps * 2", ".".join).value({"steps": 200}.get)
        400
        >>> compile_expression("mode * 2", ".".join).value({"mode": "fast"}.get)
        Traceback (most recent call last):
        ValueError: it computes with text, a list or a mapping
        """
        try:
            return self._evaluate(lookup)
        except Unfit:
            raise ValueError("it computes with text, a list or a mapping") from None

    def _evaluate(self, lookup: Callable[[Variable], Any]) -> Value:
        steps, stack, at = self.steps, list[Any](), 0
        while at < len(steps):
            kind, what, number = steps[at]
            at += 1
            if kind == "call":
                operands = stack[-number:]
                del stack[-number:]
                stack.append(what(*operands))
            elif kind == "name":
                stack.append(taken(lookup(what)))
            elif kind == "value":
                stack.append(what)
            elif kind == "chain":
                right, left = stack.pop(), stack.pop()
                if what(left, right):
                    stack.append(right)
                else:
                    stack.append(False)
                    at = number
            elif truth(stack[-1]) is (kind == "or"):
                at = number
            else:
                stack.pop()
        value: Value = stack.pop()
        return value


# -- compiling --------------------------------------------------------------------------


def compile_expression(
    text: str,
    resolve: Callable[[list[str]], Variable],
    fitted: Callable[[Variable, Value], Value] | None = None,
) -> Expression[Variable]:
    """Compile an expression.

    Args:
        text: the expression, of at most MAX_LENGTH characters.
        resolve: returns the variable for the keys of a name: `a.b["c"]` has the keys a, b, c.
        fitted: returns a literal that a variable is compared with in the form of the variable's
            values, or raises ValueError if the variable can never have that value.

    Raises:
        SyntaxError, RecursionError, MemoryError: the text is not a Python expression.
        ValueError: the text uses unsupported syntax, or `resolve` refuses a name, or `fitted` a
            literal.

    >>> sorted(compile_expression("max(a.b, c['d-e']) > 1", ".".join).variables)
    ['a.b', 'c.d-e']
    >>> compile_expression("math.sqrt(x)", ".".join)
    Traceback (most recent call last):
    ValueError: 'math.sqrt' is not a function of conditions (write sqrt)
    """
    compiler = _Compiler(text, resolve, fitted)
    compiler.add(_tree(text))
    return Expression(tuple(compiler.steps), frozenset(compiler.variables))


@lru_cache(maxsize=16)
def _tree(text: str) -> ast.expr:
    """Return the tree of an expression that is not too deep.

    Large documents repeat expressions, so trees are cached. A tree can take a megabyte, so few are
    kept.
    """
    tree = parse_expression(text)
    _check_depth(tree)
    return tree


def parse_expression(text: str) -> ast.expr:
    """Return Python's syntax tree of an expression, in which keywords may follow a dot.

    Raises:
        SyntaxError, RecursionError, MemoryError: the text is not a Python expression.

    >>> ast.unparse(parse_expression("a>1"))
    'a > 1'
    >>> keys_of(parse_expression("memo.yield"))
    ['memo', 'yield']
    """
    try:
        return parsed(text)
    except SyntaxError:
        tree = parsed_with_keywords(text)
        if tree is None:
            raise
        return tree


def _check_depth(tree: ast.expr) -> None:
    """Refuse a tree that is too deep for recursion.

    Raises:
        ValueError: the tree is too deep.
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
    """Compiles a tree to steps, and refuses syntax that conditions do not have."""

    def __init__(
        self,
        text: str,
        resolve: Callable[[list[str]], Variable],
        fitted: Callable[[Variable, Value], Value] | None,
    ) -> None:
        self._text = text
        self._resolve = resolve
        self._fitted = fitted
        self.steps: list[Step] = []
        self.variables: list[Variable] = []

    def add(self, node: ast.expr) -> None:
        """Add the steps that put the value of a node on the stack."""
        keys = keys_of(node)
        if keys is not None:
            variable = self._variable(keys)
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
                self._compare(node)
            case _:
                raise _refusal(node, self._text)

    def _compare(self, node: ast.Compare) -> None:
        if any(
            isinstance(one, ast.Constant) and one.value is None
            for one in (node.left, *node.comparators)
        ):
            _literal(None)
        *chained, operation = map(_operation, node.ops)
        if any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops[:-1]):
            raise _refusal(node)
        first, *before, last = self._operands(node)
        self.add(first)
        jumps = [
            self._then(operand, Step("chain", compare))
            for operand, compare in zip(before, chained, strict=True)
        ]
        if isinstance(node.ops[-1], (ast.In, ast.NotIn)) and isinstance(
            last, (ast.Tuple, ast.List)
        ):
            literals = tuple(_literal(_constant(item)) for item in last.elts)
            self.steps += [Step("value", literals), Step("call", operation, 2)]
        else:
            self._then(last, Step("call", operation, 2))
        self._land(jumps)

    def _operands(self, node: ast.Compare) -> list[ast.expr]:
        """Return the operands of a comparison, with literals fitted to the variables they meet."""
        operands = [node.left, *node.comparators]
        for place, operator in enumerate(node.ops):
            left, right = operands[place : place + 2]
            if isinstance(operator, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
                _check_ordered(left, right)
            elif isinstance(operator, (ast.Eq, ast.NotEq)):
                operands[place : place + 2] = self._fit(right, left), self._fit(left, right)
            elif isinstance(right, (ast.Tuple, ast.List)):
                items = [self._fit(left, item) for item in right.elts]
                operands[place + 1] = ast.Tuple(items)
        return operands

    def _fit(self, node: ast.expr, other: ast.expr) -> ast.expr:
        """Return `other`, a literal fitted to the variable `node`, or an unchanged expression."""
        keys = keys_of(node)
        if keys is None or self._fitted is None:
            return other
        try:
            literal = _literal(_constant(other))
        except ValueError:
            # `other` is no literal, or it is refused when it is compiled.
            return other
        return ast.Constant(self._fitted(self._variable(keys), literal))

    def _variable(self, keys: list[str]) -> Variable:
        try:
            return self._resolve(keys)
        except ValueError as error:
            remedy = bracketed(self._text, keys, self._is_known)
            if not remedy:
                raise
            raise ValueError(remedy) from error

    def _is_known(self, keys: list[str]) -> bool:
        try:
            self._resolve(keys)
        except ValueError:
            return False
        return True

    def _then(self, node: ast.expr, step: Step) -> int:
        """Add a node and a step after it; return the step's index."""
        self.add(node)
        self.steps.append(step)
        return len(self.steps) - 1

    def _land(self, jumps: list[int]) -> None:
        """Let the steps at these indices jump to the end of the steps so far."""
        for place in jumps:
            self.steps[place] = self.steps[place]._replace(number=len(self.steps))

    def _call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS:
            written = ast.unparse(node.func)
            last = written.rpartition(".")[2]
            known = f"write {last}" if last in FUNCTIONS else f"functions: {', '.join(FUNCTIONS)}"
            raise ValueError(
                f"{shortened(repr(written))} is not a function of conditions ({known})"
            )
        if node.keywords or not node.args:
            raise ValueError(f"{name}() takes one or more plain arguments")
        for argument in node.args:
            self.add(argument)
        self.steps.append(Step("call", FUNCTIONS[name], len(node.args)))


def _check_ordered(*operands: ast.expr) -> None:
    """Refuse text among the operands of an order comparison.

    Raises:
        ValueError: an operand is text.
    """
    for operand in operands:
        if isinstance(operand, ast.Constant) and isinstance(operand.value, str):
            written = in_seconds(operand.value)
            number = "a number stands without quotes"
            if written is not None and written[0] == operand.value.strip():
                number = f"write {written[1]:g}, in seconds"
            raise ValueError(
                f"{shortened(repr(operand.value))} is text, which is neither smaller nor larger "
                f"than anything ({number})"
            )


def _operation(node: ast.AST) -> Callable[..., Value]:
    operation = OPERATORS.get(type(node))
    if operation is None:
        raise _refusal(node)
    return operation


def _constant(node: ast.expr) -> Any:
    """Return the value of a literal, which may have a sign.

    Raises:
        ValueError: the node is no literal.
    """
    if isinstance(node, ast.Constant):
        return node.value
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        raise _refusal(node) from None


def _refusal(node: ast.AST, text: str = "") -> ValueError:
    if isinstance(node, ast.MatMult):
        return ValueError(
            "'@' is not allowed in an expression; a name that has it is written in brackets, such "
            "as count['GROUP.success@POOL']"
        )
    if isinstance(node, ast.Name):
        text = f"{shortened(repr(node.id))} is not allowed in a list of an expression"
        return ValueError(f"{text} (text is written in quotes)")
    if isinstance(node, ast.Set) and all(isinstance(one, ast.Constant) for one in node.elts):
        listing = ", ".join(map(ast.unparse, node.elts))
        return ValueError(
            f"'{{{listing}}}' is not allowed in an expression (a list has brackets: [{listing}])"
        )
    # As it is written: 1,000 is a list of two numbers to Python, of which the second is 0.
    source = ast.get_source_segment(text, node) if isinstance(node, ast.expr) and text else None
    what = _WRITTEN.get(type(node)) or source or ast.unparse(node) or type(node).__name__
    said = f"{shortened(repr(what))} is not allowed in an expression"
    return ValueError(f"{said}{remedy(what)}")


#: Operators that expressions do not have -> their written form.
_WRITTEN: dict[type[ast.AST], str] = {
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.Invert: "~",
}


def _literal(value: Any) -> Value:
    """Return the value of a literal.

    Raises:
        ValueError: the value is neither text nor a finite number.
    """
    if isinstance(value, (bool, str)):
        return value
    if value is None:
        raise ValueError(
            "None is not allowed in an expression (each comparison with a value that is missing is "
            "false, so 'x == x' asks whether there is one)"
        )
    number = finite(value) if isinstance(value, (int, float)) else None
    if number is None:
        raise ValueError(f"{shortened(repr(value))} is not allowed in an expression")
    return number


def keys_of(node: ast.AST) -> list[str] | None:
    """Return the keys of `a.b`, `a['b']` or a mixture, from the left; None for other nodes.

    >>> keys_of(parse_expression("a['b-c'].d"))
    ['a', 'b-c', 'd']
    """
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        left, key = keys_of(node.value), node.attr
    elif (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    ):
        left, key = keys_of(node.value), node.slice.value
    else:
        return None
    return None if left is None else [*left, key]
