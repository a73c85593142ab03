"""What can be sent to the service: Flux's bindings would send what nobody can read, or raise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: What to do about a name that is not UTF-8, by the key of the request that has it.
_ADVICE = {
    "file": ": rename it, or reach it by a link",
    "record": ": rename it, or reach it by a link",
    "cwd": ": rename it, or run this in another directory",
}


def payload_problem(payload: Mapping[str, Any]) -> str | None:
    """Why the payload of a request cannot be sent, or None: it is JSON, and UTF-8.

    >>> payload_problem({"name": "demo"})
    >>> payload_problem({"params": {"x": float("nan")}})
    'params.x: expected a finite number, not nan'
    """
    try:
        json.dumps(payload, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        odd = (_odd_name(key, value) for key, value in payload.items())
        return next(filter(None, odd), None) or _odd_data(payload) or str(error)
    return None


def is_text(value: str) -> bool:
    """The text can be encoded; a file name that is not UTF-8 cannot, as Python has it.

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
    # Only now: to import it takes longer than most commands.
    from flux_ensemble.document.plain import check_plain
    from flux_ensemble.document.problems import Problems

    problems = Problems()
    check_plain(dict(payload), problems)
    return problems.sentences()
