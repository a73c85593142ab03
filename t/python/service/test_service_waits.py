"""Why jobs wait: found out once for each job, and told by what the instance is now."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flux_ensemble.bindings import require_flux
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import SubmitJobs
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import JobEvent, MemberUp, Started, Tag
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.runtime.ports import Unwritten
from flux_ensemble.service.settings import EXPIRING
from flux_ensemble.service.status.conditions import Conditions, First
from flux_ensemble.service.tracker import Tracker

# How the queue is asked is Flux's.
pytestmark = pytest.mark.flux

_FINE = Conditions(nodes=4, nodes_up=4)
_STOPPED = Conditions(stopped={"": "later"}, nodes=4, nodes_up=4)


class Running:
    """What is looked at of an ensemble whose jobs are in the queue.

    Attributes:
        looks: how many jobs were looked at.
    """

    live = True
    member = fleet = unwritten = None
    name = "test"

    def __init__(self, **job: Any) -> None:
        submit = {"trigger": "start", "action": {"name": "submit", "label": "a"}}
        document = {"name": "test", "jobs": [{"name": "a", "command": "a", **job}]}
        engine = Engine(load_mapping({**document, "rules": [submit], "finish": "never"}))
        (sent,) = [one for one in engine.handle(Started(0.0)) if isinstance(one, SubmitJobs)]
        for index in range(sent.count):
            tag = Tag("a", sent.rule, sent.firing, index)
            engine.handle(JobEvent(1.0, index + 1, "submit", {}, tag))
            engine.handle(JobEvent(1.0, index + 1, "validate", {}))
        self.looks = 0
        self.post = engine.handle

        def look(*of: Any) -> Any:
            self.looks += 1
            return engine.job_at(*of)

        self.engine = SimpleNamespace(
            workload=engine.workload, job_at=look, spec=engine.spec, members=engine.members
        )


class Bench:
    """What says why the jobs of `running` wait."""

    def __init__(self, **job: Any) -> None:
        self.running = Running(**job)
        require_flux()
        from flux_ensemble.service.status.waits import Waits

        self.tracker = Tracker(0, lambda name, run: None, list)
        self.waits = Waits(self.tracker)

    def told(self, conditions: Conditions | None) -> list[tuple[int, str]]:
        """How many jobs wait for what."""
        waits = self.waits.of(cast(Any, self.running), conditions)
        return [(wait["jobs"], wait["reason"]) for wait in waits]

    def told_of_each(self, conditions: Conditions | None) -> int:
        """How many jobs wait, asked of each."""
        jobs = list(self.running.engine.workload.active())
        causes = [self.waits.of_job(cast(Any, self.running), job, conditions) for job in jobs]
        return len(causes) - causes.count(None)


def test_what_a_job_needs_is_found_out_once_however_often_its_status_is_asked_for() -> None:
    bench = Bench(params={"n": {"range": [1, 9]}}, nodes="{n}")
    assert bench.told(_STOPPED) == [(8, "the queue is stopped: later")]
    looks = bench.running.looks
    assert looks == 8
    for _ in range(3):
        bench.told(_STOPPED)
    assert bench.running.looks == looks
    bench.told(Conditions(nodes=4, nodes_up=2))
    assert bench.running.looks == looks


def test_what_is_kept_of_jobs_is_not_why_they_waited_before() -> None:
    bench = Bench(params={"n": {"range": [1, 9]}}, nodes="{n}")
    assert bench.told(_FINE) == []
    bench.told(_STOPPED)
    few = Conditions(nodes=8, nodes_up=7)
    assert bench.told(few) == [(1, "needs 8 nodes, and 7 of 8 are up")]
    assert bench.told_of_each(few) == 1
    assert bench.told(_FINE) == bench.told(None) == []


def test_a_job_that_starts_or_is_held_counts_so_at_the_next_look() -> None:
    bench = Bench(count=3)
    bench.told(_STOPPED)
    bench.running.post(JobEvent(2.0, 1, "start"))
    bench.tracker.note_urgency(2, [{"name": "urgency", "context": {"urgency": 0}}])
    held, stopped = (1, "held by urgency 0"), (1, "the queue is stopped: later")
    assert sorted(bench.told(_STOPPED)) == [held, stopped]
    assert bench.told(_FINE) == [held]


def test_jobs_of_one_group_wait_for_the_queues_that_their_parameters_name() -> None:
    bench = Bench(params={"q": ["fast", "slow", "slow"]}, queue="{q}")
    conditions = Conditions(stopped={"slow": ""}, nodes=4, nodes_up=4)
    assert bench.told(conditions) == [(2, "queue 'slow' is stopped")]
    assert bench.told_of_each(conditions) == 2


def test_nothing_is_kept_of_an_ensemble_that_is_dropped_or_whose_jobs_wait_for_nothing() -> None:
    bench = Bench(count=3)
    for forget in (lambda: bench.told(_FINE), lambda: bench.waits.forget(cast(Any, bench.running))):
        bench.told(_STOPPED)
        forget()
        assert bench.waits._waiting == {}


def advice(queue: str | None, conditions: Conditions) -> str:
    """What is advised for a job of a queue."""
    bench = Bench(**({} if queue is None else {"queue": queue}))
    (wait,) = bench.waits.of(cast(Any, bench.running), conditions)
    return str(wait["advice"])


@pytest.mark.parametrize("queue", [None, "batch"])
def test_where_the_scheduler_is_gone_no_queue_is_started_whatever_its_name(
    queue: str | None,
) -> None:
    told = advice(queue, Conditions(stopped={queue or "": "Scheduler is offline"}))
    assert "flux module reload -f sched-simple" in told
    assert "queue start" not in told


def test_a_queue_that_somebody_stopped_is_started_by_its_name() -> None:
    assert (
        advice("batch", Conditions(stopped={"batch": "later"}))
        == "start it with 'flux queue start batch'"
    )
    assert advice(None, Conditions(stopped={"": ""})) == "start it with 'flux queue start'"


def test_a_queue_that_is_stopped_for_the_end_of_the_allocation_is_started_by_nobody_else() -> None:
    told = advice(None, Conditions(stopped={"": EXPIRING}))
    assert told == "the service starts it again if the allocation is extended"


def test_nodes_that_are_drained_are_what_is_advised_about_and_those_that_are_offline_are_not() -> (
    None
):
    few = Conditions(nodes=4, nodes_up=0, missing="rank 0 is drained", drained=True)
    assert advice(None, few) == "'flux resource undrain RANKS' brings them back"
    assert advice(None, Conditions(nodes=4, nodes_up=0, missing="rank 0 is offline")) == ""


_DRAINED = Conditions(nodes=2, nodes_up=1, cores_up=4, missing="rank 1 is drained", drained=True)


@pytest.mark.parametrize(("nodes", "cores"), [(2, 2), (0, 5)])
def test_a_job_that_fits_says_behind_which_it_stands_if_that_waits_for_nodes(
    nodes: int, cores: int
) -> None:
    bench = Bench(count=3)
    (told,) = bench.told(replace(_DRAINED, first=First("f1", nodes, cores)))
    assert told[0] == 3
    assert told[1].startswith("stands behind job f1 in the queue, which needs ")
    assert "rank 1 is drained" in told[1]
    assert bench.told_of_each(replace(_DRAINED, first=First("f1", nodes, cores))) == 3
    assert advice(None, replace(_DRAINED, first=First("f1", nodes, cores))) == _DRAINED.advice


def test_a_job_says_nothing_of_a_first_one_that_fits_or_is_unknown() -> None:
    bench = Bench(count=3)
    assert bench.told(replace(_DRAINED, first=First("f1", 1, 4))) == []
    assert bench.told(_DRAINED) == []


def test_what_a_job_itself_needs_comes_before_what_the_first_one_needs() -> None:
    bench = Bench(nodes=2)
    told = bench.told(replace(_DRAINED, first=First("f1", 2, 2)))
    assert told == [(1, "needs 2 nodes, and 1 of 2 is up: rank 1 is drained")]


def pending(*jobs: dict[str, Any]) -> dict[str, Any]:
    return {"jobs": list(jobs)}


def scheduler(name: str) -> dict[str, Any]:
    others = {"name": "resource", "services": ["resource"]}
    return {"mods": [others, {"name": name, "services": [name, "feasibility", "sched"]}]}


def test_only_a_scheduler_that_keeps_the_order_has_a_first_job() -> None:
    require_flux()
    from flux_ensemble.service.status.instance import first_of

    job = {"id": 1 << 30, "priority": 16, "nnodes": 2, "ntasks": 2}
    assert first_of(scheduler("sched-simple"), pending(job)) == First("ƒ2dtD35", 2, 2)
    assert first_of(scheduler("sched-fluxion-qmanager"), pending(job)) is None
    assert first_of({"mods": []}, pending(job)) is None


def test_a_queue_in_which_all_jobs_are_held_has_no_first_job() -> None:
    require_flux()
    from flux_ensemble.service.status.instance import first_of

    assert first_of(scheduler("sched-simple"), pending()) is None
    assert first_of(scheduler("sched-simple"), pending({"id": 1, "priority": 0})) is None
    assert first_of(scheduler("sched-simple"), pending({"id": 1})) is None


def test_a_log_that_cannot_be_written_is_a_wait_whatever_else_is_known() -> None:
    bench = Bench(count=3)
    running: Any = bench.running
    running.unwritten = Unwritten(5.0, "cannot write ensemble.a in the KVS: no room (ENOSPC)")
    for conditions in (None, _FINE):
        (wait,) = bench.waits.of(running, conditions)
        assert wait["kind"] == "unwritten"
        assert wait["t"] == 5.0
        assert wait["text"] == (
            "nothing new begins: cannot write ensemble.a in the KVS: no room (ENOSPC); "
            "'flux ensemble doctor' examines the KVS and its disk"
        )
    assert [reason for _, reason in bench.told(_STOPPED)][1:] == ["the queue is stopped: later"]
    running.unwritten = None
    assert bench.told(_FINE) == []


def test_jobs_that_no_member_is_large_enough_for_wait_for_one_also_after_a_restart() -> None:
    document = {
        "name": "test",
        "members": [{"name": "pool", "runs": "tasks", "count": {"min": 1, "max": 2}}],
        "jobs": [{"name": "a", "command": "a", "count": 2, "cores": 64}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
    }
    spec = load_mapping(document)
    first = Engine(spec)
    first.handle(Started(0.0))
    first.handle(MemberUp(1.0, "pool.0", 1, 1, 2))
    bench = Bench()
    running: Any = bench.running
    for engine in (first, restore(spec, json.loads(json.dumps(dump(first))), [])):
        running.engine = engine
        (wait,) = bench.waits.of(running, _FINE)
        assert (wait["group"], wait["jobs"], wait["kind"]) == ("a", 2, "not-placed")
        assert wait["text"] == (
            "2 jobs of group 'a' wait: no member of pool is large enough for a job of 1 node, "
            "64 cores"
        )


def test_an_ensemble_that_has_ended_waits_for_no_log() -> None:
    bench = Bench(count=3)
    running: Any = bench.running
    running.unwritten, running.live = Unwritten(5.0, "cannot write"), False
    assert bench.told(_FINE) == []
