"""Members in the engine: exact commands, and what is not changed where there are none."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.absences import Absence, Absences
from flux_ensemble.engine.codec import command_from_json, encode, to_json
from flux_ensemble.engine.commands import (
    CancelJobs,
    Command,
    DrainMember,
    EndMember,
    Record,
    Reply,
    StartMember,
    StartTimer,
    StopTimer,
    SubmitJobs,
)
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import (
    CommandDone,
    CommandFailed,
    JobEvent,
    MemberDraining,
    MemberEnded,
    MemberExpires,
    MemberLost,
    MemberUp,
    Request,
    Started,
    Tag,
    TimerFired,
)
from flux_ensemble.engine.job_keys import make
from flux_ensemble.engine.rule_reasons import why
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.engine.status import status


def engine(count: Any = 2, rules: Any = (), pool: Any = (), **job: Any) -> Engine:
    """An engine whose ensemble submits four jobs, on members of two cores."""
    submit = {"trigger": "start", "action": {"name": "submit", "label": "a"}}
    document = {
        "name": "test",
        "members": [{"name": "pool", "count": count, **dict(pool)}],
        "jobs": [{"name": "a", "command": "a", "count": 4, **job}],
        "rules": [submit, *rules],
    }
    return Engine(load_mapping(document))


def told(commands: list[Command]) -> list[Command]:
    """The commands but for entries of the log."""
    return [command for command in commands if not isinstance(command, Record)]


def up(ordinal: int, t: float = 1.0, t_expires: float | None = None, cores: int = 2) -> MemberUp:
    return MemberUp(t, f"pool.{ordinal - 1}", ordinal, 1, cores, 0, t_expires)


def up_for_all(one: Engine) -> tuple[SubmitJobs, SubmitJobs]:
    """A member that is large enough for all four jobs is up; what it is sent, by halves."""
    (all_,) = [
        each for each in one.handle(up(1, t_expires=100.0, cores=4)) if isinstance(each, SubmitJobs)
    ]
    assert (all_.first, all_.count) == (0, 4)
    return replace(all_, count=2), replace(all_, first=2, count=2)


def shows(one: Engine, command: SubmitJobs, *names: str, t: float = 2.0) -> None:
    """The jobs of a command show in their member's queue, with their index and 1 as ids."""
    for index in range(command.first, command.first + command.count):
        key = make(command.ordinal, index + 1)
        tag = Tag(command.group, command.rule, command.firing, index)
        for name in ("submit", "validate", *names):
            context = {"status": 0} if name == "finish" else {}
            one.handle(JobEvent(t, key, name, context, tag if name == "submit" else None))
    one.check()


def test_members_are_started_first_and_jobs_placed_when_they_are_up() -> None:
    one = engine()
    assert told(one.handle(Started(0.0))) == [
        StartMember(1, "pool.0", "pool", 1),
        StartMember(2, "pool.1", "pool", 2),
    ]
    # The first gets as many as it has cores: what would wait there can run on the next one.
    sent = told(one.handle(up(1, t_expires=100.0)))
    assert sent[0] == StartTimer("drain:1", 69.0)
    jobs = [command for command in sent if isinstance(command, SubmitJobs)]
    assert [(job.first, job.count, job.ordinal) for job in jobs] == [(0, 2, 1)]
    rest = [each for each in one.handle(up(2)) if isinstance(each, SubmitJobs)]
    assert [(job.first, job.count, job.ordinal) for job in rest] == [(2, 1, 2), (3, 1, 2)]
    shows(one, jobs[0], "start")
    report = status(one)["pools"]["pool"]
    assert [(member["name"], member["jobs"]) for member in report["members"]] == [
        ("pool.0", 2),
        ("pool.1", 2),
    ]


@pytest.mark.parametrize(
    ("pool", "service"),
    [
        ({}, "parent"),
        ({"service": "child"}, "child"),
        ({"service": "auto", "count": 9}, "child"),
        ({"runs": "tasks"}, "child"),
    ],
)
def test_the_status_says_which_service_submits_the_jobs_of_a_pool(
    pool: dict[str, Any], service: str
) -> None:
    jobs = [{"name": "a", "command": "true"}]
    rule = {"trigger": "start", "action": {"name": "submit", "label": "a"}}
    members = [{"name": "pool", **pool}]
    document = {"name": "test", "members": members, "jobs": jobs, "rules": [rule]}
    one = Engine(load_mapping(document))
    assert status(one)["pools"]["pool"]["service"] == service


def test_jobs_of_one_group_that_differ_are_placed_one_by_one() -> None:
    # Four jobs of one core, and four of eight.
    one = engine(params={"n": [1, 8]}, cores="{n}")
    one.handle(Started(0.0))
    sent = one.handle(up(1, cores=4)) + one.handle(up(2, cores=64))
    jobs = [command for command in sent if isinstance(command, SubmitJobs)]
    assert {job.count for job in jobs} == {1}
    assert {job.ordinal for job in jobs if job.first >= 4} == {2}
    assert len(jobs) == 8


def test_what_has_not_started_on_a_draining_member_moves_and_it_ends_with_its_last_job() -> None:
    one = engine()
    one.handle(Started(0.0))
    jobs = up_for_all(one)
    shows(one, jobs[0], "start")
    shows(one, jobs[1])
    one.handle(up(2))
    commands = told(one.handle(TimerFired(70.0, "drain:1")))
    waiting = make(1, 3), make(1, 4)
    assert commands[1:] == [
        DrainMember(4, "pool.0", 1),
        CancelJobs(5, waiting, "its member is draining"),
    ]
    again = []
    for key in waiting:
        one.handle(JobEvent(71.0, key, "exception", {"type": "cancel", "severity": 0}))
        again += told(one.handle(JobEvent(71.0, key, "clean", {})))
    assert [(one.ordinal, one.rule) for one in again if isinstance(one, SubmitJobs)] == [
        (2, "retry"),
        (2, "retry"),
    ]
    one.check()
    ended = []
    for key in (make(1, 1), make(1, 2)):
        one.handle(JobEvent(75.0, key, "finish", {"status": 0}))
        ended += told(one.handle(JobEvent(75.0, key, "clean", {})))
    assert ended == [EndMember(8, "pool.0", 1)]


