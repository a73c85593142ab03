"""Checks a document's statistics: whether there is one of the name, which takes the arguments."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from flux_ensemble.faults import ENDINGS
from flux_ensemble.metrics.names import Statistic
from flux_ensemble.metrics.numbers import Number
from flux_ensemble.metrics.statistics import SIZES, STATISTICS, own
from flux_ensemble.metrics.stream import Stream
from flux_ensemble.metrics.univariate import stats
from flux_ensemble.texts import shortened, shown

#: Values with which a statistic is tried when a document is read: usual ones, and extremes that
#: clock jumps and memos may cause. Windows are cut to _TRIAL_SIZE, so that they fill up.
_TRIAL_SIZE = 16
_USUAL = [1.0, 2.0, 2.0, *(0.5 * number for number in range(40))]
_UNUSUAL: tuple[list[Number], ...] = (
    [0.0],
    [0] * 20,
    [-0.0, 0.0] * 5,
    [-1.0] * 20,
    [float(-number) for number in range(20)],
    [1e308, -1e308] * 10,
    [sys.float_info.max] * 10,
    [number * 5e-324 for number in range(20)],
    [2**63 - 1, -(2**63)] * 10,
    [10.0**power * (-1) ** power for power in range(-300, 300, 20)],
)


def check_statistic(kind: str, arguments: Mapping[str, Any]) -> str:
    """Check that there is a univariate statistic, and that it works with the arguments.

    Args:
        kind: a class of `river.stats`, in any case, with or without underscores; or one of our own.
        arguments: keyword arguments of the class: numbers, booleans and None.

    Returns:
        The name of River's class, or of our own statistic.

    Raises:
        ValueError: there is no such statistic, or it does not accept the arguments.

    >>> check_statistic("rolling_max", {"window_size": 10})
    'RollingMax'
    """
    known = _univariate() | {_folded(name): name for name in STATISTICS if own(name) is not None}
    name = known.get(_folded(kind))
    if name is None:
        names = ", ".join(sorted(known.values()))
        raise ValueError(f"River has no univariate statistic {shown(kind)} (statistics: {names})")
    cls = own(name) or getattr(stats, name)
    try:
        _try(name, cls, arguments)
    except ENDINGS:
        raise
    except BaseException as error:
        signature = str(inspect.signature(cls)).split(" ->")[0]
        quoted = shortened(repr(dict(arguments)))
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{name}{signature} refused {quoted}: {reason}") from None
    return name


def _folded(name: str) -> str:
    return name.replace("_", "").lower()


def _univariate() -> dict[str, str]:
    classes = (value for _, value in inspect.getmembers(stats, inspect.isclass))
    return {
        _folded(cls.__name__): cls.__name__
        for cls in classes
        if issubclass(cls, stats.base.Univariate) and cls is not stats.Link
    }


def _try(name: str, cls: Any, arguments: Mapping[str, Any]) -> None:
    """Feed a statistic all kinds of values, and check its results.

    Raises:
        BaseException: any exception, because River does not check all of its input.
    """
    trial = cls(**arguments)
    for value in _USUAL:
        trial.update(value)
        result = trial.get()
        if result is not None and not isinstance(result, (int, float)):
            raise TypeError(f"its value would be {shown(result)}, which is no number")
    sizes = arguments.keys() & SIZES.keys()
    small = {key: min(arguments[key], _TRIAL_SIZE) for key in sizes}
    for keywords in (arguments, {**arguments, **small}):
        for values in _UNUSUAL:
            stream = Stream([Statistic("it", name, keywords)])
            for value in values:
                stream.update(value)
                stream.get("it")
            stream.extended(_USUAL, "it").get("it")
