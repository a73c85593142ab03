"""The terms of a condition: the parts joined by `and` in a `when`, and the metrics each one reads.

Conditions are compiled and evaluated as a whole (`metrics.conditions`). Terms serve explanations
for people: the part of a condition that does not hold yet, and the part that can never hold.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from flux_ensemble.metrics.conditions import split_comparison
from flux_ensemble.metrics.expressions import parse_expression

_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}

#: Operator -> the operator for exchanged sides.
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


class Comparison(NamedTuple):
    """A comparison of a metric with a number."""

    name: str
    operator: str
    number: float


class Term(NamedTuple):
    """A term of a condition.

    Attributes:
        text: the term.
        names: the names that the term reads, such as `count.a.success`.
        comparison: the comparison, if the term is just that of one name with a number.
    """

    text: str
    names: tuple[str, ...]
    comparison: Comparison | None


@lru_cache(maxsize=2048)
def terms_of(when: float | str, name: str | None = None) -> tuple[Term, ...]:
    """Return the terms of a `when` that compiles; a single one if it has no `and`.

    Args:
        when: the `when` of a document.
        name: the rule's metric, which a number or a comparison is about.

    >>> terms_of("> 5", "mean.a-duration")[0].text
    'mean.a-duration > 5'
    >>> [(term.text, term.names) for term in terms_of("3 <= count.a.success and not mean['a-x']")]
    [('3 <= count.a.success', ('count.a.success',)), ("not mean['a-x']", ('mean.a-x',))]
    """
    compared = split_comparison(when)
    if compared is not None:
        operator, number = compared
        term = Comparison(name or "", operator, number)
        return (Term(f"{name} {operator} {number:g}", (term.name,), term),)
    text = str(when).strip()
    tree = parse_expression(text)
    both = isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And)
    parts = tree.values if isinstance(tree, ast.BoolOp) and both else [tree]
    return tuple(
        Term(
            ast.get_source_segment(text, part) or ast.unparse(part),
            tuple(dict.fromkeys(_names(part))),
            _comparison(part),
        )
        for part in parts
    )


def _comparison(node: ast.expr) -> Comparison | None:
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    operator = _OPERATORS.get(type(node.ops[0]))
    left, right = node.left, node.comparators[0]
    if operator is None:
        return None
    if isinstance(left, ast.Constant):
        left, right, operator = right, left, _TURNED[operator]
    keys = _keys(left)
    if not keys or not isinstance(right, ast.Constant) or type(right.value) not in (int, float):
        return None
    return Comparison(".".join(keys), operator, float(right.value))  # type: ignore[arg-type]


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a part of an expression reads, without those of functions."""
    keys = _keys(node)
    if keys:
        yield ".".join(keys)
        return
    below = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    for child in below:
        yield from _names(child)


def _keys(node: ast.AST) -> list[str]:
    """Return the keys of a name such as `count["a-b"].success`; [] for any other node."""
    keys: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            keys.append(node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            keys.append(str(node.slice.value))
        elif isinstance(node, ast.Name):
            return [node.id, *reversed(keys)]
        else:
            return []
        node = node.value
