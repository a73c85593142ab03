"""The jobs of an ensemble, read page by page during an iteration."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flux_ensemble.client.errors import failure

if TYPE_CHECKING:
    from flux_ensemble.client.connection import Connection
    from flux_ensemble.metrics.job_row import JobRow

#: Jobs of a page. The service reads its record in pieces of thousands, one of them again for each
#: page; the number of jobs that it examines for a page is bounded, too.
PAGE = 10_000


class Jobs:
    """Jobs of an ensemble: ended ones in the order of their ends, then the active ones.

    Each iteration requests them again from the service.

    Args:
        connection: to the service.
        payload: of the requests: the ensemble, and the selection of jobs.

    Attributes:
        dropped: after an iteration, the number of jobs that the record had no room for.
    """

    def __init__(self, connection: Connection, payload: dict[str, Any]) -> None:
        self._connection = connection
        self._payload = payload
        self.dropped = 0

    def __iter__(self) -> Iterator[JobRow]:
        after: int | None = 0
        while after is not None:
            t_sent = time.monotonic()
            future = self._connection.send(
                "jobs", {**self._payload, "after": after, "count": PAGE}, stream=True
            )
            try:
                while True:
                    answer = self._connection.response(future, t_sent)
                    yield from answer["jobs"]
                    if "next" in answer:
                        after, self.dropped = answer["next"], answer["dropped"]
                    future.reset()
            except OSError as exc:
                if exc.errno != errno.ENODATA:
                    raise failure(exc, "jobs") from exc

    def to_pandas(self) -> Any:
        """Return the jobs as a `pandas.DataFrame`, with columns such as `params.t`.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas

        return pandas.json_normalize(list(self))
