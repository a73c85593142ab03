"""Prediction whether all jobs of an ensemble can run before the allocation of the instance ends."""

from __future__ import annotations

from collections import deque

from flux_ensemble.words import in_words

#: The rate at which jobs end is measured over so many seconds, and over at least so many jobs.
WINDOW_SECONDS = 300.0
FEWEST_JOBS = 10

#: Share of the remaining jobs that will not run from which there is a warning. It is repeated when
#: their number has doubled, or halved.
SHARE = 0.05


class Outlook:
    """Estimates, from the rate at which jobs end, how many will not run in time."""

    def __init__(self) -> None:
        #: Times, with the numbers of jobs that were over.
        self._seen: deque[tuple[float, int]] = deque()
        self._said = 0.0

    def take(self, now: float, over: int, left: int, t_expires: float | None) -> str | None:
        """Process a status.

        Args:
            now: epoch seconds.
            over: number of jobs that are over.
            left: number of jobs that are requested and not over.
            t_expires: when the allocation expires, or None.

        Returns:
            A warning, the first time or after a large change; else None.
        """
        self._seen.append((now, over))
        while now - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()
        t, before = self._seen[0]
        if t_expires is None or now <= t or over - before < FEWEST_JOBS:
            return None
        time_left = t_expires - now
        missed = left - time_left * (over - before) / (now - t)
        if missed < max(1.0, SHARE * left) or self._said / 2 < missed < self._said * 2:
            return None
        self._said = missed
        jobs = f"about {_about(missed)} jobs will not run"
        return f"the allocation ends in {in_words(time_left)}, {jobs}"


def _about(number: float) -> str:
    """Return a number rounded to two digits."""
    digits = len(str(int(number))) - 2
    return f"{round(int(number), -max(digits, 0)):,}"
