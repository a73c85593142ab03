"""Fair shares of an instance among the ensembles whose jobs compete for its cores.

An ensemble alone sends its jobs as fast as Flux takes them. Where the jobs of several compete, the
service looks several times a second how many cores the jobs of each have and wait for, and then:

- Each has a *fair part* of the cores: in proportion to `share`, and what one does not need goes to
  the others (weighted max-min).
- Each has as many jobs in Flux's queue as fill its part, and some besides, so that a job is there
  when a core gets free: more of them while it is behind with its core-seconds, and fewer while it
  is ahead.
- What an ensemble had in the queue beyond that when another came stays there. The jobs of the
  other get an urgency above it, so they need not wait for its end.
- Nobody waits while cores are free and its own jobs start at once.

Core-seconds are compared as in start-time fair queueing: an ensemble that had nothing to send is
not owed the time. So a share says how cores are divided while there is competition, and nothing
else.

Only the enclosing instance is shared: an ensemble with `members` has instances of its own.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from flux_ensemble.document.job_sets import Group, JobSet
from flux_ensemble.engine.events import ShareChanged
from flux_ensemble.engine.jobs import ActiveJob, Phase
from flux_ensemble.metrics.paths import SHARE
from flux_ensemble.queues.flux.submission import Submitter
from flux_ensemble.queues.flux.turns import Waiting
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.ports import Loop, Numbers
from flux_ensemble.texts import bounded

#: Seconds between two looks at the ensembles while one of them waits for its share.
LOOK_SECONDS = 0.25

#: Seconds over which it is counted how many cores get free, and for how many of these an ensemble
#: has jobs in the queue besides.
RATE_SECONDS = 8.0
AHEAD_SECONDS = 0.5

#: The bounds of the seconds in which core-seconds are made up for; between them it is twice as long
#: as the jobs take, since what was sent too much runs for so long.
BACK_SECONDS = (2.0, 60.0)

#: Seconds after which jobs that wait beside free cores wait for something else.
STUCK_SECONDS = 3.0

#: Rules see that nobody competes any more when that has been so for this many seconds: an ensemble
#: may have nothing to send for a moment.
RISE_SECONDS = 2.0

#: The most jobs whose sizes are found out in a look, and the most by which the mean is found.
_MOST_JOBS = 500
_SAMPLE = 100

#: Seconds between two requests for the number of cores.
CORES_SECONDS = 10.0

#: The greatest urgency of a job (RFC 27).
_MOST_URGENT = 31

#: The most ensembles that a sentence names.
_NAMED = 3


@dataclass(slots=True, eq=False)
class Party:
    """The cores that an ensemble has, and those that it wants.

    Attributes:
        name: of the ensemble.
        share: its weight.
        running, queued: cores of its jobs that run, and that wait in the queue.
        wanted: cores of its jobs that are still to be sent.
        job: cores of one of these, or of any if there are none.
        urgencies: the least and the greatest of its jobs.
        served: its core-seconds, divided by its weight; comparable among parties.
        part: its fair part of the cores.
        ahead: cores of jobs that it may have in the queue besides; negative if it has to do with
            less.
        lift: what is added to the urgency of its jobs.
        stuck: cores of jobs in the queue that wait for something else.
        begun: number of its jobs that have begun to run.
        takes: seconds that a job of it takes, in the mean of the last ones.
        started: some of them have since the look before.
        since: when it began to wait for its share, in seconds since the epoch; None if it does
            not.
    """

    name: str
    share: float
    running: float = 0.0
    queued: float = 0.0
    wanted: float = 0.0
    job: float = 1.0
    urgencies: tuple[int, int] = (16, 16)
    served: float = 0.0
    part: float = math.inf
    ahead: float = 0.0
    lift: int = 0
    stuck: float = 0.0
    begun: int = 0
    takes: float = BACK_SECONDS[1]
    started: bool = False
    since: float | None = None
    _ended: deque[tuple[float, float]] = field(default_factory=deque)
    _waits_since: float | None = None

    @property
    def competes(self) -> bool:
        """True if it has jobs that do not run yet."""
        return self.wanted > 0 or self.queued > 0

    @property
    def present(self) -> float:
        """Cores of its jobs that run, or wait in the queue for cores."""
        return self.running + max(0.0, self.queued - self.stuck)

    @property
    def over(self) -> bool:
        """True if more of its jobs are in the queue than its share allows."""
        return self.running + self.queued > self.part + max(self.ahead, self.job) + self.job

    def may_send(self, idle: float) -> bool:
        """Return whether it may send a job, with so many cores idle."""
        if self.present + self.job <= self.part + self.ahead or self.present <= 0:
            return True
        return self.queued <= self.stuck and idle >= self.job

    def note_ended(self, now: float, ended: float) -> float:
        """Note the cores of all jobs that have ended so far; return how many get free a second."""
        while len(self._ended) > 1 and self._ended[1][0] <= now - RATE_SECONDS:
            self._ended.popleft()
        self._ended.append((now, ended))
        return (ended - self._ended[0][1]) / RATE_SECONDS

    def note_stuck(self, now: float, idle: float) -> None:
        """Note whether jobs of it wait though cores have been idle for some time."""
        self.stuck = min(self.stuck, self.queued)
        if self.started or self.queued <= self.stuck or idle < self.job:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = now
        elif now - self._waits_since >= STUCK_SECONDS:
            self.stuck, self._waits_since = self.queued, None


def divide(cores: float, parties: Sequence[Party]) -> None:
    """Set the fair part of each: by weight, and what one does not need goes to the others.

    Args:
        cores: all that there are.
        parties: those that have jobs.

    >>> a, b = Party("a", 1, wanted=10), Party("b", 3, running=1)
    >>> divide(8, [a, b])
    >>> a.part, b.part
    (7.0, 1.0)
    """
    hungry, left = list(parties), float(cores)
    while hungry:
        weight = sum(party.share for party in hungry)
        unit = max(0.0, left) / weight
        modest = [party for party in hungry if _need(party) <= unit * party.share]
        for party in modest or hungry:
            party.part = _need(party) if modest else unit * party.share
            left -= party.part
        hungry = [party for party in hungry if party not in modest] if modest else []


def _need(party: Party) -> float:
    return party.present + party.wanted


def settle(parties: Sequence[Party], cores: float, seconds: float) -> None:
    """Bring the parties up to date after a look at what they have.

    Args:
        parties: those that have jobs.
        cores: all that there are.
        seconds: since the look before, for which what runs now is taken to have run.
    """
    competing = [party for party in parties if party.competes]
    for party in parties:
        party.served += party.running * seconds / party.share
    if competing:
        least = min(party.served for party in competing)
        for party in parties:
            if not party.competes:
                party.served = max(party.served, least)
        # Nobody is owed more than a minute of its part.
        floor = max(party.served for party in parties) - 60.0 * cores
        for party in parties:
            party.served = max(party.served, floor)
    divide(cores, parties)
    mean = sum(party.served for party in competing) / max(1, len(competing))
    for party in parties:
        party.lift = 0
        shortest, longest = BACK_SECONDS
        seconds_back = min(max(shortest, 2 * party.takes), longest)
        surplus = (party.served - mean) * party.share / seconds_back
        # No more than twice its part, and no less than half of it.
        party.ahead -= max(-party.job - party.part, min(surplus, party.part / 2 + party.ahead))
    for party in parties:
        above = [one.urgencies[1] for one in parties if one is not party and one.over]
        if above and not party.over:
            party.lift = max(0, max(above) + 1 - party.urgencies[0])


class Shares:
    """Decides whose job goes to Flux's queue next, by the shares of the ensembles.

    Args:
        ensembles: all ensembles.
        loop: for timers.
        cores: requests the numbers of the instance.
        wake: called when a lane may have its turn again.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        ensembles: Iterable[Ensemble],
        loop: Loop,
        cores: Callable[[Callable[[Numbers], None]], None],
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ensembles = ensembles
        self._loop = loop
        self._ask = cores
        self._wake = wake
        self._clock = clock
        self._cores = 0.0
        self._idle = 0.0
        self._t_cores = self._t_look = self._t_next = -math.inf
        self._looking = False
        self._random = Random(0)
        self._parties: dict[Hashable, Party] = {}
        self._competition = False
        #: The lanes that have waited since the latest look of those that are due.
        self._met: set[Hashable] = set()
        self._sizes: dict[Hashable, Sizes] = {}
        #: Since when the part of an ensemble is larger than its rules see.
        self._rises: dict[str, float] = {}
        self._following = False

    def ready(self) -> None:
        """Begin: the ensembles are known."""
        self._look(self._clock())

    def next(self, lanes: Collection[Hashable]) -> Hashable | None:
        """See `Turns`."""
        now = self._clock()
        if now >= self._t_next:
            self._met = set(lanes)
            self._look(now)
        elif not self._met.issuperset(lanes):
            self._met.update(lanes)
            self._look(now)
        if not self._competition:
            return next(iter(lanes))
        chosen, least = None, math.inf
        for lane in lanes:
            party = self._parties.get(lane)
            if party is None or (isinstance(lane, Submitter) and lane.known):
                return lane  # not an ensemble's own job, or one that the queue has already
            if party.served < least and party.may_send(self._idle):
                chosen, least = lane, party.served
        if chosen is None:
            self._look_later(lanes)
            return None
        party = self._parties[chosen]
        party.queued += party.job
        party.wanted -= party.job
        self._idle -= party.job
        party.since = None
        return chosen

    def urgency(self, lane: Hashable, urgency: int) -> int:
        """See `Turns`."""
        party = self._parties.get(lane)
        if party is None or urgency == 0:
            return urgency
        return min(urgency + party.lift, max(urgency, _MOST_URGENT))

    def waiting(self, lane: Hashable) -> Waiting | None:
        """See `Turns`."""
        party = self._parties.get(lane)
        if party is None or party.since is None:
            return None
        others = [one.name for one in self._parties.values() if one is not party and one.competes]
        if not others:
            return None
        names = " and ".join(bounded(repr(name)) for name in others[:_NAMED])
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        of = f" of {self._cores:g}" if self._cores else ""
        reason = f"its share is {party.part:.3g}{of} cores, while jobs of {names}{more} wait, too"
        return Waiting(reason, party.since)

    def _look_later(self, lanes: Collection[Hashable]) -> None:
        t = time.time()
        for lane in lanes:
            party = self._parties.get(lane)
            if party is not None and party.since is None:
                party.since = t
        if not self._looking:
            self._looking = True
            self._loop.timer(max(0.0, self._t_next - self._clock()), self._look_again)

    def _look_again(self) -> None:
        self._looking = False
        self._wake()

    def _look(self, now: float) -> None:
        """Find out what each ensemble has and wants."""
        seconds = min(now - self._t_look, 10 * LOOK_SECONDS) if self._competition else 0.0
        # Not in step with jobs that all take the same time.
        self._t_look, self._t_next = now, now + LOOK_SECONDS * self._random.uniform(0.7, 1.3)
        before, self._parties = self._parties, {}
        busy = list(self._busy())
        if len(busy) > 1:
            served = min((party.served for party in before.values()), default=0.0)
            for ensemble, lane in busy:
                share = ensemble.engine.spec.share
                party = before.get(lane) or Party(ensemble.name, share, served=served)
                self._examine(party, ensemble, lane, now)
                self._parties[lane] = party
        parties = list(self._parties.values())
        self._sizes = {lane: self._sizes[lane] for lane in self._parties}
        self._competition = sum(party.competes for party in parties) > 1
        self._follow_later()
        if not self._competition:
            for party in parties:
                party.lift, party.since = 0, None
            return
        self._learn_cores(now)
        running = sum(party.running for party in parties)
        cores = max(self._cores, running, 1.0)
        for party in parties:
            party.note_stuck(now, cores - running)
        self._idle = cores - sum(party.present for party in parties)
        settle(parties, cores, seconds)

    def _follow(self) -> None:
        """Look again, though maybe nobody has jobs to send, and tell the ensembles."""
        self._following = False
        now = self._clock()
        if now >= self._t_next:
            self._look(now)
        parties = {party.name: party for party in self._parties.values()}
        weight = sum(party.share for party in parties.values() if party.competes)
        for ensemble in self._readers():
            name, before, part = ensemble.name, ensemble.engine.stats.lookup(SHARE), 1.0
            party = parties.get(name)
            if party is not None and self._competition:
                part = party.share / (weight if party.competes else weight + party.share)
            if part <= before:
                self._rises.pop(name, None)
            elif now - self._rises.setdefault(name, now) < RISE_SECONDS:
                part = before
            if part != before:
                self._rises.pop(name, None)
                ensemble.post([ShareChanged(time.time(), part)])
        self._follow_later()

    def _follow_later(self) -> None:
        """Arrange that rules which read the share of their ensemble see what it is."""
        if not self._following and any(
            self._competition or ensemble.engine.stats.lookup(SHARE) < 1
            for ensemble in self._readers()
        ):
            self._following = True
            self._loop.timer(LOOK_SECONDS, self._follow)

    def _readers(self) -> list[Ensemble]:
        return [one for one in self._ensembles if one.live and one.engine.wants_share]

    def _busy(self) -> Iterator[tuple[Ensemble, Submitter]]:
        """Yield the live ensembles that have jobs on the enclosing instance, or send some."""
        for ensemble in self._ensembles:
            if (
                ensemble.live
                and isinstance(ensemble.member, Submitter)
                and ensemble.engine.workload.busy
            ):
                yield ensemble, ensemble.member

    def _examine(self, party: Party, ensemble: Ensemble, lane: Submitter, now: float) -> None:
        sizes = self._sizes.get(lane)
        if sizes is None:
            groups = ensemble.engine.spec.groups
            sizes = self._sizes[lane] = Sizes(ensemble)
            urgencies = [one.urgency for group in groups.values() for one in group.sets]
            party.urgencies = min(urgencies, default=16), max(urgencies, default=16)
        running, queued, begun = 0.0, 0.0, 0
        for job, cores in sizes.jobs():
            if job.phase == Phase.RUNNING:
                running += cores
                begun += 1
            else:
                queued += cores
        for group, jobs in lane.on_their_way().items():
            queued += sizes.means[group] * jobs
        wanted = lane.unsent()
        party.running, party.queued = running, queued
        party.wanted = sum(sizes.means[group] * jobs for group, jobs in wanted.items())
        if jobs := sum(wanted.values()):
            party.job = party.wanted / jobs
        counts = ensemble.engine.stats.counts
        attempts = {group: counts[group]["attempts"] for group in sizes.means}
        begun += sum(attempts.values())
        party.started, party.begun = begun > party.begun, begun
        ended = sum(size * attempts[group] for group, size in sizes.means.items())
        rate = party.note_ended(now, ended)
        party.ahead = max(party.job, rate * AHEAD_SECONDS)
        party.takes = running / rate if rate else BACK_SECONDS[1]

    def _learn_cores(self, now: float) -> None:
        if now - self._t_cores >= CORES_SECONDS:
            self._t_cores = now
            self._ask(self._learned)

    def _learned(self, numbers: Numbers) -> None:
        cores = numbers.get("node_cores_up")
        if cores:
            self._cores = float(cores)


