"""A request that is refused."""

from __future__ import annotations


class RequestError(Exception):
    """A request that is refused: an errno and a sentence."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.errno = number
