"""Batches of job events that come at once: several of one job, and the same of many jobs.

    LifeBatches.take ──► a step for each job ──► one update of statistics, counters and placement

If no rule, feature or metric depends on single jobs, the states between their events are never
seen, so the events need not be handled one by one. The state of the engine afterwards is the same
to the last bit as if they had been.
"""

from __future__ import annotations

from collections.abc import Callable

from flux_ensemble.engine.core import SUBMISSION_SECONDS, Core
from flux_ensemble.engine.evaluation import Evaluation
from flux_ensemble.engine.events import LIFE, TICKS, Columns, JobEvents, JobsAlike, Tag
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_keys import make, ordinal_of
from flux_ensemble.engine.jobs import ActiveJob, Phase
from flux_ensemble.engine.member import Member
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.observer import Observer
from flux_ensemble.engine.placement import Need
from flux_ensemble.metrics.numbers import Number

_PLAIN = frozenset(("submit", "validate", "start", "finish"))

#: The least that a job can need.
_LEAST = Need()

#: Event -> the phase of a job before it.
_PHASES = dict(zip(LIFE, (None, *Phase), strict=False))

#: The counters of a group that grow when a job is accepted, and when it has succeeded.
_BEGUN = ("submitted",)
_ENDED = ("attempts", "success", "finished")

#: The events with which a batch may end: "validate" and "start" leave no more room for other jobs
#: than there was, and "clean" makes room.
_LAST = ("validate", "start", "clean")

#: Globals, because looking up a member of an enumeration is slow.
_PENDING, _RUNNING, _FINISHED, _GONE = Phase.PENDING, Phase.RUNNING, Phase.FINISHED, Phase.GONE


