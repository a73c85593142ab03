"""Scenarios in which jobs leave members: drained ones, and those on which everything fails."""

from __future__ import annotations

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


def _waiting(stage: Stage, name: str) -> dict[str, list[Job]]:
    """The jobs that wait on each of two members, by its name; nothing until some do on both."""
    found = {member.name: member.waiting(name) for member in stage.members.up(name)}
    return found if len(found) == 2 and all(found.values()) else {}


def _move(stage: Stage) -> Workload:
    """Drain a member, to which what it is asked then comes when all that has waited there runs."""
    workload = shared("moved", 40, members=1, seconds=2.0)
    name = workload.name
    stage.load(workload)
    stage.rpc("action", name=name, action={"name": "grow", "label": "pool"})
    hold = hold_of(stage.instance.uri, "moves")
    hold.touch()
    waiting: dict[str, list[Job]] = {}

    def wait_on_both() -> bool:
        waiting.update(_waiting(stage, name))
        return bool(waiting)

    stage.await_("jobs wait on both", wait_on_both)
    stage.rpc("action", name=name, action={"name": "shrink", "label": "pool"})
    stage.await_entry(name, "member-draining")
    drained = next(one for one in stage.entries(name) if one["name"] == "member-draining")
    left = waiting[drained["context"]["member"]]
    stage.row.reached["waiting"] = len(left)
    # They begin in their order: the one in the middle does when it was to leave.
    middle = left[len(left) // 2]
    stage.await_("one that waits begins, and ends", lambda: middle.first("finish") is not None)
    hold.unlink()
    return workload


def member_moved(context: Context) -> None:
    """Jobs begin on a member while they are asked to leave it: those stay, and others leave."""
    with within(Stage(context, options=("--hold-moves",))) as stage:
        workload = _move(stage)
        again = stage.verify_shared(workload, losses=range(1))
        context.row.reached["moved"] = again


def member_moved_unread(context: Context) -> None:
    """The control: what a member was asked to let go of runs elsewhere, whatever it does there."""
    context.row.control = True
    with within(Stage(context, options=("--hold-moves", "--no-journal"))) as stage:
        see_duplicates(stage, _move(stage))
