"""The state of a custom function: a mapping of JSON values that it keeps from call to call."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

#: Most bytes of a state as JSON.
MAX_STATE = 64 << 10


def takes_state(function: Callable[..., Any]) -> bool:
    """Return whether a function accepts a state; older functions may have no parameter for it."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return "state" in parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )


def state_text(state: Any) -> str:
    """Encode a state as JSON; equal states give equal text.

    Raises:
        ValueError: it is not JSON, or too large; the text continues "left a state".
    """
    try:
        text = json.dumps(state, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"that is not JSON: {error}") from None
    size = len(text.encode(errors="replace"))
    if size > MAX_STATE:
        raise ValueError(f"of {size} bytes of JSON, more than {MAX_STATE}")
    return text
