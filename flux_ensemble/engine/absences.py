"""The spans in which an ensemble did not run: this is the only place that knows them.

In most there was no Flux instance, or no local run, so that nobody waited in them. In others the
ensemble had ended, before a request went on with it. A job that waited on a member waited there,
whatever became of the instance of the service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.engine.job_keys import ordinal_of


@dataclass(frozen=True, slots=True)
class Absence:
    """A span in which an ensemble did not run.

    Args:
        since, until: in epoch seconds.
        undone: how many jobs ended at its beginning whose results a crash of the instance undid.
        ended: when that crash was; None if nothing is known to be undone.
        over: the ensemble had ended.
    """

    since: float
    until: float
    undone: int = 0
    ended: float | None = None
    over: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the span as JSON, as the status has it."""
        value: dict[str, Any] = {"since": self.since, "until": self.until}
        if self.undone:
            value.update(undone=self.undone, ended=self.ended)
        if self.over:
            value["over"] = True
        return value


class Absences:
    """The spans, in order.

    >>> absences = Absences()
    >>> absences.add(Absence(10.0, 70.0))
    >>> absences.waited(1, 5.0, 71.0), absences.waited(2, 80.0, 81.0)
    (6.0, 1.0)
    >>> absences.seconds
    60.0
    """

    def __init__(self) -> None:
        self._spans: list[Absence] = []

    def add(self, span: Absence) -> None:
        """Note a span, unless it is empty."""
        if span.until > span.since:
            self._spans.append(span)

    @property
    def latest(self) -> Absence | None:
        """The latest span; None without one."""
        return self._spans[-1] if self._spans else None

    @property
    def seconds(self) -> float:
        """The length of all spans together."""
        return sum((span.until - span.since for span in self._spans), 0.0)

    def waited(self, key: int, t_submit: float, t: float) -> float:
        """Return for how many seconds a job waited until time `t`.

        Args:
            key: of the job (`job_keys`).
            t_submit: when it was submitted.
            t: when it started, or is looked at.
        """
        waited = t - t_submit
        if not ordinal_of(key):
            for span in self._spans:
                if not span.over:
                    waited -= max(0.0, min(span.until, t) - max(span.since, t_submit))
        return max(0.0, waited)

    def dump(self) -> list[dict[str, Any]]:
        """Return the spans as JSON."""
        return [span.to_json() for span in self._spans]

    def load(self, value: Iterable[Mapping[str, Any]]) -> None:
        """Set the spans from the result of `dump`."""
        self._spans = [Absence(**span) for span in value]
