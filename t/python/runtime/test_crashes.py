"""Nothing lost, nothing twice: services are killed at any time, in a world of virtual time.

The checks are the same after each run: every job that a rule asked for is in the queue
once, no rule fired twice for one cause, counts and statistics are those of a replay of
the whole log from scratch, and those of the queue itself, and the record has each job once.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import crashes
import pytest
from crashes import IDENTITY, Luck, Service, World

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.document.model import RETRY_RULE, Spec
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.events import Tag
from flux_ensemble.engine.snapshot import dump
from flux_ensemble.metrics.names import OUTCOMES, Statistic
from flux_ensemble.queues.flux.pipeline import Pipeline
from flux_ensemble.runtime.durability import wal as wal
from flux_ensemble.runtime.durability.records import Records
from flux_ensemble.runtime.durability.replay import replay
from flux_ensemble.service import needs
from flux_ensemble.service.needs import Needs
from flux_ensemble.service.recovery import catchup

UNLIMITED = {"repetitions": "unlimited"}


def submits(label: str, **more: Any) -> dict[str, Any]:
    return {"name": "submit", "label": label, **more}


DOCUMENT: dict[str, Any] = {
    "name": "test",
    "jobs": [
        {
            "name": "a",
            "command": "true {p}",
            "count": 2,
            "params": {"p": [1, 2, 3, 4]},
            "retries": 2,
            "predict": ["p"],
            "order": "longest-first",
            "max-active": 3,
        },
        {"name": "b", "command": "true", "count": 3},
        {"name": "c", "command": "true"},
        {"name": "d", "command": "true"},
        {"name": "m", "command": "true"},
        {"name": "later", "command": "true"},
    ],
    "rules": [
        {"trigger": "start", "action": submits("a")},
        {"trigger": "job-success", "group": "a", "action": submits("c", **UNLIMITED)},
        {
            "trigger": "metric",
            "name": "count.a.finished",
            "when": ">= 4",
            "action": submits("b", repetitions=2, backoff=1),
        },
        {
            "trigger": "timer",
            "every": 0.4,
            "action": {"name": "custom", "label": "d", "repetitions": 3},
        },
        {"trigger": "job-memo", "when": "x > 0.5", "action": submits("m", repetitions=3)},
        {"trigger": "idle", "group": "b", "action": submits("c")},
        {
            "trigger": "metric",
            "name": "n.a-duration",
            "when": ">= 2",
            "actions": [{"name": "reset", "label": "a-duration", **UNLIMITED}, submits("c")],
        },
        {
            "trigger": "job-fail",
            "when": 'n["b-pending"] > 2 or n["a-duration[p=2]"] > 1',
            "action": {"name": "reset", "label": "b-pending"},
        },
        # When all else is over, so that there are times without a job.
        {"trigger": "timer", "after": 3.0, "every": 1.5, "action": submits("later", repetitions=3)},
    ],
    "metrics": [{"of": "a-x", "by": ["p"]}, {"of": "a-duration", "by": ["p"]}],
    "custom": "def d(**_):\n    return Action({'name': 'submit', 'label': 'd'})\n",
    "limits": {"active-jobs": 12},
}

#: In each block of random crashes; `make chaos` has 1000.
CRASHES = int(os.environ.get("CRASHES", "10"))

#: Of the runs with other faults, so many each.
RUNS = max(1, CRASHES // 15)

BAD_LUCK = Luck(lost_request=0.02, lost_response=0.05, error=0.05, failing_commit=0.05)


def run(world: World, document: dict[str, Any] = DOCUMENT) -> World:
    """Until the ensemble has ended, and its log is durable."""
    world.begin_service()
    for _ in range(200_000):
        service = world.service
        if service is not None and service.recovery.ready:
            ensemble = next(iter(service.ensembles), None)
            if ensemble is None:
                # Who asked for it got no answer, and asks again.
                service.load(document)
            elif not ensemble.live:
                return world
        assert world.clock.step(), "nothing happens any more, and the ensemble has not ended"
    raise AssertionError("no end")


def verify(world: World) -> None:
    """The checks."""
    assert world.service is not None
    (ensemble,) = world.service.ensembles
    assert ensemble.state == "completed", ensemble.reason
    assert not ensemble.facts.violations
    tags = Counter(job.tag for job in world.jobs.values())
    assert set(tags.values()) == {1}, "a tag is there twice"
    # The log, from the beginning.
    spec = load_mapping(DOCUMENT)
    lines = "".join(world.texts["test"]).splitlines(keepends=True)
    whole = replay(spec, IDENTITY, None, (), lines)
    while world.clock.step():  # what was written lazily
        pass
    lines = "".join(world.texts["test"]).splitlines(keepends=True)
    whole = replay(spec, IDENTITY, None, (), lines)
    assert dump(whole.engine) == dump(ensemble.engine)
    t = world.now
    assert whole.engine.metrics(t) == ensemble.engine.metrics(t)
    # What it says was asked for is what the queue has.
    fired = [entry["context"] for entry in whole.entries if entry["name"] == "fire"]
    assert max(Counter((one["rule"], one["firing"]) for one in fired).values()) == 1
    asked = {
        (one["rule"], one["firing"], index)
        for one in fired
        if one["action"]["name"] == "submit"
        for index in range(len(spec.groups[one["action"]["label"]].submission(None, None)))
    }
    again = [entry["context"] for entry in whole.entries if entry["name"] == "retry"]
    asked |= {(RETRY_RULE, one["retry"], one["index"]) for one in again}
    assert {(tag.rule, tag.firing, tag.index) for tag in tags} == asked
    # Its counts are those of the queue, and so are its decisions.
    counts = ensemble.engine.stats.counts
    outcomes = Counter((job.tag.group, job.outcome) for job in world.jobs.values())
    for group, outcome in itertools.product(spec.groups, OUTCOMES):
        assert counts[group][outcome] == outcomes[group, outcome]
    rules = Counter(one["rule"] for one in fired if one["action"]["name"] == "submit")
    assert rules["rule-1"] == outcomes["a", "success"]
    assert rules["rule-2"] == 2
    assert rules["rule-3"] == 3
    values = [
        entry["context"]["x"]
        for job in world.jobs.values()
        for entry in job.entries
        if entry["name"] == "memo"
    ]
    assert rules["rule-4"] == min(3, sum(value > 0.5 for value in values))
    taken = [size for _, variable, size in ensemble.engine.stats.sizes() if variable == "x"]
    assert sum(taken) == len(values)
    of_a = [
        entry
        for job in world.jobs.values()
        for entry in job.entries
        if job.tag.group == "a" and entry["name"] == "memo"
    ]
    by_value = [size for _, variable, size in ensemble.engine.stats.sizes() if "x[" in variable]
    assert sum(by_value) == len(of_a)
    # Every job of a comes to its end once.
    assert counts["a"]["finished"] == counts["a"]["success"] + counts["a"]["gave-up"] == 8
    # Of two that succeeded, each second one begins anew.
    durations = ensemble.engine.metrics(world.now)["n"]["a-duration"]
    resets = sum(one["action"].get("label") == "a-duration" for one in fired)
    assert durations + 2 * resets == outcomes["a", "success"]
    # Its record has each of the jobs once, and so has what a next service would read.
    once = sorted((job.id, job.tag, job.outcome) for job in world.jobs.values())
    assert sorted(recorded(ensemble.records)) == once
    (name,) = world.loads
    stored = [json.loads(text) for text in world.values.get(name, {}).values()]
    snapshot = world.snapshots.get(name)
    next_one = replay(spec, IDENTITY, json.loads(snapshot) if snapshot else None, stored, lines)
    assert recorded(next_one.records) == recorded(ensemble.records)


def recorded(records: Records) -> list[tuple[int, Tag, str | None]]:
    """What a record has of each job."""
    rows: list[tuple[int, Tag, str | None]] = []
    while len(rows) < len(records):
        for job in records.jobs(len(rows)):
            assert job.firing is not None
            tag = Tag(job.firing.group, job.firing.rule, job.firing.number, job.index)
            rows.append((job.id, tag, job.outcome))
    return rows


def crashing(world: World, mean: float, crashes: int) -> World:
    """Have services killed, again and again, after so many seconds, some while they begin."""
    left = crashes

    def strike() -> None:
        nonlocal left
        if left and world.service is not None:
            left -= 1
            world.kill()
        if left:
            world.clock.after(world.random.expovariate(1 / mean), strike)

    world.clock.after(world.random.expovariate(1 / mean), strike)
    return world


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots, many in each run; and the journal is closed as soon as nobody has jobs."""
    monkeypatch.setattr(wal, "SNAPSHOT_EVENTS", 40)
    monkeypatch.setattr(wal, "SNAPSHOT_RATIO", 10**9)
    monkeypatch.setattr(needs, "REST_SECONDS", 0.001)


