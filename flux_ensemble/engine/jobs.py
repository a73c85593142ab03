"""Jobs that are active: the phases a job goes through, as a literal table.

A job enters at its `submit` event and leaves at `clean` (or `invalidate`), and nothing
of it stays behind. An event that the table does not allow in the job's phase is a
duplicate or late, and is ignored; one that may come at any time is a duplicate if it has
the time of the last one of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from flux_ensemble.engine.compact import columns, unusual
from flux_ensemble.engine.events import JobEvent
from flux_ensemble.engine.firings import Firing


class Phase(IntEnum):
    """Where a job is in its life (RFC 21, as far as an ensemble tells it apart)."""

    NEW = 0
    PENDING = 1
    RUNNING = 2
    FINISHED = 3
    GONE = 4


#: event -> phase -> next phase. Events that are not here may come at any time.
TRANSITIONS: Mapping[str, Mapping[Phase, Phase]] = {
    "submit": {},
    "validate": {Phase.NEW: Phase.PENDING},
    "invalidate": {Phase.NEW: Phase.GONE},
    "start": {Phase.PENDING: Phase.RUNNING},
    "finish": {Phase.PENDING: Phase.FINISHED, Phase.RUNNING: Phase.FINISHED},
    "clean": dict.fromkeys((Phase.NEW, Phase.PENDING, Phase.RUNNING, Phase.FINISHED), Phase.GONE),
}

#: Exceptions that are outcomes of their own.
_EXCEPTION_OUTCOMES = {"timeout": "timeout", "cancel": "canceled"}

#: Attributes that have a column in a snapshot, and those that few jobs have otherwise.
_COLUMNS = ("id", "phase", "t_submit", "t_start")
_UNUSUAL = {
    "outcome": None,
    "canceling": False,
    "interrupted": False,
    "_exceptions": None,
    "_last": None,
}

#: What makes of JSON those that are of another kind.
_KINDS: Mapping[str, Callable[[Any], Any]] = {"_exceptions": set, "_last": dict}


class Job:
    """One active job. `firing` is None for a job that the ensemble did not submit.

    Attributes:
        group: the group's name; for a foreign job its name in the queue, or None.
        outcome: None until it is known, then one of `spec.model.OUTCOMES`.
        t_submit: time of the submit event.
        t_start: time of the start event, or None.
        nodes: nodes that it waits for; 0 once it has started, and for a foreign job.
        canceling: the ensemble cancels it.
        interrupted: the instance shut down while it was active; see `events.Interrupted`.
    """

    __slots__ = (
        "_exceptions",
        "_last",
        "canceling",
        "firing",
        "group",
        "id",
        "index",
        "interrupted",
        "nodes",
        "outcome",
        "phase",
        "t_start",
        "t_submit",
    )

    def __init__(
        self, id: int, group: str | None, firing: Firing | None, index: int, t_submit: float
    ) -> None:
        self.id = id
        self.group = group
        self.firing = firing
        self.index = index
        self.phase = Phase.NEW
        self.outcome: str | None = None
        self.t_submit = t_submit
        self.t_start: float | None = None
        self.nodes = 0
        self.canceling = False
        self.interrupted = False
        self._exceptions: set[str] | None = None
        self._last: dict[str, float] | None = None

    def accept(self, event: JobEvent) -> bool:
        """Take the event into account; False if it is a duplicate, late or out of order."""
        name = event.name
        phases = TRANSITIONS.get(name)
        if phases is None:
            if self.t_last(name) == event.t:
                return False
            self.mark(event)
            if name == "exception":
                self._except(event.context)
            return True
        before = self.phase
        phase = phases.get(before)
        if phase is None:
            return False
        self.phase = phase
        if name == "start":
            self.t_start = event.t
        elif name == "finish":
            self.outcome = self._judge(event.context.get("status"))
        elif name == "clean" and before is not Phase.NEW and self.outcome is None:
            self.outcome = self._judge(None)
        return True

    def mark(self, event: JobEvent) -> None:
        """Remember that the event was taken in."""
        if self._last is None:
            self._last = {}
        self._last[event.name] = event.t

    def t_last(self, name: str) -> float | None:
        """The time of the last event of a name, where that was marked.

        Events that may come at any time are, and all those of jobs of others. Those before it
        were taken in too; their times may be later, since the clock can be set back.
        """
        return None if self._last is None else self._last.get(name)

    def _except(self, context: Mapping[str, Any]) -> None:
        kind = context.get("type")
        if kind in _EXCEPTION_OUTCOMES:
            self._exceptions = (self._exceptions or set()) | {kind}

    def _judge(self, status: int | None) -> str:
        """The outcome (docs/document.md, "Outcomes"); `status` None means it never ran."""
        if status == 0:
            return "success"
        for kind, outcome in _EXCEPTION_OUTCOMES.items():
            if self._exceptions and kind in self._exceptions:
                return outcome
        return "failed"


def dump_jobs(jobs: Sequence[Job]) -> dict[str, Any]:
    """Jobs as JSON, in columns; without what their owners know: group, firing and index."""
    more = unusual(jobs, _UNUSUAL)
    for _, attributes in more:
        if "_exceptions" in attributes:
            attributes["_exceptions"] = sorted(attributes["_exceptions"])
        if "_last" in attributes:
            attributes["_last"] = dict(attributes["_last"])
    return {**columns(jobs, _COLUMNS), "more": more}


def load_jobs(
    value: Mapping[str, Any], owners: Iterable[tuple[str | None, Firing | None, int]]
) -> list[Job]:
    """The jobs that `dump_jobs` gave; `owners` are the group, firing and index of each."""
    jobs = []
    rows = zip(*(value[name] for name in _COLUMNS), strict=True)
    for (group, firing, index), (id, phase, t_submit, t_start) in zip(owners, rows, strict=True):
        job = Job(id, group, firing, index, t_submit)
        job.phase = Phase(phase)
        job.t_start = t_start
        jobs.append(job)
    for position, attributes in value["more"]:
        for name, attribute in attributes.items():
            kind = _KINDS.get(name)
            setattr(jobs[position], name, attribute if kind is None else kind(attribute))
    return jobs
