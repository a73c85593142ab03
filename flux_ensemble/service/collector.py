"""Python's garbage collector: rare, since it stops the service, but not so rare as never."""

from __future__ import annotations

import gc

#: Ensembles after which their remains are collected.
DROPPED = 25


class Collector:
    """Decides when garbage is collected.

    The parts of an ensemble refer to each other. One that lived for a while is among what Python
    looks at last, after millions of new objects, so it is collected when enough were dropped.
    """

    def __init__(self) -> None:
        self._dropped = 0

    def calm(self) -> None:
        """Keep it from stopping the service for long.

        What there is now is there to stay and is not looked at again. A collection of all the
        rest takes 50 ms with some thousand jobs, so it becomes rare; what refers to itself, such
        as futures, is short-lived and found by the young collections.
        """
        gc.collect()
        gc.freeze()
        gc.set_threshold(5_000, 1000, 1000)

    def dropped(self) -> None:
        """An ensemble was dropped."""
        self._dropped += 1
        if self._dropped == DROPPED:
            self._dropped = 0
            gc.collect()
