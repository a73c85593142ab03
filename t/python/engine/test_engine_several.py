"""Events of jobs that come at once are handled as they would be one after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.encoding import dumps
from flux_ensemble.engine.codec import encode, event_from_json, to_json
from flux_ensemble.engine.commands import (
    Ask,
    CancelJobs,
    Command,
    DrainMember,
    EndMember,
    StartMember,
    StartTimer,
    SubmitJobs,
)
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import (
    CPU,
    LIFE,
    RSS,
    TICKS,
    AllocationChanged,
    CommandDone,
    Event,
    JobEvent,
    JobEvents,
    JobsAlike,
    MemberDraining,
    MemberUp,
    Request,
    Started,
    Tag,
    TimerFired,
)
from flux_ensemble.engine.job_keys import make, split
from flux_ensemble.engine.records import encode as encode_records
from flux_ensemble.engine.snapshot import dump
from flux_ensemble.queues.nested.job_columns import JobColumns, kind
from flux_ensemble.runtime.durability.batches import compact, expand

SUBMIT = {"name": "submit", "label": "sim", "count": 2, "repetitions": 3}

#: Rules that see what jobs do, and parts of the document that change what is done about it.
RULES: list[dict[str, Any]] = [
    {"trigger": "job-success", "group": "sim", "action": SUBMIT},
    {"trigger": "job-start", "group": "sim", "action": SUBMIT},
    {"trigger": "job-fail", "action": {"name": "cancel", "label": "late"}},
    {"trigger": "metric", "name": "mean.sim-duration", "when": "> 2", "action": SUBMIT},
    {"trigger": "metric", "when": "count.sim['success@pool'] > 4", "action": SUBMIT},
    {"trigger": "metric", "when": "rate.sim > 0", "action": SUBMIT},
    {"trigger": "idle", "group": "sim", "action": {"name": "submit", "label": "late"}},
    {"trigger": "idle", "action": {"name": "submit", "label": "late"}},
    {"trigger": "timer", "every": 3, "when": "rate.sim > 0", "action": SUBMIT},
    {"trigger": "member-draining", "action": {"name": "grow", "label": "pool", "value": 1}},
]
MORE: list[dict[str, Any]] = [
    {},
    {"limits": {"active-jobs": 3}},
    {"retries": {"times": 2}},
    {"max-active": 2},
    {"duration": 30},
    {"predict": ["x"], "params": {"x": [1, 2, 3]}, "order": "longest-first"},
]


def document(rules: list[dict[str, Any]], more: dict[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in more.items() if key not in ("limits", "logging", "metrics")}
    start = [{"name": "submit", "label": "sim"}]
    return {
        "name": "several",
        "members": [{"name": "pool", "count": {"min": 2, "max": 3}, "service": "child"}],
        "jobs": [
            {"name": "sim", "command": "true", "count": 12, **own},
            {"name": "late", "command": "true", "count": 3},
        ],
        "rules": [{"trigger": "start", "actions": start}, *rules],
        "limits": {"jobs": 1000, **more.get("limits", {})},
        "logging": more.get("logging", {}),
        "metrics": more.get("metrics", []),
    }


Entry = tuple[str, dict[str, Any]]


def part(random: Random) -> float:
    """A part of a second, no finer than times of Flux are."""
    return random.randrange(TICKS) / TICKS


def told(events: list[JobEvents]) -> list[Event]:
    """What jobs did as their members tell it: together, where it was the same."""
    found: dict[Any, Any] = {}
    for event in events:
        tag = None if event.tag is None else list(event.tag)
        ordinal, id = split(event.job)
        same = kind(event.events, tag)
        key = event.job if same is None else (ordinal, same)
        if same is None:
            found[key] = event
            continue
        alike = found.setdefault(key, (ordinal, JobColumns(event.events, tag)))[1]
        alike.add(id, event.events, tag)
    return [
        JobsAlike(alike[1].item()[1], alike[0], *alike[1].item()[2:])
        if isinstance(alike, tuple)
        else alike
        for alike in found.values()
    ]


def ends(random: Random) -> list[Entry]:
    """What becomes of a job that was accepted."""
    place = {"t_alloc": part(random), "ranks": random.choice("01")}
    clean: Entry = ("clean", {})
    memo: Entry = ("memo", {"x": random.random()})
    start: Entry = ("start", place if random.random() < 0.5 else {})
    failed: Entry = ("exception", {"type": "cancel", "severity": 0, "note": "n"})
    used = {CPU: random.randrange(9), RSS: random.randrange(9)} if random.random() < 0.5 else {}
    finish: Entry = ("finish", {"status": random.choice((0, 0, 0, 0, 256)), **used})
    others: list[list[Entry]] = [
        [start, memo, finish, clean],
        [start, failed, ("finish", {"status": 15}), clean],
        [failed, clean],
        [start, start, finish, clean],
    ]
    return [start, finish, clean] if random.random() < 0.6 else random.choice(others)


class Queue:
    """Members that say what a random source says; one event of a job after the other.

    Args:
        engine: that is driven.
        random: says what happens.
    """

    def __init__(self, engine: Engine, random: Random) -> None:
        self.engine = engine
        self.random = random
        self.t = 100.0
        self.number = 0
        self.jobs: dict[int, tuple[Tag, list[Entry]]] = {}
        self.waiting: list[Event] = [Started(self.t)]
        self.timers: dict[str, StartTimer] = {}

    def happens(self) -> Iterator[list[Event]]:
        """What comes at once, until nothing more does or enough has."""
        for _ in range(400):
            self.t += part(self.random)
            choice = self.random.random()
            if self.waiting and (choice < 0.3 or not self.jobs):
                yield [self.waiting.pop(0)]
            elif self.jobs:
                many = min(self.random.choice((1, 2, 6)), len(self.jobs))
                yield told([self._job(key) for key in self.random.sample(list(self.jobs), many)])
            elif self.timers:
                timer = self.timers[self.random.choice(list(self.timers))]
                if not timer.every:
                    del self.timers[timer.key]
                yield [TimerFired(self.t, timer.key)]
            else:
                return
            if choice > 0.99:
                yield [Request(self.t, self.number, "submit", {"group": "sim", "count": 2})]
            if choice < 0.005 and self.engine.members is not None:
                member = self.random.choice([*self.engine.members.known.values()] or [None])
                if member is not None and member.state == "up":
                    name, ordinal = member.name, member.ordinal
                    yield [MemberDraining(self.t, name, ordinal, "it ends", ends=False)]

    def _job(self, key: int) -> JobEvents:
        tag, left = self.jobs[key]
        first = left[0][0] == "submit"
        count = self.random.choice((1, 2, 3, len(left), len(left)))
        events: list[list[Any]] = []
        for name, context in left[:count]:
            # The clocks of members differ, and can be set back.
            t = self.t + self.random.choice((0.0, 0.25, part(self.random), -0.5))
            events.append([t, name, context] if context else [t, name])
        del left[:count]
        if not left:
            del self.jobs[key]
        return JobEvents(max(one[0] for one in events), key, events, tag if first else None)

    def perform(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, StartMember):
                self.waiting.append(CommandDone(self.t, command.id))
                t_expires = self.random.choice((None, self.t + 60))
                up = MemberUp(self.t, command.member, command.ordinal, 1, 2, 0, t_expires)
                self.waiting.append(up)
            elif isinstance(command, SubmitJobs):
                keys = []
                for index in range(command.first, command.first + command.count):
                    self.number += 1
                    key = make(command.ordinal, self.number)
                    keys.append(key)
                    tag = Tag(command.group, command.rule, command.firing, index)
                    begin = [("submit", {"userid": 1}), ("validate", {})]
                    self.jobs[key] = tag, [*begin, *ends(self.random)]
                self.waiting.append(CommandDone(self.t, command.id, {"ids": keys}))
            elif isinstance(command, (CancelJobs, DrainMember, EndMember)):
                self.waiting.append(CommandDone(self.t, command.id))
            elif isinstance(command, StartTimer):
                self.timers[command.key] = command


@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(RULES), unique_by=str, max_size=3),
    st.sampled_from(MORE),
)
def test_several_events_of_a_job_at_once_are_the_same_as_one_after_the_other(
    seed: int, rules: list[dict[str, Any]], more: dict[str, Any]
) -> None:
    spec = load_mapping(document(rules, more))
    together, singly = Engine(spec), Engine(spec)
    for engine in (together, singly):
        engine.stats.keep_values()
        engine.records.keep()
    queue = Queue(together, Random(seed))
    several = 0
    for events in queue.happens():
        commands = handle_together(together, events)
        single = [one for event in events for one in each(event)]
        several += len(single) > 1
        assert commands == [command for one in single for command in singly.handle(one)]
        together.check()
        queue.perform(commands)
    assert several or not queue.number
    assert encode_all(together) == encode_all(singly)


def handle_together(engine: Engine, events: list[Event]) -> list[Command]:
    """Have an engine handle what comes at once, as `Driver.post_several` does."""
    commands: list[Command] = []
    for event in events:
        if isinstance(event, JobsAlike) and not engine.knows(event):
            commands += [command for one in event.each() for command in engine.handle(one)]
        else:
            commands += engine.handle(event)
    return commands


def each(event: Event) -> list[Event]:
    if isinstance(event, JobsAlike):
        return [one for events in event.each() for one in events.each()]
    return list(event.each()) if isinstance(event, JobEvents) else [event]


def running(
    rules: list[dict[str, Any]], more: dict[str, Any], cores: int = 2
) -> tuple[Engine, list[JobEvents]]:
    """An engine that has sent four jobs to a member, or more where it is large, and their lives."""
    engine = Engine(load_mapping(document(rules, {"count": 4, **more})))
    engine.handle(Started(100.0))
    commands = engine.handle(MemberUp(100.0, "pool.0", 1, 1, cores))
    lives: list[JobEvents] = []
    for command in commands:
        if not isinstance(command, SubmitJobs):
            continue
        engine.handle(CommandDone(100.5, command.id, {"ids": []}))
        for index in range(command.first, command.first + command.count):
            t = 101.0 + len(lives)
            events: list[list[Any]] = [[t + number / 8, name] for number, name in enumerate(LIFE)]
            events[3].append({"status": 0})
            tag = Tag(command.group, command.rule, command.firing, index)
            lives.append(JobEvents(t + 0.5, make(1, len(lives)), events, tag))
    return engine, lives


def of(lives: list[JobEvents]) -> JobsAlike:
    """What jobs did that did the same."""
    (alike,) = told(lives)
    assert isinstance(alike, JobsAlike)
    return alike


def parts(lives: list[JobEvents], *cuts: int) -> list[JobsAlike]:
    """The same, told in parts: up to each of the cuts, and the rest."""
    found: list[JobsAlike] = []
    for first, last in zip((0, *cuts), (*cuts, len(LIFE)), strict=True):
        some = []
        for life in lives:
            events = life.events[first:last]
            tag = None if first else life.tag
            some.append(JobEvents(max(event[0] for event in events), life.job, events, tag))
        found += told(some)  # type: ignore[arg-type]
    return found


def looked_at(engine: Engine, alike: JobsAlike) -> int:
    """Of how many jobs an engine looks at the events as it handles what these did alike."""
    with mock.patch.object(JobsAlike, "job", autospec=True, side_effect=JobsAlike.job) as job:
        engine.handle(alike)
    return job.call_count


#: Rules that are about no job that succeeds, and those that look at each.
OTHERS = [rule for rule in RULES if rule["trigger"] in ("job-fail", "idle", "member-draining")]
ABOUT = [rule for rule in RULES if rule["trigger"] in ("job-success", "job-start", "metric")]


PARTS = [(), (2,), (3,), (1, 2), (2, 3), (1, 2, 3, 4)]


@pytest.mark.parametrize("cuts", PARTS, ids=str)
@pytest.mark.parametrize("rules", [[], OTHERS, ABOUT[:1]], ids=["none", "rare", "about each"])
def test_jobs_that_did_the_same_are_to_the_last_bit_as_one_after_the_other(
    rules: list[dict[str, Any]], cuts: tuple[int, ...]
) -> None:
    (together, lives), (singly, _) = running(rules, {}), running(rules, {})
    for engine in (together, singly):
        engine.stats.keep_values()
        engine.records.keep()
    for alike in parts(lives, *(cut for cut in cuts if cut not in (1, 4))):
        assert together.knows(alike)
        commands = together.handle(alike)
        assert commands == [one for event in each(alike) for one in singly.handle(event)]
        together.check()
    assert encode_all(together) == encode_all(singly)


@pytest.mark.parametrize("cuts", [(), (2,), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("rules", [[], OTHERS], ids=["no rules", "rules on what is rare"])
def test_of_jobs_that_nothing_looks_at_none_is_handled_by_itself(
    rules: list[dict[str, Any]], cuts: tuple[int, ...]
) -> None:
    engine, lives = running(rules, {})
    for alike in parts(lives[:3], *cuts):
        assert looked_at(engine, alike) == 0
    assert engine.stats.counts["sim"]["success@pool"] == 3


@pytest.mark.parametrize("rule", ABOUT, ids=str)
def test_of_jobs_that_a_rule_looks_at_each_is(rule: dict[str, Any]) -> None:
    engine, lives = running([rule], {})
    assert looked_at(engine, of(lives[:3])) == 3


@pytest.mark.parametrize(
    "more",
    [
        {"predict": ["x"], "params": {"x": [1, 2, 3, 4]}, "count": 1},
        {"duration": 1e6},
        {"metrics": [{"best": {"name": "top", "of": "sim-duration"}}]},
    ],
    ids=["predictions", "time limits", "the best"],
)
def test_jobs_that_tell_more_are_each_handled_by_themselves(more: dict[str, Any]) -> None:
    engine, lives = running([], more)
    engine.handle(AllocationChanged(100.6, 100.7 + 1e6))
    assert looked_at(engine, of(lives[:2])) == 2


def test_a_job_that_nobody_sent_or_that_comes_twice_is_not_known() -> None:
    engine, (first, second, third, fourth) = running([], {})
    assert third.tag is not None
    other = replace(third, tag=third.tag._replace(index=9))
    again = replace(second, job=make(1, 17))
    assert not engine.knows(of([first, other]))
    assert not engine.knows(of([first, second, again]))
    assert engine.knows(of([first, second]))
    engine.handle(of([first, second]))
    assert not engine.knows(of([second, third]))
    for event in list(third.each())[:2]:
        engine.handle(event)
    assert not engine.knows(of([replace(fourth, job=third.job)]))
    engine.handle(Request(103.0, 1, "cancel", {"group": "sim"}))
    assert engine.knows(of([fourth]))
    assert looked_at(engine, of([fourth])) == 1


def test_jobs_that_a_member_is_not_to_run_any_more_are_each_looked_at_when_they_appear() -> None:
    cancel = {"name": "cancel", "label": "sim", "repetitions": "unlimited"}
    rule = {"trigger": "heartbeat", "scope": "member", "action": cancel}
    engine, lives = running([rule], {"logging": {"heartbeat": "5s"}})
    engine.handle(TimerFired(100.6, "heartbeat"))
    assert looked_at(engine, of(lives[:2])) == 2


def test_jobs_are_looked_at_no_more_once_the_rule_that_did_will_not_run_again() -> None:
    engine, lives = running([{**ABOUT[0], "action": {**SUBMIT, "repetitions": 1}}], {})
    assert looked_at(engine, of(lives[:1])) == 1
    assert looked_at(engine, of(lives[1:3])) == 0


def test_a_job_that_is_withdrawn_at_once_makes_room_for_the_next_one() -> None:
    (together, lives), (singly, _) = running([], {"max-active": 1}), running([], {"max-active": 1})
    withdrawn = replace(lives[0], events=[[101.0, "submit"], [101.25, "invalidate"]])
    commands = together.handle(withdrawn)
    assert [one.first for one in commands if isinstance(one, SubmitJobs)] == [1]
    assert commands == [one for event in each(withdrawn) for one in singly.handle(event)]


def test_what_an_engine_was_asked_about_is_not_taken_for_what_it_is_given() -> None:
    (together, lives), (singly, _) = running([], {}), running([], {})
    first, second = of(lives[:2]), of(lives[2:])
    assert together.knows(first)
    commands = together.handle(second)
    assert commands == [one for event in each(second) for one in singly.handle(event)]
    assert encode_all(together) == encode_all(singly)


@pytest.mark.parametrize("status", [None, 0, 256], ids=["ends alike", "well", "failed"])
@pytest.mark.parametrize("exception", [None, "cancel", "lost"])
def test_jobs_that_had_trouble_and_go_alike_are_as_one_after_the_other(
    exception: str | None, status: int | None
) -> None:
    (together, lives), (singly, _) = running([], {"retries": 1}), running([], {"retries": 1})
    for engine in (together, singly):
        engine.records.keep()
        # Others that run well leave no doubt about their member.
        for number, life in enumerate(lives):
            *begun, finish, _ = life.each()
            for event in begun:
                engine.handle(event)
            trouble = {"type": exception, "severity": 0, "note": "n"}
            if exception is not None and number < 2:
                engine.handle(JobEvent(life.t, life.job, "exception", trouble))
            if status is not None:
                context = {"status": status if number < 2 else 0}
                engine.handle(replace(finish, context=context))
    gone = parts(lives, 2, 3, *(() if status is None else (4,)))[-1]
    commands = together.handle(gone)
    assert commands == [one for event in each(gone) for one in singly.handle(event)]
    assert encode_all(together) == encode_all(singly)


def test_a_job_that_ends_makes_room_on_another_member_where_all_may_run_no_more_at_once() -> None:
    pools = [{"name": name, "count": 1, "service": "child"} for name in ("one", "two")]
    jobs = [
        {"name": "a", "command": "a", "count": 40, "member": "one"},
        {"name": "b", "command": "b", "count": 9, "member": "two"},
    ]
    start = [{"name": "submit", "label": label} for label in ("a", "b")]
    rules = [{"trigger": "start", "actions": start}]
    limits = {"limits": {"active-jobs": 16}}
    engine = Engine(
        load_mapping({"name": "test", "members": pools, "jobs": jobs, "rules": rules, **limits})
    )
    engine.handle(Started(100.0))
    commands = engine.handle(MemberUp(100.0, "one.0", 1, 1, 8))
    commands += engine.handle(MemberUp(100.0, "two.0", 2, 1, 8))
    sent = [one for one in commands if isinstance(one, SubmitJobs)]
    assert [(one.group, one.count) for one in sent] == [("a", 8), ("a", 8)]
    for one in sent:
        engine.handle(CommandDone(100.5, one.id, {"ids": []}))
    events: list[list[Any]] = [[101.0 + number / 8, name] for number, name in enumerate(LIFE)]
    events[3].append({"status": 0})
    tag = Tag("a", sent[0].rule, sent[0].firing, 0)
    # Its own member takes no more before a quarter of its window is free.
    commands = engine.handle(JobEvents(101.5, make(1, 1), events, tag))
    assert [one.group for one in commands if isinstance(one, SubmitJobs)] == ["b"]


FAILED: list[tuple[str, dict[str, Any]]] = [("start", {}), ("finish", {"status": 256})]
#: It never starts, so that it has failed when it is clean.
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("exception", {"type": "exec", "severity": 0, "note": "no such program"})
]


@pytest.mark.parametrize("what", [FAILED, REFUSED], ids=["failed", "refused"])
@pytest.mark.parametrize("left", [0, 1, 2, 3], ids=["at once", "clean", "and 1", "and 2"])
def test_a_retry_is_sent_at_once_to_another_member_where_its_own_takes_no_more(
    left: int, what: list[tuple[str, dict[str, Any]]]
) -> None:
    jobs = [{"name": "a", "command": "a", "count": 16, "retries": 1}]
    members = [{"name": "pool", "count": 2, "service": "child"}]
    rules = [{"trigger": "start", "action": {"name": "submit", "label": "a"}}]
    engine = Engine(
        load_mapping({"name": "test", "members": members, "jobs": jobs, "rules": rules})
    )
    engine.handle(Started(100.0))
    commands = engine.handle(MemberUp(100.0, "pool.0", 1, 1, 8))
    sent = [one for one in commands if isinstance(one, SubmitJobs)]
    assert sum(one.count for one in sent) == 16
    engine.handle(MemberUp(100.0, "pool.1", 2, 1, 8))
    for one in sent:
        engine.handle(CommandDone(100.5, one.id, {"ids": []}))
    life = [("submit", {}), ("validate", {}), *what, ("clean", {})]
    events: list[Any] = [[101.0 + number / 8, *entry] for number, entry in enumerate(life)]
    cut = len(events) - left
    commands = []
    for batch in (events[:cut], events[cut:]):
        if batch:
            tag = Tag("a", sent[0].rule, sent[0].firing, 0) if batch[0] is events[0] else None
            commands += engine.handle(JobEvents(batch[-1][0], make(1, 1), batch, tag))
    # Its own member takes no more before a quarter of its window is free.
    assert [one.ordinal for one in commands if isinstance(one, SubmitJobs)] == [2]


def test_a_trial_whose_life_comes_at_once_has_its_search_ask_at_once() -> None:
    search = {
        "id": "x",
        "group": "sim",
        "variables": {"x": {"low": 0, "high": 1}},
        "minimize": "loss",
        "trials": 9,
        "parallel": 2,
    }
    action = {"name": "search", "label": "x"}
    given = {**document([], {"command": "run {x}", "count": 1}), "search": [search]}
    engine = Engine(load_mapping({**given, "rules": [{"trigger": "start", "action": action}]}))
    commands = engine.handle(Started(100.0))
    (ask,) = [one for one in commands if isinstance(one, Ask)]
    points = [{"params": {"x": 0.25}}, {"params": {"x": 0.5}}]
    engine.handle(CommandDone(100.5, ask.id, {"points": points, "seconds": 0.1}))
    commands = engine.handle(MemberUp(100.5, "pool.0", 1, 1, 4))
    first = next(one for one in commands if isinstance(one, SubmitJobs))
    engine.handle(CommandDone(100.5, first.id, {"ids": []}))
    events: list[list[Any]] = [[101.0 + number / 8, name] for number, name in enumerate(LIFE)]
    events[3].append({"status": 0})
    tag = Tag(first.group, first.rule, first.firing, first.first)
    commands = engine.handle(JobEvents(101.5, make(1, 1), events, tag))
    assert [one.first for one in commands if isinstance(one, Ask)] == [2]


def test_jobs_of_two_groups_that_go_on_alike_count_in_their_own() -> None:
    rule = {"trigger": "start", "action": {"name": "submit", "label": "late"}}
    engine, lives = running([rule], {}, cores=8)
    assert {life.tag.group for life in lives if life.tag is not None} == {"sim", "late"}
    *begun, ended = parts(lives, 2)
    for alike in begun:
        engine.handle(alike)
    assert looked_at(engine, ended) == 0
    counts = engine.stats.counts
    assert [counts[group]["finished"] for group in ("sim", "late")] == [4, 3]


def encode_all(engine: Engine) -> str:
    """All that there is of an engine, to the last bit."""
    jobs = engine.records.take()
    return dumps(
        [
            dump(engine),
            engine.metrics(engine.t),
            engine.stats.take_values(),
            encode_records(jobs) if jobs else [],
        ]
    )


@pytest.mark.parametrize("cuts", PARTS[:4], ids=str)
def test_what_jobs_did_alike_is_read_as_it_was_written(cuts: tuple[int, ...]) -> None:
    _, lives = running([], {})
    for alike in parts(lives, *(cut for cut in cuts if cut != 1)):
        read = event_from_json(json.loads(dumps(to_json(alike))))
        assert isinstance(read, JobsAlike)
        assert encode(read) == encode(alike)
        assert expand(json.loads(dumps(compact(alike)))) == read
        assert list(read.each()) == list(alike.each())
    assert [one for alike in parts(lives) for one in alike.each()] == lives


@pytest.mark.parametrize("tag", [None, Tag("sim", "r", 1, 2)])
def test_several_events_are_read_as_they_were_written(tag: Tag | None) -> None:
    events = [[1.0, "submit", {"userid": 1}], [3.5, "validate"], [2.0, "start"]]
    event = JobEvents(3.5, make(2, 17), events, tag)
    assert event_from_json(to_json(event)) == event
    assert encode(event_from_json(to_json(event))) == encode(event)
    assert expand(json.loads(dumps(compact(event)))) == event
    assert list(event.each()) == [
        JobEvent(1.0, event.job, "submit", {"userid": 1}, tag),
        JobEvent(3.5, event.job, "validate"),
        JobEvent(2.0, event.job, "start"),
    ]
