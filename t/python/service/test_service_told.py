"""What services of members say of jobs, on its way to the engine."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import (
    FakeHost,
    FakeOutput,
)

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import SubmitJobs
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import (
    LIFE,
    TICKS,
    JobEvent,
    JobEvents,
    JobsAlike,
    MemberUp,
    Started,
    Tag,
)
from flux_ensemble.engine.job_keys import make
from flux_ensemble.eventlog import Stored
from flux_ensemble.runtime.driver import Driver
from flux_ensemble.runtime.durability.timers import Timers
from flux_ensemble.runtime.eventlog import Log
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


def alike(first: int, last: int, *ids: int, user: int = OWNER) -> list[Any]:
    """Jobs that did the same, from one event of a life to before another one."""
    times = [[TICKS] * len(ids) for _ in range(first, last)]
    steps = [id - before for before, id in zip((0, *ids), ids, strict=False)]
    fields: list[Any] = ["alike", 9.0, list(LIFE[first:last]), steps, times]
    return fields if first else [*fields, TAG[:3], [1] * len(ids), {"userid": user}]


def test_jobs_that_did_the_same_are_one(tracker: Tracker) -> None:
    first, second = make(2, 7), make(2, 9)
    (begun,) = told(tracker, alike(0, 2, 7, 9))
    assert [one.job for one in begun.each()] == [first, second]
    assert tracker.newest == second
    assert tracker.follows(first)
    assert tracker.follows(second)
    (ended,) = told(tracker, alike(2, 5, 7, 9))
    assert [one.events[-1][1] for one in ended.each()] == ["clean", "clean"]
    assert not tracker.follows(first)
    assert not tracker.follows(second)
    assert tracker.events == 10
    (whole,) = told(tracker, alike(0, 5, 10, 11))
    assert isinstance(whole, JobsAlike)
    assert not tracker.follows(make(2, 11))


def test_of_jobs_that_did_the_same_those_of_the_ensemble_are_told(tracker: Tracker) -> None:
    told(tracker, alike(0, 2, 7, 9))
    assert [one.job for one in told(tracker, alike(2, 5, 7, 8, 9))] == [make(2, 7), make(2, 9)]
    assert told(tracker, alike(2, 5, 7)) == []
    assert told(tracker, alike(0, 5, 7, 9, user=OWNER + 1)) == []


class Shown:
    """Follows what jobs do."""

    events = True

    def __init__(self) -> None:
        self.names: list[str] = []

    def send(self, entry: Stored) -> None:
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


def driver_of(taker: Taker) -> Driver:
    return Driver(taker.engine, FakeHost(queue=taker.member), FakeOutput())


def test_a_job_that_comes_twice_at_once_is_a_violation_the_second_time() -> None:
    taker = Taker()
    lives = [JobEvents(5.0, make(1, id), [*BEGIN, *END], taker.tag) for id in (7, 8)]
    driver = driver_of(taker)
    driver.post_several(lives, partial(wanted, taker))
    assert taker.engine.stats.counts["sim"]["finished"] == 1
    assert taker.violations == lives[1:]


def test_of_jobs_that_did_the_same_one_that_nobody_has_sent_is_a_violation() -> None:
    taker = Taker()
    group, rule, firing, first = taker.tag
    times, of, submit = [[TICKS, TICKS]] * 5, [group, rule, firing], {"userid": OWNER}
    both = JobsAlike(6.0, 1, LIFE, [7, 1], times, of, [first, 5], submit)
    driver = driver_of(taker)
    driver.post_several([both], partial(wanted, taker))
    assert taker.engine.stats.counts["sim"]["finished"] == 1
    assert taker.violations == list(both.each())[1:]
    assert taker.shown.names == list(LIFE)


def test_recovery_knows_the_latest_of_them() -> None:
    timers = Timers()
    timers.take(JobEvents(4.0, 7, END), [])
    assert timers.t_seen == 4.0
    timers.take(JobsAlike(6.0, 1, LIFE[2:], [7], [[TICKS]] * 3), [])
    assert timers.t_seen == 6.0


def test_what_a_service_died_of_is_said_in_words() -> None:
    assert describe(JobEvents(5.0, 7, END)) == "3 events of job 7 until 5.0"
    alike = JobsAlike(6.0, 1, LIFE[2:], [7, 1], [[TICKS, 0]] * 3)
    assert describe(alike) == "start, finish, clean of 2 jobs until 6.0"
