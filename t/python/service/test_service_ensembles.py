"""A loaded ensemble and the tracker: from journal entries to answers, without Flux."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

import pytest
from fakes import (
    FakeHost,
    FakeLoop,
    FakeMember,
    Reader,
)
from play import document, on_start

from flux_ensemble import eventlog
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import SubmitJobs
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.events import Absent, CommandFailed, Tag
from flux_ensemble.runtime.durability.replay import KEPT_ERRORS, Replayed
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.ports import Done
from flux_ensemble.service.registry import KEPT_ENDED, Ensembles
from flux_ensemble.service.tracker import Tracker, job_name

OWNER = 1000


class Queue(FakeMember):
    """Keeps the outcome of submissions back until a test gives it."""

    def __init__(self) -> None:
        super().__init__()
        self.dones: list[Done] = []
        self.shown: list[tuple[Tag, int]] = []

    def submit(self, command: SubmitJobs, done: Done) -> None:
        self.submitted.append(command)
        self.dones.append(done)

    def seen(self, tag: Tag, job: int) -> None:
        self.shown.append((tag, job))


class Faulty(dict[str, int]):
    """What the engine cannot read."""

    def items(self) -> Any:
        raise ZeroDivisionError("injected")


class Bench:
    """Ensembles, a tracker, and a queue that posts what a test says."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.ensembles = Ensembles()
        self.changes: list[Ensemble] = []
        self.log: list[str] = []
        self.answers: list[Any] = []
        self.queue_wide: list[Ensemble] = []
        self.tracker = Tracker(OWNER, self.ensembles.find, lambda: self.queue_wide)

    def load(
        self, name: str = "test", run: int = 1, replayed: Replayed | None = None, **given: Any
    ) -> tuple[Ensemble, Queue]:
        member = Queue()
        ensemble = Ensemble(
            load_mapping(document(name=name, **given)),
            FakeHost(queue=member, loop=self.loop, lines=self.log, changes=self.changes),
            run=run,
            cwd="/w",
            replayed=replayed,
        )
        self.ensembles.add(ensemble)
        ensemble.start()
        return ensemble, member

    def post(self, job: int, name: str, jobspec: Any = None, **context: Any) -> None:
        entry = {"timestamp": 2000.0 + job, "name": name, "context": context}
        self.tracker.event(job, entry, jobspec)

    def post_memo(self, job: int, memo: Mapping[str, Any]) -> None:
        self.tracker.event(job, {"timestamp": 2000.0 + job, "name": "memo", "context": memo}, None)

    def submit(self, job: int, tag: Mapping[str, Any] | None, userid: int = OWNER) -> None:
        self.post(job, "submit", jobspec(tag), userid=userid)
        self.post(job, "validate")

    def finish(self, job: int, status: int = 0) -> None:
        for name in ("start", "finish", "clean"):
            self.post(job, name, **({"status": status} if name == "finish" else {}))


def jobspec(tag: Mapping[str, Any] | None, name: str | None = None) -> dict[str, Any]:
    attributes: dict[str, Any] = {"system": {"job": {"name": name}} if name else {}}
    if tag is not None:
        attributes["user"] = {"ensemble": tag}
    return {"attributes": attributes, "tasks": [{"command": ["/usr/bin/app", "x"]}]}


def tag(index: Any = 0, **given: Any) -> dict[str, Any]:
    one: dict[str, Any] = {
        "name": "test",
        "run": 1,
        "group": "a",
        "rule": "rule-0",
        "firing": 0,
        "index": index,
    }
    return {**one, **given}


def counts(ensemble: Ensemble, group: str = "a") -> tuple[int, int]:
    group_counts = ensemble.status()["groups"][group]
    return group_counts["submitted"], group_counts["success"]


def test_jobs_with_the_tag_of_an_ensemble_are_its_jobs() -> None:
    bench = Bench()
    ensemble, member = bench.load(rules=[on_start("a")])
    for job in (1, 2):
        bench.submit(job, tag(job - 1))
    assert bench.tracker.jobs_of(ensemble) == (1, 2)
    assert member.shown == [(Tag("a", "rule-0", 0, job - 1), job) for job in (1, 2)]
    bench.finish(1)
    assert counts(ensemble) == (2, 1)
    assert bench.tracker.jobs_of(ensemble) == (2,)


@pytest.mark.parametrize(
    "given",
    [
        None,
        {},
        tag(run=2),
        tag(name="other"),
        tag(run="1"),
        tag(name=["test"]),
        tag(index=None),
        tag(firing=True),
        "text",
    ],
)
def test_jobs_without_a_proper_tag_are_nobodys(given: Any) -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[on_start("a")])
    bench.submit(1, given)
    bench.finish(1)
    assert counts(ensemble) == (0, 0)


def test_a_tag_on_a_guests_job_is_a_forgery() -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[on_start("a")])
    bench.submit(1, tag(), userid=OWNER + 1)
    assert counts(ensemble) == (0, 0)


