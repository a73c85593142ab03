"""What both protocols need to read requests and to say what went wrong."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from grpc import StatusCode

from flux_ensemble.rpc.problems import Problem, problem

log = logging.getLogger(__name__)

#: How much of a text that is no JSON is quoted.
_QUOTED = 80


def as_problem(exc: Exception) -> Problem:
    """The problem that an exception is; one that is a fault of the program is logged."""
    found = problem(exc)
    if found is not None:
        return found
    log.error("a request failed", exc_info=exc)
    return Problem(
        StatusCode.INTERNAL,
        f"the gRPC service failed ({type(exc).__name__}: {exc}); its log has more",
    )


def json_object(text: str, what: str) -> Mapping[str, Any]:
    """Reads a JSON object.

    Args:
        text: the JSON text.
        what: its name, for messages.

    Raises:
        Problem: INVALID_ARGUMENT.
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as exc:
        raise Problem(
            StatusCode.INVALID_ARGUMENT, f"{what} is not JSON ({exc}): {text[:_QUOTED]!r}"
        ) from exc
    if not isinstance(value, dict):
        raise Problem(
            StatusCode.INVALID_ARGUMENT,
            f"{what} must be a JSON object, not {text[:_QUOTED]!r}",
        )
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")
