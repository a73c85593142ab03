"""Starts brokers by a command of the site, such as `ssh {host} systemctl start flux`.

The command runs in the background, without a shell. It must return when the broker has been
started or already runs, and may leave the broker behind as its child. The output of a command
that fails goes into the error.
"""

from __future__ import annotations

import shlex
import string
from collections import deque
from collections.abc import Callable, Mapping

from flux_ensemble.runtime.command import Command, CommandResult
from flux_ensemble.runtime.ports import Loop

#: Number of commands that run at once.
COMMANDS = 32

#: Characters of a command's output that go into the error.
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
        self._running: set[Command] = set()

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
            self._run(words, ended)

    def _run(self, words: list[str], ended: Ended) -> None:
        def done(outcome: CommandResult) -> None:
            self._running.discard(command)
            if self._waiting:
                self._loop.timer(0.0, self._next)
            ended(_reason(words, self._limit, outcome))

        command = Command(self._loop, words, done, limit=self._limit, environment=self._environment)
        self._running.add(command)


def _reason(words: list[str], limit: float, outcome: CommandResult) -> str | None:
    """Return why a command has failed, with the end of what it wrote; None if it has not."""
    if outcome.late:
        reason = f"{shlex.join(words)!r} did not end within {limit:g} s"
    elif outcome.how:
        reason = f"{shlex.join(words)!r} failed ({outcome.how})"
    else:
        return outcome.error
    said = " ".join(f"{outcome.output} {outcome.said}".split())[-OUTPUT:]
    return f"{reason}: {said}" if said else reason
