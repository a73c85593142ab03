"""The progress of an ensemble, displayed in a notebook while it is waited for.

A thread requests the status once a second and replaces the display of the cell. Outside of
notebooks nothing is displayed: `flux ensemble top` and `watch` are for terminals.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

from flux_ensemble.client import EnsembleError

#: Seconds between two requests.
INTERVAL = 1.0


@contextmanager
def showing(ensemble: Any, interval: float = INTERVAL) -> Iterator[None]:
    """Display an ensemble in the running cell until the block is left, and its final state then."""
    display = _display(ensemble)
    if display is None:
        yield
        return
    over = Event()

    def refresh() -> None:
        while not over.wait(interval):
            with suppress(EnsembleError):
                display.update(ensemble)

    thread = Thread(target=refresh, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with suppress(EnsembleError):
            display.update(ensemble)


def _display(ensemble: Any) -> Any:
    """Return a display of IPython that can be updated; None outside of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # IPython in a terminal cannot display HTML.
    if shell is None or not getattr(shell, "kernel", None):
        return None
    return ipython.display.display(ensemble, display_id=True)  # type: ignore[union-attr]
