"""The process that starts the jobs of a local queue, and ends them should the queue die.

`members.processes` starts it as `python -I -S -X utf8 supervisor.py CHANNEL SCRATCH`.
CHANNEL is the file descriptor of a stream socket that carries one JSON object a line:

    queue → supervisor   {"environment": {...}}                             once
                         {"start": ID, "tasks": N, "nodes": N, "command": [...], "cwd",
                          "environment": {...}, "whole": bool, "stdout", "stderr"}
                         {"signal": ID, "number": N}
    supervisor → queue   {"started": ID, "group": PGID}
                         {"refused": ID, "note", "status"}
                         {"ended": ID, "status"}

The tasks of a job are one process group; when the last of them ends, the rest of the group
is killed. The supervisor adopts whatever its descendants leave behind (a "subreaper"), so
when the queue's end of the channel closes, however that came about, it kills every process
that came from a job, removes the directory SCRATCH, and exits.

It is run by path and needs nothing but the standard library, to start quickly and to stay
small: starting a process costs more in a large one.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
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

    __slots__ = ("group", "id", "running", "status")

    def __init__(self, id: int) -> None:
        self.id = id
        self.group = 0
        self.running = 0
        self.status = 0


class Supervisor:
    """Starts and reaps; see the module."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._environment: dict[str, str] = {}
        self._jobs: dict[int, Job] = {}
        self._tasks: dict[int, Job] = {}
        self._received = bytearray()
        self._unsent = bytearray()
        self._null = os.open(os.devnull, os.O_RDONLY)
        self._selector = selectors.DefaultSelector()
        self._writing = False
        self._wakeup, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        channel.setblocking(False)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._selector.register(channel, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until the queue is gone."""
        while True:
            for key, events in self._selector.select():
                if key.fileobj is self._channel:
                    if events & selectors.EVENT_WRITE:
                        self._write()
                    if events & selectors.EVENT_READ and not self._read():
                        return
                else:
                    os.read(self._wakeup, _CHUNK)
                    self._reap()

    def end(self) -> None:
        """Kill all that is left of the jobs."""
        for job in self._jobs.values():
            _kill(job.group, signal.SIGKILL)
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        # What a dying process leaves behind becomes a child of this one: until none is left.
        while found := children.read_text().split():
            for pid in map(int, found):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            for pid in map(int, found):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

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
        files = [os.path.join(where, order[key]) for key in ("stdout", "stderr") if order[key]]
        opened: list[int] = []
        try:
            opened += _open_output(*files)
            if warning:
                os.write(opened[-1], warning.encode())
        except (OSError, ValueError) as error:
            note = f"cannot open {getattr(error, 'filename', None)!r}: {_why(error)}"
            self._send({"refused": job.id, "note": note, "status": 1 << 8})
        else:
            self._spawn(job, order, environment, opened)
        finally:
            for fd in opened:
                os.close(fd)

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
                missing = isinstance(error, FileNotFoundError)
                note = f"task {rank}: start failed: {command[0]}: {_why(error)}"
                self._send(
                    {"refused": job.id, "note": note, "status": (127 if missing else 126) << 8}
                )
                return
            job.group = job.group or pid
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


def _open_output(stdout: str, stderr: str | None = None) -> list[int]:
    """Open and empty the files of a job; one descriptor if both go to the same file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    first = os.open(stdout, flags, 0o666)
    if stderr is None or stderr == stdout:
        return [first]
    try:
        return [first, os.open(stderr, flags, 0o666)]
    except OSError:
        os.close(first)
        raise


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


def main() -> None:
    """Run the supervisor; the arguments are CHANNEL and SCRATCH."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    channel = socket.socket(fileno=int(sys.argv[1]))
    # A job that held it would keep the queue from seeing that the supervisor is gone.
    channel.set_inheritable(False)
    supervisor = Supervisor(channel)
    try:
        supervisor.run()
    finally:
        supervisor.end()
        shutil.rmtree(sys.argv[2], ignore_errors=True)


if __name__ == "__main__":
    main()
