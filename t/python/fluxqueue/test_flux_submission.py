"""What an ensemble submits, with a queue that answers when the test says so."""

from __future__ import annotations

import errno
import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from loops import SelectorLoop
from patience import PATIENCE

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import SubmitJobs
from flux_ensemble.engine.events import CommandDone, CommandFailed, Tag
from flux_ensemble.queues.flux.delivery import LONGEST_PAUSE, ROUNDS, Answer, Outcomes
from flux_ensemble.queues.flux.pipeline import Pipeline, Report, Window
from flux_ensemble.queues.flux.submission import LONGEST_WAIT, TELL_SECONDS, EnsembleRun, Submitter
from flux_ensemble.queues.simulation.runner import VirtualLoop
from flux_ensemble.runtime import outputs


class Queue:
    """A queue that keeps the answers of what is sent to it; two jobs are under way at once.

    Attributes:
        closed: what it answers at once, if anything.
        texts: the jobspecs that were sent.
        sent: the jobs of these, by their indices.
        taken: those of them that are to be answered by the test.
    """

    def __init__(self) -> None:
        self.turns: list[Callable[[], None]] = []
        self.later = self.turns.append
        self.answers: list[Answer] = []
        self.closed: Exception | None = None
        self.texts: list[str] = []
        self.sent: list[int] = []
        self.taken: list[int] = []
        self.broker = SimpleNamespace(loop=VirtualLoop())
        self.submissions = Pipeline(Window(2), self.later, clock=lambda: 0.0)
        self.fences: list[Report] = []
        self.outcomes = Outcomes(self.fences.append, self.broker.loop.timer)

    def send(self, text: str, urgency: int, answer: Answer, *, validate: bool) -> None:
        self.texts.append(text)
        tag = json.loads(text)["attributes"]["user"]["ensemble"]
        self.sent.append(tag["index"])
        if self.closed is None:
            self.taken.append(tag["index"])
            self.answers.append(answer)
        else:
            answer(self.closed)

    def turn(self) -> None:
        while self.turns:
            self.turns.pop()()


def test_the_journal_makes_room_for_the_next_jobs_and_the_responses_say_what_became_of_them() -> (
    None
):
    queue = Queue()
    spec = load_mapping({"name": "test", "jobs": [{"name": "a", "command": "true", "count": 5}]})
    member = Submitter(queue, EnsembleRun(spec, 1, {}, "/"))  # type: ignore[arg-type]
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
    member = Submitter(queue, EnsembleRun(spec, 1, {}, "/"))  # type: ignore[arg-type]
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
        queue.broker.loop.run(queue.broker.loop.now() + LONGEST_PAUSE)
    (failed,) = outcomes
    assert isinstance(failed, CommandFailed)
    assert failed.reason == "job 0: the queue has given it an id, and does not have it (EPROTO)"


# -- a queue that takes no jobs for a while ------------------------------------------------

DISABLED = OSError(errno.EINVAL, "job submission to batch is disabled: maintenance")


class Site:
    """An ensemble that submits to a queue which opens and closes; the journal shows each job."""

    def __init__(self, jobs: int = 6, **entry: Any) -> None:
        self.queue = Queue()
        self.loop = self.queue.broker.loop
        document = {
            "name": "test",
            "jobs": [{"name": "a", "command": "true", "count": jobs, **entry}],
        }
        self.told: list[list[str]] = []
        self.member = Submitter(
            self.queue,  # type: ignore[arg-type]
            EnsembleRun(load_mapping(document), 1, {}, "/"),
            news=lambda: self.told.append([wait.kind for wait in self.member.waits()]),
        )
        self.outcomes: list[Any] = []
        self.jobs: Counter[int] = Counter()

    def submit(self, count: int, first: int = 0, id: int = 1) -> None:
        self.member.submit(SubmitJobs(id, "a", "rule", 1, first, count), self.outcomes.append)

    def take(self) -> None:
        """Take what was sent into the queue, and answer."""
        while self.queue.answers or self.queue.turns:
            if self.queue.answers:
                index = self.queue.taken.pop(0)
                self.jobs[index] += 1
                self.member.seen(Tag("a", "rule", 1, index), 100 + index)
                self.queue.answers.pop(0)(100 + index)
            self.queue.turn()

    def wait(self, seconds: float) -> None:
        self.loop.run(self.loop.now() + seconds)


