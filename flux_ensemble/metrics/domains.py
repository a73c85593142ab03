"""The values that fields of a job can have, for literals that they are compared with.

`job.outcome == "fail"` parses and can never hold, so it is refused with what was meant. A signal
can be written in several ways, which mean the same: `job.returncode == 137`, `== -9`, and
`job.signal == "SIGKILL"`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial

from flux_ensemble.metrics.names import ATTEMPT_OUTCOMES, INTERRUPTED, OUTCOMES
from flux_ensemble.metrics.operations import Value
from flux_ensemble.metrics.signals import SIGNALS, signal_of_code
from flux_ensemble.texts import listed, shown

#: States of a job, as flux-jobs(1) has them, and of a trial.
STATES = ("pending", "running", "inactive")
TRIAL_STATES = ("active", "complete", "failed", "canceled", "pruned", INTERRUPTED)

#: The largest exit code, and the largest number of a signal.
_MAX_CODE, _MAX_SIGNAL = 255, 64


def fitted(field: str, value: Value, name: str | None = None, *, attempts: bool = False) -> Value:
    """A literal that a field is compared with, as the field has it.

    Args:
        field: such as `outcome`; one that can have any value takes any literal.
        value: the literal.
        name: what the expression calls the field, for the message.
        attempts: jobs that were interrupted, and run again, are among those compared. No rule is
            about these.

    Raises:
        ValueError: the field can never be that.

    >>> fitted("returncode", 137), fitted("signal", "SEGV"), fitted("memo", "any")
    (-9, 11, 'any')
    >>> fitted("outcome", "fail")
    Traceback (most recent call last):
    ValueError: 'outcome' is never 'fail' (did you mean 'failed'? one of: success, ...)
    """
    if field == "outcome":
        return _one_of(ATTEMPT_OUTCOMES if attempts else OUTCOMES, name or field, value)
    domain = _DOMAINS.get(field)
    return value if domain is None else domain(name or field, value)


def number(name: str, value: Value) -> Value:
    """A literal that a number of this name is compared with.

    Raises:
        ValueError: it is text.

    >>> number("nodes.free", 3)
    3
    """
    if isinstance(value, str):
        raise ValueError(f"{name!r} is a number, and never the text {shown(value)}")
    return value


def _one_of(names: tuple[str, ...], name: str, value: Value) -> Value:
    if value in names:
        return value
    near = get_close_matches(value, names, 1, 0.5) if isinstance(value, str) else ()
    meant = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"{name!r} is never {shown(value)} ({meant}one of: {listed(names)})")


def _text(name: str, value: Value) -> Value:
    if not isinstance(value, str):
        raise ValueError(f"{name!r} is text, and never {shown(value)} (write it in quotes)")
    return value


def _whole(name: str, value: Value) -> Value:
    if number(name, value) is not None and not (float(value) >= 0 and float(value).is_integer()):  # type: ignore[arg-type]
        raise ValueError(f"{name!r} is an integer >= 0, and never {shown(value)}")
    return value


def _switch(name: str, value: Value) -> Value:
    if value in (0, 1):
        return value
    raise ValueError(f"{name!r} is true or false, and never {shown(value)} (write 'not {name}')")


def _code(name: str, value: Value) -> Value:
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


def _signal(name: str, value: Value) -> Value:
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


_DOMAINS: Mapping[str, Callable[[str, Value], Value]] = {
    "state": partial(_one_of, STATES),
    "trial_state": partial(_one_of, TRIAL_STATES),
    "returncode": _code,
    "signal": _signal,
    **dict.fromkeys(("copied", "interrupted"), _switch),
    **dict.fromkeys(("index", "attempt", "firing", "trial", "memo_left_out"), _whole),
    **dict.fromkeys(("nnodes", "ntasks", "ncores", "ngpus", "urgency"), _whole),
    **dict.fromkeys(
        ("duration", "predicted", "pending", "runtime", "t_submit", "t_alloc", "t_run", "t_end"),
        number,
    ),
    **dict.fromkeys(("exception.type", "exception.note", "name", "group", "rule"), _text),
    **dict.fromkeys(("member", "copy_of", "ranks", "output", "error"), _text),
}
