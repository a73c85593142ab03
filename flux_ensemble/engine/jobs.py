"""Active jobs: the phases a job goes through, as a literal table.

A job enters at its `submit` event and is forgotten at `clean` (or `invalidate`). An event that
the table does not allow in the job's phase is a duplicate or late, and is ignored. An event that
may come at any time is a duplicate if it has the time of the last event of its name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from signal import SIGKILL
from typing import Any, Final

from flux_ensemble.engine.absences import Absences
from flux_ensemble.engine.compact import columns, unusual
from flux_ensemble.engine.events import CPU, RSS, JobEvent
from flux_ensemble.engine.firings import Firing
from flux_ensemble.metrics.names import INTERRUPTED
from flux_ensemble.metrics.signals import signal_of
from flux_ensemble.metrics.streams import MAX_NAME, MAX_VARIABLES
from flux_ensemble.texts import clip


class Phase(IntEnum):
    """The phase of a job: the states of RFC 21 that an ensemble distinguishes."""

    NEW = 0
    PENDING = 1
    RUNNING = 2
    FINISHED = 3
    GONE = 4


#: Event -> phase -> next phase. Other events are allowed in any phase.
TRANSITIONS: Final[dict[str, dict[Phase, Phase]]] = {
    "submit": {},
    "validate": {Phase.NEW: Phase.PENDING},
    "invalidate": {Phase.NEW: Phase.GONE},
    "start": {Phase.PENDING: Phase.RUNNING},
    "finish": {Phase.PENDING: Phase.FINISHED, Phase.RUNNING: Phase.FINISHED},
    "clean": dict.fromkeys((Phase.NEW, Phase.PENDING, Phase.RUNNING, Phase.FINISHED), Phase.GONE),
}

#: Phase of a foreign job before the first event of it that is seen. After `finish`, the outcome
#: stays unknown.
FIRST_SEEN = {
    **dict.fromkeys(("submit", "validate", "invalidate"), Phase.NEW),
    **dict.fromkeys(("release", "free", "epilog-start", "epilog-finish", "clean"), Phase.NEW),
    "finish": Phase.RUNNING,
}

#: What the note of an exception "exec" has where a job's program did not begin: it cannot be
#: executed, or the shell of the job could not prepare it.
_NOT_BEGUN = ("start failed: ", "shell_init: ")

#: Types of exceptions that are outcomes of their own.
_EXCEPTION_OUTCOMES = {"timeout": "timeout", "cancel": "canceled"}

#: The type of the exception of a job that its queue does not know any more, and that of a job whose
#: member was lost.
LOST, MEMBER_LOST = "lost", "member-lost"

#: Types of fatal exceptions that are no doing of the job. Flux raises the last one when a scheduler
#: that was loaded anew cannot give a running job its resources back.
_INTERRUPTING = frozenset((LOST, MEMBER_LOST, "scheduler-restart"))

#: The beginning of the exception's note of a job that ran when its instance was killed.
RESTARTED = "failed to create guest ns"

#: Beginnings of the notes of fatal exceptions of the type `exec` that are no doing of the job: its
#: node failed, or its instance was started anew and cannot continue it (flux-core,
#: `src/modules/job-exec`, `bulkexec.c` and `job-exec.c`).
_INTERRUPTING_NOTES = (
    "node failure on ",
    RESTARTED,
    "failed to create ns name for job",
    "reattach",
    "bulk-exec: reattach",
    "job is not recoverable",
    "sdexec constraint check failed",
)

#: Fields of its row (`metrics.job_row`) that a job has as attributes.
FIELDS: Final[dict[str, str]] = {
    "ranks": "ranks",
    "returncode": "returncode",
    "signal": "signal",
    "reason": "reason",
    "outcome": "outcome",
    "interrupted": "interrupted",
    "cpu_seconds": "cpu_seconds",
    "max_rss": "max_rss",
    "exception.type": "exception_type",
    "exception.note": "exception_note",
    "memo": "memo",
    "memo_left_out": "memo_left_out",
}

#: Attributes that are recorded of a job that is gone, besides times and ranks, with the values that
#: most jobs have: see `Job.is_usual`.
RECORDED: Final[Mapping[str, Any]] = {
    "outcome": "success",
    "interrupted": False,
    "replaced": None,
    "followed": None,
    "gave_up": False,
    "status": 0,
    "exception_type": None,
    "exception_note": None,
    "memo": {},
    "memo_left_out": 0,
}

#: Attributes with a column in a snapshot, and those that rarely differ from the usual value.
_COLUMNS = ("id", "phase", "t_submit", "t_start")
_UNUSUAL: Mapping[str, Any] = {
    "outcome": None,
    "canceling": False,
    "evicted": False,
    "interrupted": False,
    "replaced": None,
    "followed": None,
    "gave_up": False,
    "t_alloc": None,
    "ranks": None,
    "t_end": None,
    "status": None,
    "used": None,
    "exception_type": None,
    "exception_note": None,
    "memo": {},
    "memo_left_out": 0,
    "published": None,
    "_exceptions": None,
    "_last": None,
    "told": (),
}

#: Attributes whose type JSON does not have, with the type to convert them to.
_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "used": tuple,
    "published": dict,
    "_exceptions": set,
    "_last": dict,
    "told": tuple,
}

#: The most characters that are kept of a job's memo, as JSON, and of the note of its exception.
MAX_MEMO = 4096
MAX_NOTE = 512

#: The most keys whose values are counted in `ActiveJob.published`; longer keys than `MAX_NAME` are
#: not. As many, and as long, may have statistics.
MAX_COUNTED = MAX_VARIABLES

#: The most characters of a float, with the separators before and after it.
_FLOAT_SIZE = 30

_NO_MEMO: Final[Mapping[str, Any]] = {}


#: Globals, because looking up a member of an enumeration is slow.
_NEW: Final = Phase.NEW
_GONE: Final = Phase.GONE


class ActiveJob:
    """An active job.

    This is not a dataclass: to make a compiled dataclass takes ten times as long, and one is made
    for each job.
    """

    def __init__(
        self, id: int, group: str | None, firing: Firing | None, index: int, t_submit: float
    ) -> None:
        self.id = id
        #: The group's name; for a foreign job its name in the queue, or None.
        self.group = group
        #: None for a job that the ensemble did not submit.
        self.firing = firing
        self.index = index
        self.phase: Phase = _NEW
        #: None until it is known, then one of `ATTEMPT_OUTCOMES`.
        self.outcome: str | None = None
        self.t_submit = t_submit
        #: When the job was given its resources, and their ranks, such as "0-3"; None if the queue
        #: did not report them.
        self.t_alloc: float | None = None
        self.ranks: str | None = None
        self.t_start: float | None = None
        #: When the job finished, or was gone without having run.
        self.t_end: float | None = None
        #: The wait status (wait(2)) in the `finish` event.
        self.status: int | None = None
        #: What the job used, `events.CPU` and `events.RSS`; None if its queue does not know that.
        self.used: tuple[int, int] | None = None
        #: The type and note of the job's first fatal exception.
        self.exception_type: str | None = None
        self.exception_note: str | None = None
        #: The job's memos merged, at most MAX_MEMO characters; never changed in place.
        self.memo = _NO_MEMO
        #: The number of memo values that were left out, since there were too many.
        self.memo_left_out = 0
        #: The number of values of each key that the job has published; None if there is none.
        self.published: dict[str, int] | None = None
        #: Nodes that the job waits for; 0 after it has started, and for a foreign job.
        self.nodes = 0
        #: True if the ensemble is cancelling the job.
        self.canceling = False
        #: True if the job's instance, member or allocation ends in order, or the job is to run on
        #: another member: this is then the cause of any later fatal exception.
        self.evicted = False
        #: True if the job's end is, or will be, no doing of the job. Known from the first fatal
        #: exception on.
        self.interrupted = False
        #: The number of the retry that was to run the job again, if the attempt was interrupted.
        self.replaced: int | None = None
        #: The number of the retry that was to run the job again, if the attempt failed.
        self.followed: int | None = None
        #: True if the job did not run again although its group has retries.
        self.gave_up = False
        #: The rules on `job-running` that have fired for the job.
        self.told: tuple[str, ...] = ()
        self._exceptions: set[str] | None = None
        #: Time of the latest event of each name that may come at any time.
        self._last: dict[str, float] | None = None

    def accept(self, event: JobEvent) -> bool:
        """Apply an event; return False if it is a duplicate, late or out of order."""
        name = event.name
        phases = TRANSITIONS.get(name)
        if phases is None:
            if self.t_last(name) == event.t:
                return False
            self.mark(event)
            if name == "exception":
                self._except(event.context)
            elif name == "memo":
                self._remember(event.context)
            return True
        before = self.phase
        phase = phases.get(before)
        if phase is None:
            if name == "submit" and event.context.get("again"):
                # In logs of local runs that have no `Absent` yet.
                self.t_submit = event.t
            return False
        self.phase = phase
        if name == "start":
            self.t_start = event.t
            if event.context:
                self._place(event.context)
        elif name == "finish":
            status = event.context.get("status")
            self.t_end = event.t
            self.status = status if type(status) is int else None
            if CPU in event.context:
                self._use(event.context)
            self.outcome = self._judge(status)
        elif phase is _GONE:
            if self.t_end is None:
                self.t_end = event.t
            if name == "clean" and before is not _NEW and self.outcome is None:
                self.outcome = self._judge(None)
        return True

    @property
    def returncode(self) -> int | None:
        """The job's exit code, or the negative number of the signal that ended it.

        None if the job has not finished, or never ran.
        """
        status = self.status
        if status is None:
            return None
        signal = self.signal
        return status >> 8 if signal is None else -signal

    @property
    def signal(self) -> int | None:
        """The number of the signal that ended the job; None if no signal did."""
        return None if self.status is None else signal_of(self.status)

    @property
    def cpu_seconds(self) -> float | None:
        """The processor time of the job's processes in seconds; None if unknown."""
        return None if self.used is None else self.used[0] / 1e6

    @property
    def max_rss(self) -> float | None:
        """The peak memory of the job's largest process in MB; None if unknown."""
        return None if self.used is None else round(self.used[1] * 0.001024, 3)

    @property
    def reason(self) -> str | None:
        """The reason of a job without success, one of `REASONS`; None without an outcome, too."""
        if self.outcome in (None, "success"):
            return None
        if self.outcome in ("timeout", "canceled"):
            return self.outcome
        if self.interrupted or self.outcome == INTERRUPTED:
            return "node"
        if self.status is None or self.t_start is None:
            return "start"
        if self.signal is None:
            note = (self.exception_type == "exec" and self.exception_note) or ""
            return "start" if any(words in note for words in _NOT_BEGUN) else "exit"
        return "oom" if self.signal == SIGKILL else "signal"

    @property
    def is_usual(self) -> bool:
        """True if all of `RECORDED` is as most jobs have it."""
        return (
            self.outcome == "success"
            and self.status == 0
            and self.exception_type is None
            and self.exception_note is None
            and not self.memo
            and not self.memo_left_out
        )

    @property
    def may_have_run(self) -> bool:
        """True if the job's interrupted attempt ran, or may have run unseen."""
        return self.t_start is not None or not self.evicted

    def evict(self) -> None:
        """Mark the job as evicted: its instance, member or allocation ends in order."""
        self.evicted = True
        if self.exception_type in _EXCEPTION_OUTCOMES and self.outcome is None:
            self.interrupted = not self.canceling

    @property
    def may_be_canceled(self) -> bool:
        """True if the job has not finished and the ensemble is not cancelling it yet."""
        return not self.canceling and self.phase < Phase.FINISHED

    def publishes(self, key: str) -> bool:
        """Count a value of a memo key.

        Returns:
            True if the value stands for one that an interrupted attempt has published, since that
            attempt has published more values of the key than this one had so far.
        """
        if self.published is None:
            self.published = {}
        number = self.published.get(key, 0)
        if number or (len(self.published) < MAX_COUNTED and len(key) <= MAX_NAME):
            self.published[key] = number + 1
        before = None if self.firing is None else self.firing.published
        return before is not None and number < before.get(key, 0)

    def published_in_all(self) -> Mapping[str, int] | None:
        """Return `Firing.published` for the attempt that runs again after this one."""
        before = None if self.firing is None else self.firing.published
        if before is None or self.published is None:
            return self.published or before
        published = dict(before)
        for key, number in self.published.items():
            if key in published or len(published) < MAX_COUNTED:
                published[key] = max(number, published.get(key, 0))
        return published

    def mark(self, event: JobEvent) -> None:
        """Remember the time of a handled event."""
        if self._last is None:
            self._last = {}
        self._last[event.name] = event.t

    def t_last(self, name: str) -> float | None:
        """Return the time of the last marked event of a name; None if none was marked.

        Events that may come at any time are marked, and all events of foreign jobs. Events before
        the last one were handled too; their times may be later, since the clock can be set back.
        """
        return None if self._last is None else self._last.get(name)

    def _except(self, context: Mapping[str, Any]) -> None:
        kind = context.get("type")
        if kind in _EXCEPTION_OUTCOMES:
            why = "cancel" if self.evicted else kind
            self._exceptions = (self._exceptions or set()) | {why}
        if self.exception_type is None and type(kind) is str and not context.get("severity"):
            note = context.get("note")
            self.exception_type = clip(kind, MAX_NOTE)
            self.exception_note = clip(note, MAX_NOTE) if type(note) is str else ""
            if self.outcome is None:
                self.interrupted = self.evicted or interrupts(kind, self.exception_note)

    def _place(self, context: Mapping[str, Any]) -> None:
        """Store the time and the ranks of the job's resources, which members add to `start`."""
        t_alloc, ranks = context.get("t_alloc"), context.get("ranks")
        if type(t_alloc) in (int, float):
            self.t_alloc = t_alloc
        if type(ranks) is str:
            self.ranks = ranks

    def _use(self, context: Mapping[str, Any]) -> None:
        """Store what the job used, which some queues add to `finish`."""
        cpu, rss = context[CPU], context.get(RSS)
        if type(cpu) is int and type(rss) is int:
            self.used = cpu, rss

    def _remember(self, context: Mapping[str, Any]) -> None:
        """Merge a memo into `memo`: a key replaces an earlier one, and null removes it (RFC 21)."""
        memo: dict[str, Any] = {}
        left = MAX_MEMO
        for key, value in {**self.memo, **context}.items():
            if value is None:
                continue
            size = len(key) + _size(value)
            if size > left:
                self.memo_left_out += 1
                continue
            left -= size
            memo[key] = value
        self.memo = memo

    def _judge(self, status: int | None) -> str:
        """Return the outcome (docs/document.md, "Outcomes"); `status` None: the job never ran."""
        if status == 0:
            self.interrupted = False
            return "success"
        if self.interrupted:
            if not self.canceling:
                return INTERRUPTED
            # A cancelled job counts as canceled, not as interrupted: so it does not run again.
            self.interrupted = False
            return "canceled"
        for kind, outcome in _EXCEPTION_OUTCOMES.items():
            if self._exceptions and kind in self._exceptions:
                return outcome
        return "failed"


