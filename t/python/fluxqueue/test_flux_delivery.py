"""Calls whose responses get lost: each comes to one outcome, and none is made twice."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.queues.flux.delivery import (
    LONGEST_PAUSE,
    PATIENCE,
    RESPONSE_SECONDS,
    ROUNDS,
    SLICE,
    Answer,
    Attempts,
    Fences,
    Outcomes,
)
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.simulation.runner import VirtualLoop

ENOSYS = OSError(errno.ENOSYS, "no such service")
EPROTO = OSError(errno.EPROTO, "a validator died")
EINVAL = OSError(errno.EINVAL, "bad jobspec")
LONG = 1000.0


class Bench:
    """Calls that are answered by the test, in virtual time."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.fences: list[Report] = []
        self.outcomes = Outcomes(self.fences.append, self.loop.timer)
        self.answers: dict[str, list[Answer]] = {}
        self.shown: dict[str, int | Exception] = {}
        self.reports: dict[str, list[int | Exception]] = {}

    def begin(self, *names: str) -> None:
        for name in names:
            answers = self.answers.setdefault(name, [])
            reports = self.reports.setdefault(name, [])
            self.outcomes.begin(answers.append, partial(self.shown.get, name), reports.append)

    def answer(self, name: str, answer: int | Exception) -> None:
        """Answer the last sending of a call."""
        self.answers[name][-1](answer)

    def fence(self, error: Exception | None = None) -> None:
        """The oldest fence is back."""
        self.fences.pop(0)(error)

    def sent(self, name: str) -> int:
        return len(self.answers[name])

    def lose(self, name: str, error: Exception) -> None:
        """Lose the last sending of a call, and wait until it is sent again or given up."""
        sent = self.sent(name)
        self.answer(name, error)
        self.fence()
        while self.sent(name) == sent and not self.reports[name]:
            self.loop.run(self.loop.now() + 0.01)


def test_a_response_is_the_outcome_and_no_fence_is_raised() -> None:
    bench = Bench()
    bench.begin("a", "b")
    bench.answer("a", 7)
    bench.answer("b", EINVAL)
    bench.loop.run(LONG)
    assert bench.reports == {"a": [7], "b": [EINVAL]}
    assert not bench.fences


def test_a_second_response_is_ignored() -> None:
    bench = Bench()
    bench.begin("a")
    bench.answer("a", 7)
    bench.answer("a", EINVAL)
    assert bench.reports["a"] == [7]


def test_an_exception_at_sending_is_the_outcome() -> None:
    bench = Bench()
    reports: list[int | Exception] = []

    def send(answer: Answer) -> None:
        raise EINVAL

    bench.outcomes.begin(send, lambda: None, reports.append)
    assert reports == [EINVAL]


@pytest.mark.parametrize(
    "number", ["ETIMEDOUT", "ENOSYS", "EHOSTUNREACH", "ECONNRESET", "EPROTO", "EPIPE", "ENOSPC"]
)
def test_a_call_of_unknown_outcome_that_the_journal_shows_is_not_sent_again(number: str) -> None:
    bench = Bench()
    bench.begin("a")
    bench.answer("a", OSError(getattr(errno, number), "lost"))
    bench.shown["a"] = 7
    assert not bench.reports["a"]
    bench.fence()
    assert bench.reports["a"] == [7]
    assert bench.sent("a") == 1


def test_one_that_the_journal_does_not_show_is_sent_again() -> None:
    bench = Bench()
    bench.begin("a")
    bench.answer("a", ENOSYS)
    bench.fence()
    assert bench.sent("a") == 2
    bench.answers["a"][0](8)
    assert not bench.reports["a"], "the response of the first sending is too late"
    bench.answer("a", 7)
    assert bench.reports["a"] == [7]


def test_one_that_the_journal_shows_to_be_refused_is_refused() -> None:
    bench = Bench()
    bench.begin("a")
    bench.answer("a", ENOSYS)
    bench.shown["a"] = EINVAL
    bench.fence()
    assert bench.reports["a"] == [EINVAL]
    assert bench.sent("a") == 1


def test_one_fence_serves_all_calls_that_were_sent_before_it() -> None:
    bench = Bench()
    bench.begin("a", "b", "c")
    bench.answer("b", ENOSYS)
    bench.answer("a", ENOSYS)
    assert len(bench.fences) == 1
    bench.shown.update(a=1, c=3)
    bench.fence()
    assert (bench.reports["a"], bench.reports["c"]) == ([1], [3])
    assert bench.sent("b") == 2
    assert not bench.fences


