"""Collection of what a report needs, in one pass over the jobs and the log of an ensemble.

    Source ──gather──► Run

Each job is added to typed columns (`columns`) and totals, so that only some bytes of it are kept.
Firings in the log become columns, and the first and the last entries lines of text.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from operator import itemgetter
from typing import Any, NamedTuple

from flux_ensemble import eventlog
from flux_ensemble.report.columns import (
    MANY_ROWS,
    Codes,
    Counts,
    Encoded,
    Gap,
    Ids,
    Times,
    Values,
    skipped,
)
from flux_ensemble.report.digest import Digest
from flux_ensemble.report.document import without_environment
from flux_ensemble.report.files import NOWHERE, Files
from flux_ensemble.report.members import MOST_MEMBERS, MembersSeen
from flux_ensemble.report.source import Job, Source, place_of
from flux_ensemble.words import COMPLETE, INFEASIBLE

#: Number of the best jobs that are kept by each key of memos, at each end, and of keys that are
#: examined.
KEPT = 10
MAX_KEYS = 50

#: A value, with a number that orders equal ones, and the job.
_Held = tuple[float, int, Mapping[str, Any]]


class Points:
    """The successful jobs of each group with the greatest and least values of each key of memos.

    The status has the best job or trial; these are the points next to it.

    >>> points = Points()
    >>> for number in range(100):
    ...     memo = {"fom": number % 7, "text": "x"}
    ...     outcome = "success" if number != 6 else "failed"
    ...     points.add({"id": number, "group": "md", "outcome": outcome, "memo": memo})
    >>> [job["id"] for job in points.first("md", "fom", "max")[:3]], points.keys
    ([13, 20, 27], ['fom'])
    >>> points.first("md", "fom", "min")[0]["id"], points.first("other", "fom", "min")
    (0, [])
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, str], list[_Held]] = {}
        self._seen: dict[str, int] = {}

    @property
    def keys(self) -> list[str]:
        """The keys with numbers, the most frequent first."""
        return sorted(self._seen, key=lambda key: -self._seen[key])

    def add(self, job: Mapping[str, Any], objectives: Collection[str] = ()) -> None:
        """Add a job; an infeasible trial is never the best by one of the objectives."""
        worse = objectives if job.get("trial_state") == INFEASIBLE else ()
        for key, value in job["memo"].items():
            if type(value) not in (int, float) or not math.isfinite(value):
                continue
            if key not in self._seen:
                if len(self._seen) == MAX_KEYS:
                    continue
                self._seen[key] = 0
            self._seen[key] += 1
            if job["outcome"] != "success" or key in worse:
                continue
            # Of equal values the first ones stay.
            order = -self._seen[key]
            for mode, sign in (("max", 1), ("min", -1)):
                held = self._held.setdefault((job["group"], key, mode), [])
                _keep(held, (sign * value, order, job))

    def first(self, group: str, key: str, mode: str) -> list[Mapping[str, Any]]:
        """Return the jobs of a group by a key, in order; `mode` is "max" or "min"."""
        held = self._held.get((group, key, mode), [])
        return [job for _, _, job in sorted(held, key=itemgetter(0, 1), reverse=True)]


def _keep(held: list[_Held], job: _Held) -> None:
    if len(held) < KEPT:
        heappush(held, job)
    elif job[:2] > held[0][:2]:
        heappushpop(held, job)


class Use:
    """The use of processors and memory by the jobs of a group of which it is known.

    Attributes:
        jobs: the number of these jobs.
        cpu, most_cpu: their processor time in seconds, in all, and the most of a job.
        cores: the seconds of the cores that they had.
        rss, most_rss: the sum of their peak memories in MB, and the greatest.
    """

    def __init__(self) -> None:
        self.jobs = 0
        self.cpu = self.most_cpu = self.cores = self.rss = self.most_rss = 0.0

    def add(self, cpu: float, cores: float, rss: float) -> None:
        """Add a job: its processor time, the seconds of its cores, and its peak memory."""
        self.jobs += 1
        self.cpu += cpu
        self.most_cpu = max(self.most_cpu, cpu)
        self.cores += cores
        self.rss += rss
        self.most_rss = max(self.most_rss, rss)

    @property
    def efficiency(self) -> float | None:
        """The share of their cores that the jobs kept busy; None if they had none for any time."""
        return self.cpu / self.cores if self.cores else None


#: Number of entries of the log that a report has, of its beginning and of its end.
HEAD, TAIL = 200, 800

#: Number of parameters and of keys of memos for which a report has columns.
MAX_PARAMS, MAX_MEMO = 60, 60

#: Number of jobs in the table for readers without scripts.
FIRST_JOBS = 20

