"""What services of members say of jobs, on its way to the engine."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import FakeCaller, FakeHost, FakeLoop

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import SubmitJobs
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import JobEvent, JobEvents, MemberUp, Started, Tag
from flux_ensemble.engine.job_keys import make
from flux_ensemble.runtime.driver import Driver
from flux_ensemble.runtime.durability.timers import Timers
from flux_ensemble.runtime.eventlog import Entry, Log
from flux_ensemble.runtime.intake import wanted
from flux_ensemble.service.marks import describe
from flux_ensemble.service.tracker import Tracker

OWNER = 1000
TAG: list[Any] = ["sim", "rule-1", 0, 0]
BEGIN = [[1.0, "submit", {"userid": OWNER}], [2.0, "validate"]]
END = [[3.0, "start"], [4.0, "finish", {"status": 0}], [5.0, "clean"]]


def told(tracker: Tracker, *items: list[Any]) -> list[Any]:
    ensemble: Any = "the ensemble"
    return tracker.told(ensemble, 2, items)


@pytest.fixture
def tracker() -> Tracker:
    return Tracker(OWNER, lambda name, run: None, list)


def test_several_events_of_a_job_are_one(tracker: Tracker) -> None:
    key = make(2, 7)
    assert told(tracker, [2.0, 7, BEGIN, TAG]) == [JobEvents(2.0, key, BEGIN, Tag(*TAG))]
    assert (tracker.follows(key), tracker.newest) == (True, key)
    assert told(tracker, [5.0, 7, END]) == [JobEvents(5.0, key, END)]
    assert not tracker.follows(key)
    assert tracker.events == 5


def test_a_job_that_has_come_and_gone_is_followed_no_more(tracker: Tracker) -> None:
    whole = [*BEGIN, *END]
    assert told(tracker, [5.0, 7, whole, TAG]) == [JobEvents(5.0, make(2, 7), whole, Tag(*TAG))]
    assert not tracker.follows(make(2, 7))
    assert told(tracker, [5.0, 7, END]) == []


def test_several_events_of_a_job_of_somebody_else_are_none_of_the_ensemble(
    tracker: Tracker,
) -> None:
    forged = [[1.0, "submit", {"userid": OWNER + 1}], [2.0, "validate"]]
    assert told(tracker, [2.0, 7, forged, TAG]) == []
    assert told(tracker, [2.0, 7, [[1.0, "submit"], [2.0, "validate"]], TAG]) == []
    assert told(tracker, [5.0, 7, END]) == []


class Shown:
    """Follows what jobs do."""

    events = True

    def __init__(self) -> None:
        self.names: list[str] = []

    def send(self, entry: Entry) -> None:
        self.names.append(entry["context"]["name"])

    def end(self) -> None:
        raise AssertionError("the log has not ended")


class Taker:
    """An ensemble with a job on its way to a member."""

    def __init__(self) -> None:
        self.engine = Engine(
            load_mapping(
                {
                    "name": "told",
                    "members": [{"name": "pool", "service": "child"}],
                    "jobs": [{"name": "sim", "command": "true"}],
                    "rules": [{"trigger": "start", "action": {"name": "submit", "label": "sim"}}],
                }
            )
        )
        self.engine.handle(Started(0.0))
        commands = self.engine.handle(MemberUp(0.5, "pool.0", 1, 1, 4))
        (command,) = (one for one in commands if isinstance(one, SubmitJobs))
        self.tag = Tag(command.group, command.rule, command.firing, command.first)
        self.seen: list[Any] = []
        self.violations: list[JobEvent | JobEvents] = []
        self.log = Log()
        self.shown = Shown()
        self.log.read(self.shown, follow=True)
        self.member: Any = SimpleNamespace(
            seen=lambda *job: self.seen.append(job), refused=self.seen.append
        )

    def violation(self, event: JobEvent | JobEvents) -> None:
        self.violations.append(event)


def test_the_engine_gets_what_it_needs_and_who_follows_gets_all() -> None:
    taker = Taker()
    alloc = [2.5, "alloc", {"annotations": {}}]
    event = JobEvents(5.0, make(1, 7), [*BEGIN, alloc, *END], taker.tag)
    assert wanted(taker, event) == JobEvents(5.0, make(1, 7), [*BEGIN, *END], taker.tag)
    assert taker.shown.names == ["submit", "validate", "alloc", "start", "finish", "clean"]
    assert taker.seen == [(taker.tag, make(1, 7))]
    assert wanted(taker, JobEvents(2.5, make(1, 7), [alloc, alloc])) is None


def test_a_job_that_nobody_has_sent_is_a_violation() -> None:
    taker = Taker()
    other = taker.tag._replace(index=1)
    several = JobEvents(2.0, make(1, 7), BEGIN, other)
    assert wanted(taker, several) is None
    single = JobEvent(1.0, make(1, 7), "submit", {"userid": OWNER}, other)
    assert wanted(taker, single) is None
    assert taker.violations == [several, single]


def test_a_job_that_comes_twice_at_once_is_a_violation_the_second_time() -> None:
    taker = Taker()
    lives = [JobEvents(5.0, make(1, id), [*BEGIN, *END], taker.tag) for id in (7, 8)]
    driver = Driver(taker.engine, taker.member, FakeLoop(), FakeCaller, FakeHost())
    driver.post_several(lives, partial(wanted, taker))
    assert taker.engine.stats.counts["sim"]["finished"] == 1
    assert taker.violations == lives[1:]


def test_recovery_knows_the_latest_of_them() -> None:
    timers = Timers()
    timers.take(JobEvents(4.0, 7, END), [])
    assert timers.t_seen == 4.0


def test_what_a_service_died_of_is_said_in_words() -> None:
    assert describe(JobEvents(5.0, 7, END)) == "3 events of job 7 until 5.0"