class LifeBatches:
    """Handles batches of jobs for one engine.

    Args:
        core: the engine's core.
        members: the members on which the jobs are.
        observer: handles the events of other jobs.
        quick: decides whether only room limits which jobs are sent.

    Attributes:
        more: True if the last job that was handled may have further effects.
    """

    def __init__(self, core: Core, members: Members, observer: Observer, quick: QuickPath) -> None:
        self._core = core
        self._members = members
        self._observer = observer
        self._quick = quick
        self.more = False
        #: Of the jobs since `_end`: the seconds that they waited and ran.
        self._waited: list[Number] = []
        self._ran: list[Number] = []
        #: The number of jobs accepted since `_end`.
        self._accepted = 0
        #: Group and pool -> True if no rule is about such jobs; valid for a version of the rules.
        self._ignored: dict[tuple[str, str], bool] = {}
        self._version = -1

    def expected(self, alike: JobsAlike, columns: Columns) -> bool:
        """Return whether the jobs of a batch with "submit" were sent, and none has appeared."""
        member = self._members.known.get(alike.ordinal)
        if member is None or alike.firing is None:
            return False
        _, rule, number = alike.firing
        indices, flying, jobs = columns.indices, member.flying, self._core.workload.jobs
        return (
            len(set(indices)) == len(indices) == len(columns.ids)
            and all((rule, number, index) in flying for index in indices)
            and all(make(alike.ordinal, id) not in jobs for id in columns.ids)
        )

    def take(self, alike: JobsAlike, columns: Columns, first: int) -> int:
        """Handle jobs up to one that may have further effects, or that must be handled singly.

        Args:
            alike: the batch.
            columns: the batch's columns.
            first: the position of the first job to handle.

        Returns:
            The position of the first job that was not handled.
        """
        self.more = False
        core, names = self._core, alike.names
        member = self._members.known.get(alike.ordinal)
        if member is None or member.state != "up" or names[-1] not in _LAST:
            return first
        if not (self._possible and self._quick.is_open(max(core.t, alike.t))):
            return first
        if names[0] != "submit":
            return self._go_on(alike, columns, first, member)
        assert alike.firing is not None
        group, rule, number = alike.firing
        firing = core.workload.firings.get(rule, number)
        if firing is None or firing.group != group or not self._is_plain(firing, member):
            return first
        take = self._pass if len(names) == len(LIFE) else self._begin
        stop = take(columns, first, member, firing)
        self._end(group, member)
        return stop

    def _pass(self, columns: Columns, first: int, member: Member, firing: Firing) -> int:
        """Handle jobs with all five events; they occupy no room on the member in between."""
        core, observer = self._core, self._observer
        ids, indices = columns.ids, columns.indices
        submits, _, starts, finishes, _ = columns.times
        stop, record = first, core.records.kept
        while stop < len(ids) and not self.more:
            key, index = make(member.ordinal, ids[stop]), indices[stop]
            if not self._is_expected(firing, member, key, index):
                break
            self._advance(columns, stop)
            t_submit, t_start = submits[stop] / TICKS, starts[stop] / TICKS
            t_end = finishes[stop] / TICKS
            self._accepted += 1
            self._waited.append(max(0.0, t_start - t_submit))
            self._ran.append(max(0.0, t_end - t_start))
            core.workload.passed(firing, index)
            member.passed((firing.rule, firing.number, index), core.t)
            if record:
                job = ActiveJob(key, firing.group, firing, index, t_submit)
                self._started(job, t_start, columns, stop)
                self._finished(job, t_end, columns, stop)
                job.phase = _GONE
                observer.record(job)
            self.more = self._quick.more or self._quick.makes_room(key)
            stop += 1
        return stop

    def _begin(self, columns: Columns, first: int, member: Member, firing: Firing) -> int:
        """Handle jobs that appear and stay active."""
        core, names = self._core, len(columns.times)
        ids, indices, times = columns.ids, columns.indices, columns.times
        for position in range(first, len(ids)):
            key, index = make(member.ordinal, ids[position]), indices[position]
            if not self._is_expected(firing, member, key, index):
                return position
            self._advance(columns, position)
            tag = Tag(firing.group, firing.rule, firing.number, index)
            job = core.workload.admit(key, tag, times[0][position] / TICKS)
            assert job is not None
            self._members.admitted(job)
            self._observer.await_nodes(job)
            job.phase = _PENDING
            self._accepted += 1
            if names > 2:
                self._start(job, times[2][position] / TICKS, columns, position)
        return len(ids)

    def _go_on(self, alike: JobsAlike, columns: Columns, first: int, member: Member) -> int:
        """Handle events of jobs that appeared before."""
        core, names, jobs = self._core, alike.names, self._core.workload.jobs
        ids, phase = columns.ids, _PHASES[names[0]]
        group, stop = "", first
        while stop < len(ids) and not self.more:
            key = make(member.ordinal, ids[stop])
            job = jobs.get(key)
            if job is None or job.firing is None or job.phase is not phase:
                break
            if not (self._is_untouched(job) and self._is_plain(job.firing, member)):
                break
            if job.firing.group != group:
                self._end(group, member)
                group = job.firing.group
            self._advance(columns, stop)
            for name, column in zip(names, columns.times, strict=True):
                if name == "validate":
                    job.phase = _PENDING
                    self._accepted += 1
                elif name == "start":
                    self._start(job, column[stop] / TICKS, columns, stop)
                elif name == "finish":
                    t_end = column[stop] / TICKS
                    assert job.t_start is not None
                    self._ran.append(max(0.0, t_end - job.t_start))
                    self._finished(job, t_end, columns, stop)
                else:
                    job.phase = _GONE
                    core.workload.leave(job)
                    member.left(job.id, core.t)
                    self._observer.record(job)
                    self.more = self._quick.more or self._quick.makes_room(key)
            stop += 1
        self._end(group, member)
        return stop

    def _start(self, job: ActiveJob, t: float, columns: Columns, position: int) -> None:
        """Handle the start of a job that is active."""
        stats = self._core.stats
        self._waited.append(max(0.0, t - job.t_submit))
        stats.pending_nodes -= job.nodes
        job.nodes = 0
        self._started(job, t, columns, position)

    def _started(self, job: ActiveJob, t: float, columns: Columns, position: int) -> None:
        job.phase, job.t_start = _RUNNING, t
        if columns.allocs:
            job.t_alloc, job.ranks = columns.allocs[position] / TICKS, columns.ranks[position]

    def _finished(self, job: ActiveJob, t: float, columns: Columns, position: int) -> None:
        job.phase, job.t_end, job.status, job.outcome = _FINISHED, t, 0, "success"
        if columns.cpu:
            job.used = columns.cpu[position], columns.rss[position]

    def _advance(self, columns: Columns, position: int) -> None:
        """Advance the engine's time to the latest event of a job."""
        t = max([column[position] for column in columns.times]) / TICKS
        if t > self._core.t:
            self._core.t = self._core.stats.t = t

    def _end(self, group: str, member: Member) -> None:
        """Add the collected times and counts of a group's jobs to the statistics and counters."""
        stats, pool = self._core.stats, member.pool.name
        ended = len(self._ran)
        if self._waited:
            stats.observe_all(group, "pending", self._waited)
        if ended:
            for variable in stats.durations("success"):
                stats.observe_all(group, variable, self._ran)
        for counters, jobs in ((_BEGUN, self._accepted), (_ENDED, ended)):
            if jobs:
                counts = stats.counts[group]
                for counter in counters:
                    counts[counter] += jobs
                    counts[f"{counter}@{pool}"] += jobs
        if member.place is not None:
            self._members.placement.changed(member.place)
        self._waited, self._ran, self._accepted = [], [], 0

    @property
    def _possible(self) -> bool:
        """True if no metric or feature depends on single jobs of any group."""
        core, stats = self._core, self._core.stats
        of_values = stats.by or stats.rates or stats.watches or self._observer.values.ended
        singly = of_values or stats.of_members.active or core.hooks.singly
        return core.t_walltime is None and not (singly or core.workload.tallies)

    def _is_expected(self, firing: Firing, member: Member, key: int, index: int) -> bool:
        """Return whether a job was sent, has not appeared, and needs no action when it does."""
        sent = firing.rule, firing.number, index
        return (
            sent in member.flying
            and sent not in member.unwanted
            and not firing.lost
            and not firing.cancel_unseen
            and key not in self._core.workload.jobs
        )

    def _is_plain(self, firing: Firing, member: Member) -> bool:
        """Return whether no feature or rule depends on a firing's jobs that succeed on a member."""
        return firing.trial is None and self._is_ignored(firing.group, member.pool.name)

    def _is_untouched(self, job: ActiveJob) -> bool:
        """Return whether a job has not failed, and is not cancelled, evicted or interrupted."""
        touched = job.canceling or job.evicted or job.interrupted
        return not touched and job.outcome in (None, "success")

    def _is_ignored(self, group: str, pool: str) -> bool:
        """Return whether no rule is triggered by jobs of a group that succeed on a pool."""
        rules = self._core.rules
        if self._version != rules.version:
            self._version = rules.version
            self._ignored.clear()
        ignored = self._ignored.get((group, pool))
        if ignored is None:
            news = self._observer.news_of_success(pool)
            ignored = not any(
                rules.by_news.triggered(group, *one) for one in zip(LIFE, news, strict=True)
            )
            self._ignored[group, pool] = ignored
        return ignored


