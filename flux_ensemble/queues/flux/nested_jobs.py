"""JSON that jobs wrote: read however deep it nests, and kept to a useful depth.

Flux accepts a memo or a jobspec of up to 2048 levels (jansson's JSON_PARSER_MAX_DEPTH). Python
gives up at about 1000, less those already on the stack. So a value that could be read here could be
too deep to be written a few calls later, and an ensemble would fail when it writes its events down,
even those of other users' jobs.
"""

from __future__ import annotations

import json
import sys
from typing import Any

#: Levels that are kept; null replaces what is deeper.
MAX_DEPTH = 64

#: Levels that Flux accepts.
_DEEPEST = 2048


def read_json(text: str) -> Any:
    """Return the value of a JSON text, without what nests deeper than MAX_DEPTH levels.

    Raises:
        ValueError: the text is no JSON.
        RecursionError: the text nests deeper than Flux accepts.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + _DEEPEST)
        try:
            value = json.loads(text)
        finally:
            sys.setrecursionlimit(limit)
    if text.count("[") + text.count("{") > MAX_DEPTH:
        return _shallow(value, MAX_DEPTH)
    return value


def _shallow(value: Any, levels: int) -> Any:
    if type(value) is dict:
        return {key: _shallow(item, levels - 1) for key, item in value.items()} if levels else None
    if type(value) is list:
        return [_shallow(item, levels - 1) for item in value] if levels else None
    return value
