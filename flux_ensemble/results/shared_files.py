"""Files into which several jobs wrote: the contents need not be those of the job that is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What is said of a job whose file others wrote into.
SHARED = "other jobs, or other attempts, wrote to its file, too"


class SharedFiles:
    """The files that several jobs of an ensemble have written, by their hashes."""

    def __init__(self) -> None:
        self._files: set[int] = set()
        self._shared: set[int] = set()

    def add(self, job: Mapping[str, Any]) -> None:
        """Take the files of a job; one that never ran has written none."""
        if job["t_run"] is not None:
            files = set(map(hash, _files(job)))
            self._shared |= files & self._files
            self._files |= files

    def note(self, job: Mapping[str, Any]) -> str:
        """Return a note if others wrote into a file of a job; "" if its files are its own."""
        others = self._files if job["t_run"] is None else self._shared
        return SHARED if any(hash(path) in others for path in _files(job)) else ""


def _files(job: Mapping[str, Any]) -> set[str]:
    return {path for path in (job["output"], job["error"]) if path is not None}