def engine_up(one: Engine) -> list[Command]:
    return one.handle(up(1, t_expires=100.0))


def expires(t: float, t_expires: float | None) -> MemberExpires:
    return MemberExpires(t, "pool.0", 1, t_expires)


def test_a_member_whose_time_limit_changes_is_drained_by_the_new_one() -> None:
    one = engine(duration=40)
    one.handle(Started(0.0))
    engine_up(one)
    # It drains 30 seconds before it ends.
    assert one.handle(expires(50.0, 160.0)) == [
        StopTimer("drain:1"),
        StartTimer("drain:1", 80.0),
        Record(50.0, "member-expires", {"member": "pool.0", "t_expires": 160.0}),
    ]
    assert status(one)["pools"]["pool"]["members"][0]["t_expires"] == 160.0
    # To say it once more is no news, also by what is told when it is connected to again.
    assert one.handle(expires(51.0, 160.0)) == one.handle(up(1, 52.0, 160.0)) == []
    assert told(one.handle(expires(60.0, 80.0)))[1:] == [StartTimer("drain:1", 0.0)]
    assert told(one.handle(expires(61.0, None))) == [StopTimer("drain:1")]
    assert told(one.handle(expires(62.0, 200.0))) == [StartTimer("drain:1", 108.0)]
    copy = restore(one.spec, dump(one), [])
    for each in (one, copy):
        (drained,) = [
            command
            for command in each.handle(TimerFired(170.0, "drain:1"))
            if isinstance(command, DrainMember)
        ]
        assert drained.member == "pool.0"
        each.check()


def test_a_member_whose_time_limit_is_prolonged_gets_jobs_that_were_too_long_for_it() -> None:
    one = engine(count=1, duration=95)
    one.handle(Started(0.0))
    assert [each for each in engine_up(one) if isinstance(each, SubmitJobs)] == []
    sent = [each for each in one.handle(expires(2.0, 200.0)) if isinstance(each, SubmitJobs)]
    assert [(each.ordinal, each.first, each.count) for each in sent] == [(1, 0, 2)]
    one.check()


def test_a_drain_is_final_and_yet_its_jobs_have_the_time_that_there_is() -> None:
    one = engine(count=1)
    one.handle(Started(0.0))
    jobs = [one for one in told(engine_up(one)) if isinstance(one, SubmitJobs)]
    shows(one, jobs[0], "start")
    one.handle(TimerFired(70.0, "drain:1"))
    assert told(one.handle(expires(71.0, 500.0))) == []
    assert status(one)["pools"]["pool"]["members"][0]["state"] == "draining"
    # What ends by a time limit where the first one was ends by its own.
    timeout = {"type": "timeout", "severity": 0}
    one.handle(JobEvent(99.0, make(1, 1), "exception", timeout))
    one.handle(JobEvent(99.0, make(1, 1), "clean", {}))
    assert one.metrics(99.0)["count"]["a"]["timeout"] == 1
    one.check()


def test_what_a_member_that_is_not_up_says_of_its_time_is_ignored() -> None:
    one = engine(count=1)
    one.handle(Started(0.0))
    assert one.handle(expires(1.0, 50.0)) == one.handle(MemberExpires(1.0, "pool.7", 8, 50.0)) == []
    engine_up(one)
    one.handle(MemberLost(3.0, "pool.0", 1, "gone"))
    assert told(one.handle(expires(4.0, 50.0))) == []
    one.check()


def test_nothing_is_decided_about_a_lost_member_before_it_has_ended() -> None:
    one = engine()
    one.handle(Started(0.0))
    jobs = up_for_all(one)
    shows(one, jobs[0], "start")
    one.handle(up(2, cores=4))
    assert not any(
        isinstance(command, SubmitJobs | CancelJobs)
        for command in one.handle(MemberLost(3.0, "pool.0", 1, "gone"))
    )
    # The end of a job is told late; it counts.
    one.handle(JobEvent(4.0, make(1, 1), "finish", {"status": 0}))
    one.handle(JobEvent(4.0, make(1, 1), "clean", {}))
    commands = one.handle(MemberEnded(5.0, "pool.0", 1, "clean"))
    again = [command for command in commands if isinstance(command, SubmitJobs)]
    assert sum(command.count for command in again) == 3
    assert {command.ordinal for command in again} == {2}
    assert {command.rule for command in again} == {"retry"}
    one.check()
    # What its outcome would have been is of no interest any more, nor is what else it says.
    assert one.handle(CommandDone(6.0, jobs[1].id, {"ids": []})) == []
    assert told(one.handle(up(1, 6.0))) == []
    assert told(one.handle(MemberDraining(6.0, "pool.0", 1, "late", ends=False))) == []


def running(rules: Any = (), pool: Any = (), finish: str = "never", **job: Any) -> Engine:
    """An engine on the first of two members of which a job runs; the second is up."""
    submit = {"trigger": "start", "action": {"name": "submit", "label": "a"}}
    document = {
        "name": "test",
        "members": [{"name": "pool", "count": {"min": 2, "max": 9}, **dict(pool)}],
        "jobs": [{"name": "a", "command": "a", "count": 1, **job}],
        "rules": [submit, *rules],
        "finish": finish,
    }
    one = Engine(load_mapping(document))
    one.stats.keep_values()
    one.handle(Started(0.0))
    (command,) = [one for one in told(engine_up(one)) if isinstance(one, SubmitJobs)]
    shows(one, command, "start")
    one.handle(up(2))
    return one


