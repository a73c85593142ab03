"""News of an ensemble, for a view that looks again and again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flux_ensemble.client.connection import Connection
    from flux_ensemble.client.responses import Entry
    from flux_ensemble.metrics.job_row import JobRow

#: Jobs of a request.
PAGE = 1000


class News:
    """The log of an ensemble of the service, and its jobs that failed, each of them once.

    Args:
        connection: to the service.
        name: the ensemble.

    Attributes:
        t_first: time of the first entry of the log; None before that is read.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._read = 0
        self._after = {"failed": 0, "timeout": 0}
        self.t_first: float | None = None

    def read(self, log: deque[Entry]) -> None:
        """Add the entries that are new to those that were read before.

        Raises:
            EnsembleError: the request failed.
        """
        log.extend(self._entries())

    def _entries(self) -> Iterator[Any]:
        request = {"name": self._name, "skip": self._read or None}
        for entry in self._connection.stream("log", request):
            if not self._read:
                self.t_first = entry["timestamp"]
            self._read += 1
            yield entry

    def failed(self) -> Iterator[JobRow]:
        """Yield jobs that failed or ran out of time; of many the next page.

        Raises:
            EnsembleError: the request failed.
        """
        for outcome, after in self._after.items():
            request = {"name": self._name, "outcome": outcome, "after": after, "count": PAGE}
            for answer in self._connection.stream("jobs", request):
                yield from answer["jobs"]
                if "next" in answer:
                    following = answer["next"]
                    self._after[outcome] = answer["recorded"] if following is None else following
