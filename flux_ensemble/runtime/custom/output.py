"""The output of custom functions in the eventlog of their ensemble: bounded, one entry a call."""

from __future__ import annotations

from collections.abc import Callable

from flux_ensemble.eventlog import CustomOutput
from flux_ensemble.texts import bounded

#: Most characters that are kept of one call, from the end, and of all calls together.
MAX_CALL = 4096
MAX_ALL = 1024 * 1024


class PrintedOutput:
    """A writer of custom functions' output to an eventlog.

    Args:
        note: adds an entry.
    """

    def __init__(self, note: Callable[[CustomOutput], None]) -> None:
        self._note = note
        self._left = MAX_ALL

    def take(self, function: str, text: str) -> None:
        """Add the output of a call."""
        text = text.strip("\n")
        if not text or self._left <= 0:
            return
        if len(text) > MAX_CALL:
            text = f"... {len(text) - MAX_CALL} characters before this\n{text[-MAX_CALL:]}"
        self._left -= len(text)
        self._note(CustomOutput(function=function, text=bounded(text)))
        if self._left <= 0:
            last = "what is printed from here on is in the service's log only"
            self._note(CustomOutput(function=function, text=last))