_CODED = ("name", "group", "rule", "outcome", "state", "returncode", "attempt")
_TIMES = ("t_submit", "t_run", "t_end")

#: A table: its rows, and its columns by name.
Table = tuple[int, dict[str, Encoded]]


class GatheredJobs:
    """The jobs of one ensemble, as columns.

    Attributes:
        count: number of jobs.
        outcomes: number of jobs by group and outcome, without `replaced`; None is active.
        replaced: number of attempts that were interrupted, or that a user had run again.
        again: number of the other attempts that are a job's second or later one.
        infeasible: number of jobs whose trial violates a constraint of its search.
        first: the first jobs.
        points: the best jobs by the values that they published.
        params, memo: the columns of parameters and of keys of memos.
        times: when jobs were submitted, began, and ended.
        seconds: total time for which jobs ran.
        durations: the times of successful jobs, by group.
        objectives: those of the trials that are jobs of a group, by group.
        trials: number, end and value of each job of a complete trial, by group.
        used: total time of cores and GPUs of the jobs that ran, by "core" or "gpu" and outcome.
        use: what the jobs used of processors and memory, by group, where that is known.
        left_out: kinds of data that were left out, with the numbers of jobs.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.count = 0
        self.outcomes: Counter[tuple[str, str | None]] = Counter()
        self.replaced = self.again = 0
        self.first: list[Job] = []
        self.points = Points()
        self.params: dict[str, Values] = {}
        self.memo: dict[str, Values] = {}
        self.times = Times(*_TIMES)
        self.seconds = 0.0
        self.durations: dict[str, list[float]] = {}
        self.trials: dict[str, list[tuple[int, float, float]]] = {}
        self.objectives: dict[str, str] = {
            search["group"]: search["objective"] for search in source.status.get("searches", ())
        }
        self.infeasible = 0
        self.used: Counter[tuple[str, str | None]] = Counter()
        self.use: dict[str, Use] = {}
        self.left_out: Counter[str] = Counter()
        #: The rows of the jobs that succeeded, by group.
        self._succeeded: dict[str, array[int]] = {}
        self._files = Codes()
        self._ids = Ids()
        self._codes = {name: Codes() for name in (*_CODED, "ranks", "member", "exception", "note")}
        self._counts = {name: Counts() for name in ("firing", "index")}
        self._replaced = Counts()
        self._infeasible = Counts()

    def read(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Add each job, and pass it on."""
        for job in jobs:
            self.add(job)
            yield job

    def add(self, job: Job) -> None:
        """Add a job."""
        row = self.count
        self.count += 1
        replaced = "replaced" in job
        if not replaced:
            self.outcomes[job["group"], job["outcome"]] += 1
            ran_again = job["attempt"] > 0 and "copy_of" not in job
            self.again += ran_again and job["outcome"] != "interrupted"
        if row < FIRST_JOBS:
            self.first.append(job)
        self._ids.add(job["id"])
        codes = self._codes
        for name in _CODED:
            codes[name].add(job[name])
        codes["ranks"].add(place_of(job))
        codes["member"].add(job.get("member"))
        codes["exception"].add(job["exception"]["type"])
        codes["note"].add(job["exception"]["note"])
        for name, counts in self._counts.items():
            counts.add(job[name])
        for name in _TIMES:
            self.times.add(name, job[name])
        self._files.add(job["output"])
        self._take("parameters", self.params, MAX_PARAMS, job["params"], row)
        self.replaced += replaced
        self._replaced.add(replaced)
        infeasible = job.get("trial_state") == INFEASIBLE
        self.infeasible += infeasible
        self._infeasible.add(infeasible)
        # The job publishes these values again.
        if job["memo"] and not replaced:
            self._take("keys of memos", self.memo, MAX_MEMO, job["memo"], row)
            objective = self.objectives.get(job["group"], "")
            self.points.add(job, objective.split(", "))
            value = job["memo"].get(objective)
            if job.get("trial_state") == COMPLETE and type(value) in (int, float):
                of_group = self.trials.setdefault(job["group"], [])
                of_group.append((job["trial"], job["t_end"] or 0.0, value))
        t_run = job["t_run"]
        if t_run is not None:
            seconds = max(0.0, (job["t_end"] or self._source.now) - t_run)
            self.seconds += seconds
            for what in ("core", "gpu"):
                self.used[what, job["outcome"]] += seconds * (job.get(f"n{what}s") or 0)
            cpu, rss = job.get("cpu_seconds"), job.get("max_rss")
            if cpu is not None and rss is not None and not replaced:
                use = self.use.setdefault(job["group"], Use())
                use.add(cpu, seconds * (job.get("ncores") or 0), rss)
            if job["outcome"] == "success" and not replaced:
                self._succeeded.setdefault(job["group"], array("I")).append(row)
                self.durations.setdefault(job["group"], []).append(seconds)

    def _take(
        self,
        what: str,
        columns: dict[str, Values],
        most: int,
        values: Mapping[str, Any],
        row: int,
    ) -> None:
        for name, value in values.items():
            column = columns.get(name)
            if column is None:
                if len(columns) >= most:
                    self.left_out[f"{what} beyond the first {most}"] += 1
                    continue
                column = columns[name] = Values()
            column.fill(row)
            column.add(value)

    def infeasible_by(self, group: str, key: str) -> bool:
        """Return whether some jobs are never the best of a group by a key of memos."""
        return bool(self.infeasible) and key in self.objectives.get(group, "").split(", ")

    def values_of(self, group: str, key: str) -> tuple[dict[str, list[Any]], list[float]]:
        """Return the points of a group: its jobs that succeeded and published a number.

        Args:
            group: the group.
            key: of the number in the memos.

        Returns:
            The values of the parameters that all of them have, and the numbers.
        """
        rows = self._succeeded.get(group, array("I"))
        column = self.memo.get(key)
        values = [] if column is None else column.pick(rows)
        found = [
            (row, value)
            for row, value in zip(rows, values, strict=False)
            if type(value) in (int, float) and math.isfinite(value)
        ]
        taken = [row for row, _ in found]
        params = {name: of.pick(taken) for name, of in self.params.items()}
        whole = {name: of for name, of in params.items() if None not in of}
        return whole, [value for _, value in found]

    @property
    def ranks(self) -> Codes:
        """The places where jobs ran: see `place_of`."""
        return self._codes["ranks"]

    def table(self, begin: float, files: Files, gaps: Sequence[Gap]) -> Table:
        """Return the encoded columns; times are relative to `begin`, without `gaps`."""
        columns: dict[str, Encoded] = {"id": self._ids.encode()}
        columns.update(
            (name, column.encode())
            for name, column in self._codes.items()
            if name != "member" or len(column.values) > 1
        )
        columns.update((name, column.encode()) for name, column in self._counts.items())
        columns.update(self.times.encode(begin, gaps))
        if self.replaced:
            columns["replaced"] = self._replaced.encode()
        if self.infeasible:
            columns["infeasible"] = self._infeasible.encode()
        for kind, named in (("params", self.params), ("memo", self.memo)):
            for name, values in named.items():
                values.fill(self.count)
                columns[f"{kind}.{name}"] = values.encode()
                if values.left_out:
                    self.left_out[f"values of {kind}.{name}"] += values.left_out
        if len(self._files.values) > 1 and not self._source.virtual:
            if self.count <= MANY_ROWS:
                shown = [*map(files.of, self._files.values)]
                if any(shown):
                    columns["output"] = self._files.encode()
                    columns["output"].about["values"] = shown
            else:
                self.left_out["files with the output of jobs"] += self.count
        return self.count, columns

    def course(self, begin: float) -> Table:
        """Return the encoded columns by which another run is compared."""
        columns = self.times.encode(begin)
        for name in ("group", "outcome"):
            columns[name] = self._codes[name].encode()
        return self.count, columns


