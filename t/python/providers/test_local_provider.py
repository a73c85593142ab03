"""Workers on this machine: real processes, a home that dies, and what lives after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE
from test_slurm_provider import Member

from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.queues.nested.shape import MemberTag, Program, Shape, Size
from flux_ensemble.queues.providers.local import provider as local
from flux_ensemble.queues.providers.local.provider import LocalProvider
from flux_ensemble.queues.providers.local.worker_process import Part, WorkerProcess, taken

#: Nobody listens there: a worker calls again and again.
CREDENTIALS = json.dumps(
    {
        "addresses": ["127.0.0.1"], "port": 9, "ca": "", "cert": "", "key": "", "patience": 60,
        "tag": {},
    }
)  # fmt: skip


def shape(ordinal: int, size: Size, **keys: Any) -> Shape:
    tag = MemberTag("study", 1, f"pool.{ordinal}", ordinal, 0)
    keys = {"credentials": CREDENTIALS, "program": Program.WORKER, **keys}
    return Shape(tag, "12.5", size, dict(os.environ), "/", **keys)


class Bench:
    """A run with workers on this machine, whose home can die."""

    def __init__(self, directory: Path, cores: int) -> None:
        self.directory = directory
        self.machine = Part(tuple(sorted(os.sched_getaffinity(0)))[:cores], ("0", "1"))
        self.members: dict[int, Member] = {}
        #: What was written down and not said to be durable yet.
        self.unwritten: list[Callable[[], None]] = []
        self.begin()

    def begin(self) -> None:
        self.loop = LocalLoop()
        self.provider = LocalProvider(self.loop, self.directory, self.machine)

    def die(self) -> None:
        """The home dies: what is of this machine goes on."""
        self.provider.close()
        self.loop.close()
        self.unwritten.clear()
        self.begin()

    def start(self, ordinal: int, size: Size | None = None, *, durable: bool = True) -> Member:
        one = shape(ordinal, size or Size(1, cores=1))
        member = self.members[ordinal] = Member(one)

        def written(job: str, then: Callable[[], None]) -> None:
            assert job == f"pool.{ordinal}"
            if durable:
                self.loop.timer(0.0, then)
            else:
                self.unwritten.append(then)

        self.provider.start(member, self.provider.describe(one), written)
        return member

    def find(self, ordinal: int) -> Member:
        member = self.members[ordinal] = Member(shape(ordinal, Size(1)))
        self.provider.find(member, "12.5", f"pool.{ordinal}")
        return member

    def process(self, ordinal: int) -> WorkerProcess:
        return WorkerProcess(self.directory / local.WORKERS / f"pool.{ordinal}.out")

    def until(self, true: Callable[[], bool]) -> None:
        late = self.loop.timer(PATIENCE, lambda: pytest.fail("nothing came of it"))
        tick = self.loop.timer(0.0, lambda: None, every=0.02)
        self.loop.run(true)
        late.cancel()
        tick.cancel()

    def pid(self, ordinal: int) -> int:
        """The process of a worker, once it is that."""
        found: list[int] = []

        def look() -> bool:
            found[:] = self.process(ordinal)._processes()
            return bool(found)

        self.until(look)
        (pid,) = found
        return pid

    def end_all(self) -> None:
        for path in (self.directory / local.WORKERS).glob("*.out"):
            process = WorkerProcess(path)
            while process.lives():
                process.kill(signal.SIGKILL)
                time.sleep(0.01)
        self.provider.close()
        self.loop.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[int], Bench]]:
    made: list[Bench] = []

    def of(cores: int) -> Bench:
        made.append(Bench(tmp_path, cores))
        return made[-1]

    yield of
    for bench in made:
        bench.end_all()


def test_a_worker_starts_when_its_name_is_written_down_and_not_before(
    make: Callable[[int], Bench],
) -> None:
    bench = make(1)
    member = bench.start(1, durable=False)
    assert member.told == ["submitted"]
    (durable,) = bench.unwritten
    assert not bench.process(1).began
    durable()
    bench.until(lambda: "began" in member.told)
    assert bench.process(1).lives()
    bench.provider.end("pool.1", "", lambda error: None)
    bench.until(lambda: "over" in member.told)
    assert member.told[2].startswith("its worker has ended")
    assert not bench.process(1).lives()


def test_a_home_that_dies_finds_what_lives_and_starts_nothing_twice(
    make: Callable[[int], Bench],
) -> None:
    bench = make(2)
    bench.start(1)
    bench.start(2, durable=False)
    bench.until(lambda: "began" in bench.members[1].told)
    pid = bench.pid(1)
    bench.die()
    one, two = bench.find(1), bench.find(2)
    bench.until(lambda: "began" in one.told and "over" in two.told)
    assert two.told == ["submitted", "its worker was never started", "over"]
    assert two.outage  # its pool is filled again
    assert bench.pid(1) == pid
    os.kill(pid, signal.SIGKILL)
    bench.until(lambda: "over" in one.told)
    assert not bench.process(1).lives()


def test_a_worker_that_ended_while_there_was_no_home_is_no_loss(
    make: Callable[[int], Bench],
) -> None:
    bench = make(1)
    bench.start(1)
    pid = bench.pid(1)
    bench.die()
    os.kill(pid, signal.SIGKILL)
    bench.until(lambda: not bench.process(1).lives())
    member = bench.find(1)
    bench.until(lambda: "over" in member.told)
    assert "began" not in member.told
    assert member.outage


def test_members_wait_until_cores_are_free_and_first_come_is_first_served(
    make: Callable[[int], Bench],
) -> None:
    bench = make(1)
    first, second, third = bench.start(1), bench.start(2, Size(1)), bench.start(3)
    bench.until(lambda: "began" in first.told)
    bench.until(lambda: bench.provider.why("pool.2") is not None)
    assert bench.provider.why("pool.1") is None
    assert bench.provider.why("pool.2") == (
        "waits on this machine: all of it is asked for, and other members have a part"
    )
    assert bench.provider.why("pool.3") == (
        "waits on this machine: fewer are free than 1 core for each"
    )
    # A home that goes on knows what is taken.
    pid = bench.pid(1)
    bench.die()
    found, fourth = bench.find(1), bench.start(4)
    bench.until(lambda: bench.provider.why("pool.4") is not None and "began" in found.told)
    assert "began" not in fourth.told
    assert third.told == ["submitted"]
    os.kill(pid, signal.SIGKILL)
    bench.until(lambda: "began" in fourth.told)
    assert second.told == ["submitted"]
    assert set(os.sched_getaffinity(bench.pid(4))) == set(bench.machine.cores)


def test_a_worker_that_does_not_listen_is_killed(
    make: Callable[[int], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "KILL_SECONDS", 0.5)
    bench = make(1)
    member = bench.start(1)
    os.kill(bench.pid(1), signal.SIGSTOP)
    bench.provider.end("pool.1", "", lambda error: None)
    bench.until(lambda: "over" in member.told)


def test_a_member_that_waits_is_ended_without_a_process(make: Callable[[int], Bench]) -> None:
    bench = make(1)
    bench.start(1)
    waits = bench.start(2)
    bench.until(lambda: bench.provider.why("pool.2") is not None)
    bench.provider.end("pool.2", "", lambda error: None)
    bench.until(lambda: "over" in waits.told)
    assert not bench.process(2).began


def test_a_worker_ends_when_its_time_is_up_whoever_its_home_is(
    make: Callable[[int], Bench],
) -> None:
    bench = make(1)
    member = bench.start(1, Size(1, cores=1, duration=0.5))
    bench.until(lambda: "over" in member.told)
    assert "its worker has ended: its time of 0.5 seconds is up" in member.told


def test_what_python_says_of_a_worker_that_does_not_start_is_told(
    make: Callable[[int], Bench],
) -> None:
    bench = make(1)
    one = shape(1, Size(1, cores=1), credentials="{}")
    member = Member(one)
    job = bench.provider.describe(one)
    bench.provider.start(member, job, lambda job, then: then())
    bench.until(lambda: "over" in member.told)
    assert any("KeyError" in text for text in member.told)


def test_one_who_reads_the_output_of_a_worker_is_not_taken_for_it(
    make: Callable[[int], Bench],
) -> None:
    bench = make(1)
    member = bench.start(1)
    bench.pid(1)
    path = bench.directory / local.WORKERS / "pool.1.out"
    with open(path, "ab") as file:
        reader = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=file
        )
    bench.provider.end("pool.1", "", lambda error: None)
    bench.until(lambda: "over" in member.told)
    assert reader.poll() is None
    reader.communicate(b"\n")


def test_a_service_in_flux_has_no_such_members() -> None:
    provider = LocalProvider(LocalLoop(), Path("/nowhere"))
    with pytest.raises(ValueError, match="call a home without Flux"):
        provider.describe(shape(1, Size(1), credentials=""))


def test_parts_of_a_machine() -> None:
    machine = Part((0, 1, 2, 3), ("a", "b"))
    assert taken(machine, [Part((0, 1), ("a",))], 1, 1) == Part((2,), ("b",))
    assert taken(machine, [Part((0,), ("a", "b"))], 1, 1) is None
    assert taken(machine, [Part((0,))], None, 0) is None