@pytest.mark.parametrize(
    "error",
    [
        DISABLED,
        OSError(errno.EINVAL, "job submission is disabled: "),
        OSError(errno.EPERM, "no queue specified"),
        OSError(errno.EINVAL, "user has max active jobs"),
    ],
    ids=lambda error: error.strerror,
)
def test_jobs_wait_while_the_queue_takes_none_and_are_sent_once_when_it_does(
    error: OSError,
) -> None:
    site = Site()
    site.queue.closed = error
    site.submit(6)
    site.wait(60.0)
    assert set(site.queue.sent) == {0}, "one is sent for all"
    assert not site.outcomes
    site.queue.closed = None
    site.wait(LONGEST_WAIT)
    site.take()
    assert site.outcomes == [CommandDone(site.outcomes[0].t, 1, {"ids": list(range(100, 106))})]
    assert site.jobs == Counter(range(6))


def test_a_look_whether_the_queue_is_open_costs_one_job_in_some_seconds() -> None:
    site = Site(jobs=1000)
    site.submit(1)
    site.take()
    site.queue.closed = DISABLED
    site.submit(999, first=1, id=2)
    site.wait(3600.0)
    assert len(site.queue.sent) < 3600 / LONGEST_WAIT + 20


def test_why_jobs_wait_is_told_after_a_moment_and_that_they_do_no_longer() -> None:
    site = Site()
    site.queue.closed = DISABLED
    site.submit(6)
    assert [(wait.group, wait.kind, wait.reason) for wait in site.member.waits()] == [
        ("a", "disabled", "job submission to batch is disabled: maintenance")
    ]
    assert not site.told
    site.wait(TELL_SECONDS)
    assert site.told == [["disabled"]]
    site.queue.closed = None
    site.wait(LONGEST_WAIT)
    site.take()
    assert site.told[-1] == []
    assert not site.member.waits()


def test_another_reason_why_jobs_wait_is_told_too() -> None:
    site = Site(jobs=1)
    site.queue.closed = OSError(errno.ETIMEDOUT, "no response within 10 s")
    site.submit(1)
    site.wait(TELL_SECONDS)
    assert site.told == [["silent"]]
    site.queue.closed = DISABLED
    site.queue.fences.pop()(None)
    site.wait(TELL_SECONDS)
    assert site.told == [["silent"], ["disabled"]]
    # The same one is told once.
    site.wait(10 * LONGEST_WAIT)
    assert site.told == [["silent"], ["disabled"]]


def test_that_a_job_is_lost_is_said_until_it_is_known_what_became_of_it() -> None:
    site = Site()
    site.submit(6)
    site.take()
    site.submit(2, id=2)
    lost, taken = site.queue.answers
    lost(OSError(errno.ENOSYS, "no such service"))
    site.member.seen(Tag("a", "rule", 1, 1), 101)
    taken(101)
    assert [wait.kind for wait in site.member.waits()] == ["away"]
    site.queue.fences.pop()(OSError(errno.ENOSYS, "no such service"))
    assert [wait.kind for wait in site.member.waits()] == ["away"]
    site.member.seen(Tag("a", "rule", 1, 0), 100)
    site.queue.fences.pop()(None)
    assert not site.member.waits()


def test_a_queue_that_is_gone_for_good_meanwhile_refuses_what_waits() -> None:
    site = Site()
    site.queue.closed = DISABLED
    site.submit(6)
    site.queue.closed = OSError(errno.EPERM, "Invalid queue 'batch' specified")
    site.wait(LONGEST_WAIT)
    (failed,) = site.outcomes
    assert isinstance(failed, CommandFailed)
    assert "Invalid queue 'batch'" in failed.reason
    assert not site.member.waits()


def test_an_ensemble_that_ends_sends_nothing_of_what_waits() -> None:
    site = Site()
    site.queue.closed = DISABLED
    site.submit(6)
    site.member.revoke()
    (failed,) = site.outcomes
    assert (failed.errno, failed.ids) == ("ECANCELED", ())
    sent = len(site.queue.sent)
    site.queue.closed = None
    site.wait(60.0)
    assert len(site.queue.sent) == sent
    assert not site.member.waits()


