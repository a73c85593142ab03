"""What is held back, to be told together."""

from __future__ import annotations

from flux_ensemble.queues.nested.send_buffer import OWED_SECONDS, PACE_SECONDS, Held

TAG = ["sim", "r", 1, 0]


def test_an_event_alone_is_told_as_ever() -> None:
    held = Held()
    held.add(7, 1.0, "submit", {"userid": 1}, TAG)
    held.add(8, 2.0, "finish", {"status": 0})
    held.add(9, 3.0, "priority", {})
    assert held.take() == [
        [1.0, 7, "submit", {"userid": 1}, TAG],
        [2.0, 8, "finish", {"status": 0}],
        [3.0, 9, "priority"],
    ]
    assert not held
    assert held.take() == []


def test_a_first_event_without_a_context_has_its_tag_in_its_place() -> None:
    held = Held()
    held.add(7, 1.0, "submit", {}, TAG)
    assert held.take() == [[1.0, 7, "submit", {}, TAG]]


def test_events_of_a_job_are_one_item_in_their_order_at_the_place_of_the_last() -> None:
    held = Held()
    held.add(7, 1.0, "submit", {"userid": 1}, TAG)
    held.add(8, 1.5, "start")
    # The clock was set back.
    held.add(7, 0.5, "validate")
    held.add(8, 2.0, "finish", {"status": 0})
    held.add(9, 2.5, "priority")
    held.add(7, 0.7, "start", {"ranks": "0"})
    assert held.take() == [
        [2.0, 8, [[1.5, "start"], [2.0, "finish", {"status": 0}]]],
        [2.5, 9, "priority"],
        [
            1.0,
            7,
            [[1.0, "submit", {"userid": 1}], [0.5, "validate"], [0.7, "start", {"ranks": "0"}]],
            TAG,
        ],
    ]


def test_what_comes_after_is_told_without_the_tag() -> None:
    held = Held()
    held.add(7, 1.0, "submit", {"userid": 1}, TAG)
    held.take()
    held.add(7, 2.0, "start")
    held.add(7, 3.0, "clean")
    assert held.take() == [[3.0, 7, [[2.0, "start"], [3.0, "clean"]]]]


def test_outcomes_come_first_and_wait_less_long_than_events() -> None:
    held = Held()
    held.seconds = 1.0
    held.add(7, 1.0, "priority")
    assert held.patience(active=10) == 1.0
    held.add_outcome(["outcome", 1, {}])
    assert held.patience(active=10) == OWED_SECONDS
    assert held.take() == [["outcome", 1, {}], [1.0, 7, "priority"]]
    assert held.patience(active=10) == 1.0


def test_nothing_waits_when_a_quarter_of_the_jobs_has_ended() -> None:
    held = Held()
    held.seconds = 1.0
    held.ended()
    held.ended()
    assert held.patience(active=7) == 1.0
    assert held.patience(active=6) == PACE_SECONDS
    held.take()
    assert held.patience(active=0) == 1.0


def test_before_it_is_known_how_long_events_may_wait_they_wait_for_no_others() -> None:
    assert Held().patience(active=10) == PACE_SECONDS
