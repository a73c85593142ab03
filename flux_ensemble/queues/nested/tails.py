"""The last lines of failed tasks, in what their worker prints.

A worker ends with its ensemble, and the output of its tasks with it. What it prints itself is with
Flux, as that of each job, so there the last lines of failed tasks outlive it: one line of JSON for
each. A home without Flux is sent them, and keeps them in the directory of its run in the same form.

    >>> line = tail_line(7, "so bad")
    >>> line
    b'{"task": 7, "wrote": "so bad"}\\n'
    >>> tails(line.decode())
    {7: 'so bad'}
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable

#: Most characters of a tail, and most bytes of all that a worker prints.
MOST_CHARACTERS = 2048
MOST_BYTES = 1 << 22

#: The `output.limit` of a worker. Flux would keep 1 KiB in an instance of several users.
LIMIT = "8M"


class Tails:
    """The last output of the failed tasks of a worker, which prints it.

    Args:
        fd: to print to.

    Attributes:
        send: receives what is printed, too: the task, and the text.
    """

    send: Callable[[int, str], None] = staticmethod(lambda task, text: None)

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._left = MOST_BYTES

    def take(self, task: int, text: str) -> None:
        """Print the end of what a task wrote, unless too much has been printed."""
        line = tail_line(task, text)
        if len(line) > self._left:
            self._left = 0  # the first ones are complete
            return
        self._left -= len(line)
        self.send(task, text[-MOST_CHARACTERS:])
        with contextlib.suppress(OSError), os.fdopen(self._fd, "wb", closefd=False) as file:
            file.write(line)


def tail_line(task: int, text: str) -> bytes:
    """Return the line for a task."""
    return json.dumps({"task": task, "wrote": text[-MOST_CHARACTERS:]}).encode() + b"\n"


def tails(printed: str) -> dict[int, str]:
    """Return the tail of each task in what a worker printed.

    >>> tails("something else\\n[]\\n{}")
    {}
    """
    found = {}
    for line in printed.splitlines():
        with contextlib.suppress(ValueError, LookupError, TypeError):
            value = json.loads(line)
            found[int(value["task"])] = str(value["wrote"])
    return found
