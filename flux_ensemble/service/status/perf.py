"""Performance of the service itself: the delay of its reactor, the number of unsent submissions."""

from __future__ import annotations

import resource
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from flux_ensemble.runtime.ports import Loop

#: Seconds between two measurements, and how many measurements are kept: the last minute.
INTERVAL = 0.5
LOOKS = 120


class Perf:
    """Measures from time to time how late its timer is called.

    Args:
        loop: that is measured.
        waiting: returns how many submissions have not been sent yet.
        clock: returns seconds that only grow.
    """

    def __init__(
        self,
        loop: Loop,
        waiting: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._waiting = waiting
        self._lags: deque[float] = deque(maxlen=LOOKS)
        self._t_due = clock() + INTERVAL
        self._timer = loop.timer(INTERVAL, self._look, every=INTERVAL)

    def stop(self) -> None:
        """Stop measuring."""
        self._timer.cancel()

    def report(self) -> dict[str, Any]:
        """Return `perf` of the response to `ensemble.status`, as in docs/rpc.md."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        lags = self._lags
        return {
            "waiting": self._waiting(),
            "lag_mean_seconds": round(sum(lags) / len(lags), 6) if lags else None,
            "lag_max_seconds": round(max(lags), 6) if lags else None,
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 3),
            "rss_bytes": used.ru_maxrss * 1024,
        }

    def _look(self) -> None:
        now = self._clock()
        self._lags.append(max(0.0, now - self._t_due))
        self._t_due = now + INTERVAL
