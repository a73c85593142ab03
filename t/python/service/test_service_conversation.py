"""When the service of a member says what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from fakes import FakeLoop

from flux_ensemble.queues.nested.send_buffer import QUICK_SECONDS
from flux_ensemble.service.conversation import FULL, Conversation

#: So long that nothing is due in a test because of the time.
LONG = 100_000.0


class Parent:
    """A service that takes what is sent and answers when it is told to."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.sent: list[dict[str, Any]] = []
        self._answers: list[Callable[[], None]] = []

    def send(self, message: Mapping[str, Any], answered: Callable[[Any], None]) -> None:
        self.sent.append(dict(message))
        answer = {"number": 0, "taken": message["number"], "items": []}
        self._answers.append(partial(answered, answer))

    def answer(self) -> None:
        self._answers.pop(0)()

    def wait(self, reports: int) -> None:
        """Until so many reports were sent."""
        while len(self.sent) < reports:
            self.loop.timers[-1].callback()


@pytest.fixture
def parent() -> Parent:
    return Parent()


@pytest.fixture
def talk(parent: Parent) -> Any:
    def end(code: int, reason: str) -> None:
        raise AssertionError(reason)

    return Conversation(parent.loop, parent.send, lambda item: None, lambda: 10, end)


def test_what_comes_after_a_silence_waits_for_company(talk: Any, parent: Parent) -> None:
    talk.held.seconds = LONG
    talk.event(7, 1.0, "start")
    talk.event(8, 1.0, "start")
    assert parent.sent == []


def test_where_something_reacts_to_it_it_does_not(talk: Any, parent: Parent) -> None:
    talk.held.seconds = QUICK_SECONDS
    talk.event(7, 1.0, "start")
    assert len(parent.sent) == 1


def test_an_acknowledgement_waits_for_what_is_said_to_what_was_asked(
    talk: Any, parent: Parent
) -> None:
    talk.held.seconds = LONG
    talk.take({"number": 1, "taken": 0, "items": [["submit"]]})
    assert parent.sent == []


def test_a_full_report_goes_at_once(talk: Any, parent: Parent) -> None:
    talk.held.seconds = LONG
    for job in range(FULL):
        assert parent.sent == []
        talk.event(job, 1.0, "start")
    (report,) = parent.sent
    assert len(report["items"]) == 1


def test_what_is_no_event_of_a_job_takes_those_along(talk: Any, parent: Parent) -> None:
    talk.held.seconds = LONG
    talk.event(7, 1.0, "start")
    talk.say("facts", 1, 4, 0, None)
    parent.wait(1)
    assert [item[0] for item in parent.sent[0]["items"]] == ["alike", "facts"]


def test_a_report_waits_for_the_answer_to_the_one_before(talk: Any, parent: Parent) -> None:
    talk.held.seconds = QUICK_SECONDS
    talk.event(7, 1.0, "start")
    talk.say("ending")
    assert len(parent.sent) == 1
    parent.answer()
    parent.wait(2)
    assert [item[0] for item in parent.sent[1]["items"]] == ["ending"]
