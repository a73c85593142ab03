"""Files of jobs: each form has all of them, and no file is there before it is whole."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from local_queue import mounted

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.results import export
from flux_ensemble.results.export import ExportError, write

JOBS: list[dict[str, Any]] = [
    {
        "id": number,
        "outcome": "success",
        "returncode": None,
        "params": {"t": 300 + number, "mode": "a,b\n"},
        "exception": {"type": None, "note": 'it said "no"'},
        "memo": {"fom": 0.5, f"only-{number}": [1, {"x": None}]},
    }
    for number in range(3)
]


def test_json_lines_are_the_jobs(tmp_path: Path) -> None:
    assert write(tmp_path / "a.jsonl", JOBS) == 3
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert list(map(json.loads, lines)) == JOBS


def test_csv_has_a_column_for_each_parameter_and_key(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", JOBS)
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], row["params.t"], row["params.mode"]) for row in rows] == [
        (str(number), str(300 + number), "a,b\n") for number in range(3)
    ]
    assert rows[0]["memo.only-0"] == '[1, {"x": null}]'
    assert rows[1]["memo.only-0"] == rows[0]["returncode"] == ""


def test_sqlite_has_a_table_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_BATCH", 2)
    odd = {**JOBS[0], "params": {'T"': 2**70, "t": True}}
    assert write(tmp_path / "a.sqlite", [*JOBS, odd]) == 4
    query = 'select id, "params.t", "memo.fom", "exception.note", "params.T""" from jobs'
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        found = database.execute(query).fetchall()
    assert found == [
        (0, 300, 0.5, 'it said "no"', None),
        (1, 301, 0.5, 'it said "no"', None),
        (2, 302, 0.5, 'it said "no"', None),
        (0, "true", 0.5, 'it said "no"', str(2**70)),
    ]


@pytest.mark.parametrize("first", [0, 1])
def test_the_order_of_columns_does_not_depend_on_the_order_of_jobs(
    tmp_path: Path, first: int
) -> None:
    """A job that failed at once has published nothing."""
    jobs: list[dict[str, Any]] = [
        {"id": 1, "params": {"x": 1}, "memo": {}, "memo_left_out": 0, "output": None},
        {"id": 2, "params": {"x": 2}, "memo": {"e": 3}, "memo_left_out": 0, "output": None},
    ]
    write(tmp_path / "a.csv", [jobs[first], jobs[1 - first]])
    head, *rows = (tmp_path / "a.csv").read_bytes().split(b"\n")
    assert head == b"id,params.x,memo.e,memo_left_out,output"
    assert sorted(rows) == [b"", b"1,1,,0,", b"2,2,3,0,"]


def values_of(path: Path, name: str, values: list[Any], **given: Any) -> list[str]:
    """The cells of a column, as they are in the file."""
    jobs = [{"id": number, "params": {name: value}} for number, value in enumerate(values)]
    write(path, jobs, **given)
    with path.open(newline="") as file:
        return [row[f"params.{name}"] for row in csv.DictReader(file)]


FORMULAS = ["=1+1", "+a", "-a", "@x", "\tx", "\rx", "\n=1", "\uff1dx", "'=x", "''-x"]


def test_a_text_that_a_spreadsheet_takes_for_a_formula_is_a_text_and_comes_back(
    tmp_path: Path,
) -> None:
    cells = values_of(tmp_path / "a.csv", "x", FORMULAS)
    assert cells == [f"'{text}" for text in FORMULAS]
    assert read_back(tmp_path / "a.csv", "x") == FORMULAS


def test_the_raw_text_can_be_had(tmp_path: Path) -> None:
    assert values_of(tmp_path / "a.csv", "x", FORMULAS, raw=True) == FORMULAS


def test_numbers_are_no_formulas(tmp_path: Path) -> None:
    numbers = [-1.5, -7, "-1.50", "+7", "-1e5", 1e-05]
    cells = ["-1.5", "-7", "-1.50", "+7", "-1e5", "1e-05"]
    assert values_of(tmp_path / "a.csv", "x", numbers) == cells


def read_back(path: Path, name: str) -> list[Any]:
    """The values of a parameter that is read from an export."""
    job = {"name": "a", "command": "x", "params": {name: {"file": path.name}}}
    spec = load_mapping({"jobs": [job]}, name="t", directory=str(path.parent))
    return [params[name] for _, params in spec.groups["a"].submission()]


