"""The driver: the engine's commands are performed in order, and nothing escapes it."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import (
    FakeHost,
    FakeOutput,
    Result,
)
from play import document, on_start

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import SubmitJobs
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import (
    CommandDone,
    CommandFailed,
    Event,
    JobEvent,
    MemberChanged,
    Request,
    Started,
)
from flux_ensemble.runtime.driver import Driver
from flux_ensemble.runtime.ports import Done, Tap


class Faulty:
    """A name that the engine cannot look up."""

    def __hash__(self) -> int:
        raise ZeroDivisionError("injected")


class Bench:
    """A driver of a real engine, with everything else faked."""

    def __init__(self, tap: Tap | None = None, **given: Any) -> None:
        self.engine = Engine(load_mapping(document(**given)))
        self.host, self.output = FakeHost(), FakeOutput()
        self.loop, self.member, self.callers = self.host.loop, self.host.queue, self.host.callers
        self.driver = Driver(self.engine, self.host, self.output, tap)

    def start(self) -> Bench:
        self.driver.post(Started(1000.0))
        return self

    def ask(self, op: str, **args: Any) -> None:
        self.driver.post(Request(1000.0, 1, op, args))

    @property
    def names(self) -> list[str]:
        return [record.name for record in self.output.records]


CUSTOM = "def f(**kwargs): ..."
CALL = {"trigger": "start", "action": {"name": "custom", "label": "f", "timeout": 7}}


def test_commands_go_to_the_member_and_outcomes_come_back() -> None:
    bench = Bench(rules=[on_start("a")]).start()
    assert [command.group for command in bench.member.submitted] == ["a"]
    assert bench.names == ["start", "fire", "outcome"]


def test_a_member_is_asked_for_another_size_and_its_refusal_comes_back() -> None:
    bench = Bench(rules=[{"trigger": "start", "action": {"name": "grow"}}])
    bench.driver.post(MemberChanged(1000.0, "default", 2, 2, 2, 1, 4))
    bench.start()
    assert bench.names[:4] == ["start", "fire", "scale", "outcome"]
    assert bench.output.records[3].context["reason"] == "the instance has a fixed size"


def test_what_is_posted_from_within_waits_for_its_turn() -> None:
    handled: list[tuple[type[Event], int]] = []

    def tap(event: Event, commands: list[Any]) -> None:
        handled.append((type(event), len(bench.member.submitted)))

    bench = Bench(tap, rules=[on_start("a"), on_start("b")])
    bench.start()
    # The member answers at once, and yet both commands of the first event come first.
    assert handled == [(Started, 0), (CommandDone, 2), (CommandDone, 2)]
    assert len(bench.output.settlings) == 1


def test_what_people_read_comes_after_what_later_events_have_the_queue_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    benches: list[Bench] = []
    submitted: list[int] = []

    def record(*_: Any) -> None:
        submitted.append(len(benches[0].member.submitted))

    monkeypatch.setattr(FakeOutput, "record", record)
    benches.append(Bench(rules=[on_start("a")], finish="never"))
    request = Request(1000.0, 1, "submit", {"group": "b"})
    benches[0].driver.post(Started(1000.0), request)
    assert submitted[:3] == [2, 2, 2]


def test_what_was_put_down_is_told_though_a_later_event_is_a_fault() -> None:
    bench = Bench(rules=[on_start("a")], finish="never")
    bench.driver.post(Started(1000.0), Request(1000.0, 1, "cancel", {"group": Faulty()}))
    assert [type(error) for error in bench.output.errors] == [ZeroDivisionError]
    assert bench.names == ["start", "fire"]


def test_an_exception_closes_the_driver_and_the_host_is_told() -> None:
    bench = Bench(finish="never").start()
    bench.ask("cancel", group=Faulty())
    bench.ask("pause")
    assert [type(error) for error in bench.output.errors] == [ZeroDivisionError]
    assert len(bench.member.revocations) == 1


class Panic(BaseException):
    """What compiled code raises."""


@pytest.mark.parametrize("error", [Panic("injected"), MemoryError(), RecursionError()])
def test_a_fault_of_whatever_kind_is_no_more_than_that(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: SubmitJobs, done: Done) -> None:
        raise error

    bench = Bench(rules=[on_start("a")])
    monkeypatch.setattr(bench.member, "submit", fail)
    bench.start()
    bench.ask("pause")
    assert bench.output.errors == [error]


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_who_wants_the_process_to_end_is_obeyed(
    ending: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: SubmitJobs, done: Done) -> None:
        raise ending

    bench = Bench(rules=[on_start("a")])
    monkeypatch.setattr(bench.member, "submit", fail)
    with pytest.raises(ending):
        bench.start()
    assert not bench.output.errors


def test_an_exception_of_the_member_is_caught_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: SubmitJobs, done: Done) -> None:
        raise RuntimeError("injected")

    bench = Bench(rules=[on_start("a")])
    monkeypatch.setattr(bench.member, "submit", fail)
    bench.start()
    assert [type(error) for error in bench.output.errors] == [RuntimeError]


def test_a_timer_fires_once_and_is_stopped_when_the_ensemble_ends() -> None:
    once = {"trigger": "timer", "after": 5, "action": {"name": "submit", "label": "b"}}
    every = {
        "trigger": "timer",
        "every": 9,
        "action": {"name": "submit", "label": "b", "repetitions": "unlimited"},
    }
    bench = Bench(rules=[once, every], finish="never").start()
    assert [(timer.after, timer.every) for timer in bench.loop.timers] == [(5, 0), (9, 9)]
    bench.loop.timers[0].callback()
    assert len(bench.member.submitted) == 1
    bench.ask("terminate")
    assert [timer.cancelled for timer in bench.loop.timers] == [False, True]


def test_a_custom_function_is_called_in_a_worker_that_is_started_once() -> None:
    bench = Bench(rules=[CALL, CALL], custom=CUSTOM).start()
    assert len(bench.callers) == 1
    assert [call[:2] for call in bench.callers[0].calls] == [("f", 7.0)] * 2
    bench.callers[0].calls[0][2](Result(True))
    bench.callers[0].calls[1][2](Result(False, reason="it raised", detail="Traceback"))
    assert bench.names.count("custom-error") == 1
    assert bench.output.finished[0].state == "completed"


def test_the_worker_is_closed_when_the_ensemble_ends_and_late_results_are_ignored() -> None:
    bench = Bench(rules=[CALL], custom=CUSTOM).start()
    bench.ask("terminate")
    caller = bench.callers[0]
    assert caller.closed
    before = list(bench.output.records)
    caller.calls[0][2](Result(True))
    assert bench.output.records == before
    assert bench.engine.idle


def test_no_worker_is_started_where_no_function_is_called() -> None:
    assert not Bench(rules=[on_start("a")], custom=CUSTOM).start().callers


def test_unsent_jobs_are_revoked_as_soon_as_the_ensemble_ends() -> None:
    bench = Bench(rules=[on_start("a")], finish="never").start()
    assert not bench.member.revocations
    bench.ask("cancel")
    bench.driver.post(JobEvent(1001.0, 1, "clean"))
    assert len(bench.member.revocations) == 1


def test_a_closed_driver_ignores_events() -> None:
    bench = Bench(rules=[on_start("a")])
    bench.driver.close()
    bench.start()
    assert not bench.output.records
    assert not bench.member.submitted


def test_a_submission_that_fails_after_the_end_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(rules=[on_start("a")], finish="never")
    later: list[Done] = []
    monkeypatch.setattr(bench.member, "submit", lambda command, done: later.append(done))
    bench.start()
    bench.ask("terminate")
    later[0](CommandFailed(1001.0, 1, "ECANCELED", "the ensemble ended", ids=()))
    assert bench.engine.state == "completed"
    assert bench.engine.idle