def test_other_commands_wait_behind_the_same_job_and_other_job_sets_do_not() -> None:
    site = Site()
    site.queue.closed = DISABLED
    site.submit(3)
    site.submit(3, first=3, id=2)
    site.wait(30.0)
    assert set(site.queue.sent) == {0}
    site.queue.closed = None
    site.wait(LONGEST_WAIT)
    site.take()
    assert site.jobs == Counter(range(6))
    assert sorted(outcome.command for outcome in site.outcomes) == [1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_however_often_the_queue_closes_and_opens_each_job_is_sent_into_it_once(seed: int) -> None:
    random, site, jobs = Random(seed), Site(jobs=400), 0
    for round in range(200):
        site.queue.closed = DISABLED if random.random() < 0.5 else None
        if jobs < 400:
            site.submit(2, first=jobs, id=round + 1)
            jobs += 2
        site.wait(random.choice([0.0, 0.05, 0.5, 3.0]))
        if random.random() < 0.5:
            site.take()
    site.queue.closed = None
    for _ in range(20):
        site.wait(LONGEST_WAIT)
        site.take()
    assert site.jobs == Counter(range(jobs))
    assert len(site.outcomes) == 200
    assert all(isinstance(outcome, CommandDone) for outcome in site.outcomes)
    assert not site.member.waits()


def test_a_job_without_its_input_is_sent_and_fails_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "1.in").write_text("")
    site = Site(jobs=2)
    texts: list[str] = []
    send = site.queue.send

    def sent(text: str, *args: Any, **given: Any) -> None:
        texts.append(text)
        send(text, *args, **given)

    site.queue.send = sent  # type: ignore[method-assign]
    with SelectorLoop() as loop:
        site.queue.broker.loop = loop
        job = {"name": "a", "command": "run", "params": {"x": [1, 2]}, "output": "out",
               "workdir": "w/{x}", "inputs": ["{x}.in"]}  # fmt: skip
        site.member = Submitter(
            site.queue,  # type: ignore[arg-type]
            EnsembleRun(load_mapping({"name": "test", "jobs": [job]}), 1, {}, str(tmp_path)),
        )
        site.submit(2)
        while not site.outcomes:
            loop.run(lambda: bool(site.queue.answers or site.outcomes))
            site.take()
    (good, bad) = map(json.loads, texts)
    assert good["tasks"][0]["command"] == ["run"]
    assert bad["tasks"][0]["command"] == [
        f"cannot link the input '{tmp_path}/2.in': it does not exist"
    ]
    # It does not empty the file of an earlier attempt.
    assert "output" in good["attributes"]["system"]["shell"]["options"]
    assert "output" not in bad["attributes"]["system"]["shell"]["options"]
    assert (tmp_path / "w" / "1" / "1.in").is_symlink()


def test_jobs_wait_for_their_directories_in_order_and_are_sent_after_a_fence_that_came_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(jobs=3)
    free = threading.Event()

    def slow(wanted: Any) -> str | None:
        assert free.wait(PATIENCE)
        return None

    monkeypatch.setattr(outputs, "_make", slow)
    with SelectorLoop() as loop:
        site.queue.broker.loop = loop
        document = {
            "name": "test",
            "jobs": [
                {"name": "a", "command": "true", "params": {"x": [1, 2, 3]}, "output": "{x}/out"}
            ],
        }
        site.member = Submitter(
            site.queue,  # type: ignore[arg-type]
            EnsembleRun(load_mapping(document), 1, {}, str(tmp_path)),
        )
        site.submit(3)
        assert site.queue.sent == []
        # Nothing is sent while a fence is on its way: it says that all before it has shown.
        site.queue.submissions.hold()
        free.set()
        loop.run(lambda: site.member._outputs.are_made)
        assert site.queue.sent == []
        site.queue.submissions.go_on()
        loop.run(lambda: bool(site.queue.sent))
        while not site.outcomes:
            site.take()
            loop.run(lambda: bool(site.queue.answers or site.outcomes))
        assert site.queue.sent == [0, 1, 2]
        assert site.outcomes == [CommandDone(site.outcomes[0].t, 1, {"ids": [100, 101, 102]})]


