"""The spans in which there was no Flux instance, or no local run: nobody waits in them.

A job that waited on a member waited there, whatever became of the instance of the service.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flux_ensemble.engine.job_keys import ordinal_of


class Absences:
    """The spans, in order.

    >>> absences = Absences()
    >>> absences.add(10.0, 70.0)
    >>> absences.waited(1, 5.0, 71.0), absences.waited(2, 80.0, 81.0)
    (6.0, 1.0)
    """

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []

    def add(self, since: float, until: float) -> None:
        """Note a span, in epoch seconds."""
        if until > since:
            self._spans.append((since, until))

    def waited(self, key: int, t_submit: float, t: float) -> float:
        """Return for how many seconds a job waited until time `t`.

        Args:
            key: of the job (`job_keys`).
            t_submit: when it was submitted.
            t: when it started, or is looked at.
        """
        waited = t - t_submit
        if self._spans and not ordinal_of(key):
            for since, until in self._spans:
                waited -= max(0.0, min(until, t) - max(since, t_submit))
        return max(0.0, waited)

    def dump(self) -> list[list[float]]:
        """Return the spans as JSON."""
        return [[since, until] for since, until in self._spans]

    def load(self, value: Iterable[Sequence[float]]) -> None:
        """Set the spans from the result of `dump`."""
        self._spans = [(span[0], span[1]) for span in value]
