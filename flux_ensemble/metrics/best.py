"""The best job by one of its values, with its parameters: `best.NAME.params.X`.

The best is chosen among the jobs that have succeeded, by the value that each had at its end. With
`live`, running jobs take part with their present values. A job that then fails is left out again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from flux_ensemble.metrics.job_row import PARAMS
from flux_ensemble.metrics.numbers import Number
from flux_ensemble.metrics.paths import BEST, MetricPath
from flux_ensemble.scalars import packed, unpacked
from flux_ensemble.texts import listed, shown

#: Fields besides the parameters.
_FIELDS = ("value", "job")

MODES = ("max", "min")


@dataclass(frozen=True, slots=True)
class Best:
    """A best job to keep: among the jobs of `group`, that with the largest or smallest `variable`.

    With `live`, running jobs take part.
    """

    name: str
    group: str
    variable: str
    mode: str = "max"
    live: bool = False

    def beats(self, value: Number, other: Number) -> bool:
        """Return whether a value is better than another.

        >>> Best("top", "md", "fom").beats(2, 1), Best("top", "md", "loss", "min").beats(2, 1)
        (True, False)
        """
        return value > other if self.mode == "max" else value < other

    def path(self, keys: list[str], params: Collection[str]) -> MetricPath:
        """Return the metric with these keys, the first two of which are "best" and its name.

        Args:
            keys: the keys of a name in an expression.
            params: the parameters that jobs of the group can have.

        Raises:
            ValueError: there is no such field.

        >>> str(Best("top", "md", "fom").path(["best", "top", "params", "t"], ["t"]))
        'best.top.params.t'
        """
        _, _, *rest = keys
        of_params = len(rest) == 2 and rest[0] == PARAMS
        if of_params and rest[1] not in params:
            raise ValueError(
                f"jobs of group {self.group!r} have no parameter {shown(rest[1])} "
                f"(parameters: {listed(sorted(params))})"
            )
        if not of_params and (len(rest) != 1 or rest[0] not in _FIELDS):
            fields = ", ".join((*_FIELDS, f"{PARAMS}.NAME"))
            raise ValueError(
                f"no field {shown('.'.join(keys))} (fields of 'best.{self.name}': {fields})"
            )
        return MetricPath(BEST, self.group, ".".join((self.name, *rest)))


class Point(NamedTuple):
    """A job with its value.

    Attributes:
        value: the value, which is finite.
        job: the job's id, as in expressions.
        params: the job's parameters.
    """

    value: Number
    job: int | str
    params: Mapping[str, Any]

    def report(self) -> dict[str, Any]:
        """Return the job as JSON, for people.

        >>> Point(0.5, 17, {"t": 300}).report()
        {'value': 0.5, 'job': 17, 'params': {'t': 300}}
        """
        return {"value": self.value, "job": self.job, "params": dict(self.params)}

    def dump(self) -> dict[str, Any]:
        """Return the job as JSON, for `load`."""
        params = {name: packed(value) for name, value in self.params.items()}
        return {**self.report(), "params": params}

    @classmethod
    def load(cls, value: Mapping[str, Any]) -> Point:
        """Return the job from the result of `dump`."""
        params = {name: unpacked(one) for name, one in value["params"].items()}
        return cls(value["value"], value["job"], params)


class _Kept:
    """The state of one `Best`.

    Attributes:
        ended: the best of the jobs that have succeeded.
        running: the running jobs by id, in the order in which they reached their values.
        now: the best of all these; among equal ones, the one that has succeeded, then the first.
    """

    def __init__(self, best: Best) -> None:
        self.best = best
        self.ended: Point | None = None
        self.running: dict[int, Point] = {}
        self.now: Point | None = None

    def run(self, id: int, point: Point | None) -> bool:
        """Set the value of a running job, or remove it; return whether the best has changed."""
        before = self.running.get(id)
        if before is not None and point is not None and before.value == point.value:
            return False
        self.running.pop(id, None)
        if point is not None:
            self.running[id] = point
        if self.now is not None and self.now is before:
            return self._look()
        if point is None or not self._beats(point, self.now):
            return False
        self.now = point
        return True

    def end(self, id: int, point: Point | None) -> bool:
        """End a job, with its value if it has succeeded; return whether the best has changed."""
        before = self.running.pop(id, None)
        if point is not None and self._beats(point, self.ended):
            self.ended = point
        elif before is None or self.now is not before:
            return False
        return self._look()

    def _look(self) -> bool:
        now = self.ended
        for point in self.running.values():
            if self._beats(point, now):
                now = point
        before, self.now = self.now, now
        return before is None or now is None or before[:2] != now[:2]

    def _beats(self, point: Point, other: Point | None) -> bool:
        return other is None or self.best.beats(point.value, other.value)


class Bests:
    """The best jobs of one ensemble.

    >>> bests = Bests([Best("top", "md", "fom")])
    >>> bests.end("top", 17, Point(0.5, 17, {"t": 300})), bests.end("top", 18, None)
    (True, False)
    >>> bests.lookup("top.params.t"), bests.lookup("top.job")
    (300, 17)
    """

    def __init__(self, bests: Iterable[Best]) -> None:
        self._of: dict[str, list[Best]] = {}
        self._kept: dict[str, _Kept] = {}
        for best in bests:
            self._of.setdefault(best.group, []).append(best)
            self._kept[best.name] = _Kept(best)

    @property
    def kept(self) -> bool:
        """True if any best is kept."""
        return bool(self._kept)

    def of(self, group: str) -> Iterable[Best]:
        """Return the bests among the jobs of a group."""
        return self._of.get(group, ())

    def run(self, name: str, id: int, point: Point | None) -> bool:
        """Set the value of a running job for a best that is live.

        Args:
            name: the name of the best.
            id: the id of the job.
            point: the job with its value; None if it has none any more.

        Returns:
            True if the best has changed.
        """
        return self._kept[name].run(id, point)

    def end(self, name: str, id: int, point: Point | None) -> bool:
        """End a job.

        Args:
            name: the name of the best.
            id: the id of the job.
            point: the job with its value at the end, if it has succeeded and has one.

        Returns:
            True if the best has changed.
        """
        return self._kept[name].end(id, point)

    def lookup(self, path: str) -> Any:
        """Return the value of a field such as `top.value`; None if there is no job yet."""
        name, field, *key = path.split(".", 2)
        now = self._kept[name].now
        if now is None:
            return None
        if field == PARAMS:
            return now.params.get(key[0])
        return now.value if field == "value" else now.job

    def snapshot(self) -> dict[str, Any]:
        """Return the best jobs so far as JSON: name -> value, job and parameters."""
        return {
            name: kept.now.report() for name, kept in self._kept.items() if kept.now is not None
        }

    def report(self) -> list[dict[str, Any]]:
        """Return all bests, with the jobs so far, as JSON (docs/rpc.md, `ensemble.status`)."""
        return [
            {
                "name": best.name,
                "group": best.group,
                "of": best.variable,
                "mode": best.mode,
                "live": best.live,
                "running": kept.now is not None and kept.now is not kept.ended,
                **(kept.now.report() if kept.now else {"value": None, "job": None, "params": {}}),
            }
            for best, kept in ((kept.best, kept) for kept in self._kept.values())
        ]

    def dump(self) -> dict[str, Any]:
        """Return all bests as JSON: name -> the best job that has succeeded, and running jobs."""
        return {
            name: {
                "ended": kept.ended and kept.ended.dump(),
                "running": [[id, point.dump()] for id, point in kept.running.items()],
            }
            for name, kept in self._kept.items()
            if kept.now is not None
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Set the state from the result of `dump`."""
        for name, dumped in value.items():
            kept = self._kept[name]
            kept.ended = dumped["ended"] and Point.load(dumped["ended"])
            kept.running = {id: Point.load(point) for id, point in dumped["running"]}
            kept._look()
