"""What is said of a key of a document."""

from __future__ import annotations

from typing import Any, NamedTuple


class Key(NamedTuple):
    """What a key means.

    Args:
        text: a sentence or two.
        examples: values.
        default: what holds without the key, as in a document; None where there is nothing.
    """

    text: str
    examples: tuple[Any, ...] = ()
    default: Any = None
