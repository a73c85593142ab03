"""The processes that start the jobs of a local queue, and end them should the queue die.

`members.local.processes` starts them as

    python -I -S -X utf8 supervisor.py CHANNEL THEIRS OURS OUTPUT SCRATCH

CHANNEL is the file descriptor of a stream socket that carries one JSON object a line:

    queue → supervisor   {"environment": {...}}                             once
                         {"start": ID, "tasks": N, "nodes": N, "command": [...], "cwd",
                          "environment": {...}, "whole": bool, "stdout" or null, "stderr" or null}
                         {"signal": ID, "number": N}
    supervisor → queue   {"started": ID, "group": PGID}
                         {"refused": ID, "note", "status"}
                         {"unkept": ID, "note"}
                         {"ended": ID, "status"}

The tasks of a job are one process group; when the last of them ends, the rest of the group
is killed. Output that goes to no file of the document goes to ID.out in the directory whose
descriptor is OUTPUT.

    queue ──► guard ──► supervisor ──► tasks ──► what they start
                └─ as "subreapers", both adopt what those below leave behind

The guard only waits until the supervisor is gone or the queue's end of the channel is closed,
however that came about. It then kills every process that came from a job, removes the
directory SCRATCH, and exits. The supervisor does the same if the queue or the guard is gone.
While one of the two lives, no process of a job outlives the queue.

Should queue, guard and supervisor be killed together, the kernel ends the jobs. THEIRS and OURS
are ends of pipes whose other ends the queue has: the supervisor ties the process group of each
job to the queue with the one, and the queue ties it to the supervisor with the other (`Ties`).

It is run by path and needs nothing but the standard library, to start quickly and to stay
small: starting a process costs more in a large one.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import selectors
import shutil
import signal
import socket
import stat
import sys
from pathlib import Path
from typing import Any

#: Where a job runs whose working directory is not there, as in Flux.
FALLBACK_DIRECTORY = "/tmp"

#: From <linux/prctl.h>.
_PR_SET_CHILD_SUBREAPER = 36

_CHUNK = 1 << 16


class Job:
    """A job with running tasks: its process group, and the highest status so far."""

    __slots__ = ("group", "id", "running", "status", "tie")

    def __init__(self, id: int) -> None:
        self.id = id
        self.group = 0
        self.tie: int | None = None
        self.running = 0
        self.status = 0

    def untie(self) -> None:
        """Its process group is gone."""
        if self.tie is not None:
            os.close(self.tie)
            self.tie = None


class Ties:
    """Ties process groups to whoever has the other end of a pipe.

    When that is closed, because the process that had it is gone, the kernel kills the groups, as
    long as this process lives. Two that are tied to each other cannot both be gone before.

    Args:
        fd: the end of the pipe that is read.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._most = most_ties()

    def tie(self, group: int) -> int | None:
        """A descriptor that ties a process group until it is closed; None if it is one too many."""
        flags = os.O_RDONLY | os.O_NONBLOCK
        try:
            # A pipe that is opened anew can have an owner of its own.
            fd = os.open(f"/proc/self/fd/{self._fd}", flags | os.O_CLOEXEC)
        except OSError:
            return None
        if fd >= self._most:
            os.close(fd)
            return None
        # A group that is gone already needs none.
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETOWN, -group)
            if sys.platform == "linux":
                fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_ASYNC)
        return fd


def hold(fd: int) -> int:
    """Have the end of a pipe that another process has ties on: its new descriptor.

    The kernel closes the descriptors of a process that ends from the greatest on, and this one
    has to be closed before the process's own ties are.
    """
    held = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, most_ties())
    os.close(fd)
    return held


def most_ties() -> int:
    """The descriptors below are for ties and all else, one half of those there can be."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


class _UnkeptError(Exception):
    """The output of a job cannot be kept: why, in the system's words."""


