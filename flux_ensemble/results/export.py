"""Export of jobs to files: CSV, JSON lines, SQLite, Parquet.

In tables the parameters of a job are columns `params.NAME`, and the keys of its memo `memo.NAME`.
Their names are complete only when the last job has been read. So CSV and Parquet are written from a
copy on disk. A file appears only once it is complete.
"""

from __future__ import annotations

import errno
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from flux_ensemble.client import EnsembleError
from flux_ensemble.extras import install_command
from flux_ensemble.files import replacing
from flux_ensemble.metrics.job_row import COLUMNS, OF_ALL
from flux_ensemble.results.best import best_of
from flux_ensemble.results.hosts import Target
from flux_ensemble.scalars import as_text, measured

Job = Mapping[str, Any]

#: Most columns; further ones are left out. The limit of SQLite is 2000.
MAX_COLUMNS = 1000

#: Number of jobs that are written at once.
_BATCH = 10_000

#: The places of the fields of a job, by the first parts of their names.
_PLACES = {
    name: place
    for place, name in enumerate(dict.fromkeys(column.partition(".")[0] for column in COLUMNS))
}

#: Fields of a job whose own keys become columns.
_SPREAD = frozenset(
    field.name.partition(".")[0]
    for field in COLUMNS.values()
    if field.type is dict or "." in field.name
)


class ExportError(EnsembleError):
    """A file cannot be written; the text is one sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(errno.EIO, sentence)


def write(path: Path, jobs: Iterable[Job], *, force: bool = False, raw: bool = False) -> int:
    """Write jobs to a file, in the format of its suffix.

    Args:
        path: the file.
        jobs: as `Client.jobs` returns them.
        force: replace an existing file.
        raw: in CSV, leave texts that a spreadsheet takes for formulas as they are.

    Returns:
        The number of jobs.

    Raises:
        ExportError: the suffix is unknown, the file exists, or cannot be written.
        OSError: the jobs cannot be had.
    """
    writer = check(path)
    if raw and writer is _write_csv:
        writer = partial(_write_csv, raw=True)
    if path.exists() and not force:
        raise ExportError(f"{path} exists: --force replaces it")
    counted = _Counted(jobs)
    try:
        with replacing(path) as beside:
            writer(beside, counted)
    except OSError as error:
        if error is counted.error:
            raise
        raise ExportError(f"cannot write {path}: {error.strerror}") from None
    except sqlite3.Error as error:
        raise ExportError(f"cannot write {path}: {error}") from None
    return counted.count


def write_best(target: Target, name: str, path: Path, *, force: bool = False) -> int:
    """Write the best jobs and trials of an ensemble to a file; return their number.

    Raises:
        ExportError: the file cannot be written.
        EnsembleError: the ensemble keeps no best jobs.
    """
    return write(path, best_of(target, name, target.label), force=force)


def check(path: Path) -> Callable[[Path, Iterable[Job]], None]:
    """Return the writer of a file, by its suffix.

    Raises:
        ExportError: the suffix is unknown, or the package for such files is not installed.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise ExportError(f"{path}: expected a file that ends in one of: {', '.join(WRITERS)}")
    if path.suffix.lower() == ".parquet":
        _require_parquet()
    return writer