def test_an_undisturbed_run_passes_the_checks() -> None:
    verify(run(World(1, Luck())))


def test_it_does_so_while_the_queue_takes_no_jobs_now_and_then() -> None:
    for seed in range(RUNS // 2):
        verify(run(crashing(World(seed, replace(BAD_LUCK, disabled=0.3)), 0.3, 10)))


def test_it_does_so_with_lost_requests_and_responses() -> None:
    for seed in range(2 * RUNS):
        verify(run(World(seed, BAD_LUCK)))


@pytest.mark.parametrize("block", range(10))
def test_crashes_at_any_time_lose_nothing_and_do_nothing_twice(block: int) -> None:
    crashes, seed = 0, 1000 * block
    while crashes < CRASHES:
        seed += 1
        world = World(seed, BAD_LUCK if seed % 2 else Luck())
        mean = world.random.choice((0.005, 0.05, 0.3))
        number = world.random.randrange(1, 40)
        crashing(world, mean, number)
        try:
            verify(run(world))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        crashes += world.epoch - 1


@pytest.mark.parametrize("after", [False, True], ids=["as it is applied", "a moment later"])
def test_a_crash_at_every_commit_is_survived(after: bool) -> None:
    commits = run(World(7, Luck())).commits
    # Those between have the other moment.
    for number in range(1 + after, commits + 1, 2):
        world = World(7, Luck())

        def strike(world: World = world, number: int = number) -> None:
            if world.commits == number and world.service is not None:
                world.clock.after(0.0021 if after else 0.0, world.kill)

        world.on_commit = strike
        verify(run(world))
        assert world.epoch >= 2


def test_the_job_manager_may_go_and_come_back() -> None:
    for seed in range(3 * RUNS):
        world = World(seed, BAD_LUCK)
        for _ in range(3):
            world.clock.after(world.random.uniform(0.0, 2.0), world.reload_job_manager)
        crashing(world, 0.5, 3)
        verify(run(world))


def test_nothing_is_lost_or_done_twice_where_catching_up_takes_many_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catchup, "SLICE", 1)
    for seed in range(4 * RUNS):
        world = World(seed, BAD_LUCK if seed % 2 else Luck())
        for _ in range(3):
            world.clock.after(world.random.uniform(0.0, 2.0), world.reload_job_manager)
        verify(run(crashing(world, world.random.choice((0.02, 0.3)), 6)))