class Supervisor:
    """Starts and reaps; see the module."""

    def __init__(
        self, channel: socket.socket, guard: socket.socket, ties: Ties, output: int
    ) -> None:
        self._channel = channel
        self._ties = ties
        self._guard = guard
        self._output = output
        self._environment: dict[str, str] = {}
        self._jobs: dict[int, Job] = {}
        self._tasks: dict[int, Job] = {}
        self._received = bytearray()
        self._unsent = bytearray()
        self._null = os.open(os.devnull, os.O_RDONLY)
        self._selector = selectors.DefaultSelector()
        self._writing = False
        self._wakeup = _wake_for_children()
        channel.setblocking(False)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._selector.register(channel, selectors.EVENT_READ)
        # Nothing is sent on this: it can be read when the guard is gone.
        self._selector.register(guard, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until the queue or the guard is gone."""
        while True:
            for key, events in self._selector.select():
                if key.fileobj is self._channel:
                    if events & selectors.EVENT_WRITE:
                        self._write()
                    if events & selectors.EVENT_READ and not self._read():
                        return
                elif key.fileobj is self._guard:
                    return
                else:
                    os.read(self._wakeup, _CHUNK)
                    self._reap()

    def _read(self) -> bool:
        try:
            data = self._channel.recv(_CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._received += data
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "start" in order:
                self._start(order)
            elif "signal" in order:
                if order["signal"] in self._jobs:
                    _kill(self._jobs[order["signal"]].group, order["number"])
            else:
                self._environment = order["environment"]
        return bool(data)

    def _send(self, message: dict[str, Any]) -> None:
        self._unsent += json.dumps(message).encode() + b"\n"
        self._write()

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while self._unsent:
                del self._unsent[: self._channel.send(self._unsent)]
        # A queue that is gone is noticed in reading.
        if bool(self._unsent) != self._writing:
            self._writing = not self._writing
            write = selectors.EVENT_WRITE if self._writing else 0
            self._selector.modify(self._channel, selectors.EVENT_READ | write)

    def _start(self, order: dict[str, Any]) -> None:
        job = Job(order["start"])
        base = {} if order["whole"] else self._environment
        environment = {**base, **order["environment"]}
        environment["FLUX_JOB_ID"] = str(job.id)
        environment["FLUX_JOB_SIZE"] = str(order["tasks"])
        environment["FLUX_JOB_NNODES"] = str(order["nodes"])
        warning = _enter(order["cwd"])
        # No file of a job is to be made in the directory that replaces its own.
        where = order["cwd"] if warning else ""
        opened: list[int] = []
        try:
            self._open_output(order, where, opened)
            if warning:
                os.write(opened[-1], warning.encode(errors="backslashreplace"))
            for fd in opened:
                os.set_blocking(fd, True)
        except _UnkeptError as error:
            self._send({"unkept": job.id, "note": str(error)})
        except (OSError, ValueError) as error:
            note = f"cannot open {getattr(error, 'filename', None)!r}: {_why(error)}"
            self._send({"refused": job.id, "note": note, "status": 1 << 8})
        else:
            self._spawn(job, order, environment, opened)
        finally:
            for fd in opened:
                os.close(fd)

    def _open_output(self, order: dict[str, Any], where: str, opened: list[int]) -> None:
        """Open and empty the files of a job; one descriptor if both go to the same file.

        Args:
            order: of the job.
            where: the directory of relative files; "" is the present one.
            opened: gets the descriptors.

        Raises:
            _UnkeptError: of those, the one that is the queue's cannot be opened.
            OSError, ValueError: one of the document's cannot be.
        """
        # A FIFO that nobody reads must not stop the supervisor, nor a terminal become its own.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
        stdout, stderr = order["stdout"], order["stderr"]
        if stdout is None:
            name = f"{order['start']}.out"
            try:
                opened.append(os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=self._output))
            except OSError as error:
                raise _UnkeptError(_why(error)) from None
        else:
            opened.append(os.open(os.path.join(where, stdout), flags, 0o666))
        if stderr not in (None, stdout):
            opened.append(os.open(os.path.join(where, stderr), flags, 0o666))

    def _spawn(
        self, job: Job, order: dict[str, Any], environment: dict[str, str], opened: list[int]
    ) -> None:
        command = order["command"]
        for rank in range(order["tasks"]):
            environment["FLUX_TASK_RANK"] = environment["FLUX_TASK_LOCAL_ID"] = str(rank)
            try:
                pid = self._start_task(job.group, command, environment, opened)
            except (OSError, ValueError) as error:
                for one in [pid for pid, owner in self._tasks.items() if owner is job]:
                    del self._tasks[one]  # reaped with the orphans
                if job.group:
                    _kill(job.group, signal.SIGKILL)
                job.untie()
                missing = isinstance(error, FileNotFoundError)
                note = f"task {rank}: start failed: {command[0]}: {_why(error)}"
                self._send(
                    {"refused": job.id, "note": note, "status": (127 if missing else 126) << 8}
                )
                return
            if not job.group:
                job.group = pid
                job.tie = self._ties.tie(pid)
            job.running += 1
            self._tasks[pid] = job
        self._jobs[job.id] = job
        self._send({"started": job.id, "group": job.group})

    def _start_task(
        self, group: int, command: list[str], environment: dict[str, str], opened: list[int]
    ) -> int:
        path = _find(command[0], environment.get("PATH", os.defpath))
        options: dict[str, Any] = {
            "file_actions": [
                (os.POSIX_SPAWN_DUP2, self._null, 0),
                (os.POSIX_SPAWN_DUP2, opened[0], 1),
                (os.POSIX_SPAWN_DUP2, opened[-1], 2),
            ],
            "setpgroup": group,
            "setsigmask": [],
            # Python ignores these two, and ignoring is inherited.
            "setsigdef": [signal.SIGPIPE, signal.SIGXFSZ],
        }
        try:
            return os.posix_spawn(path, command, environment, **options)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
        # A script without a first line that says what reads it is the shell's.
        return os.posix_spawn("/bin/sh", ["sh", path, *command[1:]], environment, **options)

    def _reap(self) -> None:
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            job = self._tasks.pop(found.si_pid, None)
            if job is not None:
                job.running -= 1
                if not job.running:
                    # Before the last task is reaped, so that the group's number is still
                    # this job's.
                    _kill(job.group, signal.SIGKILL)
            _, status = os.waitpid(found.si_pid, 0)
            if job is not None:
                job.status = max(job.status, _shell_status(status))
                if not job.running:
                    job.untie()
                    del self._jobs[job.id]
                    self._send({"ended": job.id, "status": job.status})


def _enter(directory: str) -> str:
    """Change to a job's working directory; a sentence for the job if that is not there."""
    try:
        os.chdir(directory)
    except (OSError, ValueError) as error:
        os.chdir(FALLBACK_DIRECTORY)
        return (
            f"could not change directory to {directory}: {_why(error)}; "
            f"going to {FALLBACK_DIRECTORY} instead\n"
        )
    return ""


def _find(command: str, path: str) -> str:
    """The file of a command, as execvp(3) finds it.

    Raises:
        FileNotFoundError: there is none on the path.
        PermissionError: there is, and it cannot be executed.
    """
    if "/" in command:
        return command
    denied = False
    for directory in path.split(":"):
        file = os.path.join(directory or ".", command)
        if os.access(file, os.X_OK):
            if stat.S_ISREG(os.stat(file).st_mode):
                return file
            denied = True
        elif os.path.exists(file):
            denied = True
    if denied:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), command)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)


