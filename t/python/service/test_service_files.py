"""Files that a document names are read by another process, which is given up after a while."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from loops import SelectorLoop

from flux_ensemble.document.loading import DocumentError, load_text
from flux_ensemble.service import files
from flux_ensemble.service.files import WantedFiles, read_files


def read(directory: Path, *names: str) -> dict[str, str] | str:
    taken: list[Any] = []
    with SelectorLoop() as loop:
        read_files(loop, names, str(directory), taken.append)
        loop.run(lambda: bool(taken))
        assert not loop.watching
    (result,) = taken
    return result


def test_texts_come_by_name_without_those_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    os.mkfifo(tmp_path / "pipe")
    found = read(tmp_path, "a.csv", "none.csv", "binary", "pipe", "/dev/zero", ".")
    assert found == {"a.csv": "x\n1\n"}


def test_what_gives_nothing_is_given_up_with_a_sentence_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    # As the kernel does on a mount whose server is gone.
    dead = 'text = time.sleep(1000) if name.endswith("dead.csv") else None'
    stuck = files._PROGRAM.replace("text = None", dead).replace("import json", "import time, json")
    monkeypatch.setattr(files, "_PROGRAM", stuck)
    taken: list[Any] = []
    with SelectorLoop() as loop:
        names = ["a.csv", "dead.csv", "a.csv"]
        reading = files._Reading(loop, names, str(tmp_path), taken.append)
        loop.run(lambda: b"dead.csv" in reading._said)
        # Its time is over.
        reading._late()
        assert not loop.watching
    (found,) = taken
    assert isinstance(found, str)
    assert found.startswith(f"cannot read 'dead.csv': it gave nothing within {files.SECONDS:g} s")
    # It was killed, and is reaped at the latest when files are read again.
    reading._process.wait()
    assert read(tmp_path, "a.csv") == {"a.csv": "x\n1\n"}
    assert not files._given_up


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_file_that_never_ends_is_no_file_of_a_document(tmp_path: Path) -> None:
    for name in ("/proc/kmsg", "/dev/zero", "/dev/stdin"):
        text = f"jobs: [{{name: a, command: 'x {{p}}', params: {{p: {{file: {name}}}}}}}]"
        with pytest.raises(DocumentError, match=re.escape(name)):
            load_text(text, name="test", directory=str(tmp_path))


def test_a_first_look_finds_the_files_of_a_document_and_reads_none(tmp_path: Path) -> None:
    text = """
    jobs:
      - {name: a, command: "x {p}", params: {p: {file: a.csv}}}
      - {name: b, command: "x {p}", params: {p: {file: b.csv}}}
    """
    wanted = WantedFiles()

    def look() -> None:
        load_text(text, name="test", directory=str(tmp_path), files=wanted)

    found: list[str] = []
    for _ in range(2):
        with suppress(DocumentError):
            look()
        found += wanted.missing
        wanted.take({name: "p\n1\n" for name in wanted.missing if name == "a.csv"})
    assert sorted(found) == ["a.csv", "b.csv"]
    with pytest.raises(DocumentError, match=r"cannot read 'b.csv': No such file"):
        look()
    assert not wanted.missing
