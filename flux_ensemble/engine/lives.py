"""Whole lives of jobs: submitted, started, run well and clean, all of it told at once.

    take, take, take ... ──► end
      one step for each job    what all of them bring to statistics, counters and placement

Most jobs are like that, and nothing looks at them: no rule, search or metric is about the single
job. So nobody sees what is between its events, and there is no need to handle these one by one.
After `end` the engine is to the last bit as if they had been.
"""

from __future__ import annotations

from flux_ensemble.engine.core import Core
from flux_ensemble.engine.events import JobEvents
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_keys import ordinal_of
from flux_ensemble.engine.jobs import Job
from flux_ensemble.engine.member import Member
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.observer import Observer
from flux_ensemble.engine.plain import Plain
from flux_ensemble.metrics.numbers import Number

#: The events of a life.
_NAMES = ("submit", "validate", "start", "finish", "clean")

#: The counters of a group that such a job counts in.
_COUNTERS = ("submitted", "attempts", "success", "finished")


class Lives:
    """Takes in lives for one engine.

    Args:
        core: of the engine.
        members: on which the jobs are.
        observer: handles the events of other jobs.
        plain: says when only room decides which jobs are sent.
    """

    def __init__(self, core: Core, members: Members, observer: Observer, plain: Plain) -> None:
        self._core = core
        self._members = members
        self._observer = observer
        self._plain = plain
        #: How long jobs waited, and how long they ran, by their group.
        self._values: dict[str, tuple[list[Number], list[Number]]] = {}
        #: How many there were, by their group and pool.
        self._jobs: dict[tuple[str, str], int] = {}
        #: The members that they were on.
        self._touched: dict[int, Member] = {}
        #: By group and pool, whether no rule is about such jobs; as of a version of the rules.
        self._ignored: dict[tuple[str, str], bool] = {}
        self._version = -1

    @property
    def possible(self) -> bool:
        """Whether nothing looks at single jobs, of whatever group."""
        core, stats = self._core, self._core.stats
        of_values = stats.by or stats.rates or stats.watches or stats.bests.kept
        predicts = bool(core.workload.predictions.models)
        return core.t_walltime is None and not (of_values or stats.of_members.active or predicts)

    def take(self, several: JobEvents) -> bool:
        """Take in a life; False if the events are none, or something looks at the job."""
        tag, events = several.tag, several.events
        if tag is None or len(events) != len(_NAMES):
            return False
        submit, validate, start, finish, clean = events
        if (submit[1], validate[1], start[1], finish[1], clean[1]) != _NAMES:
            return False
        status = finish[2].get("status") if len(finish) > 2 else None
        if type(status) is not int or status:
            return False
        core, key, sent = self._core, several.job, (tag.rule, tag.firing, tag.index)
        member = self._members.known.get(ordinal_of(key))
        firing = core.workload.firings.get(tag.rule, tag.firing)
        if member is None or firing is None or key in core.workload.jobs:
            return False
        t = max(core.t, submit[0], validate[0], start[0], finish[0], clean[0])
        if not (self._passes(firing, member, sent) and self._plain.now(t)):
            return False
        core.t = core.stats.t = t
        group, index = firing.group, tag.index
        waited, ran = max(0.0, start[0] - submit[0]), max(0.0, finish[0] - start[0])
        values = self._values.setdefault(group, ([], []))
        values[0].append(waited)
        values[1].append(ran)
        of_pool = group, member.pool.name
        self._jobs[of_pool] = self._jobs.get(of_pool, 0) + 1
        self._touched[member.ordinal] = member
        core.workload.passed(firing, index)
        member.passed(sent, t)
        if core.records.kept:
            job = Job(key, group, firing, index, submit[0])
            job.succeeded(start[0], start[2] if len(start) > 2 else None, finish[0])
            self._observer.record(job)
        return True

    def end(self) -> None:
        """Have what is looked at from now on take in what the jobs brought."""
        stats = self._core.stats
        for group, (waited, ran) in self._values.items():
            stats.observe_all(group, "pending", waited)
            for variable in stats.durations("success"):
                stats.observe_all(group, variable, ran)
        for (group, pool), jobs in self._jobs.items():
            counts = stats.counts[group]
            for counter in _COUNTERS:
                counts[counter] += jobs
                counts[f"{counter}@{pool}"] += jobs
        for member in self._touched.values():
            if member.place is not None:
                self._members.placement.changed(member.place)
        self._values.clear()
        self._jobs.clear()
        self._touched.clear()

    def _passes(self, firing: Firing, member: Member, sent: tuple[str, int, int]) -> bool:
        """Whether a job is expected, and it comes and goes with nothing done about it."""
        return (
            member.state == "up"
            and sent in member.flying
            and sent not in member.unwanted
            and not firing.cancel_unseen
            and not firing.lost
            and firing.trial is None
            and self._is_ignored(firing.group, member.pool.name)
        )

    def _is_ignored(self, group: str, pool: str) -> bool:
        """Whether no rule is about jobs of a group that succeed on a pool."""
        rules = self._core.rules
        if self._version != rules.version:
            self._version = rules.version
            self._ignored.clear()
        ignored = self._ignored.get((group, pool))
        if ignored is None:
            news = self._observer.news_of_success(pool)
            ignored = not any(rules.own(group, *one) for one in zip(_NAMES, news, strict=True))
            self._ignored[group, pool] = ignored
        return ignored
