"""Values of simulated jobs: drawn from distributions, or computed from their parameters.

`draw` takes a uniform number between 0 and 1 from the caller's iterator and applies the
distribution's quantile function (inverse transform sampling: Devroye, "Non-Uniform Random Variate
Generation", chapter II). `Constant` and `Param` take none. The value of a `Param` comes from the
job, and those of a `FromLog` from a file.

The expression of a `Computed` is in the language of conditions: a document is not a program. With
`step` the job publishes several values while it runs, spread evenly:

    memo: {loss: {expression: "(log10(lr) + 3) ** 2 + exp(-epoch / 9)", step: epoch, steps: 27}}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from flux_ensemble.metrics.expressions import Expression, compile_expression
from flux_ensemble.scalars import number


@cache
def _standard_normal() -> Callable[[float], float]:
    """The quantile function of the standard normal distribution."""
    # `statistics` is slow to import, and of the commands that read a document only one draws.
    from statistics import NormalDist

    return NormalDist().inv_cdf


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same value.

    >>> Constant(60.0).draw(iter([]), {})
    60.0
    """

    value: float

    def draw(self, uniforms: Iterator[float], params: Mapping[str, Any]) -> float:
        """The value."""
        return self.value


@dataclass(frozen=True, slots=True)
class Uniform:
    """A uniform distribution from `min` to `max`.

    >>> Uniform(10.0, 20.0).draw(iter([0.25]), {})
    12.5
    """

    min: float
    max: float

    def draw(self, uniforms: Iterator[float], params: Mapping[str, Any]) -> float:
        """A value."""
        return self.min + (self.max - self.min) * next(uniforms)


@dataclass(frozen=True, slots=True)
class Normal:
    """A normal distribution with its mean and standard deviation.

    >>> Normal(100.0, 15.0).draw(iter([0.5]), {})
    100.0
    """

    mean: float
    sigma: float

    def draw(self, uniforms: Iterator[float], params: Mapping[str, Any]) -> float:
        """A value, which may be negative."""
        return self.mean + self.sigma * _standard_normal()(next(uniforms))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A lognormal distribution: its median, and the standard deviation of the logarithm.

    >>> Lognormal(60.0, 0.5).draw(iter([0.5]), {})
    60.0
    """

    median: float
    sigma: float

    def draw(self, uniforms: Iterator[float], params: Mapping[str, Any]) -> float:
        """A value."""
        return self.median * math.exp(self.sigma * _standard_normal()(next(uniforms)))


@dataclass(frozen=True, slots=True)
class Exponential:
    """An exponential distribution with its mean.

    >>> round(Exponential(60.0).draw(iter([0.5]), {}), 1)
    41.6
    """

    mean: float

    def draw(self, uniforms: Iterator[float], params: Mapping[str, Any]) -> float:
        """A value."""
        return -self.mean * math.log1p(-next(uniforms))


@dataclass(frozen=True, slots=True)
class Empirical:
    """The distribution of observed values, all equally likely.

    >>> Empirical((1.0, 2.0, 5.0)).draw(iter([0.9]), {})
    5.0
    """

    values: tuple[float, ...]

    def draw(self, uniforms: Iterator[float], params: Mapping[str, Any]) -> float:
        """A value."""
        return self.values[int(next(uniforms) * len(self.values))]


@dataclass(frozen=True, slots=True)
class Param:
    """The value of a parameter of the job.

    >>> Param("seconds").draw(iter([]), {"seconds": 90})
    90.0
    """

    name: str

    def draw(self, uniforms: Iterator[float], params: Mapping[str, Any]) -> float:
        """The value, which was checked to be a number when the document was read."""
        return float(number(params[self.name]))


@dataclass(frozen=True, slots=True)
class FromLog:
    """The durations of the group in an earlier recording, a file relative to the document."""

    file: str


#: The distributions with `draw`.
Drawable = Constant | Uniform | Normal | Lognormal | Exponential | Empirical | Param

Distribution = Drawable | FromLog


@dataclass(frozen=True, slots=True)
class Simulated:
    """The behaviour of the jobs of one group in a simulation.

    Args:
        duration: seconds from start to finish; None is one second.
        failure_rate: the probability of a non-zero exit status.
        startup: seconds from the allocation of resources to the start.
        memo: what each job publishes right before it finishes; what is computed for steps, while
            it runs.
    """

    duration: Distribution | None = None
    failure_rate: float = 0.0
    startup: Drawable | None = None
    memo: Mapping[str, Drawable | Computed] = field(default_factory=dict)


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
        return compile_expression(text, resolve)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"expected an expression such as '(x - 1) ** 2', not {text!r}") from None


def unknown(computed: Computed, params: Collection[str]) -> Iterator[str]:
    """The names in an expression that are those of no parameter.

    >>> list(unknown(Computed("x + y"), ["x"]))
    ['y']
    """
    yield from sorted(computed.names - set(params))
