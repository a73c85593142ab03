"""The error of a request that is refused, by the engine or by a layer above it."""

from __future__ import annotations


class RequestError(Exception):
    """A refused request.

    Args:
        number: an errno.
        reason: one sentence.

    Attributes:
        errno: the number.
    """

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.errno = number
