"""JSON as text, for what is written for each job event.

`json.JSONEncoder` makes a new encoder of C for each value, which takes half as long again as the
encoding of an entry does, and where other processes have had the core meanwhile, 20 us. So there
is one here for all.
"""

from __future__ import annotations

import json
from json import encoder
from typing import Any


def _refuse(value: Any) -> Any:
    raise TypeError(f"object of type {type(value).__name__} is not JSON serializable")


def _make() -> Any:
    """What encodes a value, in one line; `json.encoder` says what the arguments are."""
    make: Any = getattr(encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    quote = encoder.encode_basestring_ascii
    chunks = make(None, _refuse, quote, None, ":", ",", False, False, False)
    return lambda value: "".join(chunks(value, 0))


_encode = _make()


def dumps(value: Any) -> str:
    """A value as JSON, in one line without blanks.

    Raises:
        ValueError: a number is not finite.
        TypeError: JSON has nothing of a type.
        RecursionError: it nests too deep.
    """
    text: str = _encode(value)
    return text
