"""What a service was handling when it died is known to those after it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from local_queue import mounted

from flux_ensemble.engine.events import Event, JobEvent, Request, TimerFired
from flux_ensemble.service.marks import DEATHS, REPLAY, Marks

DEADLY = JobEvent(1.5, 7, "memo", {"poison": 1})
OTHER = JobEvent(2.5, 8, "finish", {"status": 0})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ensemble.mark"


def service(path: Path) -> Marks:
    """A service that begins; the one before it may have died."""
    marks = Marks()
    marks.open(path)
    return marks


def handled(marks: Marks, event: Event, name: str = "a", run: int = 1) -> None:
    mark = marks.of(name, run)
    mark.begin(event)
    mark.end()


def dies(path: Path, event: Event, name: str = "a", run: int = 1, *, replay: bool = False) -> None:
    """A service begins, and dies while it handles an event."""
    service(path).of(name, run, replay=replay).begin(event)


def test_nothing_is_fatal_at_first(path: Path) -> None:
    assert service(path).fatal("a", 1) is None


@pytest.mark.parametrize("deaths", range(1, DEATHS))
def test_fewer_deaths_are_not_enough(path: Path, deaths: int) -> None:
    for _ in range(deaths):
        dies(path, DEADLY)
    assert service(path).fatal("a", 1) is None


def test_deaths_at_an_event_are_counted_anew_after_one_at_another(path: Path) -> None:
    for event in [DEADLY, DEADLY, OTHER, DEADLY, DEADLY]:
        dies(path, event)
    assert service(path).fatal("a", 1) is None


def test_a_service_that_ends_in_good_order_has_the_next_one_try_again(path: Path) -> None:
    for _ in range(DEATHS):
        dies(path, DEADLY)
    marks = service(path)
    assert marks.fatal("a", 1) is not None
    marks.close()
    assert service(path).fatal("a", 1) is None
    for _ in range(DEATHS):
        dies(path, DEADLY)
    assert service(path).fatal("a", 1) is not None


def test_an_event_is_fatal_when_three_services_in_a_row_died_of_it(path: Path) -> None:
    for _ in range(3):
        dies(path, DEADLY)
    marks = service(path)
    assert marks.fatal("a", 1) == "event 'memo' of job 7 at 1.5"
    assert marks.fatal("a", 2) is None, "of another run"
    assert marks.fatal("b", 1) is None, "of another ensemble"


def test_it_stays_fatal_for_the_services_after_that(path: Path) -> None:
    for _ in range(DEATHS):
        dies(path, DEADLY, replay=True)
    handled(service(path), OTHER)
    assert service(path).fatal("a", 1) == f"{REPLAY}event 'memo' of job 7 at 1.5"


@pytest.mark.parametrize(
    "second",
    [OTHER, JobEvent(1.6, 7, "memo"), TimerFired(1.5, "heartbeat"), Request(1.5, 1, "cancel")],
)
def test_deaths_at_two_events_are_chance(path: Path, second: Event) -> None:
    for event in [DEADLY, second] * DEATHS:
        dies(path, event)
    assert service(path).fatal("a", 1) is None


def test_the_same_event_of_two_ensembles_is_chance(path: Path) -> None:
    for name in "ab" * DEATHS:
        dies(path, DEADLY, name=name)
    marks = service(path)
    assert marks.fatal("a", 1) is marks.fatal("b", 1) is None


def test_an_event_that_was_handled_after_a_death_is_not_suspected_any_more(path: Path) -> None:
    for t in range(1, DEATHS):
        dies(path, TimerFired(t / 10, "heartbeat"))
    marks = service(path)
    handled(marks, TimerFired(2.0, "heartbeat"))
    marks.of("a", 1).begin(TimerFired(3.0, "heartbeat"))
    assert service(path).fatal("a", 1) is None


def test_a_timer_is_the_same_whenever_it_fires(path: Path) -> None:
    for t in range(DEATHS):
        dies(path, TimerFired(float(t), "heartbeat"))
    assert service(path).fatal("a", 1) == "timer 'heartbeat'"


def test_a_service_that_ended_in_good_order_died_of_nothing(path: Path) -> None:
    for _ in range(1, DEATHS):
        dies(path, DEADLY)
    handled(service(path), OTHER)
    dies(path, DEADLY)
    assert service(path).fatal("a", 1) is None


def test_opening_it_once_more_changes_nothing(path: Path) -> None:
    for _ in range(2, DEATHS):
        dies(path, DEADLY)
    dies(path, DEADLY)
    marks = service(path)
    marks.open(path)
    marks.of("a", 1).begin(DEADLY)
    assert service(path).fatal("a", 1) is not None


def test_a_file_of_another_size_is_made_anew(path: Path) -> None:
    path.write_bytes(b"\xff" * 10_000)
    marks = service(path)
    assert marks.fatal("a", 1) is None
    handled(marks, DEADLY)


def test_a_link_in_the_place_of_the_file_is_refused(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    path.symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        service(path)
    assert target.read_text() == "mine"


#: Opens the file of marks and has an event handled; prints the error, if there is one.
OPEN = """
import sys
from pathlib import Path
from flux_ensemble.engine.events import TimerFired
from flux_ensemble.service.marks import Marks

marks = Marks()
try:
    marks.open(Path(sys.argv[1]))
except OSError as error:
    print(error.strerror)
mark = marks.of("a", 1)
mark.begin(TimerFired(1.0, "key"))
mark.end()
"""


def opened(path: Path) -> str:
    """What a service says that handles an event; a SIGBUS would end it."""
    done = subprocess.run([sys.executable, "-c", OPEN, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file of marks that is not there yet, on a file system that is full."""
    rundir = tmp_path / "rundir"
    with mounted(rundir, "size=16k"):
        (rundir / "ballast").write_bytes(bytes(16 << 10))
        yield rundir / "ensemble.mark"


def test_a_service_whose_rundir_is_full_says_so_and_goes_on_without_marks(full: Path) -> None:
    assert opened(full) == "No space left on device\n"


def test_marks_that_have_a_size_and_no_room_are_not_written_to(full: Path) -> None:
    with full.open("wb") as file:
        file.truncate(1 << 20)
    assert opened(full) == "No space left on device\n"


def test_marks_are_kept_when_there_is_room_again_and_stay_when_there_is_none(full: Path) -> None:
    assert opened(full) == "No space left on device\n"
    ballast = full.with_name("ballast")
    ballast.unlink()
    for _ in range(DEATHS):
        dies(full, DEADLY)
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 10))
    assert service(full).fatal("a", 1) is not None
