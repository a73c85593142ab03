"""The metrics of single members, as far as rules with `scope: member` read them.

They are kept beside the metrics of all members, from the time when such a rule is added. Each
statistic has its own stream. So a statistic that is first read by a later rule begins with that
rule, and feeding the values again after a restore gives the same result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from flux_ensemble.metrics.names import GAUGES, Statistic, of_finished, of_success
from flux_ensemble.metrics.numbers import Number
from flux_ensemble.metrics.paths import COUNT, MetricPath
from flux_ensemble.metrics.statistics import NUMBER
from flux_ensemble.metrics.stream import Stream

#: Separators in the names of streams beside a snapshot: `GROUP@MEMBER`, `STATISTIC:VARIABLE`. No
#: group and no statistic has such a name.
AT = "@"
_COLON = ":"

#: A stream: member, group, statistic, variable.
_Key = tuple[str, str, str, str]


class MemberMetrics:
    """The metrics of the members of one ensemble.

    Args:
        statistics: the statistics that the document keeps.

    Attributes:
        active: True if rules read any metric of a member.
        counts: (member, group) -> the counters that are not 0.

    >>> metrics = MemberMetrics([Statistic("mean", "Mean")])
    >>> path = MetricPath("mean", "md", "duration")
    >>> metrics.want([path])
    >>> metrics.observe("pool.0", "md", "duration", 12.0)
    >>> metrics.lookup("pool.0", path), metrics.lookup("pool.1", path)
    (12.0, None)
    """

    def __init__(self, statistics: Collection[Statistic]) -> None:
        self.active = False
        self._by_name = {statistic.name: statistic for statistic in statistics}
        #: (group, variable of the stream) -> the statistics that rules read.
        self._wanted: dict[tuple[str, str], list[Statistic]] = {}
        #: The groups whose counters rules read.
        self._counted: set[str] = set()
        self.counts: dict[tuple[str, str], dict[str, int]] = {}
        self._streams: dict[_Key, Stream] = {}
        self._kept: dict[_Key, list[Number | None]] | None = None

    def want(self, paths: Iterable[MetricPath]) -> None:
        """Keep metrics from now on; metrics that are not of a member are ignored."""
        for statistic, group, variable in paths:
            self.active = True
            if statistic == COUNT and AT not in variable:
                self._counted.add(group)
            elif statistic in self._by_name and variable not in GAUGES:
                named = self._by_name[statistic]
                wanted = self._wanted.setdefault((group, named.stream(variable)), [])
                if named not in wanted:
                    wanted.append(named)

    def observe(self, member: str, group: str, variable: str, value: Number) -> None:
        """Add a value of a job on a member, as `Metrics.observe` does."""
        for statistic in self._wanted.get((group, variable), ()):
            self._update((member, group, statistic.name, variable), value)

    def _update(self, key: _Key, value: Number) -> None:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = Stream([self._by_name[key[2]]])
        stream.update(value)
        if self._kept is not None:
            self._kept.setdefault(key, []).append(value)

    def count(self, member: str, group: str, counter: str, more: int) -> None:
        """Add to a counter of a group on a member."""
        if group in self._counted:
            counts = self.counts.setdefault((member, group), {})
            counts[counter] = counts.get(counter, 0) + more

    def lookup(self, member: str, path: MetricPath, ages: Iterable[float] | None = None) -> Any:
        """Return the value of a counter or a statistic; None if it is empty.

        Args:
            member: the name of the member.
            path: the metric.
            ages: values to add at a heartbeat; None without one.
        """
        statistic, group, variable = path
        if statistic == COUNT:
            return self.counts.get((member, group), {}).get(variable, 0)
        named = self._by_name[statistic]
        stream = self._streams.get((member, group, statistic, named.stream(variable)))
        if ages is not None:
            stream = (stream or Stream([named])).extended(ages)
        if stream is not None:
            return stream.get(statistic)
        return 0 if named.kind == NUMBER else None

    def reset(self, group: str, variable: str | None, member: str | None = None) -> int:
        """Forget the values of a variable, or of a group; of one member, or of all.

        Returns:
            The number of statistics that had values.
        """
        variables = (
            None if variable is None else (variable, of_finished(variable), of_success(variable))
        )
        keys = [
            key
            for key in self._streams
            if key[1] == group
            and (member is None or key[0] == member)
            and (variables is None or key[3] in variables)
        ]
        for key in keys:
            self._forget(key)
        return len(keys)

    def forget(self, member: str) -> None:
        """Forget the metrics of a member that has ended."""
        for key in [key for key in self._streams if key[0] == member]:
            self._forget(key)
        for pair in [pair for pair in self.counts if pair[0] == member]:
            del self.counts[pair]

    def _forget(self, key: _Key) -> None:
        self._streams.pop(key, None)
        if self._kept is not None:
            self._kept[key] = [None]

    # -- snapshots --------------------------------------------------------------------

    def keep_values(self) -> None:
        """Keep values from now on, as `Metrics.keep_values` does."""
        if self._kept is None:
            self._kept = {}

    def take_values(self) -> list[list[Any]]:
        """Return the values since the last call, for `feed`, as `Metrics.take_values` does."""
        kept, self._kept = self._kept or {}, None if self._kept is None else {}
        return [[*_texts(key), values] for key, values in kept.items()]

    def feed(self, group: str, variable: str, values: Iterable[Number | None]) -> None:
        """Add values that `take_values` returned.

        Raises:
            ValueError: there is no such statistic.
        """
        group, _, member = group.partition(AT)
        statistic, _, variable = variable.partition(_COLON)
        if statistic not in self._by_name:
            raise ValueError(f"no statistic {statistic!r}")
        key = member, group, statistic, variable
        for value in values:
            if value is None:
                self._forget(key)
            else:
                self._update(key, value)

    def sizes(self) -> list[list[Any]]:
        """Return the number of values of each stream, as `Metrics.sizes` does."""
        return [[*_texts(key), self._streams[key].count] for key in sorted(self._streams)]

    def dump(self) -> list[list[Any]]:
        """Return the counters as JSON."""
        return [[*pair, dict(counts)] for pair, counts in self.counts.items()]

    def load(self, value: Iterable[Any]) -> None:
        """Set the counters from the result of `dump`."""
        for member, group, counts in value:
            self.counts[member, group] = dict(counts)


def _texts(key: _Key) -> list[str]:
    member, group, statistic, variable = key
    return [f"{group}{AT}{member}", f"{statistic}{_COLON}{variable}"]