class Log:
    """The log of one ensemble: firings as columns, and lines of text.

    Args:
        line: converts an entry, given the time of the log's beginning, to a line of text.
        environment: values of environment variables may be included.
        gaps: the spans in which the ensemble did not run.

    Attributes:
        document: as it was loaded, or None if the beginning of the log is gone.
        count: number of entries.
        fired: number of firings.
        digest: of the entries of the engine.
    """

    def __init__(
        self,
        line: Callable[[eventlog.Stored, float], str],
        *,
        environment: bool,
        gaps: Sequence[Gap] = (),
    ) -> None:
        self.gaps = gaps
        self._line = line
        self._environment = environment
        self._times = Times("t")
        self._rules = Codes()
        self._numbers = Counts()
        self._failed = Counts()
        self.digest = Digest()
        self._t_start: float | None = None
        self.document: str | Mapping[str, Any] | None = None
        self.count = self.fired = 0
        self._head: list[eventlog.Stored] = []
        self._tail: deque[eventlog.Stored] = deque(maxlen=TAIL)

    def add(self, entry: eventlog.Stored) -> eventlog.Entry:
        """Add an entry."""
        t, context, read = entry["timestamp"], entry["context"], eventlog.read(entry)
        if self._t_start is None:
            self._t_start = t
        # First, because this refuses an entry that is none of ours.
        shown = entry if self._environment else {**entry, "context": without_environment(context)}
        self._line(shown, t)
        self.digest.add(entry)
        match read:
            case eventlog.Load():
                self.document = read.document
            case eventlog.Fire():
                self.fired += 1
                self._times.add("t", t)
                self._rules.add(str(read.rule))
                self._numbers.add(read.firing if type(read.firing) is int else 0)
        self.count += 1
        (self._head if len(self._head) < HEAD else self._tail).append(shown)
        return read

    @property
    def head(self) -> list[str]:
        """The first lines."""
        return self._lines(self._head)

    @property
    def tail(self) -> list[str]:
        """The last lines."""
        return self._lines(self._tail)

    def _lines(self, entries: Iterable[eventlog.Stored]) -> list[str]:
        """Return entries as lines; as in charts, the time without an instance is left out."""
        start = self._t_start or 0.0
        return [self._line(one, start + skipped(one["timestamp"], self.gaps)) for one in entries]

    @property
    def first(self) -> float | None:
        """The time of the first firing."""
        return self._times.first

    @property
    def away(self) -> float:
        """Seconds in which the run was interrupted."""
        return sum(until - since for since, until in self.gaps)

    def table(self, begin: float) -> Table:
        """Return the encoded firings; times are relative to `begin`, without the gaps."""
        columns = {"rule": self._rules.encode(), "firing": self._numbers.encode()}
        return self.fired, {**columns, **self._times.encode(begin, self.gaps)}


