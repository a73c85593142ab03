"""Flux's log (`flux dmesg`) with a threshold: the only place that writes to it."""

from __future__ import annotations

import math
import syslog
import traceback
from collections.abc import Callable
from typing import Any

from flux_ensemble.texts import bounded, hanging

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

#: Seconds between two lines of `Seldom`.
SELDOM_SECONDS = 60.0


def logger(handle: Any, level: str = "info") -> Callable[[int, str], None]:
    """Return a function that writes to Flux's log.

    Args:
        handle: Flux handle.
        level: a key of `LEVELS`; less urgent lines are dropped.

    Returns:
        A function of a syslog level and a text, which may hold anything. Each line of the text
        becomes one line of the log.

    Raises:
        ValueError: no such level.
    """
    if level not in LEVELS:
        raise ValueError(f"log-level: expected one of {', '.join(LEVELS)}, not {level!r}")
    threshold = LEVELS[level]

    def log(urgency: int, text: str) -> None:
        if urgency > threshold:
            return
        # `flux_log` takes its text for a format of printf(3), and the bindings' `log` passes ours
        # as that. It splits lines itself, but handles each line within the call for the one before,
        # until the stack is used up.
        for line in hanging(bounded(text)).splitlines():
            argument = handle.ffi.new("char[]", line.encode())
            handle.lib.flux_log(handle.handle, urgency, b"%s", argument)

    return log


class Seldom:
    """A line of the log about several ensembles, written once a minute at most.

    Args:
        now: the clock, in seconds.
        write: receives the names that were noted since the last line.
    """

    def __init__(self, now: Callable[[], float], write: Callable[[list[str]], None]) -> None:
        self._now = now
        self._write = write
        self._names: dict[str, None] = {}
        self._t_next = -math.inf

    def note(self, name: str) -> None:
        """Note the name of an ensemble, and write a line if it is time."""
        self._names[name] = None
        t = self._now()
        if t >= self._t_next:
            self._t_next = t + SELDOM_SECONDS
            names, self._names = list(self._names), {}
            self._write(names)


def log_exception(error: BaseException, log_error: Callable[[str], None]) -> None:
    """Log an unexpected exception with its traceback, line by line."""
    for line in "".join(traceback.format_exception(error)).splitlines():
        log_error(line)
