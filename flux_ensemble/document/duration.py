"""Durations as documents and command lines give them: seconds, or RFC 23 text.

https://flux-framework.readthedocs.io/projects/flux-rfc/en/latest/spec_23.html
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import Any

from flux_ensemble.metrics.hints import in_seconds
from flux_ensemble.texts import shown

_TEXT = re.compile(r"((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)(ms|s|m|h|d)?", re.ASCII)
_INFINITY = frozenset({"inf", "infinity", "INF", "INFINITY"})
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(value: Any, *, limit: bool = True) -> float:
    """Convert a duration to seconds.

    Args:
        value: a number of seconds, or text such as "30s", "1.5h", "100ms", "2d".
        limit: the duration is a limit: "inf" (no limit) is allowed and gives 0.

    Raises:
        ValueError: the value is something else, negative, or not finite.

    >>> parse_duration("1.5h"), parse_duration(30), parse_duration("inf")
    (5400.0, 30.0, 0.0)
    >>> parse_duration("soon")
    Traceback (most recent call last):
    ValueError: expected a duration (seconds, or text such as '30s', '1.5h' or '100ms'), not 'soon'
    """
    seconds = math.nan
    if isinstance(value, str):
        if limit and value in _INFINITY:
            return 0.0
        match = _TEXT.fullmatch(value)
        if match is not None:
            seconds = float(match[1]) * _UNITS[match[2] or "s"]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        with suppress(OverflowError):
            seconds = float(value)
    if not 0 <= seconds < math.inf:
        raise ValueError(
            f"expected a duration (seconds, or text such as '30s', '1.5h' or '100ms'), "
            f"not {shown(value)}{_meant(value)}"
        )
    return seconds


def _meant(value: Any) -> str:
    """Return, in brackets, the duration as it is written here, if Flux would accept the text."""
    if not isinstance(value, str):
        return ""
    if value.lower() in ("none", "unlimited", "never", "no", "off", "unset"):
        return " (write 0 for no limit)"
    if (weeks := re.fullmatch(r"(\d+)\s*w(?:eeks?)?", value, re.ASCII)) is not None:
        return f" (write {int(weeks[1]) * 7}d)"
    if (point := re.fullmatch(r"(\d+),(\d+)\s*(ms|s|m|h|d)?", value, re.ASCII)) is not None:
        return f" (write {point[1]}.{point[2]}{point[3] or ''})"
    written = in_seconds(value.strip())
    if written is None or written[0] != value.strip():
        return ""
    seconds = written[1]
    for unit in ("d", "h", "m"):
        if seconds and seconds % _UNITS[unit] == 0:
            return f" (write {seconds / _UNITS[unit]:g}{unit})"
    return f" (write {seconds:g}s)"
