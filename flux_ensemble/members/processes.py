"""Jobs as processes of this machine: the runner of the local queue.

    VirtualQueue ──start, stop──► ProcessRunner ──channel──► supervisor ──► processes
                 ◄──started, ended──

The supervisor (`members.supervisor`) is one small process that starts every job and waits
for it; here are the parts that need the document: what to start, and for how long.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flux_ensemble.members import memos, supervisor
from flux_ensemble.members.base import Handle, Loop
from flux_ensemble.members.memos import MemoSocket
from flux_ensemble.members.virtual import VirtualJob, VirtualQueue
from flux_ensemble.spec import jobspec

#: Between SIGTERM and SIGKILL, in seconds: Flux's `kill-timeout`.
GRACE_SECONDS = 5.0

_CHUNK = 1 << 16

#: A template of Flux in the name of an output file, such as {{id}}, {{id.f58}}, {{name}}.
_TEMPLATE = re.compile(r"\{\{([a-z]+)(?:\.[a-z0-9]+)?\}\}")


@dataclass(slots=True, eq=False)
class _Running:
    """A job that the supervisor has, or is about to get.

    Args:
        job: the job.
        output: its output file, where the document names none.
        group: its process group; 0 until it has started.
        t_start: when it started.
        limit, grace: timers for its time limit, and for SIGKILL.
    """

    job: VirtualJob
    output: str | None
    group: int = 0
    t_start: float = 0.0
    limit: Handle | None = None
    grace: Handle | None = None


class ProcessRunner:
    """Runs jobs; a `members.virtual.Runner`.

    Args:
        loop: for timers and file descriptors.
        environment: of the jobs.
        cwd: what relative working directories are relative to.
        output: the directory for the output of jobs whose document names no file.
        lost: called if the supervisor ends by itself, with a sentence; no job that runs
            will end then.

    Raises:
        OSError: the supervisor cannot be started.
    """

    def __init__(
        self,
        loop: Loop,
        *,
        environment: Mapping[str, str],
        cwd: str,
        output: str,
        lost: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._cwd = cwd
        self._output = output
        self._lost = lost
        self._queue: VirtualQueue | None = None
        self._running: dict[int, _Running] = {}
        self._received = bytearray()
        self._scratch = tempfile.mkdtemp(prefix="flux-ensemble-")
        self._memos = MemoSocket(self._scratch, self._memo)
        self._environment = {**environment, memos.VARIABLE: self._memos.path}
        self._channel, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", supervisor.__file__,
                 str(theirs.fileno()), self._scratch],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True, pass_fds=(theirs.fileno(),),
            )  # fmt: skip
        except BaseException:
            self._channel.close()
            self._memos.close()
            shutil.rmtree(self._scratch)
            raise
        finally:
            theirs.close()
        self._send({"environment": self._environment})
        self._watched = [
            loop.reader(self._channel.fileno(), self._readable),
            loop.reader(self._memos.fileno(), self._memos.receive),
        ]

    def attach(self, queue: VirtualQueue) -> None:
        """Tell `queue` what becomes of the jobs that it starts here."""
        self._queue = queue

    @property
    def queue(self) -> VirtualQueue:
        """The queue whose jobs these are."""
        assert self._queue is not None
        return self._queue

    def close(self) -> None:
        """Kill what runs, and wait until it is gone."""
        for handle in self._watched:
            handle.cancel()
        self._channel.close()
        self._process.wait()
        self._memos.close()
        # The supervisor has done so, unless it was killed.
        shutil.rmtree(self._scratch, ignore_errors=True)
        for running in self._running.values():
            self._forget(running)

    # -- what the queue asks for ----------------------------------------------------

    def start(self, job: VirtualJob) -> None:
        """Start a job that has its nodes."""
        whole = jobspec.build(
            job.one, job.params, environment=self._environment, cwd=self._cwd, tag={}
        )
        system = whole["attributes"]["system"]
        environment = system["environment"]
        nodes, tasks = len(set(job.claim.placed or ())), jobspec.size(whole)["tasks"]
        output = system.get("shell", {}).get("options", {}).get("output", {})
        values = {
            "id": job.id, "jobid": job.id, "name": job.one.name,
            "nnodes": nodes, "size": tasks, "ntasks": tasks, "taskid": 0, "task": 0,
        }  # fmt: skip
        files = {
            stream: _TEMPLATE.sub(lambda found: str(values.get(found[1], found[0])), one["path"])
            for stream, one in output.items()
            if stream in ("stdout", "stderr") and one.get("path")
        }
        default = None
        if "stdout" not in files:
            files["stdout"] = default = os.path.join(self._output, f"{job.id}.out")
        inherits = environment.keys() >= self._environment.keys()
        if inherits:
            environment = {
                name: value
                for name, value in environment.items()
                if self._environment.get(name) != value
            }
        else:
            environment = {**environment, memos.VARIABLE: self._memos.path}
        self._running[job.id] = _Running(job, default)
        self._send(
            {
                "start": job.id,
                "tasks": tasks,
                "nodes": nodes,
                "command": whole["tasks"][0]["command"],
                "cwd": os.path.join(self._cwd, system["cwd"]),
                "environment": environment,
                "whole": not inherits,
                "stdout": files["stdout"],
                "stderr": files.get("stderr"),
            }
        )

    def stop(self, job: VirtualJob) -> None:
        """End a job: SIGTERM, and SIGKILL after a while."""
        running = self._running[job.id]
        if running.limit is not None:
            running.limit.cancel()
        if running.grace is None:
            self._signal(job, signal.SIGTERM)
            running.grace = self._loop.timer(
                GRACE_SECONDS, lambda: self._signal(job, signal.SIGKILL)
            )

    def limit_changed(self, job: VirtualJob) -> None:
        """Count the time limit anew, from when the job started."""
        running = self._running[job.id]
        if running.limit is not None:
            running.limit.cancel()
            running.limit = None
        # One that has not started gets its limit when it does; one that is being ended
        # has none any more.
        if job.claim.limit and running.group and running.grace is None:
            left = running.t_start + job.claim.limit - self._loop.now()
            running.limit = self._loop.timer(max(0.0, left), lambda: self.queue.expire(job))

    # -- what the supervisor says ---------------------------------------------------

    def _readable(self) -> None:
        try:
            data = self._channel.recv(_CHUNK)
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        self._received += data
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "started" in message:
                self._started(self._running[message["started"]], message["group"])
            elif "ended" in message:
                # What the job published before it ended comes first.
                self._memos.receive()
                self._ended(self._running[message["ended"]], message["status"])
            else:
                running = self._running[message["refused"]]
                self.queue.started(running.job)
                self.queue.exception(running.job, "exec", message["note"])
                self._ended(running, message["status"])

    def _started(self, running: _Running, group: int) -> None:
        running.group = group
        running.t_start = self._loop.now()
        self.queue.started(running.job)
        self.limit_changed(running.job)

    def _ended(self, running: _Running, status: int) -> None:
        del self._running[running.job.id]
        self._forget(running)
        self.queue.ended(running.job, status)

    def _forget(self, running: _Running) -> None:
        for handle in (running.limit, running.grace):
            if handle is not None:
                handle.cancel()
        if running.output is not None:
            # A job that printed nothing leaves no file.
            with contextlib.suppress(OSError):
                if os.stat(running.output).st_size == 0:
                    Path(running.output).unlink()

    def _memo(self, id: int, values: Mapping[str, Any]) -> None:
        if id in self._running:
            self.queue.memo(self._running[id].job, values)

    def _lose(self) -> None:
        for handle in self._watched:
            handle.cancel()
        for running in self._running.values():
            if running.group:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(running.group, signal.SIGKILL)
        self._lost("the process that starts the jobs has ended unexpectedly")

    # -- what it is told ------------------------------------------------------------

    def _signal(self, job: VirtualJob, number: int) -> None:
        self._send({"signal": job.id, "number": number})

    def _send(self, order: Mapping[str, Any]) -> None:
        # That it is gone is noticed in reading.
        with contextlib.suppress(OSError):
            self._channel.sendall(json.dumps(order).encode() + b"\n")
