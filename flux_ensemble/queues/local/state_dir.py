"""What the local queue keeps of an ensemble in files, for `log`, `status` and `metrics`.

Each ensemble has a directory of its name in the state directory:

    format        the number of the format of all the others, which is looked at first
    eventlog      its entries (RFC 18), a line of JSON each, written before what they say is done
    status.json   status and metrics as they were at most a second ago, or at the end, and how
                  many events there were
    jobs          its jobs that are gone, a line of JSON each, as they were at most a second ago
    events        every event that the engine took in, for going on after a kill
    document      the document, without `use`
    source        what it was made of, where that has `use`
    output/       ID.out, the output of jobs whose document names no file
    lock          locked while the ensemble runs
    control       the socket of `queues.local.control`, while the ensemble runs
    jobs.lock     locked while there may be processes of its jobs
    scratch       the path of its scratch directory (`queues.local.leftovers`)

    asked         the name that the run was asked for by
    given-up      a run was begun in its place with --no-resume

A run does not replace them: the next one of its name has another one (`run_names`). The last line
of an eventlog whose run was killed may be cut short; it is ignored. `queues.local.directory` keeps
out what others put in their places.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from flux_ensemble.engine.lifecycle import FINAL_STATES
from flux_ensemble.queues.local import state_forms
from flux_ensemble.queues.local.directory import Directory, open_directory
from flux_ensemble.queues.local.root import StateError, UnreadableError
from flux_ensemble.run_names import can_be_named, free_name
from flux_ensemble.runtime.durability.format import FORMAT, KEY, LaterFormatError, check_format
from flux_ensemble.runtime.durability.lines import MAX_LINE, Lines, whole_lines

#: Largest `status.json` in bytes.
MAX_STATUS = MAX_LINE

#: How long somebody who only looks can have a lock, in seconds, and how long the jobs of a run
#: that was killed may take to be gone.
LOOK_SECONDS, JOBS_SECONDS = 1.0, 30.0

#: Between two attempts to get a lock.
_RETRY_SECONDS = 0.01


#: What the document was made of, where that has `use`.
SOURCE = "source"


#: The number of the format, as `{"format": 2}`.
FORMAT_FILE = "format"


#: The name that a run was asked for by, and that nobody is to go on with it.
ASKED, GIVEN_UP = "asked", "given-up"


class _TakenError(Exception):
    """A run that has ended has the name."""


def running_already(name: str) -> StateError:
    """The error for a name whose run goes on."""
    return StateError(
        f"an ensemble named {name!r} is running already: wait for its end, or give this one "
        "another name with --name"
    )


def check_directory(directory: Directory) -> None:
    """Check that a run in a directory, if there is one, is not of a later version.

    Raises:
        UnreadableError: it is.
        StateError: the file that says so is no file of ours.
        OSError: it cannot be read.
    """
    path = directory.path / FORMAT_FILE
    try:
        stored = state_forms.parse(directory.read(FORMAT_FILE, MAX_LINE))
    except FileNotFoundError:
        return  # of format 1
    except ValueError:
        stored = None
    if not isinstance(stored, dict):
        raise UnreadableError(f"{path}: expected the number of the format in JSON")
    name = directory.path.name
    remove = f"remove it with 'flux-ensemble rm --force {name}'"
    try:
        check_format(stored, f"the run of {name!r}", remove)
    except LaterFormatError as error:
        raise UnreadableError(str(error)) from None


def state_of(directory: Directory) -> str:
    """What was run in a directory and does not run any more: "ended", "unfinished" or "nothing".

    Raises:
        UnreadableError: a later version ran it.
        StateError: there are no files of ours.
        OSError: they cannot be read.
    """
    check_directory(directory)
    with contextlib.suppress(FileNotFoundError):
        os.close(directory.open(GIVEN_UP))
        return "ended"
    known = True
    try:
        state = read_snapshot(directory)["status"]["state"]
        return "ended" if state in FINAL_STATES else "unfinished"
    except FileNotFoundError:
        known = False
    except ValueError:
        pass  # cut short or damaged: what counts is whether anything happened
    with contextlib.suppress(FileNotFoundError):
        fd = directory.open("events")
        try:
            if os.fstat(fd).st_size > 0:
                return "unfinished"
        finally:
            os.close(fd)
    return "ended" if known else "nothing"


def is_running(directory: Directory) -> bool:
    """Whether the run in a directory goes on.

    Raises:
        StateError: there are no locks here.
        OSError: there is no lock, or it cannot be read.
    """
    lock = directory.open("lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        raise no_locks(directory, "lock", error) from None
    finally:
        os.close(lock)
    return False


def runs_of(top: Directory, asked: str) -> dict[str, str]:
    """The runs that were asked for by a name, or have it, and their states; the first one first.

    The states are those of `state_of`, "running", and "unreadable" if a later version ran it.
    """
    found = {}
    names = sorted(name for name in top.names() if can_be_named(name, asked))
    for name in sorted(names, key=len):
        # What is no directory of ours is for those to refuse who want it.
        with contextlib.suppress(StateError, OSError), top.enter(name) as directory:
            if name == asked or _asked_for(directory) == asked:
                try:
                    running = is_running(directory)
                except FileNotFoundError:
                    running = False
                try:
                    found[name] = "running" if running else state_of(directory)
                except UnreadableError:
                    found[name] = "unreadable"
    return found


def _asked_for(directory: Directory) -> str:
    try:
        return directory.read(ASKED, MAX_LINE).decode(errors="replace")
    except FileNotFoundError:
        return ""


def choose(top: Directory, asked: str, resume: bool | None) -> str:
    """The name of a run that is to begin, or to go on.

    Args:
        top: the state directory.
        asked: what it is asked for by.
        resume: as for `StateLog`. Runs that are given up are marked.

    Raises:
        StateError: a run that was asked for by that name goes on.
        OSError: the directory cannot be read.
    """
    runs = runs_of(top, asked)
    if runs.get(asked) == "running":
        return asked  # is waited for a little: somebody may only look, or remove it
    for name, state in runs.items():
        if state == "running":
            raise running_already(name)
    unfinished = [name for name, state in runs.items() if state == "unfinished"]
    if resume and not unfinished:
        _check_readable(top, runs)
    if resume or (unfinished and resume is None):
        return asked if asked in unfinished else [asked, *unfinished][-1]
    if runs.get(asked) == "unreadable":
        return asked  # is refused, as the service refuses such a name
    for name in unfinished:
        _give_up(top, name)
    if runs.get(asked, "nothing") == "nothing" and not unfinished:
        return asked
    return free_name(asked, set(top.names()) - {name for name in runs if runs[name] == "nothing"})


def _check_readable(top: Directory, runs: Iterable[str]) -> None:
    """Refuse to look for a run to go on with where a later version has left some.

    Raises:
        UnreadableError: one of them is of a later version.
    """
    for name in runs:
        with top.enter(name) as directory:
            check_directory(directory)


def _give_up(top: Directory, name: str) -> None:
    """Mark a run as one that nobody goes on with, when its jobs are gone."""
    with ExitStack() as stack:
        directory = stack.enter_context(top.enter(name))
        directory.check_own()
        for lock, seconds, error in (
            ("lock", LOOK_SECONDS, running_already(name)),
            ("jobs.lock", JOBS_SECONDS, still_killed(name)),
        ):
            fd = directory.open_or_make(lock, os.O_RDWR)
            stack.callback(os.close, fd)
            try:
                take_lock(directory, lock, fd, seconds)
            except BlockingIOError:
                raise error from None
        directory.replace(GIVEN_UP, b"")


def still_killed(name: str) -> StateError:
    """The error for a run whose jobs are not gone yet."""
    return StateError(
        f"processes of jobs of the earlier run of {name!r} are still being killed: try again when "
        "they are gone"
    )


class StateLog:
    """The files of an ensemble that begins to run.

    Args:
        root: the state directory.
        name: what the ensemble is asked for by: see `run_names`.
        document: its text, without `use`.
        resume: go on with a run that was interrupted, or begin anew and give that one up; None
            refuses to begin anew where there is such a run.
        source: the text that it was made of, where that has `use`.

    Attributes:
        name: of the ensemble.
        resumed: it goes on with an earlier run.
        kept: how many runs there are in the state directory besides this one.
        directory: where they are.
        output: the directory for the output of jobs.
        jobs_lock: a lock that is held as long as this descriptor is open anywhere.
        events: how many events a run that was killed is known to have taken down.
        t_known: when that was last known to go on, by what it wrote: it does so each second.

    Raises:
        StateError: an ensemble of the name runs, the files cannot be made, there is a
            killed run and `resume` is None, or none and `resume` is True.
    """

    def __init__(
        self,
        root: Path,
        name: str,
        document: str,
        resume: bool | None = None,
        source: str | None = None,
    ) -> None:
        self._source = source
        self._asked = name
        self.resumed = bool(resume)
        self.events = 0
        self.t_known = 0.0
        while True:
            with ExitStack() as stack:
                try:
                    top = stack.enter_context(open_directory(root, make=True))
                    top.check_own()
                    self.name = self._name = choose(top, name, resume)
                    self.kept = len({*top.names()} - {self.name})
                    self.directory = stack.enter_context(top.enter(self.name, make=True))
                    self.directory.check_own()
                except OSError as error:
                    raise StateError(f"cannot write to {root}: {error.strerror}") from None
                try:
                    self._begin(stack, top, document.encode(), resume)
                except _TakenError:
                    continue
                except OSError as error:
                    raise StateError(
                        f"cannot write to {self.directory.path}: {error.strerror}"
                    ) from None
                self._stack = stack.pop_all()
                return

    def _begin(
        self, stack: ExitStack, top: Directory, document: bytes, resume: bool | None
    ) -> None:
        try:
            self._lock(stack, "lock", LOOK_SECONDS)
        except BlockingIOError:
            raise running_already(self._name) from None
        if not self._is_in(top):
            raise StateError(f"{self._name!r} was unloaded just now: try again")
        self._check_resume(document, resume)
        for one in ("eventlog.new", "eventlog", "jobs.new", "jobs", "events"):
            self.directory.check(one)
        with self.directory.enter("output", make=True) as output:
            output.check_own()
        try:
            self.jobs_lock = self._lock(stack, "jobs.lock", JOBS_SECONDS)
        except BlockingIOError:
            raise still_killed(self._name) from None
        if not resume:
            # The run before is forgotten when its events are gone, and not earlier.
            self.directory.remove("status.json")
            self.directory.remove("events")
            shutil.rmtree("output", dir_fd=self.directory.fd)
            self.directory.remove(SOURCE)
            self.directory.remove(GIVEN_UP)
        # First of all that is new: from now on it may have what an earlier version cannot read.
        self.directory.replace(FORMAT_FILE, json.dumps({KEY: FORMAT}).encode())
        if not resume:
            self.directory.replace(ASKED, self._asked.encode())
            self.directory.replace("document", document)
            if self._source is not None:
                self.directory.replace(SOURCE, self._source.encode())
        self.output = stack.enter_context(self.directory.enter("output", make=True))
        # What the log of the run before says stays there until this one says it too.
        self._entries = Lines(self.directory.create("eventlog.new"))
        stack.callback(self._entries.close)
        self._jobs = Lines(self.directory.create("jobs.new"))
        stack.callback(self._jobs.close)

    def _is_in(self, top: Directory) -> bool:
        """The directory is there under its name: nobody has removed it before it was locked."""
        try:
            there = os.stat(self._name, dir_fd=top.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self.directory.fd))

    def _lock(self, stack: ExitStack, name: str, seconds: float) -> int:
        """Lock a file; the descriptor that has the lock."""
        fd = self.directory.open_or_make(name, os.O_RDWR)
        stack.callback(os.close, fd)
        take_lock(self.directory, name, fd, seconds)
        return fd

    def _check_resume(self, document: bytes, resume: bool | None) -> None:
        state = state_of(self.directory)
        killed = state == "unfinished"
        name = self._name
        if not resume and state == "ended":
            raise _TakenError  # by a run that has begun and ended meanwhile
        if resume is None and killed:
            raise StateError(
                f"an earlier run of {name!r} was interrupted before it ended: --resume goes on "
                "with it, and --no-resume begins anew"
            )
        if resume and not killed:
            raise StateError(f"there is no run of {name!r} that was interrupted before it ended")
        if resume:
            try:
                known = self.directory.read("document", len(document))
            except (FileNotFoundError, StateError):
                known = None
            if known != document:
                raise StateError(
                    f"the document is not that of the run of {name!r} that was interrupted"
                )
            with contextlib.suppress(FileNotFoundError, ValueError):
                self.events = read_snapshot(self.directory)["events"]
            for written in ("status.json", "events", "eventlog"):
                with contextlib.suppress(FileNotFoundError):
                    t = os.stat(written, dir_fd=self.directory.fd, follow_symlinks=False).st_mtime
                    self.t_known = max(self.t_known, t)

    def entries_before(self) -> Iterator[dict[str, Any]]:
        """The entries of the run before, as far as they are sound."""
        with (
            contextlib.suppress(OSError, StateError, ValueError),
            os.fdopen(self.directory.open("eventlog"), "rb") as file,
        ):
            for line in whole_lines(file):
                entry = state_forms.parse(line)
                if state_forms.fits(entry, state_forms.ENTRY):
                    yield entry

    def publish(self) -> None:
        """Put the entries and jobs so far, and those to come, in the place of those there were.

        Raises:
            StateError: what is there is no file of ours.
            OSError: they cannot be replaced.
        """
        self.directory.rename("jobs.new", "jobs")
        self.directory.rename("eventlog.new", "eventlog")

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write an entry.

        Raises:
            OSError: it cannot be written.
        """
        self._entries.append(json.dumps(entry).encode() + b"\n")

    def append_jobs(self, jobs: Iterable[Mapping[str, Any]]) -> None:
        """Write jobs that are gone.

        Raises:
            OSError: they cannot be written.
        """
        text = "".join(json.dumps(job) + "\n" for job in jobs)
        if text:
            self._jobs.append(text.encode())

    def snapshot(self, status: Mapping[str, Any], metrics: Mapping[str, Any], events: int) -> None:
        """Replace status and metrics; `events` are taken down by now.

        Raises:
            StateError: what is in their place is no file of ours.
            OSError: they cannot be written; those that were there are.
        """
        snapshot = {"status": status, "metrics": metrics, "events": events}
        self.directory.replace("status.json", json.dumps(snapshot).encode())

    def close(self) -> None:
        """The ensemble does not run any more."""
        self._stack.close()


