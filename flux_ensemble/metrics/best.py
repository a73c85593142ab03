"""The best job so far by one of its values, with its parameters: `best.NAME.params.X`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.metrics.job_fields import PARAMS
from flux_ensemble.metrics.numbers import Number
from flux_ensemble.metrics.paths import BEST, MetricPath
from flux_ensemble.texts import listed, shown

#: Fields besides the parameters.
_FIELDS = ("value", "job")

MODES = ("max", "min")


@dataclass(frozen=True, slots=True)
class Best:
    """What is kept: of the jobs of `group`, the one with the largest or smallest `variable`."""

    name: str
    group: str
    variable: str
    mode: str = "max"

    def beats(self, value: Number, other: Number) -> bool:
        """Whether a value is better than another.

        >>> Best("top", "md", "fom").beats(2, 1), Best("top", "md", "loss", "min").beats(2, 1)
        (True, False)
        """
        return value > other if self.mode == "max" else value < other

    def path(self, keys: list[str], params: Collection[str]) -> MetricPath:
        """The metric with these keys, the first two of which are "best" and its name.

        Args:
            keys: of the name in an expression.
            params: the parameters that jobs of its group can have.

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


class Bests:
    """The best jobs of one ensemble.

    >>> bests = Bests([Best("top", "md", "fom")])
    >>> bests.offer("md", "fom", 0.5, 17, lambda: {"t": 300})
    ['top']
    >>> bests.offer("md", "fom", 0.4, 18, lambda: {"t": 310})
    []
    >>> bests.lookup("top.params.t"), bests.lookup("top.job")
    (300, 17)
    """

    def __init__(self, bests: Iterable[Best]) -> None:
        self._of: dict[tuple[str, str], list[Best]] = {}
        for best in bests:
            self._of.setdefault((best.group, best.variable), []).append(best)
        self._held: dict[str, tuple[Number, int, Mapping[str, Any]]] = {}

    @property
    def kept(self) -> bool:
        """Whether any are."""
        return bool(self._of)

    def offer(
        self,
        group: str,
        variable: str,
        value: Number,
        job: int,
        params: Callable[[], Mapping[str, Any]],
    ) -> list[str]:
        """Take in a finite value of a job.

        Args:
            group, variable: whose value it is.
            value: the value.
            job: the job's id.
            params: gives its parameters.

        Returns:
            The names of those that it is the best of now.
        """
        better = []
        for best in self._of.get((group, variable), ()):
            held = self._held.get(best.name)
            if held is None or best.beats(value, held[0]):
                self._held[best.name] = value, job, dict(params())
                better.append(best.name)
        return better

    def lookup(self, path: str) -> Any:
        """The value of a field such as `top.value`; None where there is no job yet."""
        name, field, *key = path.split(".", 2)
        held = self._held.get(name)
        if held is None:
            return None
        value, job, params = held
        if field == PARAMS:
            return params.get(key[0])
        return value if field == "value" else job

    def dump(self) -> dict[str, Any]:
        """All of them as JSON: name -> value, job id and parameters."""
        return {
            name: {"value": value, "job": job, "params": dict(params)}
            for name, (value, job, params) in self._held.items()
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Set what `dump` returned."""
        for name, held in value.items():
            self._held[name] = held["value"], held["job"], held["params"]
