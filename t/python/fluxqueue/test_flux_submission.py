"""What an ensemble submits, with a queue that answers when the test says so."""

from __future__ import annotations

from typing import Any

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import SubmitJobs
from flux_ensemble.engine.events import CommandDone, Tag
from flux_ensemble.members.flux.delivery import Answer, Outcomes
from flux_ensemble.members.flux.pipeline import Pipeline, Window
from flux_ensemble.members.flux.submission import Submitter


class Timer:
    """A timer that does not fire."""

    def cancel(self) -> None:
        pass


class Queue:
    """A queue that keeps the answers of what is sent to it; two jobs are under way at once."""

    def __init__(self) -> None:
        self.later: list[Any] = []
        self.answers: list[Answer] = []
        self.submissions = Pipeline(Window(2), self.later.append)
        self.outcomes = Outcomes(lambda done: None, lambda seconds, callback: Timer())

    def send(self, text: str, urgency: int, answer: Answer, *, validate: bool) -> None:
        self.answers.append(answer)


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
    queue.answers[0](100)
    assert len(queue.answers) == 3
    member.seen(Tag("a", "rule", 1, 1), 101)
    member.seen(Tag("a", "rule", 1, 1), 101)
    while queue.later:
        queue.later.pop()()
    assert len(queue.answers) == 4
    for number in (1, 2, 3, 4):
        queue.answers[number](100 + number)
    assert outcomes == [CommandDone(outcomes[0].t, 1, {"ids": [100, 101, 102, 103, 104]})]