class _Counted:
    """Jobs, counted during the iteration; `error` is the exception that ended it."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = iter(jobs)
        self.count = 0
        self.error: OSError | None = None

    def __iter__(self) -> Iterator[Job]:
        return self

    def __next__(self) -> Job:
        try:
            job = next(self._jobs)
        except OSError as error:
            self.error = error
            raise
        self.count += 1
        return job


def flat(job: Job) -> dict[str, Any]:
    """Return a job as a row of a table."""
    row: dict[str, Any] = {}
    for name, value in job.items():
        if name in _SPREAD:
            for key, item in value.items():
                row[f"{name}.{key}"] = item
        else:
            row[name] = value
    return row


def _write_lines(path: Path, jobs: Iterable[Job]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for job in jobs:
            file.write(json.dumps(job) + "\n")


def _write_json(path: Path, jobs: Iterable[Job]) -> None:
    """Write one array, with a line for each job."""
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number, job in enumerate(jobs):
            file.write(f"{',' if number else ''}\n{json.dumps(job)}")
        file.write("\n]\n")


def _write_csv(path: Path, jobs: Iterable[Job], *, raw: bool = False) -> None:
    from flux_ensemble.document.points import cell_of

    with (
        _spool(path, jobs) as (columns, rows),
        path.open("w", newline="", encoding="utf-8") as file,
    ):
        file.write(",".join(map(cell_of, columns)) + "\n")
        for row in rows:
            cells = (cell_of(_scalar(row.get(name)), raw=raw) for name in columns)
            file.write(",".join(cells) + "\n")


def _write_sqlite(path: Path, jobs: Iterable[Job]) -> None:
    database = sqlite3.connect(path, isolation_level=None)
    try:
        # An incomplete file is discarded, so no rollback is needed.
        database.execute("pragma journal_mode = off")
        database.execute("pragma synchronous = off")
        database.execute('create table jobs ("id" integer)')
        database.execute("begin")
        #: Each column, by its case-folded name, since SQLite's names have no case; and the names
        #: seen so far.
        columns = {"id": "id"}
        seen: dict[str, None] = {}
        for batch in _batches(jobs):
            rows = [flat(job) for job in batch]
            for row in rows:
                if row.keys() <= seen.keys():
                    continue
                for name in row:
                    if name.casefold() not in columns and len(columns) < MAX_COLUMNS:
                        columns[name.casefold()] = name
                        database.execute(f"alter table jobs add column {_quoted(name)}")
                seen.update(dict.fromkeys(row))
            names = list(columns.values())
            marks = ", ".join("?" * len(names))
            database.executemany(
                f"insert into jobs ({', '.join(map(_quoted, names))}) values ({marks})",
                ([_for_sqlite(name, row.get(name)) for name in names] for row in rows),
            )
        if not seen:
            for name in OF_ALL[1:]:
                database.execute(f"alter table jobs add column {_quoted(name)}")
        database.execute("commit")
    finally:
        database.close()


def _write_parquet(path: Path, jobs: Iterable[Job]) -> None:
    import pyarrow
    import pyarrow.parquet

    with _spool(path, jobs) as (columns, rows):
        values: dict[str, list[Any]] = {name: [] for name in columns}
        for row in rows:
            for name in columns:
                values[name].append(_scalar(row.get(name)))
        arrays = {name: _array(pyarrow, name, column) for name, column in values.items()}
        pyarrow.parquet.write_table(pyarrow.table(arrays), path)


def _array(pyarrow: Any, name: str, column: list[Any]) -> Any:
    """Return a column of numbers, of booleans, or of texts, to which mixed types are converted.

    A field of every job has its own type, also without a value: the files of several ensembles can
    be read as one table only where their types agree.
    """
    if name in COLUMNS:
        of = COLUMNS[name].type
        types = {
            bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64(),
            str: pyarrow.string(),
        }  # fmt: skip
        fitting = {of, int} if of is float else {of}
        if of in types and {type(value) for value in column} <= {*fitting, type(None)}:
            return pyarrow.array(column, types[of])
    numbers = _floats(column)
    if numbers is not None:
        return pyarrow.array(numbers, pyarrow.float64())
    kinds = {type(value) for value in column} - {type(None)}
    if len(kinds) > 1:
        column = [None if value is None else as_text(value) for value in column]
    return pyarrow.array(column)


def _floats(column: list[Any]) -> list[float | None] | None:
    """Return a column of numbers as floats if some are fractions or not finite, else None.

    Values that are not finite are published as texts, because JSON has no numbers for them.
    """
    kinds = {type(value) for value in column} - {type(None)}
    if not (kinds <= {int, float, str} and kinds & {int, float}) or kinds == {int}:
        return None
    numbers = [measured(value) for value in column]
    if any(isinstance(value, str) for value in numbers):
        return None
    return [None if value is None else float(value) for value in numbers]


def _for_sqlite(name: str, value: Any) -> Any:
    """Return a value for SQLite; true and false of a parameter do not become 1 and 0."""
    of_params = isinstance(value, bool) and name.startswith("params.")
    return as_text(value) if of_params else _scalar(value)


def _require_parquet() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ExportError(
            f"Parquet needs pyarrow: {install_command('parquet')}, or write .csv, .jsonl or .sqlite"
        ) from None


#: Writers of files, by suffix.
WRITERS: Mapping[str, Callable[[Path, Iterable[Job]], None]] = {
    ".csv": _write_csv,
    ".json": _write_json,
    ".jsonl": _write_lines,
    ".sqlite": _write_sqlite,
    ".parquet": _write_parquet,
}


@contextmanager
def _spool(path: Path, jobs: Iterable[Job]) -> Iterator[tuple[list[str], Iterator[dict[str, Any]]]]:
    """Yield the columns of jobs, and their rows, from a copy beside a file."""
    columns: dict[str, None] = {}
    with path.with_name("copy").open("w+", encoding="utf-8") as file:
        for job in jobs:
            row = flat(job)
            columns.update(dict.fromkeys(row))
            file.write(json.dumps(row) + "\n")
        file.seek(0)
        yield _ordered(columns or OF_ALL)[:MAX_COLUMNS], map(json.loads, file)


def _ordered(columns: Iterable[str]) -> list[str]:
    """Return columns in their order: those of jobs in that of a row, whichever job comes first."""
    places = {column: _PLACES.get(column.partition(".")[0]) for column in columns}
    if None in places.values():
        return list(places)
    return sorted(places, key=lambda column: places[column] or 0)


def _batches(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    batch: list[Job] = []
    for job in jobs:
        batch.append(job)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    yield batch


def _scalar(value: Any) -> Any:
    """Return a value as a cell; lists, mappings and integers of more than 64 bits become JSON."""
    kind = type(value)
    if kind is int:
        return value if -(2**63) <= value < 2**63 else json.dumps(value)
    return json.dumps(value) if kind is list or kind is dict else value


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