def interrupts(kind: str, note: str) -> bool:
    """Return whether a fatal exception is no doing of the job that it ends.

    Args:
        kind: the type of the exception.
        note: the note of the exception.

    >>> interrupts("lost", ""), interrupts("exec", "node failure on n3 (rank 3)")
    (True, True)
    >>> interrupts("exec", "job shell exec error on n3 (rank 3)"), interrupts("timeout", "")
    (False, False)
    """
    return kind in _INTERRUPTING or (kind == "exec" and note.startswith(_INTERRUPTING_NOTES))


def runtime(t_start: float | None, t_end: float | None, now: float) -> float | None:
    """Return the seconds that a job ran, or has run until now; None if it has not started."""
    return None if t_start is None else max(0.0, (now if t_end is None else t_end) - t_start)


def _size(value: Any) -> int:
    """Return the characters of a value as JSON, about; too many if it has no JSON, such as NaN."""
    if type(value) is float:
        return _FLOAT_SIZE if math.isfinite(value) else MAX_MEMO + 1
    try:
        return len(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return MAX_MEMO + 1


def ages_of(jobs: Iterable[ActiveJob], gauge: str, t: float, absences: Absences) -> Iterator[float]:
    """Yield the ages in seconds at time `t` of the jobs that are "waiting" or "running"."""
    for job in jobs:
        if gauge == "running":
            if job.phase is Phase.RUNNING and job.t_start is not None:
                yield max(0.0, t - job.t_start)
        elif job.phase < Phase.RUNNING:
            yield absences.waited(job.id, job.t_submit, t)


def dump_jobs(jobs: Sequence[ActiveJob]) -> dict[str, Any]:
    """Return jobs as JSON, in columns; without group, firing and index, which firings hold."""
    more = unusual(jobs, _UNUSUAL)
    for _, attributes in more:
        if "published" in attributes:
            attributes["published"] = dict(attributes["published"])
        if "_exceptions" in attributes:
            attributes["_exceptions"] = sorted(attributes["_exceptions"])
        if "_last" in attributes:
            attributes["_last"] = dict(attributes["_last"])
    return {**columns(jobs, _COLUMNS), "more": more}


def load_jobs(
    value: Mapping[str, Any], owners: Iterable[tuple[str | None, Firing | None, int]]
) -> list[ActiveJob]:
    """Return the jobs of a dump by `dump_jobs`; `owners` are group, firing and index of each."""
    jobs = []
    rows = zip(*(value[name] for name in _COLUMNS), strict=True)
    for (group, firing, index), (id, phase, t_submit, t_start) in zip(owners, rows, strict=True):
        job = ActiveJob(id, group, firing, index, t_submit)
        job.phase = Phase(phase)
        job.t_start = t_start
        jobs.append(job)
    for position, attributes in value["more"]:
        for name, attribute in attributes.items():
            kind = _KINDS.get(name)
            setattr(jobs[position], name, attribute if kind is None else kind(attribute))
    return jobs
