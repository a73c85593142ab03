"""The supervisor: it communicates with the queue, and starts and reaps jobs."""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import signal
import socket
import time
from typing import Any

from .children import kill_group, wake_for_children
from .tasks import (
    DirectoryError,
    UnkeptError,
    enter,
    open_output,
    reason_of,
    shell_status,
    start_task,
)
from .ties import Ties

#: Most bytes of one read.
CHUNK = 1 << 16

#: Bytes of messages that are sent before other work is done: a few jobs have started, and the queue
#: should tie their process groups soon.
_ENOUGH = 256


class RunningJob:
    """A job with running tasks: its process group, and its highest wait status so far.

    `cpu` and `rss` are of the tasks that have ended, as in the message "ended".
    """

    __slots__ = ("cpu", "group", "id", "rss", "running", "status", "tie")

    def __init__(self, id: int) -> None:
        self.id = id
        self.group = 0
        self.tie: int | None = None
        self.running = 0
        self.status = 0
        self.cpu = 0.0
        self.rss = 0


class Supervisor:
    """The process that starts and reaps jobs for the queue; see the package for the messages.

    Args:
        channel: to the queue.
        guard: a socket whose other end belongs to the guard.
        ties: ties process groups to the queue.
        output: the directory for output for which the document names no file.
    """

    def __init__(
        self, channel: socket.socket, guard: socket.socket, ties: Ties, output: int
    ) -> None:
        self._channel = channel
        self._ties = ties
        self._guard = guard
        self._output = output
        self._environment: dict[str, str] = {}
        self._jobs: dict[int, RunningJob] = {}
        self._tasks: dict[int, RunningJob] = {}
        self._received = bytearray()
        self._unsent = bytearray()
        self._null = os.open(os.devnull, os.O_RDONLY)
        self._cores = os.sched_getaffinity(0)
        self._selector = selectors.DefaultSelector()
        self._writing = False
        self._wakeup = wake_for_children()
        channel.setblocking(False)
        # No events: it only reports that the other end is gone, even if more can be read.
        self._hangup = select.poll()
        self._hangup.register(channel, 0)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._selector.register(channel, selectors.EVENT_READ)
        # Nothing is sent on this socket: it becomes readable when the guard is gone.
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
                    os.read(self._wakeup, CHUNK)
                    self._reap()
            if self._unsent and not self._writing:
                self._write()

    def _read(self) -> bool:
        try:
            data = self._channel.recv(CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._received += data
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            order = json.loads(line.decode())
            if "start" in order:
                if self._hangup.poll(0):
                    return False
                self._start(order)
            elif "signal" in order:
                if order["signal"] in self._jobs:
                    kill_group(self._jobs[order["signal"]].group, order["number"])
            else:
                self._environment = order["environment"]
        return bool(data)

    def _send(self, message: dict[str, Any]) -> None:
        self._unsent += json.dumps(message).encode() + b"\n"
        if len(self._unsent) >= _ENOUGH:
            self._write()

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while self._unsent:
                del self._unsent[: self._channel.send(self._unsent)]
        # The end of the queue is noticed in reading.
        if bool(self._unsent) != self._writing:
            self._writing = not self._writing
            write = selectors.EVENT_WRITE if self._writing else 0
            self._selector.modify(self._channel, selectors.EVENT_READ | write)

    def _start(self, order: dict[str, Any]) -> None:
        job = RunningJob(order["start"])
        inherited = {} if order["whole"] else self._environment
        environment = {**inherited, **order["environment"]}
        environment["FLUX_JOB_ID"] = str(job.id)
        environment["FLUX_JOB_SIZE"] = str(order["tasks"])
        environment["FLUX_JOB_NNODES"] = str(order["nodes"])
        opened: list[int] = []
        try:
            enter(order["cwd"], make=order["own"])
            open_output(order, self._output, opened)
            for fd in opened:
                os.set_blocking(fd, True)
        except UnkeptError as error:
            self._send({"unkept": job.id, "note": str(error)})
        except DirectoryError as error:
            self._send({"refused": job.id, "note": str(error), "status": 1 << 8})
        except (OSError, ValueError) as error:
            note = f"cannot open {getattr(error, 'filename', None)!r}: {reason_of(error)}"
            self._send({"refused": job.id, "note": note, "status": 1 << 8})
        else:
            self._spawn(job, order, environment, opened)
        finally:
            if order["cores"]:
                os.sched_setaffinity(0, self._cores)
            for fd in opened:
                os.close(fd)

    def _spawn(
        self, job: RunningJob, order: dict[str, Any], environment: dict[str, str], opened: list[int]
    ) -> None:
        command, t_start, clock = order["command"], time.time(), time.monotonic()
        if order["cores"]:
            # Processes inherit it.
            os.sched_setaffinity(0, order["cores"])
        for rank in range(order["tasks"]):
            environment["FLUX_TASK_RANK"] = environment["FLUX_TASK_LOCAL_ID"] = str(rank)
            try:
                pid = start_task(job.group, command, environment, self._null, opened)
            except (OSError, ValueError) as error:
                for started in [pid for pid, owner in self._tasks.items() if owner is job]:
                    del self._tasks[started]  # reaped with the orphans
                if job.group:
                    kill_group(job.group, signal.SIGKILL)
                self._ties.untie(job.tie)
                missing = isinstance(error, FileNotFoundError)
                note = f"task {rank}: start failed: {command[0]}: {reason_of(error)}"
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
        self._send({"started": job.id, "t": t_start, "clock": clock, "group": job.group})

    def _reap(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            job = self._tasks.pop(ended.si_pid, None)
            if job is not None:
                job.running -= 1
                if not job.running:
                    # Before the last task is reaped, so that the number of the group still belongs
                    # to this job.
                    kill_group(job.group, signal.SIGKILL)
            _, status, used = os.wait4(ended.si_pid, 0)
            if job is not None:
                job.cpu += used.ru_utime + used.ru_stime
                job.rss = max(job.rss, used.ru_maxrss)
                job.status = max(job.status, shell_status(status))
                if not job.running:
                    self._ties.untie(job.tie)
                    del self._jobs[job.id]
                    self._send(
                        {
                            "ended": job.id,
                            "t": time.time(),
                            "clock": time.monotonic(),
                            "status": job.status,
                            "cpu": round(1e6 * job.cpu),
                            "rss": job.rss,
                        }
                    )