class Sizes:
    """The cores of an ensemble's jobs.

    Args:
        ensemble: that has the jobs.

    Attributes:
        means: the cores of a job of each group, in the mean.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        self._engine = ensemble.engine
        groups = self._engine.spec.groups
        self.means: Mapping[str, float] = {name: cores_of(group) for name, group in groups.items()}
        #: The groups whose jobs differ.
        self._mixed = {
            name
            for name, group in groups.items()
            if len({_cores(one) for one in group.sets}) > 1
            or any(one.variable for one in group.sets)
        }
        #: The cores of the jobs of these, by id.
        self._known: dict[int, float] = {}

    def jobs(self) -> Iterator[tuple[ActiveJob, float]]:
        """Yield the jobs that are in the queue, or run, and the cores of each."""
        before, self._known = self._known, {}
        left = _MOST_JOBS
        for id, job in self._engine.workload.jobs.items():
            if (firing := job.firing) is None or job.phase >= Phase.FINISHED:
                continue
            cores = self.means[firing.group]
            if firing.group in self._mixed or firing.overrides:
                known = before.get(id)
                if known is None and left:
                    left -= 1
                    known = _cores(self._engine.job_at(firing, job.index)[0])
                if known is not None:
                    cores = self._known[id] = known
            yield job, cores


def cores_of(group: Group) -> float:
    """Return the cores of a job of a group, in the mean of as many of its jobs as need be."""
    jobs = group.submission()
    if any(one.variable for one in group.sets) and jobs:
        step = max(1, len(jobs) // _SAMPLE)
        sample = [_cores(jobs[index][0]) for index in range(0, len(jobs), step)]
        return sum(sample) / len(sample)
    total = sum(number for _, number in jobs.sizes)
    return sum(number * _cores(one) for one, number in jobs.sizes) / total if total else 1.0


def _cores(job_set: JobSet) -> float:
    return max(1, job_set.tasks * job_set.cores, job_set.nodes)
