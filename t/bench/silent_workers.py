"""Plays silent workers: `silent_workers.py DIRECTORY NUMBER`.

Each is what Slurm was asked for: a script in DIRECTORY, by a `sbatch` that starts nothing. A worker
calls its home with the credentials in its script, by the classes by which a real worker does, says
that it is up, and has nothing more to say. Prints a line when all are connected.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flux_ensemble import __version__
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.queues.nested.link import FORMAT
from flux_ensemble.service.conversation import ANSWER_SECONDS, Conversation
from flux_ensemble.service.wire import QUIET_SECONDS, Wire
from flux_ensemble.service.worker import Dial

#: Most calls at once, and seconds between two looks for scripts.
CALLS, TICK = 20, 0.1


class Worker:
    """One of them.

    Args:
        loop: of all.
        credentials: of the member.
        up: called when it is.
    """

    def __init__(
        self, loop: LocalLoop, credentials: Mapping[str, Any], up: Callable[[], None]
    ) -> None:
        self._loop, self._credentials, self._up = loop, credentials, up
        self._talk: Conversation | None = None
        self._answers: list[Callable[[Mapping[str, Any] | Exception], None]] = []
        Dial(loop, credentials, self._dialed)

    def _dialed(self, sock: Any) -> None:
        if isinstance(sock, str):
            raise SystemExit(f"silent_workers.py: {sock}")
        self._wire = Wire(
            self._loop, sock,
            opened=lambda names: None, taken=self._taken, lost=self._end, silence=ANSWER_SECONDS,
            shaken=True,
        )  # fmt: skip
        clock = {"version": __version__, "format": FORMAT, "clock": time.time()}
        self._wire.put({"attach": {**self._credentials["tag"], **clock}})

    def _end(self, reason: str) -> None:
        self._wire.close()
        if self._talk is not None:
            self._talk.close()

    def _taken(self, message: Mapping[str, Any]) -> None:
        if "message" in message:
            if self._talk is None:
                self._talk = Conversation(
                    self._loop, self._send, self._asked, lambda: 0,
                    lambda code, reason: self._end(reason), QUIET_SECONDS,
                )  # fmt: skip
            self._talk.take(message["message"])
        elif "answer" in message:
            self._answers.pop(0)(message["answer"])
        else:
            self._end(str(message))

    def _send(self, message: Mapping[str, Any], answered: Callable[..., None]) -> None:
        self._answers.append(answered)
        self._wire.put({"report": message})

    def _asked(self, item: list[Any]) -> None:
        kind, *rest = item
        assert self._talk is not None
        if kind == "load":
            self._talk.say("caught-up")
            self._talk.say("facts", 1, 48, 0, None)
            self._talk.say("up", 0)
            self._up()
        elif kind == "hold":
            self._talk.held.seconds = rest[0]
        elif kind == "end":
            self._end("")


class Workers:
    """All of them.

    Args:
        directory: with their scripts.
        number: of them.
    """

    def __init__(self, directory: Path, number: int) -> None:
        self._directory, self._number = directory, number
        self._loop = LocalLoop()
        self._seen: set[Path] = set()
        self._calls = self._up = 0

    def run(self) -> None:
        """Play, until it is ended."""
        self._loop.timer(TICK, self._look, TICK)
        self._loop.run(lambda: False)

    def _look(self) -> None:
        if len(self._seen) == self._number:
            return
        for path in sorted(set(self._directory.glob("*.script")) - self._seen):
            if self._calls == CALLS:
                return
            self._calls += 1
            self._seen.add(path)
            _, _, rest = path.read_text().partition("<<'END'\n")
            Worker(self._loop, json.loads(rest.partition("\nEND")[0]), self._one_up)

    def _one_up(self) -> None:
        self._calls -= 1
        self._up += 1
        if self._up == self._number:
            print("up", flush=True)


if __name__ == "__main__":
    Workers(Path(sys.argv[1]), int(sys.argv[2])).run()
