"""Errors of what the service keeps in the KVS."""

from __future__ import annotations

from flux_ensemble.engine.errors import RequestError
from flux_ensemble.queues.flux.errors import sentence

#: Longest reason, in characters, for which an ensemble is unreadable.
LONGEST_REASON = 1000


class StoreError(Exception):
    """The KVS fails a request, or holds something that is not ours; the text is one sentence."""


class LateError(StoreError, TimeoutError):
    """The KVS has not answered in time; it may do so later."""


def damaged(key: str, reason: str, text: str | None = None) -> StoreError:
    """Return the error for a value that cannot be understood.

    Args:
        key: of the value.
        reason: what was expected.
        text: the value itself.
    """
    if text is not None:
        reason = f"{reason}, not {text if len(text) <= 40 else f'{text[:37]}...'!r}"
    # Everything that is kept of an ensemble is dropped together.
    whole = ".".join(key.split(".")[:2])
    return StoreError(
        f"{key} in the KVS is damaged: {reason}; 'flux kvs get --raw {key}' shows it, and "
        f"'flux kvs unlink -R {whole}' drops it for good"
    )


def why_unreadable(error: BaseException) -> str:
    """Return why an ensemble cannot be restored: one sentence of a bounded length."""
    known = isinstance(error, StoreError | RequestError)
    text = str(error) if known else sentence(error)
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 3] + "..."
