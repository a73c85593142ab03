"""Causes for which jobs wait besides other jobs, all of which are found in this module.

    commits that fail (`runtime.durability.wal`) ───────┐
    refusals of the queue (`queues.flux.submission`) ───┤
    shares of other ensembles (`service.shares`) ───────┤
    queues that are stopped, nodes that are not up ─────┼──► Waits ──► status, why, jobs ──► CLI
    jobs that are held (`service.tracker`) ─────────────┘

Only certain causes are reported. Jobs on members are not examined here, only those that wait to be
submitted to a member.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from flux_ensemble import eventlog
from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_keys import ENCLOSING, ordinal_of
from flux_ensemble.engine.jobs import ActiveJob, Phase
from flux_ensemble.queues.flux.refusals import UNWRITTEN_ADVICE
from flux_ensemble.queues.flux.submission import TELL_SECONDS, Submitter
from flux_ensemble.queues.flux.submission import SubmissionWait as Refused
from flux_ensemble.queues.nested.provider import SITE
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.ports import Unwritten
from flux_ensemble.service.fleet import MemberFleet
from flux_ensemble.service.status.conditions import BEHIND, NODES, Conditions
from flux_ensemble.service.tracker import Tracker
from flux_ensemble.texts import bounded
from flux_ensemble.words import counted

_STARTED = (Phase.RUNNING, Phase.FINISHED, Phase.GONE)


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause for which a job waits.

    Args:
        kind: one word for programs: `disabled`, `held`, `stopped`, `nodes`, ...
        reason: the cause in words.
        advice: what ends it; "" if nothing does but time.
    """

    kind: str
    reason: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait of some jobs of an ensemble.

    Args:
        group: of the jobs; None for a member's own job.
        member: whose own job waits, or that is to run the jobs; None for neither.
        jobs: number of jobs.
        kind, reason, advice: see `Cause`.
        t: since when, if that is known.
        text: all of it in one sentence.
    """

    group: str | None
    member: str | None
    jobs: int
    kind: str
    reason: str
    advice: str
    t: float | None
    text: str


class _Needs(NamedTuple):
    """The needs of a job: the queue that it names, and the numbers of nodes and cores."""

    queue: str | None
    nodes: int
    cores: int


#: A job that waits in the queue, with its needs.
_Waiting = tuple[ActiveJob, _Needs]


class Waits:
    """Finds what jobs wait for.

    The needs of a job do not change while it is in the queue, so they are computed once for each
    job.

    Args:
        tracker: knows which jobs have urgency 0.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        #: The jobs that waited at the latest request, by ensemble name and job id.
        self._waiting: dict[str, dict[int, _Waiting]] = {}

    def forget(self, ensemble: Ensemble) -> None:
        """Forget an ensemble that is dropped."""
        self._waiting.pop(ensemble.name, None)

    def of(self, ensemble: Ensemble, conditions: Conditions | None) -> list[Mapping[str, Any]]:
        """Return why jobs of an ensemble wait, as JSON.

        Args:
            ensemble: that has the jobs.
            conditions: of the instance; None if unknown.
        """
        return [asdict(wait) for wait in self._of(ensemble, conditions)]

    def _of(self, ensemble: Ensemble, conditions: Conditions | None) -> Iterator[Wait]:
        if not ensemble.live:
            return
        if ensemble.unwritten is not None:
            yield _unwritten(ensemble, ensemble.unwritten)
        for member, refused in _refused(ensemble):
            yield _submission(ensemble, member, refused)
        if isinstance(ensemble.member, Submitter):
            for wait in ensemble.member.waits_for_share():
                yield _submission(ensemble, None, wait)
        yield from members_wait(ensemble)
        if not self._tracker.any_held and not (conditions is not None and conditions.troubled):
            self.forget(ensemble)
            return
        causes: dict[tuple[str, Cause], int] = {}
        for (group, held, needs), jobs in self._count(ensemble).items():
            cause = _HELD if held else _cause(needs, conditions)
            if cause is not None:
                causes[group, cause] = causes.get((group, cause), 0) + jobs
        for (group, cause), jobs in causes.items():
            who = f"{counted(jobs, 'job')} of group {bounded(group)!r} wait{'s'[: jobs == 1]}"
            yield _wait(who, group, None, jobs, cause, None)

    def _count(self, ensemble: Ensemble) -> Mapping[tuple[str, bool, _Needs], int]:
        """Count the jobs that wait, by their group, whether they are held, and their needs."""
        before, waiting = self._waiting.get(ensemble.name, {}), dict[int, _Waiting]()
        count = Counter[tuple[str, bool, _Needs]]()
        for id, job in ensemble.engine.workload.jobs.items():
            if job.phase in _STARTED or ordinal_of(id) != ENCLOSING or job.firing is None:
                continue
            known = before.get(id)
            if known is None or known[0] is not job:
                known = job, _needs(ensemble, job.firing, job.index)
            waiting[id] = known
            count[job.firing.group, self._is_held(ensemble, job, job.firing), known[1]] += 1
        self._waiting[ensemble.name] = waiting
        return count

    def _is_held(self, ensemble: Ensemble, job: ActiveJob, firing: Firing) -> bool:
        """Return whether a user holds a job, and not the ensemble itself until it is on disk."""
        return self._tracker.is_held(job.id) and not _holds(ensemble, job, firing)

    def of_job(
        self, ensemble: Ensemble, job: ActiveJob, conditions: Conditions | None
    ) -> Cause | None:
        """Return why a job that is in the queue waits.

        None if it does not, or the cause is unknown.
        """
        if job.phase in _STARTED or ordinal_of(job.id) != ENCLOSING or job.firing is None:
            return None
        if self._is_held(ensemble, job, job.firing):
            return _HELD
        if conditions is None or not conditions.troubled:
            return None
        return _cause(_needs(ensemble, job.firing, job.index), conditions)


