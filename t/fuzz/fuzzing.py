"""What fuzzers share: arguments, a budget, and the closing line.

Import this module before anything that is not of the standard library. A fuzzer is called after
what it tries, so files here have the names of modules (`grpc`): importing this one puts their
directory behind all others.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_HERE = str(Path(__file__).resolve().parent)
sys.path[:] = [*(entry for entry in sys.path if entry != _HERE), _HERE]


def arguments(description: str | None) -> argparse.Namespace:
    """Read the arguments of a fuzzer.

    Args:
        description: the fuzzer's docstring; its first line is shown.
    """
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, help="go on for so long (default 60)")
    parser.add_argument("--inputs", type=int, help="stop after so many inputs")
    parser.add_argument("--seed", type=int, help="the same inputs again (default: a new seed)")
    parser.add_argument("--findings", type=int, default=1, help="stop after so many (default 1)")
    options = parser.parse_args()
    if options.seconds is None and options.inputs is None:
        options.seconds = 60.0
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(2**32)
    return options


class Budget:
    """How long a fuzzer goes on: so many seconds, or so many inputs, or what ends first.

    Args:
        options: what `arguments` has read.

    Attributes:
        inputs: how many there have been.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._seconds: float | None = options.seconds
        self._most: int | None = options.inputs
        self._begun = time.monotonic()
        self.inputs = 0

    def __iter__(self) -> Iterator[int]:
        """The numbers of the inputs, until the budget is used up."""
        while self.left:
            yield self.inputs
            self.inputs += 1

    @property
    def left(self) -> bool:
        """It is not used up."""
        if self._most is not None and self.inputs >= self._most:
            return False
        return self._seconds is None or self.elapsed < self._seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begun

    def close(self, name: str, findings: int, *, rss: float) -> int:
        """Print the closing line.

        Args:
            name: of the fuzzer.
            findings: how many it has.
            rss: the most memory of what was tried, in bytes.

        Returns:
            The exit code.
        """
        print(
            f"{name}: {self.inputs} inputs, {findings} findings, {self.elapsed:.0f} s, "
            f"{rss / 1e6:.0f} MB",
            flush=True,
        )
        return 1 if findings else 0
