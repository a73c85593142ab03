"""Python's garbage collection: rare, since it stops the service, but not disabled."""

from __future__ import annotations

import gc

#: Number of dropped ensembles after which garbage is collected.
DROPPED = 25


class Collector:
    """Decides when garbage is collected.

    The parts of an ensemble refer to each other. An ensemble that lived for a while is in the
    oldest generation, which Python collects last, after millions of new objects. So garbage is
    collected once enough ensembles were dropped.
    """

    def __init__(self) -> None:
        self._dropped = 0

    def calm(self) -> None:
        """Keep collections from stopping the service for long.

        Objects that exist now stay, so they are frozen: no collection examines them. A full
        collection of all others takes 50 ms with some thousand jobs, so it is made rare. Objects
        that refer to themselves, such as futures, are short-lived, and the young collections find
        them.
        """
        gc.collect()
        gc.freeze()
        gc.set_threshold(5_000, 1000, 1000)

    def dropped(self) -> None:
        """Count a dropped ensemble, and collect garbage after enough of them."""
        self._dropped += 1
        if self._dropped == DROPPED:
            self._dropped = 0
            gc.collect()
