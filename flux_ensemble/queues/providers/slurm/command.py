"""Runs a command of Slurm beside the service, with a time limit."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from flux_ensemble.runtime.ports import Handle, Loop
from flux_ensemble.texts import bounded

#: Seconds that a command may take. A full queue blocks `sbatch` for 120 seconds.
LIMIT_SECONDS = 150.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of a command.

    Args:
        output: its standard output.
        error: why it failed, in words; None if it succeeded.
        late: it was killed after LIMIT_SECONDS, so nobody knows what it has done.
    """

    output: str
    error: str | None = None
    late: bool = False


class Command:
    """A running command.

    Args:
        loop: for timers and file descriptors.
        words: the command.
        done: receives the outcome; not called from within this call.
        environment: of the command; None for that of the service.
        script: its standard input.
        limit: seconds after which it is killed.
    """

    def __init__(
        self,
        loop: Loop,
        words: Sequence[str],
        done: Callable[[Outcome], None],
        *,
        environment: Mapping[str, str] | None = None,
        script: str = "",
        limit: float = LIMIT_SECONDS,
    ) -> None:
        self._words = words
        self._done = done
        self._late = False
        self._watched: list[Handle] = []
        # Not pipes: nobody reads while it runs.
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
            except OSError as error:
                outcome = Outcome("", f"cannot run {words[0]}: {error.strerror}")
                self._watched.append(loop.timer(0.0, lambda: self._end(outcome)))
                return
        self._fd = os.pidfd_open(self._process.pid)
        self._watched += [
            loop.reader(self._fd, self._exited),
            loop.timer(limit, self._too_late),
        ]

    def _too_late(self) -> None:
        self._late = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _exited(self) -> None:
        status = self._process.wait()
        os.close(self._fd)
        error = None
        if self._late:
            error = f"{self._words[0]} did not end in time"
        elif status:
            self._errors.seek(0)
            said = " ".join(self._errors.read().decode(errors="replace").split())
            error = bounded(said) or f"{shlex.join(self._words)} exited with {status}"
        self._output.seek(0)
        self._end(Outcome(self._output.read().decode(errors="replace"), error, self._late))

    def _end(self, outcome: Outcome) -> None:
        self.close()
        self._done(outcome)

    def close(self) -> None:
        """Wait for it no more; it goes on to its end."""
        for handle in self._watched:
            handle.cancel()
        self._watched.clear()
        self._output.close()
        self._errors.close()
