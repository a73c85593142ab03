"""The metrics of one ensemble: counts, and streams of values with their statistics."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from flux_ensemble.metrics.best import Best, Bests
from flux_ensemble.metrics.by_value import ByValue, unsplit, values_of
from flux_ensemble.metrics.detector import Detector, Watch
from flux_ensemble.metrics.families import field_of
from flux_ensemble.metrics.member_metrics import AT, MemberMetrics
from flux_ensemble.metrics.names import (
    COUNTERS,
    DURATION_OF_FINISHED,
    FAMILY_KEYS,
    GAUGES,
    IGNORED,
    MEMBER_METRICS,
    OF_SUCCESS,
    RATE,
    STREAMS,
    Statistic,
    as_named,
    of_finished,
    of_success,
)
from flux_ensemble.metrics.numbers import Number
from flux_ensemble.metrics.paths import (
    BEST,
    COUNT,
    ELAPSED,
    LEFT,
    PENDING_NODES,
    SHARE,
    MetricPath,
)
from flux_ensemble.metrics.statistics import NUMBER
from flux_ensemble.metrics.stream import Stream

#: The number of parts of the window of a rate; when a new part begins, the oldest is forgotten.
PARTS = 60


class Rate:
    """A counter over a moving window of time, by parts of the window.

    Args:
        window: the length of the window in seconds.

    Attributes:
        begin: when counting began; None before that.

    >>> rate = Rate(60.0)
    >>> rate.begin = 0.0
    >>> for t in (10.0, 20.0, 30.0):
    ...     rate.add(t)
    >>> rate.get(40.0), rate.get(60.0), rate.get(75.0)
    (None, 0.05, 0.03333333333333333)
    """

    def __init__(self, window: float) -> None:
        self.begin: float | None = None
        self._window = window
        #: [number of the part, count], oldest first; parts with count 0 are left out.
        self._parts: deque[list[int]] = deque()

    def add(self, t: float) -> None:
        """Count one more event at a time that is not before the last."""
        part = self._part(t)
        if self._parts and self._parts[-1][0] == part:
            self._parts[-1][1] += 1
            return
        self._parts.append([part, 1])
        while self._parts[0][0] <= part - PARTS:
            self._parts.popleft()

    def get(self, t: float) -> float | None:
        """Return the events per second; None before a whole window has been counted."""
        if self.begin is None or t - self.begin < self._window:
            return None
        oldest = self._part(t) - PARTS
        return sum(count for part, count in self._parts if part > oldest) / self._window

    def _part(self, t: float) -> int:
        return math.floor(t / self._window * PARTS)

    def dump(self) -> list[Any]:
        """Return the state as JSON."""
        return [self.begin, [list(part) for part in self._parts]]

    def load(self, value: Any) -> None:
        """Set the state from the result of `dump`."""
        self.begin, parts = value
        self._parts = deque(list(part) for part in parts)


#: Raw values of streams: [[group, variable, [value, ...]], ...]. None among the values is a reset:
#: the values before it are forgotten.
Values = list[list[Any]]

#: The most variables of a group besides `STREAMS`, and the longest name of one. Each has a stream,
#: and jobs choose the names with their memos.
MAX_VARIABLES = 1000
MAX_NAME = 256

#: The most streams by value of one variable of a group.
MAX_VALUES = 1000

#: The most memo keys of a group whose ignored values are counted separately. Those of further keys,
#: and of keys longer than `MAX_NAME`, are counted together under `OTHERS`.
MAX_IGNORED = 100
OTHERS = "..."

#: Variables that are not keys of memos.
_BUILT_IN = frozenset((*STREAMS, DURATION_OF_FINISHED))

#: Variables that depend on the ages of active jobs.
_AGES = frozenset(("pending",)).union(GAUGES)

#: Returns the ages in seconds of a group's "waiting" or "running" jobs.
Ages = Callable[[str, str], Iterable[float]]


class Metrics:
    """Counts and streams of all groups of one ensemble, and metrics of its member.

    Attributes:
        counts: the counters of each group, `count.GROUP.COUNTER`.
        pending_nodes: nodes that jobs in the queue need that have not started.
        nodes: the known metrics `nodes.*`.
        bests: the best jobs so far.
        named: the figures of what features have names for, by family and name.
        ignored: group -> key -> the number of memo values without statistics.
        rates: group -> the rate at which its jobs finish, for the groups that are watched.
        watches: the detectors of rules on drift and anomalies, by the ids of the rules.
        takes_successes: True if a statistic is of the last memo values of successful jobs.
        detected: the rules whose detectors the latest values triggered, with these values.
        of_members: the metrics that rules with `scope: member` read.
        t, t_start, t_expires: the time, when the ensemble began, and when the allocation of the
            member expires; None if that has not happened or is not known.

    >>> metrics = Metrics(["md"], [Statistic("mean", "Mean")])
    >>> metrics.observe("md", "duration", 12.0)
    >>> metrics.lookup(MetricPath("mean", "md", "duration"))
    12.0
    """

    def __init__(
        self,
        groups: Iterable[str],
        statistics: Collection[Statistic],
        bests: Iterable[Best] = (),
        rate_window: float = 60.0,
        by: Iterable[ByValue] = (),
    ) -> None:
        self.bests = Bests(bests)
        self.named: dict[str, dict[str, dict[str, Any]]] = {key: {} for key in FAMILY_KEYS}
        self._rate_window = rate_window
        self.rates: dict[str, Rate] = {}
        self.watches: dict[str, Watch] = {}
        #: The same detectors by group and variable.
        self._watching: dict[tuple[str, str], list[Watch]] = {}
        self.detected: dict[str, Number] = {}
        self.of_members = MemberMetrics(statistics)
        self.t = 0.0
        self.t_start: float | None = None
        self.t_expires: float | None = None
        #: The metrics that features compute when they are asked for.
        self.computed: dict[MetricPath, Callable[[], float | None]] = {}
        self._statistics = tuple(statistics)
        self._by_name = {statistic.name: statistic for statistic in statistics}
        finishing = tuple(one for one in statistics if one.of == "finished")
        #: The statistics of variables that every group has.
        self._of: dict[str, tuple[Statistic, ...]] = {
            "duration": tuple(one for one in statistics if one.of != "finished"),
            DURATION_OF_FINISHED: finishing,
            "pending": self._statistics,
        }
        #: The statistics of memo values of successful jobs, and those of memo values of any job.
        self._of_success = tuple(one for one in statistics if one.of == "success")
        self._of_published = tuple(one for one in statistics if one.of != "success")
        finished = (DURATION_OF_FINISHED,) if finishing else ()
        #: The variables for the duration of a job: of one that succeeded, and of any other.
        self._durations: tuple[tuple[str, ...], tuple[str, ...]] = ("duration", *finished), finished
        self.counts: dict[str, dict[str, int]] = {}
        self.takes_successes = bool(self._of_success)
        #: Group and variable -> the metrics that are kept by value.
        self.by: dict[tuple[str, str], list[ByValue]] = {}
        for by_value in by:
            self.by.setdefault((by_value.group, by_value.variable), []).append(by_value)
        #: Group and variable -> the number of streams by value.
        self._values: dict[tuple[str, str], int] = {}
        #: The streams that have a value.
        self._streams: dict[tuple[str, str], Stream] = {}
        self._variables: dict[str, int] = {}
        self._kept: dict[tuple[str, str], list[Number | None]] | None = None
        self.pending_nodes = 0
        self.nodes: dict[MetricPath, int] = {}
        #: The part of the cores that is the ensemble's, once that was reported.
        self.share: float | None = None
        self.ignored: dict[str, dict[str, int]] = {}
        for group in groups:
            self.counts[group] = dict.fromkeys(COUNTERS, 0)
            self._variables[group] = 0

    def has_room(self, group: str, variable: str) -> bool:
        """Return whether the variable has a stream, or can get one."""
        if (group, variable) in self._streams:
            return True
        base = self.kept_by_value(group, variable)
        if base is not None:
            full = self._values.get((group, base), 0) >= MAX_VALUES
        else:
            full = self._variables[group] >= MAX_VARIABLES
        return not full and len(variable) <= MAX_NAME

    def kept_by_value(self, group: str, variable: str) -> str | None:
        """Return the variable without values of parameters, if it is kept by value; else None."""
        if not self.by or not variable.endswith("]"):
            return None
        base = unsplit(variable)
        own = "duration" if base == DURATION_OF_FINISHED else base.removesuffix(OF_SUCCESS)
        return base if base != variable and (group, own) in self.by else None

    def values_by(self, by: ByValue) -> Iterator[dict[str, Any]]:
        """Yield the values of parameters for which a metric by value has a stream."""
        for group, variable in self._streams:
            if group == by.group and unsplit(variable) == by.variable:
                values = values_of(variable[len(by.variable) + 1 :])
                if values is not None and values.keys() == set(by.params):
                    yield values

    def observe(self, group: str, variable: str, value: Number) -> None:
        """Add a finite value to the stream `GROUP-VARIABLE`."""
        stream = self._streams.get((group, variable)) or self._stream(group, variable)
        stream.update(value)
        if self._watching:
            for watch in self._watching.get((group, variable), ()):
                if watch.take(stream.count, value):
                    self.detected[watch.rule] = value
        if self._kept is not None:
            self._kept.setdefault((group, variable), []).append(value)

    def observe_all(self, group: str, variable: str, values: Sequence[Number]) -> None:
        """Add one or more finite values to a stream that no detector watches."""
        self._stream(group, variable).update_all(values)
        if self._kept is not None:
            self._kept.setdefault((group, variable), []).extend(values)

    def _stream(self, group: str, variable: str) -> Stream:
        stream = self._streams.get((group, variable))
        if stream is None:
            base = self.kept_by_value(group, variable)
            stream = self._streams[group, variable] = Stream(self._taken(base or variable))
            self._count(group, variable, base, 1)
        return stream

    def _taken(self, variable: str) -> tuple[Statistic, ...]:
        """Return the statistics of a variable."""
        known = self._of.get(variable)
        if known is not None:
            return known
        return self._of_success if variable.endswith(OF_SUCCESS) else self._of_published

    def _count(self, group: str, variable: str, base: str | None, change: int) -> None:
        """Count one stream more or less; `change` is 1 or -1."""
        if base is not None:
            self._values[group, base] = self._values.get((group, base), 0) + change
        elif variable not in _BUILT_IN and not variable.endswith(OF_SUCCESS):
            self._variables[group] += change

    def reset(self, group: str, variable: str | None = None) -> int:
        """Forget the values of a stream and of its streams by value, or of all of a group.

        Returns:
            The number of streams that had values.
        """
        wanted = (
            None if variable is None else (variable, of_finished(variable), of_success(variable))
        )
        keys = [
            (name, stream)
            for name, stream in self._streams
            if name == group
            and (wanted is None or stream in wanted or self.kept_by_value(name, stream) in wanted)
        ]
        for key in keys:
            self._forget(key)
            for watch in self._watching.get(key, ()):
                watch.since = 0
        self.of_members.reset(group, variable)
        return len(keys)

    def _forget(self, key: tuple[str, str]) -> None:
        if self._streams.pop(key, None) is not None:
            self._count(*key, self.kept_by_value(*key), -1)
        for watch in self._watching.get(key, ()):
            watch.restart()
        if self._kept is not None:
            self._kept[key] = [None]

    def feed(self, group: str, variable: str, values: Iterable[Number | None]) -> None:
        """Add values that `take_values` returned."""
        if AT in group:
            self.of_members.feed(group, variable, values)
            return
        for value in values:
            if value is None:
                self._forget((group, variable))
            else:
                self.observe(group, variable, value)

    def durations(self, outcome: str | None) -> tuple[str, ...]:
        """Return the variables for the duration of a job with an outcome."""
        succeeded, others = self._durations
        return succeeded if outcome == "success" else others

    def ignore(self, group: str, key: str) -> None:
        """Count a value of a memo that has no statistics."""
        counts = self.ignored.setdefault(group, {})
        if key not in counts and (len(counts) >= MAX_IGNORED or len(key) > MAX_NAME):
            key = OTHERS
        counts[key] = counts.get(key, 0) + 1

    def keep_values(self) -> None:
        """Keep values from now on, for `take_values`."""
        self.of_members.keep_values()
        if self._kept is None:
            self._kept = {}

    def take_values(self) -> Values:
        """Return the values since the last call, and forget them.

        Feeding the values in this order to the streams as they were at the last call gives the
        present streams. Streams do not depend on each other.
        """
        kept, self._kept = self._kept or {}, None if self._kept is None else {}
        rows = [[group, variable, values] for (group, variable), values in kept.items()]
        return rows + self.of_members.take_values()

    def sizes(self) -> list[list[Any]]:
        """Return the numbers of values of streams with values: [[group, variable, n], ...]."""
        return [
            [group, variable, stream.count]
            for (group, variable), stream in sorted(self._streams.items())
        ] + self.of_members.sizes()

    def lookup(self, path: MetricPath) -> Any:
        """Return the value of a metric: a number, a parameter of any type, or None if empty."""
        statistic, group, variable = path
        if statistic == COUNT:
            return self.counts[group].get(variable)
        if statistic in MEMBER_METRICS:
            return self._of_member(path)
        if statistic == RATE:
            rate = self.rates.get(group)
            return None if rate is None else rate.get(self.t)
        if statistic == BEST:
            return self.bests.lookup(variable)
        if statistic in self.named:
            return field_of(self.named[statistic], variable)
        named = self._by_name[statistic]
        if named.of is not None:
            variable = named.stream(variable)
        stream = self._streams.get((group, variable))
        if stream is not None:
            return stream.get(statistic)
        return 0 if named.kind == NUMBER else None

    def _of_member(self, path: MetricPath) -> float | None:
        if path == PENDING_NODES:
            return self.pending_nodes
        if path == ELAPSED:
            return None if self.t_start is None else self.t - self.t_start
        if path == LEFT:
            return None if self.t_expires is None else max(0.0, self.t_expires - self.t)
        if path == SHARE:
            return 1.0 if self.share is None else self.share
        computed = self.computed.get(path)
        return self.nodes.get(path) if computed is None else computed()

    def watch_rate(self, group: str) -> None:
        """Count the rate at which the jobs of a group finish, from now on."""
        if group not in self.rates:
            rate = self.rates[group] = Rate(self._rate_window)
            rate.begin = None if self.t_start is None else self.t

    def watch(self, rule: str, detector: Detector) -> None:
        """Pass the values of a detector's stream to it, for a rule, from now on."""
        if rule not in self.watches:
            key = detector.group, detector.variable
            watch = self.watches[rule] = Watch(rule, detector, self.count(*key))
            self._watching.setdefault(key, []).append(watch)

    def count(self, group: str, variable: str) -> int:
        """Return the number of values of a stream."""
        stream = self._streams.get((group, variable))
        return 0 if stream is None else stream.count

    def start(self, t: float) -> None:
        """Set the time at which the ensemble began."""
        self.t_start = t
        for rate in self.rates.values():
            rate.begin = t

    def at(self, ages: Ages) -> View:
        """Return the metrics at a heartbeat, without changing the streams."""
        return View(self, ages)

    def snapshot(self, ages: Ages) -> dict[str, Any]:
        """Return all metrics, nested: `{"mean": {"GROUP-VARIABLE": x}, "count": {"GROUP": {...}}}`.

        Gauges are included for groups with active jobs, `{"nodes": {...}, "queue": {...}}` once the
        member has reported, `{"share": {...}}` likewise, `{"rate": {"GROUP": x}}` for rates that
        rules read,
        `{"best": {NAME: {"value", "job", "params"}}}` for the best jobs so far,
        `{FAMILY: {NAME: {...}}}` for what features have names for,
        and `{"memo-ignored": {"GROUP": {"KEY": n}}}` if values of memos have no statistics.
        """
        empty = Stream(self._statistics)
        streams = {(group, variable): empty for group in self.counts for variable in STREAMS}
        streams.update(self._streams)
        for group in self.counts:
            for gauge in GAUGES:
                values = list(ages(group, gauge))
                if values:
                    streams[group, gauge] = empty.extended(values)
        ordered = sorted({(group, as_named(variable)) for group, variable in streams})
        nested: dict[str, Any] = {}
        for name, statistic in self._by_name.items():
            nested[name] = {
                f"{group}-{variable}": streams.get((group, statistic.stream(variable)), empty).get(
                    name
                )
                for group, variable in ordered
            }
        nested[COUNT] = {group: dict(counts) for group, counts in self.counts.items()}
        if self.nodes:
            nested["nodes"] = {path.variable: value for path, value in self.nodes.items()}
            nested["queue"] = {PENDING_NODES.variable: self.pending_nodes}
        if self.share is not None:
            nested["share"] = {SHARE.variable: self.share}
        if self.rates:
            nested[RATE] = {group: rate.get(self.t) for group, rate in self.rates.items()}
        bests = self.bests.snapshot()
        if bests:
            nested[BEST] = bests
        for family, named in self.named.items():
            if named:
                nested[family] = {name: dict(figures) for name, figures in named.items()}
        if self.ignored:
            nested[IGNORED] = {group: dict(counts) for group, counts in self.ignored.items()}
        return nested