_GROW = {"trigger": "member-lost", "action": {"name": "grow", "label": "pool"}}


_GROW_EARLIER = {"trigger": "member-draining", "action": {"name": "grow", "label": "pool"}}


def begins_to_end(t: float = 3.0, ordinal: int = 1) -> MemberDraining:
    name = f"pool.{ordinal - 1}"
    return MemberDraining(t, name, ordinal, "its instance ends", ends=True)


def started(commands: Iterable[Command]) -> list[str]:
    return [command.member for command in commands if isinstance(command, StartMember)]


def recorded(commands: Iterable[Command], name: str) -> list[str]:
    """The members of which the log has something."""
    records = [command for command in commands if isinstance(command, Record)]
    return [record.context["member"] for record in records if record.name == name]


def test_a_member_that_begins_to_end_unasked_is_replaced_once_by_rules_on_both_ways_to_end() -> (
    None
):
    one = running([_GROW_EARLIER, _GROW])
    commands = one.handle(begins_to_end())
    commands += one.handle(MemberEnded(4.0, "pool.0", 1, "its job failed"))
    assert started(commands) == ["pool.2"]
    assert recorded(commands, "member-draining") == []
    one.check()


def test_an_idle_member_that_ends_unasked_is_lost_and_not_told_to_end() -> None:
    one = running([_GROW_EARLIER, _GROW])
    commands = one.handle(begins_to_end(ordinal=2))
    assert not any(isinstance(command, EndMember) for command in commands)
    commands += one.handle(MemberEnded(4.0, "pool.1", 2, "its job has ended"))
    assert started(commands) == ["pool.2"]
    assert recorded(commands, "member-lost") == ["pool.1"]
    assert status(one)["pools"]["pool"]["lost"] == 1
    one.check()


def test_a_member_that_ends_unasked_before_it_is_up_is_lost() -> None:
    one = engine({"min": 1, "max": 2}, [_GROW_EARLIER, _GROW])
    one.handle(Started(0.0))
    commands = one.handle(begins_to_end())
    commands += one.handle(MemberEnded(4.0, "pool.0", 1, "its job has ended"))
    assert started(commands) == ["pool.1"]
    assert recorded(commands, "member-lost") == ["pool.0"]
    one.check()


def test_a_member_that_drains_as_its_time_is_nearly_up_is_replaced_once_when_it_ends() -> None:
    one = running([_GROW_EARLIER, _GROW])
    commands = one.handle(TimerFired(70.0, "drain:1"))
    commands += one.handle(begins_to_end(98.0))
    commands += one.handle(MemberEnded(99.0, "pool.0", 1, "its job ran into its time limit"))
    assert started(commands) == ["pool.2"]
    assert recorded(commands, "member-lost") == []
    assert status(one)["pools"]["pool"]["lost"] == 0
    one.check()


def test_a_member_that_begins_to_end_unasked_is_lost_and_its_jobs_run_again_when_it_has_ended() -> (
    None
):
    one = running([_GROW])
    commands = one.handle(begins_to_end())
    assert started(commands) == ["pool.2"]
    assert recorded(commands, "member-lost") == ["pool.0"]
    assert status(one)["pools"]["pool"]["lost"] == 1
    # What becomes of its jobs is not decided before it has ended.
    assert not any(isinstance(command, SubmitJobs | EndMember) for command in commands)
    commands = one.handle(MemberEnded(4.0, "pool.0", 1, "its job failed"))
    assert (started(commands), recorded(commands, "member-lost")) == ([], [])
    assert sum(isinstance(command, SubmitJobs) for command in commands) == 1
    counts = status(one)["groups"]["a"]
    assert (counts["interrupted"], counts["failed"], counts["canceled"]) == (1, 0, 0)
    one.check()


def test_a_member_whose_time_is_up_is_not_lost() -> None:
    one = running([_GROW])
    one.handle(MemberExpires(3.0, "pool.0", 1, 100.0))
    commands = one.handle(begins_to_end(99.5))
    commands += one.handle(MemberEnded(100.2, "pool.0", 1, "its job ran into its time limit"))
    assert started(commands) == []
    assert recorded(commands, "member-draining") == ["pool.0"]
    assert status(one)["pools"]["pool"]["lost"] == 0


def test_a_member_that_was_told_to_end_is_not_lost() -> None:
    one = running([_GROW])
    grow = one.handle(Request(2.5, 1, "action", {"action": {"name": "grow", "label": "pool"}}))
    one.handle(up(3))
    shrink = one.handle(Request(2.7, 2, "action", {"action": {"name": "shrink", "label": "pool"}}))
    assert recorded(grow, "member-start") == recorded(shrink, "member-draining") == ["pool.2"]
    one.handle(begins_to_end(ordinal=3))
    one.handle(MemberEnded(4.0, "pool.2", 3, "it was ended"))
    assert status(one)["pools"]["pool"]["lost"] == 0


def ending(one: Engine) -> list[str]:
    """What the log has when both members end, one of them saying so before."""
    commands = one.handle(MemberEnded(9.0, "pool.0", 1, "its job has ended"))
    commands += one.handle(begins_to_end(9.0, 2))
    commands += one.handle(MemberEnded(10.0, "pool.1", 2, "its job has ended"))
    one.check()
    assert not any(isinstance(command, (StartMember, SubmitJobs)) for command in commands)
    return [command.name for command in commands if isinstance(command, Record)]


def over(one: Engine) -> None:
    """The job comes to its end, and so has all that was asked for."""
    for command in list(one.pending):
        ids = {"ids": [make(1, 1)]} if isinstance(command, SubmitJobs) else {}
        one.handle(CommandDone(6.0, command.id, ids))
    one.handle(JobEvent(7.0, make(1, 1), "finish", {"status": 0}))
    one.handle(JobEvent(7.0, make(1, 1), "clean", {}))


