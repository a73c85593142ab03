"""Files that another user of the machine has laid out: as a trap, or as the keys of a door."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from second_user import SecondUser, second_user

from flux_ensemble.cli.main import run_command
from flux_ensemble.cli.session.results import Summary
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.exporter.server import ExporterError, listen, write_textfile
from flux_ensemble.files import ForeignFile, create, open_directory, read, replacing, writing
from flux_ensemble.k8s.grpc.tls import TlsError
from flux_ensemble.results.export import ExportError, write
from flux_ensemble.runtime.recording import Recorder
from flux_ensemble.tokens import TokenError, read_or_make_token, read_token

DOCUMENT: dict[str, Any] = {"name": "a", "jobs": [{"name": "a", "command": "true"}]}
TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def other() -> Iterator[SecondUser]:
    with second_user() as user:
        yield user


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory like /tmp."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_text("precious")
    return path


# -- what is written --------------------------------------------------------------------------


def record(path: Path) -> None:
    Recorder(path, load_mapping(DOCUMENT), DOCUMENT)


def start_document(path: Path) -> None:
    assert run_command(["init", "--force", "hello-world", str(path)]) == 0


def write_new(path: Path) -> None:
    with writing(path) as file:
        file.write("new")


WRITERS: dict[str, Callable[[Path], None]] = {
    "a recording": record,
    "a document of init": start_document,
    "any text": write_new,
}


@pytest.mark.parametrize("written", WRITERS.values(), ids=WRITERS)
def test_nothing_is_written_through_the_link_of_another_user(
    other: SecondUser, shared: Path, precious: Path, written: Callable[[Path], None]
) -> None:
    trap = other.link(shared / "out", precious)
    with pytest.raises((ForeignFile, AssertionError)):
        written(trap)
    assert precious.read_text() == "precious"


def test_a_summary_is_not_written_through_the_link_of_another_user(
    other: SecondUser, shared: Path, precious: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trap = other.link(shared / "out", precious)
    Summary(trap).write(0)
    assert precious.read_text() == "precious"
    said = capsys.readouterr().err
    assert f"cannot write the summary {str(trap)!r}: 'out' in {trap} is a symbolic link of" in said


def test_nothing_is_written_below_the_link_of_another_user(
    other: SecondUser, shared: Path, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    trap = other.link(shared / "results", tmp_path / "home")
    with pytest.raises(ExportError, match="symbolic link of user"):
        write(trap / "jobs.csv", [])
    with pytest.raises(ExporterError, match="symbolic link of user"):
        write_textfile(trap / "a.prom", lambda: ())
    with pytest.raises(ForeignFile), replacing(trap / "report.html"):
        pass
    assert os.listdir(tmp_path / "home") == []


def test_a_file_that_another_user_has_laid_out_where_everybody_can_is_not_written_to(
    other: SecondUser, shared: Path
) -> None:
    trap = other.file(shared / "record.jsonl", "mine", 0o666)
    with pytest.raises(ForeignFile, match="in a directory where everybody can make files"):
        record(trap)
    assert trap.read_text() == "mine"
    os.mkfifo(shared / "fifo")
    other.give(shared / "fifo")
    with pytest.raises(ForeignFile):
        create(shared / "fifo")


def test_links_of_the_user_and_files_of_a_team_are_written_to(
    other: SecondUser, tmp_path: Path, precious: Path
) -> None:
    (tmp_path / "own").symlink_to(precious)
    with writing(tmp_path / "own") as file:
        file.write("new")
    assert precious.read_text() == "new"
    team = tmp_path / "team"
    team.mkdir(mode=0o770)
    with writing(other.file(team / "notes", "old", 0o660)) as file:
        file.write("new")
    assert (team / "notes").read_text() == "new"


def test_standard_output_and_open_descriptors_are_written_to(tmp_path: Path) -> None:
    reading, writing_end = os.pipe()
    with writing(f"/dev/fd/{writing_end}") as file:
        file.write("through a pipe")
    os.close(writing_end)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "through a pipe"
    with writing("/dev/null") as file:
        file.write("gone")


# -- what is read -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o644], ids=oct)
def test_a_token_that_another_user_has_laid_out_opens_nothing(
    other: SecondUser, shared: Path, mode: int
) -> None:
    file = other.file(shared / "token", TOKEN, mode)
    with pytest.raises(TokenError, match=f"belongs to user {other.uid}"):
        read_token(file)
    with pytest.raises(TokenError, match=f"belongs to user {other.uid}"):
        read_or_make_token(file)
    with pytest.raises(ExporterError, match=f"belongs to user {other.uid}"):
        listen("localhost:0", lambda: (), file)


def test_a_token_is_not_made_or_found_through_the_link_of_another_user(
    other: SecondUser, shared: Path, tmp_path: Path
) -> None:
    trap = other.link(shared / "token", tmp_path / "made")
    with pytest.raises(TokenError, match="symbolic link of user"):
        read_or_make_token(trap)
    assert not (tmp_path / "made").exists()
    (tmp_path / "made").write_text(TOKEN)
    (tmp_path / "made").chmod(0o600)
    with pytest.raises(TokenError, match="symbolic link of user"):
        read_token(trap)


@pytest.mark.parametrize("field", ["cert", "key", "ca"])
def test_keys_and_certificates_of_another_user_are_refused(
    other: SecondUser, tmp_path: Path, field: str
) -> None:
    mine = Authority(tmp_path).issue("mine")
    mine.check()
    copy = tmp_path / "copy.pem"
    copy.write_bytes(getattr(mine, field).read_bytes())
    foreign = dataclasses.replace(mine, **{field: other.give(copy)})
    with pytest.raises(TlsError, match=f"belongs to user {other.uid}"):
        foreign.check()
    link = dataclasses.replace(
        mine, **{field: other.link(tmp_path / "link.pem", getattr(mine, field))}
    )
    with pytest.raises(TlsError, match="symbolic link of user"):
        link.check()


def test_a_secret_of_kubernetes_is_read_through_its_links(tmp_path: Path) -> None:
    """A Secret is mounted as links to links to files, all of them root's or the user's."""
    (tmp_path / "..2024").mkdir()
    (tmp_path / "..2024" / "token").write_text(TOKEN)
    (tmp_path / "..2024" / "token").chmod(0o400)
    (tmp_path / "..data").symlink_to("..2024")
    (tmp_path / "token").symlink_to("..data/token")
    assert read_token(tmp_path / "token") == TOKEN


def test_links_that_lead_nowhere_or_in_a_circle_name_the_path(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "nowhere").symlink_to("there/is/nothing")
    for path in (tmp_path / "circle", tmp_path / "nowhere", tmp_path / "circle" / "below"):
        with pytest.raises(OSError, match=str(path)):
            read(path, limit=1)
        with pytest.raises(OSError, match=str(path)):
            os.close(open_directory(path))


def test_a_report_takes_the_place_of_the_file_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    assert write(path, [{"id": 1}, {"id": 2}]) == 2
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == [1, 2]
    assert os.listdir(tmp_path) == ["jobs.jsonl"]
