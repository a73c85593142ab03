"""The pipeline: bounded, fair, in order, and every batch is finished once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flux_ensemble.queues.flux.pipeline import TURN_SECONDS, Calls, Pipeline, Report, Window


class Bench:
    """A pipeline whose calls are answered by the test."""

    def __init__(self, limit: int) -> None:
        self.later: list[Callable[[], None]] = []
        self.seconds = 0.0
        self.pipeline = Pipeline(Window(limit), self.later.append, lambda: self.seconds)
        self.calls: list[tuple[str, int]] = []
        self.reports: dict[tuple[str, int], Report] = {}
        self.finished: list[str] = []
        self.batches: dict[str, Calls] = {}

    def add(
        self,
        name: str,
        count: int,
        *,
        lane: str = "",
        stop_at_error: bool = True,
        start: Callable[[int, Report], None] | None = None,
        alone: int | None = None,
    ) -> Calls:
        def keep(call: int, report: Report) -> None:
            self.calls.append((name, call))
            self.reports[name, call] = report
            batch.alone = alone if call == alone else batch.alone

        batch = Calls(
            count,
            start or keep,
            lambda batch: self.finished.append(name),
            stop_at_error=stop_at_error,
        )
        self.batches[name] = batch
        self.pipeline.add(lane or name, batch)
        return batch

    def answer(self, name: str, call: int, error: Exception | None = None) -> None:
        self.reports.pop((name, call))(error)


def test_no_more_than_the_limit_are_under_way() -> None:
    bench = Bench(2)
    bench.add("a", 5)
    assert bench.calls == [("a", 0), ("a", 1)]
    bench.answer("a", 1)
    assert bench.calls[2:] == [("a", 2)]


def test_once_the_limit_is_reached_no_call_starts_until_a_quarter_is_answered() -> None:
    bench = Bench(8)
    bench.add("a", 12)
    assert len(bench.calls) == 8
    bench.answer("a", 0)
    assert len(bench.calls) == 8
    bench.answer("a", 1)
    assert len(bench.calls) == 10


def test_before_the_limit_is_reached_nobody_waits_for_company() -> None:
    bench = Bench(8)
    bench.add("a", 7)
    bench.answer("a", 0)
    bench.add("b", 1)
    assert bench.calls[7:] == [("b", 0)]


def test_a_call_that_has_arrived_makes_room_before_it_reports() -> None:
    bench = Bench(2)
    batch = bench.add("a", 5)
    batch.arrived(0)
    assert len(bench.calls) == 2, "not while an event is being handled"
    bench.later.pop()()
    assert bench.calls[2:] == [("a", 2)]
    bench.answer("a", 0)
    assert len(bench.calls) == 3, "it has made room already"
    bench.answer("a", 1)
    assert bench.calls[3:] == [("a", 3)]


def test_a_call_arrives_once_and_not_after_its_report() -> None:
    bench = Bench(2)
    batch = bench.add("a", 6)
    batch.arrived(0)
    batch.arrived(0)
    bench.answer("a", 1)
    batch.arrived(1)
    while bench.later:
        bench.later.pop()()
    assert bench.calls[2:] == [("a", 2), ("a", 3)]


def test_arrivals_of_one_turn_are_looked_at_together() -> None:
    bench = Bench(8)
    batch = bench.add("a", 20)
    for call in range(8):
        batch.arrived(call)
    assert len(bench.later) == 1
    bench.later.pop()()
    assert len(bench.calls) == 16


def test_where_nothing_waits_an_arrival_makes_nobody_wait_for_the_next_turn() -> None:
    bench = Bench(8)
    bench.add("a", 2).arrived(0)
    assert not bench.later
    bench.add("b", 1)
    assert bench.calls[2:] == [("b", 0)]


def test_a_call_that_is_alone_is_waited_for_though_it_has_arrived() -> None:
    bench = Bench(10)
    batch = bench.add("a", 3, alone=0)
    batch.arrived(0)
    assert bench.calls == [("a", 0)]
    bench.answer("a", 0)
    assert bench.calls[1:] == [("a", 1), ("a", 2)]


def test_a_batch_is_finished_when_its_calls_have_reported_not_when_they_have_arrived() -> None:
    bench = Bench(10)
    batch = bench.add("a", 1)
    batch.arrived(0)
    assert bench.finished == []
    bench.answer("a", 0)
    assert bench.finished == ["a"]


@pytest.mark.parametrize(
    ("seconds", "limit"), [(1.0, 40), (0.1, 300), (0.5, 80), (20.0, 10), (0.0, 100)]
)
def test_a_window_has_as_many_as_are_answered_in_its_time(seconds: float, limit: int) -> None:
    now = 0.0
    window = Window(100, seconds=1.0, low=10, high=300, clock=lambda: now)
    assert window.has_room(99)
    assert not window.has_room(100)
    now = seconds
    assert not window.has_room(76)
    assert window.has_room(60) == (limit > 60)
    assert window.limit == limit


def test_a_window_that_has_shrunk_waits_until_there_is_room_again() -> None:
    now = 0.0
    window = Window(100, seconds=1.0, low=10, high=300, clock=lambda: now)
    assert not window.has_room(100)
    now = 1.0
    assert not window.has_room(75)
    assert window.limit == 25
    assert not window.has_room(25)
    now = 1.25
    assert window.has_room(18)


def test_lanes_take_turns() -> None:
    bench = Bench(2)
    bench.add("a", 4)
    bench.add("b", 4)
    for call in range(2):
        bench.answer("a", call)
    assert bench.calls == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
    bench.answer("a", 2)
    bench.answer("b", 0)
    assert bench.calls[4:] == [("a", 3), ("b", 1)]


def test_batches_of_one_lane_start_in_order() -> None:
    bench = Bench(3)
    bench.add("first", 2, lane="x")
    bench.add("second", 2, lane="x")
    assert bench.calls == [("first", 0), ("first", 1), ("second", 0)]


def test_a_batch_finishes_when_its_last_call_has_reported() -> None:
    bench = Bench(9)
    bench.add("a", 2)
    bench.answer("a", 1)
    assert not bench.finished
    bench.answer("a", 0)
    assert bench.finished == ["a"]
    assert not bench.batches["a"].errors


def test_a_batch_of_no_calls_finishes_at_once() -> None:
    bench = Bench(1)
    bench.add("a", 0)
    assert bench.finished == ["a"]


def test_after_an_error_no_more_calls_start_and_those_under_way_are_awaited() -> None:
    bench = Bench(2)
    batch = bench.add("a", 5)
    error = OSError(22, "no")
    bench.answer("a", 0, error)
    assert not bench.finished
    bench.answer("a", 1)
    assert bench.finished == ["a"]
    assert bench.calls == [("a", 0), ("a", 1)]
    assert batch.errors == [(0, error)]


def test_a_batch_can_go_on_after_errors() -> None:
    bench = Bench(1)
    batch = bench.add("a", 2, stop_at_error=False)
    bench.answer("a", 0, OSError(1, "x"))
    bench.answer("a", 1, OSError(2, "y"))
    assert [call for call, _ in batch.errors] == [0, 1]
    assert bench.finished == ["a"]


def test_an_exception_at_the_start_of_a_call_is_its_report() -> None:
    def refuse(call: int, report: Report) -> None:
        raise RuntimeError("injected")

    bench = Bench(1)
    batch = bench.add("a", 3, start=refuse)
    assert bench.finished == ["a"]
    assert [type(error) for _, error in batch.errors] == [RuntimeError]


def test_calls_that_report_at_once_do_not_nest() -> None:
    bench = Bench(1)
    batch = bench.add("a", 5000, start=lambda call, report: report(None))
    assert bench.finished == ["a"]
    assert batch.started == 5000


def test_a_revoked_lane_starts_nothing_more_and_its_batches_finish() -> None:
    bench = Bench(1)
    first = bench.add("first", 3, lane="x")
    second = bench.add("second", 3, lane="x")
    bench.add("other", 1)
    bench.pipeline.revoke("x")
    assert bench.finished == ["second"]
    bench.answer("first", 0)
    assert bench.finished == ["second", "first"]
    assert first.revoked
    assert second.revoked
    assert bench.calls == [("first", 0), ("other", 0)]


def test_a_lane_can_be_used_again_after_it_was_revoked() -> None:
    bench = Bench(1)
    bench.add("a", 2)
    bench.pipeline.revoke("a")
    bench.answer("a", 0)
    bench.add("b", 1, lane="a")
    assert bench.calls == [("a", 0), ("b", 0)]


def test_a_batch_may_be_added_and_its_lane_revoked_from_within_a_call() -> None:
    bench = Bench(1)

    def start(call: int, report: Report) -> None:
        bench.pipeline.revoke("a")
        bench.add("b", 1, lane="a")
        report(None)

    bench.add("a", 2, start=start)
    assert bench.finished == ["a"]
    assert bench.calls == [("b", 0)]
    bench.answer("b", 0)
    assert bench.finished == ["a", "b"]


def test_calls_that_take_long_to_start_leave_the_loop_its_turn() -> None:
    bench = Bench(1000)

    def start(call: int, report: Report) -> None:
        bench.seconds += TURN_SECONDS / 10
        report(None)

    batch = bench.add("a", 25, start=start)
    assert batch.started == 10
    bench.add("b", 1, start=start)
    assert len(bench.later) == 1
    bench.later.pop()()
    assert bench.finished == ["b"]
    assert batch.started == 19
    bench.later.pop()()
    assert bench.finished == ["b", "a"]
    assert not bench.later


def test_starts_that_responses_bring_about_count_too() -> None:
    bench = Bench(1)

    def start(call: int, report: Report) -> None:
        bench.seconds += TURN_SECONDS / 2
        bench.reports["a", call] = report

    batch = bench.add("a", 9, start=start)
    bench.answer("a", 0)
    bench.answer("a", 1)
    assert batch.started == 2
    bench.later.pop()()
    assert batch.started == 3


def test_starts_that_are_far_apart_take_no_turn_from_the_loop() -> None:
    bench = Bench(1000)

    def start(call: int, report: Report) -> None:
        bench.seconds += TURN_SECONDS

    for number in range(3):
        bench.add(f"{number}", 1, start=start)
        bench.seconds += 2 * TURN_SECONDS
    assert not bench.later
    assert [batch.started for batch in bench.batches.values()] == [1, 1, 1]


def test_while_it_is_held_nothing_starts() -> None:
    bench = Bench(2)
    bench.add("a", 4)
    bench.pipeline.hold()
    bench.pipeline.hold()
    bench.answer("a", 0)
    bench.pipeline.go_on()
    assert len(bench.calls) == 2
    bench.pipeline.go_on()
    assert len(bench.calls) == 3


def test_what_is_held_can_be_revoked() -> None:
    bench = Bench(2)
    bench.pipeline.hold()
    batch = bench.add("a", 4)
    bench.pipeline.revoke("a")
    assert bench.finished == ["a"]
    assert (batch.started, batch.revoked) == (0, True)


def test_a_batch_steps_aside_for_its_lane_while_one_of_its_calls_is_alone() -> None:
    bench = Bench(10)
    bench.add("first", 3, lane="x", alone=1)
    bench.add("second", 2, lane="x")
    assert bench.calls == [("first", 0), ("first", 1), ("second", 0), ("second", 1)]
    assert bench.pipeline.waiting == 1
    bench.answer("first", 0)
    assert len(bench.calls) == 4
    bench.answer("first", 1)
    assert bench.calls[4:] == [("first", 2)]
    bench.answer("first", 2)
    assert bench.finished == ["first"]


def test_a_batch_that_comes_back_goes_before_those_of_its_lane_that_wait() -> None:
    bench = Bench(1)
    bench.add("first", 2, lane="x", alone=0)
    bench.add("second", 2, lane="x")
    bench.answer("first", 0)
    assert bench.calls == [("first", 0), ("first", 1)]


def test_a_call_that_was_alone_and_fails_is_the_last_one_of_its_batch() -> None:
    bench = Bench(10)
    batch = bench.add("a", 3, alone=0)
    error = OSError()
    bench.answer("a", 0, error)
    assert bench.finished == ["a"]
    assert batch.errors == [(0, error)]
    assert bench.calls == [("a", 0)]


def test_a_batch_that_has_stepped_aside_can_be_revoked() -> None:
    bench = Bench(10)
    batch = bench.add("a", 3, alone=0)
    bench.pipeline.revoke("a")
    assert batch.revoked
    assert bench.finished == []
    bench.answer("a", 0)
    assert bench.finished == ["a"]
    assert bench.calls == [("a", 0)]


def test_a_call_that_reports_at_once_lets_nobody_wait() -> None:
    bench = Bench(10)

    def start(call: int, report: Report) -> None:
        batches[0].alone = call
        report(None)

    batches = [Calls(3, start, lambda batch: None, stop_at_error=True)]
    bench.pipeline.add("a", batches[0])
    assert batches[0].started == 3
