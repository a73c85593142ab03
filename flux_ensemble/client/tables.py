"""Jobs as a table of pandas or Polars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flux_ensemble.metrics.job_row import JobRow


class JobTable:
    """Jobs of an ensemble: mappings to iterate over, or a table with a column for each field.

    Each iteration requests the jobs again.

    Args:
        rows: returns the jobs.

    >>> jobs = JobTable(lambda: [{"id": 1, "params": {"t": 300}, "memo": {"loss": 0.5}}])
    >>> [job["id"] for job in jobs]
    [1]
    """

    def __init__(self, rows: Callable[[], Iterable[JobRow]]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[JobRow]:
        return iter(self._rows())

    def to_pandas(self) -> Any:
        """Return the jobs as a `pandas.DataFrame`, with columns such as `params.t`.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas

        return pandas.json_normalize([dict(job) for job in self])

    def to_polars(self) -> Any:
        """Return the jobs as a `polars.DataFrame`, with the columns of `to_pandas`.

        Raises:
            ImportError: Polars is not installed.
        """
        import polars

        # Values of one parameter can be numbers and texts.
        rows = [dict(_fields(job)) for job in self]
        return polars.from_dicts(rows, infer_schema_length=None, strict=False)


def _fields(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
