"""The table of statistics: those of every stream, and those that River does not have.

A document can ask for any univariate statistic of River (https://riverml.xyz, `river.stats`) under
`metrics`; `metrics.statistic_trial` finds it by its name. The table has what River does not say:
which statistics every stream has, and our own. A new one is a row here. One of our own is a class
with the methods of `Streaming`, whose arguments are those of its `__init__`:

    "cv": Kind("the standard deviation, divided by the mean", Variation),
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from flux_ensemble.metrics.numbers import Number


class Streaming(Protocol):
    """A statistic: it takes in finite values one at a time, and keeps few of them or none.

    >>> mean = made("Mean", {})
    >>> for value in (1.0, 4.0):
    ...     _ = mean.update(value)
    >>> mean.get()
    2.5
    """

    def update(self, value: Number) -> object:
        """Take in a value."""
        ...

    def get(self) -> Number | None:
        """Return its value; what is not finite counts as none."""
        ...


class ConfidenceInterval:
    """Half the width of the 95 % confidence interval of the mean.

    It is the standard error times the 97.5 % quantile of Student's t distribution with one degree
    of freedom less than there are values (Student, "The Probable Error of a Mean", Biometrika 6,
    1908): the mean of independent, normally distributed values is within it in 95 of 100 cases.

    >>> interval = ConfidenceInterval()
    >>> for value in (1.0, 2.0, 3.0, 6.0):
    ...     interval.update(value)
    >>> round(interval.get(), 4)
    3.4374
    """

    def __init__(self) -> None:
        self._variance = made("Var", {})
        self._number = 0

    def update(self, value: Number) -> None:
        """Take in a value."""
        self._variance.update(value)
        self._number += 1

    def get(self) -> float | None:
        """Return the half width; None for fewer than two values."""
        variance = self._variance.get()
        if self._number < 2 or variance is None:
            return None
        # Late, for the same reason as River.
        from scipy.special import stdtrit

        return float((variance / self._number) ** 0.5 * stdtrit(self._number - 1, 0.975))


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of statistic.

    Args:
        text: what it is, for people.
        make: the name of River's class, a class of our own, or None: streams count their values.
        always: every stream has it; else a document asks for it by its name.
    """

    text: str
    make: str | Callable[..., Streaming] | None
    always: bool = False


#: The statistic that is how many values there were.
NUMBER = "n"

#: The kinds by the names that documents have for them.
STATISTICS: dict[str, Kind] = {
    "variance": Kind("the variance", "Var", always=True),
    "mean": Kind("the mean", "Mean", always=True),
    "iqr": Kind(
        "the difference between the third quartile and the first, "
        "[estimated](metrics.md#estimates)",
        "IQR",
        always=True,
    ),
    "max": Kind("the largest value", "Max", always=True),
    "min": Kind("the smallest value", "Min", always=True),
    "mad": Kind(
        "the median of the absolute differences from the median, [estimated](metrics.md#estimates)",
        "MAD",
        always=True,
    ),
    NUMBER: Kind(
        "the number of values that there were since the start, or since the last reset: 0 where "
        "there was none",
        None,
        always=True,
    ),
    "ci95": Kind(
        "half the width of the 95 % confidence interval of the mean, by Student's t; empty for "
        "fewer than two values",
        ConfidenceInterval,
    ),
}

#: Those that every stream has and that are estimates, and what that means.
ESTIMATED = ("iqr", "mad")
ESTIMATES = (
    "iqr, mad and quantiles of all values are estimates, which can be far off with a few dozen "
    "values; those of a window are exact."
)

#: Those that every stream has, with the names of their kinds.
ALWAYS: Mapping[str, str] = {
    name: kind.make if isinstance(kind.make, str) else name
    for name, kind in STATISTICS.items()
    if kind.always
}

#: Arguments that say how many values are kept -> the smallest allowed.
SIZES: Mapping[str, int] = {"window_size": 1, "lag": 1, "amount": 0, "k": 1}

#: Arguments that are shares of all values, such as a quantile.
SHARES = ("q", "q_inf", "q_sup")


def own(kind: str) -> Callable[..., Streaming] | None:
    """Return our own class of a kind; None if the class is River's.

    >>> own("Mean") is None
    True
    """
    row = STATISTICS.get(kind)
    return row.make if row is not None and callable(row.make) else None


def made(kind: str, arguments: Mapping[str, Any]) -> Streaming:
    """Return a statistic without values.

    Args:
        kind: the name of one of our own, or of a class of River.
        arguments: of the class.

    >>> type(made("RollingMax", {"window_size": 3})).__name__
    'RollingMax'
    """
    ours = own(kind)
    if ours is not None:
        return ours(**arguments)
    # Late, because River takes 0.2 s to import, and jobs can start before there is a value.
    from flux_ensemble.metrics.univariate import stats

    statistic: Streaming = getattr(stats, kind)(**arguments)
    return statistic
