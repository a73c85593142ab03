"""Looking for jobs: each once, whatever happens between the steps."""

from __future__ import annotations

from typing import Any

import pytest
from play import Play, Started, document, on_start

from flux_ensemble.engine.job_view import Describer
from flux_ensemble.metrics.job_filter import compile_filter
from flux_ensemble.runtime import job_query as module
from flux_ensemble.runtime.durability.records import Records
from flux_ensemble.runtime.job_query import JobQuery

JOBS = 30


class Bench:
    """An engine whose jobs are recorded, in chunks of ten."""

    def __init__(self, gone: int = 25) -> None:
        group = {"name": "a", "command": "run {t}", "params": {"t": {"range": [0, JOBS]}}}
        given = document(jobs=[group, {"name": "b", "command": "true"}], rules=[on_start()])
        self.play = Play({**given, "finish": "never"}, start=False)
        self.records = Records()
        self.records.follow(self.play.engine.records)
        self.play.post(Started(self.play.t))
        for job in range(1, gone + 1):
            self.play.run(job, status=256 * (job % 5 == 0))
            if job % 10 == 0:
                self.records.take()
        for job in range(gone + 1, JOBS + 1):
            self.play.begin(job)

    def search(self, text: str | None = None, **given: Any) -> JobQuery:
        matches = (lambda _: True) if text is None else compile_filter(text)
        describer = Describer(self.play.engine.spec, "/", str)
        return JobQuery(self.play.engine, self.records, describer, matches=matches, **given)

    def found(self, text: str | None = None, **given: Any) -> list[int]:
        return ids(self.search(text, **given))


def ids(search: JobQuery) -> list[int]:
    found: list[int] = []
    while not search.over:
        found += [job["id"] for job in search.step(0.0)]
    return found


@pytest.mark.parametrize("step", [1, 7, 200])
def test_it_finds_each_job_once_the_active_ones_last(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP", step)
    assert Bench().found() == list(range(1, JOBS + 1))


def test_it_finds_what_a_filter_a_group_and_an_outcome_choose() -> None:
    bench = Bench()
    assert bench.found("job.returncode != 0") == [5, 10, 15, 20, 25]
    assert bench.found("params.t >= 20 and returncode != 0") == [25]
    assert bench.found(outcome="failed") == [5, 10, 15, 20, 25]
    assert bench.found("job.state == 'running'") == list(range(26, JOBS + 1))
    assert bench.found(group="b") == []


def test_pages_of_any_size_make_up_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 9)
    bench = Bench()
    for count in (1, 4, 100):
        after: int | None = 0
        found: list[int] = []
        while after is not None:
            search = bench.search("job.id > 2", after=after, count=count)
            found += ids(search)
            after = search.next
        assert found == list(range(3, JOBS + 1))


def test_jobs_that_end_between_two_steps_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP", 1)
    bench = Bench(gone=5)
    search = bench.search()
    found: list[int] = []
    job = 5
    while not search.over:
        found += [one["id"] for one in search.step(0.0)]
        if job < JOBS:
            job += 1
            bench.play.end(job)
            if job % 3 == 0:
                bench.records.take()
    assert sorted(found) == list(range(1, JOBS + 1))


def test_the_last_jobs_are_found_without_those_before() -> None:
    bench = Bench()
    describer = Describer(bench.play.engine.spec, "/", str)
    for last in (1, 5, 6, 12, JOBS, 100):
        query = JobQuery.of_last(last, bench.play.engine, bench.records, describer)
        assert ids(query) == list(range(1, JOBS + 1))[-last:]
        assert (query.next, query.total) == (None, JOBS)


def test_of_the_last_jobs_none_is_missed_that_ends_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STEP", 1)
    for last in (3, 8, 20):
        bench = Bench(gone=15)
        describer = Describer(bench.play.engine.spec, "/", str)
        query = JobQuery.of_last(last, bench.play.engine, bench.records, describer)
        found = [job["id"] for job in query.step(0.0)]
        for job in range(16, 22):
            bench.play.end(job)
        found += ids(query)
        # Jobs are in the order in which they ended, and these were the next ones.
        assert found[-last:] == list(range(1, JOBS + 1))[-last:]
        assert query.total == JOBS


def test_how_many_jobs_there_are_is_not_said_where_attempts_ran_again() -> None:
    bench = Bench()
    describer = Describer(bench.play.engine.spec, "/", str)
    query = JobQuery.of_last(3, bench.play.engine, bench.records, describer)
    bench.play.engine.rerun["a", 0, 1] = 0
    ids(query)
    assert query.total is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("job.colour == 1", "a job has no field 'colour'"),
        ("t == 300", "; a parameter is 'params.t', and a value that jobs publish 'memo.t'"),
        ("trial_state == infeasible", "; text is written in quotes: 'infeasible'"),
        ("params > 1", "a job has no field 'params'"),
        ("job.exception.colour == 1", "a job has no field 'exception.colour'"),
        ("returncode !=", "expected an expression such as"),
        ("job == 1", "a job has no field 'job'"),
    ],
)
def test_a_filter_that_names_no_field_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        compile_filter(text)
