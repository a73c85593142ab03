"""The jobs of a worker, with real processes and without Flux's queue."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from patience import PATIENCE

from flux_ensemble.bindings import require_flux
from flux_ensemble.document.loading import load_text
from flux_ensemble.engine.commands import CancelJobs, SubmitJobs
from flux_ensemble.engine.events import CommandDone, Tag
from flux_ensemble.queues.local.binding import Binding
from flux_ensemble.queues.local.loop import LocalLoop

if TYPE_CHECKING:
    from flux_ensemble.service.task_queue import TaskQueue

pytestmark = pytest.mark.flux

WHERE = "flux_ensemble.service.task_queue"

DOCUMENT = """
jobs:
  - {name: ok, command: "true", count: 4}
  - {name: say, command: "echo hello {x}", params: {x: 1}, count: 4}
  - {name: much, command: "sh -c 'yes | head -c 100000; sleep 60'"}
  - {name: sleep, command: "sleep 60", count: 4}
  - {name: flood, command: "sh -c 'yes | head -c 5000000; echo end; sleep 60'"}
  - {name: die, command: "sh -c 'kill -TERM $$'"}
  - {name: bad, command: "sh -c 'echo so bad; exit 3'", count: 4}
"""
LOAD = {"run": 7, "environment": dict(os.environ), "cwd": "/"}


class Service:
    """The service of an ensemble, as far as a worker sees it."""

    def __init__(self, queue: TaskQueue, loop: LocalLoop) -> None:
        self.queue, self.loop = queue, loop
        self.events: list[tuple[int, str]] = []
        self.past: dict[int, list[str]] = {}
        self.tags: dict[int, Mapping[str, Any]] = {}
        self.marks: list[int] = []

    def attach(self) -> None:
        from flux_ensemble.queues.nested.listener import Heard

        heard = Heard(
            event=self._event,
            past=self._past,
            caught_up=lambda: None,
            ending=lambda: None,
            lost=lambda: None,
            objection=lambda identity: None,
        )
        spec = load_text(DOCUMENT, name="test")
        self.queue.serve(spec, LOAD, heard, self.marks.append, lambda text: None)
        up: list[Exception | None] = []
        self.queue.attach("", up.append)
        assert up == [None]

    def _event(
        self,
        job: int,
        entry: Mapping[str, Any],
        jobspec: Mapping[str, Any] | None,
        interrupted: bool,
    ) -> None:
        assert not interrupted
        self.events.append((job, entry["name"]))
        if jobspec is not None:
            assert entry["context"]["userid"] == os.getuid()
            self.tags[job] = jobspec["attributes"]["user"]["ensemble"]

    def _past(self, job: int, jobspec: Mapping[str, Any], entries: list[Any]) -> None:
        self.past[job] = [entry["name"] for entry in entries]
        self.tags[job] = jobspec["attributes"]["user"]["ensemble"]

    def submit(self, group: str, count: int, firing: int = 0, first: int = 0) -> list[int]:
        done: list[Any] = []
        command = SubmitJobs(1, group, "r", firing, first, count)
        self.queue.member.submit(command, done.append)
        assert isinstance(done[0], CommandDone)
        ids: list[int] = done[0].result["ids"]
        return ids

    def until(self, true: Callable[[], bool]) -> None:
        late = self.loop.timer(PATIENCE, lambda: pytest.fail("nothing came of it"))
        # What is waited for need not wake the loop.
        tick = self.loop.timer(0.0, lambda: None, every=0.01)
        self.loop.run(true)
        late.cancel()
        tick.cancel()

    def ended(self, *jobs: int) -> bool:
        return all((job, "clean") in self.events for job in jobs)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    require_flux()
    from flux_ensemble.queues.nested.listener import Facts
    from flux_ensemble.queues.nested.tails import Tails
    from flux_ensemble.service.task_queue import TaskQueue

    loop = LocalLoop()
    with open(tmp_path / "printed", "wb") as printed:
        tails = Tails(printed.fileno())
        queue = TaskQueue(loop, Facts(1, 2, 0, None), Binding([0]), pytest.fail, tails)
        service = Service(queue, loop)
        service.attach()
        yield service
        queue.close()


def output_files(queue: TaskQueue) -> list[Path]:
    assert queue._output is not None
    return list(queue._output.path.iterdir())


def test_jobs_are_reported_with_their_tags_and_events(service: Service) -> None:
    first, second = service.submit("ok", 2, firing=3)
    service.until(lambda: service.ended(first, second))
    names = [name for job, name in service.events if job == first]
    assert names == ["submit", "validate", "start", "finish", "clean"]
    assert service.tags[second] == {
        "name": "test", "run": 7, "group": "ok", "rule": "r", "firing": 3, "index": 1,
    }  # fmt: skip


def test_the_next_contact_hears_of_what_happened_without_one(service: Service) -> None:
    (early,) = service.submit("ok", 1)
    service.until(lambda: service.ended(early))
    (job,) = service.submit("sleep", 1, firing=1)
    service.until(lambda: (job, "start") in service.events)
    service.queue.silence()
    heard = len(service.events)
    service.queue.member.cancel(CancelJobs(2, (job,), "enough"), lambda outcome: None)
    service.until(lambda: service.queue._local.active == 0)
    assert len(service.events) == heard
    service.attach()
    assert service.past[early][-1] == service.past[job][-1] == "clean"
    assert "exception" in service.past[job]
    assert service.queue.newest == job


def test_a_job_that_is_known_already_is_not_started_twice(service: Service) -> None:
    (job,) = service.submit("ok", 1)
    service.queue.member.known[Tag("ok", "r", 0, 0)] = job
    assert service.submit("ok", 1) == [job]
    assert service.queue.member.known == {}
    service.until(lambda: service.ended(job))
    assert [one for one, name in service.events if name == "submit"] == [job]


def test_jobs_are_forgotten_when_the_log_has_them_and_no_earlier(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{WHERE}.MARK", 3)
    jobs = service.submit("ok", 4)
    service.until(lambda: service.ended(*jobs))
    assert service.marks == [1]
    service.attach()
    assert sorted(service.past) == jobs
    # The mark was lost with the contact; the next one is for its jobs, too.
    more = service.submit("ok", 1, firing=1)
    service.until(lambda: service.ended(*more))
    assert service.marks == [1, 2]
    service.queue.kept(1)
    service.past.clear()
    service.attach()
    assert sorted(service.past) == jobs + more
    last = service.submit("ok", 1, firing=2)
    service.until(lambda: service.ended(*last))
    service.queue.kept(3)
    service.past.clear()
    service.attach()
    assert service.past == {}
    assert service.queue.newest == 0


def test_the_last_lines_of_what_failed_are_printed_within_bounds(
    service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from flux_ensemble.queues.nested import tails

    monkeypatch.setattr(tails, "MOST_CHARACTERS", 4)
    service.queue._tails._left = 2 * len(tails.tail_line(1, "bad\n"))
    jobs = service.submit("bad", 3) + service.submit("say", 1, firing=1)
    service.until(lambda: service.ended(*jobs))
    (much,) = service.submit("much", 1, firing=2)
    service.until(lambda: service.queue.output(much) is not None)
    service.queue.member.cancel(CancelJobs(2, (much,), "enough"), lambda outcome: None)
    service.until(lambda: service.ended(much))
    found = tails.tails((tmp_path / "printed").read_text())
    assert list(found.values()) == ["bad\n"] * 2
    assert found.keys() < set(jobs[:3])


def test_what_a_job_wrote_is_kept_within_bounds(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{WHERE}.MOST_BYTES", 10)
    monkeypatch.setattr(f"{WHERE}.MOST_IN_ALL", 20)
    jobs = service.submit("say", 4)
    silent = service.submit("ok", 1, firing=1)
    service.until(lambda: service.ended(*jobs, *silent))
    kept = {job: service.queue.output(job) for job in jobs}
    assert sorted(filter(None, kept.values())) == ["hello 1\n", "hello 1\n"]
    assert service.queue.output(silent[0]) is None
    assert service.queue.output(99) is None
    (much,) = service.submit("much", 1, firing=2)
    service.until(lambda: service.queue.output(much) == "y\n" * 5)
    service.queue.member.cancel(CancelJobs(2, (much,), "enough"), lambda outcome: None)
    service.until(lambda: service.ended(much))
    assert service.queue.output(much) == "y\n" * 5
    assert sum(file.stat().st_size for file in output_files(service.queue)) <= 20


@pytest.mark.parametrize("holes", [True, False])
def test_what_a_running_job_writes_takes_little_space_and_its_end_can_be_read(
    service: Service, monkeypatch: pytest.MonkeyPatch, holes: bool
) -> None:
    if not holes:
        monkeypatch.setattr("flux_ensemble.service.task_queue._fallocate", lambda: lambda *_: -1)
    (job,) = service.submit("flood", 1)
    service.until(lambda: (service.queue.output(job) or "").endswith("y\nend\n"))
    (file,) = output_files(service.queue)
    service.until(lambda: file.stat().st_blocks * 512 <= 1 << 20)
    assert (file.stat().st_size > 1 << 22) is holes
    output = service.queue.output(job)
    assert output is not None
    assert (len(output), output[-8:]) == (1 << 16, "y\ny\nend\n")
    service.queue.member.cancel(CancelJobs(2, (job,), "enough"), lambda outcome: None)
    service.until(lambda: service.ended(job))
    assert service.queue.output(job) == output


def test_a_worker_that_drains_starts_no_more_of_its_jobs(service: Service) -> None:
    running = service.submit("sleep", 2)
    service.until(lambda: all((job, "start") in service.events for job in running))
    (waiting,) = service.submit("ok", 1, firing=1)
    service.queue.stop_queue("it ends", lambda error: None)
    service.queue.member.cancel(CancelJobs(2, tuple(running), "enough"), lambda outcome: None)
    service.until(lambda: service.ended(*running))
    assert [name for job, name in service.events if job == waiting] == ["submit", "validate"]


def test_the_files_of_a_worker_and_its_processes_are_gone_with_it(service: Service) -> None:
    (job,) = service.submit("sleep", 1)
    service.until(lambda: (job, "start") in service.events)
    (file,) = output_files(service.queue)
    scratch = Path(service.queue._local._runner.scratch)
    assert scratch.exists()
    service.queue.close()
    assert not file.parent.exists()
    assert not scratch.exists()


def test_a_job_has_as_many_cores_as_it_asks_for_and_different_ones() -> None:
    binding = Binding([0, 1, 2], ["a", "b"])
    assert binding.take(1, 2, 1) == ([0, 1], ["a"])
    assert binding.take(2, 2, 2) == ([], [])
    assert binding.take(3, 1, 1) == ([2], ["b"])
    binding.give(1)
    binding.give(1)
    assert binding.take(4, 2, 1) == ([0, 1], ["a"])


def test_a_job_whose_output_cannot_be_kept_fails(service: Service) -> None:
    assert service.queue._output is not None
    service.queue._output.path.rmdir()
    (job,) = service.submit("ok", 1)
    service.until(lambda: service.ended(job))
    names = [name for other, name in service.events if other == job]
    assert names == ["submit", "validate", "start", "exception", "finish", "clean"]


def test_the_end_of_a_task_by_sigterm_waits_for_that_of_its_worker(tmp_path: Path) -> None:
    require_flux()
    from flux_ensemble.queues.nested.listener import Facts
    from flux_ensemble.queues.nested.tails import Tails
    from flux_ensemble.service.task_queue import TaskQueue

    loop = LocalLoop()
    with open(tmp_path / "printed", "wb") as printed:
        tails = Tails(printed.fileno())
        facts = Facts(1, 4, 0, None)
        queue = TaskQueue(loop, facts, Binding([0]), pytest.fail, tails, doubt=0.5)
        service = Service(queue, loop)
        service.attach()
        (killed,) = service.submit("die", 1)
        service.until(lambda: len(queue._doubted.get(killed, ())) > 1)
        assert (killed, "start") in service.events
        assert (killed, "finish") not in service.events
        service.until(lambda: service.ended(killed))
        (cancelled,) = service.submit("sleep", 1, firing=1)
        service.until(lambda: (cancelled, "start") in service.events)
        queue.member.cancel(CancelJobs(2, (cancelled,), "enough"), lambda outcome: None)
        service.until(lambda: service.ended(cancelled) or cancelled in queue._doubted)
        assert service.ended(cancelled)
        queue.close()


def test_tasks_that_wait_start_when_there_is_a_service_again(service: Service) -> None:
    service.queue.rest()
    service.attach()
    (waits,) = service.submit("ok", 1)
    more: list[bool] = []
    service.loop.timer(0.3, lambda: more.append(True))
    service.until(lambda: bool(more))
    assert (waits, "start") not in service.events
    service.queue.go_on()
    service.until(lambda: service.ended(waits))
