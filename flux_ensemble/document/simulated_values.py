"""Values of simulated jobs that are computed from their parameters: `expression` under `memo`.

    memo: {loss: {expression: "(log10(lr) + 3) ** 2 + exp(-epoch / 9)", step: epoch, steps: 27}}

The language is that of conditions, with the functions of calculus and powers besides: a document is
not a program. With `step` the job publishes several values while it runs, spread evenly.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.metrics.expressions import Expression, compile_expression
from flux_ensemble.scalars import number


@dataclass(frozen=True, slots=True)
class Computed:
    """An expression of the parameters of a job, and of its step.

    Args:
        text: the expression.
        step: the name of the step, which counts from 1; None where there is one value.
        steps: how many values there are.
    """

    text: str
    step: str | None = None
    steps: int = 1
    _expression: Expression[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_expression", compiled(self.text))

    @property
    def names(self) -> frozenset[str]:
        """The names in the expression, without that of the step."""
        return self._expression.variables - {self.step or ""}

    def value(self, params: Mapping[str, Any], step: int) -> float:
        """The value for the parameters of a job at a step; NaN where it has none.

        >>> Computed("x ** 2 + n", "n", 3).value({"x": 3}, 2)
        11.0
        """
        names = {**params, self.step: step} if self.step is not None else params
        try:
            value = number(self._expression.value(names.get))
        except ValueError:
            return math.nan
        return math.nan if value is None or isinstance(value, str) else float(value)


def compiled(text: str) -> Expression[str]:
    """The expression of a text.

    Raises:
        ValueError: it is none.

    >>> sorted(compiled("log10(lr) * width").variables)
    ['lr', 'width']
    """

    def resolve(keys: list[str]) -> str:
        if len(keys) > 1:
            raise ValueError(f"no name {'.'.join(keys)!r}: expected that of a parameter")
        return keys[0]

    try:
        return compile_expression(text, resolve, calculus=True)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"expected an expression such as '(x - 1) ** 2', not {text!r}") from None


def unknown(computed: Computed, params: Collection[str]) -> Iterator[str]:
    """The names in an expression that are those of no parameter.

    >>> list(unknown(Computed("x + y"), ["x"]))
    ['y']
    """
    yield from sorted(computed.names - set(params))
