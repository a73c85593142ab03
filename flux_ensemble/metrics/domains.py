"""Checks of literals that fields of a job are compared with (`metrics.job_row`).

`job.outcome == "fail"` parses and can never hold, so it is refused, with a suggestion. A signal can
be written in several equivalent ways: `job.returncode == 137`, `== -9`, and
`job.signal == "SIGKILL"`.
"""

from __future__ import annotations

from difflib import get_close_matches

from flux_ensemble.metrics.operations import Value
from flux_ensemble.metrics.signals import SIGNALS, signal_of_code
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown

#: The largest exit code, and the largest number of a signal.
_MAX_CODE, _MAX_SIGNAL = 255, 64


def number(name: str, value: Value) -> Value:
    """Return a literal that a number of this name is compared with.

    Raises:
        ValueError: the literal is text.

    >>> number("nodes.free", 3)
    3
    """
    if isinstance(value, str):
        raise ValueError(f"{name!r} is a number, and never the text {shown(value)}")
    return value


def one_of(names: tuple[str, ...], name: str, value: Value) -> Value:
    """Return a literal that is one of some names.

    Raises:
        ValueError: the field can never have this value.

    >>> one_of(("success", "failed"), "job.outcome", "failed")
    'failed'
    """
    if value in names:
        return value
    meant = hint(value, names) if isinstance(value, str) else ""
    raise ValueError(f"{name!r} is never {shown(value)} ({meant}one of: {listed(names)})")


def text(name: str, value: Value) -> Value:
    """Return a literal that text is compared with.

    Raises:
        ValueError: the field can never have this value.

    >>> text("job.name", "a")
    'a'
    """
    if not isinstance(value, str):
        raise ValueError(f"{name!r} is text, and never {shown(value)} (write it in quotes)")
    return value


def whole(name: str, value: Value) -> Value:
    """Return a literal that an integer from 0 on is compared with.

    Raises:
        ValueError: the field can never have this value.

    >>> whole("job.nnodes", 2)
    2
    """
    if number(name, value) is not None and not (float(value) >= 0 and float(value).is_integer()):  # type: ignore[arg-type]
        raise ValueError(f"{name!r} is an integer >= 0, and never {shown(value)}")
    return value


def flag(name: str, value: Value) -> Value:
    """Return a literal that true or false is compared with.

    Raises:
        ValueError: the field can never have this value.

    >>> flag("job.interrupted", 1)
    1
    """
    if value in (0, 1):
        return value
    raise ValueError(f"{name!r} is true or false, and never {shown(value)} (write 'not {name}')")


def exit_code(name: str, value: Value) -> Value:
    """Return a literal that an exit code is compared with; for a signal its negative number.

    Raises:
        ValueError: the field can never have this value.

    >>> exit_code("job.returncode", 139)
    -11
    """
    if isinstance(value, str):
        raise ValueError(
            f"{name!r} is a number, and never the text {shown(value)} "
            "(of a signal write 'job.signal == \"SIGSEGV\"')"
        )
    if value is None or not float(value).is_integer() or not -_MAX_SIGNAL <= value <= _MAX_CODE:
        raise ValueError(
            f"{name!r} is never {shown(value)}: it is an exit code from 0 to {_MAX_CODE}, or the "
            "negative number of a signal"
        )
    signal = signal_of_code(int(value))
    return value if signal is None else -signal


def signal_number(name: str, value: Value) -> Value:
    """Return the number of a signal that is given by name or number.

    Raises:
        ValueError: the field can never have this value.

    >>> signal_number("job.signal", "SIGSEGV")
    11
    """
    if isinstance(value, str):
        word = value.upper()
        known = SIGNALS.get(word if word.startswith("SIG") else f"SIG{word}")
        if known is None:
            near = get_close_matches(word, SIGNALS, 1, 0.5)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(
                f"{name!r} is never {shown(value)} ({meant}signals: {listed(SIGNALS)})"
            )
        return known
    if value is None or not float(value).is_integer() or not 1 <= value <= _MAX_SIGNAL:
        raise ValueError(
            f"{name!r} is never {shown(value)}: it is a number from 1 to {_MAX_SIGNAL}, and empty "
            "for a job that no signal ended"
        )
    return value
