"""Checks of payloads before they are sent, because Flux's bindings check little."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from flux_ensemble.entries import plain

#: Remedies for a name that is not UTF-8, by key of the request.
_ADVICE = {
    "file": ": rename it, or reach it by a link",
    "record": ": rename it, or reach it by a link",
    "cwd": ": rename it, or run this in another directory",
}


def sendable(op: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload of a request as JSON has it, without keys whose value is None.

    Args:
        op: the request.
        payload: may have values that `entries.plain` accepts.

    Raises:
        ValueError: it cannot be sent.

    >>> sendable("submit", {"group": "md", "count": None, "params": {"t": range(3)}})
    {'group': 'md', 'params': {'t': {'range': [0, 3, 1]}}}
    """
    given = {key: value for key, value in payload.items() if value is not None}
    problem = _problem(given)
    if problem is not None:
        with suppress(RecursionError):
            given = plain(given)
            problem = _problem(given)
    if problem is not None:
        raise ValueError(f"ensemble.{op}: {problem}")
    return given


def _problem(payload: Mapping[str, Any]) -> str | None:
    """Return why a payload cannot be sent as UTF-8 JSON; None if it can.

    >>> _problem({"name": "demo"})
    >>> _problem({"params": {"x": float("nan")}})
    'params.x: expected a finite number, not nan'
    """
    try:
        json.dumps(payload, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        odd = (_odd_name(key, value) for key, value in payload.items())
        return next(filter(None, odd), None) or _odd_data(payload) or str(error)
    return None


def is_text(value: str) -> bool:
    """Return True if a text can be encoded.

    Python's form of a file name that is not UTF-8 cannot.

    >>> is_text("café"), is_text(b"caf".decode() + chr(0xDCE9))
    (True, False)
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _odd_name(key: str, value: Any) -> str | None:
    if not isinstance(value, str) or is_text(value):
        return None
    return f"{key}: {value!r} is not UTF-8 text, and Flux takes no other{_ADVICE.get(key, '')}"


def _odd_data(payload: Mapping[str, Any]) -> str:
    # Imported here, since the import takes longer than most commands.
    from flux_ensemble.document.plain_data import check_plain
    from flux_ensemble.document.problems import Problems

    problems = Problems()
    check_plain(dict(payload), problems)
    return problems.sentences()