def test_the_members_of_an_ensemble_that_has_completed_are_not_lost_when_they_end() -> None:
    one = running([_GROW], finish="idle")
    over(one)
    assert one.state == "completed"
    assert ending(one) == ["member-ended", "member-draining", "member-ended"]
    assert status(one)["pools"]["pool"]["lost"] == 0


def test_the_members_of_an_ensemble_that_was_canceled_are_lost_only_while_its_jobs_end() -> None:
    one, other = running([_GROW]), running([_GROW])
    for each in (one, other):
        each.handle(Request(5.0, 1, "cancel", {}))
        assert each.state == "ending"
    over(one)
    assert one.state == "canceled"
    assert ending(one) == ["member-ended", "member-draining", "member-ended"]
    assert status(one)["pools"]["pool"]["lost"] == 0
    # A job of the other one is still there.
    assert ending(other)[0] == "member-lost"
    assert status(other)["pools"]["pool"]["lost"] == 2


def test_jobs_that_an_ensemble_left_behind_end_with_its_members_and_do_not_run_again() -> None:
    one = running([_GROW])
    one.handle(Request(5.0, 1, "terminate", {"cancel": False}))
    assert one.state == "completed"
    assert "member-lost" not in ending(one)
    counts = status(one)["groups"]["a"]
    assert (counts["interrupted"], counts["failed"], counts["canceled"]) == (1, 0, 0)
    assert status(one)["pools"]["pool"]["lost"] == 0


def test_a_member_that_was_lost_before_its_ensemble_ended_has_been_lost() -> None:
    one = running([_GROW])
    one.handle(MemberLost(4.0, "pool.1", 2, "its broker is gone"))
    one.handle(Request(5.0, 1, "terminate", {"cancel": False}))
    ending(one)
    assert status(one)["pools"]["pool"]["lost"] == 1


def test_a_restored_engine_does_not_lose_a_member_twice_that_ends_unasked() -> None:
    one = running([_GROW_EARLIER, _GROW])
    one.handle(begins_to_end())
    again = restore(one.spec, json.loads(json.dumps(dump(one))), [one.stats.take_values()])
    commands = again.handle(begins_to_end(3.5))
    commands += again.handle(MemberEnded(4.0, "pool.0", 1, "its job failed"))
    assert started(commands) == []
    assert status(again)["pools"]["pool"]["lost"] == 1
    again.check()


def test_a_restored_engine_knows_that_a_member_was_draining_before_it_ended() -> None:
    one = running([_GROW])
    one.handle(TimerFired(70.0, "drain:1"))
    again = restore(one.spec, json.loads(json.dumps(dump(one))), [one.stats.take_values()])
    commands = again.handle(begins_to_end(72.0))
    commands += again.handle(MemberEnded(73.0, "pool.0", 1, "its job has ended"))
    assert started(commands) == []


def lose(one: Engine, ordinal: int, t: float) -> list[Command]:
    """A member is lost, and has ended."""
    name = f"pool.{ordinal - 1}"
    commands = one.handle(MemberLost(t, name, ordinal, "node failure"))
    return commands + one.handle(MemberEnded(t, name, ordinal, "node failure"))


def test_a_group_says_what_becomes_of_its_jobs_before_its_pool_does() -> None:
    for pool, group, again in (
        ({"on-lost": "fail"}, {}, 0),
        ({"on-lost": "fail"}, {"on-lost": "resubmit"}, 1),
        ({}, {"on-lost": "fail"}, 0),
    ):
        one = running(pool=pool, **group)
        sent = [command for command in lose(one, 1, 3.0) if isinstance(command, SubmitJobs)]
        assert len(sent) == again
        counts = status(one)["groups"]["a"]
        assert (counts["interrupted"], counts["failed"]) == (again, 1 - again)


def test_a_job_that_takes_its_member_down_each_time_is_given_up() -> None:
    unlimited = {**_GROW, "action": {**_GROW["action"], "repetitions": "unlimited"}}  # type: ignore[dict-item]
    one = running([unlimited])
    commands: list[Command] = []
    for ordinal in range(1, 5):
        commands = lose(one, ordinal, 3.0 * ordinal)
        more = [command for command in commands if isinstance(command, StartMember)]
        for start in more:
            one.handle(MemberUp(3.0 * ordinal + 1, start.member, start.ordinal, 1, 2))
        for command in commands:
            if isinstance(command, SubmitJobs):
                shows(one, command, "start")
        one.check()
    counts = status(one)["groups"]["a"]
    assert (counts["interrupted"], counts["failed"], counts["gave-up"]) == (3, 1, 1)
    (entry,) = [one for one in commands if isinstance(one, Record) and one.name == "gave-up"]
    assert entry.context["reason"].startswith("it was lost 4 times, the last time: member-lost")


def again_after_a_failure(*more: int) -> list[tuple[int, tuple[str, ...]]]:
    """Where a job goes that failed on rank 0 of the first member, and what it is kept off there."""
    one = engine({"min": 2, "max": 2}, retries=5)
    one.handle(Started(0.0))
    sent, _ = up_for_all(one)
    for ordinal in more:
        one.handle(up(ordinal))
    shows(one, sent)
    commands: list[Command] = []
    for name in ("start", "finish", "clean"):
        says: dict[str, Any] = {"start": {"t_alloc": 2.0, "ranks": "0"}, "finish": {"status": 256}}
        commands += one.handle(JobEvent(3.0, make(1, 1), name, says.get(name, {})))
    one.check()
    return [(each.ordinal, each.off) for each in commands if isinstance(each, SubmitJobs)]


def test_what_runs_again_on_its_member_is_kept_off_the_ranks_where_it_failed() -> None:
    assert again_after_a_failure() == [(1, ("0",))]


