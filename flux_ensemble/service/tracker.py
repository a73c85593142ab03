"""Which ensemble a job event belongs to.

A job of an ensemble is known by its tag (`attributes.user.ensemble` in the jobspec) at
its submit event, and by its id from then on until it is clean or refused: the id of a
refused job may be given again when job-ingest is loaded anew. Events of other jobs go
to the ensembles whose rules have scope `queue`; the names of those jobs are remembered
only while somebody may ask for them.
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
    """Hands journal entries to ensembles.

    Args:
        owner: userid of the instance owner; a tag on anybody else's job is a forgery.
        find: the ensemble of a name and run, or None.
        queue_wide: the ensembles that want events of jobs they did not submit.

    Attributes:
        events: how many entries have been handled.
        learning: names of active jobs are remembered.
        newest: the greatest id of a job that the journal has shown to be accepted.
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
        """A job was active when the journal was opened."""
        self._names[job] = job_name(jobspec)

    def meet(
        self, job: int, jobspec: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]
    ) -> None:
        """A job with a tag was active when the journal was opened, which had been closed.

        Where it is none that its ensemble has sent, it was submitted while nobody looked.
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
        """Some job is held."""
        return bool(self._held)

    def is_held(self, job: int) -> bool:
        """The job is one of an ensemble's, and has urgency 0."""
        return job in self._held

    def note_urgency(self, job: int, entries: Iterable[Mapping[str, Any]]) -> None:
        """Note whether a job is held, from those entries of its eventlog (RFC 21) that say so."""
        for entry in entries:
            urgency = (entry.get("context") or {}).get("urgency")
            if entry["name"] not in ("submit", "urgency") or urgency is None:
                continue
            if urgency == 0:
                self._held.add(job)
            else:
                self._held.discard(job)

    def event(self, job: int, entry: Mapping[str, Any], jobspec: Mapping[str, Any] | None) -> None:
        """Hand out one entry of the journal."""
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
        """What the service of a member says of the jobs of an ensemble, which it has sorted out.

        Args:
            ensemble: whose the jobs are.
            ordinal: number of the member.
            items: as `queues.nested.service_handle` has them.
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
        """What is said of one job, if it is the ensemble's."""
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
        """Take in what jobs did alike; False where they are not all the ensemble's."""
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
        """Learn whose a new job is, and its name if that may be asked for."""
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
        """Whose a job is by its jobspec and the context of its submit event, and its tag."""
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
        """An active job is the ensemble's."""
        self._jobs[job] = ensemble

    def follows(self, job: int) -> bool:
        """The job is an ensemble's, and active."""
        return job in self._jobs

    def begin_again(self) -> None:
        """The journal begins again: what is active will be seen again."""
        self._fences.clear()
        self._jobs.clear()
        self._held.clear()
        self._names.clear()

    def jobs_of(self, ensemble: Ensemble) -> tuple[int, ...]:
        """Ids of the active jobs of an ensemble."""
        return tuple(job for job, owner in self._jobs.items() if owner is ensemble)

    def forget(self, ensemble: Ensemble) -> None:
        """Drop the jobs of an ensemble; their events are ignored from now on."""
        for job in self.jobs_of(ensemble):
            del self._jobs[job]

    @property
    def follows_live(self) -> bool:
        """An active job is that of an ensemble that is live."""
        return any(ensemble.live for ensemble in self._jobs.values())

    def rest(self) -> None:
        """The journal is closed; what was learned from it grows stale."""
        self.learning = False
        self._names.clear()
        self._fences.clear()


def _context(event: Sequence[Any]) -> Mapping[str, Any]:
    context: Mapping[str, Any] = event[2] if len(event) > 2 else {}
    return context


def is_fence(jobspec: Mapping[str, Any]) -> bool:
    """The job is a fence (`queues.flux.fence`): it is refused, and belongs to no ensemble."""
    tag = _part(jobspec, "attributes", "user", TAG_KEY)
    return isinstance(tag, dict) and "fence" in tag


def job_name(jobspec: Mapping[str, Any]) -> str:
    """The name of a job as `flux jobs` shows it (flux-core job-list, `job_data.c`).

    Where it is longer than any that a rule would name, it has no middle.
    """
    name = _part(jobspec, "attributes", "system", "job", "name")
    if not name:
        name = os.path.basename(str(_part(jobspec, "tasks", 0, "command", 0) or ""))
    return clip(str(name))


def _part(jobspec: Any, *path: str | int) -> Any:
    """What is at a path in a jobspec, None where there is nothing.

    Nothing is taken for granted: job-ingest checks jobspecs only as far as its validators do,
    and the owner of the instance can go without.
    """
    for step in path:
        try:
            jobspec = jobspec[step]
        except (LookupError, TypeError):
            return None
    return jobspec
