"""Odd values, JSON that Python's encoder would not write, and changes to what is valid."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Iterator
from typing import Any

LONG = 1_000_000
DEEP = 10_000


class Raw(str):
    """Text that goes into the JSON as it is, such as `1e999`."""


class Twice(dict[str, Any]):
    """An object whose keys are all there twice."""


#: Texts that must come out as they went in wherever they are shown.
PERCENT = (
    "converged to 10% now",
    "100%",
    "%s%s%s%s%s%s%s%s",
    "%n%n%n%n",
    "%1999999999d",
    "%%",
    "50%% of 7%d",
    "%*.*f %lu %p",
)

TEXTS: tuple[str, ...] = (
    *PERCENT, "", " ", "\0", "a\0b", "\ud800", "x\udfffy", "\ud83d", "\n", "a\nb", "\r",
    "\x1b[31mred", "\u202eodd",
    "\ufeffbom", "é" * 100, "{x}", "{", "}", "{{id}}", "{0}", "../../etc", "-rf", "~",
    ".", "..", "/", "/dev/full", "null", "true", "nan", "inf", "-inf", "1e999", "9" * 400,
    "9" * 5000, "0x10", "1_000", "*", "a,b", "'", '"', "\\", "$(id)", "__class__", "count.x.y",
    "a" * LONG, "%s" * (LONG // 2), "a b " * (LONG // 20), "\0" * 1000, "\ud800" * 1000,
)  # fmt: skip

NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 1000, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**30, 0.5, -0.0,
    1e308, 5e-324, math.nan, math.inf, -math.inf, Raw("1e999"), Raw("-1e999"), Raw("1e-999"),
    Raw("9" * 400), Raw("9" * 5000), Raw("-0"),
)  # fmt: skip

OTHERS: tuple[Any, ...] = (
    None, True, False, [], {}, [[]], [None] * 1000, {"": None}, {"a": {"b": []}}, {"\0": "\0"},
    {"\ud800": "%n"}, Raw("[" * DEEP + "]" * DEEP), Raw('{"a":' * DEEP + "1" + "}" * DEEP),
    Raw('"\t"'), Raw('"\udcff\udcfe"'), Raw('"\0"'), Raw('"\udced\udca0\udc80"'),
)  # fmt: skip

#: Payloads that are no JSON object, and None for none.
GARBAGE: tuple[bytes | None, ...] = (
    None, b"", b"\0", b"{", b"}", b"[]", b"null", b"7", b'"text"', b"not json", b"{}{}", b"{}x",
    b"\xff\xfe", b"\xef\xbb\xbf{}", b"{\0}", b"%s%n%1999999999d", b"\x80" * 1000, b"{'a': 1}",
    b"[" * 100_000, b'{"a":' * 100_000, b"NaN", b"1e999", bytes(range(256)), b" " * LONG,
)  # fmt: skip


def odd(rng: random.Random) -> Any:
    """An odd value; the long ones are rare."""
    kind = rng.random()
    pool = TEXTS if kind < 0.45 else NUMBERS if kind < 0.8 else OTHERS
    value = copy.deepcopy(rng.choice(pool))
    if isinstance(value, str) and len(value) > 10_000 and rng.random() < 0.8:
        return value[:100]
    return value


def odd_text(rng: random.Random) -> str:
    """An odd text."""
    text = rng.choice(TEXTS)
    return text[:100] if len(text) > 10_000 and rng.random() < 0.8 else text


def encode(value: Any) -> bytes:
    """A value as JSON, or what comes near it."""
    return "".join(_parts(value)).encode("utf-8", "surrogateescape")


def _parts(value: Any) -> Iterator[str]:
    if isinstance(value, Raw):
        yield str(value)
    elif isinstance(value, dict):
        pairs = [*value.items(), *(value.items() if isinstance(value, Twice) else ())]
        yield "{"
        for number, (key, item) in enumerate(pairs):
            yield ", " if number else ""
            yield json.dumps(key) + ": "
            yield from _parts(item)
        yield "}"
    elif isinstance(value, list | tuple):
        yield "["
        for number, item in enumerate(value):
            yield ", " if number else ""
            yield from _parts(item)
        yield "]"
    else:
        yield json.dumps(value)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all that is in a value, but itself."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield (*path, key)
            yield from places(item, (*path, key))


def mutated(rng: random.Random, value: Any, times: int | None = None) -> Any:
    """A copy of an object or list that differs in some places."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3)) if times is None else times):
        paths = list(places(value))
        if not paths:
            return {"odd": odd(rng)}
        *way, key = rng.choice(paths)
        holder = value
        for step in way:
            holder = holder[step]
        _change(rng, holder, key)
        if rng.random() < 0.05 and isinstance(value, dict):
            value = Twice(value)
    return value


def _change(rng: random.Random, holder: Any, key: Any) -> None:
    change = rng.random()
    if change < 0.6:
        holder[key] = odd(rng)
    elif change < 0.7:
        del holder[key]
    elif change < 0.8:
        holder[key] = [holder[key]] if rng.random() < 0.5 else {"a": holder[key]}
    elif isinstance(holder, dict):
        name = odd_text(rng) if rng.random() < 0.5 else rng.choice(list(holder))
        holder[name] = holder.pop(key) if change < 0.9 else odd(rng)
    else:
        holder.insert(key, odd(rng))


def garbled(rng: random.Random, data: bytes) -> bytes:
    """Bytes with some of them changed, put in, or left out."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(out) + 1)
        change = rng.random()
        if change < 0.3:
            del out[at:]
        elif change < 0.5:
            del out[at : at + rng.randrange(1, 10)]
        elif change < 0.8:
            out[at:at] = rng.choice(
                (b"\0", b"\xff", b"\xed\xa0\x80", b'"', b"{", b"]", b"%n", b"1e999")
            )
        else:
            out[at : at + 1] = bytes([rng.randrange(256)])
    return bytes(out)