def setting_the_clock(world: World, mean: float) -> World:
    """Have the clock set, mostly back, and by up to an hour, every so many seconds."""

    def strike() -> None:
        world.set_by += world.random.uniform(-3600.0, 600.0)
        if not (world.service is not None and world.service.recovery.ready and over(world)):
            world.clock.after(world.random.expovariate(1 / mean), strike)

    world.clock.after(world.random.expovariate(1 / mean), strike)
    return world


def over(world: World) -> bool:
    """The ensemble has ended."""
    assert world.service is not None
    return any(not one.live for one in world.service.ensembles)


@pytest.mark.parametrize("block", range(5))
def test_nothing_is_lost_or_done_twice_though_the_clock_is_set_again_and_again(block: int) -> None:
    for seed in range(RUNS * block, RUNS * block + RUNS):
        verify(run(setting_the_clock(World(seed, Luck()), 0.3)))
        verify(run(setting_the_clock(crashing(World(seed, BAD_LUCK), 0.5, 6), 0.3)))
        world = setting_the_clock(World(seed, BAD_LUCK), 0.3)
        for after in (0.4, 0.9, 1.3):
            world.clock.after(after, world.reload_job_manager)
        verify(run(world))


def test_purged_jobs_are_not_submitted_again() -> None:
    for seed in range(3 * RUNS):
        world = run(Purging(seed, Luck()))
        assert world.service is not None
        (ensemble,) = world.service.ensembles
        assert ensemble.state == "completed"
        assert max(Counter(job.tag for job in world.jobs.values()).values()) == 1
        assert ensemble.engine.stats.counts["a"]["finished"] >= 8


