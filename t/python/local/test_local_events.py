"""When what happens on the local queue is in the file of events."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flux_ensemble.engine.commands import Command, Record
from flux_ensemble.engine.events import JobEvent
from flux_ensemble.queues.local.directory import open_directory
from flux_ensemble.queues.local.recovery import MAX_WAITING, EventFile
from flux_ensemble.queues.local.supervisor.ties import Ties
from flux_ensemble.runtime.durability.timers import Timers


@pytest.fixture
def file(tmp_path: Path) -> Iterator[EventFile]:
    with open_directory(tmp_path) as directory:
        file = EventFile(directory, Timers(), pytest.fail)
        yield file
        file.close()


def write(file: EventFile, *commands: Command) -> bool:
    return file.write(JobEvent(1.0, 1, "start"), list(commands), lambda: None)


def lines(directory: Path) -> int:
    return len((directory / "events").read_bytes().splitlines())


def test_events_are_in_the_file_before_what_they_bring_about(
    file: EventFile, tmp_path: Path
) -> None:
    assert write(file)
    assert (lines(tmp_path), file.count) == (0, 0)
    assert write(file, Record(1.0, "fire", {}))
    assert (lines(tmp_path), file.count) == (2, 2)


def test_events_that_bring_about_nothing_do_not_become_many(
    file: EventFile, tmp_path: Path
) -> None:
    for _ in range(MAX_WAITING + 1):
        write(file)
    assert lines(tmp_path) == MAX_WAITING


@pytest.mark.parametrize("way", ["flush", "close"])
def test_events_that_wait_can_be_written(file: EventFile, tmp_path: Path, way: str) -> None:
    write(file)
    getattr(file, way)()
    assert lines(tmp_path) == 1


def test_a_tie_is_used_again_for_another_group() -> None:
    read, held = os.pipe()
    other, ours = os.pipe()
    ties = Ties(read, ours)
    jobs = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(2)]
    first = ties.tie(jobs[0].pid)
    ties.untie(first)
    assert ties.tie(jobs[1].pid) == first
    os.close(held)
    assert jobs[1].wait() == -9
    assert jobs[0].poll() is None
    ties.untie(first)
    jobs[0].kill()
    jobs[0].wait()
    ties.close()
    for fd in (read, other, ties.held):
        os.close(fd)


#: A process that has no descriptors but its own ties 200 times to a job; it prints the descriptors.
TIES = """
import os, subprocess
from flux_ensemble.queues.local.supervisor.ties import Ties
read, held = os.pipe()
other, ours = os.pipe()
ties = Ties(read, ours)
first = ties.held
job = subprocess.Popen(["sleep", "60"], start_new_session=True)
few = [ties.tie(job.pid) for _ in range(200)]
print(first, ties.held, *few)
os.close(held)
assert job.wait() == -9
for fd in few:
    ties.untie(fd)
ties.close()
os.close(ties.held)
assert os.read(other, 1) == b""
"""


def test_what_another_process_ties_to_is_above_all_ties_and_no_higher_than_need_be() -> None:
    ended = subprocess.run([sys.executable, "-c", TIES], stdout=subprocess.PIPE, check=True)
    first, last, *few = [int(word) for word in ended.stdout.split()]
    # The kernel closes descriptors from the highest down, and each process that is started costs
    # the more the higher the highest one is.
    assert first < 64
    assert len(few) == 200
    assert max(few) < last <= 4 * max(few)
