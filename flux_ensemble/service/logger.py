"""Flux's log (`flux dmesg`), with a threshold."""

from __future__ import annotations

import syslog
from collections.abc import Callable
from typing import Any

#: Names of syslog levels, as Flux's own modules and tools take them.
LEVELS = {
    "emerg": syslog.LOG_EMERG,
    "alert": syslog.LOG_ALERT,
    "crit": syslog.LOG_CRIT,
    "err": syslog.LOG_ERR,
    "warning": syslog.LOG_WARNING,
    "notice": syslog.LOG_NOTICE,
    "info": syslog.LOG_INFO,
    "debug": syslog.LOG_DEBUG,
}


def logger(handle: Any, level: str = "info") -> Callable[[int, str], None]:
    """What writes to Flux's log.

    Args:
        handle: Flux handle.
        level: a key of `LEVELS`; less urgent lines are dropped.

    Returns:
        A function of a syslog level and a text.

    Raises:
        ValueError: no such level.
    """
    if level not in LEVELS:
        raise ValueError(f"log-level: expected one of {', '.join(LEVELS)}, not {level!r}")
    threshold = LEVELS[level]

    def log(urgency: int, text: str) -> None:
        if urgency <= threshold:
            handle.log(urgency, text)

    return log
