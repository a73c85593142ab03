"""Jobs that did the same are told as one item, from which all that they did can be read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.engine.events import CPU, LIFE, RSS, TICKS, JobEvents, JobsAlike, Tag
from flux_ensemble.engine.job_keys import make
from flux_ensemble.queues.nested.job_columns import ALIKE
from flux_ensemble.queues.nested.send_buffer import Held

SUBMIT = {"userid": 1, "urgency": 16, "flags": 0, "version": 1}

#: Times as clocks of this century have them, and the latest that a float can hold as fine.
times = st.floats(2.0**30, 2.0**31 - 1)


def read(items: list[list[Any]], ordinal: int = 3) -> list[JobEvents]:
    """What is read of items for jobs that did the same."""
    found: list[JobEvents] = []
    for kind, t, *fields in json.loads(json.dumps(items)):
        assert kind == ALIKE
        alike = JobsAlike(t, ordinal, *fields)
        assert alike.t == max(one.t for one in alike.each())
        found += alike.each()
    return found


def live(held: Held, job: int, begin: float, first: int = 0, last: int = 5, **start: Any) -> None:
    """Add a part of the life of a job, an event each second."""
    contexts = {"submit": SUBMIT, "start": start, "finish": {"status": 0}}
    for number in range(first, last):
        tag = None if number else ["g", "r", 2, job]
        held.add(job, begin + number, LIFE[number], contexts.get(LIFE[number]), tag)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**63 - 1),
            times,
            times,
            times,
            st.sampled_from(("0", "1-3")),
            st.tuples(st.integers(0, 2**50), st.integers(0, 2**40)),
        ),
        min_size=1,
        unique_by=lambda job: job[0],
    ),
    st.integers(0, 4),
    st.integers(0, 4),
    st.booleans(),
    st.booleans(),
)
def test_what_jobs_did_is_read_to_the_last_bit(
    jobs: list[tuple[int, float, float, float, str, tuple[int, int]]],
    one: int,
    other: int,
    placed: bool,
    measured: bool,
) -> None:
    held, wanted = Held(), []
    names = LIFE[min(one, other) : max(one, other) + 1]
    for index, (id, t, later, alloc, ranks, use) in enumerate(jobs):
        events: list[list[Any]] = []
        tag = ["g", "r", 2, index] if names[0] == "submit" else None
        place = {"t_alloc": alloc, "ranks": ranks} if placed else None
        finish = {"status": 0, **(dict(zip((CPU, RSS), use, strict=True)) if measured else {})}
        contexts: dict[str, Any] = {"submit": SUBMIT, "start": place, "finish": finish}
        for name in names:
            context = contexts.get(name)
            held.add(id, t, name, context, tag if name == "submit" else None)
            events.append([t, name, context] if context else [t, name])
            t = later if name == "validate" else t
        latest = max(event[0] for event in events)
        of_job = None if tag is None else Tag("g", "r", 2, index)
        wanted.append(JobEvents(latest, make(3, id), events, of_job))
    items = held.take()
    if names[-1] in ("submit", "finish"):
        assert ALIKE not in [item[0] for item in items]
    else:
        assert len(items) == 1
        assert read(items) == wanted


def test_jobs_of_other_firings_or_with_other_contexts_are_told_apart() -> None:
    held = Held()
    for job, firing, context in ((7, 1, SUBMIT), (8, 2, SUBMIT), (9, 1, {"userid": 2})):
        held.add(job, 2.0**30, "submit", context, ["g", "r", firing, job])
        held.add(job, 2.0**30, "validate")
    assert [item[5] for item in held.take()] == [["g", "r", 1], ["g", "r", 2], ["g", "r", 1]]


def test_they_are_told_in_the_place_of_the_last_of_them() -> None:
    held = Held()
    live(held, 7, 2.0**30)
    held.add(8, 2.0**30, "memo", {"x": 1})
    live(held, 9, 2.0**30)
    held.add(10, 2.0**30, "memo", {"x": 2})
    memo, alike, other = held.take()
    assert (memo[1], other[1]) == (8, 10)
    assert [one.job for one in read([alike])] == [make(3, 7), make(3, 9)]


@pytest.mark.parametrize(
    ("position", "event"),
    [
        (3, ["finish", {"status": 256}]),
        (3, ["finish", {"status": False}]),
        (3, ["finish", {"status": 256, CPU: 5, RSS: 6}]),
        (3, ["finish", {"status": 0, CPU: 5}]),
        (3, ["finish", {"status": 0, CPU: 5.0, RSS: 6}]),
        (3, ["finish", {"status": 0, CPU: 5, RSS: True}]),
        (3, ["exception", {"type": "cancel", "severity": 0}]),
        (2, ["start", {"ranks": "0"}]),
        (2, ["start", {"t_alloc": None, "ranks": "0"}]),
        (2, ["start", {"t_alloc": 1 / 3, "ranks": "0"}]),
        (4, ["clean", {"note": "n"}]),
    ],
    ids=str,
)
def test_what_is_no_part_of_a_plain_life_is_told_as_it_is(position: int, event: list[Any]) -> None:
    held, entries = Held(), list[list[Any]]([name] for name in LIFE)
    entries[3].append({"status": 0})
    entries[position] = event
    for number, entry in enumerate(entries):
        name, context = entry[0], entry[1] if len(entry) > 1 else None
        held.add(7, 2.0**30 + number, name, context, None if number else ["g", "r", 1, 0])
    ((t, job, events, _),) = held.take()
    assert (t, job) == (2.0**30 + 4, 7)
    assert events == [[2.0**30 + number, *entry] for number, entry in enumerate(entries)]


def test_a_time_that_is_finer_than_those_of_flux_is_told_as_it_is() -> None:
    held = Held()
    held.add(7, 1 / 3, "start")
    assert held.take() == [[1 / 3, 7, "start"]]
    held.add(7, 1 / TICKS, "start")
    assert held.take()[0][0] == ALIKE
