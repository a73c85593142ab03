"""The events that jobs of ensembles had while no service watched.

    journal in full ──history──► per ensemble: events ──apply──► engines
    fence ───────────────────────────────────────────settle──► what is missing, sent again

The job manager's journal delivers every job that it knows, in no order. An engine receives the
events of the jobs that it has as active, and of those that it expects because it sent them, but not
the events that it has handled before. All other jobs of the engine have ended.

The clock may have been set back at any time. So the events of a job that are new to the engine are
found by the position of the last one that it has handled, and not by time. The events of one job
stay in order when those of all jobs are sorted by time.

A batch system such as Slurm ends an allocation with SIGTERM for all processes at once: jobs, broker
and service. Flux may record the ends of jobs before it dies itself, and no reason. So jobs of an
earlier instance that SIGTERM ended, unseen by its service and without an exception, are taken for
interrupted.

After `apply`, live events of the journal continue the history. After a fence, everything that the
dead service sent is in the journal. So `settle` sends what is not there again, and gives up active
jobs that the queue does not know any more.
"""

from __future__ import annotations

import signal
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from flux_ensemble.engine.events import Absent, Interrupted, JobEvent, Tag
from flux_ensemble.engine.job_keys import ENCLOSING, ordinal_of
from flux_ensemble.engine.jobs import LOST, ActiveJob
from flux_ensemble.faults import ENDINGS
from flux_ensemble.metrics.signals import signal_of
from flux_ensemble.queues.flux.steps import Step, Steps
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.interruption import lost
from flux_ensemble.service.recovery.ended_file import NOTHING_NOTED, Ended, ended_jobs
from flux_ensemble.service.tracker import LAST_EVENTS, Tracker, job_name

Entry = Mapping[str, Any]

#: Number of events, or of jobs, that are handled in one step.
SLICE = 100

#: The events that end a job.
_ENDS = frozenset(("finish", "clean"))

#: Note of the exception of a job that SIGTERM ended together with its instance.
DIED_WITH_INSTANCE = "SIGTERM ended it with its Flux instance"


@dataclass(slots=True)
class _Past:
    """The events that the jobs of one ensemble had meanwhile.

    Args:
        events: of its jobs, and of other jobs if it needs these. Each has the time by which it is
            sorted: that of the latest event of its job until then.
        expected: by tags that its engine expects, jobs with their entries.
        surplus: active jobs whose tag another job had.
        interrupted: jobs that ended because the instance did.
        outlived: jobs that started in an earlier instance, with the time of their start.
    """

    events: list[tuple[float, JobEvent]] = field(default_factory=list)
    expected: dict[Tag, dict[int, list[Entry]]] = field(default_factory=dict)
    surplus: list[JobEvent] = field(default_factory=list)
    interrupted: list[int] = field(default_factory=list)
    outlived: dict[int, float] = field(default_factory=dict)

    def add(self, events: Iterable[JobEvent]) -> None:
        """Add events of one job, in order."""
        latest = 0.0
        for event in events:
            latest = max(latest, event.t)
            self.events.append((latest, event))


