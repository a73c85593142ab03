"""The listener to a run on the local queue, and the errors with which a run ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from flux_ensemble.eventlog import Stored


class RunError(Exception):
    """The run cannot begin or go on; the text is one sentence."""


class FunctionsError(RunError):
    """The functions that the document names cannot be called."""


class Listener(Protocol):
    """A receiver of news of a run.

    Attributes:
        events: True if the events of jobs are wanted, too.
    """

    events: bool

    def entry(self, entry: Stored) -> None:
        """Receive an entry of the eventlog, or an event of a job."""
        ...

    def note(self, text: str) -> None:
        """Receive a message that is not in the eventlog."""
        ...

    def warn(self, text: str) -> None:
        """Receive a more important message that is not in the eventlog."""
        ...

    def progress(self, status: Mapping[str, Any]) -> None:
        """Receive the status of the ensemble, at intervals."""
        ...