class Slices(NamedTuple):
    """A chart for each of some parameters, with what the jobs of a group published over it.

    Attributes:
        group: of the jobs that succeeded.
        key: of their memos.
        label: the key with its unit.
        mode: whether the "max" or the "min" is the best; None if no document says that.
        params: the parameters.
    """

    group: str
    key: str
    label: str
    mode: str | None
    params: tuple[str, ...]


@dataclass
class Run:
    """The contents of a report on one ensemble.

    Args:
        source: of the data.
        jobs, log, members: collected from the source.
        begin, end: of its time, in seconds; `end` is the present if it has not ended.
        notes: about data that is not in the report, in sentences.
        tables: the columns by name.
        slices: those of the page.
    """

    source: Source
    jobs: GatheredJobs
    log: Log
    members: MembersSeen
    begin: float
    end: float
    notes: list[str] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)
    slices: list[Slices] = field(default_factory=list)

    @property
    def span(self) -> float:
        """Seconds from begin to end, without those in which the run was interrupted."""
        return max(0.0, self.end - self.begin - self.log.away)


def gather(
    source: Source,
    line: Callable[[eventlog.Stored, float], str],
    watch: Callable[[Job], None] = lambda job: None,
    *,
    files: Files = NOWHERE,
    environment: bool = False,
) -> Run:
    """Read everything known about an ensemble.

    Args:
        source: of the data.
        line: converts an entry of the log, given the time of the log's beginning, to a line of
            text.
        watch: called with each job.
        files: makes references to the output of jobs.
        environment: values of environment variables may be included.

    Raises:
        OSError: jobs or log cannot be had.
    """
    gaps = [(span["since"], span["until"]) for span in source.status.get("absences", ())]
    log = Log(line, environment=environment, gaps=gaps)
    members = MembersSeen()
    for entry in source.entries:
        members.take_entry(entry["timestamp"], log.add(entry))
    jobs = GatheredJobs(source)
    for job in jobs.read(source.jobs):
        watch(job)
        members.take_job(job)
    status = source.status
    begins = [t for t in (status["t_start"], jobs.times.first, log.first) if t is not None]
    begin = min(begins, default=source.now)
    ended = status["t_end"] is not None and not status["jobs"]["active"]
    ends = [t for t in (status["t_end"] if ended else source.now, jobs.times.last) if t is not None]
    run = Run(source, jobs, log, members, begin, max(ends, default=begin))
    run.tables = {"jobs": jobs.table(begin, files, log.gaps), "firings": log.table(begin)}
    run.notes = list(_notes(run))
    return run


def _notes(run: Run) -> Iterator[str]:
    dropped = run.source.dropped()
    if dropped:
        yield f"{dropped:,} jobs are not in it: the record is full (limits.records)"
    listed = sum(
        group.get("attempts", group["finished"]) for group in run.source.status["groups"].values()
    )
    if not dropped and not run.jobs.count and listed:
        yield f"none of the {listed:,} jobs is in it: there is no record of them (records: false)"
    if run.members.left_out:
        yield f"members beyond the first {MOST_MEMBERS:,} are not in the table of members"
    for what, count in run.jobs.left_out.items():
        yield f"{what}: {count:,} left out"
    if run.log.document is None and run.log.count:
        yield "the beginning of the log is not kept any more, and with it the document"