class View:
    """Metrics at one heartbeat (docs/metrics.md).

    The stream `pending` is computed as if each waiting job had started now. The gauges `waiting`
    and `running` hold the ages of the waiting and running jobs. Each metric is computed at most
    once.

    >>> metrics = Metrics(["md"], [Statistic("max", "Max")])
    >>> view = metrics.at(ages=lambda group, gauge: [30.0, 5.0])
    >>> view.lookup(MetricPath("max", "md", "running"))
    30.0
    """

    def __init__(self, metrics: Metrics, ages: Ages) -> None:
        self._metrics = metrics
        self._ages = ages
        #: Metric -> the recorded stream that the computed one extends, and the computed one. A
        #: reset replaces the recorded stream, so the computed one is then made anew.
        self._streams: dict[MetricPath, tuple[Stream | None, Stream]] = {}

    def lookup(self, path: MetricPath) -> Any:
        """Return the value of a metric; None if it is empty."""
        statistic, group, variable = path
        if statistic == COUNT or variable not in _AGES:
            return self._metrics.lookup(path)
        recorded, gauge = None, variable
        if variable == "pending":
            recorded, gauge = self._metrics._streams.get((group, variable)), "waiting"
        computed = self._streams.get(path)
        if computed is None or computed[0] is not recorded:
            stream = recorded or Stream(self._metrics._statistics)
            computed = recorded, stream.extended(self._ages(group, gauge), statistic)
            self._streams[path] = computed
        return computed[1].get(statistic)
