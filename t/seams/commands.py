"""`flux-ensemble` as users call it, with a limit of time, and its witness.

Most of what a short command takes is its imports, so by default each is a fork of a process that
has these (`t/python/helpers/warm.py`); with `cold` each is a Python of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HELPERS = Path(__file__).parents[1] / "python" / "helpers"
sys.path.append(str(HELPERS))

import multiprocessing  # noqa: E402

from warm import IMPORTED, WarmProcess  # noqa: E402

#: What the commands import with which runs are looked at.
_LOOKING = (
    *(f"flux_ensemble.cli.commands.{family}"
      for family in ("control", "jobs", "logs", "replay", "report", "search", "show", "simulate")),
    *(f"flux_ensemble.cli.display.{name}"
      for name in ("formats", "jobs_table", "messages", "metrics_tables", "reports", "tables")),
    "flux_ensemble.cli.session.local_follow",
    "flux_ensemble.results.export",
    "flux_ensemble.results.report",
    "flux_ensemble.queues.local.client",
    "flux_ensemble.queues.simulation.simulation",
    "flux_ensemble.runtime.recording",
    "flux_ensemble.features.search.samplers",
)  # fmt: skip

# Under nohup commands would take no notice of a terminal that is closed.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Before the first command is started.
multiprocessing.get_context("forkserver").set_forkserver_preload(
    ["__main__", "warm", *IMPORTED, *_LOOKING]
)

#: Seconds that any command may take.
PATIENCE = 600.0

COMMAND = Path(sys.executable).with_name("flux-ensemble")


@dataclass(frozen=True)
class Done:
    """A command that has ended.

    Args:
        words: its arguments.
        code: its exit code.
        out, err: what it printed.
    """

    words: Sequence[str]
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Commands:
    """Runs commands in a directory.

    Args:
        directory: where.
        environment: more variables; None takes one away.
        cold: each is a Python of its own.
        command: what is called, where that is not the command of this environment; implies cold.
    """

    directory: Path
    environment: Mapping[str, str | None] = field(default_factory=dict)
    cold: bool = False
    command: Sequence[str] = ()

    def variables(self) -> dict[str, str]:
        """The environment of a command."""
        variables = {**os.environ, **self.environment}
        return {name: value for name, value in variables.items() if value is not None}

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command, which is a process that can be killed."""
        if self.cold or self.command:
            command = [*(self.command or [str(COMMAND)]), *words]
            return subprocess.Popen(
                command, cwd=self.directory, env=self.variables(), stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        return WarmProcess(words, self.directory, subprocess.PIPE, environment=self.variables())

    def end(self, process: subprocess.Popen[str]) -> Done:
        """Wait for the end of a command.

        Raises:
            RuntimeError: it does not end.
        """
        assert not isinstance(process.args, (str, bytes, os.PathLike))
        words = [str(word) for word in process.args]
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise RuntimeError(f"{' '.join(words)} does not end:\n{out}\n{err}") from None
        return Done(words, process.returncode, out, err)

    def run(self, *words: str) -> Done:
        """Run a command."""
        return self.end(self.start(*words))