_HELD = Cause("held", "held by urgency 0", "'flux job urgency JOBID 16' lets it run")


def _needs(ensemble: Ensemble, firing: Firing, index: int) -> _Needs:
    job_set, params = ensemble.engine.job_at(firing, index)
    cores = max(1, job_set.tasks * job_set.cores)
    return _Needs(_queue_of(job_set, params), job_set.nodes, cores)


def _cause(needs: _Needs, conditions: Conditions | None) -> Cause | None:
    """Return why a job with these needs waits; None if the instance does not cause that."""
    if conditions is None or not conditions.troubled:
        return None
    name = needs.queue or conditions.default_queue
    stopped = conditions.stopped.get(name)
    if stopped is not None:
        which = f"queue {name!r}" if name else "the queue"
        why = f": {stopped}" if stopped else ""
        return Cause("stopped", f"{which} is stopped{why}", conditions.start(name))
    if lack := conditions.lack(needs.nodes, needs.cores):
        return Cause(NODES, lack, conditions.advice)
    first = conditions.first
    if first is not None and (lack := conditions.lack(first.nodes, first.cores)):
        text = f"stands behind job {first.job} in the queue, which {lack}"
        return Cause(BEHIND, text, conditions.advice)
    return None


class SaidWaits:
    """Logs when the queue stops accepting jobs of an ensemble, and when it accepts them again.

    Args:
        ensemble: returns the ensemble.
    """

    def __init__(self, ensemble: Callable[[], Ensemble]) -> None:
        self._ensemble = ensemble
        self._said: dict[tuple[str | None, str, str], Wait] = {}

    def tell(self) -> None:
        """Log the changes since the latest call."""
        ensemble = self._ensemble()
        waits = {}
        for member, refused in _refused(ensemble) if ensemble.live else ():
            wait = _submission(ensemble, member, refused)
            waits[member, refused.group, refused.kind] = wait
        for key, wait in waits.items():
            if key not in self._said and time.time() - (wait.t or 0.0) >= TELL_SECONDS / 2:
                self._said[key] = wait
                ensemble.note(eventlog.JobsHeld(**_context(wait)))
        for key in [key for key in self._said if key not in waits]:
            wait = self._said.pop(key)
            if ensemble.live:
                seconds = time.time() - (wait.t or 0.0)
                ensemble.note(eventlog.GoOn(**_context(wait), seconds=seconds))


def _context(wait: Wait) -> dict[str, Any]:
    """Return the context of a log entry about a wait."""
    return {key: value for key, value in asdict(wait).items() if key != "t"}


def _refused(ensemble: Ensemble) -> Iterator[tuple[str | None, Refused]]:
    """Yield the refusals of the ensemble's queues, with the names of its members."""
    if isinstance(ensemble.member, Submitter):
        for wait in ensemble.member.waits():
            yield None, wait
    elif isinstance(ensemble.fleet, MemberFleet):
        yield from ensemble.fleet.waits()


