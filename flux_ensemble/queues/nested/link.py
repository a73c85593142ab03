"""Messages between two services, over a way that may lose, repeat or reorder them.

    put ──► waiting ──next──► one message sent ──► take ──► items, each once, in order
                                   └── again, until it is acknowledged

Each end has a `Link`. A message has a number, and the number of the latest message that its sender
has taken in, which acknowledges it. In each direction one message at a time waits for its
acknowledgement; items that are put meanwhile go with the next message, so messages grow with the
traffic. A link has no clock and sends nothing: its owner sends what `next` and `again` return. It
lasts as long as both ends do. After a crash of either end there is a new link, and the durable
record replaces what was in transit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

#: The number of the format of messages and items, which changes with them: a service with another
#: one is refused, and one of another version is not. Before 0.2.0 there was no number.
FORMAT = 1

#: Most items of one message: taking a message in delays all other work.
MAX_ITEMS = 250


class LinkError(Exception):
    """The message received does not fit the state of the link."""


class Link:
    """An end of the connection.

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
        """True while a message has been sent and not acknowledged."""
        return self._sent is not None

    @property
    def waiting(self) -> int:
        """Number of items for the next messages."""
        return len(self._waiting)

    @property
    def silent(self) -> bool:
        """True if there is nothing to send, and no message waits for an acknowledgement."""
        return self._sent is None and not self._waiting and not self._owes

    def put(self, item: Any) -> None:
        """Add an item, which has to be JSON."""
        self._waiting.append(item)

    def next(self) -> dict[str, Any] | None:
        """Return the message to send now: the next items, or an acknowledgement alone.

        Returns:
            {"number": of the message, 0 for an acknowledgement alone; "taken": number of the latest
            message that was taken in; "items": [...]}, or None.
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
        """Return a message without items, which only acknowledges."""
        return self._dated({"number": 0, "items": []})

    def again(self) -> dict[str, Any] | None:
        """Return the unacknowledged message, to be sent again; None if there is none."""
        return None if self._sent is None else self._dated(self._sent)

    def take(self, message: Mapping[str, Any]) -> list[Any]:
        """Take in a message.

        Returns:
            Its items; none if it was taken in before.

        Raises:
            LinkError: a message before it is missing, or it acknowledges what was not sent.
        """
        number, taken = message["number"], message["taken"]
        if taken > self._number or number > self._taken + 1:
            raise LinkError(f"message {number} was not expected after {self._taken}")
        if self._sent is not None and taken == self._number:
            self._sent = None
        if not number:
            return []
        # A repeated message means that its acknowledgement was lost: acknowledge it again.
        self._owes = True
        if number <= self._taken:
            return []
        self._taken = number
        return list(message["items"])

    def _dated(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._owes = False
        return {**message, "taken": self._taken}