def test_a_name_that_is_used_again_is_not_mixed_up_with_the_old_one() -> None:
    bench = Bench()
    old, _ = bench.load(run=1, rules=[on_start("a")])
    bench.submit(1, tag(0))
    bench.tracker.forget(old)
    new, _ = bench.load(run=2, rules=[on_start("a")])
    bench.finish(1)
    bench.submit(2, tag(1, run=1))
    assert counts(new) == (0, 0)
    bench.submit(3, tag(0, run=2))
    assert counts(new) == (1, 0)


def test_jobs_of_others_go_to_those_who_want_them_with_their_names() -> None:
    bench = Bench()
    wide = {
        "trigger": "job-finish",
        "scope": "queue",
        "group": "app",
        "action": {"name": "submit", "label": "b", "repetitions": "unlimited"},
    }
    ensemble, member = bench.load(rules=[wide])
    bench.queue_wide = [ensemble]
    bench.tracker.learning = True
    bench.tracker.learn(1, jobspec(None))
    bench.submit(2, None)
    bench.post(3, "submit", jobspec(None, "other"), userid=5)
    for job in (1, 2, 3):
        bench.finish(job)
    assert [command.group for command in member.submitted] == ["b", "b"]


def test_the_id_of_a_refused_job_may_be_anothers_later() -> None:
    """Flux gives it again when job-ingest was loaded anew since."""
    bench = Bench()
    wide = {"trigger": "job-finish", "scope": "queue", "action": {"name": "submit", "label": "b"}}
    ensemble, member = bench.load(rules=[on_start("a"), wide])
    bench.queue_wide = [ensemble]
    bench.post(1, "submit", jobspec(tag()), userid=OWNER)
    bench.post(1, "invalidate")
    assert bench.tracker.jobs_of(ensemble) == ()
    bench.submit(1, None)
    bench.finish(1)
    assert [command.group for command in member.submitted] == ["a", "b"]


def test_the_id_of_a_fence_may_be_a_jobs_when_the_journal_was_gone_meanwhile() -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[on_start("a")])
    bench.post(1, "submit", jobspec({"fence": 1}), userid=OWNER)
    bench.tracker.begin_again()
    bench.submit(1, tag())
    assert bench.tracker.jobs_of(ensemble) == (1,)


def test_a_job_of_somebody_else_is_no_fence() -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[{**on_start("a"), "trigger": "job-submit", "scope": "queue"}])
    bench.queue_wide.append(ensemble)
    bench.post(1, "submit", jobspec({"fence": 1}), userid=OWNER + 1)
    assert ensemble.firings == 1
    bench.post(2, "submit", jobspec({"fence": 1}), userid=OWNER)
    assert ensemble.firings == 1


def test_the_newest_job_is_the_newest_that_the_queue_accepted() -> None:
    """As the job manager has it, by whose figure it shows that jobs were purged."""
    bench = Bench()
    bench.submit(1, None)
    bench.post(2, "submit", jobspec(None), userid=OWNER)
    bench.post(2, "invalidate")
    assert bench.tracker.newest == 1


def test_names_of_jobs_are_those_that_flux_shows() -> None:
    assert job_name(jobspec(None, "given")) == "given"
    assert job_name(jobspec(None)) == "app"


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"attributes": None, "tasks": None},
        {"attributes": {}, "tasks": []},
        {"attributes": {"user": "text", "system": [1]}, "tasks": [None]},
        {"attributes": {"user": {"ensemble": 7}, "system": {"job": "text"}}, "tasks": [{}]},
        {"attributes": {"system": {"job": {"name": {}}}}, "tasks": [{"command": []}]},
        {"attributes": {"system": {"job": {"name": 7}}}, "tasks": [{"command": "text"}]},
        {"attributes": {"system": {"job": {"name": "x" * 1_000_000}}}, "tasks": []},
    ],
)
def test_a_jobspec_that_no_validator_has_seen_is_a_job_of_others(odd: dict[str, Any]) -> None:
    bench = Bench()
    bench.load()
    bench.tracker.learning = True
    bench.post(1, "submit", odd, userid=OWNER)
    bench.tracker.learn(2, odd)
    assert not bench.tracker.follows(1)
    assert not bench.tracker.follows(2)
    assert len(job_name(odd)) < 5000


def test_a_request_is_answered_once_the_engine_has_the_outcome() -> None:
    bench = Bench()
    ensemble, member = bench.load(finish="never")
    ensemble.ask("submit", {"group": "a"}, bench.answers.append)
    assert not bench.answers
    member.dones[0](CommandFailed(1.0, member.submitted[0].id, "EINVAL", "no such queue"))
    assert bench.answers[0].errno == errno.EINVAL
    assert str(bench.answers[0]) == "no such queue"


def test_a_request_that_is_open_when_the_ensemble_is_taken_down_gets_the_error() -> None:
    bench = Bench()
    ensemble, _ = bench.load(finish="never")
    ensemble.ask("submit", {"group": "a"}, bench.answers.append)
    ensemble.close(errno.ESHUTDOWN, "going away")
    assert [answer.errno for answer in bench.answers] == [errno.ESHUTDOWN]


