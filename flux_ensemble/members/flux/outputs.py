"""Makes the directories of jobs' output files, before the jobs are submitted.

Flux's job shell opens these files, and fails the job where their directory does not exist. The
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
    """The directories of output files.

    Args:
        warn: gets a sentence about each directory that cannot be made.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._known: set[str] = set()
        self._warned = 0

    def make(self, jobspec: Mapping[str, Any]) -> None:
        """Make the directories of a job's output files.

        Args:
            jobspec: a complete jobspec, with absolute paths (`document.jobspec.anchored`). A
                directory that a template of Flux is part of is left alone.
        """
        system = jobspec["attributes"]["system"]
        output = system.get("shell", {}).get("options", {}).get("output", {})
        for target in output.values() if isinstance(output, dict) else ():
            path = target.get("path") if isinstance(target, dict) else None
            if not isinstance(path, str):
                continue
            directory = os.path.dirname(path)
            if directory in self._known or "{{" in directory or not os.path.isabs(directory):
                continue
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known.add(directory)
            self._make(directory, system["cwd"])

    def _make(self, directory: str, cwd: str) -> None:
        # Where its working directory is missing, Flux runs the job elsewhere, or not at all.
        if os.path.commonpath([cwd, directory]) == cwd and not os.path.isdir(cwd):
            return
        existing = directory
        for _ in range(MAX_LEVELS):
            if os.path.isdir(existing):
                break
            existing = os.path.dirname(existing)
        else:
            self._note(directory, f"more than {MAX_LEVELS} directories above it are missing")
            return
        try:
            os.makedirs(directory, exist_ok=True)
        except (OSError, ValueError) as error:
            self._note(directory, f"{sentence(error)} ({errno_name(error)})")

    def _note(self, directory: str, reason: str) -> None:
        self._warned += 1
        if self._warned <= MAX_WARNINGS:
            self._warn(bounded(f"cannot make the output directory {directory!r}: {reason}"))