def made_of(root: Path, name: str, source: str) -> str | None:
    """The document of the run of a name that is to go on.

    Args:
        root: the state directory.
        name: what it is asked for by.
        source: the text that it has to be made of.

    Returns:
        Its text, without `use`; None if there is no such run.
    """
    with contextlib.suppress(OSError, StateError, UnicodeDecodeError), ExitStack() as stack:
        top = stack.enter_context(open_directory(root))
        top.check_own()
        directory = stack.enter_context(top.enter(choose(top, name, True)))
        directory.check_own()
        size = len(source.encode())
        if directory.read(SOURCE, size).decode() == source:
            return directory.read("document", MAX_LINE).decode()
    return None


def read_snapshot(directory: Directory) -> dict[str, Any]:
    """What is in an ensemble's `status.json`.

    Raises:
        ValueError: it is not what a run wrote.
        StateError: it is no file of ours.
        OSError: it cannot be read.
    """
    value = state_forms.parse(directory.read("status.json", MAX_STATUS))
    if not state_forms.fits(value, state_forms.SNAPSHOT):
        raise ValueError("not a status")
    snapshot: dict[str, Any] = value
    return snapshot


def take_lock(directory: Directory, name: str, fd: int, seconds: float) -> None:
    """Lock a file for as long as a descriptor is open.

    Args:
        directory: where it is.
        name: of the file.
        fd: the descriptor.
        seconds: how long to wait for somebody else who has locked it.

    Raises:
        BlockingIOError: somebody else has had it all the time.
        StateError: there are no locks here.
    """
    give_up = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise
            time.sleep(_RETRY_SECONDS)
        except OSError as error:
            raise no_locks(directory, name, error) from None


def no_locks(directory: Directory, name: str, error: OSError) -> StateError:
    """The error for a file that cannot be locked."""
    return StateError(
        f"cannot lock {directory.path / name}: {error.strerror}: name a state directory on a file "
        "system with locks (flock(2)) with --state-dir"
    )
