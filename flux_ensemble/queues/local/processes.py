"""Jobs as processes of this machine: the runner of the local queue.

    VirtualQueue ──start, stop──► ProcessRunner ──channel──► supervisor ──► processes
                 ◄──started, ended──

The supervisor (`queues.local.supervisor`) is one small process that starts every job and waits
for it. This module has the parts that need the document: the processes to start, and their limits.

The process group of each job is tied to the supervisor by this process, and to this process by the
supervisor. If both are killed together, the kernel ends the jobs (`queues.local.supervisor.ties`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from flux_ensemble.document import jobspec
from flux_ensemble.engine.events import CPU, RSS
from flux_ensemble.queues.local import memos, supervisor
from flux_ensemble.queues.local.binding import GPU_VARIABLES, Binding
from flux_ensemble.queues.local.directory import Directory, open_directory
from flux_ensemble.queues.local.leftovers import PREFIX
from flux_ensemble.queues.local.memos import MemoSocket
from flux_ensemble.queues.local.supervisor.ties import Ties
from flux_ensemble.queues.virtual.queue import VirtualJob, VirtualQueue
from flux_ensemble.runtime.outputs import Outputs
from flux_ensemble.runtime.ports import Handle, Loop

#: Between SIGTERM and SIGKILL, in seconds: Flux's `kill-timeout`.
GRACE_SECONDS = 5.0

#: The program of the supervisor.
_SUPERVISOR = os.path.join(supervisor.__path__[0], "__main__.py")

_CHUNK = 1 << 16

#: Most bytes of the path of the directory for temporary files, in which the one with the socket for
#: memos is made: the whole path has 107 (unix(7)).
_LONGEST = 75

#: Seconds before the rest of a message that the supervisor did not take is sent.
_RETRY_SECONDS = 0.01

#: A template of Flux in the name of an output file, such as {{id}}, {{id.f58}}, {{name}}.
_TEMPLATE = re.compile(r"\{\{([a-z]+)(?:\.[a-z0-9]+)?\}\}")


@dataclass(slots=True, eq=False)
class _Running:
    """A job that the supervisor has, or is about to receive.

    Args:
        job: the job.
        kept: its output is kept by the queue, because the document names no file.
        group: its process group; 0 until it has started.
        tie: the descriptor that ties its process group to the supervisor.
        t_start: when it started, in seconds of the monotonic clock.
        limit, grace: timers for its time limit, and for SIGKILL.
        early: memos that were received before the message that it has started.
        linking: its inputs are being linked, so the supervisor does not have it yet.
    """

    job: VirtualJob
    kept: bool
    group: int = 0
    tie: int | None = None
    t_start: float = 0.0
    limit: Handle | None = None
    grace: Handle | None = None
    early: list[Mapping[str, Any]] | None = None
    linking: bool = False


def _make_scratch() -> str:
    """Make a directory in that for temporary files, or in /tmp if a socket's path is too long."""
    directory = tempfile.gettempdir()
    if len(os.fsencode(directory)) > _LONGEST:
        directory = "/tmp"
    return tempfile.mkdtemp(prefix=PREFIX, dir=directory)