def test_what_runs_again_on_another_member_is_kept_off_no_ranks_of_that() -> None:
    assert again_after_a_failure(2) == [(2, ())]


def test_a_member_that_cannot_be_started_is_lost_and_a_rule_can_ask_for_another() -> None:
    grow = {"name": "grow", "label": "pool", "repetitions": 2}
    one = engine({"min": 1, "max": 1}, [{"trigger": "member-lost", "action": grow}])
    one.handle(Started(0.0))
    commands = told(one.handle(CommandFailed(1.0, 1, "EINVAL", "no such queue")))
    assert commands == [StartMember(2, "pool.1", "pool", 2)]
    assert status(one)["pools"]["pool"]["ended"] == 1


def after_an_outage(one: Engine, *ordinals: int) -> list[str]:
    """The members that are started as the enclosing instance is back without those of before."""
    commands: list[Command] = []
    why = "its job had ended when the service began"
    for ordinal in ordinals:
        commands += one.handle(MemberLost(9.0, f"pool.{ordinal - 1}", ordinal, why))
    for ordinal in ordinals:
        name = f"pool.{ordinal - 1}"
        commands += one.handle(MemberEnded(9.0, name, ordinal, why, outage=True))
        one.check()
    return started(commands)


def test_a_pool_is_filled_again_after_an_end_of_the_enclosing_instance_and_its_jobs_go_on() -> None:
    one = running(pool={"count": 2}, finish="idle")
    one = restore(one.spec, json.loads(json.dumps(dump(one))), [one.stats.take_values()])
    assert after_an_outage(one, 1, 2) == ["pool.2", "pool.3"]
    (again,) = [one for one in told(one.handle(up(3, 10.0))) if isinstance(one, SubmitJobs)]
    assert (again.group, again.ordinal, one.stats.counts["a"]["interrupted"]) == ("a", 3, 1)


def test_after_an_outage_a_pool_has_the_least_that_it_is_to_have_and_no_more() -> None:
    assert after_an_outage(running(pool={"count": {"min": 2, "max": 9}}), 1) == ["pool.2"]
    one = running(pool={"count": {"min": 2, "max": 9}})
    one.handle(Request(3.0, 1, "action", {"action": {"name": "grow", "label": "pool", "value": 2}}))
    assert after_an_outage(one, 1, 2) == []


def test_what_a_rule_replaces_after_an_outage_is_replaced_once() -> None:
    grow = {**_GROW, "action": {"name": "grow", "label": "pool", "repetitions": 2}}
    assert after_an_outage(running([grow]), 1, 2) == ["pool.2", "pool.3"]


def test_a_member_that_ends_while_its_instance_goes_on_is_replaced_by_rules_alone() -> None:
    commands = running(pool={"count": 2}).handle(MemberEnded(9.0, "pool.0", 1, "it was killed"))
    assert started(commands) == []


@pytest.mark.parametrize("provider", ["slurm", "local", "flux"])
def test_a_member_that_its_site_does_not_take_is_asked_for_again(provider: str) -> None:
    of_site = {} if provider == "flux" else {"from": provider, "runs": "tasks"}
    again = provider != "flux"
    one = engine({"min": 1, "max": 3}, pool=of_site)
    one.handle(Started(0.0))
    refused = "Slurm refuses its job: invalid partition"
    commands = told(one.handle(CommandFailed(1.0, 1, "EINVAL", refused)))
    assert commands == [StartMember(2, "pool.1", "pool", 2)][: int(again)]
    if again:
        # It began, and ended before its worker had called.
        commands = told(one.handle(MemberEnded(2.0, "pool.1", 2, "its job is FAILED")))
        assert commands == [StartMember(3, "pool.2", "pool", 3)]
        one.handle(MemberUp(3.0, "pool.2", 3, 1, 4, 0, None))
        assert started(one.handle(MemberEnded(4.0, "pool.2", 3, "its node failed"))) == []
    one.check()


def test_a_rule_that_replaces_what_its_site_does_not_take_replaces_it_once() -> None:
    grow = {"name": "grow", "label": "pool", "repetitions": 2}
    rules = [{"trigger": "member-lost", "action": grow}]
    one = engine({"min": 1, "max": 3}, rules, pool={"from": "slurm", "runs": "tasks"})
    one.handle(Started(0.0))
    commands = told(one.handle(CommandFailed(1.0, 1, "EINVAL", "invalid partition")))
    assert commands == [StartMember(2, "pool.1", "pool", 2)]


def test_an_ensemble_that_is_over_has_no_pool_filled_after_an_outage() -> None:
    one = running(finish="idle")
    over(one)
    assert one.state == "completed"
    assert after_an_outage(one, 1, 2) == []


def test_an_instance_that_somebody_else_has_started_is_not_started_after_an_outage() -> None:
    jobs = [{"name": "a", "command": "a"}]
    pool = {"name": "pool", "uri": "local:///somewhere"}
    one = Engine(load_mapping({"name": "test", "members": [pool], "jobs": jobs, "finish": "never"}))
    one.handle(Started(0.0))
    one.handle(up(1))
    assert after_an_outage(one, 1) == []


def second_starts(action: dict[str, Any], **rule: Any) -> Engine:
    """An engine with a rule on `member-up`, whose job is over while its second member starts."""
    submit = {"trigger": "start", "action": {"name": "submit", "label": "a"}}
    document = {
        "name": "test",
        "members": [
            {"name": "pool", "count": {"min": 2, "max": 3}},
            {"name": "other", "count": {"min": 0, "max": 1}},
        ],
        "jobs": [{"name": "a", "command": "a", "count": 1}, {"name": "b", "command": "b"}],
        "rules": [submit, {"trigger": "member-up", "action": action, **rule}],
    }
    one = Engine(load_mapping(document))
    one.stats.keep_values()
    one.handle(Started(0.0))
    (command, *_) = [one for one in told(engine_up(one)) if isinstance(one, SubmitJobs)]
    shows(one, command, "start")
    over(one)
    return one


