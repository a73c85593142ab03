"""Jobs as a table of pandas or Polars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flux_ensemble.extras import library
from flux_ensemble.texts import one_line, printable, shortened
from flux_ensemble.words import counted, each_pair

if TYPE_CHECKING:
    from flux_ensemble.metrics.job_row import JobRow

#: Most jobs in the text of a table, and most characters of one.
_SHOWN, _LONGEST = 10, 160


class JobTable:
    """Jobs of an ensemble: mappings to iterate over, or a table with a column for each field.

    Each iteration requests the jobs again.

    Args:
        rows: returns the jobs.
        others: returns jobs whose fields are columns too, such as those of which `rows` are a few.

    >>> job = {"id": 1, "group": "md", "outcome": None, "params": {"t": 300}, "memo": {"loss": 0.5}}
    >>> jobs = JobTable(lambda: [job])
    >>> [job["id"] for job in jobs]
    [1]
    >>> jobs
    1 job: list(...) has their mappings, to_pandas() a table
      1 md active t=300 loss=0.5
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

    def __repr__(self) -> str:
        lines, number = list[str](), 0
        for number, row in enumerate(self, 1):
            if number > _SHOWN:
                continue
            values = each_pair({**row["params"], **row["memo"]})
            words = (row["id"], row["group"], row["outcome"] or "active", *values)
            line = " ".join(map(str, words))
            lines.append(f"  {shortened(one_line(printable(line)), _LONGEST)}")
        if number > _SHOWN:
            lines.append(f"  and {number - _SHOWN:,} more")
        head = f"{counted(number, 'job')}: list(...) has their mappings, to_pandas() a table"
        return "\n".join((head, *lines))

    def to_pandas(self) -> Any:
        """Return the jobs as a `pandas.DataFrame`, with columns such as `params.t`.

        Raises:
            ImportError: pandas is not installed; the command for it is named.
        """
        pandas = library("pandas", "to_pandas()")
        columns, rows = self._table()
        return pandas.DataFrame(rows, columns=columns)

    def to_polars(self) -> Any:
        """Return the jobs as a `polars.DataFrame`, with the columns of `to_pandas`.

        Raises:
            ImportError: Polars is not installed; the command for it is named.
        """
        polars = library("polars", "to_polars()")
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
