"""The contexts of job events, shortened to a bounded length.

The owner of a job writes the note of an exception and the values of a memo. That may be another
user, and Flux accepts them at any length. What an ensemble takes in goes into its log, and to all
clients that follow it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flux_ensemble.texts import MAX_LINE, clip

#: Most characters of a context as JSON, as of a local job's memo.
MAX_CONTEXT = 32 * 1024


def shorten(message: Mapping[str, Any]) -> None:
    """Shorten the long contexts in a message of the journal.

    A long text loses its middle. If the context is still too long, its longest values are left
    out, so that numbers stay.
    """
    for entry in message.get("events", ()):
        context = entry.get("context")
        if context and len(json.dumps(context)) > MAX_LINE:
            entry["context"] = _shortened(context)


def _shortened(context: Mapping[str, Any]) -> dict[str, Any]:
    clipped = {key: clip(value) if type(value) is str else value for key, value in context.items()}
    sizes = {key: len(key) + _size(value) for key, value in clipped.items()}
    left, kept = MAX_CONTEXT, set()
    for key in sorted(sizes, key=sizes.__getitem__):
        left -= sizes[key]
        if left < 0:
            break
        kept.add(key)
    return {key: value for key, value in clipped.items() if key in kept}


def _size(value: Any) -> int:
    return len(value if type(value) is str else json.dumps(value))
