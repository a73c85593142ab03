"""What the local queue keeps of an ensemble in files, for `log`, `status` and `metrics`.

Each ensemble has a directory of its name in the state directory:

    eventlog      its entries (RFC 18), a line of JSON each, written before what they say is done
    status.json   status and metrics as they were at most a second ago, or at the end
    events        every event that the engine took in, for going on after a kill
    document      the document
    output/       ID.out, the output of jobs whose document names no file
    lock          locked while the ensemble runs

A run of the same name replaces them. The last line of an eventlog whose run was killed may
be cut short; it is ignored.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flux_ensemble.engine.states import FINAL_STATES


class StateError(Exception):
    """A state directory that cannot be used, or has no such ensemble; one sentence."""


def default_root() -> Path:
    """Where the directories of ensembles are, by the XDG Base Directory Specification."""
    given = os.environ.get("XDG_STATE_HOME", "")
    base = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
    return base / "flux-ensemble"


class StateLog:
    """The files of an ensemble that begins to run; a `service.log.Follower` of its log.

    Args:
        root: the state directory.
        name: the ensemble.
        document: its text.
        resume: go on with a run that was killed, or begin anew; None refuses to begin anew
            where there is such a run.

    Raises:
        StateError: an ensemble of the name runs, the files cannot be made, there is a
            killed run and `resume` is None, or none and `resume` is True.
    """

    events = False

    def __init__(self, root: Path, name: str, document: str, resume: bool | None = None) -> None:
        self.directory = root / name
        self.output = self.directory / "output"
        self.event_file = self.directory / "events"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StateError(f"cannot write to {root}: {error.strerror}") from None
        try:
            self._begin(name, document, resume)
        except BaseException:
            os.close(self._lock)
            raise

    def _begin(self, name: str, document: str, resume: bool | None) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StateError(f"an ensemble named {name!r} is running already") from None
        self._check_resume(name, document, resume)
        try:
            if not resume:
                shutil.rmtree(self.output, ignore_errors=True)
                self.output.mkdir()
                for path in (self.directory / "status.json", self.event_file):
                    path.unlink(missing_ok=True)
                (self.directory / "document").write_text(document)
            # Unbuffered: an entry is in the file before what it says is done.
            self._file = (self.directory / "eventlog").open("wb", buffering=0)
        except OSError as error:
            raise StateError(f"cannot write to {self.directory}: {error.strerror}") from None

    def _check_resume(self, name: str, document: str, resume: bool | None) -> None:
        killed = _is_unfinished(self.directory)
        if resume is None and killed:
            raise StateError(
                f"an earlier run of {name!r} was killed before it ended: --resume goes on with "
                "it, and --no-resume begins anew"
            )
        if resume and not killed:
            raise StateError(f"there is no run of {name!r} that was killed before it ended")
        if resume and (self.directory / "document").read_text() != document:
            raise StateError(f"the document is not that of the run of {name!r} that was killed")

    def send(self, entry: Mapping[str, Any]) -> None:
        """Write an entry."""
        self._file.write(json.dumps(entry).encode() + b"\n")

    def end(self) -> None:
        """There will be no more entries."""

    def snapshot(self, status: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Replace status and metrics."""
        new = self.directory / "status.json.new"
        new.write_text(json.dumps({"status": status, "metrics": metrics}))
        new.replace(self.directory / "status.json")

    def close(self) -> None:
        """The ensemble does not run any more."""
        self._file.close()
        os.close(self._lock)


def _is_unfinished(directory: Path) -> bool:
    """What was run there, and does not run any more, had not ended."""
    try:
        status = json.loads((directory / "status.json").read_text())["status"]
    except (OSError, ValueError):
        return False
    return status["state"] not in FINAL_STATES


class States:
    """The ensembles in a state directory, for reading."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self) -> list[str]:
        """The ensembles, those begun last at the end."""
        found = [path for path in self._root.glob("*/eventlog") if path.is_file()]
        return [path.parent.name for path in sorted(found, key=lambda path: path.stat().st_ctime)]

    def log(self, name: str) -> Iterator[dict[str, Any]]:
        """The entries of an ensemble's eventlog, oldest first.

        Raises:
            StateError: there is none, or it is damaged before its last line.
        """
        path = self._find(name, "eventlog")
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith("\n"):
                    return  # cut short by a kill
                try:
                    entry = json.loads(line)
                except ValueError:
                    raise StateError(f"{path}:{number}: expected an entry in JSON") from None
                yield entry

    def status(self, name: str) -> dict[str, Any]:
        """As in the response to `ensemble.status`; failed if its run was killed.

        Raises:
            StateError: there is no such ensemble.
        """
        status: dict[str, Any] = self._snapshot(name)["status"]
        if status["state"] not in FINAL_STATES and not self._runs(name):
            status.update(
                state="failed",
                reason="its run was killed before it ended",
                t_end=self._find(name, "status.json").stat().st_mtime,
            )
        return status

    def metrics(self, name: str) -> dict[str, Any]:
        """As in the response to `ensemble.metrics`.

        Raises:
            StateError: there is no such ensemble.
        """
        metrics: dict[str, Any] = self._snapshot(name)["metrics"]
        return metrics

    def _snapshot(self, name: str) -> dict[str, Any]:
        path = self._find(name, "status.json")
        try:
            snapshot: dict[str, Any] = json.loads(path.read_text())
        except ValueError:
            raise StateError(f"{path}: expected JSON") from None
        return snapshot

    def _runs(self, name: str) -> bool:
        lock = os.open(self._root / name / "lock", os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(lock)
        return False

    def _find(self, name: str, file: str) -> Path:
        path = self._root / name / file
        if "/" in name or not path.is_file():
            known = ", ".join(self.names()) or "none"
            raise StateError(f"no ensemble named {name!r} in {self._root} (ensembles: {known})")
        return path