class CatchUp:
    """Processes the history of the journal, once.

    Args:
        tracker: finds the ensemble of a job; it learns which jobs are active.
        ensembles: the live ones.
        ordinal: number of the member whose journal it is.
        t_instance: when the Flux instance began; what is older is of an earlier instance with the
            same state. None if that is unknown.
        ended: what an earlier instance noted, before it crashed, of the jobs that had ended.

    Attributes:
        doubtful: first memos that the journal may have reported wrongly, by job ids.
        behind: progress of the ensembles that have not handled all events yet, by name.
        t_known: when each is last known to have gone on, before this instance began if it did, and
            but for what was undone.
    """

    def __init__(
        self,
        tracker: Tracker,
        ensembles: Iterable[Ensemble],
        ordinal: int = ENCLOSING,
        t_instance: float | None = None,
        ended: Mapping[str, Ended] = NOTHING_NOTED,
    ) -> None:
        self._noted = ended
        self._tracker = tracker
        self._t_instance = t_instance
        self._ensembles = list(ensembles)
        self.t_known = {ensemble: ensemble.engine.t for ensemble in self._ensembles}
        self._ordinal = ordinal
        self._queue_wide = [
            ensemble for ensemble in self._ensembles if ensemble.needs[1] and ordinal == ENCLOSING
        ]
        self._past: defaultdict[Ensemble, _Past] = defaultdict(_Past)
        self.doubtful: dict[int, Entry] = {}
        self.behind: dict[str, str] = {}
        tracker.begin_again()

    def history(self, job: int, jobspec: Mapping[str, Any], entries: list[Entry]) -> None:
        """Process a job: its key, its jobspec, and its entries (RFC 18) in order."""
        if not entries or entries[0]["name"] != "submit":
            return
        self._tracker.newest = max(self._tracker.newest, job)
        owned = self._tracker.owner_of(entries[0].get("context") or {}, jobspec)
        owner = None if owned is None else owned[0]
        for ensemble in self._queue_wide:
            if ensemble is not owner:
                self._foreign(ensemble, job, jobspec, entries)
        if owned is not None:
            self._own(*owned, job, entries)

    def _own(self, ensemble: Ensemble, tag: Tag, job: int, entries: list[Entry]) -> None:
        active = entries[-1]["name"] not in LAST_EVENTS
        if active:
            self._tracker.follow(job, ensemble)
            self._tracker.note_urgency(job, entries)
        if not ensemble.live:
            return
        past, engine = self._past[ensemble], ensemble.engine
        self._know(ensemble, entries)
        self._doubt(engine.observer.job(job), job, entries)
        if job in engine.workload.jobs:
            self._take(ensemble, job, entries)
        elif engine.expects(tag, job):
            past.expected.setdefault(tag, {})[job] = entries
        elif active:
            past.surplus.append(_event(job, entries[0], tag))

    def _doubt(self, known: ActiveJob | None, job: int, entries: list[Entry]) -> None:
        """Note the first memo of a job if others followed it, and the engine has not handled it.

        The job manager keeps one object for the first memo and for the sum of all memos, so in its
        journal the first memo has the values of the later ones (flux-core, `jpath_update` in
        `src/modules/job-manager/annotate.c`). The eventlog in the KVS has the memo as it was.
        """
        memos = [entry for entry in entries if entry["name"] == "memo"]
        if len(memos) > 1 and any(entry is memos[0] for entry in _unseen(known, entries)):
            self.doubtful[job] = memos[0]

    def correct(self, job: int, eventlog: list[Entry]) -> None:
        """Correct the first memo of a job by its eventlog, which does not have volatile memos."""
        memo = self.doubtful[job]
        for entry in eventlog:
            if entry["name"] == "memo" and entry["timestamp"] == memo["timestamp"]:
                memo["context"].clear()
                memo["context"].update(entry["context"])

    def read_memos(
        self,
        read: Callable[[int], Step],
        warn: Callable[[str], None],
    ) -> Steps:
        """Read the memos that the journal may have reported wrongly, before `apply`.

        Args:
            read: reads the eventlog of a job from the KVS.
            warn: receives a sentence about what cannot be read.
        """
        for job in list(self.doubtful):
            try:
                eventlog = yield read(job)
            except Exception as error:
                warn(f"cannot read the first memo of job {job}: {error}")
            else:
                self.correct(job, eventlog)

    def _take(
        self, ensemble: Ensemble, job: int, entries: list[Entry], tag: Tag | None = None
    ) -> None:
        past, engine = self._past[ensemble], ensemble.engine
        unseen = _unseen(engine.observer.job(job), entries)
        if self._died_with_instance(entries, unseen):
            past.interrupted.append(job)
            unseen = list(_as_lost(unseen))
        past.add(
            _event(job, entry, tag if entry["name"] == "submit" else None)
            for entry in unseen
            if entry["name"] in engine.wants_events
        )
        started = [one["timestamp"] for one in entries if one["name"] == "start"]
        if started and self._is_earlier({"timestamp": started[-1]}):
            past.outlived[job] = started[-1]
        t_shutdown = ensemble.facts.t_shutdown
        for entry in entries:
            if (
                t_shutdown is not None
                and entry["name"] == "exception"
                and entry["timestamp"] >= t_shutdown
                and entry["context"].get("type") == "cancel"
            ):
                past.interrupted.append(job)

    def _know(self, ensemble: Ensemble, entries: list[Entry]) -> None:
        """Note until when an ensemble is known to have gone on before this instance began."""
        before = [entry["timestamp"] for entry in entries if self._is_earlier(entry)]
        if before:
            self.t_known[ensemble] = max(self.t_known[ensemble], *before)

    def _is_earlier(self, entry: Entry) -> bool:
        """Return whether an entry is of an earlier instance."""
        return self._t_instance is not None and entry["timestamp"] < self._t_instance

    def _end_with_instance(self, ensemble: Ensemble, past: _Past) -> None:
        """Have the jobs that ran when an earlier instance ended end with it.

        The next instance reports their end, which can be days later. When the earlier one ended is
        not known: the latest time that is known of it counts.
        """
        for place, (latest, event) in enumerate(past.events):
            t_start = past.outlived.get(event.job)
            if t_start is None or event.name not in _ENDS or event.t < (self._t_instance or 0.0):
                continue
            t_end = max(t_start, self.t_known[ensemble])
            past.events[place] = latest, replace(event, t=min(event.t, t_end))

    def _died_with_instance(self, entries: list[Entry], unseen: Iterable[Entry]) -> bool:
        """Return True if SIGTERM ended the job in an earlier instance, and Flux had not sent it."""
        if self._t_instance is None or any(entry["name"] == "exception" for entry in entries):
            return False
        return any(
            entry["name"] == "finish"
            and entry["timestamp"] < self._t_instance
            and signal_of(entry["context"].get("status", 0)) == signal.SIGTERM
            for entry in unseen
        )

    def _foreign(
        self, ensemble: Ensemble, job: int, jobspec: Mapping[str, Any], entries: list[Entry]
    ) -> None:
        """Add the events of another's job that the ensemble has not handled."""
        engine = ensemble.engine
        name = job_name(jobspec)
        if not engine.wants_job(name):
            return
        # For a job that the engine does not know, only the time shows which entries are new.
        since = max(ensemble.t_seen, engine.t_foreign)
        unseen = _after_last(engine.observer.job(job), entries)
        if unseen is None:
            unseen = [entry for entry in entries if entry["timestamp"] > since]
        self._past[ensemble].add(
            JobEvent(
                entry["timestamp"],
                job,
                entry["name"],
                entry.get("context") or {},
                foreign=True,
                job_name=name,
            )
            for entry in unseen
            if entry["name"] in engine.wants_events
        )

    def apply(self) -> None:
        """Post the events to the engines; live events may follow."""
        for _ in self.applying():
            pass

    def applying(self) -> Generator[None, None, None]:
        """Do as `apply`, in steps, between which the service can do other work."""
        for ensemble in self._ensembles:
            try:
                yield from self._apply(ensemble, self._past[ensemble])
            except ENDINGS:
                raise
            except BaseException as error:
                ensemble.broken(error)
            self.behind.pop(ensemble.name, None)
        self._past.clear()

    def _apply(self, ensemble: Ensemble, past: _Past) -> Iterator[None]:
        for number, (tag, jobs) in enumerate(past.expected.items()):
            if number and number % SLICE == 0:
                self.behind[ensemble.name] = f"{number:,} of {len(past.expected):,} jobs are found"
                yield
            first = min(jobs)
            ensemble.member.seen(tag, first)
            if jobs[first][-1]["name"] == "invalidate":
                ensemble.member.refused(first)
            self._take(ensemble, first, jobs[first], tag)
            for job in jobs.keys() - {first}:
                if jobs[job][-1]["name"] not in LAST_EVENTS:
                    past.surplus.append(_event(job, jobs[job][0], tag))
        # By time, then by job. Both sorts are stable, so the entries of a job stay in order. Two
        # sorts by one number each take a tenth of the time of one sort by both.
        past.events.sort(key=lambda timed: timed[1].job)
        past.events.sort(key=itemgetter(0))
        if past.interrupted:
            t_end = ensemble.facts.t_shutdown or past.events[0][0]
            ensemble.post([Interrupted(t_end, tuple(sorted(set(past.interrupted))))])
        place = bisect_left(past.events, self._t_instance or 0.0, key=itemgetter(0))
        yield from self._post(ensemble, past.events, 0, place)
        self._absent(ensemble)
        self._end_with_instance(ensemble, past)
        yield from self._post(ensemble, past.events, place, len(past.events))
        for event in past.surplus:
            ensemble.violation(event)

    def _post(
        self, ensemble: Ensemble, events: list[tuple[float, JobEvent]], first: int, stop: int
    ) -> Iterator[None]:
        """Post some of the events, in steps."""
        for done in range(first, stop, SLICE):
            if done:
                self.behind[ensemble.name] = f"{done:,} of {len(events):,} events of its jobs"
                yield
            ensemble.post(event for _, event in events[done : min(done + SLICE, stop)])

    def _absent(self, ensemble: Ensemble) -> None:
        """Have the engine know that there was no instance, and what the last one had done in vain.

        It has the events of the last instance. If its jobs had more results in that, Flux has gone
        back to a checkpoint.
        """
        begun, since = self._t_instance, self.t_known[ensemble]
        if begun is None or not 0 < since < begun:
            return
        noted, undone = self._noted.get(ensemble.name), 0
        if noted is not None and noted.run == ensemble.run and since < noted.t < begun:
            undone = max(0, noted.jobs - ended_jobs(ensemble))
            if not undone:
                since = self.t_known[ensemble] = noted.t
        ended = noted.t if noted is not None and undone else None
        ensemble.post([Absent(begun, since, undone, ended)])
        ensemble.absent = 0.0

    def settle(self, now: float, newest: int) -> bool:
        """Do as `settling`, at once."""
        steps = self.settling(now, newest)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                purged: bool = end.value
                return purged

    def settling(self, now: float, newest: int) -> Generator[None, None, bool]:
        """Give up the jobs that are not in the queue, in steps, after a fence.

        Args:
            now: the time.
            newest: the greatest key of a job that the queue has ever had.
        Returns:
            True if jobs have been purged that nobody saw end: jobs that are not in the journal may
            have been among them.
        """
        purged = newest > self._tracker.newest
        for ensemble in self._ensembles:
            jobs = ensemble.engine.workload.jobs
            gone = sorted(
                job
                for job in jobs
                if ordinal_of(job) == self._ordinal and not self._tracker.follows(job)
            )
            purged = purged or bool(gone)
            for done in range(0, len(gone), SLICE):
                if done:
                    far = f"{done:,} of {len(gone):,} jobs that the queue does not have"
                    self.behind[ensemble.name] = far
                    yield
                some = gone[done : done + SLICE]
                ensemble.post(event for job in some for event in lost(now, job))
            self.behind.pop(ensemble.name, None)
        return purged


