"""Checks the payload of a request against the table of requests (`client.topics`).

The meaning of a value, such as whether a group exists, is checked by the topic's handler
(`requests.registration`).
"""

from __future__ import annotations

import errno
import json
from typing import Any

from flux_ensemble.client.topics import TOPICS
from flux_ensemble.document.plain_data import check_plain
from flux_ensemble.document.problems import Problems
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.texts import shown

#: Keys whose values are not checked here. The values of `load` are checked as a document is, with
#: the line of each problem; reports from services of members are large, and made by this package.
UNCHECKED = frozenset(("text", "spec", "items"))


def parse(method: str, text: str | None) -> dict[str, Any]:
    """Check the payload of a request.

    Args:
        method: a key of `client.topics.TOPICS`.
        text: the payload, or None if there is none.

    Returns:
        The payload, with only the keys that the request has.

    Raises:
        RequestError: EINVAL; it is no JSON object, or a key is unknown, missing or of a wrong
            type, or holds what JSON cannot portably hold: text that is not UTF-8, a NUL, a number
            that is not finite or too large.
    """
    try:
        payload = json.loads(text) if text is not None else {}
    except ValueError as error:
        raise _invalid(method, f"the payload is not JSON ({error})") from None
    except RecursionError:
        raise _invalid(method, "the payload nests too deep") from None
    if not isinstance(payload, dict):
        raise _invalid(method, f"expected an object, not {shown(payload)}")
    fields = TOPICS[method].fields
    problems = Problems()
    for key, value in payload.items():
        if key not in fields:
            known = ", ".join(fields) or "none"
            raise _invalid(method, f"unknown key {shown(key)} (keys: {known})")
        problem = fields[key].problem(value)
        if problem is not None:
            raise _invalid(method, f"{key}: {problem}")
        if key not in UNCHECKED:
            check_plain(value, problems, (key,))
    for key, known_field in fields.items():
        if known_field.required and key not in payload:
            raise _invalid(method, f"key {key!r} is missing: expected {known_field.expected}")
    if problems:
        raise _invalid(method, problems.sentences())
    return payload


def _invalid(method: str, reason: str) -> RequestError:
    return RequestError(errno.EINVAL, f"ensemble.{method}: {reason}")
