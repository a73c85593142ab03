"""The files that the local queue keeps of an ensemble, for `log`, `status` and `metrics`.

Each ensemble has a directory of its name in the state directory:

    format        the number of the format of all other files, which is read first
    eventlog      its entries (RFC 18), a line of JSON each, written before they take effect
    status.json   status and metrics, at most a second old while it runs, and the number of events
    jobs          its ended jobs, a line of JSON each, at most a second old while it runs
    events        every event that the engine took in, for resumption after a kill
    document      the document, without `use`
    source        the original document, if that has `use`
    output/       ID.out, the output of jobs whose document names no file
    tails/        MEMBER, the last output of failed tasks of a worker that calls home
    lock          locked while the ensemble runs
    control       the socket of `queues.local.control`, while the ensemble runs
    jobs.lock     locked while there may be processes of its jobs
    scratch       the path of its scratch directory (`queues.local.leftovers`)
    home          the port and the key at which its members call (`service.home`)

    asked         the name that was requested for the run
    again         the command that continues the run, or the Python program that does
    begun         `again` of the run before jobs of it were run again
    given-up      present if a run was begun in its place with --no-resume

A new run does not replace these files: it gets another name (`run_names`). If a run was killed, the
last line of its eventlog may be cut short; such a line is ignored. `queues.local.directory` rejects
files that others put in their places.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from flux_ensemble.engine.lifecycle import FINAL_STATES
from flux_ensemble.queues.local import state_forms
from flux_ensemble.queues.local.continuation import Continuation
from flux_ensemble.queues.local.directory import Directory, open_directory
from flux_ensemble.queues.local.kinds import QUEUES, USUAL, QueueName, own_queue
from flux_ensemble.queues.local.root import StateError, UnreadableError, advised
from flux_ensemble.run_names import can_be_named, cannot_resume, free_name, goes_on_already
from flux_ensemble.runtime.durability.format import LaterFormatError, check_format, numbered
from flux_ensemble.runtime.durability.lines import MAX_LINE, Lines, whole_lines

#: Largest `status.json` in bytes.
MAX_STATUS = MAX_LINE

#: Seconds that a mere reader can have a lock, and seconds that the jobs of a killed run may take to
#: be gone.
LOOK_SECONDS, JOBS_SECONDS = 1.0, 30.0

#: Seconds between two attempts to get a lock.
_RETRY_SECONDS = 0.01


#: The file with the original document, if that has `use`.
SOURCE = "source"


#: The file with the number of the format, as `{"format": 2}`.
FORMAT_FILE = "format"


#: The files with the requested name of a run, and with the mark that it is not to be resumed.
ASKED, GIVEN_UP = "asked", "given-up"


#: The file that says how the run is continued: see `queues.local.continuation`.
AGAIN = "again"

#: The file that keeps how a run was begun of which jobs are run again: see `rerun`.
BEGUN = "begun"


#: The file with the name of the run's queue, if that is not the usual one: see `kinds.QUEUES`.
QUEUE = "queue"

#: Greatest length of that file in bytes.
_MAX_QUEUE = 256


#: The directory for the output of jobs.
OUTPUT = "output"

#: The directory for the last output of failed tasks of workers.
TAILS = "tails"


def kept_files(run: Path) -> Callable[[int], str]:
    """Return the function that returns the file for the output of a job, by its id.

    It is for jobs whose document names no file. Its path is absolute, since rows of jobs are read
    in other directories, too.

    Args:
        run: the directory of the run.
    """
    directory = os.path.abspath(run / OUTPUT)
    return lambda id: f"{directory}/{id}.out"


class _TakenError(Exception):
    """The name belongs to a run that has ended."""


def running_already(root: Path, name: str) -> StateError:
    """Make the error for a name whose run in a state directory goes on."""
    return StateError(goes_on_already(name, advised(root, "watch", name)))


def check_directory(directory: Directory) -> None:
    """Check that a run in a directory, if there is one, was not written by a later version.

    Raises:
        UnreadableError: it was.
        StateError: the name of the file with the format is taken by something else.
        OSError: that file cannot be read.
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
    remove = f"remove it with '{advised(directory.path.parent, 'rm', '--force', name)}'"
    try:
        check_format(stored, f"the run of {name!r}", remove)
    except LaterFormatError as error:
        raise UnreadableError(str(error)) from None