def test_a_log_is_followed_until_the_last_job_is_gone() -> None:
    bench = Bench()
    ensemble, member = bench.load(rules=[on_start("a", count=1)], finish="never")
    reader = Reader()
    ensemble.log.read(reader, follow=True)
    bench.submit(1, tag())
    ensemble.ask("terminate", {}, bench.answers.append)
    assert ensemble.ended
    assert "END" not in reader.names
    bench.finish(1)
    member.dones[0](CommandFailed(1.0, member.submitted[0].id, "ECANCELED", "x", ids=(1,)))
    # The outcome is for people only, so it waits for a moment.
    bench.loop.timers[-1].callback()
    assert reader.names[-1] == "END"
    assert not ensemble.live
    assert bench.changes[-1] is ensemble


def test_an_exception_in_the_engine_breaks_this_ensemble_and_no_other() -> None:
    bench = Bench()
    broken, _ = bench.load("test", rules=[on_start("a")])
    healthy, _ = bench.load("other", rules=[on_start("a")])
    reader = Reader()
    broken.log.read(reader, follow=True)

    bench.submit(1, tag())
    bench.post_memo(1, Faulty(key=1))
    bench.submit(2, tag(name="other"))
    status = broken.status()
    assert (broken.state, status["state"], status["t_end"]) == ("failed", "failed", 1000.0)
    assert "internal error: ZeroDivisionError('injected')" in broken.reason
    assert "Traceback" in status["errors"][0]
    assert any("ZeroDivisionError" in line for line in bench.log)
    assert reader.names[-2:] == ["finish", "END"]
    assert bench.tracker.jobs_of(broken) == (1,)
    assert counts(healthy) == (1, 0)
    broken.ask("pause", {}, bench.answers.append)
    assert bench.answers[0].errno == errno.EAGAIN


def test_an_exception_in_what_runs_its_jobs_breaks_it_too() -> None:
    bench = Bench()
    ensemble, _ = bench.load(finish="never")
    ensemble.broken(RuntimeError("injected"))
    for _ in range(KEPT_ERRORS + 5):
        ensemble.broken(RuntimeError("again"))
    assert ensemble.state == "failed"
    assert len(ensemble.facts.errors) <= KEPT_ERRORS


def test_time_without_an_instance_counts_for_no_request_from_the_first_one_on() -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[on_start("a", count=1)], finish="never")
    # Until the events of its jobs are known, what the engine has seen last.
    ensemble.absent = 30.0
    assert ensemble.status()["away"] == ensemble.summary()["away"] == 30.0
    ensemble.absent = 0.0
    t = ensemble.engine.t
    ensemble.post([Absent(t + 25.0, t)])
    # The entry of the log says it to people, and counts for nothing.
    ensemble.note(eventlog.Epoch(epoch=2, version="1", away=25.0, ago=3.0))
    assert ensemble.status()["away"] == ensemble.summary()["away"] == 25.0
    span = {"since": t, "until": t + 25.0}
    assert ensemble.status()["absences"] == ensemble.summary()["absences"] == [span]


def test_what_breaks_after_the_end_does_not_change_how_it_ended() -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[on_start("a", count=1)], finish="never")
    reader = Reader()
    bench.submit(1, tag())
    ensemble.ask("terminate", {}, bench.answers.append)
    ensemble.log.read(reader, follow=True)
    ensemble.fail("the job manager went away")
    assert ensemble.state == "completed"
    assert ensemble.facts.errors == ["the job manager went away"]
    assert reader.names.count("finish") == 1
    assert reader.names[-1] == "END"
    ensemble.ask("cancel", {}, bench.answers.append)
    assert bench.answers[-1].errno == errno.EAGAIN


def test_the_summary_adds_up_the_groups() -> None:
    bench = Bench()
    ensemble, _ = bench.load(rules=[on_start("a")], finish="never")
    bench.submit(1, tag(0))
    bench.finish(1)
    assert ensemble.summary() == {
        "name": "test",
        "state": "running",
        "reason": "",
        "t_start": 1000.0,
        "t_end": None,
        "active": 0,
        "waiting": 1,
        "finished": 1,
        "failed": 0,
    }


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    bench = Bench()
    bench.load("one", finish="never")
    with pytest.raises(RequestError, match=r"no ensemble named 'two' \(ensembles: one\)") as caught:
        bench.ensembles.get("two")
    assert caught.value.errno == errno.ENOENT


def test_the_oldest_ended_ensembles_are_surplus() -> None:
    bench = Bench()
    running, _ = bench.load("running", finish="never")
    ended = [bench.load(f"ended-{n}")[0] for n in range(KEPT_ENDED + 2)]
    assert all(one.ended for one in ended)
    assert bench.ensembles.surplus() == ended[:2]
    assert running in bench.ensembles
