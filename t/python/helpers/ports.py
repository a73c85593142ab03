"""Ports for servers that cannot choose one themselves."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

#: Below those that systems give to connections, which would take one before its server does.
_CHOSEN = range(20_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    found = list[int]()
    with ExitStack() as stack:
        while len(found) < count:
            port = random.choice(_CHOSEN)
            one = stack.enter_context(socket.socket())
            try:
                one.bind(("localhost", port))
            except OSError:
                continue
            found.append(port)
    return found