def _after_last(job: ActiveJob | None, entries: list[Entry]) -> list[Entry] | None:
    """Return the entries of a job after the last one that an engine has handled, by its marks.

    Returns:
        None if none of the entries is the last one: the engine has no mark, or the queue has
        lost entries that it delivered before a crash.
    """
    if job is not None:
        for place in range(len(entries), 0, -1):
            entry = entries[place - 1]
            if job.t_last(entry["name"]) == entry["timestamp"]:
                return entries[place:]
    return None


def _unseen(job: ActiveJob | None, entries: list[Entry]) -> list[Entry]:
    """Return the entries that an engine has not handled, and others that it ignores by phase."""
    unseen = _after_last(job, entries)
    if unseen is not None:
        return unseen
    if job is None:
        return entries
    return [
        entry
        for entry in entries
        if (t_last := job.t_last(entry["name"])) is None or entry["timestamp"] > t_last
    ]


def _as_lost(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries of a job that was lost with its instance, with the reason of its end."""
    for entry in entries:
        if entry["name"] == "finish":
            context = {"type": LOST, "severity": 0, "note": DIED_WITH_INSTANCE}
            yield {"timestamp": entry["timestamp"], "name": "exception", "context": context}
        yield entry


def _event(job: int, entry: Entry, tag: Tag | None) -> JobEvent:
    return JobEvent(entry["timestamp"], job, entry["name"], entry.get("context") or {}, tag)
