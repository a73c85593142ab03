"""Makes the directories of jobs' output files and their working directories before submission.

Flux's job shell opens these files, and fails the job if their directory does not exist. Where the
working directory is missing it runs the job in /tmp, where jobs overwrite each other's files. The
jobs run as the owner of the service, so what it may make the jobs may use.

What cannot be made is no reason to keep a job back: the directory may be one of the job's node
only. It is said, and the job shell has the last word.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.members.flux.errors import errno_name, sentence
from flux_ensemble.texts import bounded

#: Most levels of directories that are made for one file.
MAX_LEVELS = 32

#: How many directories are remembered, so that jobs of the same one are quick.
KEPT = 10_000

#: Most sentences about directories of one ensemble.
MAX_WARNINGS = 20


class Outputs:
    """The directories of jobs.

    Args:
        warn: gets a sentence about each directory that cannot be made.
        cwd: the user's working directory, which is that of jobs without one of their own.
    """

    def __init__(self, warn: Callable[[str], None], cwd: str) -> None:
        self._warn = warn
        self._cwd = cwd
        self._known: set[str] = set()
        self._warned = 0

    def make(self, jobspec: Mapping[str, Any]) -> None:
        """Make the working directory of a job, and the directories of its output files.

        Args:
            jobspec: a complete jobspec, with absolute paths (`document.jobspec.anchored`). A
                directory that a template of Flux is part of is left alone.
        """
        system = jobspec["attributes"]["system"]
        cwd = system["cwd"]
        # Whoever loaded the document was in theirs: it is not made where it is gone.
        if cwd != self._cwd:
            self._once(cwd, cwd, "working")
        output = system.get("shell", {}).get("options", {}).get("output", {})
        for target in output.values() if isinstance(output, dict) else ():
            path = target.get("path") if isinstance(target, dict) else None
            if not isinstance(path, str):
                continue
            self._once(os.path.dirname(path), cwd, "output")

    def _once(self, directory: str, cwd: str, what: str) -> None:
        """Make a directory, and try so once."""
        if directory in self._known or "{{" in directory or not os.path.isabs(directory):
            return
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known.add(directory)
        self._make(directory, cwd, what)

    def _make(self, directory: str, cwd: str, what: str) -> None:
        # Where its working directory is missing, Flux runs the job elsewhere, or not at all.
        inside = directory != cwd and os.path.commonpath([cwd, directory]) == cwd
        if inside and not os.path.isdir(cwd):
            return
        existing = directory
        for _ in range(MAX_LEVELS):
            if os.path.isdir(existing):
                break
            existing = os.path.dirname(existing)
        else:
            self._note(directory, what, f"more than {MAX_LEVELS} directories above it are missing")
            return
        try:
            os.makedirs(directory, exist_ok=True)
        except (OSError, ValueError) as error:
            self._note(directory, what, f"{sentence(error)} ({errno_name(error)})")

    def _note(self, directory: str, what: str, reason: str) -> None:
        self._warned += 1
        if self._warned <= MAX_WARNINGS:
            self._warn(bounded(f"cannot make the {what} directory {directory!r}: {reason}"))
