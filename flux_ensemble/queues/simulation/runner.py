"""Virtual time, and jobs that only take time: the simulator's clock and runner.

`VirtualLoop` is a clock that jumps from one happening to the next, as in simpy: a heap of
(time, sequence, happening). `SimulatedRunner` runs the jobs of a `VirtualQueue`, with drawn
durations.

Every draw for a job comes from a hash of the seed and the job's tag
(`queues.simulation.uniforms`), so a seed gives the same results again, and the draws for a job
do not depend on anything else that happens.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from heapq import heappop, heappush

from flux_ensemble.document.distributions import Computed, Drawable, FromLog, Param, Simulated
from flux_ensemble.queues.simulation.uniforms import Uniforms
from flux_ensemble.queues.virtual.queue import VirtualJob, VirtualQueue

#: Seconds that a job takes if its group has no duration.
DEFAULT_DURATION = 1.0

#: The behaviour of the jobs of a group without one.
UNKNOWN = Simulated()

#: Wait statuses (wait(2)) of a job that exits with 1, and of a job that SIGTERM ended.
_FAILED = 1 << 8
_TERMINATED = 15


class SimulationError(Exception):
    """A simulation cannot go on; the text is one sentence."""


class Happening:
    """Something that will happen at a time, unless it is cancelled: a `runtime.ports.Handle`."""

    __slots__ = ("callback", "every")

    def __init__(self, callback: Callable[[], None], every: float) -> None:
        self.callback: Callable[[], None] | None = callback
        self.every = every

    def cancel(self) -> None:
        """Prevent the happening."""
        self.callback = None


class VirtualLoop:
    """A loop in virtual time, which begins at 0: a `runtime.ports.Loop`.

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
        """Return the virtual time in seconds."""
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
        """Raise: there are no files in virtual time."""
        raise NotImplementedError

    def stop(self) -> None:
        """Drop all happenings."""
        self._heap.clear()
        self._soon.clear()

    def run(self, until: float) -> bool:
        """Run the happenings up to the time `until`, in seconds.

        Returns:
            True if no happening is left; if False, the time is `until`.
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


#: The values that a job publishes at a fraction of its duration.
Step = tuple[float, dict[str, float]]


class _Run:
    """A running job, with its drawn values and its next happenings."""

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
        #: The memos that it publishes while it runs, the last first; and the next such happening.
        self.steps = steps
        self.step: Happening | None = None


class SimulatedRunner:
    """A runner of jobs that only take time: a `queues.virtual.queue.Runner`.

    Args:
        loop: the virtual time.
        behaviour: the behaviour of each group's jobs, without any `FromLog`.
        uniforms: the source of all draws.

    Attributes:
        queue: the queue of its jobs; to be set before the first job.
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
        """Drop all jobs without a further event."""
        for run in self._runs.values():
            for happening in (run.next, run.step):
                if happening is not None:
                    happening.cancel()
            run.next = run.step = None
        self._runs.clear()

    def limit_changed(self, job: VirtualJob) -> None:
        """Apply a changed time limit to a running job."""
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
        """Plan the end of a run, `gone` seconds after its start: its own end, or its time limit."""
        limit = run.job.claim.limit
        if limit and limit < run.duration:
            after, end = limit - gone, partial(self.queue.expire, run.job)
        else:
            after, end = run.duration - gone, partial(self._finish, run)
        run.next = self._loop.timer(max(0.0, after), end)

    def _plan_step(self, run: _Run) -> None:
        """Plan the next memo of a run."""
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
        """Return the memos of a key that a job publishes before its end."""
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
        run.next = None  # it refers to the run; a cycle would keep both until a collection
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
    """Return the steps from the last to the first; steps of one time are combined."""
    if not steps:
        return []
    memos: dict[float, dict[str, float]] = {}
    for share, memo in steps:
        memos.setdefault(share, {}).update(memo)
    return sorted(memos.items(), key=lambda step: step[0], reverse=True)
