"""JSON that jobs wrote, of whoever: read however deep it nests, and kept as deep as is of use.

Flux takes a memo or a jobspec of up to 2048 levels (jansson's JSON_PARSER_MAX_DEPTH), where Python
gives up at about 1000, counting what is on the stack already. So what was read here could be too
deep to be written again a few calls later, and the ensemble that writes down its events would
fail of it, also of those of other people's jobs.
"""

from __future__ import annotations

import json
import sys
from typing import Any

#: Levels that are kept; null stands for what is deeper.
MAX_DEPTH = 64

#: Levels that Flux takes.
_DEEPEST = 2048


def read_json(text: str) -> Any:
    """The value of a JSON text, without what nests deeper than MAX_DEPTH levels.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it nests deeper than Flux takes.
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
