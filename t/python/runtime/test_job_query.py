"""Looking for jobs: each once, whatever happens between the steps."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import pytest
from play import Play, Started, SubmitJobs, document, on_start

from flux_ensemble.client.tables import JobTable
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.metrics.job_filter import compile_filter
from flux_ensemble.metrics.job_row import GUESTS
from flux_ensemble.runtime import job_query as module
from flux_ensemble.runtime.durability.records import Records
from flux_ensemble.runtime.job_query import JobQuery, LastJobs
from flux_ensemble.runtime.rerun import Choice

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


def ids(search: JobQuery | LastJobs) -> list[int]:
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


def last_jobs(bench: Bench, last: int, **given: Any) -> LastJobs:
    describer = Describer(bench.play.engine.spec, "/", str)
    return LastJobs(bench.play.engine, bench.records, describer, last, **given)


def test_the_last_jobs_are_found_without_those_before() -> None:
    bench = Bench()
    for last in (1, 5, 6, 12, JOBS, 100):
        query = last_jobs(bench, last)
        assert ids(query) == list(range(1, JOBS + 1))[-last:]
        assert (query.next, query.total, query.left_out) == (None, JOBS, 0)


def test_of_the_last_jobs_none_is_missed_that_ends_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STEP", 1)
    for last in (3, 8, 20):
        bench = Bench(gone=15)
        query = last_jobs(bench, last)
        found = [job["id"] for job in query.step(0.0)]
        for job in range(16, 22):
            bench.play.end(job)
            if job % 4 == 0:
                bench.records.take()
            found += [job["id"] for job in query.step(0.0)]
        found += ids(query)
        # Jobs are in the order in which they ended, and these were the next ones.
        assert found[-last:] == list(range(1, JOBS + 1))[-last:]
        assert len(set(found)) == len(found)
        assert query.total == JOBS


def test_who_asks_while_jobs_are_run_again_reads_all() -> None:
    bench = Bench()
    query = last_jobs(bench, 20)
    query.step(0.0)
    bench.play.engine.rerun["rule-0", 0, 1] = 0
    ids(query)
    assert query.total is None


#: A copy of each job of group a that runs for more than 10 seconds.
COPY = {
    "id": "copy",
    "trigger": "job-running",
    "group": "a",
    "every": 5,
    "when": "not job.copied and job.runtime > 10",
    "action": {"name": "copy", "repetitions": "unlimited"},
}


class History:
    """An ensemble whose jobs end, are lost, are tried and run again, as a seed says.

    Args:
        seed: of the random numbers.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        jobs = [
            {"name": "a", "command": "run {t}", "params": {"t": {"range": [0, 9]}}, "retries": 1},
            {"name": "b", "command": "true", "count": 5},
        ]
        limits = {"active-jobs": 4, "losses": 2, **({"records": 12} if seed % 5 == 0 else {})}
        #: Jobs have copies; else the ensemble is cancelled.
        self.copies = bool(seed % 2)
        rules = [on_start("a"), on_start("b"), *[COPY] * self.copies]
        self.play = Play(document(jobs=jobs, rules=rules, limits=limits), start=False)
        self.records = Records()
        self.records.follow(self.play.engine.records)
        self.play.engine.stats.keep_values()
        self.values: list[Any] = []
        self.chunks: list[Any] = []
        self.begun: set[int] = set()
        self.play.post(Started(self.play.t))

    @property
    def describer(self) -> Describer:
        return Describer(self.play.engine.spec, "/", str, rerun=self.play.engine.rerun)

    def rows(self) -> list[Any]:
        jobs = [*self.records.every(), *self.play.engine.workload.active()]
        return [self.describer.describe(job, self.play.t) for job in jobs]

    def page(self, last: int, **given: Any) -> LastJobs:
        return LastJobs(self.play.engine, self.records, self.describer, last, **given)

    def go_on(self) -> None:
        """Something happens, if it can."""
        names = ["begin", "begin", "end", "fail", "lose", "break", "slow"] * 3
        name = self.random.choice([*names, "cancel", "hold", "drop", "rerun", "rerun", "restart"])
        getattr(self, f"_{name}")(self._one())

    def _one(self) -> int | None:
        """A job that has begun."""
        jobs = self.play.engine.workload.jobs
        return self.random.choice([None, *(job for job in jobs if jobs[job].t_start is not None)])

    def _begin(self, _: int | None) -> None:
        for job in [job for job in self.play.queued if job not in self.begun][:1]:
            self.begun.add(job)
            self.play.begin(job)

    def _end(self, job: int | None, status: int = 0) -> None:
        if job is not None:
            self.play.end(job, status)

    def _fail(self, job: int | None) -> None:
        self._end(job, 256)

    def _lose(self, job: int | None, event: str = "clean") -> None:
        if job is not None:
            self.play.event(job, "exception", type="lost", severity=0)
            self.play.event(job, event, status=15)

    def _break(self, job: int | None) -> None:
        # An attempt after it may be gone before this one is.
        self._lose(job, "finish")

    def _slow(self, _: int | None) -> None:
        self.play.t += 11
        if self.copies:
            self.play.timer("rule:copy")

    def _cancel(self, _: int | None) -> None:
        if not self.copies and len(self.begun) > 12:
            self.play.request("cancel")
            for job in list(self.play.engine.workload.jobs):
                self.play.event(job, "exception", type="cancel", severity=0)

    def _hold(self, _: int | None) -> None:
        self.play.accept = not self.play.accept

    def _drop(self, _: int | None) -> None:
        for one in self.play.of(SubmitJobs):
            if one.id in self.play.engine.pending_table.commands:
                self.play.failed(one, errno="ECANCELED")

    def _rerun(self, _: int | None) -> None:
        ways: list[dict[str, Any]] = [{}, {"failed": True}, {"filter": "job.id % 3 == 0"}]
        asked = self.random.choice(ways)
        choice = Choice.asked(self.play.engine, self.records, self.describer, asked)
        choice.all(self.play.t)
        self.play.request("rerun", firings=choice.firings(), unsent=choice.unsent)

    def _restart(self, _: int | None) -> None:
        """All comes back from a snapshot and from what lies beside it, as after a kill."""
        if chunk := self.records.take():
            self.chunks.append(json.loads(chunk))
        self.values.append(self.play.engine.stats.take_values())
        engine = restore(self.play.engine.spec, dump(self.play.engine), self.values)
        self.play.engine, self.play.handle = engine, engine.handle
        engine.stats.keep_values()
        self.records = Records()
        for chunk in self.chunks:
            self.records.add(chunk)
        self.records.follow(engine.records)


@pytest.mark.parametrize("seed", range(16))
def test_the_last_jobs_are_those_that_reading_all_finds_in_any_history(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the owner, with all attempts, and for guests, who are not told what came after."""
    # This is about rows; what is counted of jobs is checked elsewhere.
    monkeypatch.setattr(Engine, "check", lambda self: None)
    history = History(seed)
    shown = 0
    for _ in range(100):
        history.go_on()
        history.go_on()
        rows = history.rows()
        cut = [{key: value for key, value in row.items() if key in GUESTS} for row in rows]
        for given, what in (({}, rows), ({"guest": True}, cut), ({"every": True}, rows)):
            every = given == {"every": True}
            table = JobTable(partial(list, what), interrupted=every)
            expected = [row["id"] for row in table]
            for last in (1, 4, 50):
                query = history.page(last, **given)
                assert ids(query)[-last:] == expected[-last:]
                assert (query.total, query.left_out) == (len(expected), table.left_out)
            shown += table.left_out
    assert shown


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
