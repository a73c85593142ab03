"""Following the log of a local run in its file, without the help of the run."""

from __future__ import annotations

import os
from typing import Any

from flux_ensemble.eventlog import Finish, Start
from flux_ensemble.queues.local import state_forms
from flux_ensemble.queues.local.root import StateError
from flux_ensemble.queues.local.states import States
from flux_ensemble.runtime.durability.lines import whole_lines


class LogFollower:
    """The entries of an ensemble's log, as they are written.

    Args:
        states: the state directory.
        name: the ensemble.

    Attributes:
        over: no more entries will come: the run has ended or was killed.
        ended: the entries include the end of the ensemble.
    """

    def __init__(self, states: States, name: str) -> None:
        self._states = states
        self._name = name
        self._file: tuple[int, int] | None = None
        self._offset = 0
        self._taken = 0
        self._begun: float | None = None
        self.over = False
        self.ended = False

    def take(self) -> list[dict[str, Any]]:
        """Return the entries that were written since the last call.

        Raises:
            StateError: there is no such ensemble any more, another run has taken its place, or
                its log is damaged.
            OSError: its log cannot be read.
        """
        try:
            directory = self._states.find(self._name, "eventlog")
        except StateError:
            if self._file is None:
                raise
            raise StateError(f"ensemble {self._name!r} was unloaded before it ended") from None
        with directory:
            # Checked first, so that all is read that a run wrote before it ended.
            runs = self._states.runs(directory)
            with os.fdopen(directory.open("eventlog"), "rb") as file:
                status = os.fstat(file.fileno())
                entries = self._read(file, (status.st_dev, status.st_ino))
        self.over = not runs
        self.ended = self.ended or any(entry["name"] == Finish.tag for entry in entries)
        return entries

    def _read(self, file: Any, identity: tuple[int, int]) -> list[dict[str, Any]]:
        skip = 0
        if identity != self._file:
            # The log of a run that goes on after a kill begins with the entries of the earlier log.
            self._file, self._offset, skip = identity, 0, self._taken
        file.seek(self._offset)
        entries = []
        for number, line in enumerate(whole_lines(file)):
            entry = self._entry(line)
            self._offset += len(line)
            if entry["name"] == Start.tag:
                self._check_begun(entry["timestamp"])
            if number >= skip:
                entries.append(entry)
        self._taken += len(entries)
        return entries

    def _entry(self, line: bytes) -> dict[str, Any]:
        try:
            entry = state_forms.parse(line)
        except ValueError:
            entry = None
        if not state_forms.fits(entry, state_forms.ENTRY):
            raise StateError(f"the log of {self._name!r} is damaged: expected an entry in JSON")
        found: dict[str, Any] = entry
        return found

    def _check_begun(self, t: float) -> None:
        if self._begun not in (None, t):
            raise StateError(f"another run of {self._name!r} has taken the place of this one")
        self._begun = t
