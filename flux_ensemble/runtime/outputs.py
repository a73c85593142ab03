"""Makes the directories of jobs' output files and their working directories before submission.

It also links the `inputs` of jobs into these; that is all that the local queue needs of it:

    a/in.lammps ◄── runs/7/in.lammps        inputs: [a/in.lammps], workdir: runs/{x}

A link that is there already is left alone if it leads to the same file: so it is for a job that
runs again, and for jobs that share a directory.

Flux's job shell opens these files, and fails the job if their directory does not exist. If the
working directory is missing it runs the job in /tmp, where jobs overwrite each other's files. Jobs
run as the owner of the service, so a directory that the service makes is usable for them.

A directory that cannot be made does not keep a job back: it may exist on the job's node only. A
warning is given, and the job shell decides. A job whose inputs cannot be linked is submitted, too,
and fails with the reason (`submission.TagTemplates`).

A file system may never answer. So a thread makes the directories, one after the other, and the jobs
that need them wait, with those that are submitted after them:

    job ──► its directories ──► `when_made` ──► submitted, when they are made or given up
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.document.jobspec import Links
from flux_ensemble.runtime.ports import Handle, Loop
from flux_ensemble.texts import bounded

#: Most levels of directories that are made for one file.
MAX_LEVELS = 32

#: Most levels of the working directory that inputs are linked into, if it is to be made.
MAX_LINK_LEVELS = 32

#: Number of directories that are remembered, so that further jobs need no check.
KEPT = 10_000

#: Most warnings about directories for one ensemble.
MAX_WARNINGS = 20

#: Seconds after which a directory is given up.
SECONDS = 20.0

#: Directories that share this many leading names are taken to be on one file system: if one was
#: given up, the others are not tried until its thread has ended.
NAMES = 2

#: Warnings about a directory that was given up, and about one that was not tried.
_LATE = f"nothing came of it within {SECONDS:g} s"
_STUCK = "its file system does not answer"
_UNLINKED = "cannot link the inputs into the working directory"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A directory that is to be made, or inputs that are to be linked into one.

    Attributes:
        directory: its path.
        cwd: the working directory of the job that needs it.
        what: "working" or "output".
        links: the inputs, if these are to be linked.
        linked: receives the reason why they cannot be linked, or None.
    """

    directory: str
    cwd: str
    what: str
    links: Links | None = None
    linked: Callable[[str | None], None] | None = None

    @property
    def above(self) -> str:
        """The leading part of the path, taken to be the same for all of its file system."""
        return os.sep.join(self.directory.split(os.sep)[: NAMES + 1])


class _Making:
    """A thread that makes directories, one after the other.

    Args:
        wanted: the directories.
        stuck: leading parts of paths; directories below these are not tried.

    Attributes:
        results: for each directory so far the reason why it was not made, or None.
        looked: the number of results at the last look.
        ended: a descriptor that is readable when the thread has ended.
    """

    def __init__(self, wanted: list[_Wanted], stuck: frozenset[str]) -> None:
        self.wanted = wanted
        self.results: list[str | None] = []
        self.looked = 0
        self._stuck = stuck
        self.ended, self._write = os.pipe2(os.O_CLOEXEC)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        # Signals are for the thread of the loop, which has to wake up for them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            # `wanted` is cut short when a directory is given up.
            while len(self.results) < len(self.wanted):
                one = self.wanted[len(self.results)]
                self.results.append(_STUCK if one.above in self._stuck else _make(one))
        finally:
            os.close(self._write)