class EventBatches:
    """Handles batches of job events for one engine.

    Args:
        core: the engine's core.
        members: the members, if the document has any.
        observer: handles single events of jobs.
        evaluation: evaluates the rules that the events trigger.
        settle: does the work that an event leaves besides, and ends the ensemble if it is idle.
    """

    def __init__(
        self,
        core: Core,
        members: Members | None,
        observer: Observer,
        evaluation: Evaluation,
        settle: Callable[[], None],
    ) -> None:
        self._core = core
        self._observer = observer
        self._evaluation = evaluation
        self._settle = settle
        self._quick = self._lives = None
        #: The batch that `knows` has decoded, with its columns; `alike` uses these.
        self._known: tuple[JobsAlike, Columns] | None = None
        if members is not None:
            self._quick = QuickPath(core, members)
            self._lives = LifeBatches(core, members, observer, self._quick)

    def several(self, several: JobEvents) -> None:
        """Handle events of a job, one after the other, as `Engine.handle` does.

        No jobs are sent between plain events (see `QuickPath`): they make no room.
        """
        core, quick = self._core, self._quick
        if quick is not None and not quick.takes(several):
            quick = None
        for event in several.each():
            if event.t > core.t:
                core.t = core.stats.t = event.t
            triggered = self._observer.on_job_event(event)
            if triggered:
                self._evaluation.run(triggered)
            elif (
                quick is not None
                and not quick.more
                and not (event.name == "clean" and quick.makes_room(event.job))
            ):
                continue
            self._settle()

    def alike(self, alike: JobsAlike) -> None:
        """Handle the same events of jobs, one job after the other, as `several` does."""
        lives, quick = self._lives, self._quick
        known, self._known = self._known, None
        columns = known[1] if known is not None and known[0] is alike else alike.columns()
        first, jobs = 0, len(columns.ids)
        while first < jobs:
            if lives is not None and quick is not None and not quick.more:
                stop = lives.take(alike, columns, first)
                if stop > first:
                    first = stop
                    if lives.more:
                        self._settle()
                    continue
            self.several(alike.job(columns, first))
            first += 1

    def knows(self, alike: JobsAlike) -> bool:
        """Return whether the jobs have all been sent, each once.

        All their events are needed: those of a usual life are, in every ensemble.
        """
        if self._lives is None:
            return False
        columns = alike.columns()
        self._known = alike, columns
        return alike.firing is None or self._lives.expected(alike, columns)


