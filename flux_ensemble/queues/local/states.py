"""The files of runs on the local queue, for readers."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flux_ensemble.client.tables import AttemptFilter
from flux_ensemble.engine.lifecycle import FINAL_STATES
from flux_ensemble.eventlog import UNWRITTEN, Finish, Start
from flux_ensemble.queues.local import state_forms
from flux_ensemble.queues.local.continuation import MAX_BYTES, Continuation, clause_of
from flux_ensemble.queues.local.directory import Directory, open_directory
from flux_ensemble.queues.local.root import StateError, UnreadableError, advised
from flux_ensemble.queues.local.state_dir import (
    AGAIN,
    FORMAT_FILE,
    GIVEN_UP,
    check_directory,
    is_running,
    last_sign,
    read_snapshot,
)
from flux_ensemble.runtime.durability.lines import whole_lines
from flux_ensemble.texts import listed
from flux_ensemble.words import in_words


def _lines(
    directory: Directory, name: str, form: state_forms.Form, expected: str
) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file, a line each.

    Raises:
        StateError: a line before the last one is damaged.
        OSError: the file cannot be read.
    """
    number = 1
    fits = state_forms.check_of(form)
    with os.fdopen(directory.open(name), "rb") as file:
        try:
            for line in whole_lines(file):
                value = state_forms.parse(line)
                if not fits(value):
                    raise ValueError(f"not {expected}")
                yield value
                number += 1
        except ValueError:
            path = directory.path / name
            raise StateError(f"{path}:{number}: expected {expected} in JSON") from None


#: What the line of an attempt has whose job ran again, and bytes that are searched at once.
_REPLACED = b'"replaced":'
_CHUNK = 1 << 20

#: Bytes that are free on a disk that counts as full.
LITTLE_ROOM = 1 << 12

#: Seconds without a new status, of which a run writes one each second, after which that is told.
STALE_SECONDS = 30.0

#: How far a file was read: its inode, and the number of bytes.
Mark = tuple[int, int]

_FORMS = {"eventlog": state_forms.ENTRY, "jobs": state_forms.JOB}


def _is_full(directory: Directory) -> bool:
    """Return whether nobody can write a run's files for lack of room."""
    disk = os.fstatvfs(directory.fd)
    free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    # A file system without blocks does not say how many are free.
    return disk.f_blocks > 0 and free * disk.f_frsize < LITTLE_ROOM


def _stale(t: float) -> dict[str, Any]:
    """Return the item of `waits` for a run that has not written its status since a time."""
    reason = (
        f"its run has written nothing for {in_words(time.time() - t)}: it is stopped, its disk is "
        "full or does not respond; what is shown is from then"
    )
    nobody = {"group": None, "member": None, "jobs": 0, "advice": ""}
    return {**nobody, "kind": UNWRITTEN, "reason": reason, "t": t, "text": reason}


def _is_name(name: str) -> bool:
    """Return whether an ensemble can have that name."""
    # Imported here, because commands that use Flux need nothing of documents.
    from flux_ensemble.document.keys.forms import ENSEMBLE_NAME

    return re.match(ENSEMBLE_NAME, name) is not None


