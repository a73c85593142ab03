"""Configuration of growing and shrinking: keys of the table [ensemble].

[ensemble]
scaler = "instance"                                 # or "minicluster"
start-broker = "ssh {host} systemctl restart flux"  # starts the broker of a host

See docs/elastic.md for all keys. This module does not use Flux: `queues.elastic.factory` makes
the scaler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.renamed import SETTINGS, deprecated

#: Keys of each kind, the required one first; and the keys of both.
_OWN = {
    "instance": ("start-broker",),
    "minicluster": ("grpc-target", "grpc-cluster", "tls-cert", "tls-key", "tls-ca"),
}
_COMMON = ("min-nodes", "max-nodes", "grace", "start-limit")

#: All keys of [ensemble] that are read here.
KEYS = ("scaler", *_COMMON, *_OWN["instance"], *_OWN["minicluster"])


@dataclass(frozen=True, slots=True)
class ScalerSettings:
    """A configured scaler.

    Args:
        kind: "instance" or "minicluster".
        options: keyword arguments that both kinds have: see `ElasticInstance`.
        texts: the keys that only this kind has.
    """

    kind: str
    options: Mapping[str, Any]
    texts: Mapping[str, str]


def read_scaler(table: Mapping[str, Any]) -> ScalerSettings | None:
    """Read the configuration of the scaler; return None if there is none.

    Args:
        table: [ensemble]; only `KEYS` are read.

    Raises:
        ValueError: a key is wrong; the text is a sentence that begins with the key.
    """
    configured = {key: table[key] for key in KEYS if key in table}
    for old, new in SETTINGS.items():
        if old in table and new in table:
            raise ValueError(f"{old}: {new!r} is its new name, and is there too: take one out")
        if old in table:
            configured[new] = table[old]
    if not configured:
        return None
    kind = configured.pop("scaler", None)
    if not isinstance(kind, str) or kind not in _OWN:
        raise ValueError(f"scaler: expected 'instance' or 'minicluster', not {kind!r}")
    own = _OWN[kind]
    for key in configured:
        if key not in own + _COMMON:
            raise ValueError(f"{key}: not a key of the scaler {kind!r} ({', '.join(own)})")
    if own[0] not in configured:
        raise ValueError(f"{own[0]}: missing, and this scaler needs it")
    options = {
        name: read(key, configured[key]) for key, name, read in _OPTIONS if key in configured
    }
    texts = {key: _text(key, configured[key]) for key in own if key in configured}
    return ScalerSettings(kind, options, texts)


def old_settings(table: Mapping[str, Any]) -> list[str]:
    """Return a warning about each key of [ensemble] that has a new name.

    >>> old_settings({"min-size": 2, "grace": 5})
    ['min-size is deprecated: use min-nodes']
    """
    return [deprecated(old, new) for old, new in SETTINGS.items() if old in table]


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key}: expected a text, not {value!r}")
    return value


def _integer(key: str, value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{key}: expected a whole number of nodes, not {value!r}")
    return value


def _seconds(key: str, value: Any) -> float:
    try:
        seconds = parse_duration(value, limit=False)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    return seconds


def _limit(key: str, value: Any) -> float:
    seconds = _seconds(key, value)
    if not seconds:
        raise ValueError(f"{key}: expected more than 0 seconds")
    return seconds


#: The key, argument and reader of each option that both kinds have.
_OPTIONS: tuple[tuple[str, str, Callable[[str, Any], Any]], ...] = (
    ("min-nodes", "low", _integer),
    ("max-nodes", "high", _integer),
    ("grace", "grace", _seconds),
    ("start-limit", "start_seconds", _limit),
)
