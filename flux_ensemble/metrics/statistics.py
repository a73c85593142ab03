"""Checks a document's statistics: whether River has the class and accepts the arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from river import stats

from flux_ensemble.faults import ENDINGS
from flux_ensemble.metrics.streams import _try
from flux_ensemble.texts import shortened, shown


def check_statistic(kind: str, arguments: Mapping[str, Any]) -> str:
    """Check that River has the univariate statistic, and that it works with the arguments.

    Args:
        kind: a class of `river.stats`, in any case, with or without underscores.
        arguments: keyword arguments of the class: numbers, booleans and None.

    Returns:
        The name of River's class.

    Raises:
        ValueError: there is no such statistic, or it does not accept the arguments.

    >>> check_statistic("rolling_max", {"window_size": 10})
    'RollingMax'
    """
    known = _univariate()
    name = kind.replace("_", "").lower()
    if name not in known:
        names = ", ".join(sorted(cls.__name__ for cls in known.values()))
        raise ValueError(f"River has no univariate statistic {shown(kind)} (statistics: {names})")
    cls = known[name]
    try:
        _try(cls, arguments)
    except ENDINGS:
        raise
    except BaseException as error:
        signature = str(inspect.signature(cls)).split(" ->")[0]
        quoted = shortened(repr(dict(arguments)))
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{cls.__name__}{signature} refused {quoted}: {reason}") from None
    return cls.__name__


def _univariate() -> dict[str, Any]:
    classes = (value for _, value in inspect.getmembers(stats, inspect.isclass))
    return {
        cls.__name__.lower(): cls
        for cls in classes
        if issubclass(cls, stats.base.Univariate) and cls is not stats.Link
    }
