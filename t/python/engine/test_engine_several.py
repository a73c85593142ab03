"""Events of jobs that come at once are handled as they would be one after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.codec import encode, event_from_json, to_json
from flux_ensemble.engine.commands import (
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
    AllocationChanged,
    CommandDone,
    Event,
    JobEvent,
    JobEvents,
    MemberDraining,
    MemberUp,
    Request,
    Started,
    Tag,
    TimerFired,
)
from flux_ensemble.engine.job_keys import make
from flux_ensemble.engine.records import encode as encode_records
from flux_ensemble.engine.snapshot import dump
from flux_ensemble.runtime.durability.batches import compact, dumps, expand

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
    own = {key: value for key, value in more.items() if key != "limits"}
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
    }


Entry = tuple[str, dict[str, Any]]


def ends(random: Random) -> list[Entry]:
    """What becomes of a job that was accepted."""
    clean: Entry = ("clean", {})
    memo: Entry = ("memo", {"x": random.random()})
    start: Entry = (
        "start",
        {"t_alloc": random.random(), "ranks": "0"} if random.random() < 0.5 else {},
    )
    failed: Entry = ("exception", {"type": "cancel", "severity": 0, "note": "n"})
    finish: Entry = ("finish", {"status": random.choice((0, 0, 0, 0, 256))})
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
            self.t += self.random.random()
            choice = self.random.random()
            if self.waiting and (choice < 0.3 or not self.jobs):
                yield [self.waiting.pop(0)]
            elif self.jobs:
                many = min(self.random.choice((1, 2, 6)), len(self.jobs))
                yield [self._job(key) for key in self.random.sample(list(self.jobs), many)]
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
                    yield [MemberDraining(self.t, member.name, member.ordinal, "it ends")]

    def _job(self, key: int) -> Event:
        tag, left = self.jobs[key]
        first = left[0][0] == "submit"
        count = self.random.choice((1, 2, 3, len(left), len(left)))
        events: list[list[Any]] = []
        for name, context in left[:count]:
            # The clocks of members differ, and can be set back.
            t = self.t + self.random.choice((0.0, 0.25, self.random.random(), -0.5))
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
    position = 0
    while position < len(events):
        stop, more = engine.handle_lives(events, position)
        if stop == position:
            stop, more = position + 1, engine.handle(events[position])
        commands += more
        position = stop
    return commands


def each(event: Event) -> list[Event]:
    return list(event.each()) if isinstance(event, JobEvents) else [event]


def running(rules: list[dict[str, Any]], more: dict[str, Any]) -> tuple[Engine, list[JobEvents]]:
    """An engine that has sent four jobs to a member, and their lives."""
    engine = Engine(load_mapping(document(rules, {"count": 4, **more})))
    engine.handle(Started(100.0))
    commands = engine.handle(MemberUp(100.0, "pool.0", 1, 1, 2))
    lives = []
    for command in commands:
        if not isinstance(command, SubmitJobs):
            continue
        engine.handle(CommandDone(100.5, command.id, {"ids": []}))
        for index in range(command.first, command.first + command.count):
            t = 101.0 + index
            names = ("submit", "validate", "start", "finish", "clean")
            events: list[list[Any]] = [[t + number / 8, name] for number, name in enumerate(names)]
            events[3].append({"status": 0})
            tag = Tag(command.group, command.rule, command.firing, index)
            lives.append(JobEvents(t + 0.5, make(1, index), events, tag))
    return engine, lives


#: Rules that are about no job that succeeds, and those that look at each.
OTHERS = [rule for rule in RULES if rule["trigger"] in ("job-fail", "idle", "member-draining")]
ABOUT = [rule for rule in RULES if rule["trigger"] in ("job-success", "job-start", "metric")]


@pytest.mark.parametrize("rules", [[], OTHERS], ids=["no rules", "rules on what is rare"])
def test_lives_that_nothing_looks_at_are_one_step(rules: list[dict[str, Any]]) -> None:
    engine, lives = running(rules, {})
    assert len(lives) == 4
    assert engine.handle_lives(lives[:3], 0) == (3, [])
    assert engine.stats.counts["sim"]["success@pool"] == 3
    assert engine.handle_lives(lives, 3)[0] == 4


@pytest.mark.parametrize("rule", ABOUT, ids=str)
def test_lives_that_a_rule_looks_at_are_not(rule: dict[str, Any]) -> None:
    engine, lives = running([rule], {})
    assert engine.handle_lives(lives, 0) == (0, [])


@pytest.mark.parametrize(
    "more",
    [
        {"predict": ["x"], "params": {"x": [1, 2, 3, 4]}, "count": 1},
        {"duration": 1e6},
    ],
    ids=["predictions", "time limits"],
)
def test_lives_that_tell_more_are_not(more: dict[str, Any]) -> None:
    engine, lives = running([], more)
    engine.handle(AllocationChanged(100.6, 100.7 + 1e6))
    assert engine.handle_lives(lives, 0) == (0, [])


def test_what_is_no_life_is_left_to_be_handled_alone() -> None:
    engine, (first, second, third, fourth) = running([], {})
    failed = [*second.events[:3], [102.375, "finish", {"status": 256}], second.events[4]]
    events = [
        first,
        JobEvents(second.t, second.job, failed, second.tag),
        JobEvents(third.t, third.job, third.events[:3], third.tag),
        first,
        fourth,
    ]
    assert [engine.handle_lives(events, position)[0] for position in range(4)] == [1, 1, 2, 3]
    engine.handle(Request(103.0, 1, "cancel", {"group": "sim"}))
    assert engine.handle_lives(events, 4) == (4, [])


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
