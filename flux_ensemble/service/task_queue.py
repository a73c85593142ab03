"""The jobs of a worker: processes on its node, in place of the jobs of a Flux instance.

    commands ──► LocalQueue.member ──► LocalQueue ──► ProcessRunner ──► supervisor ──► processes
    Contact ◄──Heard── TaskQueue ◄──job events──┘

To a `Contact` this is what an `Instance` is in a member with a service of its own, and `member`
what a `NestedMember` is there. The jobs go on while no service of the ensemble is there. The next
one is told of all jobs that it may not know: those of which no commit of the ensemble's log is
known to hold the end (`kept`).

The jobs end with this process, whatever ends it (`queues.local.supervisor`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from flux_ensemble.document.job_sets import TAG_KEY
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.events import JobEvent, Tag
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.metrics.signals import signal_of
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.flux.steps import Steps
from flux_ensemble.queues.local.binding import Binding
from flux_ensemble.queues.local.directory import Directory
from flux_ensemble.queues.local.processes import ProcessRunner
from flux_ensemble.queues.local.queue import LocalQueue
from flux_ensemble.queues.nested.listener import EVENTS, Facts, Heard
from flux_ensemble.queues.nested.tails import Tails
from flux_ensemble.queues.virtual.cluster import VirtualCluster
from flux_ensemble.queues.virtual.queue import VirtualMember
from flux_ensemble.runtime.ports import Handle, Loop

#: Number of jobs that have ended since the last mark with which the next one is sent.
MARK = 1000

#: Most bytes of the output of one job that are kept after its end, and of all of these jobs.
MOST_BYTES = 1 << 16
MOST_IN_ALL = 1 << 26

#: Most bytes of the output of a running job on the disk, and seconds between two looks at it.
MOST_RUNNING = 1 << 20
LOOK_SECONDS = 1.0

#: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE of linux/falloc.h.
_HOLE = 0x02 | 0x01


class _Soon:
    """A callback at the end of a turn: a `runtime.ports.Handle`."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class _Turns:
    """A `runtime.ports.Loop` on another one, whose timers of no time cost nothing in a turn.

    A watcher of the reactor costs as much as the start of a short task, and each task has three.

    Args:
        loop: the other one.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._soon: deque[_Soon] = deque()
        self._inside = False

    def now(self) -> float:
        return self._loop.now()

    def timer(self, after: float, callback: Callable[[], None], every: float = 0.0) -> Handle:
        if self._inside and not (after or every):
            self._soon.append(_Soon(callback))
            return self._soon[-1]
        return self._loop.timer(after, partial(self._turn, callback), every)

    def reader(self, fd: int, callback: Callable[[], None]) -> Handle:
        return self._loop.reader(fd, partial(self._turn, callback))

    def _turn(self, callback: Callable[[], None]) -> None:
        self._inside = True
        try:
            callback()
            while self._soon:
                soon = self._soon.popleft()
                if soon.callback is not None:
                    soon.callback()
        finally:
            self._inside = False


class TaskQueue:
    """The jobs of one ensemble in a worker.

    Args:
        loop: for timers and file descriptors.
        resources: of the worker.
        binding: of its jobs to cores and GPUs.
        fail: receives the reason why the worker cannot go on.
        tails: receives the end of what failed tasks wrote.
        doubt: seconds that the end of a task by SIGTERM is kept: what ends the worker may end its
            tasks first, which is no outcome of theirs. 0 if nothing does that.

    Attributes:
        facts: the properties of the worker.
    """

    def __init__(
        self,
        loop: Loop,
        resources: Facts,
        binding: Binding,
        fail: Callable[[str], None],
        tails: Tails,
        *,
        doubt: float = 0.0,
    ) -> None:
        self.facts = resources
        self._loop = _Turns(loop)
        self._binding = binding
        self._fail = fail
        self._tails = tails
        self._doubt = doubt
        #: The events of tasks whose end is kept, by their ids.
        self._doubted: dict[int, list[JobEvent]] = {}
        self._user = os.getuid()
        self._heard: Heard | None = None
        self._mark: Callable[[int], None] = lambda number: None
        self._warn: Callable[[str], None] = lambda text: None
        self._wanted = set(EVENTS)
        self._name: dict[str, Any] = {}
        self._events: dict[int, list[Mapping[str, Any]]] = {}
        self._tags: dict[int, Tag] = {}
        #: Jobs that have ended since the last mark, and those before each mark without an answer.
        self._ended: list[int] = []
        self._marked: deque[tuple[int, list[int]]] = deque()
        self._marks = 0
        self._queue: LocalQueue | None = None
        self._output: Directory | None = None
        self._looks: Handle | None = None
        #: The jobs whose output is kept, with its size, in the order of their ends.
        self._outputs: dict[int, int] = {}
        self._bytes = 0

    # -- the life of a contact -----------------------------------------------------------------

    def serve(
        self,
        spec: Spec,
        load: Mapping[str, Any],
        heard: Heard,
        mark: Callable[[int], None],
        warn: Callable[[str], None],
    ) -> None:
        """Serve another contact.

        Args:
            spec: the document of the ensemble.
            load: what is known of the ensemble besides: its run, environment and directory.
            heard: the callbacks.
            mark: sends a mark behind all that `heard` was told; `kept` has the answer.
            warn: receives a sentence about a mistake of a job.

        Raises:
            UnsatisfiableError: jobs request a form of resources that a worker does not have.
            OSError, StateError: no process can be started, or there is no place for output.
        """
        if self._queue is None:
            self._name = {"name": spec.name, "run": load["run"]}
            self._queue = self._begin(spec, load)
        self._heard, self._mark, self._warn = heard, mark, warn
        # No answer comes to the marks of an earlier contact.
        self._ended = [job for _, jobs in self._marked for job in jobs] + self._ended
        self._marked.clear()

    def _begin(self, spec: Spec, load: Mapping[str, Any]) -> LocalQueue:
        cluster = VirtualCluster(1, self.facts.cores, self.facts.gpus)
        runner = ProcessRunner(
            self._loop,
            environment=load["environment"],
            cwd=load["cwd"],
            ready=lambda: True,
            lost=self._fail,
            warn=lambda text: self._warn(text),
            full=None,
            prefix=spec.job_prefix,
            binding=self._binding,
        )
        self._output = runner.output
        look = partial(self._bound, runner)
        self._looks = self._loop.timer(LOOK_SECONDS, look, every=LOOK_SECONDS)
        try:
            return LocalQueue(spec, cluster, self._loop, runner, self._post, self._wanted)
        except BaseException:
            self._looks.cancel()
            runner.close()
            raise

    def attach(
        self,
        version: str,
        done: Report,
        *,
        names: frozenset[str] = frozenset(),
        places: bool = False,
    ) -> None:
        """Report the jobs so far, and then that more can be sent: see `Instance.attach`."""
        self.follow(names, places)
        assert self._heard is not None
        for job, events in list(self._events.items()):
            self._heard.past(job, self._jobspec(self._tags[job]), events)
        self._heard.caught_up()
        done(None)

    def follow(self, names: frozenset[str], places: bool) -> None:
        """Report more job events from now on; `start` has its place in any case."""
        self._wanted |= names

    @property
    def newest(self) -> int:
        """The greatest id of the jobs that `attach` has reported: no other job is missing."""
        return max(self._events, default=0)

    def rest(self) -> None:
        """Start none of the tasks that wait: there is no service."""
        self.silence()
        if self._queue is not None:
            self._queue.rest()

    def go_on(self) -> None:
        """Start tasks again."""
        if self._queue is not None:
            self._queue.go_on()

    def silence(self) -> None:
        """Report nothing until the next contact."""
        self._heard = None

    def close(self) -> None:
        """Kill all jobs, and wait until they are gone."""
        self.silence()
        self._output = None
        if self._looks is not None:
            self._looks.cancel()
        if self._queue is not None:
            self._queue.close()

    # -- requests ----------------------------------------------------------------------------

    @property
    def member(self) -> VirtualMember:
        """The view of the ensemble on the queue; once a contact is served."""
        return self._local.member

    @property
    def _local(self) -> LocalQueue:
        assert self._queue is not None
        return self._queue

    def stop_queue(self, reason: str, done: Report) -> None:
        """Start no more of the jobs that wait."""
        self._local.drain()
        done(None)

    def look(self) -> Steps:
        """Do nothing: the resources of a worker do not change."""
        yield from ()

    def eventlog(self, job: int, done: Callable[[list[Any] | Exception], None]) -> None:
        """Return the events of a job."""
        events = self._events.get(job)
        done(OSError(errno.ENOENT, os.strerror(errno.ENOENT)) if events is None else events)

    def output(self, job: int) -> str | None:
        """Return the end of what a job wrote; None if nothing of it is kept."""
        if self._output is None:
            return None
        try:
            with open(self._output.path / f"{job}.out", "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_BYTES))
                return file.read(MOST_BYTES).decode(errors="replace")
        except OSError:
            return None

    # -- events --------------------------------------------------------------------------------

    def _post(self, event: JobEvent) -> None:
        if self._doubt and (event.job in self._doubted or self._is_doubtful(event)):
            kept = self._doubted.setdefault(event.job, [])
            kept.append(event)
            if len(kept) == 1:
                self._loop.timer(self._doubt, partial(self._believe, event.job))
        else:
            self._tell(event)

    def _is_doubtful(self, event: JobEvent) -> bool:
        """Return whether an event is the end of a task by a SIGTERM that nobody asked for here."""
        return (
            event.name == "finish"
            and signal_of(event.context.get("status", 0)) == signal.SIGTERM
            and not any(entry["name"] == "exception" for entry in self._events[event.job])
        )

    def _believe(self, job: int) -> None:
        for event in self._doubted.pop(job):
            self._tell(event)

    def _tell(self, event: JobEvent) -> None:
        jobspec, context = None, event.context
        if event.tag is not None:
            self._tags[event.job] = event.tag
            self._events[event.job] = []
            jobspec, context = self._jobspec(event.tag), {**context, "userid": self._user}
        entry: dict[str, Any] = {"timestamp": event.t, "name": event.name}
        if context:
            entry["context"] = context
        self._events[event.job].append(entry)
        if self._heard is not None:
            self._heard.event(event.job, entry, jobspec, False)
        if event.name == "clean":
            self._over(event.job)

    def _over(self, job: int) -> None:
        if self._keep(job) and self._outcome(job) not in ("success", "canceled"):
            wrote = self.output(job)
            if wrote:
                self._tails.take(job, wrote)
        self._ended.append(job)
        if len(self._ended) >= MARK and self._heard is not None:
            self._marks += 1
            self._marked.append((self._marks, self._ended))
            self._ended = []
            self._mark(self._marks)

    def _outcome(self, job: int) -> str | None:
        """Return the outcome of a job that has ended, by the engine's own judgement."""
        tag = self._tags[job]
        found = ActiveJob(job, tag.group, None, tag.index, 0.0)
        for entry in self._events[job]:
            context = entry.get("context", {})
            found.accept(JobEvent(entry["timestamp"], job, entry["name"], context))
        return found.outcome

    def kept(self, number: int) -> None:
        """Forget the jobs before a mark: the ensemble's log has all of them."""
        while self._marked and self._marked[0][0] <= number:
            for job in self._marked.popleft()[1]:
                del self._events[job], self._tags[job]

    def _jobspec(self, tag: Tag) -> dict[str, Any]:
        return {"attributes": {"user": {TAG_KEY: {**self._name, **tag._asdict()}}}}

    def _bound(self, runner: ProcessRunner) -> None:
        """Free the space of all but the end of what running jobs have written."""
        for job in runner.kept:
            path = runner.output.path / f"{job}.out"
            with contextlib.suppress(OSError):
                if path.stat().st_blocks * 512 > MOST_RUNNING:
                    _free_beginning(path, MOST_BYTES)

    def _keep(self, job: int) -> bool:
        """Shorten the output of a job that has ended; drop that of the first if it is too much.

        Returns:
            Whether it has written something.
        """
        assert self._output is not None
        path = self._output.path / f"{job}.out"
        size = 0
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            if size > MOST_BYTES:
                with open(path, "r+b") as file:
                    file.seek(size - MOST_BYTES)
                    end = file.read(MOST_BYTES)
                    file.seek(0)
                    file.write(end)
                    file.truncate()
                size = MOST_BYTES
            self._outputs[job] = size
            self._bytes += size
        while self._bytes > MOST_IN_ALL:
            first = next(iter(self._outputs))
            self._bytes -= self._outputs.pop(first)
            (self._output.path / f"{first}.out").unlink(missing_ok=True)
        return size > 0


def _free_beginning(path: str | os.PathLike[str], most: int) -> None:
    """Free the disk space of all but the end of a file to which somebody may append.

    The file keeps its size, so nothing that is written meanwhile is lost. Where the file system
    has no holes (fallocate(2)), the file is shortened; then something can be.

    Args:
        path: the file.
        most: bytes of the end that are kept.

    Raises:
        OSError: the file cannot be written.
    """
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size - most
        if size > 0 and _fallocate()(fd, _HOLE, 0, size) < 0:
            end = os.pread(fd, most, size)
            os.ftruncate(fd, 0)
            os.write(fd, end)
    finally:
        os.close(fd)


@cache
def _fallocate() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    # musl has the one name alone, whose offsets have 64 bits everywhere.
    function = getattr(library, "fallocate64", None) or library.fallocate
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return function
