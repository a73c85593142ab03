"""Virtual time, and jobs that take it: what the simulator puts in place of a queue's own.

`VirtualLoop` is a clock that jumps from one happening to the next, as in simpy: a heap of
(time, sequence, happening). `SimulatedRunner` runs the jobs of a `VirtualQueue`
by drawing how long each takes.

Every draw for a job comes from a hash of the seed and the job's tag
(`queues.simulation.uniforms`), so a seed repeats exactly, and a job draws the same whatever
else happens around it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from heapq import heappop, heappush

from flux_ensemble.document.computed import Computed
from flux_ensemble.document.distributions import Drawable, FromLog, Param, Simulated
from flux_ensemble.queues.simulation.uniforms import Uniforms
from flux_ensemble.queues.virtual.queue import VirtualJob, VirtualQueue

#: How long a job takes of which nothing is said, in seconds.
DEFAULT_DURATION = 1.0

#: How the jobs of a group behave of which nothing is said.
UNKNOWN = Simulated()

#: Wait statuses (wait(2)) of a job that exits with 1, and of one that SIGTERM ended.
_FAILED = 1 << 8
_TERMINATED = 15


class SimulationError(Exception):
    """A simulation cannot go on; one sentence."""


class Happening:
    """A `runtime.ports.Handle`: what will happen at some time, unless it is cancelled before."""

    __slots__ = ("callback", "every")

    def __init__(self, callback: Callable[[], None], every: float) -> None:
        self.callback: Callable[[], None] | None = callback
        self.every = every

    def cancel(self) -> None:
        """It will not happen."""
        self.callback = None


class VirtualLoop:
    """A `runtime.ports.Loop` in virtual time, which begins at 0.

    Args:
        advance: called with the present and the next time before the time changes.
        settle: called after each callback.
    """

    def __init__(
        self,
        advance: Callable[[float, float], None] = lambda before, after: None,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self._advance = advance
        self._settle = settle
        self._heap: list[tuple[float, int, Happening]] = []
        self._soon: deque[Callable[[], None]] = deque()
        self._sequence = 0
        self._time = 0.0

    def now(self) -> float:
        """The virtual time in seconds."""
        return self._time

    def timer(self, after: float, callback: Callable[[], None], every: float = 0.0) -> Happening:
        """Call back after `after` seconds, then each `every` seconds if that is not 0."""
        happening = Happening(callback, every)
        self._push(self._time + after, happening)
        return happening

    def soon(self, callback: Callable[[], None]) -> None:
        """Call back when everything else at this time has happened."""
        self._soon.append(callback)

    def reader(self, fd: int, callback: Callable[[], None]) -> Happening:
        """There are no files in virtual time."""
        raise NotImplementedError

    def stop(self) -> None:
        """Nothing is to happen any more."""
        self._heap.clear()
        self._soon.clear()

    def run(self, until: float) -> bool:
        """Let things happen, up to the time `until` in seconds.

        Returns:
            Whether nothing is left to happen; if not, the time is `until`.
        """
        heap, soon, settle = self._heap, self._soon, self._settle
        while heap or soon:
            if soon and not (heap and heap[0][0] <= self._time):
                soon.popleft()()
                settle()
                continue
            time, _, happening = heap[0]
            if time > until:
                self._advance(self._time, until)
                self._time = until
                return False
            heappop(heap)
            callback = happening.callback
            if callback is None:
                continue
            if time > self._time:
                self._advance(self._time, time)
                self._time = time
            if happening.every:
                self._push(time + happening.every, happening)
            callback()
            settle()
        return True

    def _push(self, time: float, happening: Happening) -> None:
        self._sequence += 1
        heappush(self._heap, (time, self._sequence, happening))


#: What a job publishes at a share of its duration.
Step = tuple[float, dict[str, float]]


class _Run:
    """A job that runs: what was drawn for it, and what happens to it next."""

    __slots__ = ("duration", "job", "memo", "next", "started", "status", "step", "steps")

    def __init__(
        self,
        job: VirtualJob,
        duration: float,
        status: int,
        memo: Mapping[str, float],
        steps: list[Step],
    ) -> None:
        self.job = job
        self.duration = duration
        self.status = status
        self.memo = memo
        self.started: float | None = None
        self.next: Happening | None = None
        #: What it publishes while it runs, the last first, and what happens then.
        self.steps = steps
        self.step: Happening | None = None


class SimulatedRunner:
    """A `queues.virtual.queue.Runner` of jobs that only take time.

    Args:
        loop: the virtual time.
        behaviour: how the jobs of each group behave, with no `FromLog` left in it.
        uniforms: what all draws come from.

    Attributes:
        queue: whose jobs it runs; to be set before the first.
    """

    queue: VirtualQueue

    def __init__(
        self, loop: VirtualLoop, behaviour: Mapping[str, Simulated], uniforms: Uniforms
    ) -> None:
        self._loop = loop
        self._behaviour = behaviour
        self._uniforms = uniforms
        self._runs: dict[int, _Run] = {}

    def start(self, job: VirtualJob) -> None:
        """Start the job."""
        behaviour = self._behaviour.get(job.tag.group, UNKNOWN)
        uniforms = self._uniforms.of(job.tag)
        duration, startup = DEFAULT_DURATION, 0.0
        if behaviour.duration is not None:
            assert not isinstance(behaviour.duration, FromLog)
            duration = max(0.0, self._draw(job, behaviour.duration, uniforms))
        if behaviour.startup is not None:
            startup = max(0.0, self._draw(job, behaviour.startup, uniforms))
        fails = behaviour.failure_rate and next(uniforms) < behaviour.failure_rate
        memo: dict[str, float] = {}
        steps: list[Step] = []
        for key, given in behaviour.memo.items():
            if isinstance(given, Computed):
                memo[key] = self._compute(job, given, given.steps)
                if given.step is not None:
                    memo[given.step] = given.steps
                    steps += self._steps(job, key, given)
            else:
                memo[key] = self._draw(job, given, uniforms)
        run = _Run(job, duration, _FAILED if fails else 0, memo, _merged(steps))
        self._runs[job.id] = run
        if startup:
            run.next = self._loop.timer(startup, partial(self._begin, run))
        else:
            self._begin(run)

    def stop(self, job: VirtualJob) -> None:
        """End the running job at once."""
        run = self._runs[job.id]
        if run.next is not None:
            run.next.cancel()
        if run.step is not None:
            run.step.cancel()
        self._end(run, _TERMINATED)

    def abandon(self) -> None:
        """Nothing is heard of its jobs any more."""
        for run in self._runs.values():
            for happening in (run.next, run.step):
                if happening is not None:
                    happening.cancel()
            run.next = run.step = None
        self._runs.clear()

    def limit_changed(self, job: VirtualJob) -> None:
        """The time limit of the running job is another one now."""
        run = self._runs[job.id]
        if run.started is not None:
            assert run.next is not None
            run.next.cancel()
            self._plan(run, self._loop.now() - run.started)

    def _begin(self, run: _Run) -> None:
        run.started = self._loop.now()
        self.queue.started(run.job)
        self._plan(run, 0.0)
        if run.steps and run.duration > 0:
            self._plan_step(run)

    def _plan(self, run: _Run, gone: float) -> None:
        """Have the run, which `gone` seconds of are over, end with its time, or its limit."""
        limit = run.job.claim.limit
        if limit and limit < run.duration:
            after, end = limit - gone, partial(self.queue.expire, run.job)
        else:
            after, end = run.duration - gone, partial(self._finish, run)
        run.next = self._loop.timer(max(0.0, after), end)

    def _plan_step(self, run: _Run) -> None:
        """Have the run publish what is next."""
        assert run.started is not None
        after = run.started + run.steps[-1][0] * run.duration - self._loop.now()
        run.step = self._loop.timer(max(0.0, after), partial(self._publish, run))

    def _publish(self, run: _Run) -> None:
        run.step = None
        _, memo = run.steps.pop()
        self.queue.memo(run.job, memo)
        if run.steps and run.job.id in self._runs:
            self._plan_step(run)

    def _steps(self, job: VirtualJob, key: str, computed: Computed) -> list[Step]:
        """What a job publishes of a key before its end."""
        assert computed.step is not None
        return [
            (step / computed.steps, {key: self._compute(job, computed, step), computed.step: step})
            for step in range(1, computed.steps)
        ]

    def _compute(self, job: VirtualJob, computed: Computed, step: int) -> float:
        value = computed.value(job.params, step)
        if not math.isfinite(value):
            raise SimulationError(
                f"group {job.tag.group!r}: expected a finite number from {computed.text!r} "
                f"in a job with the parameters {dict(job.params)!r}"
            )
        return value

    def _finish(self, run: _Run) -> None:
        if run.memo:
            self.queue.memo(run.job, run.memo)
        self._end(run, run.status)

    def _end(self, run: _Run, status: int) -> None:
        del self._runs[run.job.id]
        if run.step is not None:
            run.step.cancel()
            run.step = None
        run.next = None  # it leads back to the run, and would keep both until a collection
        self.queue.ended(run.job, status)

    def _draw(self, job: VirtualJob, drawn: Drawable, uniforms: Iterator[float]) -> float:
        try:
            value = drawn.draw(uniforms, job.params)
        except (KeyError, TypeError, ValueError, OverflowError):
            value = math.nan
        if not math.isfinite(value):
            what = f"parameter {drawn.name!r}" if isinstance(drawn, Param) else f"{drawn}"
            raise SimulationError(
                f"group {job.tag.group!r}: expected a finite number from {what} "
                f"in a job with the parameters {dict(job.params)!r}"
            )
        return value


def _merged(steps: list[Step]) -> list[Step]:
    """The steps in the order from the last to the first, those of one time as one."""
    if not steps:
        return []
    memos: dict[float, dict[str, float]] = {}
    for share, memo in steps:
        memos.setdefault(share, {}).update(memo)
    return sorted(memos.items(), key=lambda step: step[0], reverse=True)
