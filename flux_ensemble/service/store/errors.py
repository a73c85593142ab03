"""What can be wrong with what the service keeps."""

from __future__ import annotations

from flux_ensemble.engine.errors import RequestError
from flux_ensemble.queues.flux.errors import sentence

#: Characters of the reason for which an ensemble is unreadable.
LONGEST_REASON = 1000


class StoreError(Exception):
    """The KVS does not do what is asked of it, or holds what is not ours; one sentence."""


def damaged(key: str, reason: str, text: str | None = None) -> StoreError:
    """The error for what cannot be understood.

    Args:
        key: where it is.
        reason: what was expected.
        text: what is there instead.
    """
    if text is not None:
        reason = f"{reason}, not {text if len(text) <= 40 else f'{text[:37]}...'!r}"
    # All that is kept of an ensemble goes together.
    whole = ".".join(key.split(".")[:2])
    return StoreError(
        f"{key} in the KVS is damaged: {reason}; 'flux kvs get --raw {key}' shows it, and "
        f"'flux kvs unlink -R {whole}' drops it for good"
    )


def why_unreadable(error: BaseException) -> str:
    """Why an ensemble cannot be restored; one sentence, of a length that can be shown."""
    known = isinstance(error, StoreError | RequestError)
    text = str(error) if known else sentence(error)
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 3] + "..."
