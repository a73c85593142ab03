"""Scenarios in which members of an ensemble are killed, stopped, cancelled, or run out of time."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import flux.job
import verify
from attempts import Attempts
from kills import patience
from nested import Member, Members
from scenario import TICK, Context, hold_of
from scene import Scene, within
from search_trials import PARALLEL, check_trials, held, release
from workloads import REPLACED, Workload, shared

#: Members at first; there is one node more.
_MEMBERS = 2

#: How many jobs of a sweep there are for each fault: more than can run meanwhile.
_JOBS = 12

#: Seconds within which something has to come about.
_PATIENCE = 120.0

#: What the ids of rules begin with that fire as often as there are faults, or it is asked for.
_SOMETIMES = (REPLACED, "request")

#: Seconds before its walltime from which a member has to get no more (`member_job.STOP_SECONDS`).
_DRAIN = 5.0


class Stage(Scene):
    """A scene with members, which are watched too.

    Attributes:
        members: those of the instance.
        long: stops are long.
    """

    def __init__(self, context: Context, **options: Any) -> None:
        super().__init__(context, brokers=_MEMBERS + 1, **options)
        self.members = Members(self.witness)
        self.long = context.long

    def await_(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + _PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                raise RuntimeError(f"it does not come about: {what}")
            time.sleep(5 * TICK)

    def busiest(self, name: str, *, many: int = 1) -> list[Member]:
        """Wait until so many members have running jobs; the busiest comes first."""

        def busy() -> list[Member]:
            up = self.members.up(name)
            return [one for one in up if one.pid and one.running(name)]

        self.await_(f"jobs run on {many} members", lambda: len(busy()) >= many)
        return busy()

    def count(self, name: str, entry: str) -> int:
        """How many entries of a name the log of an ensemble has."""
        return self.durable(name).count(entry)

    def sent(self, name: str) -> int:
        """How many jobs of an ensemble its members have been sent."""
        return sum(member.seen[name, "submit"] for member in self.members.of(name))

    def over(self, name: str) -> int:
        """How many of these are over."""
        return sum(member.seen[name, "clean"] for member in self.members.of(name))

    def await_members_end(self, workload: Workload) -> dict[str, Any]:
        """Wait until an ensemble has ended, and its members too; returns its status."""
        name = workload.name
        status = self.await_end(name, patience(workload, self.row.kills))
        self.await_entry(name, "finish")
        mortal = [one for one in self.members.of(name) if not one.stays]
        self.await_("the members end", lambda: all(one.t_clean for one in mortal))
        self.witness.check()
        return status

    def check(
        self, workload: Workload, *, losses: range = range(1_000_000)
    ) -> tuple[verify.Findings, Attempts]:
        """All that is not as expected of an ensemble that has ended, as its members have.

        Args:
            workload: the ensemble.
            losses: how many members may have been lost.
        """
        name, expected = workload.name, workload.expected
        findings = verify.Findings()
        status = self.await_members_end(workload)
        findings.expect("completed", status["state"], "state")
        findings.expect([], status["errors"], "errors in status")
        findings.expect(0, status.get("violations", 0), "violations in status")
        entries = self.entries(name)
        fixed = [one for one in entries
                 if not str(one["context"].get("rule", "")).startswith(_SOMETIMES)]  # fmt: skip
        verify.check_log(expected, fixed, findings)
        attempts = Attempts(self.members.jobs(name), self.recorded(name), entries)
        attempts.check(expected, self.rpc("metrics", name=name), findings)
        lost = sum(one["name"] == "member-lost" for one in entries)
        if lost not in losses:
            findings.problems.append(f"{lost} members were lost, and not {losses}")
        self.row.jobs += len(self.members.jobs(name))
        self.row.duplicates += findings.duplicates
        return findings, attempts

    def verify_shared(self, workload: Workload, **how: Any) -> int:
        """Note all that is not as expected; returns how often jobs ran again. See `check`."""
        findings, attempts = self.check(workload, **how)
        self.note_findings(workload, findings)
        return attempts.further

    def close(self) -> None:
        """Take everything down."""
        self.members.close()
        super().close()


#: Does something to members while jobs of an ensemble run on them.
Fault = Callable[[Stage, Workload], None]


def _killed(stage: Stage, workload: Workload) -> None:
    """SIGKILL of a broker; the enclosing instance hears of it late, half of the time."""
    (victim, *_) = stage.busiest(workload.name)
    late = stage.random.random() < 0.5
    _kill_late(stage, workload, victim) if late else victim.kill()


def _kill_late(stage: Stage, workload: Workload, victim: Member) -> None:
    """Kill a broker; nobody hears that nothing of the member can run until its loss was noticed."""
    lost = stage.count(workload.name, "member-lost")
    with stopped(victim.shell):
        victim.kill()
        stage.await_("it is lost", lambda: stage.count(workload.name, "member-lost") > lost)


def _silent(stage: Stage, workload: Workload) -> None:
    """SIGSTOP of a broker for 10 s (1 s in short runs), then SIGCONT."""
    (victim, *_) = stage.busiest(workload.name)
    with stopped(victim.pid):
        time.sleep(10.0 if stage.long else 1.0)


def _canceled(stage: Stage, workload: Workload) -> None:
    """The job that a member is is cancelled; the service is stopped meanwhile, half of the time."""
    (victim, *_) = stage.busiest(workload.name)
    if stage.random.random() < 0.5:
        _cancel(stage, victim)
    else:
        _cancel_unnoticed(stage, victim)


def _cancel_unnoticed(stage: Stage, victim: Member) -> None:
    """Cancel a member; when the service hears of it, all is over."""
    stage.service.signal(signal.SIGSTOP)
    _cancel(stage, victim)
    stage.await_("it ends", lambda: victim.t_clean is not None)
    stage.service.signal(signal.SIGCONT)


def _cancel(stage: Stage, victim: Member) -> None:
    # Its jobs end with an exception, or not at all.
    victim.lost = True
    flux.job.cancel(stage.handle, victim.job.id)


def _expired(stage: Stage, workload: Workload) -> None:
    """The walltime of a member ends soon; half of the time so soon that it cannot be drained."""
    (victim, *_) = stage.busiest(workload.name)
    _shorten(stage, victim, stage.random.choice((0.5, _DRAIN + 1.0)))


def _shorten(stage: Stage, victim: Member, seconds: float) -> None:
    """Have the walltime of a member end so many seconds from now."""
    victim.lost = True
    start = victim.job.first("start")
    assert start is not None
    updates = {"attributes.system.duration": time.time() - start[0] + seconds}
    stage.handle.rpc("job-manager.update", {"id": victim.job.id, "updates": updates}).get()


def all_killed(stage: Stage, workload: Workload) -> None:
    """SIGKILL of all brokers of members at once."""
    for victim in stage.busiest(workload.name, many=_MEMBERS):
        victim.kill()


def _both_killed(stage: Stage, workload: Workload) -> None:
    """SIGKILL of the service and of a broker, in either order, or of those of all members."""
    many = stage.random.choice((1, _MEMBERS))
    victims = stage.busiest(workload.name, many=many)[:many]
    first = stage.random.random() < 0.5
    if not first:
        stage.kill(restart=False)
    for victim in victims:
        victim.kill()
    if first:
        stage.kill()
    else:
        stage.service.start()
    stage.service.await_answer(stage.handle)


def _service_killed(stage: Stage, workload: Workload) -> None:
    """SIGKILL of the service alone: members and their jobs go on."""
    stage.busiest(workload.name)
    stage.kill()
    stage.service.await_answer(stage.handle)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process is stopped for a while; it may have ended in the end."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _run(context: Context, *faults: Fault, seconds: float = 1.0) -> None:
    """One ensemble, to which all that is done, one after the other, so that jobs run again.

    Args:
        faults: what is done.
        seconds: how long a job runs.
    """
    with within(Stage(context)) as stage:
        again = _go_through(stage, faults, seconds)
        context.row.reached["run again"] = again
        if not again:
            context.row.problems.append("no job ran again")


def _go_through(stage: Stage, faults: Sequence[Fault], seconds: float = 1.0, **how: Any) -> int:
    """One ensemble, to which all that is done, one after the other; how often jobs ran again."""
    workload = shared("shared", _JOBS * len(faults), members=_MEMBERS, seconds=seconds)
    stage.load(workload)
    for fault in faults:
        fault(stage, workload)
    return stage.verify_shared(workload, **how)


def _times(context: Context) -> int:
    """How often a fault is to happen."""
    return max(1, context.wanted)


def member_kill(context: Context) -> None:
    """SIGKILL of the broker of a member; what it had runs elsewhere when it cannot run any more."""
    _run(context, *[_killed] * _times(context))


def member_stopped(context: Context) -> None:
    """SIGSTOP of the broker of a member, then SIGCONT: silence is no loss, and nothing runs again.

    The service is killed now and then, too.
    """
    with within(Stage(context)) as stage:
        faults = [_silent, _service_killed] * _times(context)
        again = _go_through(stage, faults, losses=range(1))
        if again:
            context.row.problems.append(f"{again} jobs ran again")


def member_walltime(context: Context) -> None:
    """The walltime of a member ends, before or after it was drained."""
    _run(context, *[_expired] * _times(context))


def member_cancel(context: Context) -> None:
    """The job that a member is is cancelled, while the service looks or does not."""
    # A broker takes its time until it cancels what runs.
    _run(context, *[_canceled] * _times(context), seconds=4.0)


def all_members(context: Context) -> None:
    """SIGKILL of the brokers of all members at once."""
    _run(context, *[all_killed] * _times(context))


def service_and_member(context: Context) -> None:
    """SIGKILL of the service and of the broker of a member, or of all of them."""
    _run(context, *[_both_killed] * _times(context))


def member_search(context: Context) -> None:
    """SIGKILL of the brokers of members on which 24 trials run; all are complete in the end.

    Half of the time the service dies with them; where `on-lost` is `fail`, too, no trial fails.
    """
    for policy in ("resubmit", "fail") * _times(context) if context.long else ("fail",):
        with within(Stage(context, node_cores=PARALLEL // _MEMBERS)) as stage:
            _search(stage, policy)


def _search(stage: Stage, policy: str) -> None:
    """Kill all members of a search, and note what is not as expected in the end."""
    grown = {"name": "grow", "label": "pool", "repetitions": "unlimited"}
    count = {"min": _MEMBERS, "max": _MEMBERS + 1}
    workload = held(
        stage.directory,
        members=[{"name": "pool", "count": count, "on-lost": policy}],
        rules=[{"id": REPLACED, "trigger": "member-lost", "action": grown}],
    )
    name = workload.name
    stage.load(workload)

    def running() -> int:
        return sum(one.running(name) for one in stage.members.up(name))

    stage.await_("24 trials run", lambda: running() == PARALLEL)
    if stage.random.random() < 0.5:
        stage.kill(restart=False)
        all_killed(stage, workload)
        stage.start_service()
    else:
        all_killed(stage, workload)

    def lost() -> int:
        return sum(entry["name"] == "member-lost" for entry in stage.entries(name))

    stage.await_("all are lost", lambda: lost() == _MEMBERS)
    release(stage.directory)
    check_trials(stage, name, stage.await_members_end(workload), (PARALLEL,))


def members(context: Context) -> None:
    """One ensemble, with each of these one after the other; it says which there were, by name."""
    faults = {
        "member-stopped": _silent,
        "member-kill": _killed,
        "member-walltime": _expired,
        "member-cancel": _canceled,
        "all-members": all_killed,
        "service-and-member": _both_killed,
    }

    def noted(scenario: str, fault: Fault) -> Fault:
        def go(stage: Stage, workload: Workload) -> None:
            fault(stage, workload)
            context.row.reached[scenario] = 1

        return go

    _run(context, *(noted(*one) for one in faults.items()))


#: What a job does that outlives its broker.
_LIVES = "echo begin {s} >>ran; until test -e go; do sleep 0.05; done; echo end {s} >>ran"


def orphans(context: Context) -> None:
    """A broker is killed while there is no service, and the tasks that it had live on."""
    with within(Stage(context)) as stage:
        jobs = 24
        workload = shared("orphans", jobs, members=_MEMBERS, command=f"sh -c '{_LIVES}'")
        name, ran = workload.name, stage.directory / "ran"
        stage.load(workload)
        stage.await_("jobs run", lambda: _lines(ran, "begin") >= 2 * _MEMBERS)
        victim = stage.busiest(name, many=_MEMBERS)[0]
        stage.kill(restart=False)
        victim.kill()
        begun = _lines(ran, "begin")
        (stage.directory / "go").touch()
        # Its tasks end although it is dead, and those of the other member with no service there.
        stage.await_("the tasks of a dead broker end", lambda: _lines(ran, "end") >= begun)
        stage.start_service()
        stage.verify_shared(workload)
        twice = _lines(ran, "end") - jobs
        context.row.reached["run twice"] = twice
        if context.row.ok and twice <= 0:
            context.row.problems.append("no task outlived its broker")


def _lines(path: Path, word: str) -> int:
    """How many lines of a file begin with a word."""
    text = path.read_text() if path.exists() else ""
    return sum(line.startswith(word) for line in text.splitlines())


# -- negative controls ----------------------------------------------------------------------


def member_no_fence(context: Context) -> None:
    """The control: what a lost member has is sent elsewhere though it may still run."""
    context.row.control = True
    with within(Stage(context, options=("--no-member-fence",))) as stage:
        workload = shared("shared", _JOBS, members=_MEMBERS)
        name = workload.name
        stage.load(workload)
        victim = stage.busiest(name, many=_MEMBERS)[0]

        def run_again() -> bool:
            tags = [job.tag for _, job in stage.members.jobs(name) if job.first("start")]
            return any(tag is not None and tag["rule"] == "retry" for tag in tags)

        with stopped(victim.shell):
            victim.kill()
            stage.await_("jobs run again", run_again)
        see_duplicates(stage, workload)


def member_placed(context: Context) -> None:
    """The service dies before it is durable where jobs are to go, and has sent none of them."""
    with within(Stage(context, options=("--hold",))) as stage:
        workload, hold = _hold_commits(stage)
        name = workload.name
        stage.await_("what was sent ends", lambda: stage.over(name) == stage.sent(name))
        _die(stage, hold)
        stage.verify_shared(workload)


def member_not_awaited(context: Context) -> None:
    """The control: jobs are sent before it is durable where to."""
    context.row.control = True
    with within(Stage(context, options=("--hold", "--no-await"))) as stage:
        workload, hold = _hold_commits(stage)
        t_held = hold.stat().st_mtime

        def sent_too_soon() -> bool:
            """More jobs follow on others than those that had ended in time."""
            jobs = [job for _, job in stage.members.jobs(workload.name)]
            ends = [job.first("finish") for job in jobs if job.tag and job.tag["group"] == "sim"]
            follow = sum(job.tag is not None and job.tag["group"] == "echo" for job in jobs)
            return follow > sum(end is not None and end[0] <= t_held for end in ends)

        stage.await_("jobs are sent too soon", sent_too_soon)
        _die(stage, hold)
        see_duplicates(stage, workload)


def _hold_commits(stage: Stage) -> tuple[Workload, Path]:
    """An ensemble of which nothing more gets durable, and what holds it up."""
    workload = shared("shared", 2 * _JOBS, members=_MEMBERS)
    stage.load(workload)
    stage.busiest(workload.name, many=_MEMBERS)
    hold = hold_of(stage.instance.uri)
    hold.touch()
    return workload, hold


def _die(stage: Stage, hold: Path) -> None:
    stage.kill(restart=False)
    hold.unlink()
    stage.start_service()


def see_duplicates(stage: Stage, workload: Workload) -> None:
    """A control has ended: what is wrong has to be seen."""
    stage.check(workload)
    if not stage.row.duplicates:
        stage.row.problems.append("no duplicates in a control: the test is blind")