def test_a_call_that_was_sent_after_the_fence_began_waits_for_another() -> None:
    bench = Bench()
    bench.begin("a")
    bench.answer("a", ENOSYS)
    bench.begin("b")
    bench.answer("b", ENOSYS)
    bench.shown.update(a=1, b=2)
    bench.fence()
    assert (bench.reports["a"], bench.reports["b"]) == ([1], [])
    bench.fence()
    assert bench.reports["b"] == [2]


def test_a_call_without_a_response_is_noticed_in_time() -> None:
    bench = Bench()
    bench.begin("a")
    bench.loop.timer(4.0, lambda: bench.begin("b"))
    bench.loop.run(RESPONSE_SECONDS - 0.1)
    assert not bench.fences
    bench.loop.run(RESPONSE_SECONDS + 0.1)
    assert len(bench.fences) == 1
    bench.begin("c")
    bench.fence()
    assert (bench.sent("a"), bench.sent("b"), bench.sent("c")) == (2, 2, 1)
    bench.answer("a", 1)
    bench.answer("b", 2)
    bench.loop.run(2 * RESPONSE_SECONDS)
    assert not bench.fences
    bench.loop.run(2.5 * RESPONSE_SECONDS + 0.2)
    assert len(bench.fences) == 1
    bench.shown["c"] = 3
    bench.fence()
    assert bench.reports == {"a": [1], "b": [2], "c": [3]}
    assert bench.loop.run(LONG), "nothing is watched any more"


def test_a_call_stays_unknown_while_no_fence_can_be_raised() -> None:
    bench = Bench()
    bench.begin("a", "b", "c")
    bench.answer("a", OSError(errno.ETIMEDOUT, "no response"))
    bench.answer("b", OSError(errno.ETIMEDOUT, "no response"))
    bench.shown["a"] = 1
    bench.fence(ENOSYS)
    assert (bench.reports["a"], bench.reports["b"]) == ([1], [])
    assert not bench.reports["c"], "its response may still come"
    bench.answer("c", 3)
    for _ in range(3 * ROUNDS):
        bench.fence(ENOSYS)
    assert bench.sent("b") == 1
    bench.fence()
    bench.answer("b", 2)
    assert bench.reports == {"a": [1], "b": [2], "c": [3]}


def test_a_call_that_nobody_needs_any_more_is_given_up_where_there_is_no_fence() -> None:
    bench = Bench()
    reports: list[int | Exception] = []
    answers: list[Answer] = []
    bench.outcomes.begin(answers.append, lambda: None, reports.append, over=lambda: True)
    answers[0](ENOSYS)
    bench.fence(ENOSYS)
    assert reports == [ENOSYS]
    assert not bench.fences


def test_without_a_fence_for_good_a_call_fails() -> None:
    bench = Bench()
    bench.begin("a")
    bench.answer("a", ENOSYS)
    bench.fence(EINVAL)
    assert bench.reports["a"] == [EINVAL]


def test_a_call_is_given_up_after_some_rounds_where_it_may_be_its_own_fault() -> None:
    bench = Bench()
    bench.begin("a")
    for _ in range(ROUNDS):
        assert not bench.reports["a"]
        bench.lose("a", EPROTO)
    assert bench.reports["a"] == [EPROTO]
    assert bench.sent("a") == ROUNDS
    assert not bench.fences


def test_a_call_is_sent_until_the_service_is_back_with_pauses_that_grow() -> None:
    bench = Bench()
    bench.begin("a")
    times = [0.0]
    for _ in range(3 * ROUNDS):
        bench.lose("a", ENOSYS)
        times.append(bench.loop.now())
    assert not bench.reports["a"]
    pauses = [round(b - a, 1) for a, b in pairwise(times)]
    assert pauses[0] == 0.0
    assert pauses[1:5] == [0.1, 0.2, 0.4, 0.8]
    assert set(pauses[6:]) == {LONGEST_PAUSE}
    bench.answer("a", 7)
    assert bench.reports["a"] == [7]


def test_many_calls_are_settled_some_in_each_turn() -> None:
    bench = Bench()
    names = [str(number) for number in range(3 * SLICE)]
    bench.begin(*names)
    bench.answer("0", ENOSYS)
    bench.fence()
    assert sum(bench.sent(name) for name in names) == 4 * SLICE
    bench.answer(names[-1], 7)
    bench.loop.run(1.0)
    assert [bench.sent(name) for name in names] == [2] * (3 * SLICE - 1) + [1]