_SUBMIT_B = {"name": "submit", "label": "b"}


def test_an_ensemble_goes_on_while_a_member_starts_that_a_rule_waits_for() -> None:
    one = second_starts(_SUBMIT_B, name="pool", when="count.a.finished == 1")
    assert one.state == "running"
    (found,) = why(one, 8.0, one.spec.rules[1].id)
    assert found["waits"] == "waits for member-up pool; starting: pool.1"
    one = restore(one.spec, dump(one), [one.stats.take_values()])
    (sent,) = [one for one in told(one.handle(up(2, 9.0))) if isinstance(one, SubmitJobs)]
    assert sent.group == "b"
    shows(one, sent, "start")
    one.handle(CommandDone(9.0, sent.id, {"ids": [make(sent.ordinal, 1)]}))
    (job,) = one.workload.jobs
    one.handle(JobEvent(10.0, job, "finish", {"status": 0}))
    one.handle(JobEvent(10.0, job, "clean", {}))
    assert one.state == "completed"


def test_an_ensemble_does_not_go_on_for_a_member_whose_own_job_was_refused_or_has_ended() -> None:
    one = second_starts(_SUBMIT_B, when="count.a.finished == 1")
    assert one.state == "running"
    one.handle(MemberEnded(9.0, "pool.1", 2, "its job was refused"))
    assert one.state == "completed"


@pytest.mark.parametrize(
    ("action", "rule"),
    [
        ({"name": "grow", "label": "other", "repetitions": 1}, {}),
        (_SUBMIT_B, {"enabled": False}),
        (_SUBMIT_B, {"name": "other"}),
        ({"name": "shrink", "label": "pool"}, {}),
    ],
    ids=["its runs are used up", "disabled", "of another pool", "it would change nothing"],
)
def test_an_ensemble_does_not_go_on_for_a_rule_that_does_nothing_when_the_member_is_up(
    action: dict[str, Any], rule: dict[str, Any]
) -> None:
    assert second_starts(action, **rule).state == "completed"


def test_a_pool_shrinks_by_what_is_not_up_yet_and_no_further_than_its_least() -> None:
    def scale(name: str) -> list[Command]:
        action = {"name": name, "label": "pool", "value": 5}
        return one.handle(Request(1.0, 1, "action", {"action": action}))

    one = engine({"min": 1, "max": 3})
    one.handle(Started(0.0))
    started = [command for command in scale("grow") if isinstance(command, StartMember)]
    assert [command.member for command in started] == ["pool.1", "pool.2"]
    ended = [command for command in scale("shrink") if isinstance(command, EndMember)]
    assert [command.member for command in ended] == ["pool.2", "pool.1"]
    (outcome,) = [
        command.context
        for command in scale("shrink")
        if isinstance(command, Record) and command.name == "outcome"
    ]
    assert outcome["reason"] == "pool 'pool' has 1 members, and at least 1"
    one.check()


def test_documents_without_members_are_written_as_they_were() -> None:
    command = SubmitJobs(1, "a", "rule-0", 0, 0, 4)
    assert "ordinal" not in to_json(command)
    placed = SubmitJobs(1, "a", "rule-0", 0, 0, 4, ordinal=3)
    assert command_from_json(json.loads(encode(placed))) == placed
    plain = Engine(load_mapping({"name": "a", "jobs": [{"name": "a", "command": "a"}]}))
    plain.handle(Started(0.0))
    assert "members" not in dump(plain)["state"]
    assert "pools" not in status(plain)


def test_a_rule_on_jobs_that_run_says_where_they_do() -> None:
    rule = {"trigger": "job-running", "group": "a", "action": {"name": "cancel", "jobs": "trigger"}}
    one = engine(1, [rule])
    (timer,) = [command for command in one.handle(Started(0.0)) if isinstance(command, StartTimer)]
    jobs = [command for command in told(one.handle(up(1))) if isinstance(command, SubmitJobs)]
    shows(one, jobs[0], "start")
    log = [entry for entry in one.handle(TimerFired(30.0, timer.key)) if isinstance(entry, Record)]
    causes = [entry.context["cause"] for entry in log if entry.name == "fire"]
    assert [cause["member"] for cause in causes] == ["pool.0"]


def test_a_job_that_is_to_run_near_another_is_sent_to_its_member_though_others_have_more_room() -> (
    None
):
    action = {"name": "submit", "label": "a", "count": 1, "near": "trigger"}
    one = engine(2, [{"trigger": "job-success", "group": "a", "action": action}])
    one.handle(Started(0.0))
    (job,) = [each for each in told(one.handle(up(1))) if isinstance(each, SubmitJobs)]
    one.handle(up(2, cores=64))
    shows(one, job, "start")
    key = make(1, job.first + 1)
    made = one.handle(JobEvent(3.0, key, "finish", {"status": 0}))
    made += one.handle(JobEvent(3.0, key, "clean", {}))
    assert [each.ordinal for each in made if isinstance(each, SubmitJobs)] == [1]


def test_a_job_on_a_member_waited_there_whatever_became_of_the_instance() -> None:
    absences = Absences()
    absences.add(Absence(10.0, 70.0))
    assert absences.waited(1, 5.0, 71.0) == 6.0
    assert absences.waited(make(1, 1), 5.0, 71.0) == 66.0


