"""Writes jobs to files: CSV, JSON lines, SQLite, Parquet.

In tables the parameters of a job are columns `params.NAME`, and the keys of its memo `memo.NAME`.
Which ones there are is known when the last job was read: so CSV and Parquet are written from a copy
on disk. No file is there before it is whole.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from flux_ensemble.files import replacing
from flux_ensemble.metrics.job_row import COLUMNS
from flux_ensemble.scalars import as_text

Job = Mapping[str, Any]

#: Most columns; what is beyond is left out. SQLite takes 2000.
MAX_COLUMNS = 1000

#: Jobs that are written at once.
_BATCH = 10_000

#: Fields of a job whose own keys become columns.
_SPREAD = frozenset(
    field.name.partition(".")[0]
    for field in COLUMNS.values()
    if field.type is dict or "." in field.name
)

#: Numbers that are not finite, as texts that `float` takes.
_NOT_FINITE = re.compile("[-+]?(nan|inf(inity)?)", re.IGNORECASE)


class ExportError(Exception):
    """A file cannot be written; one sentence."""


def write(path: Path, jobs: Iterable[Job], *, force: bool = False, raw: bool = False) -> int:
    """Write jobs to a file, whose suffix says in which form.

    Args:
        path: the file.
        jobs: as `Client.jobs` gives them.
        force: replace the file that is there.
        raw: in CSV, leave texts that a spreadsheet takes for formulas as they are.

    Returns:
        How many there were.

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


def check(path: Path) -> Callable[[Path, Iterable[Job]], None]:
    """What writes a file of that name.

    Raises:
        ExportError: the suffix is unknown, or what writes such a file is not installed.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise ExportError(f"{path}: expected a file that ends in one of: {', '.join(WRITERS)}")
    if path.suffix.lower() == ".parquet":
        _require_parquet()
    return writer


class _Counted:
    """Jobs, counted as they go by; `error` is why there are no more."""

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
    """A job as a row of a table."""
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
    """One array, a line for each job."""
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
        file.write(",".join(map(cell_of, columns)) + "\r\n")
        for row in rows:
            cells = (cell_of(_scalar(row.get(name)), raw=raw) for name in columns)
            file.write(",".join(cells) + "\r\n")


def _write_sqlite(path: Path, jobs: Iterable[Job]) -> None:
    database = sqlite3.connect(path, isolation_level=None)
    try:
        # If it is not whole it is not there, so nothing has to be undone.
        database.execute("pragma journal_mode = off")
        database.execute("pragma synchronous = off")
        database.execute('create table jobs ("id" integer)')
        database.execute("begin")
        #: Each column, by the name in which letters have no case; and the names seen so far.
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
        arrays = {name: _array(pyarrow, column) for name, column in values.items()}
        pyarrow.parquet.write_table(pyarrow.table(arrays), path)


def _array(pyarrow: Any, column: list[Any]) -> Any:
    """A column: of numbers, of booleans, or of texts, which any other one becomes."""
    numbers = _floats(column)
    if numbers is not None:
        return pyarrow.array(numbers, pyarrow.float64())
    kinds = {type(value) for value in column} - {type(None)}
    if len(kinds) > 1:
        column = [None if value is None else as_text(value) for value in column]
    return pyarrow.array(column)


def _floats(column: list[Any]) -> list[float | None] | None:
    """A column of numbers of which some are fractions or not finite, as floats; None if it is none.

    What is not finite is published as a text, because JSON has no number for it.
    """
    kinds = {type(value) for value in column} - {type(None)}
    if not (kinds <= {int, float, str} and kinds & {int, float}) or kinds == {int}:
        return None
    if any(isinstance(value, str) and not _NOT_FINITE.fullmatch(value) for value in column):
        return None
    return [None if value is None else float(value) for value in column]


def _for_sqlite(name: str, value: Any) -> Any:
    """A value as SQLite has it; of a parameter, true and false are not 1 and 0."""
    of_params = isinstance(value, bool) and name.startswith("params.")
    return as_text(value) if of_params else _scalar(value)


def _require_parquet() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ExportError(
            "Parquet needs pyarrow: pip install 'flux-ensemble[parquet]', or write .csv, .jsonl or "
            ".sqlite"
        ) from None


#: What writes a file, by its suffix.
WRITERS: Mapping[str, Callable[[Path, Iterable[Job]], None]] = {
    ".csv": _write_csv,
    ".json": _write_json,
    ".jsonl": _write_lines,
    ".sqlite": _write_sqlite,
    ".parquet": _write_parquet,
}


@contextmanager
def _spool(path: Path, jobs: Iterable[Job]) -> Iterator[tuple[list[str], Iterator[dict[str, Any]]]]:
    """The columns of jobs, and their rows, from a copy beside a file."""
    columns: dict[str, None] = {}
    with path.with_name("copy").open("w+", encoding="utf-8") as file:
        for job in jobs:
            row = flat(job)
            columns.update(dict.fromkeys(row))
            file.write(json.dumps(row) + "\n")
        file.seek(0)
        yield list(columns)[:MAX_COLUMNS], map(json.loads, file)


def _batches(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    batch: list[Job] = []
    for job in jobs:
        batch.append(job)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    yield batch


def _scalar(value: Any) -> Any:
    """A value as a cell; lists and mappings are JSON, and so are integers of more than 64 bits."""
    kind = type(value)
    if kind is int:
        return value if -(2**63) <= value < 2**63 else json.dumps(value)
    return json.dumps(value) if kind is list or kind is dict else value


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
