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
        others: returns jobs whose fields are columns too, such as those of which `rows` are a few.

    >>> jobs = JobTable(lambda: [{"id": 1, "params": {"t": 300}, "memo": {"loss": 0.5}}])
    >>> [job["id"] for job in jobs]
    [1]
    """

    def __init__(
        self,
        rows: Callable[[], Iterable[JobRow]],
        others: Callable[[], Iterable[JobRow]] | None = None,
    ) -> None:
        self._rows = rows
        self._more = others

    def __iter__(self) -> Iterator[JobRow]:
        return iter(self._rows())

    def to_pandas(self) -> Any:
        """Return the jobs as a `pandas.DataFrame`, with columns such as `params.t`.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas

        columns, rows = self._table()
        return pandas.DataFrame(rows, columns=columns)

    def to_polars(self) -> Any:
        """Return the jobs as a `polars.DataFrame`, with the columns of `to_pandas`.

        Raises:
            ImportError: Polars is not installed.
        """
        import polars

        columns, rows = self._table()
        # Values of one parameter can be numbers and texts.
        schema = None if rows else columns
        table = polars.from_dicts(rows, schema, infer_schema_length=None, strict=False)
        missing = [name for name in columns if name not in table.columns]
        return table.with_columns(polars.lit(None).alias(name) for name in missing).select(columns)

    def _others(self) -> Iterable[JobRow]:
        return () if self._more is None else self._more()

    def _table(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Return the columns, those that every job has without any, and the rows."""
        from flux_ensemble.metrics.job_row import OF_ALL

        rows = [dict(_fields(row)) for row in self]
        others = [dict(_fields(row)) for row in self._others()]
        columns = dict.fromkeys(name for row in (*others, *rows) for name in row)
        return list(columns or OF_ALL), rows


def _fields(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
