"""Runs a command beside the loop: with a time limit, and its output in files.

Its output is no pipe: nobody reads while it runs, and a process that it leaves behind may hold the
output open for ever.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from flux_ensemble.runtime.ports import Handle, Loop
from flux_ensemble.texts import bounded

#: Seconds within which a command that was killed is gone.
_GONE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The outcome of a command.

    Args:
        output: its standard output.
        error: why it failed, in words; None if it succeeded.
        late: it was killed after its time limit, so nobody knows what it has done.
        how: the way in which it failed, such as "exit status 1"; "" if it succeeded, was late, or
            did not begin.
        said: its standard error.
        status: its exit status, or the negative number of the signal that ended it; None if it did
            not begin.
    """

    output: str
    error: str | None = None
    late: bool = False
    how: str = ""
    said: str = ""
    status: int | None = None


class Command:
    """A running command, in a session of its own.

    Args:
        loop: for timers and file descriptors.
        words: the command.
        done: receives the outcome, once; not called from within this call.
        limit: seconds after which it is killed, with all that it has started.
        environment: of the command; None for that of this process.
        script: its standard input.
    """

    def __init__(
        self,
        loop: Loop,
        words: Sequence[str],
        done: Callable[[CommandResult], None],
        *,
        limit: float,
        environment: Mapping[str, str] | None = None,
        script: str = "",
    ) -> None:
        self._words = words
        self._done = done
        self._late = False
        self._watched: list[Handle] = []
        self._process: subprocess.Popen[bytes] | None = None
        with tempfile.TemporaryFile() as given:
            given.write(script.encode())
            given.seek(0)
            self._output = tempfile.TemporaryFile()  # noqa: SIM115
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115
            try:
                self._process = subprocess.Popen(
                    words,
                    env=environment,
                    cwd="/",
                    stdin=given,
                    stdout=self._output,
                    stderr=self._errors,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                outcome = CommandResult("", f"cannot run {words[0]!r}: {reason}")
                self._watched.append(loop.timer(0.0, lambda: self._end(outcome)))
                return
        self._fd = os.pidfd_open(self._process.pid)
        self._watched += [
            loop.reader(self._fd, self._exited),
            loop.timer(limit, self._too_late),
        ]

    def _signal(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _too_late(self) -> None:
        self._late = True
        self._signal()

    def _exited(self) -> None:
        assert self._process is not None
        status = self._process.wait()
        error, how = None, ""
        output, said = (_read(file) for file in (self._output, self._errors))
        if self._late:
            error = f"{self._words[0]} did not end in time"
        elif status:
            how = f"exit status {status}" if status > 0 else f"signal {-status}"
            error = bounded(" ".join(said.split())) or f"{shlex.join(self._words)} failed ({how})"
        self._end(CommandResult(output, error, self._late, how, said, status))

    def _end(self, outcome: CommandResult) -> None:
        self.close()
        self._done(outcome)

    def kill(self) -> None:
        """Kill it, with all that it has started; there is no outcome."""
        self._signal()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_GONE_SECONDS)
        self.close()

    def close(self) -> None:
        """Wait for it no more; it goes on to its end."""
        for handle in self._watched:
            handle.cancel()
        if self._process is not None and self._watched:
            os.close(self._fd)
        self._watched.clear()
        self._output.close()
        self._errors.close()


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