def test_an_export_is_read_back_as_values_of_parameters(tmp_path: Path) -> None:
    values = ["NO", "1.10", 1.1, 300, "300", "1e5", "0x1F", "a,b", "", " a ", 'say "no"', "two\nl"]
    jobs = [{**JOBS[0], "id": number, "params": {"name": one}} for number, one in enumerate(values)]
    jobs[0] = {**jobs[0], "name": "a", "memo": {"barcode": 2**70, "": "x"}}
    write(tmp_path / "a.csv", jobs)
    found = read_back(tmp_path / "a.csv", "name")
    assert [(str(one), isinstance(one, str)) for one in found] == [
        (str(one), isinstance(one, str)) for one in values
    ]


def test_true_and_false_are_exported_as_commands_got_them(tmp_path: Path) -> None:
    assert values_of(tmp_path / "a.csv", "x", [True, False, "yes"]) == ["true", "false", "yes"]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([0.5, "nan", 2.5], "double", [0.5, math.nan, 2.5]),
        ([0.5, "NaN", None, 2], "double", [0.5, math.nan, None, 2.0]),
        ([1, "-inf", "Infinity"], "double", [1.0, -math.inf, math.inf]),
        ([2**60, 0.5], "double", [2.0**60, 0.5]),
        ([1, None, 2], "int64", [1, None, 2]),
        ([True, None, False], "bool", [True, None, False]),
        ([True, 1], "string", ["true", "1"]),
        ([0.5, "fast"], "string", ["0.5", "fast"]),
        (["nan", "inf"], "string", ["nan", "inf"]),
        ([2**70, 0.5], "string", [str(2**70), "0.5"]),
    ],
)
def test_a_column_of_numbers_stays_one(
    values: list[Any], kind: str, expected: list[Any], tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    jobs = [{"id": number, "memo": {"x": value}} for number, value in enumerate(values)]
    write(tmp_path / "a.parquet", jobs)
    column = parquet.read_table(tmp_path / "a.parquet").column("memo.x")
    assert str(column.type) == kind
    assert list(map(repr, column.to_pylist())) == list(map(repr, expected))


@pytest.mark.parametrize("first", [0, 1])
def test_files_of_ensembles_with_and_without_failures_can_be_read_as_one_table(
    first: int, tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    none: dict[str, Any] = {"signal": None, "ranks": None, "t_run": None, "interrupted": False}
    killed: dict[str, Any] = {"signal": 9, "ranks": "0", "t_run": 1.5, "interrupted": True}
    exceptions = {"type": None, "note": None}, {"type": "exec", "note": "killed"}
    files = [tmp_path / "none.parquet", tmp_path / "killed.parquet"]
    for path, row, exception in zip(files, (none, killed), exceptions, strict=True):
        write(path, [{"id": 1, **row, "exception": exception}])
    table = parquet.read_table([files[first], files[1 - first]])
    found = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert found == {
        "id": "int64",
        "signal": "int64",
        "ranks": "string",
        "t_run": "double",
        "interrupted": "bool",
        "exception.type": "string",
        "exception.note": "string",
    }
    assert sorted(table.column("signal").to_pylist(), key=str) == [9, None]


def test_whole_seconds_are_in_a_column_of_fractions(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write(tmp_path / "a.parquet", [{"id": 1, "duration": 60}, {"id": 2, "duration": 0}])
    column = parquet.read_table(tmp_path / "a.parquet").column("duration")
    assert (str(column.type), column.to_pylist()) == ("double", [60.0, 0.0])


def test_a_field_of_another_type_than_it_has_here_is_written_as_it_is(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write(tmp_path / "a.parquet", [{"id": 1, "signal": "SIGTERM"}, {"id": 2, "signal": None}])
    assert parquet.read_table(tmp_path / "a.parquet").column("signal").to_pylist() == [
        "SIGTERM",
        None,
    ]


def test_a_file_without_jobs_has_the_columns_that_every_job_has(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for suffix in (".csv", ".sqlite", ".parquet"):
        write(tmp_path / f"a{suffix}", [])
    with (tmp_path / "a.csv").open(newline="") as file:
        names = next(csv.reader(file))
    assert {"id", "group", "outcome", "exception.type"} < set(names)
    assert parquet.read_table(tmp_path / "a.parquet").column_names == names
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        found = database.execute("select * from jobs")
        assert [column[0] for column in found.description] == names


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".sqlite"])
def test_without_jobs_the_file_is_there_too(suffix: str, tmp_path: Path) -> None:
    assert write(tmp_path / f"a{suffix}", []) == 0
    assert (tmp_path / f"a{suffix}").exists()


def test_a_file_that_is_there_is_kept_unless_it_is_forced(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("mine")
    with pytest.raises(ExportError, match=r"a\.jsonl exists: --force replaces it"):
        write(path, JOBS)
    assert path.read_text() == "mine"
    write(path, JOBS, force=True)
    assert path.read_text() != "mine"


def test_an_unknown_suffix_is_a_sentence_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"one of: \.csv, \.json, \.jsonl, \.sqlite, \.parquet"):
        write(tmp_path / "a.xls", JOBS)


def test_parquet_without_pyarrow_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ExportError, match=r"needs pyarrow: .*install.*\[parquet\]"):
        write(tmp_path / "a.parquet", JOBS)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".sqlite"])
