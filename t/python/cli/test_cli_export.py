"""Files of jobs: each form has all of them, and no file is there before it is whole."""

from __future__ import annotations

import csv
import errno
import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from local_queue import mounted

from flux_ensemble.cli.display import export
from flux_ensemble.cli.display.export import ExportError, write

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
        (0, 1, 0.5, 'it said "no"', str(2**70)),
    ]


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
    with pytest.raises(ExportError, match=r"one of: \.csv, \.jsonl, \.sqlite, \.parquet"):
        write(tmp_path / "a.xls", JOBS)


def test_parquet_without_pyarrow_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ExportError, match=r"pip install 'flux-ensemble\[parquet\]'"):
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