def test_an_exception_of_whoever_gets_an_outcome_stops_nothing() -> None:
    bench = Bench()

    def report(outcome: int | Exception) -> None:
        raise RuntimeError("injected")

    answers: list[Answer] = []
    bench.outcomes.begin(answers.append, lambda: 1, report)
    bench.begin("a")
    bench.shown["a"] = 2
    answers[0](ENOSYS)
    with pytest.raises(RuntimeError):
        bench.fence()
    bench.loop.run(1.0)
    assert bench.reports["a"] == [2]


# -- attempts and fences ---------------------------------------------------------------


def test_attempts_end_with_success_or_a_definite_error() -> None:
    for end in (None, EINVAL):
        loop = VirtualLoop()
        outcomes = iter([ENOSYS, ENOSYS, end])
        done: list[Exception | None] = []

        def attempt(report: Report, outcomes: Iterator[Exception | None] = outcomes) -> None:
            report(next(outcomes))

        Attempts(attempt, loop.timer, 60.0, done.append)
        loop.run(LONG)
        assert done == [end]


def test_attempts_pause_longer_and_longer_and_give_up() -> None:
    loop = VirtualLoop()
    times: list[float] = []
    done: list[Exception | None] = []

    def attempt(report: Report) -> None:
        times.append(loop.now())
        raise ENOSYS

    Attempts(attempt, loop.timer, PATIENCE, done.append)
    assert not loop.run(PATIENCE - 1)
    assert not done
    assert loop.run(LONG)
    assert done == [ENOSYS]
    pauses = [round(b - a, 6) for a, b in pairwise(times)]
    assert pauses[:6] == [0.1, 0.2, 0.4, 0.8, 1.6, LONGEST_PAUSE]
    assert set(pauses[6:]) == {LONGEST_PAUSE}


def test_an_attempt_that_reports_after_it_was_given_up_is_ignored() -> None:
    loop = VirtualLoop()
    reports: list[Report] = []
    done: list[Exception | None] = []
    Attempts(reports.append, loop.timer, 5.0, done.append)
    loop.run(LONG)
    (error,) = done
    assert isinstance(error, OSError)
    assert error.errno == errno.ETIMEDOUT
    reports[0](None)
    assert done == [error]