def _make(wanted: _Wanted) -> str | None:
    """Make a directory, or link inputs; return the reason why that cannot be done, or None."""
    if wanted.links is not None:
        return link(wanted.links)
    directory, cwd = wanted.directory, wanted.cwd
    try:
        # If its working directory is missing, Flux runs the job elsewhere, or not at all.
        inside = directory != cwd and os.path.commonpath([cwd, directory]) == cwd
        if inside and not os.path.isdir(cwd):
            return None
        existing = directory
        for _ in range(MAX_LEVELS):
            if os.path.isdir(existing):
                break
            existing = os.path.dirname(existing)
        else:
            return f"more than {MAX_LEVELS} directories above it are missing"
        os.makedirs(directory, exist_ok=True)
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None) or errno.EINVAL
        return f"{bounded(_reason_of(error))} ({errno.errorcode.get(number, 'EINVAL')})"
    return None


def link(links: Links) -> str | None:
    """Link the inputs of a job; make its working directory if it is missing.

    Args:
        links: of the job.

    Returns:
        Why the job cannot run, or None.

    >>> link(Links(("/nowhere/a.cif",), "/tmp", frozenset()))
    "cannot link the input '/nowhere/a.cif': it does not exist"
    """
    directory = links.directory
    try:
        if directory.count("/") <= MAX_LINK_LEVELS:
            os.makedirs(directory, exist_ok=True)
    except (OSError, ValueError) as error:
        return bounded(f"cannot make the working directory {directory!r}: {_reason_of(error)}")
    targets: dict[str, str] = {}
    # All are looked at before the first one is linked.
    for act in (_look, _link):
        for path in links.paths:
            target = f"{directory}/{path.rstrip('/').rpartition('/')[2]}"
            try:
                reason = act(path, target, links)
            except (OSError, ValueError) as error:
                reason = _reason_of(error)
            if targets.setdefault(target, path) != path:
                reason = f"the input {targets[target]!r} has the same name"
            if reason is not None:
                return bounded(f"cannot link the input {path!r}: {reason}")
    return None


def _look(path: str, target: str, links: Links) -> str | None:
    """Return why an input cannot be linked, whatever is in the directory."""
    if target.endswith(("/", "/.", "/..")):
        return "this is no name of a file"
    if not {target, os.path.normpath(path)}.isdisjoint(links.outputs):
        return "the job would write its output there"
    try:
        os.stat(path)
    except FileNotFoundError:
        return "it is a link to nothing" if os.path.islink(path) else "it does not exist"
    if os.path.isdir(path) and os.path.samefile(path, links.directory):
        return "it is the working directory of the job"
    return None if os.access(path, os.R_OK) else "it cannot be read"


def _link(path: str, target: str, links: Links) -> str | None:
    """Link an input, unless that is done; return why that cannot be done."""
    try:
        os.symlink(path, target)
    except FileExistsError:
        if not (os.path.exists(target) and os.path.samefile(path, target)):
            return f"{target!r} is there already, and is another file"
    return None


def _reason_of(error: Exception) -> str:
    """Return the reason in an error of the system, without its number and its file."""
    return getattr(error, "strerror", None) or str(error)


