"""Catching up with the journal: what an ensemble has seen of a job, and what is news to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from play import on_start
from test_service_ensembles import Bench, jobspec, tag

from flux_ensemble.bindings import require_flux
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.snapshot import FORMAT, dump, restore
from flux_ensemble.runtime.durability.replay import Facts, Replayed
from flux_ensemble.runtime.durability.timers import Timers
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.service.recovery import catchup as module
from flux_ensemble.service.recovery.catchup import CatchUp
from flux_ensemble.service.recovery.ended_file import Ended
from flux_ensemble.words import all_undone, left_out

OWNER = 1000
FOREIGN = {
    "trigger": "job-memo",
    "scope": "queue",
    "when": "x > 0",
    "action": {"name": "submit", "label": "b", "repetitions": "unlimited"},
}


def entry(t: float, name: str, **context: Any) -> dict[str, Any]:
    return {"timestamp": t, "name": name, "context": context}


def begun(t: float = 2000.0) -> list[dict[str, Any]]:
    """What a job has been through when it runs."""
    names = ("submit", "validate", "start")
    return [entry(t + place / 10, name, userid=OWNER) for place, name in enumerate(names)]


def live(bench: Bench, job: int, spec: Any, entries: Iterable[Any]) -> None:
    for one in entries:
        bench.tracker.event(job, one, spec if one["name"] == "submit" else None)


def catch_up(bench: Bench, ensemble: Ensemble, job: int, spec: Any, entries: list[Any]) -> None:
    past = CatchUp(bench.tracker, [ensemble])
    past.history(job, spec, entries)
    past.apply()


#: How a job ends that Slurm ends: by itself, and as its shell reports it.
BY_SIGTERM = [15, 143 << 8]


@pytest.mark.parametrize("status", BY_SIGTERM)
def test_a_job_that_died_unseen_by_sigterm_with_an_earlier_instance_was_interrupted(
    status: int,
) -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[on_start("a")])
    live(bench, 1, jobspec(tag()), begun())
    ends = [entry(2009.0, "finish", status=status), entry(2009.1, "clean")]
    past = CatchUp(bench.tracker, [ensemble], t_instance=2010.0)
    past.history(1, jobspec(tag()), [*begun(), *ends])
    past.apply()
    counts = ensemble.status()["groups"]["a"]
    assert (counts["interrupted"], counts["failed"]) == (1, 0)


@pytest.mark.parametrize(
    ("ends", "t_instance"),
    [
        pytest.param([entry(2009.0, "finish", status=15)], 1999.0, id="in this instance"),
        pytest.param([entry(2009.0, "finish", status=15)], None, id="in an unknown one"),
        pytest.param([entry(2009.0, "finish", status=9)], 2010.0, id="by another signal"),
        pytest.param([entry(2009.0, "finish", status=256)], 2010.0, id="by itself"),
        pytest.param(
            [
                entry(2008.0, "exception", type="timeout", severity=0),
                entry(2009.0, "finish", status=15),
            ],
            2010.0,
            id="by its time limit",
        ),
    ],
)
def test_a_job_was_not_interrupted_that_ended(
    ends: list[dict[str, Any]], t_instance: float | None
) -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[on_start("a")])
    live(bench, 1, jobspec(tag()), begun())
    past = CatchUp(bench.tracker, [ensemble], t_instance=t_instance)
    past.history(1, jobspec(tag()), [*begun(), *ends, entry(2009.1, "clean")])
    past.apply()
    counts = ensemble.status()["groups"]["a"]
    assert counts.get("interrupted", 0) == 0
    assert counts["failed"] + counts["timeout"] == 1


@pytest.mark.parametrize(("t_instance", "t_end"), [(5000.0, 2000.2), (1900.0, 5001.0)])
def test_a_job_ended_with_its_instance_and_not_when_the_next_one_reported_it(
    t_instance: float, t_end: float
) -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[on_start("a")])
    live(bench, 1, jobspec(tag()), begun())
    job = ensemble.engine.workload.jobs[1]
    past = CatchUp(bench.tracker, [ensemble], t_instance=t_instance)
    lost = entry(5000.5, "exception", type="exec", severity=0, note="lost")
    reported = [lost, entry(5001.0, "finish", status=9), entry(5001.1, "clean")]
    past.history(1, jobspec(tag()), [*begun(), *reported])
    past.apply()
    assert job.t_end == t_end


def test_a_job_that_ended_before_its_instance_did_ended_when_it_did() -> None:
    bench = Bench()
    ensemble, _ = bench.load(
        rules=[on_start("a")], jobs=[{"name": "a", "command": "x", "count": 2}]
    )
    for job in (1, 2):
        live(bench, job, jobspec(tag(index=job - 1)), begun())
    ended, lost = (ensemble.engine.workload.jobs[job] for job in (1, 2))
    past = CatchUp(bench.tracker, [ensemble], t_instance=5000.0)
    own = [entry(2007.0, "finish", status=0), entry(2007.1, "clean")]
    past.history(1, jobspec(tag()), [*begun(), *own])
    past.history(2, jobspec(tag(index=1)), [*begun(), entry(5001.0, "finish", status=9)])
    past.apply()
    assert (ended.t_end, lost.t_end) == (2007.0, 2007.1)
    assert past.t_known[ensemble] == 2007.1


def values(ensemble: Ensemble) -> dict[str, int]:
    """How many values the streams of group a have."""
    sizes = ensemble.engine.stats.sizes()
    return {variable: size for group, variable, size in sizes if group == "a"}


#: Memos between which the clock was set back, each time by an hour.
STEPS = [
    entry(9000.0, "memo", x=1),
    entry(9001.0, "memo", x=2),
    entry(5400.5, "memo", x=3),
    entry(5401.0, "memo", x=4),
    entry(1801.0, "memo", x=5),
    entry(9000.5, "memo", x=6),
]


@pytest.mark.parametrize("seen", range(len(STEPS) + 1))
def test_what_was_seen_live_is_not_taken_again_and_the_rest_is_whatever_the_clock_did(
    seen: int,
) -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[on_start("a")])
    spec, entries = jobspec(tag()), [*begun(), *STEPS]
    live(bench, 1, spec, entries[: len(begun()) + seen])
    assert values(ensemble).get("x", 0) == seen
    for _ in range(3):
        catch_up(bench, ensemble, 1, spec, entries)
        assert values(ensemble)["x"] == len(STEPS)
    live(bench, 1, spec, [entry(3.0, "finish", status=0), entry(2.0, "clean")])
    assert ensemble.status()["groups"]["a"]["success"] == 1


def test_a_job_that_came_and_went_while_the_clock_was_set_back_has_its_outcome() -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[on_start("a")])
    entries = [*begun(), *STEPS, entry(100.0, "finish", status=0), entry(50.0, "clean")]
    catch_up(bench, ensemble, 1, jobspec(tag()), entries)
    assert ensemble.status()["groups"]["a"]["success"] == 1
    assert values(ensemble) == {"x": len(STEPS), "pending": 1, "duration": 1}


def test_what_the_queue_has_forgotten_in_a_crash_is_not_made_up_for_with_what_came_before() -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[on_start("a")])
    spec = jobspec(tag())
    entries = [*begun(), entry(2001.0, "memo", x=1)]
    live(bench, 1, spec, [*entries, entry(2002.0, "memo", x=2)])
    catch_up(bench, ensemble, 1, spec, [*entries, entry(2003.0, "memo", x=3)])
    assert values(ensemble)["x"] == 3


@pytest.mark.parametrize("seen", range(1, len(STEPS) + 1))
def test_jobs_of_others_that_are_known_are_seen_on_whatever_the_clock_did(seen: int) -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[FOREIGN])
    bench.queue_wide.append(ensemble)
    spec, entries = jobspec(None), [*begun(), *STEPS]
    live(bench, 7, spec, entries[: len(begun()) + seen])
    assert ensemble.firings == seen
    for _ in range(3):
        catch_up(bench, ensemble, 7, spec, entries)
        assert ensemble.firings == len(STEPS)


def test_of_a_job_of_others_that_is_not_known_what_is_older_is_no_news() -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[FOREIGN])
    bench.queue_wide.append(ensemble)
    live(bench, 7, jobspec(None), [*begun(), entry(3000.0, "memo", x=1)])
    entries = [*begun(), entry(2999.0, "memo", x=1), entry(3001.0, "memo", x=1)]
    catch_up(bench, ensemble, 8, jobspec(None), entries)
    assert ensemble.firings == 2


def test_a_snapshot_without_marks_of_jobs_of_others_is_read_and_goes_by_time() -> None:
    before = Bench()
    ensemble, _ = before.load(rules=[FOREIGN])
    before.queue_wide.append(ensemble)
    live(before, 7, jobspec(None), begun())
    # As a snapshot was before there were such marks.
    state = dump(ensemble.engine)["state"]
    state["foreign"]["more"] = []
    text = json.dumps(state, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    snapshot = {"format": FORMAT, "digest": digest, "state": state}
    engine = restore(ensemble.engine.spec, snapshot, [])
    bench = Bench()
    ensemble, _ = bench.load(rules=[FOREIGN], replayed=Replayed(engine, Timers(), Facts()))
    assert ensemble.engine.observer.job(7) is not None
    entries = [*begun(), entry(999.5, "memo", x=1), entry(2005.0, "memo", x=1)]
    catch_up(bench, ensemble, 7, jobspec(None), entries)
    assert ensemble.firings == 1


def test_the_marks_of_a_job_are_in_a_snapshot() -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[on_start("a"), FOREIGN])
    bench.queue_wide.append(ensemble)
    live(bench, 1, jobspec(tag()), [*begun(), *STEPS])
    live(bench, 7, jobspec(None), begun())
    snapshot = dump(ensemble.engine)["state"]
    ((_, own),) = snapshot["workload"]["jobs"]["more"]
    assert own["_last"] == {"memo": 9000.5}
    marks = {"submit": 2000.0, "validate": 2000.1, "start": 2000.2}
    assert snapshot["foreign"]["more"] == [[0, {"_last": marks}]]


def behind(monkeypatch: pytest.MonkeyPatch, jobs: int) -> tuple[Ensemble, CatchUp, Bench]:
    """An ensemble whose jobs have run while nobody looked; they are taken in by threes."""
    monkeypatch.setattr(module, "SLICE", 3)
    bench = Bench()
    group = {"name": "a", "command": "app", "count": jobs}
    ensemble, _ = bench.load(jobs=[group], rules=[on_start("a")])
    past = CatchUp(bench.tracker, [ensemble])
    for job in range(jobs):
        ends = [entry(2010.0 + job, "finish", status=0), entry(2011.0 + job, "clean")]
        past.history(job + 1, jobspec(tag(job)), [*begun(2000.0 + job), *ends])
    return ensemble, past, bench


def test_a_long_history_is_taken_in_in_steps_which_say_how_far_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ensemble, past, _ = behind(monkeypatch, 10)
    said, done = [], []
    for _ in past.applying():
        said.append(past.behind["test"])
        done.append(ensemble.status()["groups"]["a"]["success"])
    assert said[:3] == [f"{number} of 10 jobs are found" for number in (3, 6, 9)]
    assert said[3:] == [f"{number} of 50 events of its jobs" for number in range(3, 50, 3)]
    assert done == sorted(done)
    assert len(set(done)) > 5
    assert not past.behind
    # It comes to the same as at once.
    at_once, other, _ = behind(monkeypatch, 10)
    other.apply()
    assert dump(at_once.engine) == dump(ensemble.engine)


def test_jobs_that_are_gone_are_given_up_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE", 3)
    bench = Bench()
    group = {"name": "a", "command": "app", "count": 8, "on-lost": "fail"}
    ensemble, _ = bench.load(jobs=[group], rules=[on_start("a")])
    for job in range(8):
        live(bench, job + 1, jobspec(tag(job)), begun(2000.0 + job))
    past = CatchUp(bench.tracker, [ensemble])
    past.apply()
    said = []
    steps = past.settling(3000.0, 8)
    ended: list[bool] = []

    def settled() -> Iterator[None]:
        ended.append((yield from steps))

    for _ in settled():
        said.append(past.behind["test"])
    assert ended == [True]
    assert said == [f"{number} of 8 jobs that the queue does not have" for number in (3, 6)]
    assert ensemble.status()["groups"]["a"]["failed"] == 8
    assert not past.behind


@pytest.mark.flux
def test_list_and_status_say_which_ensembles_are_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    require_flux()
    from flux_ensemble.service.status.reports import Reports

    _, past, bench = behind(monkeypatch, 10)
    bench.load(name="other", jobs=[{"name": "a", "command": "app"}], rules=[])
    recovery = SimpleNamespace(
        unreadable={}, coming={"third": "it waits for its turn"}, behind=past.behind, epoch=2
    )
    perf = SimpleNamespace(report=dict)
    some: Any = None
    reports = Reports(
        "client", bench.ensembles, bench.tracker, recovery, some, some, perf,  # type: ignore[arg-type]
        lambda: "recovering",
    )  # fmt: skip
    for _ in past.applying():
        listed = {one["name"]: one for one in reports.list(owner=True)["ensembles"]}
        assert listed["test"]["state"] == "running"
        assert listed["test"]["reason"] == f"recovering: {past.behind['test']}"
        assert "recovering" not in listed["other"]["reason"]
        assert listed["third"]["state"] == "recovering"
        assert reports._service()["recovering"] == {**recovery.coming, **past.behind}
    listed = {one["name"]: one for one in reports.list(owner=True)["ensembles"]}
    assert "recovering" not in listed["test"]["reason"]


def test_a_job_that_waited_for_the_next_instance_did_not_wait_in_between() -> None:
    bench = Bench()
    ensemble, _ = bench.load(
        rules=[on_start("a")], jobs=[{"name": "a", "command": "x", "count": 2}]
    )
    past = CatchUp(bench.tracker, [ensemble], t_instance=5000.0)
    own: list[Any] = [*begun(), entry(2010.0, "finish", status=0), entry(2010.1, "clean")]
    waited: list[Any] = [entry(2000.0, "submit", userid=OWNER), entry(2000.1, "validate")]
    past.history(1, jobspec(tag()), own)
    past.history(2, jobspec(tag(index=1)), [*waited, entry(5002.0, "start")])
    past.apply()
    pending = ensemble.engine.metrics(5003.0)["max"]["a-pending"]
    assert pending == pytest.approx(12.1, abs=0.01)


def crashed(finished: int, noted: Ended | None) -> tuple[Ensemble, list[ActiveJob]]:
    """Four jobs, of which some ended before a checkpoint of an earlier instance; and the others."""
    bench = Bench()
    ensemble, _ = bench.load(
        rules=[on_start("a")], jobs=[{"name": "a", "command": "x", "count": 4}]
    )
    for job in range(1, 5):
        live(bench, job, jobspec(tag(index=job - 1)), begun())
    running = [ensemble.engine.workload.jobs[job] for job in range(finished + 1, 5)]
    before = {} if noted is None else {"test": noted._replace(run=ensemble.run)}
    past = CatchUp(bench.tracker, [ensemble], t_instance=5000.0, ended=before)
    lost = [entry(5001.0, "finish", status=9), entry(5001.1, "clean")]
    own = [entry(2010.0, "finish", status=0), entry(2010.1, "clean")]
    for job in range(1, 5):
        ends = own if job <= finished else lost
        past.history(job, jobspec(tag(index=job - 1)), [*begun(), *ends])
    past.apply()
    return ensemble, running


def test_results_that_a_crash_undid_are_counted_and_the_time_since_the_checkpoint_is_left_out() -> (
    None
):
    ensemble, _ = crashed(1, Ended(0, 3, 2500.0))
    status: Any = ensemble.status()
    span = {"since": 2010.1, "until": 5000.0, "undone": 2, "ended": 2500.0}
    assert status["absences"] == [span]
    assert status["away"] == pytest.approx(5000.0 - 2010.1)
    assert left_out(status) == pytest.approx((2500.0, 2500.0 - 2010.1))
    (text,) = all_undone(ensemble.summary())
    assert text.startswith("a crash undid the results of at least 2 jobs since the checkpoint of ")
    assert text.endswith("; they run again")
    # The status is the same after the next restart, and from a snapshot.
    dumped = dump(ensemble.engine)["state"]
    assert dumped["absences"] == [span]


def test_a_crash_that_undid_no_result_ended_the_instance_when_that_was_last_noted() -> None:
    ensemble, running = crashed(1, Ended(0, 1, 2500.0))
    assert ensemble.status()["absences"] == [{"since": 2500.0, "until": 5000.0}]
    # Jobs that ran ended with it.
    assert [job.t_end for job in running] == [2500.0] * 3


@pytest.mark.parametrize(
    "noted",
    [
        pytest.param(None, id="nothing is noted"),
        pytest.param(Ended(0, 3, 2009.0), id="it is older than what is kept"),
        pytest.param(Ended(0, 3, 5003.0), id="it is of this instance"),
    ],
)
def test_nothing_is_said_to_be_undone_if(noted: Ended | None) -> None:
    ensemble, _ = crashed(1, noted)
    assert ensemble.status()["absences"] == [{"since": 2010.1, "until": 5000.0}]
