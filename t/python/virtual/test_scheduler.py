"""The scheduler of the virtual cluster: who starts when, and who waits for whom."""

from __future__ import annotations

from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.queues.virtual.cluster import Shape, UnsatisfiableError, VirtualCluster
from flux_ensemble.queues.virtual.scheduler import Claim, Scheduler

NODES, CORES = 4, 2

WHOLE = Shape(NODES, CORES)
NODE = Shape(1, CORES)
CORE = Shape(1, 1)


class Queue:
    """A scheduler with jobs that take as long as they are told to."""

    def __init__(self, nodes: int = NODES, cores: int = CORES) -> None:
        self.scheduler = Scheduler(VirtualCluster(nodes, cores))
        self.now = 0.0
        self.started: list[tuple[float, Claim]] = []
        self._ends: list[tuple[float, int, Claim]] = []
        self._seconds: dict[int, float] = {}

    def add(
        self, shape: Shape, seconds: float = 1.0, *, urgency: int = 16, limit: float = 0.0
    ) -> Claim:
        claim = Claim(len(self._seconds), shape, urgency, limit)
        self._seconds[claim.job] = seconds
        self.scheduler.add(claim)
        return claim

    def schedule(self) -> list[Claim]:
        """Start what can start now."""
        found = self.scheduler.start(self.now)
        for claim in found:
            self.started.append((self.now, claim))
            heappush(self._ends, (self.now + self._seconds[claim.job], claim.job, claim))
        assert self.scheduler.cluster.busy_cores <= NODES * CORES
        return found

    def step(self) -> bool:
        """End the next job, and start what can start then; False if none runs."""
        if not self._ends:
            return False
        self.now, _, claim = heappop(self._ends)
        self.scheduler.release(claim)
        self.schedule()
        return True

    def drain(self) -> list[int]:
        """Run all there is; the numbers of the jobs in the order of their starts."""
        self.schedule()
        while self.step():
            pass
        return [claim.job for _, claim in self.started]


JOBS = st.lists(
    st.tuples(
        st.builds(
            Shape,
            chunks=st.integers(1, NODES),
            cores=st.integers(1, CORES),
            distinct=st.booleans(),
            exclusive=st.booleans(),
        ),
        st.integers(1, 5),  # seconds
        st.integers(1, 31),  # urgency
        st.booleans(),  # has a limit
    ),
    max_size=25,
)


@given(JOBS)
def test_every_job_runs_once_and_all_comes_back(jobs: list[tuple[Shape, int, int, bool]]) -> None:
    queue = Queue()
    for shape, seconds, urgency, limited in jobs:
        queue.add(shape, seconds, urgency=urgency, limit=seconds if limited else 0.0)
    assert sorted(queue.drain()) == list(range(len(jobs)))
    assert queue.scheduler.waiting == 0
    assert queue.scheduler.cluster.busy_cores == 0


@given(JOBS)
def test_equal_jobs_start_in_the_order_of_their_submission(
    jobs: list[tuple[Shape, int, int, bool]],
) -> None:
    queue = Queue()
    claims = [queue.add(shape, seconds) for shape, seconds, _, _ in jobs]
    order = queue.drain()
    for shape in {claim.shape for claim in claims}:
        alike = [claim.job for claim in claims if claim.shape == shape]
        assert [job for job in order if job in alike] == alike


@given(JOBS)
def test_the_first_in_line_never_waits_for_those_behind(
    jobs: list[tuple[Shape, int, int, bool]],
) -> None:
    """With limits that are true, a whole-cluster job starts when what ran before it ended."""
    queue = Queue()
    queue.add(NODE, 3, limit=3)
    queue.schedule()
    large = queue.add(WHOLE, limit=1)
    for shape, seconds, _, _ in jobs:
        queue.add(shape, seconds, limit=seconds)
    queue.drain()
    (begin,) = [time for time, claim in queue.started if claim is large]
    assert begin == 3


def test_a_large_job_starts_behind_an_endless_stream_of_small_ones() -> None:
    queue = Queue()
    for _ in range(NODES):
        queue.add(NODE)
    queue.schedule()
    large = queue.add(WHOLE)
    for _ in range(100):
        queue.add(NODE)
        assert queue.step()
        if large.placed is not None:
            break
    assert queue.now <= 2


def test_a_job_fills_a_hole_that_its_limit_lets_it_leave_in_time() -> None:
    queue = Queue()
    queue.add(Shape(2, CORES), 10, limit=10)
    queue.schedule()
    queue.add(WHOLE, limit=1)
    short = queue.add(Shape(2, CORES), 10, limit=10)
    long = queue.add(Shape(2, CORES), 11, limit=11)
    assert queue.schedule() == [short]
    assert long.placed is None


def test_a_job_fills_a_hole_on_nodes_that_the_first_in_line_does_not_need() -> None:
    queue = Queue()
    queue.add(Shape(2, CORES), 10)
    queue.schedule()
    head = queue.add(Shape(3, CORES))
    # The head will get two empty nodes and one of those in use: nothing is left over.
    assert queue.add(NODE).placed is None
    assert queue.schedule() == []
    queue.step()
    assert head.placed is not None


def test_urgent_jobs_go_first() -> None:
    queue = Queue()
    queue.add(WHOLE)
    queue.schedule()
    jobs = [queue.add(WHOLE, urgency=urgency) for urgency in (16, 1, 31, 16)]
    assert queue.drain()[1:] == [jobs[index].job for index in (2, 0, 3, 1)]


def test_a_held_job_starts_when_it_is_let_go() -> None:
    queue = Queue()
    held = queue.add(CORE, urgency=0)
    other = queue.add(WHOLE)
    assert queue.schedule() == [other]
    queue.step()
    assert queue.schedule() == []
    queue.scheduler.change(held, 16, None, queue.now)
    assert queue.schedule() == [held]


def test_a_job_that_is_held_again_keeps_nobody_waiting() -> None:
    queue = Queue()
    queue.add(NODE, 10)
    queue.schedule()
    head = queue.add(WHOLE)
    small = queue.add(Shape(3, CORES))
    assert queue.schedule() == []
    queue.scheduler.change(head, 0, None, queue.now)
    assert queue.schedule() == [small]


def test_a_job_that_is_removed_keeps_nobody_waiting() -> None:
    queue = Queue()
    queue.add(NODE, 10)
    queue.schedule()
    head = queue.add(WHOLE)
    small = queue.add(Shape(3, CORES))
    assert queue.schedule() == []
    queue.scheduler.remove(head)
    assert queue.schedule() == [small]


def test_what_the_cluster_cannot_run_does_not_get_in_line() -> None:
    queue = Queue()
    with pytest.raises(UnsatisfiableError):
        queue.add(Shape(NODES + 1, 1))
    assert queue.scheduler.waiting == 0
