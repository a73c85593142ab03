"""The owner of each job: passes journal entries to the ensembles that they concern.

A job of an ensemble is known by its tag (`attributes.user.ensemble` in the jobspec) at its submit
event, and by its id from then on until it is clean or refused: the id of a refused job may be given
again when job-ingest is reloaded. Events of other jobs are passed to the ensembles whose rules have
scope `queue`; the names of those jobs are kept only while a rule may need them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from flux_ensemble.document.job_sets import TAG_KEY
from flux_ensemble.engine.events import JobEvent, JobEvents, JobsAlike, Tag
from flux_ensemble.engine.job_keys import make, split
from flux_ensemble.queues.nested.job_columns import ALIKE
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.texts import clip

Find = Callable[[str, int], Ensemble | None]

#: The last events of a job (RFC 21).
LAST_EVENTS = ("clean", "invalidate")


class Tracker:
    """Passes journal entries to ensembles.

    Args:
        owner: userid of the instance owner; a tag on anybody else's job is a forgery.
        find: returns the ensemble of a name and run, or None.
        queue_wide: returns the ensembles that want events of jobs they did not submit.

    Attributes:
        events: number of entries that have been handled.
        learning: names of active jobs are kept.
        newest: the greatest id of a job that was accepted, by the journal.
    """

    def __init__(self, owner: int, find: Find, queue_wide: Callable[[], list[Ensemble]]) -> None:
        self._owner = owner
        self._find = find
        self._queue_wide = queue_wide
        self._jobs: dict[int, Ensemble] = {}
        self._names: dict[int, str] = {}
        self._fences: set[int] = set()
        #: Active jobs of ensembles that have urgency 0.
        self._held: set[int] = set()
        self.events = 0
        self.learning = False
        self.newest = 0

    def learn(self, job: int, jobspec: Mapping[str, Any]) -> None:
        """Note the name of a job that was active when the journal was opened."""
        self._names[job] = job_name(jobspec)

    def meet(
        self, job: int, jobspec: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]
    ) -> None:
        """Check a job with a tag that was active when the journal was opened after a rest.

        If its ensemble did not send the job, somebody submitted it while the journal was closed.
        """
        if job in self._jobs or not entries or entries[0]["name"] != "submit":
            return
        submit = entries[0]
        context = submit.get("context") or {}
        ensemble, tag = self.owner_of(context, jobspec) or (None, None)
        if ensemble is not None and ensemble.live:
            self._jobs[job] = ensemble
            ensemble.violation(JobEvent(submit["timestamp"], job, "submit", context, tag))

    @property
    def any_held(self) -> bool:
        """An active job of an ensemble is held."""
        return bool(self._held)

    def is_held(self, job: int) -> bool:
        """Return True if the job is one of an ensemble's, and has urgency 0."""
        return job in self._held

    def note_urgency(self, job: int, entries: Iterable[Mapping[str, Any]]) -> None:
        """Note whether a job is held, by the entries of its eventlog (RFC 21) with its urgency."""
        for entry in entries:
            urgency = (entry.get("context") or {}).get("urgency")
            if entry["name"] not in ("submit", "urgency") or urgency is None:
                continue
            if urgency == 0:
                self._held.add(job)
            else:
                self._held.discard(job)

    def event(self, job: int, entry: Mapping[str, Any], jobspec: Mapping[str, Any] | None) -> None:
        """Process one entry of the journal."""
        self.events += 1
        name = entry["name"]
        context = entry.get("context") or {}
        if jobspec is not None and context.get("userid") == self._owner and is_fence(jobspec):
            self._fences.add(job)
        if job in self._fences:
            if name in LAST_EVENTS:
                self._fences.remove(job)
            return
        tag = None
        if name == "submit":
            assert jobspec is not None
            tag = self._admit(job, context, jobspec)
        elif name == "validate":
            self.newest = max(self.newest, job)
        ensemble = self._jobs.get(job)
        if ensemble is not None:
            if "urgency" in context:
                self.note_urgency(job, (entry,))
            if name != "urgency" or ensemble.wants("urgency"):
                ensemble.job_event(JobEvent(entry["timestamp"], job, name, context, tag))
        for other in self._queue_wide():
            if other is not ensemble:
                other.job_event(
                    JobEvent(
                        entry["timestamp"],
                        job,
                        name,
                        context,
                        foreign=True,
                        job_name=self._names.get(job),
                    )
                )
        if name in LAST_EVENTS:
            self._jobs.pop(job, None)
            self._names.pop(job, None)
            if self._held:
                self._held.discard(job)

    def told(
        self, ensemble: Ensemble, ordinal: int, items: Iterable[Sequence[Any]]
    ) -> list[JobEvent | JobEvents | JobsAlike]:
        """Return the events that the service of a member has reported about jobs of an ensemble.

        Args:
            ensemble: that has the jobs.
            ordinal: number of the member.
            items: as in `queues.nested.service_handle`.
        """
        told: list[JobEvent | JobEvents | JobsAlike] = []
        for item in items:
            if item[0] != ALIKE:
                told += self._told(ensemble, ordinal, *item)
                continue
            alike = JobsAlike(item[1], ordinal, *item[2:])
            if self._follow_alike(ensemble, alike):
                told.append(alike)
            else:
                for of_job in alike.each():
                    more = () if of_job.tag is None else (list(of_job.tag),)
                    told += self._told(
                        ensemble, ordinal, of_job.t, split(of_job.job)[1], of_job.events, *more
                    )
        return told

    def _told(
        self, ensemble: Ensemble, ordinal: int, t: float, id: int, what: Any, *rest: Any
    ) -> Iterator[JobEvent | JobEvents]:
        """Yield the events of one job, if it is the ensemble's."""
        job, several, jobs = make(ordinal, id), type(what) is list, self._jobs
        events = what if several else [[t, what, *rest[:1]]]
        self.events += len(events)
        tag = Tag(*rest[-1]) if rest and type(rest[-1]) is list else None
        if tag is not None and _context(events[0]).get("userid") == self._owner:
            jobs[job] = ensemble
        elif tag is not None or job not in jobs:
            return
        if job > self.newest and any(event[1] == "validate" for event in events):
            self.newest = job
        if events[-1][1] in LAST_EVENTS:
            del jobs[job]
        if several:
            yield JobEvents(t, job, events, tag)
        else:
            yield JobEvent(t, job, what, _context(events[0]), tag)

    def _follow_alike(self, ensemble: Ensemble, alike: JobsAlike) -> bool:
        """Process the events that jobs had alike; return False if some are not the ensemble's."""
        keys = [make(alike.ordinal, id) for id in accumulate(alike.steps)]
        jobs = self._jobs
        if alike.firing is None:
            if not all(key in jobs for key in keys):
                return False
        elif alike.submit.get("userid") != self._owner:
            return False
        self.events += len(keys) * len(alike.names)
        if "validate" in alike.names:
            self.newest = max(self.newest, *keys)
        if alike.names[-1] in LAST_EVENTS:
            for key in keys:
                jobs.pop(key, None)
        elif alike.firing is not None:
            jobs.update(dict.fromkeys(keys, ensemble))
        return True

    def _admit(
        self, job: int, context: Mapping[str, Any], jobspec: Mapping[str, Any]
    ) -> Tag | None:
        """Find the ensemble of a new job, and note the job's name if a rule may need it."""
        if self.learning:
            self._names[job] = job_name(jobspec)
        found = self.owner_of(context, jobspec)
        if found is None:
            return None
        ensemble, tag = found
        self._jobs[job] = ensemble
        return tag

    def owner_of(
        self, context: Mapping[str, Any], jobspec: Mapping[str, Any]
    ) -> tuple[Ensemble, Tag] | None:
        """Return the ensemble that owns a job, by its jobspec and submit event, with the tag."""
        given = _part(jobspec, "attributes", "user", TAG_KEY)
        if not isinstance(given, dict) or context.get("userid") != self._owner:
            return None
        values: list[Any] = [given.get(key) for key in ("name", "run", *Tag._fields)]
        if list(map(type, values)) != [str, int, str, str, int, int]:
            return None
        name, run, *tag = values
        ensemble = self._find(name, run)
        return None if ensemble is None else (ensemble, Tag(*tag))

    def follow(self, job: int, ensemble: Ensemble) -> None:
        """Note that an active job is the ensemble's."""
        self._jobs[job] = ensemble

    def follows(self, job: int) -> bool:
        """Return True if the job is an ensemble's, and active."""
        return job in self._jobs

    def begin_again(self) -> None:
        """Forget all jobs, because the journal begins again and delivers the active ones."""
        self._fences.clear()
        self._jobs.clear()
        self._held.clear()
        self._names.clear()

    def jobs_of(self, ensemble: Ensemble) -> tuple[int, ...]:
        """Return the ids of the active jobs of an ensemble."""
        return tuple(job for job, owner in self._jobs.items() if owner is ensemble)

    def forget(self, ensemble: Ensemble) -> None:
        """Drop the jobs of an ensemble; their events are ignored from now on."""
        for job in self.jobs_of(ensemble):
            del self._jobs[job]

    @property
    def follows_live(self) -> bool:
        """An active job belongs to a live ensemble."""
        return any(ensemble.live for ensemble in self._jobs.values())

    def rest(self) -> None:
        """Forget what would become stale while the journal is closed."""
        self.learning = False
        self._names.clear()
        self._fences.clear()


def _context(event: Sequence[Any]) -> Mapping[str, Any]:
    context: Mapping[str, Any] = event[2] if len(event) > 2 else {}
    return context


def is_fence(jobspec: Mapping[str, Any]) -> bool:
    """Return True for a fence (`queues.flux.fence`): it is refused, and belongs to no ensemble."""
    tag = _part(jobspec, "attributes", "user", TAG_KEY)
    return isinstance(tag, dict) and "fence" in tag


def job_name(jobspec: Mapping[str, Any]) -> str:
    """Return the name of a job as `flux jobs` prints it (flux-core job-list, `job_data.c`).

    The middle of a name is left out if the name is longer than any that a rule would name.
    """
    name = _part(jobspec, "attributes", "system", "job", "name")
    if not name:
        name = os.path.basename(str(_part(jobspec, "tasks", 0, "command", 0) or ""))
    return clip(str(name))


def _part(jobspec: Any, *path: str | int) -> Any:
    """Return the value at a path in a jobspec, None if there is none.

    The form of the jobspec is not taken for granted: job-ingest checks jobspecs only as far as its
    validators do, and the owner of the instance can go without.
    """
    for step in path:
        try:
            jobspec = jobspec[step]
        except (LookupError, TypeError):
            return None
    return jobspec
