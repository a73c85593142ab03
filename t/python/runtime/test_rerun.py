"""Jobs that are run again: which are chosen from the record, and what the engine does with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from play import CancelJobs, Finish, Play, Started, SubmitJobs, document, on_start, submit

from flux_ensemble.client.tables import JobTable
from flux_ensemble.engine.commands import Ask
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.metrics.names import ATTEMPT_OUTCOMES
from flux_ensemble.runtime.durability.records import Records
from flux_ensemble.runtime.rerun import Choice

SWEEP = {"name": "a", "command": "run {x}", "params": {"x": [1, 2, 3]}}


class Again(Play):
    """An engine with a record of its jobs, of which some are run again."""

    def __init__(self, **given: Any) -> None:
        super().__init__(document(**{"jobs": [SWEEP], "rules": [on_start()], **given}), start=False)
        self.past = Records()
        self.past.follow(self.engine.records)
        self.describer = Describer(self.engine.spec, "/work", str, rerun=self.engine.rerun)
        self.engine.stats.keep_values()
        self.values: list[Any] = []
        self.post(Started(self.t))

    def choice(self, **asked: Any) -> Choice:
        choice = Choice.asked(self.engine, self.past, self.describer, asked)
        choice.all(self.t)
        return choice

    def rerun(self, **asked: Any) -> Mapping[str, Any]:
        """Run jobs again; the reply, after a round through a snapshot."""
        self.past.take()
        reply = self.request("rerun", firings=self.choice(**asked).firings())
        assert reply.errno is None, reply
        self.values += [self.engine.stats.take_values()]
        assert dump(restore(self.engine.spec, dump(self.engine), self.values)) == dump(self.engine)
        self.check_status()
        return reply.result

    def check_status(self) -> None:
        """The counts of the status are those of the rows that tables have."""
        self.past.take()
        for group, counts in self.status()["groups"].items():
            rows = Counter(
                row["outcome"]
                for row in self.rows()
                if row["group"] == group
                and ("replaced" not in row or row["outcome"] == "interrupted")
            )
            shown = {name: counts[name] for name in ATTEMPT_OUTCOMES if counts[name]}
            assert shown == dict(rows)
            assert counts["attempts"] == rows.total()

    def rows(self) -> list[Any]:
        return [self.describer.describe(job, self.t) for job in self.past.every()]

    def counts(self, group: str = "a") -> Mapping[str, int]:
        return self.engine.stats.counts[group]

    def last(self) -> SubmitJobs:
        sent: SubmitJobs = self.of(SubmitJobs)[-1]
        return sent


def test_jobs_that_failed_run_again_with_their_parameters_after_the_end() -> None:
    play = Again()
    for job, status in ((1, 256), (2, 0), (3, 9)):
        play.run(job, status)
    assert (play.engine.state, play.engine.failed) == ("completed", 2)
    t_end = play.t
    play.t += 100.0
    assert play.choice().report() == {"jobs": 2, "outcomes": {"failed": 2}}
    assert play.rerun() == {"jobs": 2, "reopened": True}
    assert (play.engine.state, play.engine.t_end, play.engine.failed) == ("running", None, 0)
    assert (play.counts()["finished"], play.counts()["failed"]) == (1, 2)
    assert [(tag.rule, tag.firing, tag.index) for tag in list(play.queued.values())[3:]] == [
        ("retry", 0, 0),
        ("retry", 1, 2),
    ]
    play.run(4)
    play.run(5)
    assert (play.engine.state, play.counts()["finished"]) == ("completed", 3)
    play.check_status()
    assert play.status()["groups"]["a"]["failed"] == 0
    assert play.status()["away"] == pytest.approx(play.recorded("rerun")[0]["away"])
    assert 99.9 < play.engine.workload.absences.seconds < play.t - t_end
    assert [one.state for one in play.of(Finish)] == ["completed", "completed"]
    rows = play.rows()
    assert [row["params"]["x"] for row in rows] == [1, 2, 3, 1, 3]
    assert [row.get("replaced") for row in rows] == ["retry:0", None, "retry:1", None, None]
    assert play.engine.workload.total == 3
    # Nothing is left to be run again, and the ensemble stays as it is.
    assert play.choice().firings() == []
    assert play.rerun() == {"jobs": 0, "reopened": False}
    assert play.engine.state == "completed"


def test_what_is_about_to_end_says_for_how_many_jobs_it_waits() -> None:
    play = Again()
    play.begin(1)
    play.request("cancel")
    assert play.engine.state == "ending"
    reply = play.request("submit", group="a")
    wait = "'test' is about to end, as soon as 1 job that it cancels is gone; try again then"
    assert wait in str(reply.reason)


def test_a_job_runs_again_beside_the_others_while_the_ensemble_goes_on() -> None:
    play = Again()
    play.run(1, 256)
    play.begin(2)
    assert play.rerun() == {"jobs": 1, "reopened": False}
    assert play.recorded("rerun") == [{"jobs": 1}]
    assert play.engine.workload.absences.seconds == 0.0
    for job in (3, 4):
        play.run(job)
    play.end(2)
    assert (play.engine.state, play.engine.failed) == ("completed", 0)


def test_a_filter_chooses_among_the_last_attempts_whatever_their_outcome() -> None:
    play = Again()
    for job, status in ((1, 256), (2, 0), (3, 0)):
        play.run(job, status)
    assert play.rerun(filter="job.params.x < 3")["jobs"] == 2
    play.run(4, 256)
    play.run(5)
    # Job 1 is not the last attempt any more, and job 4 is.
    assert play.choice(filter="job.params.x == 1").report() == {
        "jobs": 1,
        "outcomes": {"failed": 1},
    }
    assert play.rerun()["jobs"] == 1
    with pytest.raises(RequestError, match=r"ensemble\.rerun: filter: .*'nope'"):
        play.choice(filter="nope > 1")
    with pytest.raises(RequestError, match="in two ways: give one of them"):
        play.choice(filter="job.params.x > 1", failed=True)


def test_failed_leaves_out_jobs_that_were_canceled() -> None:
    play = Again(limits={"active-jobs": 2})
    play.run(1, 256)
    play.begin(2)
    play.request("cancel")
    (command,) = play.of(CancelJobs)
    assert command.jobs == (2,)
    play.event(2, "exception", type="cancel", severity=0)
    play.end(2, 15)
    # Job 3 was in flight, and never accepted: there is no record of it.
    play.event(3, "submit")
    play.event(3, "clean")
    assert play.engine.state == "canceled"
    assert play.choice(failed=True).report() == {"jobs": 1, "outcomes": {"failed": 1}}
    assert play.choice().report() == {"jobs": 2, "outcomes": {"failed": 1, "canceled": 1}}
    assert play.rerun()["jobs"] == 2


def test_only_the_last_of_several_attempts_runs_again_as_it_was() -> None:
    retries = {"times": 1, "with": {"params": {"x": "{job.params.x * 10}"}, "nodes": 2}}
    play = Again(jobs=[{**SWEEP, "retries": retries}])
    for job in (1, 2, 3):
        play.run(job, 256 if job < 3 else 0)
    play.run(4, 256)
    play.run(5)
    assert play.counts()["gave-up"] == play.engine.failed == 1
    assert play.rerun()["jobs"] == 1
    assert (play.counts()["gave-up"], play.engine.failed) == (0, 0)
    assert play.last().overrides == {"nodes": 2, "params": {"x": 10}}
    # Both attempts are left out of tables from now on.
    rows = [(row["params"]["x"], row.get("replaced")) for row in play.rows()]
    assert rows == [(1, "retry:2"), (2, None), (3, None), (10, "retry:2"), (20, None)]
    # Its attempts begin anew.
    play.run(6, 256)
    play.run(7, 256)
    assert play.counts()["gave-up"] == play.engine.failed == 1
    assert [row["params"]["x"] for row in play.rows()] == [1, 2, 3, 10, 20, 10, 100]


def test_an_attempt_whose_next_one_is_beyond_a_full_record_does_not_run_again() -> None:
    """The next one may have succeeded; the job ran a second time although it was done."""
    job = {"name": "a", "command": "run", "retries": 1}
    play = Again(jobs=[job], limits={"records": 1})
    play.run(1, 256)
    play.run(2)
    assert (play.engine.state, play.engine.records.dropped) == ("completed", 1)
    assert play.choice().firings() == []


def test_a_retry_that_was_dropped_before_it_was_sent_leaves_the_attempt_before() -> None:
    play = Again(jobs=[{**SWEEP, "retries": {"times": 1, "after": 60}}])
    play.run(1, 256)
    play.run(2)
    play.run(3)
    assert play.choice().firings() == []  # it waits
    play.request("cancel")
    assert play.engine.state == "canceled"
    assert play.rerun() == {"jobs": 1, "reopened": True}
    assert play.engine.failed == 0
    play.run(4)
    assert (play.engine.state, play.counts()["finished"]) == ("completed", 3)


@pytest.mark.parametrize("lost", [True, False])
def test_a_job_whose_retry_was_dropped_and_that_was_run_again_is_over(lost: bool) -> None:
    play = Again(jobs=[{**SWEEP, "retries": 1}])
    play.run(2)
    play.run(3)
    play.begin(1)
    play.accept = False
    if lost:
        play.event(1, "exception", type="lost", severity=0)
        play.event(1, "clean")
    else:
        play.end(1, 256)
    play.request("cancel")
    play.failed(play.of(SubmitJobs)[-1], errno="ECANCELED")
    assert play.engine.state == "canceled"
    play.accept = True
    assert play.rerun()["jobs"] == 1
    play.run(4)
    assert play.engine.state == "completed"
    table = JobTable(play.rows, interrupted=False)
    assert [row["id"] for row in table] == [2, 3, 4]
    assert table.left_out == 1
    assert play.choice().firings() == []


def test_a_rerun_that_was_dropped_can_be_asked_for_once_more() -> None:
    play = Again()
    for job in (1, 2, 3):
        play.run(job, 256)
    play.accept = False
    assert play.rerun()["jobs"] == 3
    play.request("cancel")
    for command in play.of(SubmitJobs)[1:]:
        play.failed(command, errno="ECANCELED")
    assert play.engine.state == "canceled"
    play.accept = True
    assert play.rerun()["jobs"] == 3
    for job in (4, 5, 6):
        play.run(job)
    assert (play.engine.failed, play.counts()["finished"]) == (0, 3)


def test_two_requests_that_chose_the_same_job_run_it_again_once() -> None:
    play = Again()
    for job in (1, 2, 3):
        play.run(job, 256)
    play.past.take()
    first, second = play.choice().firings(), play.choice().firings()
    assert play.request("rerun", firings=first).result["jobs"] == 3
    assert play.request("rerun", firings=second).result == {"jobs": 0, "reopened": False}
    assert play.engine.workload.busy == 3


def test_rules_go_on_as_after_any_other_job() -> None:
    rules = [
        on_start(),
        {"trigger": "idle", "group": "a", "by": ["x"], "when": "idle.failed == 0",
         "action": submit("b", params="trigger")},
    ]  # fmt: skip
    two = {"name": "b", "command": "sum {x}", "params": {"x": [0]}}
    play = Again(jobs=[SWEEP, two], rules=rules)
    for job, status in ((1, 256), (2, 0), (3, 0)):
        play.run(job, status)
    for job in list(play.queued)[3:]:
        play.run(job)
    assert play.engine.state == "completed"
    assert play.submitted("b") == 2
    play.rerun()
    play.run(6, 256)
    # It failed again, so it is no success of its combination.
    assert (play.engine.state, play.submitted("b")) == ("completed", 2)
    play.rerun()
    play.run(7)
    assert play.submitted("b") == 3
    assert dict(play.last().params or {})["x"] in (1, [1])
    play.run(8)
    assert play.engine.state == "completed"


def test_trials_are_left_out_and_a_search_that_was_not_over_asks_for_nothing_more() -> None:
    search = {"id": "s", "group": "a", "minimize": "loss", "sampler": "random", "trials": 4,
              "variables": {"x": {"low": 0, "high": 1}}}  # fmt: skip
    group = {"name": "a", "command": "run {x}"}
    play = Again(
        jobs=[group, {"name": "b", "command": "true"}],
        rules=[on_start("b"), {"trigger": "start", "action": {"name": "search", "label": "s"}}],
        search=[search],
    )
    play.done(play.of(Ask)[0], points=[{"params": {"x": 0.5}}])
    play.run(1, 256)
    play.run(2, 256)
    play.request("cancel")
    assert play.engine.state == "canceled"
    assert play.choice().report() == {"jobs": 1, "outcomes": {"failed": 1}, "trials": 1}
    assert play.rerun()["jobs"] == 1
    play.run(3)
    assert (play.engine.state, play.status()["searches"][0]["state"]) == ("completed", "done")


def test_what_cannot_be_run_again_is_refused() -> None:
    play = Again(records=False)
    with pytest.raises(RequestError, match=r"keeps no record of its jobs \(records: false\)"):
        play.choice()
    play = Again()
    play.run(1, 256)
    firings = play.choice().firings()
    play.request("pause")
    assert "is paused; resume it first" in (play.request("rerun", firings=firings).reason or "")
