"""Signals that end jobs: their numbers in wait statuses, and their names.

A shell, and so Flux's job shell, exits with 128 plus the number of the signal that ended its
command.
"""

from __future__ import annotations

import signal
from typing import Final

#: The number that a shell adds to that of a signal.
SHELL: Final = 128

#: Name -> number of the signals that end a process by default. So an exit code such as 150 is not
#: taken for a signal.
SIGNALS: Final[dict[str, int]] = {
    name: int(signal.Signals[name])
    for name in (
        "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE",
        "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT",
        "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPWR", "SIGSYS",
    )
    if hasattr(signal, name)
}  # fmt: skip

_NAMES: Final[dict[int, str]] = {number: name for name, number in SIGNALS.items()}


def signal_of(status: int) -> int | None:
    """Return the number of the signal that ended a process; None if it exited by itself.

    Args:
        status: a wait status (wait(2)), of the process or of a shell that ran it.

    >>> signal_of(11), signal_of(139 << 8), signal_of(3 << 8), signal_of(150 << 8)
    (11, 11, None, None)
    """
    return status & 0x7F or signal_of_code(status >> 8)


def signal_of_code(code: int) -> int | None:
    """Return the signal for which an exit code of a shell stands; None if for none.

    >>> signal_of_code(137), signal_of_code(1)
    (9, None)
    """
    return code - SHELL if code - SHELL in _NAMES else None


def name_of(number: int) -> str:
    """Return the name of a signal.

    >>> name_of(9), name_of(63)
    ('SIGKILL', 'signal 63')
    """
    return _NAMES.get(number, f"signal {number}")