def _shell_status(status: int) -> int:
    """A wait status as Flux's job shell gives it: a signal is exit code 128 + signal."""
    return (128 + os.WTERMSIG(status)) << 8 if os.WIFSIGNALED(status) else status


def _kill(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _watch(supervisor: int, channel: socket.socket, wakeup: int) -> None:
    """Be the guard: wait until the supervisor or the queue is gone."""
    poll = select.poll()
    poll.register(wakeup, select.POLLIN)
    # Nothing but that the other end is gone.
    poll.register(channel, 0)
    while channel.fileno() not in dict(poll.poll()):
        os.read(wakeup, _CHUNK)
        # Its descriptors do not tell: a process that it was about to start has them too.
        if os.waitpid(supervisor, os.WNOHANG)[0]:
            return
    # It may be stopped.
    os.kill(supervisor, signal.SIGKILL)


def _wake_for_children() -> int:
    """A descriptor that can be read when a child has ended."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _kill_descendants() -> None:
    """Kill all that came from this process, and wait until it is gone."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    spared: set[int] = set()
    # What a dying process leaves behind becomes a child of this one: until none is left.
    while found := {int(pid) for pid in children.read_text().split()} - spared:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except PermissionError:
                # A job can start a program that runs as another user.
                spared.add(pid)
            except ProcessLookupError:
                pass
        for pid in found - spared:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def main() -> None:
    """Run the guard and the supervisor; see the module for the arguments."""
    channel_fd, theirs, ours, output = map(int, sys.argv[1:5])
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # A job that held the channel would keep the queue from seeing that these are gone.
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), False)
    channel = socket.socket(fileno=channel_fd)
    link, other = socket.socketpair()
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakeup = _wake_for_children()
    supervisor = os.fork()
    try:
        if supervisor:
            os.close(theirs)
            os.close(ours)
            other.close()
            _watch(supervisor, channel, wakeup)
        else:
            prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            hold(ours)
            link.close()
            Supervisor(channel, other, Ties(theirs), output).run()
    finally:
        _kill_descendants()
        shutil.rmtree(sys.argv[5], ignore_errors=True)


if __name__ == "__main__":
    main()
