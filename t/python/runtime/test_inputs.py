"""The files that are linked into the working directory of a job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flux_ensemble.document.jobspec import Links
from flux_ensemble.runtime.outputs import link


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory with some files to link."""
    for name in ("a.cif", "b/a.cif", "c.cif"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "chain").symlink_to("a.cif")
    (tmp_path / "dangling").symlink_to("gone")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "c.cif").write_text("another")
    (tmp_path / "run" / "d.cif").symlink_to(tmp_path / "gone")
    (tmp_path / "d.cif").write_text("")
    return tmp_path


def linked(
    work: Path, *names: str, into: str = "run", outputs: frozenset[str] = frozenset()
) -> str | None:
    """Link files of the directory into one below it; the reason without the directory's name."""
    paths = tuple(f"{work}/{name}" for name in names)
    reason = link(Links(paths, f"{work}/{into}", frozenset(f"{work}/{one}" for one in outputs)))
    return reason and reason.replace(f"{work}/", "")


def test_files_and_directories_are_linked_and_links_followed(work: Path) -> None:
    assert linked(work, "a.cif", "b/", "chain", into="new/run") is None
    assert (work / "new" / "run" / "b" / "a.cif").read_text() == "b/a.cif"
    assert os.readlink(work / "new" / "run" / "a.cif") == f"{work}/a.cif"
    assert (work / "new" / "run" / "chain").read_text() == "a.cif"


def test_what_is_linked_already_or_the_file_itself_is_left_alone(work: Path) -> None:
    for _ in range(2):
        assert linked(work, "a.cif") is None
    assert linked(work, "run/c.cif") is None
    assert linked(work, "a.cif", into=".") is None
    assert not (work / "a.cif").is_symlink()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none.cif", "it does not exist"),
        ("none/a.cif", "it does not exist"),
        ("a.cif/b", "Not a directory"),
        ("dangling", "it is a link to nothing"),
        ("loop", "Too many levels of symbolic links"),
        ("c.cif", "'run/c.cif' is there already, and is another file"),
        ("d.cif", "'run/d.cif' is there already, and is another file"),
        ("run", "it is the working directory of the job"),
        ("b/..", "this is no name of a file"),
        ("x" * 300, "File name too long"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_what_cannot_be_linked_has_a_reason_and_nothing_else_is_linked(
    work: Path, name: str, reason: str
) -> None:
    before = sorted(os.listdir(work / "run"))
    found = linked(work, name, "a.cif")
    assert found is not None
    assert found.startswith("cannot link the input ")
    assert found.endswith(f": {reason}")
    assert sorted(os.listdir(work / "run")) == before


def test_two_inputs_with_one_name_are_told(work: Path) -> None:
    assert linked(work, "a.cif", "b/a.cif") == (
        "cannot link the input 'b/a.cif': the input 'a.cif' has the same name"
    )
    assert linked(work, "chain", "chain") is None


@pytest.mark.parametrize("output", ["run/a.cif", "a.cif"])
def test_no_job_writes_its_output_into_an_input(work: Path, output: str) -> None:
    assert linked(work, "a.cif", outputs=frozenset({output})) == (
        "cannot link the input 'a.cif': the job would write its output there"
    )


def test_a_directory_that_cannot_be_made_is_the_reason(work: Path) -> None:
    assert linked(work, "a.cif", into="c.cif/run") == (
        "cannot make the working directory 'c.cif/run': Not a directory"
    )
