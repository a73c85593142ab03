"""The virtual queue: what a cancel does to a job at each point of its life."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.loading import load_text
from flux_ensemble.engine.commands import Scale
from flux_ensemble.engine.events import CommandFailed, JobEvent, Tag
from flux_ensemble.queues.virtual.cluster import Shape, VirtualCluster
from flux_ensemble.queues.virtual.queue import VirtualJob, VirtualMember, VirtualQueue
from flux_ensemble.queues.virtual.scheduler import Scheduler
from flux_ensemble.runtime.ports import Outcome


class Queue:
    """A virtual queue whose jobs start at once and end when they are stopped."""

    def __init__(self, react: Callable[[Queue, JobEvent], None]) -> None:
        self.seen: list[tuple[int, str]] = []
        self._react = react
        self.queue = VirtualQueue(
            Scheduler(VirtualCluster(1, 2)),
            now=lambda: 1.0,
            post=self._post,
            runner=self,
            wake=lambda: None,
        )

    def _post(self, event: JobEvent) -> None:
        self.seen.append((event.job, event.name))
        self._react(self, event)

    def submit(self, jobs: int) -> None:
        for index in range(jobs):
            self.queue.submit(Tag("a", "r", 0, index), JobSet("a", 0), {}, Shape(1, 1))
        self.queue.schedule()

    def events_of(self, job: int) -> list[str]:
        return [name for number, name in self.seen if number == job]

    def start(self, job: VirtualJob) -> None:
        self.queue.started(job)

    def stop(self, job: VirtualJob) -> None:
        self.queue.ended(job, 15)

    def limit_changed(self, job: VirtualJob) -> None:
        raise AssertionError("nothing changes a limit here")


def test_a_virtual_member_has_a_fixed_size() -> None:
    spec = load_text("jobs: [{name: a, command: b}]", name="test")
    queue = Queue(lambda queue, event: None).queue
    member = VirtualMember(spec, queue, shape=lambda one: Shape(1, 1), now=lambda: 1.0)
    outcomes: list[Outcome] = []
    member.scale(Scale(3, "default", 1, 2), outcomes.append)
    reason = "the instance has a fixed size"
    assert outcomes == [CommandFailed(1.0, 3, "EINVAL", reason)]


BEGIN = ["submit", "validate", "depend", "priority"]


@pytest.mark.parametrize(
    ("victim", "events"),
    [
        (1, [*BEGIN, "alloc", "exception", "free", "clean"]),
        (2, [*BEGIN, "exception", "clean"]),
        (3, [*BEGIN, "exception", "clean"]),
    ],
)
def test_an_alloc_event_may_bring_about_a_cancel_of_any_job(victim: int, events: list[str]) -> None:
    def react(queue: Queue, event: JobEvent) -> None:
        if (event.job, event.name) == (1, "alloc"):
            queue.queue.cancel(victim, "no")

    queue = Queue(react)
    queue.submit(3)
    assert queue.events_of(victim) == events
    queue.queue.schedule()
    for job in {1, 2, 3} - {victim}:
        assert queue.events_of(job)[-1] == "start"
        queue.queue.cancel(job, "over")
    assert queue.queue.jobs == {}
    assert queue.queue.scheduler.cluster.busy_cores == 0


def test_a_running_job_that_is_cancelled_finishes() -> None:
    def react(queue: Queue, event: JobEvent) -> None:
        if event.name == "start":
            queue.queue.cancel(event.job, "no")

    queue = Queue(react)
    queue.submit(1)
    ending = ["alloc", "start", "exception", "finish", "release", "free", "clean"]
    assert queue.events_of(1) == [*BEGIN, *ending]