class Site:
    """Fences that are raised by the test."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.raised: list[Report] = []
        self.fences = Fences(self.raised.append, self.loop.timer)
        self.back: list[str] = []

    def wait(self, name: str) -> None:
        def done(error: Exception | None) -> None:
            self.back.append(name if error is None else f"{name}: {error}")

        self.fences.wait(done)

    def turn(self, seconds: float = 0.01) -> None:
        self.loop.run(self.loop.now() + seconds)


def test_a_fence_serves_those_who_came_before_it_began() -> None:
    site = Site()
    site.wait("a")
    site.wait("b")
    site.wait("c")
    assert len(site.raised) == 1
    site.raised[0](None)
    site.turn()
    assert site.back == ["a"]
    assert len(site.raised) == 2
    site.raised[1](None)
    site.turn()
    assert site.back == ["a", "b", "c"]
    assert len(site.raised) == 2


def test_a_fence_that_is_raised_again_serves_those_who_came_meanwhile() -> None:
    site = Site()
    site.wait("a")
    site.wait("b")
    site.raised[0](ENOSYS)
    site.turn(0.2)
    site.raised[1](None)
    site.turn()
    assert site.back == ["a", "b"]


def test_a_fence_that_is_given_up_says_why_and_the_next_begins_anew() -> None:
    site = Site()
    site.fences = Fences(lambda report: report(ENOSYS), site.loop.timer, 5.0)
    site.wait("a")
    site.loop.run(LONG)
    assert site.back == [f"a: {ENOSYS}"]
    site.wait("b")
    site.loop.run(2 * LONG)
    assert site.back[1:] == [f"b: {ENOSYS}"]


def test_a_fence_counts_only_while_the_journal_is_there() -> None:
    site = Site()
    site.wait("a")
    site.fences.suspend()
    site.raised[0](None)
    site.turn(5.0)
    assert not site.back
    assert len(site.raised) == 1, "none is raised in vain"
    site.fences.resume()
    site.turn(LONGEST_PAUSE)
    site.raised[1](None)
    site.turn()
    assert site.back == ["a"]


def test_a_fence_during_which_the_journal_was_gone_does_not_count() -> None:
    site = Site()
    site.wait("a")
    site.fences.suspend()
    site.fences.resume()
    site.raised[0](None)
    site.turn(0.2)
    assert not site.back
    site.raised[1](None)
    site.turn()
    assert site.back == ["a"]


def test_an_exception_of_one_who_waits_is_not_the_others() -> None:
    site = Site()

    def fail(error: Exception | None) -> None:
        raise RuntimeError("injected")

    site.wait("first")
    site.fences.wait(fail)
    site.wait("a")
    site.raised[0](None)
    site.raised[1](None)
    with pytest.raises(RuntimeError):
        site.loop.run(1.0)
    site.turn()
    assert site.back == ["first", "a"]


# -- a queue that loses requests and responses -------------------------------------------


class LossyQueue:
    """A queue behind a line that keeps the order of what it does not lose.

    Args:
        random: decides what is lost.
        losses: the probability that a request, and that a response, is lost.
        refusals: the probability that a job is refused.
        fenced: False has every fence be back at once.
    """

    def __init__(
        self, random: Random, losses: float, refusals: float = 0.0, *, fenced: bool = True
    ) -> None:
        self.loop = VirtualLoop()
        self.random = random
        self.losses = losses
        self.refusals = refusals
        self.jobs: dict[int, list[int]] = {}
        self.refused: set[int] = set()
        self.reports: dict[int, list[int | Exception]] = {}
        self.fences = Fences(self._fence, self.loop.timer)
        wait = self.fences.wait if fenced else lambda done: done(None)
        self.outcomes = Outcomes(wait, self.loop.timer)
        self._arrival = 0.0
        self._last_id = 0

    def begin(self, tag: int) -> None:
        if self.random.random() < self.refusals:
            self.refused.add(tag)
        reports = self.reports.setdefault(tag, [])
        self.outcomes.begin(
            lambda answer: self._request(lambda: self._submit(tag), answer),
            lambda: self.jobs.get(tag, [None])[0],
            reports.append,
        )

    def _submit(self, tag: int) -> int | Exception:
        if tag in self.refused:
            return EINVAL
        self._last_id += 1
        self.jobs.setdefault(tag, []).append(self._last_id)
        return self._last_id

    def _fence(self, report: Report) -> None:
        over: list[bool] = []

        def once(error: Exception | None) -> None:
            if not over:
                over.append(True)
                report(error)

        self.loop.timer(RESPONSE_SECONDS, lambda: once(OSError(errno.ETIMEDOUT, "no response")))
        self._request(
            lambda: 0, lambda answer: once(answer if isinstance(answer, Exception) else None)
        )

    def _request(self, perform: Callable[[], int | Exception], answer: Answer) -> None:
        """Perform something at the other end, and answer; or lose the one or the other."""
        latency = self.random.choice([0.001, 0.1, 3.0])
        self._arrival = max(self._arrival, self.loop.now() + latency)
        fate = self.random.random() / self.losses if self.losses else 9.0
        said = self.random.choice([None, ENOSYS])

        def arrive() -> None:
            if fate < 1 and said is None:
                return
            outcome = perform() if fate >= 1 else ENOSYS
            if fate < 2:
                outcome = said or outcome
                if said is None:
                    return
            answer(outcome)

        self.loop.timer(self._arrival - self.loop.now(), arrive)


@given(
    seed=st.integers(0, 2**32),
    calls=st.lists(st.floats(0, 30), min_size=1, max_size=40),
    losses=st.sampled_from([0.0, 0.05, 0.3]),
    refusals=st.sampled_from([0.0, 0.2]),
)
def test_whatever_is_lost_each_job_is_in_the_queue_once(
    seed: int, calls: list[float], losses: float, refusals: float
) -> None:
    queue = LossyQueue(Random(seed), losses, refusals)
    for tag, t in enumerate(calls):
        queue.loop.timer(t, partial(queue.begin, tag))
    assert queue.loop.run(100_000.0), "it comes to an end"
    for tag in range(len(calls)):
        (report,) = queue.reports[tag]
        jobs = queue.jobs.get(tag, [])
        if tag in queue.refused:
            assert report is EINVAL or isinstance(report, OSError)
            assert not jobs
        elif isinstance(report, OSError):
            # Given up: with so many losses ten sendings, or a minute of fences, can be in vain.
            assert losses
            assert not jobs
        else:
            assert jobs == [report]


@pytest.mark.parametrize(("fenced", "expected"), [(True, False), (False, True)])
def test_it_is_the_fence_that_keeps_jobs_from_being_submitted_twice(
    fenced: bool, expected: bool
) -> None:
    twice = 0
    for seed in range(20):
        queue = LossyQueue(Random(seed), 0.3, fenced=fenced)
        for tag in range(20):
            queue.begin(tag)
        assert queue.loop.run(100_000.0)
        twice += sum(len(jobs) > 1 for jobs in queue.jobs.values())
    assert (twice > 0) is expected