def test_what_becomes_of_a_command_that_the_engine_sends_by_itself_has_the_name_of_its_member() -> (
    None
):
    one = engine(1)
    one.handle(Started(0.0))
    one.handle(up(1))
    (drain,) = [
        command
        for command in one.handle(MemberDraining(3.0, "pool.0", 1, "told", ends=False))
        if isinstance(command, DrainMember)
    ]
    (outcome,) = one.handle(CommandFailed(4.0, drain.id, "EIO", "no answer"))
    assert isinstance(outcome, Record)
    assert (outcome.context["rule"], outcome.context["reason"]) == ("member:pool.0", "no answer")


def asks(one: Engine, count: int) -> tuple[list[SubmitJobs], list[Reply]]:
    """A request submits jobs: what is sent for it, and what it is told at once."""
    made = one.handle(Request(5.0, 7, "submit", {"group": "a", "count": count}))
    one.check()
    return (
        [command for command in made if isinstance(command, SubmitJobs)],
        [command for command in made if isinstance(command, Reply)],
    )


def accepts(one: Engine, command: SubmitJobs) -> list[Reply]:
    """A member has accepted the jobs of a command."""
    keys = [make(command.ordinal, index + 1) for index in range(command.count)]
    made = one.handle(CommandDone(6.0, command.id, {"ids": keys}))
    return [command for command in made if isinstance(command, Reply)]


def idle_engine(count: Any = 2) -> Engine:
    """An engine whose members have nothing to do yet."""
    document = {
        "name": "test",
        "finish": "never",
        "members": [{"name": "pool", "count": count}],
        "jobs": [{"name": "a", "command": "a"}],
    }
    one = Engine(load_mapping(document))
    one.handle(Started(0.0))
    return one


def test_a_request_is_told_the_member_of_each_job_when_all_that_were_sent_are_accepted() -> None:
    one = idle_engine()
    one.handle(up(1))
    one.handle(up(2))
    sent, told_at_once = asks(one, 4)
    assert {command.ordinal for command in sent} == {1, 2}
    assert told_at_once == []
    *before, last = sent
    assert [accepts(one, command) for command in before] == [[] for _ in before]
    (reply,) = accepts(one, last)
    ids = [(command.ordinal, index + 1) for command in sent for index in range(command.count)]
    assert reply.request == 7
    assert reply.result == {
        "ids": [id for _, id in ids],
        "firing": 0,
        "members": [f"pool.{ordinal - 1}" for ordinal, _ in ids],
        "waiting": 0,
    }


def test_a_request_does_not_wait_for_jobs_that_no_member_has_room_for() -> None:
    one = idle_engine(1)
    (reply,) = asks(one, 3)[1]
    assert reply.result == {"ids": [], "firing": 0, "members": [], "waiting": 3}
    # They are sent when there is room, and nobody is told a second time.
    sent = [command for command in one.handle(up(1, cores=4)) if isinstance(command, SubmitJobs)]
    assert sum(command.count for command in sent) == 3
    assert [accepts(one, command) for command in sent] == [[] for _ in sent]
    one.check()


def test_a_request_is_told_how_many_of_its_jobs_wait() -> None:
    one = idle_engine(1)
    one.handle(up(1))
    sent, _ = asks(one, 100)
    number = sum(command.count for command in sent)
    assert 0 < number < 100
    replies = [reply for command in sent for reply in accepts(one, command)]
    assert [(len(reply.result["ids"]), reply.result["waiting"]) for reply in replies] == [
        (number, 100 - number)
    ]
    # An engine that is restored in between tells the same.
    again = idle_engine(1)
    again.handle(up(1))
    sent, _ = asks(again, 100)
    again = restore(again.spec, json.loads(json.dumps(dump(again))), [])
    assert [reply for command in sent for reply in accepts(again, command)] == replies


def test_a_request_whose_member_is_lost_is_answered() -> None:
    one = idle_engine(1)
    one.handle(up(1))
    asks(one, 2)
    one.handle(MemberLost(6.0, "pool.0", 1, "gone"))
    made = one.handle(MemberEnded(7.0, "pool.0", 1, "gone"))
    (reply,) = [command for command in made if isinstance(command, Reply)]
    assert (reply.request, reply.result["ids"]) == (7, [])
    one.check()


@pytest.mark.parametrize("again", [False, True], ids=["the same service", "the one after it"])
@pytest.mark.parametrize("state", ["starting", "up"])
def test_a_member_that_was_told_to_end_is_not_lost_when_its_job_has_ended(
    state: str, again: bool
) -> None:
    grow = {"name": "grow", "label": "pool", "repetitions": "unlimited"}
    lost = {"id": "lost", "trigger": "member-lost", "action": grow}
    one = engine({"min": 0, "max": 2}, [lost])
    one.stats.keep_values()
    one.handle(Started(0.0))
    one.handle(Request(0.5, 1, "action", {"action": {"name": "grow", "label": "pool"}}))
    if state == "up":
        sent = [each for each in one.handle(up(1, cores=4)) if isinstance(each, SubmitJobs)]
        for each in sent:
            shows(one, each, "start", "finish", "clean")
    shrink = {"name": "shrink", "label": "pool"}
    commands = one.handle(Request(5.0, 2, "action", {"action": shrink}))
    assert any(isinstance(command, EndMember) for command in commands)
    if again:
        values = [one.stats.take_values()]
        one = restore(one.spec, json.loads(json.dumps(dump(one))), values)
    # Who comes after the service that told it to end knows only that its job is gone.
    assert told(one.handle(MemberLost(6.0, "pool.0", 1, "its job has ended"))) == []
    one.handle(MemberEnded(6.0, "pool.0", 1, "its job has ended"))
    assert status(one)["pools"]["pool"]["members"] == []
    assert (status(one)["pools"]["pool"]["ended"], one.rules.states["lost"].fired) == (1, 0)
    one.check()


