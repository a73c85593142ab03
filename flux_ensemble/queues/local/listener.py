"""Who is told of a run on the local queue, and the errors with which one ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from flux_ensemble.runtime.eventlog import Entry


class RunError(Exception):
    """A run that cannot begin or go on; one sentence."""


class FunctionsError(RunError):
    """The functions that the document names cannot be called."""


class Listener(Protocol):
    """Is told what happens in a run.

    Attributes:
        events: it also wants the events of jobs.
    """

    events: bool

    def entry(self, entry: Entry) -> None:
        """An entry of the eventlog, or an event of a job."""
        ...

    def note(self, text: str) -> None:
        """Something that is not in the eventlog."""
        ...

    def warn(self, text: str) -> None:
        """Something that is not in the eventlog, and of more weight."""
        ...

    def progress(self, status: Mapping[str, Any]) -> None:
        """The status of the ensemble, at intervals."""
        ...
