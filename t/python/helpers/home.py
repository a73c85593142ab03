"""A directory with a document, its jobs, and a state directory, for runs on the local queue."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from flux_ensemble.queues.local.client import LocalClient


class Home:
    """The directory.

    Args:
        path: of it.
        files: what is in it, by name.
    """

    def __init__(self, path: Path, files: Mapping[str, str]) -> None:
        self.path = path
        for name, text in files.items():
            (path / name).write_text(text)
        self.client = LocalClient(path / "state")

    def command(self, command: str, *words: str) -> list[str]:
        """The words of a command that has the state directory."""
        start = [sys.executable, "-m", "flux_ensemble", command]
        return [*start, "--state-dir", str(self.path / "state"), *words]

    def run(self, *words: str, code: int = 0, cwd: Path | None = None) -> str:
        """What a command prints."""
        done = subprocess.run(
            self.command(*words), cwd=cwd or self.path, capture_output=True, text=True
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command."""
        quiet = subprocess.DEVNULL
        return subprocess.Popen(self.command(*words), cwd=self.path, stdout=quiet, stderr=quiet)