def state_of(directory: Directory) -> str:
    """Return the state of a run that does not go on: "ended", "unfinished" or "nothing".

    Raises:
        UnreadableError: a later version wrote its files.
        StateError: the names of its files are taken by something else.
        OSError: its files cannot be read.
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
        pass  # cut short or damaged: the events decide whether anything happened
    with contextlib.suppress(FileNotFoundError):
        fd = directory.open("events")
        try:
            if os.fstat(fd).st_size > 0:
                return "unfinished"
        finally:
            os.close(fd)
    return "ended" if known else "nothing"


def is_running(directory: Directory) -> bool:
    """Return whether the run in a directory goes on.

    Raises:
        StateError: the file system has no locks.
        OSError: there is no lock file, or it cannot be read.
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
    """Return the runs with a requested or actual name, and their states; the first run first.

    The states are those of `state_of`, "running", and "unreadable" for a run of a later version.
    """
    found = {}
    names = sorted(name for name in top.names() if can_be_named(name, asked))
    for name in sorted(names, key=len):
        # A caller that needs the name of something foreign refuses it then.
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
    """Choose the name of a run that is to begin, or to go on.

    Args:
        top: the state directory.
        asked: the requested name.
        resume: as for `StateLog`. Runs that are given up are marked.

    Raises:
        StateError: a run with that requested name goes on.
        OSError: the directory cannot be read.
    """
    runs = runs_of(top, asked)
    if runs.get(asked) == "running":
        return asked  # its lock is waited for a little: a reader or a removal may have it
    for name, state in runs.items():
        if state == "running":
            raise running_already(top.path, name)
    unfinished = [name for name, state in runs.items() if state == "unfinished"]
    if resume and not unfinished:
        _check_readable(top, runs)
    if resume or (unfinished and resume is None):
        return asked if asked in unfinished else [asked, *unfinished][-1]
    if runs.get(asked) == "unreadable":
        return asked  # refused later, as the service refuses such a name
    for name in unfinished:
        _give_up(top, name)
    if runs.get(asked, "nothing") == "nothing" and not unfinished:
        return asked
    return free_name(asked, set(top.names()) - {name for name in runs if runs[name] == "nothing"})


def _check_readable(top: Directory, runs: Iterable[str]) -> None:
    """Check the runs before one of them is resumed: a later version may have written some.

    Raises:
        UnreadableError: a run was written by a later version.
    """
    for name in runs:
        with top.enter(name) as directory:
            check_directory(directory)


def _give_up(top: Directory, name: str) -> None:
    """Mark a run as given up, once its jobs are gone."""
    with ExitStack() as stack:
        directory = stack.enter_context(top.enter(name))
        directory.check_own()
        for lock, seconds, error in (
            ("lock", LOOK_SECONDS, running_already(top.path, name)),
            ("jobs.lock", JOBS_SECONDS, still_killed(name)),
        ):
            fd = directory.open_or_make(lock, os.O_RDWR)
            stack.callback(os.close, fd)
            try:
                take_lock(directory, lock, fd, seconds)
            except BlockingIOError:
                raise error from None
        directory.replace(GIVEN_UP, b"")


def _end_of(top: Directory, name: str) -> str:
    """Return what became of a run of a name that is taken, as the verb of a sentence."""
    with contextlib.suppress(StateError, OSError), top.enter(name) as directory:
        os.close(directory.open(GIVEN_UP))
        return "was interrupted, is given up"
    return "has ended"


def still_killed(name: str) -> StateError:
    """Make the error for a run whose jobs are not gone yet."""
    return StateError(
        f"processes of jobs of the earlier run of {name!r} are still being killed: try again when "
        "they are gone"
    )


class HasEndedError(StateError):
    """The run that is to go on has ended.

    Args:
        message: one sentence.
        name: the name of the latest such run.
    """

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