class Purging(World):
    """The service is killed once; before another begins all jobs end, and are purged."""

    def __init__(self, seed: int, luck: Luck) -> None:
        super().__init__(seed, luck)
        self.clock.after(self.random.uniform(0.02, 1.0), self.kill)

    def begin_service(self) -> None:
        if self.epoch and not all(job.over for job in self.jobs.values()):
            self.clock.after(0.1, self.begin_service)
            return
        for job in self.jobs.values():
            job.purged = True
        super().begin_service()


# -- the journal at rest -------------------------------------------------------------------


def openings(world: World) -> int:
    """How often the journal was opened in the last life of the service."""
    assert world.service is not None
    return len(world.service.streams)


def test_the_journal_is_closed_while_no_job_is_there_and_opened_before_the_next_is_sent() -> None:
    world = World(3, Luck())
    closed = 0

    def look() -> None:
        nonlocal closed
        service = world.service
        if service is not None and not any(stream.open for stream in service.streams):
            # Nothing is in the queue that nobody watches.
            assert all(job.over for job in world.jobs.values())
            closed += 1
        if not (service is not None and service.recovery.ready and over(world)):
            world.clock.after(0.01, look)

    look()
    verify(run(world))
    assert closed > 100
    assert openings(world) > 3


def test_it_is_open_all_the_time_where_a_rule_looks_at_the_jobs_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = {"trigger": "job-fail", "scope": "queue", "action": {"name": "terminate"}}
    monkeypatch.setitem(DOCUMENT, "rules", [*DOCUMENT["rules"], others])
    monkeypatch.setitem(DOCUMENT, "finish", "never")
    world = World(3, Luck(failing_job=0.0))
    world.begin_service()
    assert world.service is not None
    world.service.load(DOCUMENT)
    while world.clock.t < 1010.0:
        assert world.clock.step()
    assert sum(stream.open for stream in world.service.streams) == 1