def test_a_job_is_expected_on_the_member_that_it_was_sent_to_alone() -> None:
    one = engine()
    one.handle(Started(0.0))
    jobs = [command for command in told(engine_up(one)) if isinstance(command, SubmitJobs)]
    one.handle(up(2))
    tag = Tag("a", jobs[0].rule, jobs[0].firing, 0)
    assert one.expects(tag)
    assert [one.expects(tag, make(ordinal, 7)) for ordinal in (0, 1, 2)] == [False, True, False]


def test_a_firing_has_its_outcome_also_where_its_jobs_are_lost_on_their_way() -> None:
    one = engine()
    one.handle(Started(0.0))
    up_for_all(one)
    one.handle(MemberLost(3.0, "pool.0", 1, "nobody answers"))
    entries = [
        command.context
        for command in one.handle(MemberEnded(4.0, "pool.0", 1, "nobody answers"))
        if isinstance(command, Record) and command.name == "outcome"
    ]
    rule = next(iter(one.rules.states))
    assert [entry for entry in entries if entry["rule"] == rule] == [
        {"rule": rule, "firing": 0, "ok": True, "jobs": 4}
    ]


def test_an_ensemble_that_goes_on_after_its_end_has_other_members() -> None:
    one = engine(count={"min": 0, "max": 2}, rules=[
        {"trigger": "start", "action": {"name": "grow", "label": "pool"}},
    ])  # fmt: skip
    one.stats.keep_values()
    (started,) = [each for each in one.handle(Started(0.0)) if isinstance(each, StartMember)]
    one.handle(CommandDone(0.5, started.id, {}))
    for command in up_for_all(one):
        shows(one, command, "start")
    one.handle(CommandDone(2.5, command.id, {"ids": [make(1, id) for id in range(1, 5)]}))
    for index in range(4):
        key = make(1, index + 1)
        one.handle(JobEvent(3.0, key, "finish", {"status": 256}))
        one.handle(JobEvent(3.0, key, "clean", {}))
    assert (one.state, one.failed) == ("completed", 4)
    job = [1, make(1, 2), "failed", 1, 0, None]
    chosen = [{"rule": "rule-0", "firing": 0, "group": "a", "jobs": [job]}]
    # The one that it had ends as it was asked to, and gets no job; no rule on `start` fires.
    commands = told(one.handle(Request(4.0, 1, "rerun", {"firings": chosen})))
    assert [type(command) for command in commands] == [
        StopTimer, DrainMember, EndMember, StartMember, Reply,
    ]  # fmt: skip
    assert [each.member for each in commands if isinstance(each, StartMember)] == ["pool.1"]
    assert (one.state, one.failed, one.stats.counts["a"]["finished@pool"]) == ("running", 3, 3)
    one.check()
    again = restore(one.spec, json.loads(json.dumps(dump(one))), [one.stats.take_values()])
    assert dump(again) == dump(one)
    one.handle(MemberEnded(4.5, "pool.0", 1, "it is not needed any more"))
    (sent,) = [each for each in one.handle(up(2, 5.0)) if isinstance(each, SubmitJobs)]
    assert (sent.rule, sent.ordinal, sent.count) == ("retry", 2, 1)
    one.check()


def test_an_ensemble_completes_although_a_member_still_waits_to_be_asked_for() -> None:
    """Its provider holds a start back, so it has no outcome; nothing of it is needed any more."""
    one = engine()
    starts = [each for each in one.handle(Started(0.0)) if isinstance(each, StartMember)]
    assert not restore(one.spec, dump(one), []).pending_table.busy
    one.handle(CommandDone(0.5, starts[0].id, {"job": "7"}))
    for half in up_for_all(one):
        shows(one, half, "start")
        one.handle(CommandDone(2.5, half.id))
        shows_end(one, half)
    assert (one.state, one.idle) == ("completed", True)
    # The provider gives it up when it is asked to.
    one.handle(MemberEnded(9.0, "pool.1", 2, "it is not needed any more"))
    assert one.idle
    one.check()


def shows_end(one: Engine, command: SubmitJobs) -> None:
    """The jobs of a command end well."""
    for index in range(command.first, command.first + command.count):
        for name in ("finish", "release", "free", "clean"):
            context = {"status": 0} if name == "finish" else {"final": True}
            one.handle(JobEvent(3.0, make(command.ordinal, index + 1), name, context))


def test_no_more_members_are_started_than_the_node_hours_of_a_pool_allow() -> None:
    """One that has ended counts with the time that it was up."""
    pool = {"name": "pool", "from": "slurm", "nodes": 2, "duration": "1h"}
    pool |= {"count": {"min": 1, "max": 9}, "limits": {"node-hours": 5}}
    document = {"name": "test", "members": [pool], "jobs": [{"name": "a", "command": "a"}]}
    submit = {"trigger": "start", "action": {"name": "submit", "label": "a"}}
    one = Engine(load_mapping({**document, "rules": [submit]}))
    one.handle(Started(0.0))
    grow = {"name": "grow", "label": "pool", "value": 3}

    def started(t: float) -> list[str]:
        sent = one.handle(Request(t, 1, "action", {"action": grow}))
        return [each.member for each in sent if isinstance(each, StartMember)]

    assert started(1.0) == ["pool.1"]
    denied = one.handle(Request(2.0, 2, "action", {"action": grow}))
    why = (
        "no more members of pool: 4 of 5 node hours are used or asked for, and another one takes 2"
    )
    assert why in repr(denied)
    # It was up for half an hour, so a half of what it might have used is there for others.
    one.handle(MemberUp(0.0, "pool.0", 1, 2, 4, 0, 3600.0))
    one.handle(MemberLost(1800.0, "pool.0", 1, "its node is down"))
    one.handle(MemberEnded(1800.0, "pool.0", 1, "its node is down"))
    report = status(restore(one.spec, dump(one), []))["pools"]["pool"]
    assert (report["node_hours"], report["most_node_hours"]) == (3.0, 5.0)
    assert started(1801.0) == ["pool.2"]
