"""What a site is asked for is bounded: the line of a pool, its pauses, and its trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from test_slurm_provider import Member, Timers, World, shape

from flux_ensemble.document.members import SiteLimits
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.nested.provider import JobName, Started, Written
from flux_ensemble.queues.nested.shape import MemberTag, Shape
from flux_ensemble.queues.providers.bounds import BoundedProvider


class Site:
    """A provider that takes everything, and does what a test says.

    Attributes:
        asked: the members that it was asked for, by their jobs, with the time.
    """

    tells = False
    prints = "its output"

    def __init__(self, loop: Timers) -> None:
        self.loop = loop
        self.asked: dict[JobName, tuple[Started, float]] = {}
        self.refusal = ""

    def describe(self, shape: Shape) -> Mapping[str, Any]:
        return {"ordinal": shape.tag.ordinal}

    def start(self, member: Started, job: Mapping[str, Any], written: Written) -> None:
        self.asked[str(job["ordinal"])] = member, self.loop.t
        refusal = self.refusal
        if refusal:
            self.loop.timer(0.5, lambda: member.refused(refusal))
        else:
            self.loop.timer(0.5, lambda: member.submitted(str(job["ordinal"])))

    def find(self, member: Started, home: str, job: str | None) -> None:
        assert job is not None
        self.asked[job] = member, self.loop.t
        member.submitted(job)

    def end(self, job: JobName, reason: str, done: Report) -> None:
        raise NotImplementedError

    def why(self, job: JobName) -> str | None:
        return None

    def forget(self, job: JobName) -> None:
        pass

    def close(self) -> None:
        pass

    def begin(self, *jobs: int) -> None:
        for job in jobs:
            self.asked[str(job)][0].began()

    def end_of(self, *jobs: int) -> None:
        for job in jobs:
            member = self.asked[str(job)][0]
            member.broke("its job has FAILED")
            member.over()

    @property
    def times(self) -> list[float]:
        return [round(t, 1) for _, t in self.asked.values()]


class Pool:
    """The members of a pool, a site, and what stands between them."""

    def __init__(self, **limits: Any) -> None:
        self.loop = Timers()
        self.site = Site(self.loop)
        self.said: list[str] = []
        self.members: dict[int, Member] = {}
        self.limits = SiteLimits(**limits)
        self.provider = BoundedProvider(self.site, "Slurm", self.loop, self.said.append)

    def start(self, *ordinals: int) -> None:
        for ordinal in ordinals:
            one = shape(ordinal, limits=self.limits)
            member = self.members[ordinal] = Member(one)
            self.provider.start(member, self.provider.describe(one), _unwritten)

    def run(self, seconds: float) -> None:
        self.loop.run(self.loop.t + seconds)


def _unwritten(job: str, then: Callable[[], None]) -> None:
    raise NotImplementedError


def test_the_first_is_asked_for_alone_and_the_others_when_it_is_taken() -> None:
    pool = Pool()
    pool.start(1, 2, 3)
    pool.run(0.4)
    assert pool.site.times == [0.0]
    assert pool.members[2].waiting[-1] == "Slurm has not taken the first one yet"
    pool.run(1.0)
    assert pool.site.times == [0.0, 0.5, 0.5]


def test_no_more_than_so_many_wait_in_the_queue() -> None:
    pool = Pool(queued=2)
    pool.start(1, 2, 3, 4)
    pool.run(20.0)
    assert list(pool.site.asked) == ["1", "2"]
    why = "2 are in the queue of Slurm, as many as 'queued' allows"
    assert {pool.members[one].waiting[-1] for one in (3, 4)} == {why}
    pool.site.begin(1)
    pool.run(1.0)
    assert list(pool.site.asked) == ["1", "2", "3"]
    pool.site.end_of(2)
    pool.run(1.0)
    assert list(pool.site.asked) == ["1", "2", "3", "4"]


def test_those_of_an_earlier_service_count_as_queued_until_they_begin() -> None:
    pool = Pool(queued=1)
    pool.provider.find(Member(shape(1)), "12.5", "1")
    pool.start(2)
    pool.run(5.0)
    assert list(pool.site.asked) == ["1"]
    pool.site.begin(1)
    pool.run(1.0)
    assert list(pool.site.asked) == ["1", "2"]


def test_between_two_submissions_there_is_the_spacing() -> None:
    pool = Pool(spacing=10.0)
    pool.start(1, 2, 3)
    pool.run(40.0)
    first, second, third = pool.site.times
    assert 10.0 <= second - first <= 11.5
    assert 10.0 <= third - second <= 11.5


def test_a_site_that_refuses_is_asked_ever_more_rarely_and_with_one_at_a_time() -> None:
    pool = Pool()
    pool.site.refusal = "Slurm refuses its job: invalid partition specified: nowhere"
    pool.start(*range(1, 20))
    pool.run(200.0)
    # Pauses of 2, 4, 8, ... seconds after each refusal.
    assert 6 <= len(pool.site.asked) <= 8
    why = pool.members[19].waiting[-1]
    assert why.startswith("Slurm is asked again in ")
    assert why.endswith(
        " failures in a row, the latest: Slurm refuses its job: invalid partition specified: "
        "nowhere"
    )
    assert pool.said[1] == (
        "study: the next member of hpc is asked for in 4s at the earliest, after 2 failures in a "
        "row: Slurm refuses its job: invalid partition specified: nowhere"
    )
    # It takes jobs again: one is tried, and when that has lived for a while the others follow.
    pool.site.refusal = ""
    before = len(pool.site.asked)
    pool.run(300.0)
    assert len(pool.site.asked) == before + 1
    pool.site.begin(before + 1)
    pool.run(5.0)
    assert pool.members[19].waiting[-1].startswith("one member is tried alone after ")
    pool.run(7.0)
    assert len(pool.site.asked) == 19


def test_members_that_end_at_once_are_failures_and_those_that_end_together_are_one() -> None:
    pool = Pool()
    pool.start(1, 2, 3)
    pool.run(2.0)
    pool.site.begin(1, 2, 3)
    pool.run(1.0)
    pool.site.end_of(1, 2, 3)
    assert pool.said == [
        "study: the next member of hpc is asked for in 2s at the earliest, after 1 failure in a "
        "row: hpc.1 ended 1s after it had begun: its job has FAILED"
    ]
    pool.start(4)
    pool.run(1.0)
    assert "4" not in pool.site.asked
    pool.run(2.0)
    assert "4" in pool.site.asked


@pytest.mark.parametrize("how", ["asked", "old"])
def test_a_member_that_was_asked_to_end_or_lived_for_a_while_is_no_failure(how: str) -> None:
    pool = Pool()
    pool.start(1)
    pool.run(1.0)
    pool.site.begin(1)
    pool.members[1].asked_to_end = how == "asked"
    pool.run(1.0 if how == "asked" else 11.0)
    pool.site.end_of(1)
    assert not pool.said
    pool.start(2)
    pool.run(0.1)
    assert list(pool.site.asked) == ["1", "2"]


def test_one_that_is_not_needed_any_more_does_not_wait_in_line() -> None:
    """Its provider looks whether an earlier service has asked for it, and forgets it."""
    pool = Pool(queued=1)
    pool.start(1, 2)
    pool.run(2.0)
    pool.members[2].unwanted = True
    pool.run(2.0)
    assert list(pool.site.asked) == ["1", "2"]


def test_nothing_is_asked_for_after_the_end() -> None:
    pool = Pool(queued=1)
    pool.start(1, 2)
    pool.run(2.0)
    pool.provider.close()
    pool.site.begin(1)
    pool.run(5.0)
    assert list(pool.site.asked) == ["1"]


def test_pools_of_which_nothing_is_left_are_forgotten() -> None:
    pool = Pool(spacing=1.0)
    for name in "abc":
        one = dataclasses.replace(shape(0), tag=MemberTag(name, 1, "pool.0", 0, 0))
        pool.provider.start(Member(one), pool.provider.describe(one), _unwritten)
        pool.run(1.0)
        if name == "a":
            pool.site.begin(0)
            pool.site.end_of(0)  # at once, which is a failure
        elif name == "b":
            pool.site.begin(0)
            pool.run(20.0)
            pool.site.end_of(0)
    pool.run(60.0)
    assert len(pool.provider._lines) == 3
    pool.run(2 * 600.0)
    pool.provider.look()
    pool.run(1.0)
    # One of the third is still in the queue of its site.
    assert [line.ensemble for line in pool.provider._lines.values()] == ["c"]


def test_sbatch_that_fails_for_now_is_called_ever_more_rarely() -> None:
    world = World()
    world.slurm.refusal = (
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job "
        "submit limit, user's size and/or time limits)"
    )
    calls = 0
    submit = world.slurm._sbatch

    def counting(words: Any) -> Any:
        nonlocal calls
        calls += 1
        return submit(words)

    world.slurm._sbatch = counting  # type: ignore[method-assign]
    world.start(1)
    world.run(300.0)
    assert 7 <= calls <= 12
    assert world.members[1].told == []
    assert "job submit limit" in world.members[1].waiting[-1]
    world.slurm.refusal = None
    world.run(100.0)
    assert world.members[1].told == ["submitted", "began", "ssh://n1/run/100"]
