"""The end of scripts that start servers and processes: these end with them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

#: A line on its input lets it end; the end of its input kills the process that it is told of.
_GUARD = 'read -r line || kill -KILL "$0"'


def unwind_at_signals() -> None:
    """Have SIGTERM and SIGHUP leave all contexts, as Ctrl-C does; another one cuts none short."""
    chosen = (signal.SIGTERM, signal.SIGHUP)

    def end(number: int, frame: FrameType | None) -> None:
        for one in (*chosen, signal.SIGINT):
            signal.signal(one, signal.SIG_IGN)
        sys.exit(128 + number)

    for one in chosen:
        signal.signal(one, end)


class Tied:
    """A process that is killed when this one ends, however that does: crash, SIGKILL.

    Args:
        arguments: of the process.
        log: the file for its output.
    """

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        with log.open("ab") as output:
            self.process = subprocess.Popen(arguments, stdout=output, stderr=subprocess.STDOUT)
        guard = ("sh", "-c", _GUARD, str(self.process.pid))
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE)

    def kill(self, patience: float) -> None:
        """Kill it, and wait until it has ended."""
        self.process.kill()
        self.process.wait(patience)
        self._guard.communicate(b"\n", patience)