def test_a_full_disk_is_a_sentence_and_leaves_what_was_there(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    path = tmp_path / f"a{suffix}"
    path.write_text("mine")
    with pytest.raises(ExportError, match=r"cannot write .*: No space left on device"):
        write(path, JOBS, force=True)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".sqlite"])
def test_a_disk_that_gets_full_leaves_the_file_that_was_there_and_nothing_else(
    suffix: str, tmp_path: Path
) -> None:
    with mounted(tmp_path / "small", "size=256k"):
        path = tmp_path / "small" / f"a{suffix}"
        write(path, JOBS)
        before = path.read_bytes()
        read = 0

        def jobs() -> Iterator[dict[str, Any]]:
            nonlocal read
            for read in range(100_000):
                yield {"id": read, "params": {"x": "x" * 100}}

        with pytest.raises(ExportError, match=f"cannot write {path}: .*(space|full)"):
            write(path, jobs(), force=True)
        # It has not asked for more than what fits and is written at once.
        assert read < 30_000
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]


def test_a_directory_that_is_not_there_and_one_in_place_of_a_file_are_sentences(
    tmp_path: Path,
) -> None:
    with pytest.raises(ExportError, match=r"cannot write .*none/a\.csv: No such file or directory"):
        write(tmp_path / "none" / "a.csv", JOBS)
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(ExportError, match=r"a\.csv exists"):
        write(tmp_path / "a.csv", JOBS)
    with pytest.raises(ExportError, match=r"cannot write .*a\.csv: Is a directory"):
        write(tmp_path / "a.csv", JOBS, force=True)
    assert list(tmp_path.iterdir()) == [tmp_path / "a.csv"]


def test_jobs_that_cannot_be_had_are_no_fault_of_the_file(tmp_path: Path) -> None:
    def jobs() -> Iterator[dict[str, Any]]:
        yield from JOBS
        raise OSError(errno.EHOSTUNREACH, "the service is gone")

    with pytest.raises(OSError, match="the service is gone"):
        write(tmp_path / "a.csv", jobs())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl", "sqlite"])
def test_what_is_written_is_utf_8_in_any_locale(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    script = (
        "import sys; from pathlib import Path; from flux_ensemble.results.export import write\n"
        "write(Path(sys.argv[1]), [{'id': 1, 'params': {'gr\\u00f6\\u00dfe': '\\u00e9'}}])"
    )
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment = {**os.environ, **plain}
    subprocess.run([sys.executable, "-c", script, str(path)], env=environment, check=True)
    if suffix == "sqlite":
        with closing(sqlite3.connect(path)) as database:
            assert database.execute('select "params.größe" from jobs').fetchall() == [("é",)]
    elif suffix == "csv":
        assert path.read_text(encoding="utf-8").splitlines() == ["id,params.größe", "1,é"]
    else:
        lines = path.read_text(encoding="utf-8").strip("[]\n")
        assert json.loads(lines) == {"id": 1, "params": {"größe": "é"}}
