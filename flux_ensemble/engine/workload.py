"""The ensemble's jobs, from the moment a rule submits them until they are clean.

    waiting ──next_batch──► in flight ──admit──► active ──leave──► nothing

`waiting` jobs are not sent yet, because of `limits.active-jobs` or a pause. `in flight` jobs were
sent to the member and have not appeared in the queue. `active` jobs are in the queue. Their sum is
a group's `busy` count. Groups whose count falls to 0 are added to `drained`, and so are watched
combinations of parameter values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from flux_ensemble.document.job_sets import Group
from flux_ensemble.engine.absences import Absences
from flux_ensemble.engine.backlog import Backlog
from flux_ensemble.engine.combinations import Combinations, parse_name
from flux_ensemble.engine.events import Tag
from flux_ensemble.engine.firings import Firing, Firings
from flux_ensemble.engine.intervals import IntervalSet
from flux_ensemble.engine.jobs import ActiveJob, Phase, ages_of, dump_jobs, load_jobs
from flux_ensemble.engine.tallies import Tally


class Workload:
    """Jobs that wait, are in flight, or are active, with their counts by group.

    Args:
        groups: the job groups, by name.
        limit: the most jobs that may be in flight or active at once.
        placed: each firing may have its own reason to wait: see `fits` of `next_batch`.
    """

    def __init__(self, groups: Mapping[str, Group], limit: int, placed: bool = False) -> None:
        self._groups = groups
        self._limit = limit
        self.backlog = Backlog(groups, placed)
        #: The number of further jobs that may be sent; negative if more appeared than expected.
        self.room = limit
        self.firings = Firings()
        #: The spans in which the ensemble did not run.
        self.absences = Absences()
        self.jobs: dict[int, ActiveJob] = {}
        self._active: dict[str, dict[int, ActiveJob]] = {group: {} for group in groups}
        self._waiting = dict.fromkeys(groups, 0)
        self._in_flight = dict.fromkeys(groups, 0)
        #: The number of jobs that are not over.
        self.busy = 0
        #: The number of jobs submitted so far.
        self.total = 0
        #: Group -> the number of jobs that were asked for, without those that run again.
        self.submitted: dict[str, int] = {}
        #: Groups and combinations whose busy count has fallen to 0, and None for the ensemble, in
        #: order.
        self.drained: dict[str | None, None] = {}
        #: Group -> the combinations that are watched.
        self._watched: dict[str, list[Combinations]] = {}
        #: Id of a rule on `idle` -> how the jobs go that it waits for.
        self.tallies: dict[str, Tally] = {}

    def busy_of(self, group: str | None) -> int:
        """Return the number of jobs of a group, a combination, or all that are not over."""
        if group is None:
            return self.busy
        if group not in self._active:
            watched = self._watched[parse_name(group)[0]]
            return sum(combinations.jobs.get(group, 0) for combinations in watched)
        return self._waiting[group] + self._in_flight[group] + len(self._active[group])

    @property
    def queued(self) -> bool:
        """True if the queue has a job of the ensemble, or may get one that was sent."""
        return self.room != self._limit or any(
            firing.outstanding or firing.lost for firing in self.firings
        )

    def room_of(self, group: str) -> int:
        """Return how many more jobs of a group may be sent."""
        bound = self.backlog.bounds.get(group)
        if bound is None:
            return self.room
        return min(self.room, bound - self._in_flight[group] - len(self._active[group]))

    def _room_of_firing(self, firing: Firing) -> int:
        return self.room_of(firing.group)

    def waiting(self, group: str) -> int:
        """Return the number of jobs of the group that have not appeared in the queue yet."""
        return self._waiting[group] + self._in_flight[group]

    def active(self, group: str | None = None) -> Collection[ActiveJob]:
        """Return the jobs of the group, or of the ensemble, that are in the queue."""
        return (self.jobs if group is None else self._active[group]).values()

    def watch(self, group: str, by: tuple[str, ...]) -> None:
        """Watch the combinations of a group's values of the parameters `by`."""
        watched = self._watched.setdefault(group, [])
        if not any(combinations.by == by for combinations in watched):
            watched.append(self._counted(Combinations(self._groups[group], by), group))

    def tally(self, rule: str, groups: Collection[str], by: tuple[str, ...]) -> None:
        """Count from now on how the jobs go that a rule on `idle` waits for.

        Args:
            rule: the rule's id; nothing happens if it has a tally.
            groups: of the rule; empty for all.
            by: parameters of the rule.
        """
        if rule in self.tallies:
            return
        names = groups or self._groups
        tally = self.tallies[rule] = Tally([self._groups[name] for name in names], by)
        for name in names:
            for firing, indices in self._present(name):
                tally.asked(firing, indices)

    def reopen(self) -> None:
        """Go on after the end of the ensemble: nothing is drained, and tallies begin anew."""
        self.drained.clear()
        for tally in self.tallies.values():
            tally.anew(present for group in self._groups for present in self._present(group))

    def _counted(self, combinations: Combinations, group: str) -> Combinations:
        """Count the present jobs of a group; return `combinations`."""
        for firing, indices in self._present(group):
            combinations.begin(firing, indices)
        return combinations

    def _present(self, group: str) -> Iterator[tuple[Firing, Collection[int]]]:
        """Yield the jobs of a group that are not over: firings, and indices of jobs of each."""
        for firing in self.firings:
            if firing.group == group:
                yield firing, firing.to_send()
                for index in firing.not_seen() if firing.unseen or firing.waiting else ():
                    yield firing, range(index, index + 1)
        for job in self._active[group].values():
            assert job.firing is not None
            yield job.firing, range(job.index, job.index + 1)

    def combinations(self, job: ActiveJob) -> tuple[str, ...]:
        """Return the watched combinations of a job."""
        watched = self._watched.get(job.group or "")
        if watched is None or job.firing is None:
            return ()
        return tuple(combinations.name(job.firing, job.index) for combinations in watched)

    def _end(self, firing: Firing, indices: Collection[int]) -> None:
        """Count jobs as over for the watched combinations."""
        for combinations in self._watched.get(firing.group, ()):
            self.drained.update(dict.fromkeys(combinations.end(firing, indices)))

    def add(self, firing: Firing) -> bool:
        """Add the jobs of a firing.

        Returns:
            False if there are too many combinations; then the ensemble has to fail.
        """
        jobs = firing.to_send()
        for combinations in self._watched.get(firing.group, ()):
            if not combinations.begin(firing, jobs):
                self._watched.clear()
                return False
        for tally in self.tallies.values():
            if not tally.asked(firing, jobs):
                return False
        self.firings.open(firing)
        if not firing.delayed:
            self.backlog.append(firing)
        waiting = firing.waiting
        self._waiting[firing.group] += waiting
        self.busy += waiting
        self.total += waiting
        return True

    def put_back(self, rest: Firing) -> bool:
        """Add jobs that were dropped before they were sent, with the tags that they were to have.

        Args:
            rest: the `Firing.rest` of their firing, from before they were dropped.

        Returns:
            As for `add`.
        """
        firing = self.firings.close(rest.rule, rest.number)
        if firing is None:
            firing = rest
        else:
            # Jobs of it that were sent are not over, although the ensemble had ended, or are lost.
            if firing.lost and not firing.unseen:
                firing.forget_lost()
            elif rest.sent is not None:
                firing.sent = IntervalSet(rest.sent.intervals)
            firing.stop = rest.stop
            firing.cancel_unseen, firing.answered = False, True
        self.total -= firing.waiting
        return self.add(firing)

    def delay_over(self, rule: str, number: int) -> None:
        """End the delay of a firing, so that its waiting jobs can be sent."""
        firing = self.firings.delay_over(rule, number)
        if firing is not None and firing.waiting:
            self.backlog.append(firing)

    def next_batch(
        self, closed: Collection[str] = (), fits: Callable[[Firing, int], int] | None = None
    ) -> tuple[Firing, int, int] | None:
        """Take the next jobs to send, as many as the limits allow; None if there are none.

        Args:
            closed: groups with a time limit whose jobs are not sent now.
            fits: returns how many jobs of a firing, from an index on, members have room for.

        Returns:
            The jobs' firing, the index of the first, and their number.
        """
        backlog = self.backlog
        if self.room <= 0 or not backlog.queues:
            return None
        if closed or fits is not None:
            firing, room = self._next_allowed(closed, fits)
        else:
            firing = backlog.next(self._room_of_firing)
            room = 0 if firing is None else self.room_of(firing.group)
        if firing is None:
            return None
        if backlog.ordered and firing.group in backlog.ordered:
            firing, first, count = backlog.longest(firing, room)
        else:
            first = firing.upcoming
            count = min(firing.waiting, room)
            if firing.sent is not None:
                count = min(count, len(next(firing.sent.gaps(firing.first, firing.stop))))
        if count == firing.waiting:
            backlog.remove(firing)
        firing.send(first, count)
        firing.unseen += count
        firing.outstanding += 1
        self._waiting[firing.group] -= count
        self._in_flight[firing.group] += count
        self.room -= count
        return firing, first, count

    def _next_allowed(
        self, closed: Collection[str], fits: Callable[[Firing, int], int] | None
    ) -> tuple[Firing | None, int]:
        """Return the firing whose jobs are next, and how many of them may be sent."""

        def allowed(firing: Firing) -> int:
            if firing.group in closed:
                return 0
            room = self.room_of(firing.group)
            if fits is None or room <= 0:
                return room
            return min(room, fits(*self.backlog.head(firing)))

        firing = self.backlog.next(allowed)
        return firing, 0 if firing is None else allowed(firing)

    def confirm(self, firing: Firing, lost: int = 0) -> None:
        """Handle the outcome of a batch, of which `lost` jobs did not reach the queue."""
        firing.outstanding -= 1
        lost = min(lost, firing.unseen)
        if lost:
            firing.unseen -= lost
            firing.lost += lost
            self._in_flight[firing.group] -= lost
            self.room += lost
            self._end_lost(firing)
            self._release(firing.group, lost)
        self.firings.close_if_over(firing)

    def _end_lost(self, firing: Firing) -> None:
        """Count lost jobs as over for the watched combinations, once no other jobs are expected.

        Before that it is not known which of the jobs that have not appeared are lost.
        """
        if self._watched and firing.lost and not firing.unseen and not firing.waiting:
            self._end(firing, firing.not_seen())

    def admit(self, id: int, tag: Tag, t: float) -> ActiveJob | None:
        """Add a job that appeared in the queue; return it, or None if its tag was not expected."""
        _, rule, number, index = tag
        firing = self.firings.expecting(rule, number, index)
        if firing is None:
            return None
        firing.seen.add(index)
        firing.live += 1
        if firing.unseen:
            firing.unseen -= 1
            self._in_flight[firing.group] -= 1
            self._end_lost(firing)
        else:
            firing.lost -= 1
            self.room -= 1
            self.busy += 1
            if not firing.waiting:
                for combinations in self._watched.get(firing.group, ()):
                    combinations.begin(firing, range(index, index + 1))
        job = ActiveJob(id, firing.group, firing, index, t)
        self.jobs[id] = self._active[firing.group][id] = job
        return job

    def succeeded(self, job: ActiveJob) -> None:
        """Count a job that has succeeded and is over, for the rules on `idle` that wait for it."""
        if self.tallies:
            assert job.firing is not None
            for tally in self.tallies.values():
                tally.succeeded(job.firing, job.index)

    def leave(self, job: ActiveJob) -> None:
        """Remove a job that is clean and leaves the queue."""
        firing = job.firing
        assert firing is not None
        del self.jobs[job.id]
        del self._active[firing.group][job.id]
        self.room += 1
        firing.live -= 1
        if self._watched:
            self._end(firing, (job.index,))
        self._release(firing.group, 1)
        self.firings.close_if_over(firing)

    def passed(self, firing: Firing, index: int) -> None:
        """Remove a job in flight that has appeared, ended and left at once.

        No job of the firing is lost.
        """
        firing.seen.add(index)
        firing.unseen -= 1
        self._in_flight[firing.group] -= 1
        self.room += 1
        if self._watched:
            self._end(firing, (index,))
        self._release(firing.group, 1)
        self.firings.close_if_over(firing)

    def withdraw(self, groups: Iterable[str]) -> tuple[list[ActiveJob], int]:
        """Withdraw all jobs of the groups, for a cancel.

        Waiting jobs are dropped. Those in flight are marked with `Firing.cancel_unseen`, so each is
        cancelled when it appears.

        Returns:
            The active jobs to cancel, without those that are being cancelled already, and the
            number of dropped jobs.
        """
        dropped = 0
        groups = set(groups)
        for firing in [firing for firing in self.firings if firing.group in groups]:
            firing.cancel_unseen = True
            dropped += self.drop(firing)
        jobs = [job for group in groups for job in self._active[group].values()]
        newly = [job for job in jobs if job.may_be_canceled]
        for job in newly:
            job.canceling = True
        return sorted(newly, key=lambda job: job.id), dropped

    def drop_waiting(self) -> int:
        """Drop all jobs that have not been sent.

        Returns:
            The number of dropped jobs.
        """
        return sum(self.drop(firing) for firing in list(self.firings))

    def drop(self, firing: Firing) -> int:
        """Drop the jobs of a firing that have not been sent; return their number."""
        dropped = firing.waiting
        if dropped:
            unsent = firing.to_send() if self._watched else ()
            firing.stop = firing.next
            if not firing.delayed:
                self.backlog.remove(firing, dropped=True)
            if self._watched:
                self._end(firing, unsent)
                self._end_lost(firing)
            self._waiting[firing.group] -= dropped
            self._release(firing.group, dropped)
            self.firings.close_if_over(firing)
        return dropped

    def _release(self, group: str, jobs: int) -> None:
        self.busy -= jobs
        if not self.busy_of(group):
            self.drained[group] = None
        if not self.busy:
            self.drained[None] = None

    def ages(self, group: str, gauge: str, t: float) -> Iterator[float]:
        """Return the ages in seconds at time `t` of the group's "waiting" or "running" jobs."""
        return ages_of(self._active[group].values(), gauge, t, self.absences)

    def dump(self) -> dict[str, Any]:
        """Return jobs and firings as JSON; the counts follow from them."""
        jobs, positions = list(self.jobs.values()), self.firings.positions()
        tallies = {rule: dumped for rule, tally in self.tallies.items() if (dumped := tally.dump())}
        return {
            "total": self.total,
            "submitted": self.submitted,
            **({"tallies": tallies} if tallies else {}),
            "drained": sorted(self.drained, key=lambda group: group or ""),
            **self.firings.dump(),
            "backlog": [positions[firing] for firing in self.backlog],
            "jobs": {
                **dump_jobs(jobs),
                "firing": [positions[job.firing] for job in jobs if job.firing is not None],
                "index": [job.index for job in jobs],
            },
        }

    def load(self, value: Mapping[str, Any]) -> list[Firing]:
        """Set the state from the result of `dump`; return the open firings by position."""
        self.total = value["total"]
        self.submitted = dict(value.get("submitted", {}))
        self.drained.update(dict.fromkeys(value["drained"]))
        for rule, rows in value.get("tallies", {}).items():
            self.tallies[rule].load(rows)
        firings, jobs = self.firings.load(value), value["jobs"]
        for position in value["backlog"]:
            self.backlog.append(firings[position])
        owners = [
            (firings[position].group, firings[position], index)
            for position, index in zip(jobs["firing"], jobs["index"], strict=True)
        ]
        for job in load_jobs(jobs, owners):
            assert job.firing is not None
            job.firing.live += 1
            self.jobs[job.id] = self._active[job.firing.group][job.id] = job
        for firing in firings:
            self._waiting[firing.group] += firing.waiting
            self._in_flight[firing.group] += firing.unseen
        for group, watched in self._watched.items():
            for combinations in watched:
                self._counted(combinations, group)
        queued = sum(self._in_flight.values()) + len(self.jobs)
        self.room = self._limit - queued
        self.busy = sum(self._waiting.values()) + queued
        return firings

    def check(self) -> None:
        """Check that the counts agree with each other.

        Raises:
            AssertionError: they do not agree.
        """
        unseen, waiting, live = 0, 0, 0
        delayed = [firing for firing in self.firings if firing.delayed]
        for firing in self.firings:
            assert firing.next <= firing.stop
            assert firing.unseen >= 0 <= firing.lost
            assert firing.live >= 0 <= firing.outstanding
            unseen += firing.unseen
            waiting += firing.waiting
            live += firing.live
            assert len(firing.seen) + firing.unseen + firing.lost == firing.next - firing.first
            assert not firing.over(), "a firing that is over is closed"
            sent = firing.sent
            assert sent is None or len(sent) == firing.next - firing.first
        assert (
            waiting
            == sum(self._waiting.values())
            == sum(firing.waiting for firing in (*self.backlog, *delayed))
        )
        assert unseen == sum(self._in_flight.values())
        assert live == len(self.jobs) == sum(map(len, self._active.values()))
        assert self.room == self._limit - unseen - live
        assert self.busy == waiting + unseen + live == sum(map(self.busy_of, self._active))
        for group, watched in self._watched.items():
            for combinations in watched:
                fresh = Combinations(self._groups[group], combinations.by)
                assert combinations.jobs == self._counted(fresh, group).jobs
        for id, job in self.jobs.items():
            assert id == job.id
            assert job.phase is not Phase.GONE
            assert self._active[job.group or ""][id] is job
