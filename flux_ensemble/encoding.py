"""JSON as text, for what is written at each job event.

`json.JSONEncoder` makes a new C encoder for each value. That takes half as long again as the
encoding of an entry, and 20 us if other processes have used the core meanwhile. So this module has
one encoder for all values.
"""

from __future__ import annotations

import json
from json import encoder
from typing import Any


def _refuse(value: Any) -> Any:
    raise TypeError(f"object of type {type(value).__name__} is not JSON serializable")


def _make() -> Any:
    """Return what makes the parts of a value's text; `json.encoder` explains the arguments."""
    make: Any = getattr(encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(separators=(",", ":"), allow_nan=False).iterencode
    quote = encoder.encode_basestring_ascii
    return make(None, _refuse, quote, None, ":", ",", False, False, False)


_parts = _make()


def dumps(value: Any) -> str:
    """Return a value as JSON, in one line without blanks.

    Raises:
        ValueError: a number is not finite.
        TypeError: JSON has no form for a type.
        RecursionError: the value nests too deep.
    """
    return "".join(_parts(value, 0))
