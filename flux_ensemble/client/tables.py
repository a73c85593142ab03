"""Jobs as a table of pandas or Polars, and which attempts are left out of lists of jobs.

A job that was interrupted, or that a user has run again (`rerun`), runs as if it had not run. So
its earlier attempts, whose rows are `replaced`, are in a list of jobs only if they are asked for.
"""

from __future__ import annotations

import errno
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, overload

from flux_ensemble.client.errors import EnsembleError
from flux_ensemble.extras import library
from flux_ensemble.scalars import measured
from flux_ensemble.texts import one_line, printable, shortened
from flux_ensemble.words import counted, each_pair

if TYPE_CHECKING:
    from flux_ensemble.metrics.job_row import JobRow

#: Most jobs in the text of a table, and most characters of one.
_SHOWN, _LONGEST = 10, 160

#: The words by which a filter asks for interrupted attempts.
_ASKED = re.compile(r"\b(interrupted|replaced)\b")


def wants_interrupted(filter: str | None, outcome: str | None) -> bool:
    """Return whether a choice of jobs names interrupted attempts.

    >>> wants_interrupted("job.interrupted and job.runtime > 60", None)
    True
    >>> wants_interrupted("job.runtime > 60", "success")
    False
    """
    return outcome == "interrupted" or bool(filter and _ASKED.search(filter))


def left_out(number: int, way: str) -> str:
    """Return the sentence about earlier attempts that are left out.

    Args:
        number: of the attempts.
        way: what shows them.

    >>> left_out(1, "--interrupted")
    '1 earlier attempt is left out, which a later one replaces; --interrupted shows it'
    """
    attempts = counted(number, "earlier attempt")
    if number == 1:
        return f"{attempts} is left out, which a later one replaces; {way} shows it"
    return f"{attempts} are left out, which later ones replace; {way} shows them"


class AttemptFilter:
    """The attempts whose jobs run again, among the rows of an ensemble's jobs in their order.

    Attributes:
        held: those of which no later one has come, by the firing that was to run the job again.
        left_out: the number of those that are left out.

    >>> attempts = AttemptFilter()
    >>> lost = {"id": 1, "rule": "rule-0", "firing": 0, "outcome": "interrupted"}
    >>> attempts.take({**lost, "replaced": "retry:0"}), [*attempts.held]
    (False, ['retry:0'])
    >>> attempts.take({"id": 2, "rule": "retry", "firing": 0, "outcome": "success"})
    True
    >>> list(attempts.last(stopped=False)), attempts.left_out
    ([], 1)
    """

    def __init__(self) -> None:
        self.held: dict[str, list[JobRow]] = {}
        self.left_out = 0

    def take(self, row: JobRow) -> bool:
        """Take the next row; return whether it is in a list of jobs here."""
        if self.held:
            self.leave_out(row)
        if "replaced" in row:
            self.held.setdefault(row["replaced"], []).append(row)
            return False
        return True

    def leave_out(self, row: JobRow) -> None:
        """Leave out the attempts after which the job of a row ran again."""
        if "rule" in row:
            self.left_out += len(self.held.pop(f"{row['rule']}:{row['firing']}", ()))

    def last(self, *, stopped: bool) -> Iterator[JobRow]:
        """Yield the attempts that come last in the list, since no later one has come.

        Args:
            stopped: the jobs that were active are not among the rows, and still run again later.
        """
        for *earlier, row in self.held.values():
            # Guests are not told which attempt came after.
            is_last = "rule" in row and not (stopped and row["outcome"] != "interrupted")
            self.left_out += len(earlier) + (not is_last)
            if is_last:
                yield row


