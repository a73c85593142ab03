"""A second user of this machine: a real one, who has nothing of ours and may attack."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SecondUser:
    """A user who was made for tests.

    Args:
        name: the user's name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.uid = pwd.getpwnam(name).pw_uid

    def give(self, path: Path) -> Path:
        """Make a file, a directory or a link that user's."""
        os.lchown(path, self.uid, -1)
        return path

    def link(self, path: Path, target: Path) -> Path:
        """A symbolic link that the user has made."""
        path.symlink_to(target)
        return self.give(path)

    def file(self, path: Path, text: str, mode: int = 0o644) -> Path:
        """A file that the user has written."""
        path.write_text(text)
        path.chmod(mode)
        return self.give(path)

    def run_python(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program in Python as that user, with nothing but what everybody can read."""
        found = shutil.which("python3", path="/usr/bin:/usr/local/bin")
        command = [found or sys.executable, "-I", "-c", program, *arguments]
        return subprocess.run(
            command,
            user=self.uid,
            group=pwd.getpwuid(self.uid).pw_gid,
            extra_groups=[],
            env={"PATH": "/usr/bin:/bin"},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
        )


class NoSecondUserError(Exception):
    """There cannot be a second user here; it says why."""


@contextmanager
def made_user() -> Iterator[SecondUser]:
    """Make a user.

    Raises:
        NoSecondUserError: it cannot be made.
    """
    if os.geteuid() != 0:
        raise NoSecondUserError("second user: needs root, to make one")
    if shutil.which("useradd") is None:
        raise NoSecondUserError("second user: needs useradd, to make one")
    name = f"fe-test-{os.getpid()}"
    made = subprocess.run(
        ["useradd", "--no-create-home", "--home-dir", "/", "--shell", "/bin/false", name],
        capture_output=True,
        text=True,
    )
    if made.returncode != 0:
        raise NoSecondUserError(f"second user: useradd: {made.stderr.strip()}")
    try:
        yield SecondUser(name)
    finally:
        subprocess.run(["userdel", name], check=True, capture_output=True)


@contextmanager
def second_user() -> Iterator[SecondUser]:
    """Make a user; skips the test, by name, where there cannot be one."""
    try:
        with made_user() as user:
            yield user
    except NoSecondUserError as reason:
        pytest.skip(str(reason))