def _stat(directory: Directory, name: str) -> os.stat_result | None:
    """Return the status of a file, or of anything else of that name; None if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
    return None


def _wait_again(status: dict[str, Any]) -> None:
    """Count jobs and trials that were active among those that wait: they do not run any more."""
    jobs = status["jobs"]
    status["jobs"] = {**jobs, "waiting": jobs["waiting"] + jobs["active"], "active": 0}
    for group in status["groups"].values():
        group["waiting"] += group["pending"] + group["running"]
        group["pending"] = group["running"] = 0
    for search in status.get("searches", ()):
        search["stock"] += search["active"]
        search["active"] = 0


def _again(directory: Directory, where: object) -> Continuation | None:
    """Return how an interrupted run is continued; None if it is another user's.

    Args:
        directory: of the run. Another user could recommend any command.
        where: the directory in which the run was begun.
    """
    if os.fstat(directory.fd).st_uid != os.geteuid():
        return None
    try:
        return Continuation.from_bytes(directory.read(AGAIN, MAX_BYTES), where)
    except (OSError, StateError):
        return Continuation("")


class _Ended:
    """The jobs in a file of them, of which only some are read.

    Args:
        data: the file.
        path: its path.
        number: of its whole lines, a job each.
    """

    def __init__(self, data: mmap.mmap, path: Path, number: int) -> None:
        self._data = data
        self._path = path
        self._number = number
        self._end = data.rfind(b"\n") + 1
        self._fits = state_forms.check_of(state_forms.JOB)

    def give(self, attempts: AttemptFilter) -> int:
        """Give attempts whose jobs ran again, and those that came after, to `attempts`.

        Only the lines of such attempts are read.

        Returns:
            How many of the jobs ran again.
        """
        # Imported here, because few runs have such attempts.
        from flux_ensemble.document.model import RETRY_RULE

        later = rb'"rule": ?"%s", ?"firing": ?(\d+)' % re.escape(RETRY_RULE).encode()
        words = re.compile(re.escape(_REPLACED) + b"|" + later)
        number, at = 0, self._data.find(_REPLACED, 0, self._end)
        while 0 <= at < self._end and (found := words.search(self._data, at, self._end)):
            begin, at, retry = found.start(), found.end(), found[1]
            # A match keeps the file from being closed.
            del found
            if retry is None or f"{RETRY_RULE}:{int(retry)}" in attempts.held:
                begin = self._data.rfind(b"\n", 0, begin) + 1
                at = self._data.find(b"\n", begin) + 1
                # What users have named may be called so, too: the row tells.
                number += not attempts.take(self._row(self._data[begin:at]))
        return number

    def last(self, most: int, *, every: bool) -> list[Any]:
        """Return the last jobs, at most so many; `every`: also those that ran again."""
        rows: list[Any] = []
        end, number = self._end, self._number
        while end > 0 and len(rows) < most:
            begin = self._data.rfind(b"\n", 0, end - 1) + 1
            row = self._row(self._data[begin:end], number)
            if every or "replaced" not in row:
                rows.append(row)
            end, number = begin, number - 1
        return rows[::-1]

    def since(self, position: int) -> list[Any]:
        """Return all jobs of lines that end after a position."""
        rows: list[Any] = []
        end = self._end
        while end > position:
            begin = self._data.rfind(b"\n", 0, end - 1) + 1
            rows.append(self._row(self._data[begin:end]))
            end = begin
        return rows

    def _row(self, line: bytes, number: int | None = None) -> Any:
        """Return the job of a line; the number of the line is looked for if it is not given."""
        try:
            row = state_forms.parse(line)
        except ValueError:
            row = None
        if row is None or not self._fits(row):
            if number is None:
                number = self._data[: self._data.find(line)].count(b"\n") + 1
            raise StateError(f"{self._path}:{number}: expected a job in JSON")
        return row


class States:
    """The ensembles in a state directory, for readers.

    The directory may belong to another user, and may have any contents.
    """

    #: The reason of an ensemble whose run did not end in order, with what resumes it.
    INTERRUPTED = "its run was interrupted: {}"

    #: The reason of such an ensemble if another one was begun in its place.
    GIVEN_UP = "its run was interrupted, and given up with --no-resume, or resume=False"

    def __init__(self, root: Path) -> None:
        self._root = root

    def command(self, *words: str) -> str:
        """A command about these runs, for people."""
        return advised(self._root, *words)

    def names(self) -> list[str]:
        """Return the names of the ensembles, the latest last.

        Raises:
            StateError, OSError: the state directory cannot be read.
        """
        begun: dict[str, float] = {}
        with contextlib.suppress(FileNotFoundError), self._open() as root:
            for name in filter(_is_name, root.names()):
                with contextlib.suppress(StateError, OSError), root.enter(name) as directory:
                    found = _stat(directory, "eventlog")
                    try:
                        check_directory(directory)
                    except UnreadableError:
                        # A later version may have its log elsewhere.
                        found = found or _stat(directory, FORMAT_FILE)
                    if found:
                        begun[name] = found.st_ctime
        return sorted(begun, key=begun.__getitem__)

    def log(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the entries of an ensemble's eventlog, oldest first.

        Raises:
            StateError: there is no such ensemble, or the log is damaged before its last line.
            OSError: the log cannot be read.
        """
        with self.find(name, "eventlog") as directory:
            yield from _lines(directory, "eventlog", state_forms.ENTRY, "an entry")

    def jobs(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the ended jobs of an ensemble, in the order of their ends, as in `ensemble.jobs`.

        Raises:
            StateError, OSError: as for `log`.
        """
        # A run of an earlier version has no such file.
        with self.find(name, "status.json") as directory, contextlib.suppress(FileNotFoundError):
            yield from _lines(directory, "jobs", state_forms.JOB, "a job")

    def last_jobs(
        self, name: str, most: int, attempts: AttemptFilter | None, since: int
    ) -> tuple[list[Any], int, list[Any]] | None:
        """Return the jobs that ended last, and the number of all that ended, without reading all.

        And those that ended since an earlier call of `ended_size`, of all attempts. None if there
        is no file of them.

        Args:
            name: the ensemble.
            most: number of jobs to return at most.
            since: what `ended_size` returned.
            attempts: takes the attempts whose jobs ran again, which are neither returned nor
                counted then, and those that came after; None to return and count all attempts.

        Raises:
            StateError, OSError: as for `log`.
        """
        with self.find(name, "status.json") as directory:
            try:
                stream = os.fdopen(directory.open("jobs"), "rb")
            except FileNotFoundError:
                return None
            with stream:
                if os.fstat(stream.fileno()).st_size == 0:
                    return [], 0, []
                with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    total = sum(
                        data[at : at + _CHUNK].count(b"\n") for at in range(0, len(data), _CHUNK)
                    )
                    ended = _Ended(data, directory.path / "jobs", total)
                    if attempts is not None:
                        total -= ended.give(attempts)
                    last = ended.last(most, every=attempts is None)
                    return last, total, ended.since(since)

    def ended_size(self, name: str) -> int:
        """Return the size of the file of ended jobs.

        Raises:
            StateError, OSError: as for `log`.
        """
        with self.find(name, "status.json") as directory:
            found = _stat(directory, "jobs")
        return 0 if found is None else found.st_size

    def read_on(
        self, name: str, file: str, mark: Mark | None, most: int
    ) -> tuple[list[dict[str, Any]], Mark, bool]:
        """Read what was written to a file since it was last read.

        Args:
            name: the ensemble.
            file: "eventlog" or "jobs".
            mark: how far it was read; None if it was not read yet.
            most: number of bytes to read at most, from the end.

        Returns:
            The whole and sound objects, how far the file is read now, and whether reading began
            again or left something out.

        Raises:
            StateError, OSError: as for `log`.
        """
        found = []
        with self.find(name, "status.json") as directory:
            try:
                stream = os.fdopen(directory.open(file), "rb")
            except FileNotFoundError:
                return [], (0, 0), mark is not None and mark[1] > 0
            with stream:
                status = os.fstat(stream.fileno())
                fresh = mark is None or mark[0] != status.st_ino or mark[1] > status.st_size
                start = 0 if fresh or mark is None else mark[1]
                if status.st_size - start > most:
                    fresh, start = True, status.st_size - most
                    stream.seek(start - 1)
                    start += len(stream.readline()) - 1
                stream.seek(start)
                for line in whole_lines(stream):
                    start += len(line)
                    with contextlib.suppress(ValueError):
                        value = state_forms.parse(line)
                        if state_forms.fits(value, _FORMS[file]):
                            found.append(value)
        return found, (status.st_ino, start), fresh

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of an ensemble, as `ensemble.status` does.

        An ensemble whose run was interrupted or killed is failed, and `resumable` unless it was
        given up; its active jobs count as waiting for the run that goes on.

        Raises:
            UnreadableError: its files are damaged, or written by a later version.
            StateError: there is no such ensemble, or its files were not left by a run.
            OSError: its files cannot be read.
        """
        with self.find(name, "status.json") as directory:
            status: dict[str, Any] = self._read(directory)["status"]
            for key in ("resumable", "resumes", "again"):
                status.pop(key, None)  # set below
            if status["state"] not in FINAL_STATES and not self.runs(directory):
                # A run that has just ended wrote its final status before it released the lock.
                status = self._read(directory)["status"]
            if status["state"] not in FINAL_STATES and not self.runs(directory):
                status.update(state="failed", reason=self.GIVEN_UP, t_end=last_sign(directory))
                if GIVEN_UP not in directory.names():
                    again = _again(directory, status.get("directory"))
                    known = asdict(again) if again else None
                    reason = self.INTERRUPTED.format(clause_of(known))
                    if _is_full(directory):
                        reason += ", once there is room on its disk, which is full"
                    status.update(reason=reason, resumable=True)
                    if known:
                        status["again"] = known
                    if again and again.command:
                        status["resumes"] = again.command
                _wait_again(status)
            elif status["state"] not in FINAL_STATES:
                t = os.stat("status.json", dir_fd=directory.fd).st_mtime
                if time.time() - t > STALE_SECONDS:
                    status["waits"] = [_stale(t)]
                    status.pop("t_predicted", None)
        return status

    def is_interrupted(self, status: Mapping[str, Any]) -> bool:
        """Return whether a status is that of an ensemble whose run can be resumed."""
        return bool(status.get("resumable"))

    def owner(self, name: str) -> int:
        """Return the user id of an ensemble's owner.

        Raises:
            StateError, OSError: as for `status`.
        """
        with self.find(name, "status.json") as directory:
            return os.fstat(directory.fd).st_uid

    def metrics(self, name: str) -> dict[str, Any]:
        """Return the metrics of an ensemble, as `ensemble.metrics` does.

        Raises:
            StateError, OSError: as for `status`.
        """
        with self.find(name, "status.json") as directory:
            metrics: dict[str, Any] = self._read(directory)["metrics"]
        return metrics

    def why(self, name: str, rule: str | None) -> dict[str, Any]:
        """Return the explanations of rules, as `ensemble.why` does, at most a second old.

        Raises:
            StateError: as for `status`; or there is no explanation of the rule.
            OSError: as for `status`.
        """
        status = self.status(name)
        found: Any = status.get("why")
        if not state_forms.fits(found, state_forms.WHY):
            raise StateError(f"the run of {name!r} has not said why its rules fire or do not")
        rules = [one for one in found["rules"] if rule in (None, one["id"])]
        if rule is not None and not rules:
            raise StateError(f"the run of {name!r} has said nothing about a rule {rule!r}")
        answer = {key: status[key] for key in ("state", "reason", "resumable") if key in status}
        return answer | {"t": found["t"], "rules": rules, "waits": status.get("waits", [])}

    def _read(self, directory: Directory) -> dict[str, Any]:
        try:
            return read_snapshot(directory)
        except ValueError:
            path = directory.path / "status.json"
            raise UnreadableError(
                f"{path}: expected status and metrics in JSON "
                f"('{self.command('rm', '--force', directory.path.name)}' removes the run)"
            ) from None

    def runs(self, directory: Directory) -> bool:
        """Return whether a run of the ensemble goes on.

        Args:
            directory: of the ensemble.

        Raises:
            StateError: the file system has no locks.
            OSError: there is no lock file, or it cannot be read.
        """
        return is_running(directory)

    def _open(self) -> Directory:
        return open_directory(self._root, ours=False)

    def find(self, name: str, file: str) -> Directory:
        """Open the directory of an ensemble that has a file.

        Raises:
            UnreadableError: its files were written by a later version.
            StateError: there is no such ensemble.
            OSError: the state directory cannot be read.
        """
        if _is_name(name):
            with contextlib.suppress(FileNotFoundError), self._open() as root:
                directory = root.enter(name)
                try:
                    check_directory(directory)
                    os.stat(file, dir_fd=directory.fd, follow_symlinks=False)
                    return directory
                except BaseException:
                    directory.close()
                    raise
        # Imported here, because it is rarely needed.
        from flux_ensemble.suggestions import hint

        names = self.names()
        known = f"{hint(name, names)}ensembles: {listed(names)}"
        raise StateError(f"no ensemble named {name!r} in {self._root} ({known})")


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