class JobTable:
    """Jobs of an ensemble: mappings to iterate over, or a table with a column for each field.

    Each iteration, length and position requests the jobs again: `list` has those of one moment.

    Args:
        rows: returns the jobs.
        others: returns jobs whose fields are columns too, such as those of which `rows` are a few.
        interrupted: include the attempts that were interrupted and whose jobs ran again. Without
            it, attempts that were to run again, and did not, come last.
        last: only so many of the last jobs; None for all.
        page: returns the last jobs, the number of all, and that of the attempts that are left out;
            None if only who reads all knows them.
        stopped: returns whether the jobs that were active are not among the rows, and still run
            again later.

    Attributes:
        left_out: after an iteration, the number of such attempts that were left out.
        total: after an iteration, the number of jobs, of which the last ones are there.
        dropped: after an iteration, the number of jobs that the record had no room for.

    >>> job = {"id": 1, "group": "md", "outcome": None, "params": {"t": 300}, "memo": {"loss": 0.5}}
    >>> jobs = JobTable(lambda: [job])
    >>> [job["id"] for job in jobs], len(jobs), jobs[0]["memo"]
    ([1], 1, {'loss': 0.5})
    >>> jobs
    1 job: list(...) has their mappings, to_pandas() a table
      1 md active t=300 loss=0.5
    """

    def __init__(
        self,
        rows: Callable[[], Iterable[JobRow]],
        others: Callable[[], Iterable[JobRow]] | None = None,
        *,
        interrupted: bool = True,
        last: int | None = None,
        page: Callable[[int], tuple[Iterable[JobRow], int, int] | None] | None = None,
        stopped: Callable[[], bool] | None = None,
    ) -> None:
        if last is not None and last < 1:
            raise EnsembleError(errno.EINVAL, f"last: expected 1 or more jobs, not {last}")
        self._last = last
        self._page = page or (lambda _: None)
        self.total = 0
        self._rows = rows
        self._more = others
        self._interrupted = interrupted
        self._stopped = stopped or (lambda: False)
        self.left_out = self.dropped = 0
        #: For the rows of an iteration that has not begun, if its length was requested before.
        self._ahead: list[list[JobRow]] | None = None

    def __iter__(self) -> Iterator[JobRow]:
        ahead: list[list[JobRow]] = []
        self._ahead = ahead
        return self._iterate(ahead)

    def _iterate(self, ahead: list[list[JobRow]]) -> Iterator[JobRow]:
        if self._ahead is ahead:
            self._ahead = None
        yield from ahead.pop() if ahead else self._requested_now()

    def __len__(self) -> int:
        rows = list(self._requested_now())
        if self._ahead is not None and not self._ahead:
            # `list` makes an iterator and requests its length: that is one request.
            self._ahead.append(rows)
        return len(rows)

    @overload
    def __getitem__(self, place: int) -> JobRow: ...

    @overload
    def __getitem__(self, place: slice) -> list[JobRow]: ...

    def __getitem__(self, place: int | slice) -> JobRow | list[JobRow]:
        rows = list(self)
        try:
            return rows[place]
        except TypeError:
            raise TypeError(
                f"expected the position of a job, not {place!r}: to_pandas() is a table with "
                "columns, and each job a mapping"
            ) from None
        except IndexError:
            jobs = counted(len(rows), "job")
            raise IndexError(f"there is no job {place!r}: jobs() has {jobs}") from None

    def _requested_now(self) -> Iterator[JobRow]:
        self.left_out = self.total = 0
        page = None if self._last is None else self._page(self._last)
        if page is not None:
            rows, self.total, self.left_out = page
            yield from rows
            return
        kept: deque[JobRow] | None = None if self._last is None else deque(maxlen=self._last)
        for row in self._every():
            self.total += 1
            if kept is None:
                yield row
            else:
                kept.append(row)
        yield from kept or ()

    def _every(self) -> Iterator[JobRow]:
        if self._interrupted:
            yield from self._rows()
            return
        attempts = AttemptFilter()
        for row in self._rows():
            if attempts.take(row):
                yield row
        if attempts.held and self._more is not None:
            # The choice may leave out the attempts that came after.
            for row in self._more():
                attempts.leave_out(row)
        stopped = bool(attempts.held) and self._stopped()
        yield from attempts.last(stopped=stopped)
        self.left_out = attempts.left_out

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
        if self.left_out:
            lines.append(f"  {left_out(self.left_out, 'jobs(interrupted=True)')}")
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
        if self._more is None:
            return ()
        return JobTable(self._more, interrupted=self._interrupted)

    def _table(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Return the columns, those that every job has without any, and the rows."""
        from flux_ensemble.metrics.job_row import OF_ALL

        jobs, others = list(self), list(self._others())
        rows = [dict(_fields(row)) for row in jobs]
        every = dict.fromkeys(name for row in others for name, _ in _fields(row))
        every |= dict.fromkeys(name for row in rows for name in row)
        # What jobs published stands in one place, also if the first one published nothing.
        fields = list(dict.fromkeys(name for row in (*others, *jobs) for name in row))
        columns = sorted(every, key=lambda name: fields.index(name.partition(".")[0]))
        for name in columns:
            if name.startswith("memo."):
                _measure(rows, name)
        return list(columns or OF_ALL), rows


def _measure(rows: Iterable[dict[str, Any]], name: str) -> None:
    """Have NaN and infinity, which are texts in JSON, be numbers in a column of numbers.

    >>> rows = [{"memo.loss": 0.5}, {}, {"memo.loss": "nan"}]
    >>> _measure(rows, "memo.loss")
    >>> rows
    [{'memo.loss': 0.5}, {}, {'memo.loss': nan}]
    """
    having = [row for row in rows if row.get(name) is not None]
    values = [measured(row[name]) for row in having]
    if all(type(value) in (int, float) for value in values):
        for row, value in zip(having, values, strict=True):
            row[name] = value


def _fields(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