class QuickPath:
    """Decides for one engine whether events can make room for other jobs.

    Most jobs are submitted, start, succeed and are clean. Only the event `clean` of such a job can
    make room for a job that waits. So the engine does not try to send jobs after the other events.

    Args:
        core: the engine's core.
        members: the members.
    """

    def __init__(self, core: Core, members: Members) -> None:
        self._core = core
        self._members = members
        self._longest = max((group.longest for group in core.spec.groups.values()), default=0.0)

    def takes(self, several: JobEvents) -> bool:
        """Return whether none of the events makes room for a job, except a last "clean"."""
        success = False
        for event in several.events[:-1]:
            if event[1] not in _PLAIN:
                return False
            if event[1] == "finish":
                success = len(event) > 2 and event[2].get("status") == 0
                if not success:
                    return False
        last = several.events[-1][1]
        if (last != "clean" or not success) and last not in ("validate", "start"):
            return False
        return self.is_open(max(self._core.t, several.t))

    def is_open(self, t: float) -> bool:
        """Return whether until time `t` only room limits which jobs are sent."""
        core = self._core
        if core.hooks.links or not self._members.breaker.idle:
            return False
        t_expires = core.stats.t_expires
        # The allocation must last long enough for the longest group.
        return t_expires is None or self._longest <= t_expires - t - SUBMISSION_SECONDS

    @property
    def more(self) -> bool:
        """True if an event left work besides rules to evaluate and jobs to send."""
        core, workload = self._core, self._core.workload
        drained = workload.drained or not workload.busy
        return bool(drained or core.answers or core.deferred or core.hooks.unsettled)

    def makes_room(self, key: int) -> bool:
        """Return whether a job that is gone may have made room for others."""
        workload = self._core.workload
        if not workload.backlog.queues:
            return False
        member = self._members.known.get(ordinal_of(key))
        if member is None or member.place is None:
            return True
        # If a limit of active jobs was in the way, the next job may go to any member.
        limited = workload.room <= 1 or bool(workload.backlog.bounds)
        return limited or member.place.room(_LEAST, self._core.t) > 0
