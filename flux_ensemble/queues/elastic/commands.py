"""Starts brokers by a command of the site, such as `ssh {host} systemctl start flux`.

The command runs in the background, without a shell. It must return when the broker has been
started or already runs, and may leave the broker behind as its child. The output of a command
that fails goes into the error.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import string
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from flux_ensemble.runtime.ports import Handle, Loop

#: Number of commands that run at once.
COMMANDS = 32

#: Bytes of a command's output that go into the error.
OUTPUT = 400

#: Fields that a template may name.
FIELDS = ("host", "rank")

#: Receives the reason of a command's failure, or None; called once.
Ended = Callable[[str | None], None]


def check_template(template: str) -> list[str]:
    """Split a command template into words, and check its fields.

    Raises:
        ValueError: the template is wrong; the text is a sentence.
    """
    try:
        words = shlex.split(template)
        names = {name for word in words for _, name, _, _ in string.Formatter().parse(word)}
    except ValueError as error:
        raise ValueError(f"start-broker: {error} in {template!r}") from None
    names.discard(None)
    unknown = sorted(str(name) for name in names - set(FIELDS))
    if unknown:
        raise ValueError(
            f"start-broker: unknown field {{{unknown[0]}}} in {template!r} "
            "(fields: {host}, {rank}; a brace is written twice)"
        )
    if not names:
        raise ValueError(
            f"start-broker: expected a command that names {{host}} or {{rank}}, not {template!r}"
        )
    return words


class Commands:
    """Runner of a site's command for each of many brokers, some at a time.

    Args:
        loop: for timers and file descriptors.
        template: of the command; see `FIELDS`.
        environment: of the command.
        limit: seconds after which a command is killed and counts as failed.

    Raises:
        ValueError: the template is wrong.
    """

    def __init__(
        self, loop: Loop, template: str, environment: Mapping[str, str], limit: float
    ) -> None:
        self._loop = loop
        self._words = check_template(template)
        self._environment = environment
        self._limit = limit
        self._waiting: deque[tuple[int, str, Ended]] = deque()
        self._running: set[_Command] = set()

    def run(self, rank: int, host: str, ended: Ended) -> None:
        """Run the command for one broker."""
        self._waiting.append((rank, host, ended))
        self._loop.timer(0.0, self._next)

    def close(self) -> None:
        """Kill the running commands; no callback is called any more."""
        self._waiting.clear()
        for command in self._running:
            command.kill()
        self._running.clear()

    def _next(self) -> None:
        while self._waiting and len(self._running) < COMMANDS:
            rank, host, ended = self._waiting.popleft()
            words = [word.format(host=host, rank=rank) for word in self._words]
            try:
                command = _Command(self._loop, words, self._environment, self._limit)
            except (OSError, ValueError) as error:
                ended(f"cannot run {words[0]!r}: {error}")
                continue
            self._running.add(command)
            command.ended = partial(self._ended, command, ended)

    def _ended(self, command: _Command, ended: Ended, reason: str | None) -> None:
        self._running.discard(command)
        self._loop.timer(0.0, self._next)
        ended(reason)


class _Command:
    """A running command.

    Attributes:
        ended: called once when the command has ended.
    """

    def __init__(
        self, loop: Loop, words: list[str], environment: Mapping[str, str], limit: float
    ) -> None:
        self.ended: Ended = lambda reason: None
        self._words = words
        self._limit = limit
        self._late = False
        # Not a pipe: a broker that the command leaves behind may hold it open, or fill it.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                words,
                env=environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._fd = os.pidfd_open(self._process.pid)
        except BaseException:
            self._output.close()
            raise
        self._watched: list[Handle] = [
            loop.reader(self._fd, self._exited),
            loop.timer(limit, self._too_late),
        ]

    def kill(self) -> None:
        """Kill the command and release its descriptors; `ended` is not called."""
        self._signal()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)
        self._close()

    def _signal(self) -> None:
        # The command has a session of its own, so its descendants are killed too.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _too_late(self) -> None:
        self._late = True
        self._signal()

    def _exited(self) -> None:
        status = self._process.wait()
        reason = None
        if self._late:
            reason = f"{shlex.join(self._words)!r} did not end within {self._limit:g} s"
        elif status:
            how = f"exit status {status}" if status > 0 else f"signal {-status}"
            reason = f"{shlex.join(self._words)!r} failed ({how})"
        if reason is not None:
            said = self._said()
            reason = f"{reason}: {said}" if said else reason
        self._close()
        self.ended(reason)

    def _said(self) -> str:
        """Return the end of the command's output as one line."""
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - OUTPUT))
        return " ".join(self._output.read().decode("utf-8", "replace").split())

    def _close(self) -> None:
        for handle in self._watched:
            handle.cancel()
        os.close(self._fd)
        self._output.close()
