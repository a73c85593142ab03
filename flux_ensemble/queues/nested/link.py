"""What two services say to each other, over a way that may lose, repeat or reorder messages.

    put ──► waiting ──next──► one message under way ──► take ──► items, each once, in order
                                   └── again, until it is acknowledged

Each end has a `Link`. A message has a number and the number of the latest that was taken in, which
acknowledges it. One message at a time is under way in each direction; what is put meanwhile goes
with the next one, so messages grow where there is much to say. A link knows no clock and no way:
whoever has it sends what `next` and `again` return. It lasts as long as both ends do; after a crash
of either there is another one, and what was said is found out from what is durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

#: Most items of one message: what is taken in at once keeps others waiting for so long.
MAX_ITEMS = 250


class LinkError(Exception):
    """What came is no message of the other end."""


class Link:
    """One end.

    >>> here, there = Link(), Link()
    >>> here.put("a"), here.put("b")
    (None, None)
    >>> message = here.next()
    >>> there.take(message), there.take(message)
    (['a', 'b'], [])
    >>> here.take(there.next()), here.unanswered
    ([], False)
    """

    def __init__(self) -> None:
        self._waiting: deque[Any] = deque()
        self._sent: dict[str, Any] | None = None
        self._number = 0
        self._taken = 0
        self._owes = False

    @property
    def unanswered(self) -> bool:
        """A message is under way that was not acknowledged."""
        return self._sent is not None

    @property
    def waiting(self) -> int:
        """How many items the next messages have."""
        return len(self._waiting)

    @property
    def silent(self) -> bool:
        """There is nothing to be sent, and nothing under way."""
        return self._sent is None and not self._waiting and not self._owes

    def put(self, item: Any) -> None:
        """Say something, which JSON can hold."""
        self._waiting.append(item)

    def next(self) -> dict[str, Any] | None:
        """The message that is to be sent now: the next items, or an acknowledgement alone.

        Returns:
            {"number": of the message, 0 for an acknowledgement alone; "taken": the latest that was
            taken in; "items": [...]}, or None.
        """
        items: list[Any] = []
        if self._sent is None and self._waiting:
            while self._waiting and len(items) < MAX_ITEMS:
                items.append(self._waiting.popleft())
            self._number += 1
            self._sent = {"number": self._number, "items": items}
            return self.again()
        return self.acknowledgement() if self._owes else None

    def acknowledgement(self) -> dict[str, Any]:
        """A message that says nothing but which was taken in latest."""
        return self._dated({"number": 0, "items": []})

    def again(self) -> dict[str, Any] | None:
        """The message that is under way, to be sent once more; None if there is none."""
        return None if self._sent is None else self._dated(self._sent)

    def take(self, message: Mapping[str, Any]) -> list[Any]:
        """Take in a message.

        Returns:
            Its items; none if it was taken in before.

        Raises:
            LinkError: it comes after one that is missing, or acknowledges what was not sent.
        """
        number, taken = message["number"], message["taken"]
        if taken > self._number or number > self._taken + 1:
            raise LinkError(f"message {number} was not expected after {self._taken}")
        if self._sent is not None and taken == self._number:
            self._sent = None
        if not number:
            return []
        # One that was taken in before comes again because the acknowledgement was lost.
        self._owes = True
        if number <= self._taken:
            return []
        self._taken = number
        return list(message["items"])

    def _dated(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._owes = False
        return {**message, "taken": self._taken}
