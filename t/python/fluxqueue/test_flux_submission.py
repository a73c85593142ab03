"""What an ensemble submits, with a queue that answers when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import SubmitJobs
from flux_ensemble.engine.events import CommandDone, CommandFailed, Tag
from flux_ensemble.members.flux.delivery import ROUNDS, Answer, Outcomes
from flux_ensemble.members.flux.pipeline import Pipeline, Report, Window
from flux_ensemble.members.flux.submission import Submitter


class Timer:
    """A timer that does not fire."""

    def cancel(self) -> None:
        pass


class Queue:
    """A queue that keeps the answers of what is sent to it; two jobs are under way at once."""

    def __init__(self) -> None:
        self.turns: list[Callable[[], None]] = []
        self.later = self.turns.append
        self.answers: list[Answer] = []
        self.submissions = Pipeline(Window(2), self.later, clock=lambda: 0.0)
        self.fences: list[Report] = []
        self.outcomes = Outcomes(self.fences.append, lambda seconds, callback: Timer())

    def send(self, text: str, urgency: int, answer: Answer, *, validate: bool) -> None:
        self.answers.append(answer)

    def turn(self) -> None:
        while self.turns:
            self.turns.pop()()


def test_the_journal_makes_room_for_the_next_jobs_and_the_responses_say_what_became_of_them() -> (
    None
):
    queue = Queue()
    spec = load_mapping({"name": "test", "jobs": [{"name": "a", "command": "true", "count": 5}]})
    member = Submitter(queue, spec, run=1, environment={}, cwd="/")  # type: ignore[arg-type]
    outcomes: list[Any] = []
    member.submit(SubmitJobs(1, "a", "rule", 1, 0, 5), outcomes.append)
    # The validators look at the first one.
    assert len(queue.answers) == 1
    member.seen(Tag("a", "rule", 1, 0), 100)
    queue.answers[0](100)
    assert len(queue.answers) == 3
    member.seen(Tag("a", "rule", 1, 1), 101)
    member.seen(Tag("a", "rule", 1, 1), 101)
    queue.turn()
    assert len(queue.answers) == 4
    queue.answers[1](101)
    for number in (2, 3, 4):
        member.seen(Tag("a", "rule", 1, number), 100 + number)
        queue.turn()
        queue.answers[number](100 + number)
    assert outcomes == [CommandDone(outcomes[0].t, 1, {"ids": [100, 101, 102, 103, 104]})]


def submit_one(queue: Queue) -> tuple[Submitter, list[Any]]:
    spec = load_mapping({"name": "test", "jobs": [{"name": "a", "command": "true"}]})
    member = Submitter(queue, spec, run=1, environment={}, cwd="/")  # type: ignore[arg-type]
    outcomes: list[Any] = []
    member.submit(SubmitJobs(1, "a", "rule", 1, 0, 1), outcomes.append)
    return member, outcomes


def test_a_job_with_an_id_that_the_journal_shows_later_is_accepted() -> None:
    queue = Queue()
    member, outcomes = submit_one(queue)
    queue.answers[0](7)
    assert not outcomes
    member.seen(Tag("a", "rule", 1, 0), 7)
    queue.fences.pop()(None)
    assert outcomes == [CommandDone(outcomes[0].t, 1, {"ids": [7]})]
    assert len(queue.answers) == 1


def test_a_job_that_is_given_ids_and_is_never_there_is_refused() -> None:
    queue = Queue()
    _, outcomes = submit_one(queue)
    for number in range(ROUNDS):
        queue.answers[number](7 + number)
        queue.fences.pop()(None)
    (failed,) = outcomes
    assert isinstance(failed, CommandFailed)
    assert failed.reason == "job 0: the queue has given it an id, and does not have it (EPROTO)"
