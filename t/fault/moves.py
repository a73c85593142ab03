"""Scenarios in which jobs leave members: drained ones, and those on which everything fails."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from members import Stage, see_duplicates
from nested import Member
from scenario import Context, hold_of
from scene import within
from witness import Job
from workloads import Workload, shared

#: Fails at once in an instance that has a file of this name beside its socket.
_HOLE = "hole"
_JOB = f'test ! -e "$(dirname "${{FLUX_URI#local://}}")/{_HOLE}" && sleep 0.3\n'

#: Jobs for each member that fails everything: enough to find it, and to try it three times.
_JOBS = 100

#: Different jobs that have to fail on a member until it is in doubt.
_BREAKER = 5


def black_hole(context: Context) -> None:
    """Everything fails on a member at once: it is drained, and its jobs run elsewhere.

    The service is killed while the member is in doubt, half of the time.
    """
    times = max(1, context.wanted)
    with within(Stage(context)) as stage:
        (stage.directory / "job.sh").write_text(_JOB)
        workload = shared(
            "hole",
            _JOBS * times,
            command="sh job.sh",
            retries={"times": 10, "spread": "node"},
            pool={"breaker": _BREAKER},
        )
        name = workload.name
        stage.load(workload)
        for number in range(times):
            (victim, *_) = stage.busiest(name, many=2)
            victim.socket.with_name(_HOLE).touch()
            stage.await_("it is in doubt", partial(_says, stage, name, "member-doubted", victim))
            if number % 2 or context.random.random() < 0.5:
                stage.kill()
                stage.service.await_answer(stage.handle)
            stage.await_("it is drained", partial(_says, stage, name, "member-draining", victim))
        again = stage.verify_shared(workload, losses=range(1))
        context.row.reached["run again"] = again
        if again < _BREAKER:
            context.row.problems.append(f"only {again} jobs ran again")


def _says(stage: Stage, name: str, entry: str, member: Member) -> bool:
    """The log of an ensemble has an entry of a member."""
    return any(
        one["name"] == entry and one["context"]["member"] == member.name
        for one in stage.entries(name)
    )


@dataclass
class _Move:
    """A member is drained, and its jobs are about to be asked to leave it.

    Args:
        workload: the ensemble.
        member: that is drained.
        stay: jobs that waited on it when it was drained, and have run there before they are asked.
        leave: jobs that waited on it, and never begin there.
    """

    workload: Workload
    member: Member
    stay: list[Job]
    leave: list[Job]


def _move(stage: Stage) -> _Move:
    """Drain a member, to which what it is asked then comes when some that waited there have run."""
    workload = shared("moved", 40, members=1, seconds=0.5)
    name = workload.name
    stage.load(workload)
    stage.rpc("action", name=name, action={"name": "grow", "label": "pool"})
    # They are sent nothing until both are up, and what they are sent then waits.
    stage.rpc("pause", name=name)
    stage.await_("both are up", lambda: sum(one.sentinel for one in stage.members.up(name)) == 2)
    both = stage.members.up(name)
    for member in both:
        member.start_queue(False)
    stage.rpc("resume", name=name)
    stage.await_("jobs wait on both", lambda: all(len(one.held(name)) > 1 for one in both))
    hold = hold_of(stage.instance.uri, "moves")
    hold.touch()
    stage.rpc("action", name=name, action={"name": "shrink", "label": "pool"})
    stage.await_entry(name, "member-draining")
    entry = next(one for one in stage.entries(name) if one["name"] == "member-draining")
    drained = next(one for one in both if one.name == entry["context"]["member"])
    waiting = [job for job in drained.held(name) if job.submitted < entry["timestamp"]]
    stay, leave = waiting[::2], waiting[1::2]
    for member in both:
        for job in member.held(name):
            if job not in leave:
                member.let_go(job)
        member.start_queue(True)
    stage.await_("half of them run", lambda: all(job.first("finish") for job in stay))
    hold.unlink()
    stage.row.reached.update({"stay": len(stay), "leave": len(leave)})
    return _Move(workload, drained, stay, leave)


def member_moved(context: Context) -> None:
    """Jobs begin on a member while they are asked to leave it: those stay, and the others leave."""
    with within(Stage(context, options=("--hold-moves",))) as stage:
        move = _move(stage)
        findings, attempts = stage.check(move.workload, losses=range(1))
        for job in move.stay:
            findings.expect([move.member.name], attempts.began_on(job), "one that ran was on")
        others = {one.name for one in stage.members.of(move.workload.name)} - {move.member.name}
        for job in move.leave:
            found = attempts.began_on(job)
            findings.expect(
                (1, True), (len(found), others.issuperset(found)), f"one that left was on {found}"
            )
        if not (move.stay and move.leave):
            findings.problems.append("no job stayed, or none left")
        stage.note_findings(move.workload, findings)


def member_moved_unread(context: Context) -> None:
    """The control: what a member was asked to let go of runs elsewhere, whatever it does there."""
    context.row.control = True
    with within(Stage(context, options=("--hold-moves", "--no-journal"))) as stage:
        see_duplicates(stage, _move(stage).workload)
