"""The error of a request that is refused, by the engine or by what is above it."""

from __future__ import annotations


class RequestError(Exception):
    """A request is refused.

    Args:
        number: an errno.
        reason: one sentence.

    Attributes:
        errno: that number.
    """

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.errno = number