def _unwritten(ensemble: Ensemble, unwritten: Unwritten) -> Wait:
    cause = Cause(eventlog.UNWRITTEN, unwritten.reason, UNWRITTEN_ADVICE)
    workload = ensemble.engine.workload
    jobs = sum(workload.waiting(group) for group in ensemble.engine.spec.groups)
    return _wait("nothing new begins", None, None, jobs, cause, unwritten.t)


def members_wait(ensemble: Ensemble) -> Iterator[Wait]:
    """Yield why members wait at a site, and the groups whose jobs fit on no member."""
    engine = ensemble.engine
    if engine.members is None:
        return
    if isinstance(ensemble.fleet, MemberFleet):
        for (pool, why), names in ensemble.fleet.waiting().items():
            if len(names) == 1:
                yield _site(f"member {names[0]} {why}", names[0], 1, why)
            else:
                who = f"{len(names)} members of {bounded(pool)} wait"
                yield _site(f"{who}{why.removeprefix('waits')}", None, len(names), why)
    for limited in engine.spec.members:
        spent = engine.members.spent(limited)
        if spent is not None and any(map(engine.workload.waiting, engine.spec.groups)):
            yield _site(spent, None, 0, spent)
    for pool, number in engine.members.spared.items():
        why = "no job needs them now, and they start when one does"
        yield _site(
            f"{counted(number, 'member')} of {bounded(pool)} ended: {why}", None, number, why
        )
    for group, reason in engine.members.not_placed.items():
        if jobs := engine.workload.waiting(group):
            who = f"{counted(jobs, 'job')} of group {bounded(group)!r} wait{'s'[: jobs == 1]}"
            yield _wait(who, group, None, jobs, Cause(eventlog.NotPlaced.tag, reason), None)


def _site(text: str, member: str | None, members: int, why: str) -> Wait:
    return Wait(None, member, members, SITE, why, "", None, text)


def _submission(ensemble: Ensemble, member: str | None, refused: Refused) -> Wait:
    cause = Cause(refused.kind, refused.reason, refused.advice)
    if refused.group == member:
        return _wait(f"the job of member {member!r} waits", None, member, 1, cause, refused.t)
    if refused.kind == eventlog.UNWRITTEN:
        jobs = _held_by_us(ensemble, refused.group)
        who = f"{counted(jobs, 'job')} of group {bounded(refused.group)!r} wait{'s'[: jobs == 1]}"
        return _wait(who, refused.group, member, jobs, cause, refused.t)
    jobs = ensemble.engine.workload.waiting(refused.group)
    where = "" if member is None else f" to member {member!r}"
    group = bounded(refused.group)
    who = f"{counted(jobs, 'job')} of group {group!r} wait{'s'[: jobs == 1]} to be submitted{where}"
    return _wait(who, refused.group, member, jobs, cause, refused.t)


def _held_by_us(ensemble: Ensemble, group: str) -> int:
    """Return how many jobs of a group are held until their record is on disk."""
    return sum(
        job.firing is not None and job.firing.group == group and _holds(ensemble, job, job.firing)
        for job in ensemble.engine.workload.jobs.values()
    )


def _holds(ensemble: Ensemble, job: ActiveJob, firing: Firing) -> bool:
    """Return whether the ensemble holds a job until its record is on disk.

    After a crash its command has no outcome yet, and the member does not know the job again.
    """
    member = ensemble.member
    if not isinstance(member, Submitter):
        return False
    strict = ensemble.engine.spec.durability == "strict"
    return member.holds(job.id) or (strict and firing.outstanding > 0)


def _wait(
    who: str, group: str | None, member: str | None, jobs: int, cause: Cause, t: float | None
) -> Wait:
    advice = f"; {cause.advice}" if cause.advice else ""
    text = f"{who}: {cause.reason}{advice}"
    return Wait(group, member, jobs, cause.kind, cause.reason, cause.advice, t, text)


def _queue_of(job_set: JobSet, params: Any) -> str | None:
    if job_set.jobspec is not None:
        system = job_set.jobspec.get("attributes", {}).get("system", {})
    else:
        system = job_set.attributes.get("system", {})
    queue = job_set.queue or system.get("queue")
    return job_set.filler(params)(queue) if isinstance(queue, str) else None
