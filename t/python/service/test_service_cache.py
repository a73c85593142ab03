"""Numbers of the instance for the status: how old they may be, and who has to wait."""

from __future__ import annotations

import pytest
from fakes import FakeLoop

from flux_ensemble.service.status.cache import (
    BUSY_SECONDS,
    LOST_SECONDS,
    OLD_SECONDS,
    RENEW_SECONDS,
    Cache,
    Take,
)


class Bench(FakeLoop):
    """A clock, the questions that Flux was asked, and the answers that were taken."""

    def __init__(self) -> None:
        super().__init__()
        self.t = 1000.0
        self.asked: list[Take] = []
        self.taken: list[int | None] = []
        self.latest = Cache(self.asked.append, self)

    def now(self) -> float:
        return self.t

    def get(self) -> None:
        self.latest.get(lambda nodes, jobs, conditions: self.taken.append(nodes["free"]))

    def answer(self, free: int) -> None:
        self.asked.pop(0)({"free": free}, {}, None)
        timers, self.timers = self.timers, []
        for timer in timers:
            timer.callback()


def test_the_first_ask_flux_once_and_wait_for_the_answer():
    bench = Bench()
    bench.get()
    bench.get()
    assert (len(bench.asked), bench.taken) == (1, [])
    bench.answer(4)
    assert bench.taken == [4, 4]


def test_who_waits_gets_the_exception_where_flux_cannot_be_asked():
    bench = Bench()

    def cannot(take: Take) -> None:
        raise OSError("no broker")

    bench.latest = Cache(cannot, bench)
    with pytest.raises(OSError, match="no broker"):
        bench.get()
    bench.latest._ask = bench.asked.append
    bench.get()
    bench.answer(4)
    assert bench.taken == [4]


def test_a_new_answer_is_used_again_and_flux_is_not_asked():
    bench = Bench()
    bench.get()
    bench.answer(4)
    bench.t += 0.9 * RENEW_SECONDS
    bench.get()
    assert (bench.asked, bench.taken) == ([], [4, 4])


def test_an_answer_is_renewed_before_it_is_old_and_nobody_waits_for_that():
    bench = Bench()
    bench.get()
    bench.answer(4)
    bench.t += RENEW_SECONDS
    bench.get()
    bench.get()
    assert (len(bench.asked), bench.taken) == (1, [4, 4, 4])
    bench.answer(5)
    bench.get()
    assert bench.taken[3:] == [5]


def test_an_old_answer_is_not_used():
    bench = Bench()
    bench.get()
    bench.answer(4)
    bench.t += OLD_SECONDS
    bench.get()
    bench.answer(5)
    assert bench.taken == [4, 5]


def test_an_answer_is_as_old_as_its_question():
    bench = Bench()
    bench.get()
    bench.t += OLD_SECONDS
    bench.answer(4)
    bench.get()
    assert (len(bench.asked), bench.taken) == (1, [4])


def test_an_answer_from_a_later_time_is_not_used():
    bench = Bench()
    bench.get()
    bench.answer(4)
    bench.t -= 1
    bench.get()
    bench.answer(5)
    assert bench.taken == [4, 5]


def test_flux_is_asked_again_where_no_answer_came():
    bench = Bench()
    bench.get()
    bench.asked.clear()
    bench.t += 0.9 * LOST_SECONDS
    bench.get()
    assert bench.asked == []
    bench.t += 0.1 * LOST_SECONDS
    bench.get()
    bench.answer(4)
    assert bench.taken == [4, 4, 4]


def test_while_flux_is_slow_the_answer_before_is_used_a_little_longer_than_else():
    bench = Bench()
    bench.get()
    bench.answer(4)
    bench.t += RENEW_SECONDS
    bench.get()
    bench.t += OLD_SECONDS
    bench.get()
    assert (len(bench.asked), bench.taken) == (1, [4, 4, 4])
    bench.t += BUSY_SECONDS
    bench.get()
    assert bench.taken == [4, 4, 4]
    bench.answer(5)
    assert bench.taken == [4, 4, 4, 5]
