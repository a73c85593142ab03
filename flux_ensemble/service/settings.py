"""What a site configures: the table [ensemble] of the broker's TOML, and where state goes.

[ensemble]
allow-guest-status = true    # guests may ask for list and status
service = "process"          # beside the broker, not as a module of it: `deploy.loading` reads it

What the instance grows and shrinks by is there, too: see `members.elastic.settings`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flux_ensemble.members.elastic.settings import KEYS as SCALER_KEYS

#: The keys of [ensemble] that are read here.
KEYS = ("allow-guest-status",)

#: What is read before there is a service.
STARTING = ("service",)


def read_settings(configured: Any, log_error: Callable[[str], None]) -> dict[str, bool]:
    """The values of `KEYS`: false unless the configuration has a plain `true`.

    Args:
        configured: the table [ensemble], or whatever is there in its place.
        log_error: called with a sentence for each thing that is wrong with it.
    """
    settings = dict.fromkeys(KEYS, False)
    if not isinstance(configured, dict):
        log_error(f"[ensemble]: expected a table, not {configured!r}")
        return settings
    for key, value in configured.items():
        if key in STARTING + SCALER_KEYS:
            continue
        if key not in KEYS:
            known = ", ".join(KEYS + STARTING + SCALER_KEYS)
            log_error(f"[ensemble] {key}: unknown key (keys: {known})")
        elif type(value) is not bool:
            log_error(f"[ensemble] {key}: expected true or false, not {value!r}")
        else:
            settings[key] = value
    return settings


def kept_directory(attr_get: Callable[[str], Any]) -> str | None:
    """The directory in which the KVS of this instance outlives it; None if nothing does.

    Flux 0.88 gives each instance a `statedir`, and removes it at the end unless the user
    named it; earlier ones have the attribute only where the user named it.

    Args:
        attr_get: `flux.Flux.attr_get`, of a handle of rank 0.
    """

    def get(name: str) -> str | None:
        try:
            value = attr_get(name)
        except OSError:
            return None
        return str(value) if value else None

    return None if get("statedir-cleanup") == "1" else get("statedir")