@pytest.mark.parametrize("key", ["queue", "bank"])
def test_jobs_for_an_open_queue_do_not_wait_behind_those_for_a_closed_one(key: str) -> None:
    site = Site(jobs=2, params={"q": ["shut", "open", "{index}"]}, **{key: "{q}"})
    queue = site.queue
    send = queue.send

    def sent(text: str, urgency: int, answer: Answer, *, validate: bool) -> None:
        system = json.loads(text)["attributes"]["system"]
        queue.closed = DISABLED if closed and system[key] == "shut" else None
        send(text, urgency, answer, validate=validate)

    closed = True
    queue.send = sent  # type: ignore[method-assign]
    site.submit(6)
    site.take()
    assert sorted(site.jobs) == [2, 3, 4, 5]
    site.wait(3 * LONGEST_WAIT)
    site.take()
    assert sorted(site.jobs) == [2, 3, 4, 5]
    assert [wait.kind for wait in site.member.waits()] == ["disabled"]
    assert not site.outcomes
    closed = False
    site.wait(LONGEST_WAIT)
    site.take()
    site.wait(LONGEST_WAIT)
    site.take()
    assert site.jobs == dict.fromkeys(range(6), 1)
    assert not site.member.waits()
    assert [type(one) for one in site.outcomes] == [CommandDone]


class _Others:
    """Says when asked for it what a job can be kept off."""

    def __init__(self) -> None:
        self.answer: Callable[[str], None] = lambda ranks: None

    def without(self, jobspec: Any, off: Any) -> Any:
        return (yield lambda resume: setattr(self, "answer", resume))


def kept_off(queue: Queue) -> tuple[Submitter, list[Any]]:
    """A job is being submitted again that is to be kept off ranks 1 and 3."""
    queue.others = _Others()  # type: ignore[attr-defined]
    spec = load_mapping({"name": "test", "jobs": [{"name": "a", "command": "true"}]})
    member = Submitter(queue, EnsembleRun(spec, 1, {}, "/"))  # type: ignore[arg-type]
    outcomes: list[Any] = []
    member.submit(SubmitJobs(1, "a", "retry", 1, 0, 1, off=("3", "1")), outcomes.append)
    assert not queue.answers
    return member, outcomes


def constraints(queue: Queue) -> list[Any]:
    return [json.loads(text)["attributes"]["system"].get("constraints") for text in queue.texts]


def test_a_job_that_the_queue_refuses_for_what_it_is_kept_off_is_sent_again_without_that() -> None:
    queue = Queue()
    member, outcomes = kept_off(queue)
    queue.others.answer("1,3")  # type: ignore[attr-defined]
    queue.answers[0](OSError(errno.EINVAL, "unsatisfiable request"))
    assert constraints(queue) == [{"not": [{"ranks": ["1,3"]}]}, None]
    member.seen(Tag("a", "retry", 1, 0), 100)
    queue.answers[1](100)
    assert [outcome.result for outcome in outcomes] == [{"ids": [100]}]


def test_what_the_queue_refuses_for_another_reason_is_refused_once_it_has_been_sent_so() -> None:
    queue = Queue()
    _, outcomes = kept_off(queue)
    queue.others.answer("1,3")  # type: ignore[attr-defined]
    for answer in range(2):
        queue.answers[answer](OSError(errno.EINVAL, "no such queue"))
    assert [type(outcome) for outcome in outcomes] == [CommandFailed]
    assert len(queue.answers) == 2


def test_a_job_is_not_sent_if_its_ensemble_ends_while_other_nodes_are_looked_for() -> None:
    queue = Queue()
    member, outcomes = kept_off(queue)
    member.revoke()
    queue.others.answer("")  # type: ignore[attr-defined]
    assert not queue.answers
    assert [outcome.errno for outcome in outcomes] == ["ECANCELED"]


def test_a_job_that_has_shown_while_other_nodes_are_looked_for_is_not_sent_again() -> None:
    queue = Queue()
    member, outcomes = kept_off(queue)
    member.seen(Tag("a", "retry", 1, 0), 100)
    queue.others.answer("1")  # type: ignore[attr-defined]
    assert not queue.answers
    assert [outcome.result for outcome in outcomes] == [{"ids": [100]}]
