"""Workers on a loop, with their log, for the tests of custom functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loops import SelectorLoop
from patience import PATIENCE

from flux_ensemble.runtime.custom.caller import FunctionCaller, FunctionResult

#: What the engine gives each custom function.
KWARGS: dict[str, Any] = {
    "metrics": {"mean": {"sleep-duration": 1.5}, "count": {"sleep": {"success": 3}}},
    "event": {"name": "finish", "context": {"status": 0}},
    "rule": {"id": "rules[0]", "trigger": "start", "action": {"name": "custom", "label": "f"}},
    "action": {"name": "custom", "label": "f"},
}


class Bench:
    """A worker on a loop, and what it logged."""

    def __init__(self, loop: SelectorLoop, directory: Path, **options: Any) -> None:
        self.loop = loop
        self.logged: list[tuple[str, str]] = []
        settings: dict[str, Any] = {
            "source": None,
            "plugins": (),
            "environment": {"PATH": os.environ["PATH"], "GREETING": "hello"},
            "cwd": str(directory),
            "info": {"name": "hello", "directory": str(directory)},
            "log": lambda level, line: self.logged.append((level, line)),
        }
        self.caller = FunctionCaller(loop, **(settings | options))

    def calls(self, *functions: str, timeout: float = PATIENCE) -> list[FunctionResult]:
        """Call functions, all at once, and wait for their results."""
        results: list[FunctionResult] = []
        for function in functions:
            self.caller.call(function, KWARGS, timeout, results.append)
        self.loop.run(until=lambda: len(results) == len(functions))
        return results

    def call(self, function: str = "f", timeout: float = PATIENCE) -> FunctionResult:
        return self.calls(function, timeout=timeout)[0]

    def check(self, *functions: str) -> FunctionResult:
        results: list[FunctionResult] = []
        self.caller.check(functions, results.append)
        self.loop.run(until=lambda: bool(results))
        return results[0]

    def failure(self, function: str = "f", timeout: float = PATIENCE) -> tuple[str, str]:
        """The reason and the detail of a call that must fail."""
        result = self.call(function, timeout)
        assert not result.ok
        assert not result.returned
        return result.reason, result.detail

    def lines(self, level: str) -> list[str]:
        """What was logged at a level."""
        return [line for each, line in self.logged if each == level]


Make = Callable[..., Bench]


@contextmanager
def benches(directory: Path) -> Iterator[Make]:
    """Make worker benches; at the end, no worker may have left a trace in the loop."""
    made: list[Bench] = []
    with SelectorLoop() as loop:

        def make(source: str | None = None, **options: Any) -> Bench:
            made.append(Bench(loop, directory, source=source, **options))
            return made[-1]

        yield make
        for each in made:
            each.caller.close()
        loop.run(until=lambda: not loop.watching)
