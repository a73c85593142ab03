"""Every request has one answer, whatever else is asked, and whatever becomes of its ensemble."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from fakes import (
    FakeHost,
    FakeMember,
    MemoryStore,
)
from hypothesis import given
from hypothesis import strategies as st
from play import document, on_start

from flux_ensemble import eventlog
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import SubmitJobs
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.events import CommandDone, CommandFailed
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.ports import Done


class Queue(FakeMember):
    """Keeps the outcome of submissions back."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[SubmitJobs, Done]] = []

    def submit(self, command: SubmitJobs, done: Done) -> None:
        self.open.append((command, done))


class Asked:
    """A request, and its answers."""

    def __init__(self, op: str) -> None:
        self.op = op
        self.answers: list[Any] = []

    def answer(self, result: Any) -> None:
        self.answers.append(result)


class Bench:
    """One ensemble, whose KVS and queue do what a test says, and those who have asked."""

    def __init__(self) -> None:
        self.queue = Queue()
        host = FakeHost(queue=self.queue, kept=MemoryStore(at_once=False))
        self.loop, self.store = host.loop, host.kept
        self.asked: list[Asked] = []
        self.ensemble = Ensemble(
            load_mapping(document(rules=[on_start("a", count=2)], finish="never")),
            host,
            run=1,
            cwd="/w",
        )
        self.ensemble.owe(self._asks("load"))
        self.ensemble.note(eventlog.Load(document={}))

    def _asks(self, op: str) -> Callable[[Any], None]:
        self.asked.append(Asked(op))
        return self.asked[-1].answer

    def ask(self, op: str) -> None:
        args = {"group": "a"} if op == "submit" else {}
        self.ensemble.ask(op, args, self._asks(op))

    def start(self) -> None:
        """As the service does, once."""
        if not self.ensemble.ended and self.ensemble.engine.t_start is None:
            self.ensemble.start()

    def commit(self, error: Exception | None = None) -> None:
        """The oldest commit under way is answered."""
        if self.store.dones:
            self.store.answer(error)

    def wait(self) -> None:
        """The timers that run come due."""
        due, self.loop.timers = self.loop.timers, []
        for timer in due:
            if not timer.cancelled:
                timer.callback()

    def outcome(self, failed: bool) -> None:
        """The oldest submission comes to something."""
        if self.queue.open:
            command, done = self.queue.open.pop(0)
            if failed:
                done(CommandFailed(1000.0, command.id, "EINVAL", "no such queue"))
            else:
                done(CommandDone(1000.0, command.id, {"ids": list(range(command.count))}))

    def do(self, step: str) -> None:
        match step:
            case "start":
                self.start()
            case "commit":
                self.commit()
            case "refuse":
                self.commit(OSError(errno.EIO, "no"))
            case "wait":
                self.wait()
            case "done":
                self.outcome(failed=False)
            case "failed":
                self.outcome(failed=True)
            case "broken":
                self.ensemble.broken(RuntimeError("injected"))
            case "suspend":
                self.ensemble.suspend()
            case "close":
                self.ensemble.close(errno.ENOENT, "it was unloaded")
            case op:
                self.ask(op)


ASKED = ("submit", "pause", "resume", "terminate", "cancel")
STEPS = (*ASKED, "start", "commit", "refuse", "wait", "done", "failed", "broken")


@given(
    st.lists(st.sampled_from((*STEPS, *STEPS, "suspend", "close")), max_size=30),
)
def test_each_request_has_one_answer_in_the_end(steps: list[str]) -> None:
    bench = Bench()
    for step in steps:
        bench.do(step)
        assert all(len(one.answers) <= 1 for one in bench.asked)
    bench.do("close")
    for _ in range(3):
        bench.commit()
        bench.wait()
    assert all(len(one.answers) == 1 for one in bench.asked)


@given(st.lists(st.sampled_from(STEPS), max_size=30))
def test_each_has_its_answer_as_soon_as_all_is_durable_and_has_an_outcome(steps: list[str]) -> None:
    """Without waiting for the end of the service, or of the ensemble."""
    bench = Bench()
    for step in (*steps, "start", "resume"):
        bench.do(step)
    while bench.store.dones or bench.queue.open or bench.loop.timers:
        bench.commit()
        bench.outcome(failed=False)
        bench.wait()
    assert all(len(one.answers) == 1 for one in bench.asked)


def load_answer(*steps: str) -> Any:
    """The answer to the request that loaded it, after some steps."""
    bench = Bench()
    for step in steps:
        bench.do(step)
    (answer,) = bench.asked[0].answers
    return answer


def test_a_load_that_is_unloaded_before_it_is_durable_says_so() -> None:
    answer = load_answer("start", "terminate", "close")
    assert isinstance(answer, RequestError)
    assert answer.errno == errno.ENOENT


def test_a_load_whose_ensemble_was_cancelled_before_it_began_succeeds() -> None:
    answer = load_answer("cancel", "commit", "wait", "commit", "wait", "commit")
    assert answer == {"name": "test", "state": "canceled"}


def test_a_load_is_answered_when_the_instance_shuts_down() -> None:
    assert load_answer("start", "suspend").errno == errno.EAGAIN


def test_a_request_to_an_ended_ensemble_is_answered_when_that_breaks_meanwhile() -> None:
    bench = Bench()
    for step in ("cancel", "commit", "wait", "commit"):
        bench.do(step)
    assert not bench.ensemble.live
    # Nothing is said while it is not known whether the log can be written.
    for step in ("pause", "refuse", "resume", "broken"):
        bench.do(step)
    assert not bench.asked[-1].answers
    for _ in range(3):
        bench.do("wait")
        bench.do("commit")
    assert [type(one) for one in bench.asked[-1].answers] == [RequestError]
