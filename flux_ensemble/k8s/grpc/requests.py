"""Parsing of requests and conversion of errors, for both protocols."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from grpc import StatusCode

from flux_ensemble.k8s.grpc.errors import RequestProblem, problem

log = logging.getLogger(__name__)

#: Number of characters of a text that are quoted.
_QUOTED = 80

#: Limits of a JSON text: the number of its values, and the depth of their nesting. Values take many
#: times the memory of their text.
_MOST_VALUES = 100_000
_DEEPEST = 100


def as_problem(exc: Exception) -> RequestProblem:
    """Return the problem for an exception; log bugs."""
    known = problem(exc)
    if known is not None:
        return known
    log.error("a request failed", exc_info=exc)
    return RequestProblem(
        StatusCode.INTERNAL,
        f"the gRPC service failed ({type(exc).__name__}: {exc}); its log has more",
    )


def json_object(text: str, what: str) -> Mapping[str, Any]:
    """Parse a JSON object.

    Args:
        text: the JSON text.
        what: its name, for messages.

    Raises:
        Problem: INVALID_ARGUMENT.
    """
    if sum(map(text.count, ",[{")) > _MOST_VALUES:
        raise RequestProblem(
            StatusCode.INVALID_ARGUMENT, f"{what} has more than {_MOST_VALUES} values"
        )
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as exc:
        raise RequestProblem(
            StatusCode.INVALID_ARGUMENT, f"{what} is not JSON ({exc}): {text[:_QUOTED]!r}"
        ) from exc
    if not isinstance(value, dict):
        raise RequestProblem(
            StatusCode.INVALID_ARGUMENT,
            f"{what} must be a JSON object, not {text[:_QUOTED]!r}",
        )
    return value


def check_plain(value: Any, what: str) -> None:
    """Check that a value from JSON can be sent to Flux.

    Args:
        value: the value.
        what: its name, for messages.

    Raises:
        Problem: INVALID_ARGUMENT, it has a number that is not finite or has more than 64 bits, text
            that is no Unicode, or is nested too deep.
    """
    waiting = [(what, value, 1)]
    while waiting:
        path, value, depth = waiting.pop()
        expected = None
        match value:
            case float() if not math.isfinite(value):
                expected = "a finite number"
            case int() if not -(2**63) <= value < 2**63:
                expected = "a number of at most 64 bits"
            case str() if not _is_unicode(value):
                expected = "text of Unicode"
            case dict() | list() if depth > _DEEPEST:
                raise RequestProblem(
                    StatusCode.INVALID_ARGUMENT, f"{what} is nested more than {_DEEPEST} deep"
                )
            case dict():
                waiting += [(f"{path}: key", key, depth) for key in value]
                waiting += [(_below(path, key), item, depth + 1) for key, item in value.items()]
            case list():
                waiting += [(f"{path}[{n}]", item, depth + 1) for n, item in enumerate(value)]
        if expected is not None:
            raise RequestProblem(
                StatusCode.INVALID_ARGUMENT,
                f"{path}: expected {expected}, not {repr(value)[:_QUOTED]}",
            )


def _below(path: str, key: str) -> str:
    """Return the path of the value at a key."""
    return f"{path}.{key[:_QUOTED]}"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")