class StateLog:
    """The files of an ensemble that begins to run.

    Args:
        root: the state directory.
        name: the requested name of the ensemble: see `run_names`.
        document: its text, without `use`.
        resume: True to go on with an interrupted run, or to begin if no run of the name began;
            False to begin again and give that one up; None to begin a new run, which is refused if
            there is such a run.
        source: the original document, if that has `use`.
        kept: the run has this very name, and its own document; with `resume` it was interrupted,
            else it has ended, and jobs of it are run again.
        queue: the name of its queue; None is that of the run that goes on, or the usual one.

    Attributes:
        name: of the ensemble.
        queue: the name of its queue.
        resumed: this run goes on with an earlier one.
        of_asked: what became of the run that has the requested name, if that is another one.
        kept: number of other runs in the state directory.
        directory: of the ensemble.
        output: the directory for the output of jobs.
        jobs_lock: a lock that is held as long as this descriptor is open in any process.
        events: number of events that a killed run is known to have written.
        t_known: when the killed run is last known to have gone on (`last_sign`).

    Raises:
        StateError: an ensemble of the name runs, the files cannot be made, there is an interrupted
            run and `resume` is None, or one that has ended and `resume` is True.
    """

    def __init__(
        self,
        root: Path,
        name: str,
        document: str,
        resume: bool | None = None,
        source: str | None = None,
        *,
        kept: bool = False,
        queue: QueueName | None = None,
    ) -> None:
        self._source = source
        self._of_kept = kept
        self._asked = name
        self.queue = queue or USUAL
        self._chosen = queue is not None
        self.events = 0
        self.t_known = 0.0
        while True:
            with ExitStack() as stack:
                try:
                    top = stack.enter_context(open_directory(root, make=True))
                    top.check_own()
                    self.name = self._name = name if kept else choose(top, name, resume)
                    self.kept = len({*top.names()} - {self.name})
                    self.directory = stack.enter_context(top.enter(self.name, make=True))
                    self.directory.check_own()
                    self.of_asked = _end_of(top, name)
                except OSError as error:
                    raise StateError(
                        f"cannot write to {root}: {error.strerror}; name another state directory "
                        "with --state-dir"
                    ) from None
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
            raise running_already(top.path, self._name) from None
        if not self._is_in(top):
            raise StateError(f"{self._name!r} was unloaded just now: try again")
        resume = self._check_resume(top, document, resume)
        self.resumed = bool(resume)
        if (resume or self._of_kept) and not self._chosen:
            self.queue = self._queue_before()
        for one in ("eventlog.new", "eventlog", "jobs.new", "jobs", "events"):
            self.directory.check(one)
        with self.directory.enter(OUTPUT, make=True) as output:
            output.check_own()
        try:
            self.jobs_lock = self._lock(stack, "jobs.lock", JOBS_SECONDS)
        except BlockingIOError:
            raise still_killed(self._name) from None
        if not resume:
            # The earlier run is forgotten when its events are removed, and not before.
            self.directory.remove("status.json")
            self.directory.remove("events")
            shutil.rmtree(OUTPUT, dir_fd=self.directory.fd)
            self.directory.remove(SOURCE)
            self.directory.remove(GIVEN_UP)
        # Before all new files: these may be unreadable for an earlier version.
        self.directory.replace(FORMAT_FILE, json.dumps(numbered()).encode())
        if not resume:
            self.directory.replace(ASKED, self._asked.encode())
            self.directory.replace("document", document)
            if self._source is not None:
                self.directory.replace(SOURCE, self._source.encode())
        self._note_queue()
        self.output = stack.enter_context(self.directory.enter(OUTPUT, make=True))
        # The earlier log stays in place until the new one includes all of it.
        self._entries = Lines(self.directory.create("eventlog.new"))
        stack.callback(self._entries.close)
        self._jobs = Lines(self.directory.create("jobs.new"))
        stack.callback(self._jobs.close)

    def _queue_before(self) -> QueueName:
        """Return the name of the queue with which the run was begun."""
        try:
            name = self.directory.read(QUEUE, _MAX_QUEUE).decode(errors="replace")
        except FileNotFoundError:
            return USUAL
        known = own_queue(name)
        if known is not None:
            return known
        raise StateError(
            f"the run of {self._name!r} has the queue {name!r}, which there is not here: expected "
            f"one of {', '.join(QUEUES)}"
        )

    def _note_queue(self) -> None:
        name: str = self.queue
        if name == USUAL:
            self.directory.remove(QUEUE)
        else:
            self.directory.replace(QUEUE, name.encode())

    def note_again(self, again: Continuation) -> None:
        """Keep how the run is continued, for users who find it interrupted.

        A full disk is reported for the files that matter.
        """
        data = again.to_bytes()
        with contextlib.suppress(OSError):
            if data is None:
                self.directory.remove(AGAIN)
            else:
                self.directory.replace(AGAIN, data)

    def _is_in(self, top: Directory) -> bool:
        """Return whether the directory still has its name, and was not removed before its lock."""
        try:
            there = os.stat(self._name, dir_fd=top.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self.directory.fd))

    def _lock(self, stack: ExitStack, name: str, seconds: float) -> int:
        """Lock a file; return the descriptor that has the lock."""
        fd = self.directory.open_or_make(name, os.O_RDWR)
        stack.callback(os.close, fd)
        take_lock(self.directory, name, fd, seconds)
        return fd

    def _refuse_canceled(self, top: Directory) -> None:
        """Raise an error if the latest run of the name was canceled."""
        latest = [*runs_of(top, self._asked)][-1]
        with contextlib.suppress(OSError, ValueError), top.enter(latest) as directory:
            status = read_snapshot(directory)["status"]
            if status["state"] == "canceled":
                raise StateError(cannot_resume(latest, search=bool(status.get("searches"))))

    def _check_resume(self, top: Directory, document: bytes, resume: bool | None) -> bool | None:
        """Return `resume`, but None if there is nothing to go on with: then the run begins."""
        state = state_of(self.directory)
        killed = state == "unfinished"
        name = self._name
        if self._of_kept:
            self._check_kept(state, killed if resume else not killed)
            resume = True
        elif not resume and state == "ended":
            raise _TakenError  # by a run that has begun and ended meanwhile
        if resume is None and killed:
            raise StateError(
                f"an earlier run of {name!r} was interrupted before it ended: --resume goes on "
                "with it, and --no-resume begins anew"
            )
        if resume and state == "nothing":
            return None
        if resume and not killed and not self._of_kept:
            self._refuse_canceled(top)
            raise HasEndedError(
                f"there is no run of {name!r} that was interrupted before it ended: it has ended, "
                "and a run without --resume begins another one",
                [*runs_of(top, self._asked)][-1],
            )
        if resume:
            try:
                known = self.directory.read("document", MAX_LINE)
            except (FileNotFoundError, StateError):
                known = None
            if known is None or not _is_same(known, document):
                kept = SOURCE if SOURCE in self.directory.names() else "document"
                goes_on = advised(top.path, "rerun", "--resume", name)
                raise StateError(
                    f"the document is not that of the run of {name!r} that was interrupted, which "
                    f"is kept in {self.directory.path / kept}: '{goes_on}' goes on with that one; "
                    "or undo what was changed, or begin anew with --no-resume, which keeps what "
                    "there is of the run"
                )
            with contextlib.suppress(FileNotFoundError, ValueError):
                self.events = read_snapshot(self.directory)["events"]
            self.t_known = last_sign(self.directory)
        return resume

    def _check_kept(self, state: str, fits: bool) -> None:
        """Check the state of a run of which jobs are to be run again, or that is to go on."""
        name = self._name
        if state == "nothing" or GIVEN_UP in self.directory.names():
            raise StateError(f"the run of {name!r} was given up, and cannot go on")
        if fits:
            return
        if state == "ended":
            reason = f"the run of {name!r} was not interrupted: it has ended"
            raise HasEndedError(reason, name)
        raise StateError(f"the run of {name!r} was interrupted before it ended")

    def begin_again(self, again: Continuation) -> None:
        """Keep how the run was begun, and how it is continued from now on."""
        with contextlib.suppress(OSError, StateError):
            if BEGUN not in self.directory.names():
                self.directory.replace(BEGUN, self.directory.read(AGAIN, MAX_LINE))
        self.note_again(again)

    def drop(self) -> None:
        """Remove the new files, which are not needed."""
        for one in ("jobs.new", "eventlog.new"):
            self.directory.remove(one)

    def entries_before(self) -> Iterator[dict[str, Any]]:
        """Yield the sound entries of the earlier run, up to the first line that is no JSON."""
        with (
            contextlib.suppress(OSError, StateError, ValueError),
            os.fdopen(self.directory.open("eventlog"), "rb") as file,
        ):
            for line in whole_lines(file):
                entry = state_forms.parse(line)
                if state_forms.fits(entry, state_forms.ENTRY):
                    yield entry

    def publish(self) -> None:
        """Replace the earlier files of entries and jobs by the new ones.

        Raises:
            StateError: the name of one is taken by something else.
            OSError: the files cannot be replaced.
        """
        self.directory.rename("jobs.new", "jobs")
        self.directory.rename("eventlog.new", "eventlog")

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write an entry.

        Raises:
            OSError: the entry cannot be written.
        """
        self._entries.append(json.dumps(entry).encode() + b"\n")

    def append_jobs(self, jobs: Iterable[Mapping[str, Any]]) -> None:
        """Write jobs that have ended.

        Raises:
            OSError: the jobs cannot be written.
        """
        text = "".join(json.dumps(job) + "\n" for job in jobs)
        if text:
            self._jobs.append(text.encode())

    def replace_jobs(self, jobs: Iterable[Mapping[str, Any]]) -> None:
        """Replace the jobs that have been written by these, to which more can be appended.

        Raises:
            StateError: the file's name is taken by something else.
            OSError: the jobs cannot be written; those before stay.
        """
        fresh = Lines(self.directory.create("jobs.new"))
        self._stack.callback(fresh.close)
        before, self._jobs = self._jobs, fresh
        try:
            self.append_jobs(jobs)
            self.directory.rename("jobs.new", "jobs")
        except BaseException:
            self._jobs = before
            raise

    def snapshot(self, status: Mapping[str, Any], metrics: Mapping[str, Any], events: int) -> None:
        """Replace status and metrics; `events` is the number of events written so far.

        Raises:
            StateError: the file's name is taken by something else.
            OSError: they cannot be written; the earlier ones stay.
        """
        snapshot = {"status": status, "metrics": metrics, "events": events}
        self.directory.replace("status.json", json.dumps(snapshot).encode())

    def close(self) -> None:
        """Close the files: the ensemble does not run any more."""
        self._stack.close()


def _is_same(known: bytes, document: bytes) -> bool:
    """Return whether two documents mean the same: comments and the layout do not count.

    >>> _is_same(b"a: {x: 1, y: [2]}", b"# new\\na:\\n  x: 1\\n  y: [2]\\n")
    True
    >>> _is_same(b"a: {x: 1, y: 2}", b"a: {y: 2, x: 1}")  # the order of points
    False
    """
    if known == document:
        return True
    # Imported here, because readers need nothing of documents.
    from flux_ensemble.document.problems import DocumentError
    from flux_ensemble.document.yaml_reader import read_yaml

    try:
        values = [read_yaml(text.decode())[0].value for text in (known, document)]
    except (DocumentError, UnicodeDecodeError):
        return False
    # As texts, since mappings in another order are equal, and so are 1 and 1.0.
    return repr(values[0]) == repr(values[1])


class Kept(NamedTuple):
    """The beginning of a run, as it is kept.

    Attributes:
        text: its document, without `use`.
        source: the document as it was written.
        where: the directory in which it was begun.
        again: how it was begun.
    """

    text: str
    source: str
    where: str
    again: Continuation


def kept_of(root: Path, name: str) -> Kept:
    """Return what a run has kept of its beginning.

    Args:
        root: the state directory.
        name: the name of the run.

    Raises:
        UnreadableError: a later version wrote its files, or they are damaged.
        StateError: there is no such run, or it is another user's.
        OSError: its files cannot be read.
    """
    with ExitStack() as stack:
        top = stack.enter_context(open_directory(root))
        top.check_own()
        directory = stack.enter_context(top.enter(name))
        directory.check_own()
        check_directory(directory)
        try:
            text = source = directory.read("document", MAX_LINE).decode()
            with contextlib.suppress(FileNotFoundError):
                source = directory.read(SOURCE, MAX_LINE).decode()
            where = str(read_snapshot(directory)["status"].get("directory") or "")
        except ValueError as error:
            raise UnreadableError(f"{directory.path}: {error}") from None
        again = Continuation("")
        for file in (BEGUN, AGAIN):
            with contextlib.suppress(FileNotFoundError):
                again = Continuation.from_bytes(directory.read(file, MAX_LINE), None)
                break
    return Kept(text, source, where, again)


def made_of(root: Path, name: str, source: str) -> str | None:
    """Return the document of the run that is to be resumed under a name.

    Args:
        root: the state directory.
        name: the requested name.
        source: the original document that it must have.

    Returns:
        The document without `use`; None if there is no such run.
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
    """Return the contents of an ensemble's `status.json`.

    Raises:
        ValueError: its contents are not those that a run writes.
        StateError: the file's name is taken by something else.
        OSError: the file cannot be read.
    """
    value = state_forms.parse(directory.read("status.json", MAX_STATUS))
    if not state_forms.fits(value, state_forms.SNAPSHOT):
        raise ValueError("not a status")
    snapshot: dict[str, Any] = value
    return snapshot


def last_sign(directory: Directory) -> float:
    """Return when a run that does not go on any more is last known to have gone on.

    What ends the jobs of a killed run gives `jobs.lock` the time at which it was killed. If that
    was killed, too, or the machine went, it is when the run last wrote something, as it does each
    second.
    """
    times = [0.0]
    for name in ("status.json", "events", "eventlog", "jobs.lock"):
        with contextlib.suppress(FileNotFoundError):
            times.append(os.stat(name, dir_fd=directory.fd, follow_symlinks=False).st_mtime)
    return max(times)


def take_lock(directory: Directory, name: str, fd: int, seconds: float) -> None:
    """Lock a file for as long as a descriptor is open.

    Args:
        directory: of the file.
        name: of the file.
        fd: the descriptor.
        seconds: to wait while another process has the lock.

    Raises:
        BlockingIOError: another process has had the lock all the time.
        StateError: the file system has no locks.
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
    """Make the error for a file that cannot be locked."""
    return StateError(
        f"cannot lock {directory.path / name}: {error.strerror}: name a state directory on a file "
        "system with locks (flock(2)) with --state-dir"
    )
