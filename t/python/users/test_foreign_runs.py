"""Runs of another user of the machine, looked at by root: read is what is that user's."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from local_queue import Run
from second_user import SecondUser, second_user

from flux_ensemble.cli.main import run_command
from flux_ensemble.cli.top.source import Source
from flux_ensemble.queues.local.client import LocalClient

DOCUMENT: dict[str, Any] = {
    "jobs": [{"name": "a", "command": ["sh", "-c", "echo of the job; exit 3"]}],
    "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
}
SECRET = "root:a secret of root"


@pytest.fixture(scope="module")
def other() -> Iterator[SecondUser]:
    with second_user() as user:
        yield user


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("completed")
    Run(directory, DOCUMENT).end()
    return directory / "state"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "shadow"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


@pytest.fixture
def foreign(completed: Path, tmp_path: Path, other: SecondUser) -> Path:
    """The directory of an ensemble that has completed, all of it another user's."""
    shutil.copytree(completed, tmp_path / "state")
    for directory, names, files in os.walk(tmp_path / "state"):
        for name in (".", *names, *files):
            os.lchown(os.path.join(directory, name), other.uid, -1)
    return tmp_path / "state" / "test"


def say_output(foreign: Path, **paths: str) -> None:
    """Have the files of the run say where its job wrote."""
    file = foreign / "jobs"
    (job,) = map(json.loads, file.read_text().splitlines())
    owner = file.stat().st_uid
    file.write_text(json.dumps({**job, **paths}) + "\n")
    os.chown(file, owner, -1)


def printed(foreign: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    run_command([*words, "--queue", "local", "--state-dir", str(foreign.parent)])
    out = capsys.readouterr()
    return out.out + out.err


def in_output(foreign: Path, capsys: pytest.CaptureFixture[str]) -> str:
    return printed(foreign, capsys, "output", "test", "1")


def in_failures(foreign: Path, capsys: pytest.CaptureFixture[str]) -> str:
    return printed(foreign, capsys, "failures", "test")


def in_report(foreign: Path, capsys: pytest.CaptureFixture[str]) -> str:
    page = foreign.parent.parent / "page.html"
    printed(foreign, capsys, "report", "test", "-o", str(page))
    return page.read_text()


def in_top(foreign: Path, capsys: pytest.CaptureFixture[str]) -> str:
    source = Source(LocalClient(foreign.parent), "test")
    source.look()
    ((job,), _) = source.jobs(None, None)
    return source.output(job)


SHOWN: dict[str, Callable[[Path, pytest.CaptureFixture[str]], str]] = {
    "output": in_output,
    "failures": in_failures,
    "report": in_report,
    "top": in_top,
}


@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)
@pytest.mark.parametrize("linked", [False, True], ids=["named", "through a link"])
def test_a_file_of_root_is_not_shown_as_the_output_of_another_users_job(
    foreign: Path,
    secret: Path,
    other: SecondUser,
    capsys: pytest.CaptureFixture[str],
    show: Callable[[Path, pytest.CaptureFixture[str]], str],
    linked: bool,
) -> None:
    path = other.link(foreign / "output" / "trap", secret) if linked else secret
    say_output(foreign, output=str(path), error=str(path))
    assert SECRET not in show(foreign, capsys)


@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)
def test_what_another_users_job_wrote_is_shown_to_root(
    foreign: Path,
    capsys: pytest.CaptureFixture[str],
    show: Callable[[Path, pytest.CaptureFixture[str]], str],
) -> None:
    kept = str(foreign / "output" / "1.out")
    say_output(foreign, output=kept, error=kept)
    assert "of the job" in show(foreign, capsys)


def test_it_is_said_whose_the_file_is(
    foreign: Path, secret: Path, other: SecondUser, capsys: pytest.CaptureFixture[str]
) -> None:
    say_output(foreign, output=str(secret), error=str(secret))
    said = in_output(foreign, capsys)
    assert f"{str(secret)!r} belongs to user 0, and not to user {other.uid}, whose job" in said


@pytest.mark.parametrize("name", ["eventlog", "jobs", "status.json"])
def test_state_that_is_a_link_or_a_file_of_root_is_not_read(
    foreign: Path, other: SecondUser, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words = {"eventlog": "log", "jobs": "jobs", "status.json": "status"}
    # What a hard link would give where the kernel lets anybody make one.
    os.chown(foreign / name, 0, -1)
    said = printed(foreign, capsys, words[name], "test")
    assert f"belongs to user 0 and not to user {other.uid}, as its directory does" in said
    (foreign / name).rename(foreign / "moved")
    other.link(foreign / name, foreign / "moved")
    said = printed(foreign, capsys, words[name], "test")
    assert "is a symbolic link, where a file of the local queue belongs" in said
