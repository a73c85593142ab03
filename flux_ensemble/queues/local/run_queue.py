"""The contract of a run on this machine with its queue.

name ──► kinds.QUEUES ──► class ──of_run(RunSide)──► RunQueue
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from flux_ensemble.document.model import Spec
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import JobEvent
from flux_ensemble.queues.local.kinds import QUEUES, QueueName
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.queues.local.recovery import Recovered
from flux_ensemble.queues.local.state_dir import StateLog
from flux_ensemble.queues.virtual.cluster import VirtualCluster
from flux_ensemble.runtime.ports import Queue


class RunQueue(Protocol):
    """The place where the jobs of a run are: a queue, or members, which go on without the run.

    A queue has a class method `of_run(side: RunSide)`, which makes it.

    Attributes:
        member: performs the commands about jobs.
        active: number of jobs that wait or run.
        running: number of jobs that end with the run.
    """

    @property
    def member(self) -> Queue: ...

    @property
    def active(self) -> int: ...

    @property
    def running(self) -> int: ...

    def adopt(self, recovered: Recovered, engine: Engine) -> None:
        """Take over the jobs that waited in the queue of a run that was killed."""
        ...

    def halt(self) -> None:
        """Start no more jobs."""
        ...

    def stop(self) -> None:
        """Start no more jobs, and end the running ones."""
        ...

    def abandon(self, reason: str) -> None:
        """Kill all running jobs, wait until they are gone, and post all jobs as canceled."""
        ...

    def close(self) -> None:
        """Kill all running jobs, and wait until they are gone."""
        ...


@dataclass(frozen=True, kw_only=True)
class RunSide:
    """The things of a run that its queue needs.

    Attributes:
        spec: the ensemble.
        cluster: what the user asked for of this machine.
        loop: of the run.
        log: its files, with those for the output of jobs.
        stack: closes what the queue opens.
        environment, cwd: of the jobs.
        post: receives each job event.
        flush: makes the events durable. It is called before anything of a job is started; if it
            returns False, nothing is started.
        full: receives a sentence when the output of a job cannot be kept; the run stops.
        lost: receives a sentence when no job can be started any more; the run stops.
        warn: receives a sentence about a mistake of a job.
    """

    spec: Spec
    cluster: VirtualCluster
    loop: LocalLoop
    log: StateLog
    stack: ExitStack
    environment: Mapping[str, str]
    cwd: str
    post: Callable[[JobEvent], None]
    flush: Callable[[], bool]
    full: Callable[[str], None]
    lost: Callable[[str], None]
    warn: Callable[[str], None]


def make_queue(name: QueueName, side: RunSide) -> RunQueue:
    """Return a new queue.

    Args:
        name: as in `QUEUES`.
        side: of the run that has it.

    Raises:
        UnsatisfiableError: it cannot run a job group of the document.
        OSError: no process can be started.
    """
    module, _, kind = QUEUES[name].partition(":")
    queue: RunQueue = getattr(import_module(module), kind).of_run(side)
    return queue