@pytest.mark.parametrize("block", range(4))
def test_a_crash_while_it_is_closed_or_opened_is_survived(block: int) -> None:
    for seed in range(10 * block, 10 * block + min(10, CRASHES // 5)):
        world = World(seed, BAD_LUCK if seed % 2 else Luck())
        # About the times of the rules on timers, when it is opened again.
        for t in (3.0, 4.5, 6.0):
            world.clock.after(t + world.random.uniform(-0.01, 0.02), partial(strike, world))
        verify(run(world))


def strike(world: World) -> None:
    """Kill the service, or have the job manager go away, at a bad moment."""
    if world.chance(0.3):
        world.reload_job_manager()
    elif world.service is not None:
        world.kill()


def test_jobs_that_were_sent_before_it_is_open_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: the checks see what the hold of submissions prevents."""
    monkeypatch.setattr(Needs, "_rest", lambda self: setattr(self, "_resting", True))
    monkeypatch.setattr(Pipeline, "go_on", lambda self: None)
    monkeypatch.setattr(Pipeline, "hold", lambda self: None)
    found = 0
    for seed in range(5):
        try:
            verify(run(World(seed, Luck())))
        except AssertionError:
            found += 1
    assert found


def test_a_copy_of_a_job_that_came_while_it_was_closed_is_cancelled() -> None:
    world = World(3, Luck())
    world.begin_service()
    copied = crashes.Job(0, {})

    def copy() -> None:
        service = world.service
        assert service is not None
        assert not any(stream.open for stream in service.streams)
        copied.id = 1 + len(world.jobs)
        copied.jobspec = next(iter(world.jobs.values())).jobspec
        world.jobs[copied.id] = copied
        world.post(copied, "submit", {"userid": crashes.OWNER, "urgency": 16})
        world.post(copied, "validate")

    world.clock.after(4.4, copy)
    run(world)
    assert world.service is not None
    (ensemble,) = world.service.ensembles
    assert ensemble.state == "completed"
    assert ensemble.facts.violations == 1
    assert copied.outcome == "canceled"


def test_without_the_fence_jobs_are_submitted_twice() -> None:
    """The negative control: the checks see what the fence prevents."""
    for seed in range(40):
        world = World(seed, Luck())
        world.fenced = False
        crashing(world, 0.05, 10)
        try:
            verify(run(world))
        except AssertionError:
            if max(Counter(job.tag for job in world.jobs.values()).values()) > 1:
                return
    raise AssertionError("no job was there twice")


# -- faults of one ensemble ----------------------------------------------------------------

#: Has a statistic whose value is asked for as soon as there is one.
BAD: dict[str, Any] = {
    "name": "bad",
    "jobs": [{"name": "a", "command": "true", "count": 8}],
    "metrics": [{"name": "low", "statistic": "rolling_iqr", "window_size": 3}],
    "rules": [
        {"trigger": "start", "action": submits("a")},
        {"trigger": "metric", "name": "low.a-duration", "when": "> 9e9", "action": submits("a")},
    ],
}


def panicking(text: str) -> Spec:
    """The document of an ensemble, as no document can be: its statistic panics."""
    spec = load_mapping(json.loads(text))
    low = Statistic("low", "RollingIQR", {"window_size": 3, "q_inf": 1.0, "q_sup": 1.5})
    if spec.name == "bad":
        spec = replace(spec, statistics=(*spec.statistics[:-1], low))
    return spec


def loaded(world: World) -> World:
    """Both ensembles, until the good one has ended."""
    world.begin_service()
    for _ in range(200_000):
        service = world.service
        if service is not None and service.recovery.ready:
            ensembles = {one.name: one for one in service.ensembles}
            for document in (BAD, DOCUMENT):
                if document["name"] not in ensembles:
                    service.load(document)
            if "test" in ensembles and not ensembles["test"].live:
                return world
        assert world.clock.step(), "nothing happens any more"
    raise AssertionError("no end")


def test_a_panic_in_the_statistic_of_one_ensemble_fails_that_ensemble_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crashes, "read", panicking)
    for seed in range(5):
        world = loaded(crashing(World(seed, Luck()), 0.5, 4))
        assert world.service is not None
        bad, good = sorted(world.service.ensembles, key=lambda one: one.name)
        assert good.state == "completed"
        assert bad.state == "failed"
        assert "statistic 'low' has no value after 3 values: Out of bounds access" in bad.reason
        # Once, however often the service began again since; once more if it was killed between the
        # error and the end.
        assert len(set(bad.facts.errors)) == 1
        assert len(bad.facts.errors) <= 2


def test_how_far_a_recovery_is_is_known_while_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wal, "SNAPSHOT_EVENTS", 10**9)
    service = Service(loaded(World(1, Luck())))

    def make(load: Any, store: Any, reading: Any) -> Any:
        replayed = yield from reading.steps(crashes.read(load["document"]))
        return service._make(load, store, replayed)

    said = []
    for _ in service.recovery.restoring(make):
        said.append(dict(service.recovery.coming))
        with pytest.raises(RequestError, match="ensemble 'test' is being recovered"):
            service.ensembles.get("test")
    (total,) = {one["test"].rpartition(" of ")[2] for one in said if " of " in one["test"]}
    done = [int(one["test"].partition(" of ")[0].replace(",", "")) for one in said
            if " of " in one["test"]]  # fmt: skip
    assert total == f"{done[-1]:,} events"
    assert done == sorted(done)
    assert len(set(done)) > 3
    assert not service.recovery.coming
    assert {one.name for one in service.ensembles} == {"bad", "test"}


def test_an_ensemble_whose_replay_panics_is_unreadable_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wal, "SNAPSHOT_EVENTS", 10**9)
    world = loaded(World(1, Luck()))
    monkeypatch.setattr(crashes, "read", panicking)
    service = Service(world)
    service.recovery.restore(service._restore)
    assert [one.name for one in service.ensembles] == ["test"]
    assert "statistic 'low' has no value" in service.recovery.unreadable["bad"]


def test_whatever_is_raised_in_restoring_an_ensemble_the_others_go_on() -> None:
    class Panic(BaseException):
        """What compiled code raises."""

    world = loaded(World(1, Luck()))
    service = Service(world)

    def make(load: Any, *rest: Any) -> Any:
        if json.loads(load["document"])["name"] == "bad":
            raise Panic("in compiled code")
        return service._restore(load, *rest)

    service.recovery.restore(make)
    assert [one.name for one in service.ensembles] == ["test"]
    assert service.recovery.unreadable == {"bad": "internal error: Panic('in compiled code')"}
