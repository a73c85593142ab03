"""How far an ensemble is, shown in a notebook while it is waited for.

A thread asks for the status once a second and replaces what the cell shows. Outside of notebooks
nothing is shown: `flux ensemble top` and `watch` are for terminals.
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
    """Show an ensemble in the cell that runs, until the block is left, and how it is then."""
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
    """A display of IPython's that can be updated; None where there is no notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # A terminal's IPython shows no HTML.
    if shell is None or not getattr(shell, "kernel", None):
        return None
    return ipython.display.display(ensemble, display_id=True)  # type: ignore[union-attr]