class Outputs:
    """The directories of jobs.

    Args:
        loop: calls back when directories are made.
        warn: receives a sentence about each directory that cannot be made.
        cwd: the user's working directory, which is that of jobs without one of their own.
    """

    def __init__(self, loop: Loop, warn: Callable[[str], None], cwd: str) -> None:
        self._loop = loop
        self._warn = warn
        self._cwd = cwd
        self._known: set[str] = set()
        self._warned = 0
        #: Directories not tried yet; the number wanted so far, and the number made or given up.
        self._next: list[_Wanted] = []
        self._wanted = self._done = 0
        #: Callbacks, each with the number of directories that have to be settled first.
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._making: _Making | None = None
        self._limit: Handle
        self._readers: dict[_Making, Handle] = {}
        #: File systems on which a thread still waits for a directory that was given up.
        self._stuck = Counter[str]()

    def make(self, jobspec: Mapping[str, Any]) -> None:
        """Have the working directory of a job made, and the directories of its output files.

        Args:
            jobspec: a complete jobspec, with absolute paths (`document.jobspec.anchored`). A
                directory with one of Flux's templates in its path is left alone.
        """
        system = jobspec["attributes"]["system"]
        cwd = system["cwd"]
        # The user was in this directory when loading the document: it is not made again.
        if cwd != self._cwd:
            self._once(cwd, cwd, "working")
        output = system.get("shell", {}).get("options", {}).get("output", {})
        for target in output.values() if isinstance(output, dict) else ():
            path = target.get("path") if isinstance(target, dict) else None
            if not isinstance(path, str):
                continue
            self._once(os.path.dirname(path), cwd, "output")

    def link(self, links: Links, linked: Callable[[str | None], None]) -> None:
        """Have the inputs of a job linked.

        Args:
            links: of the job.
            linked: receives the reason why they cannot be linked, or None.
        """
        self._want(_Wanted(links.directory, links.directory, "working", links, linked))

    @property
    def are_made(self) -> bool:
        """True if all requested directories are made or given up."""
        return self._wanted == self._done

    def when_made(self, then: Callable[[], None]) -> None:
        """Call back when all directories requested so far are made or given up."""
        self._waiting.append((self._wanted, then))

    def close(self) -> None:
        """Wait for nothing any more; a thread that a file system keeps ends with the program."""
        for making, reader in self._readers.items():
            reader.cancel()
            os.close(making.ended)
        self._readers.clear()
        if self._making is not None:
            self._making = None
            self._limit.cancel()

    def _once(self, directory: str, cwd: str, what: str) -> None:
        """Have a directory made, and try so only once."""
        if directory in self._known or "{{" in directory or not os.path.isabs(directory):
            return
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known.add(directory)
        self._want(_Wanted(directory, cwd, what))

    def _want(self, wanted: _Wanted) -> None:
        self._wanted += 1
        self._next.append(wanted)
        if self._making is None:
            self._start()

    def _start(self) -> None:
        wanted, self._next = self._next, []
        making = self._making = _Making(wanted, frozenset(self._stuck))
        self._readers[making] = self._loop.reader(making.ended, lambda: ended())
        self._limit = self._loop.timer(SECONDS, lambda: self._look(making), SECONDS)

        def ended() -> None:
            self._readers.pop(making).cancel()
            os.close(making.ended)
            if self._making is making:
                self._take(wanted, making.results)
            else:
                self._unstick(making.wanted[-1])

    def _look(self, making: _Making) -> None:
        """Give up the present directory if nothing was settled since the last look."""
        done = len(making.results)
        if done > making.looked:
            making.looked = done
            return
        wanted = making.wanted
        # If the stuck thread goes on, it ends with this directory.
        making.wanted = wanted[: done + 1]
        self._stuck[wanted[done].above] += 1
        self._next[:0] = wanted[done + 1 :]
        self._take(making.wanted, [*making.results[:done], _LATE])

    def _take(self, wanted: list[_Wanted], results: list[str | None]) -> None:
        """Take the results for directories, and go on with the next ones."""
        self._making = None
        self._limit.cancel()
        self._done += len(wanted)
        for one, reason in zip(wanted, results, strict=True):
            if one.linked is not None:
                one.linked(f"{_UNLINKED}: {reason}" if reason in (_LATE, _STUCK) else reason)
            elif reason is not None:
                self._note(one, reason)
        if self._next:
            self._start()
        while self._waiting and self._waiting[0][0] <= self._done:
            self._waiting.popleft()[1]()

    def _unstick(self, late: _Wanted) -> None:
        """Try directories again: the thread that waited on their file system has ended."""
        self._stuck -= Counter((late.above,))
        self._known = {one for one in self._known if not one.startswith(late.above)}

    def _note(self, wanted: _Wanted, reason: str) -> None:
        self._warned += 1
        if self._warned <= MAX_WARNINGS:
            what, directory = wanted.what, wanted.directory
            self._warn(bounded(f"cannot make the {what} directory {directory!r}: {reason}"))
