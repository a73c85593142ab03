"""Starts workers as processes of this machine, follows them, and ends them.

    start ──► written ──► in line until cores are free ──► began ──► over
    find ────────────────────────────────────────────────────┘

A worker is started once its name is written down, and a home that goes on looks for what lives of
it (`worker_process`). Who was written down and has no file was never started.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.nested.provider import JobName, Started, UnavailableError, Written
from flux_ensemble.queues.nested.shape import SECONDS, Program, Shape, Size
from flux_ensemble.queues.providers.local.worker_process import (
    Part,
    WorkerProcess,
    named_gpus,
    taken,
)
from flux_ensemble.runtime.ports import Handle, Loop
from flux_ensemble.words import counted

#: The directory for the output of workers, in that of the run.
WORKERS = "workers"

#: Seconds between two looks at the workers.
LOOK_SECONDS = 0.2

#: Seconds between SIGTERM and SIGKILL.
KILL_SECONDS = 10.0

#: Where a worker calls: no name of this machine is needed, and no network.
_HERE = ["127.0.0.1", "::1"]


@dataclass(slots=True)
class _Worker:
    """A member, as the provider knows it.

    Attributes:
        member: is told.
        process: of its worker.
        asked: see `LocalProvider.describe`, until it is started; None for one that was found.
        durable: its name is written down.
        part: what it has of this machine; None if it has not begun, or if that is not known.
        began: the member was told that it began.
        unseen: an earlier home started it, and this one has not seen it alive.
        t_end: when it was asked to end; None if it was not.
    """

    member: Started
    process: WorkerProcess
    asked: Mapping[str, Any] | None = None
    durable: bool = False
    part: Part | None = None
    began: bool = False
    unseen: bool = False
    t_end: float | None = None


class LocalProvider:
    """A `queues.nested.provider.Provider` of one run.

    Args:
        loop: of the run.
        directory: of the run.
        machine: what there is of it; what this process may use by default.
    """

    tells = False
    prints = f"the file {WORKERS}/NAME.out in the directory of the run"

    def __init__(self, loop: Loop, directory: Path, machine: Part | None = None) -> None:
        self._loop = loop
        self._directory = directory / WORKERS
        self._machine = machine or Part(
            tuple(sorted(os.sched_getaffinity(0))), named_gpus(os.environ)
        )
        self._members: dict[JobName, _Worker] = {}
        self._timer: Handle | None = None

    # -- requests ---------------------------------------------------------------------

    def describe(self, shape: Shape) -> Mapping[str, Any]:
        """Return how a worker is started: {"size", "credentials", "environment"}.

        Raises:
            ValueError: there is no home that it could call.
        """
        if shape.program is not Program.WORKER or not shape.credentials:
            raise ValueError(
                "workers on this machine call a home without Flux: run the document outside of a "
                "Flux instance ('flux-ensemble run')"
            )
        environment = {
            key: value for key, value in shape.environment.items() if not key.startswith("FLUX_")
        }
        if shape.size.duration:
            environment[SECONDS] = f"{shape.size.duration:g}"
        return {
            "size": shape.size,
            "credentials": json.dumps({**json.loads(shape.credentials), "addresses": _HERE}),
            "environment": environment,
        }

    def start(self, member: Started, job: Mapping[str, Any], written: Written) -> None:
        """Start a worker, once its name is written down and there are cores for it."""
        following = self._follow(member)
        following.asked = job
        member.submitted(member.tag.member)
        written(member.tag.member, partial(self._durable, following))

    def _durable(self, following: _Worker) -> None:
        following.durable = True
        self._look_in(0.0)

    def find(self, member: Started, home: str, job: str | None) -> None:
        """Follow the worker of a member that is written down."""
        self._follow(member).unseen = True
        self._look_in(0.0)

    def _follow(self, member: Started) -> _Worker:
        name = member.tag.member
        process = WorkerProcess(self._directory / f"{name}.out")
        following = self._members[name] = _Worker(member, process)
        return following

    def end(self, job: JobName, reason: str, done: Report) -> None:
        """End a worker: SIGTERM, and SIGKILL if something of it is left after a while."""
        following = self._members.get(job)
        if following is not None and following.t_end is None:
            following.t_end = self._loop.now()
            self._look_in(0.0)
        done(None)

    def why(self, job: JobName) -> str | None:
        """Return why a worker waits, such as "waits on this machine: ..."."""
        following = self._members.get(job)
        if following is None or following.asked is None or not following.durable:
            return None
        size: Size = following.asked["size"]
        if size.cores is None:
            return "waits on this machine: all of it is asked for, and other members have a part"
        wanted = [counted(size.cores, "core")] + [counted(size.gpus, "GPU")] * (size.gpus > 0)
        return f"waits on this machine: fewer are free than {' and '.join(wanted)} for each"

    def forget(self, job: JobName) -> None:
        """Follow a worker no more."""
        self._members.pop(job, None)

    def close(self) -> None:
        """Follow nothing any more; the workers go on."""
        self._members.clear()
        if self._timer is not None:
            self._timer.cancel()

    # -- the workers --------------------------------------------------------------------

    def _look_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.timer(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        for following in list(self._members.values()):
            if following.asked is None:
                self._see(following)
            elif following.t_end is not None:
                self._over(following, "it was ended before it began")
        for following in list(self._members.values()):
            if following.asked is not None and not (following.durable and self._begin(following)):
                break
        if self._members and self._timer is None:
            self._look_in(LOOK_SECONDS)

    def _see(self, following: _Worker) -> None:
        """Tell a member what has become of its worker."""
        member, process = following.member, following.process
        if member.job is None:
            member.submitted(member.tag.member)
        if not process.lives():
            said = process.last_words()
            reason = f"its worker has ended{f': {said}' if said else ''}"
            self._over(following, reason if process.began else "its worker was never started")
            return
        following.unseen = False
        if following.part is None:
            following.part = process.part()
        if not following.began:
            following.began = True
            member.began()
        if following.t_end is not None:
            # Again and again: it may be no worker yet, but a copy of what starts it.
            late = self._loop.now() - following.t_end >= KILL_SECONDS
            process.kill(signal.SIGKILL if late else signal.SIGTERM)

    def _begin(self, following: _Worker) -> bool:
        """Start a worker; return False if it has to wait."""
        assert following.asked is not None
        running = [one for one in self._members.values() if one.asked is None]
        if any(one.part is None for one in running):
            return False  # this home has found it, and soon knows what it has
        size: Size = following.asked["size"]
        held = [one.part for one in running if one.part is not None]
        part = taken(self._machine, held, size.cores, size.gpus)
        if part is None:
            return False
        asked, following.asked, following.part = following.asked, None, part
        try:
            following.process.start(asked["credentials"], asked["environment"], part)
        except OSError as error:
            self._over(following, f"its worker cannot be started: {error.strerror}")
        else:
            self._see(following)
        return True

    def _over(self, following: _Worker, reason: str) -> None:
        self._members.pop(following.member.tag.member, None)
        following.member.broke(reason, following.unseen)
        following.member.over()


def make(loop: Loop, log_error: Callable[[str], None], directory: Path | None) -> LocalProvider:
    """Make the provider of a run.

    Raises:
        UnavailableError: there is no run, but a service.
    """
    if directory is None:
        raise UnavailableError("members on this machine are of a run without Flux")
    return LocalProvider(loop, directory)