class ProcessRunner:
    """A runner of jobs: a `queues.virtual.queue.Runner`.

    Args:
        loop: for timers and file descriptors.
        environment: of the jobs.
        cwd: the base of relative working directories.
        output: the directory for the output of jobs whose document names no file; without, the
            runner has one that ends with it, and with this process, if that is killed.
        ready: called before anything is sent to the supervisor; if False, nothing is sent.
        lost: called with a sentence if the supervisor ends by itself; running jobs are killed
            without a report.
        warn: receives a sentence about a mistake of a job.
        full: receives a sentence if the output of a job cannot be kept; None if the job then fails.
        prefix: of the jobs' names.
        hold: a descriptor that stays open until the last process of a job is gone, if given. Its
            file gets the time at which this process is killed.
        binding: of the jobs to cores and GPUs, if they are bound.

    Raises:
        OSError: the supervisor cannot be started.
    """

    def __init__(
        self,
        loop: Loop,
        *,
        environment: Mapping[str, str],
        cwd: str,
        output: Directory | None = None,
        ready: Callable[[], bool],
        lost: Callable[[str], None],
        warn: Callable[[str], None],
        full: Callable[[str], None] | None,
        prefix: str = "",
        hold: int | None = None,
        binding: Binding | None = None,
    ) -> None:
        self._loop = loop
        self._binding = binding
        self._prefix = prefix
        self._cwd = cwd
        self._ready = ready
        self._lost = lost
        self._full = full
        self._outputs = Outputs(loop, warn, cwd)
        self._queue: VirtualQueue | None = None
        self._running: dict[int, _Running] = {}
        self._received = bytearray()
        self._unsent = bytearray()
        self._retry: Handle | None = None
        self._halted = False
        self._closed = False
        self.scratch = _make_scratch()
        self._ends_output = output is None
        self.output = output or open_directory(Path(self.scratch, "output"), make=True)
        self._memos = MemoSocket(self.scratch, self._memo, warn)
        self._environment = {**environment, memos.VARIABLE: self._memos.path}
        self._channel, theirs = socket.socketpair()
        lifeline, ours = os.pipe()
        self._their_lifeline, held = os.pipe()
        self._ties = Ties(self._their_lifeline, ours)
        passed = [theirs.fileno(), lifeline, held, self.output.fd]
        kept = [] if hold is None else [hold]
        self._kept = [(fd, os.stat(fd)) for fd in kept]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", _SUPERVISOR,
                 *map(str, passed), self.scratch, *map(str, kept)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True, pass_fds=[*passed, *kept],
            )  # fmt: skip
        except BaseException:
            self._close_all()
            shutil.rmtree(self.scratch)
            raise
        finally:
            theirs.close()
            os.close(lifeline)
            os.close(held)
        self._channel.setblocking(False)
        self._send({"environment": self._environment})
        self._watched = [
            loop.reader(self._channel.fileno(), self._readable),
            loop.reader(self._memos.fileno(), self._memos.receive),
        ]

    def attach(self, queue: VirtualQueue) -> None:
        """Set the queue that receives the events of the jobs."""
        self._queue = queue

    @property
    def queue(self) -> VirtualQueue:
        """The queue of these jobs."""
        assert self._queue is not None
        return self._queue

    @property
    def kept(self) -> list[int]:
        """The running jobs whose output is in `output`."""
        return [job for job, running in self._running.items() if running.kept]

    @property
    def running(self) -> int:
        """Number of jobs that have processes, or are about to."""
        return len(self._running)

    def halt(self) -> None:
        """Start no more jobs."""
        self._halted = True

    def close(self) -> None:
        """Kill all running jobs, and wait until they are gone."""
        if self._closed:
            return
        self._closed = True
        for handle in self._watched:
            handle.cancel()
        if self._retry is not None:
            self._retry.cancel()
        self._outputs.close()
        self._channel.close()
        # The supervisor may be stopped.
        self._process.send_signal(signal.SIGCONT)
        self._process.wait()
        for fd, before in self._kept:
            # Nobody was killed.
            os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
        self._close_all()
        # The supervisor has removed it, unless it was killed.
        shutil.rmtree(self.scratch, ignore_errors=True)
        for running in self._running.values():
            self._forget(running)
        self._ties.close()
        if self._ends_output:
            self.output.close()

    def _close_all(self) -> None:
        self._channel.close()
        os.close(self._ties.held)
        os.close(self._their_lifeline)
        self._memos.close()

    # -- orders of the queue --------------------------------------------------------

    def start(self, job: VirtualJob) -> None:
        """Start a job that has been given its nodes."""
        if self._halted:
            return
        whole = jobspec.build(
            job.job_set,
            job.params,
            environment=self._environment,
            cwd=self._cwd,
            tag={},
            prefix=self._prefix,
        )
        system = whole["attributes"]["system"]
        environment = system["environment"]
        nodes, tasks = len(set(job.claim.placed or ())), job.job_set.tasks
        output = system.get("shell", {}).get("options", {}).get("output", {})
        values = {
            "id": job.id, "jobid": job.id, "name": system["job"]["name"],
            "nnodes": nodes, "size": tasks, "ntasks": tasks, "taskid": 0, "task": 0,
        }  # fmt: skip
        files = {
            stream: _TEMPLATE.sub(
                lambda template: str(values.get(template[1], template[0])), options["path"]
            )
            for stream, options in output.items()
            if stream in ("stdout", "stderr") and options.get("path")
        }
        inherits = True
        if environment is self._environment:
            environment = {}
        elif inherits := environment.keys() >= self._environment.keys():
            environment = {
                name: value
                for name, value in environment.items()
                if self._environment.get(name) != value
            }
        else:
            environment = {**environment, memos.VARIABLE: self._memos.path}
        cores: list[int] = []
        if self._binding is not None:
            shape = job.claim.shape
            cores, gpus = self._binding.take(
                job.id, shape.chunks * shape.cores, shape.chunks * shape.gpus
            )
            if gpus:
                environment = {**environment, **dict.fromkeys(GPU_VARIABLES, ",".join(gpus))}
        running = self._running[job.id] = _Running(job, "stdout" not in files)
        order = {
            "start": job.id,
            "tasks": tasks,
            "nodes": nodes,
            "command": whole["tasks"][0]["command"],
            "cwd": os.path.join(self._cwd, system["cwd"]),
            "own": system["cwd"] != self._cwd,
            "environment": environment,
            "whole": not inherits,
            "cores": cores,
            "stdout": files.get("stdout"),
            "stderr": files.get("stderr"),
        }
        links = jobspec.links_of(job.job_set, job.params, self._cwd, whole)
        if links is None:
            self._send(order)
        else:
            running.linking = True
            self._outputs.link(links, partial(self._linked, running, order))

    def _linked(self, running: _Running, order: Mapping[str, Any], fault: str | None) -> None:
        """Start a job whose inputs are linked; end it if they cannot be, as on Flux."""
        if not running.linking:
            return  # it was ended meanwhile
        running.linking = False
        if fault is not None:
            self._refused(running, f"start failed: {fault}", 127 << 8)
        elif not self._halted:
            self._send(order)

    def stop(self, job: VirtualJob) -> None:
        """End a job: SIGTERM, and SIGKILL after a while."""
        running = self._running.get(job.id)
        if running is None:
            return  # never started
        if running.limit is not None:
            running.limit.cancel()
        if running.linking:
            running.linking = False
            # Later: the queue may be about to end others.
            self._loop.timer(0.0, partial(self._never_sent, running))
        elif running.grace is None:
            self._signal(job, signal.SIGTERM)
            running.grace = self._loop.timer(
                GRACE_SECONDS, lambda: self._signal(job, signal.SIGKILL)
            )

    def limit_changed(self, job: VirtualJob) -> None:
        """Set the timer of a changed time limit, which counts from the start of the job."""
        running = self._running[job.id]
        if running.limit is not None:
            running.limit.cancel()
            running.limit = None
        # A job that has not started gets its timer when it does; a job that is being ended needs
        # none any more.
        if job.claim.limit and running.group and running.grace is None:
            left = running.t_start + job.claim.limit - time.monotonic()
            running.limit = self._loop.timer(max(0.0, left), lambda: self.queue.expire(job))

    # -- messages of the supervisor -------------------------------------------------

    def _readable(self) -> None:
        # Read all, so that a job that has ended does not run into its time limit afterwards.
        more, gone = True, False
        while more:
            try:
                data = self._channel.recv(_CHUNK)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self._received += data
            gone = not data
            more = len(data) == _CHUNK
        *lines, self._received = self._received.split(b"\n")
        memos = True
        for line in lines:
            message = json.loads(line.decode())
            if "started" in message:
                self._started(self._running[message["started"]], message)
                memos = True
            elif "ended" in message:
                if memos:
                    # Memos that jobs sent before they ended come first, of all jobs that had
                    # started.
                    self._memos.receive()
                    memos = False
                running = self._running[message["ended"]]
                self._overdue(running, message)
                self._ended(
                    running,
                    message["status"],
                    message["t"],
                    {CPU: message["cpu"], RSS: message["rss"]},
                )
            elif "unkept" in message:
                path = self.output.path / f"{message['unkept']}.out"
                note = f"cannot write {path}: {message['note']}"
                if self._full is None:
                    self._refused(self._running[message["unkept"]], note, 1 << 8)
                else:
                    self._full(note)
            else:
                running = self._running[message["refused"]]
                self._refused(running, message["note"], message["status"])
        if gone:
            self._lose()

    def _started(self, running: _Running, message: Mapping[str, Any]) -> None:
        running.group = message["group"]
        running.tie = self._ties.tie(running.group)
        running.t_start = message["clock"]
        self.queue.started(running.job, message["t"])
        self.limit_changed(running.job)
        early, running.early = running.early, None
        for values in early or ():
            self.queue.memo(running.job, values)

    def _overdue(self, running: _Running, message: Mapping[str, Any]) -> None:
        """Post that a job has timed out which ended by itself over its limit, before its timer."""
        limit = running.job.claim.limit
        if limit and running.grace is None and message["clock"] - running.t_start >= limit:
            self.queue.timed_out(running.job, message["t"])

    def _refused(self, running: _Running, note: str, status: int) -> None:
        self.queue.started(running.job)
        self.queue.exception(running.job, "exec", note)
        self._ended(running, status)

    def _never_sent(self, running: _Running) -> None:
        """End a job that was to be ended while its inputs were being linked."""
        if not self._closed:
            self.queue.started(running.job)
            self._ended(running, signal.SIGTERM)

    def _ended(
        self,
        running: _Running,
        status: int,
        t: float | None = None,
        used: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        del self._running[running.job.id]
        self._forget(running)
        self.queue.ended(running.job, status, t, used)

    def _forget(self, running: _Running) -> None:
        for handle in (running.limit, running.grace):
            if handle is not None:
                handle.cancel()
        self._ties.untie(running.tie)
        if self._binding is not None:
            self._binding.give(running.job.id)
        if running.kept:
            # A job without output leaves no file.
            name, directory = f"{running.job.id}.out", self.output.fd
            with contextlib.suppress(OSError):
                if os.stat(name, dir_fd=directory, follow_symlinks=False).st_size == 0:
                    os.unlink(name, dir_fd=directory)

    def _memo(self, id: int, values: Mapping[str, Any]) -> None:
        running = self._running.get(id)
        if running is None:
            return
        if running.group:
            self.queue.memo(running.job, values)
        else:
            # The supervisor reports starts in batches, and a fast job may publish before that.
            if running.early is None:
                running.early = []
            running.early.append(values)

    def _lose(self) -> None:
        for handle in self._watched:
            handle.cancel()
        for running in self._running.values():
            if running.group:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(running.group, signal.SIGKILL)
        self._lost("the process that starts the jobs has ended unexpectedly")

    # -- messages to the supervisor -------------------------------------------------

    def _signal(self, job: VirtualJob, number: int) -> None:
        self._send({"signal": job.id, "number": number})

    def _send(self, order: Mapping[str, Any]) -> None:
        self._unsent += json.dumps(order).encode() + b"\n"
        if self._retry is None:
            # Once for all messages of this turn of the loop: each write costs the supervisor time.
            self._retry = self._loop.timer(0.0, self._write)

    def flush(self) -> None:
        """Send the messages of this turn of the loop now, so that jobs start."""
        if self._retry is not None:
            self._retry.cancel()
            self._write()

    def _write(self) -> None:
        """Send what the supervisor accepts now; the rest later, if it is busy or stopped."""
        self._retry = None
        if not self._ready():
            return
        try:
            while self._unsent:
                sent = self._channel.send(self._unsent[:_CHUNK])
                del self._unsent[:sent]
        except BlockingIOError:
            self._retry = self._loop.timer(_RETRY_SECONDS, self._write)
        except OSError:
            # The end of the supervisor is noticed in reading.
            self._unsent.clear()
