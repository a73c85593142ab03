"""The journal's filter widens, and nothing is lost or repeated: any order of any steps.

A model of the job manager (flux-core `journal.c`) sends what the real one would, over one
queue of messages that keeps their order; Hypothesis chooses when jobs do something, when
wider filters are asked for, and when messages are delivered.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.queues.flux.journal import SENTINEL, TOPIC, Aside, Ended, Journal, Receive

LIFE = ("submit", "validate", "alloc", "start", "finish", "clean")


class Stream:
    """One request, as the journal holds it and as the job manager lists it."""

    def __init__(self, manager: JobManager, allow: Mapping[str, int]) -> None:
        self._manager = manager
        self.allow = allow
        self.canceled = False

    def cancel(self) -> None:
        self.canceled = True
        self._manager.to_manager.append(lambda: self._manager.end(self, 61, "canceled"))


def resources(job: int) -> dict[str, Any]:
    """The R of a job, which runs on a rank of its own."""
    return {"version": 1, "execution": {"R_lite": [{"rank": f"{job}", "children": {}}]}}


class JobManager:
    """Handles requests in order, and sends its responses in order."""

    def __init__(self) -> None:
        self.active: dict[int, list[str]] = {}
        self.listeners: list[Stream] = []
        self.to_manager: deque[Callable[[], None]] = deque()
        self.to_client: deque[Callable[[], None]] = deque()
        self.opened: list[Stream] = []
        self._handlers: dict[Stream, tuple[Receive, Ended, Aside]] = {}
        self._last = 0

    def open_stream(
        self, topic: str, payload: Mapping[str, Any], receive: Receive, ended: Ended, aside: Aside
    ) -> Stream:
        assert topic == TOPIC
        assert payload["full"] is False
        stream = Stream(self, payload["allow"])
        self._handlers[stream] = receive, ended, aside
        self.opened.append(stream)
        self.to_manager.append(lambda: self._add(stream))
        return stream

    def _send(self, stream: Stream, message: Mapping[str, Any]) -> None:
        text = json.dumps(message, separators=(",", ":"))

        def arrive() -> None:
            receive, _, aside = self._handlers[stream]
            if not aside(text.encode()):
                receive(stream, text)

        self.to_client.append(arrive)

    def end(self, stream: Stream, number: int, reason: str) -> None:
        if stream in self.listeners:
            self.listeners.remove(stream)
            error = OSError(number, reason)
            self.to_client.append(lambda: self._handlers[stream][1](stream, error))

    def _add(self, stream: Stream) -> None:
        for job, names in self.active.items():
            events = [{"name": name, "timestamp": 1.0} for name in names if name in stream.allow]
            message = {"id": job, "events": events, "jobspec": {"job": job}}
            self._send(stream, message | ({"R": resources(job)} if "alloc" in names else {}))
        self._send(stream, {"id": SENTINEL, "events": []})
        self.listeners.append(stream)

    def submit(self) -> int:
        self._last += 1
        self.active[self._last] = []
        self.advance(self._last)
        return self._last

    def advance(self, job: int) -> None:
        names = self.active[job]
        name = LIFE[len(names)]
        names.append(name)
        message: dict[str, Any] = {"id": job, "events": [{"name": name, "timestamp": 1.0}]}
        if name == "submit":
            message["jobspec"] = {"job": job}
        if name == "alloc":
            message["R"] = resources(job)
        for stream in self.listeners:
            if name in stream.allow:
                self._send(stream, message)
        if name == LIFE[-1]:
            del self.active[job]

    def deliver(self) -> None:
        """Everything that is under way arrives."""
        while self.to_manager or self.to_client:
            (self.to_manager or self.to_client).popleft()()


class Consumer:
    """A journal on a job manager, and what it has told."""

    def __init__(self) -> None:
        self.manager = JobManager()
        self.seen: Counter[tuple[int, str]] = Counter()
        self.order: list[tuple[int, str]] = []
        self.places: dict[int, str] = {}
        self.learned: list[int] = []
        self.lost: list[str] = []
        self.journal = Journal(
            self.manager.open_stream,
            event=self._event,
            backlog=lambda job, jobspec: self.learned.append(job),
            lost=self.lost.append,
        )

    def _event(self, job: int, entry: Mapping[str, Any], jobspec: Mapping[str, Any] | None) -> None:
        assert (jobspec is not None) == (entry["name"] == "submit")
        self.seen[job, entry["name"]] += 1
        self.order.append((job, entry["name"]))
        if "context" in entry:
            self.places[job] = entry["context"]["ranks"]

    def require(self, *names: str, learn: bool = False, places: bool = False) -> list[bool]:
        called: list[bool] = []
        self.journal.require(frozenset(names), learn, lambda: called.append(True), places=places)
        return called


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.just(0)),
        st.tuples(st.just("advance"), st.integers(0, 9)),
        st.tuples(st.just("to manager"), st.just(0)),
        st.tuples(st.just("to client"), st.just(0)),
        st.tuples(st.just("require"), st.sets(st.sampled_from(LIFE))),
        st.tuples(st.just("learn"), st.sets(st.sampled_from(LIFE))),
        st.tuples(st.just("places"), st.sets(st.sampled_from(LIFE))),
    ),
    max_size=120,
)


@given(steps=STEPS)
def test_every_event_of_every_job_is_seen_exactly_once(steps: list[tuple[str, Any]]) -> None:
    consumer = Consumer()
    manager = consumer.manager
    called = consumer.require("clean", "finish")
    manager.deliver()
    assert called == [True]
    # Names that were required, and the last job that was submitted before they were granted.
    granted: dict[str, int] = {"submit": 0, "clean": 0, "finish": 0}
    asked = []

    def grant(what: str, names: set[str]) -> Callable[[], None]:
        def ready() -> None:
            for name in {*names, what}:
                granted.setdefault(name, manager._last)

        return ready

    for what, value in steps:
        if what == "submit":
            manager.submit()
        elif what == "advance" and manager.active:
            manager.advance(list(manager.active)[value % len(manager.active)])
        elif what == "to manager" and manager.to_manager:
            manager.to_manager.popleft()()
        elif what == "to client" and manager.to_client:
            manager.to_client.popleft()()
        elif what in ("require", "learn", "places"):
            asked.append(value)
            consumer.journal.require(
                frozenset(value),
                what == "learn",
                grant(what, value),
                places=what == "places",
            )
    manager.deliver()
    while manager.active:
        manager.advance(next(iter(manager.active)))
    manager.deliver()

    assert not consumer.lost
    assert all(name in granted for value in asked for name in value)
    assert max(consumer.seen.values(), default=1) == 1
    for name, last in granted.items():
        for job in range(last + 1, manager._last + 1):
            assert name not in LIFE or consumer.seen[job, name] == 1, (job, name)
    if {"places", "start"} <= granted.keys():
        for job in range(max(granted["places"], granted["start"]) + 1, manager._last + 1):
            assert consumer.places[job] == f"{job}"
    assert all(ranks == f"{job}" for job, ranks in consumer.places.items())
    assert not consumer.journal._allocations._jobs
    for job in range(1, manager._last + 1):
        names = [name for other, name in consumer.order if other == job]
        assert names == sorted(names, key=LIFE.index)
    assert len(manager.listeners) == 1


def test_what_is_required_is_granted_when_the_stream_has_caught_up() -> None:
    consumer = Consumer()
    called = consumer.require("start")
    assert not called
    consumer.manager.deliver()
    assert called
    assert consumer.manager.opened[0].allow == {"start": 1, "submit": 1}


def test_what_the_stream_lets_through_already_is_granted_at_once() -> None:
    consumer = Consumer()
    consumer.require("start", "finish")
    consumer.manager.deliver()
    assert consumer.require("start")
    assert len(consumer.manager.opened) == 1


def test_requests_that_come_during_a_widening_are_granted_by_one_more() -> None:
    consumer = Consumer()
    consumer.require("start")
    calls = [consumer.require(name) for name in ("alloc", "finish", "clean")]
    assert len(consumer.manager.opened) == 1
    consumer.manager.deliver()
    assert calls == [[True]] * 3
    assert [stream.canceled for stream in consumer.manager.opened] == [True, False]


def test_a_job_that_was_active_before_is_not_replayed_but_can_be_learned() -> None:
    consumer = Consumer()
    job = consumer.manager.submit()
    consumer.require("submit", "start")
    consumer.manager.deliver()
    assert not consumer.seen
    assert not consumer.learned
    called = consumer.require(learn=True)
    consumer.manager.deliver()
    assert called
    assert consumer.learned == [job]
    assert not consumer.seen


@pytest.mark.parametrize("levels", [40, 500, 900, 960, 1000, 2040])
def test_an_event_that_nests_as_deep_as_flux_allows_is_handed_on_and_can_be_written(
    levels: int,
) -> None:
    events: list[Mapping[str, Any]] = []
    opened: list[Receive] = []

    def open_stream(topic: str, payload: Any, receive: Receive, ended: Ended, aside: Aside) -> Any:
        opened.append(receive)
        return receive

    journal = Journal(
        open_stream,
        event=lambda job, entry, jobspec: events.append(entry),
        backlog=lambda job, jobspec: None,
        lost=pytest.fail,
    )
    journal.require(frozenset({"memo"}), False, lambda: None)
    opened[0](opened[0], json.dumps({"id": SENTINEL, "events": []}))
    memo = f'{{"fom": 1, "x": {"[" * levels}{"]" * levels}}}'
    text = f'{{"id": 5, "events": [{{"timestamp": 1.0, "name": "memo", "context": {memo}}}]}}'

    def deeper(frames: int) -> None:
        if frames:
            deeper(frames - 1)
        else:
            opened[0](opened[0], text)

    for frames in range(0, 60, 7):
        deeper(frames)
    assert {entry["context"]["fom"] for entry in events} == {1}
    depth = {json.dumps(entry["context"]["x"]).count("[") for entry in events}
    assert depth == {min(levels, 60)}


def test_a_stopped_journal_tells_nothing_and_can_start_again() -> None:
    consumer = Consumer()
    consumer.require("start")
    consumer.manager.deliver()
    consumer.journal.stop()
    consumer.manager.submit()
    consumer.manager.deliver()
    assert not consumer.seen
    assert not consumer.manager.listeners
    assert not consumer.lost
    consumer.require("finish")
    assert consumer.manager.opened[-1].allow == {"finish": 1, "submit": 1}
    consumer.manager.deliver()
    job = consumer.manager.submit()
    consumer.manager.deliver()
    assert consumer.order == [(job, "submit")]


@pytest.mark.parametrize("widening", [False, True])
def test_the_end_of_the_stream_is_told_once_with_a_sentence(widening: bool) -> None:
    consumer = Consumer()
    consumer.require("start")
    consumer.manager.deliver()
    if widening:
        consumer.require("finish")
        consumer.manager.to_manager.popleft()()
    for stream in list(consumer.manager.listeners):
        consumer.manager.end(stream, 61, "No data available")
    consumer.manager.deliver()
    assert len(consumer.lost) == 1
    assert "job manager" in consumer.lost[0]
    assert "ENODATA: No data available" in consumer.lost[0]
    called = consumer.require("start")
    consumer.manager.deliver()
    assert called
