"""The site's configuration: the table [ensemble] of the broker's TOML, and the state's directory.

    [ensemble]
    allow-guest-status = true    # guests may request list and status
    service = "process"          # beside the broker, not as a module of it (`deploy.service_start`)
    walltime-guard = "10s"       # no job is started so long before the allocation expires
    reconnect-limit = "1m"       # a member that is silent for so long counts as lost

The keys of the instance's scaler are there, too: see `queues.elastic.settings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.queues.elastic.settings import KEYS as SCALER_KEYS
from flux_ensemble.renamed import SETTINGS as OLD_KEYS

#: Keys that are read before there is a service.
STARTING = ("service",)

#: Reason for which the queue is stopped by `walltime-guard`, for `flux queue status`.
EXPIRING = "the allocation is about to expire"


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of [ensemble] that are read here, by the names of their keys."""

    allow_guest_status: bool = False
    #: Seconds; 0 for no guard.
    walltime_guard: float = 10.0
    #: Seconds.
    reconnect_limit: float = 60.0


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"expected true or false, not {value!r}")
    return value


#: Functions that read the value of each key.
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "allow-guest-status": _flag,
    "walltime-guard": lambda value: parse_duration(value, limit=False),
    "reconnect-limit": lambda value: parse_duration(value, limit=False),
}


def read_settings(configured: Any, log_error: Callable[[str], None]) -> Settings:
    """Read the configuration; a wrong value is ignored.

    Args:
        configured: the table [ensemble], or whatever is there in its place.
        log_error: called with a sentence for each error.
    """
    if not isinstance(configured, dict):
        log_error(f"[ensemble]: expected a table, not {configured!r}")
        return Settings()
    settings = {}
    for key, value in configured.items():
        if key in STARTING + SCALER_KEYS or key in OLD_KEYS:
            continue
        if key not in _READERS:
            known = ", ".join((*_READERS, *STARTING, *SCALER_KEYS))
            log_error(f"[ensemble] {key}: unknown key (keys: {known})")
            continue
        try:
            settings[key.replace("-", "_")] = _READERS[key](value)
        except ValueError as error:
            log_error(f"[ensemble] {key}: {error}")
    return Settings(**settings)


def t_instance(attr_get: Callable[[str], Any]) -> float | None:
    """Return when the instance began; None if Flux does not report it.

    Args:
        attr_get: `flux.Flux.attr_get`.
    """
    try:
        return float(attr_get("broker.starttime"))
    except (OSError, TypeError, ValueError):
        return None


def forgets_at_a_crash(handle: Any) -> bool:
    """Return whether a crash of the first broker loses what its statedir was to keep.

    Without a checkpoint the KVS is there again only after an orderly end of the instance.
    """
    try:
        if kept_directory(handle.attr_get) is None:
            return False
        config = handle.rpc("config.get", {}, nodeid=0).get()
    except OSError:
        return False
    return not config.get("kvs", {}).get("checkpoint-period")


def kept_directory(attr_get: Callable[[str], Any]) -> str | None:
    """Return the directory in which the KVS of this instance outlives it, or None.

    Flux 0.88 gives each instance a `statedir`, and removes it at the end unless the user named it;
    earlier versions have the attribute only if the user named it.

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
