"""What can be wrong with what the service keeps."""

from __future__ import annotations


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
