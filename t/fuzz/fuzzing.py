"""What all fuzzers share: arguments, a budget, bounds on time and memory, the closing line.

    import fuzzing

    options = fuzzing.arguments(__doc__)
    budget = fuzzing.Budget(options)
    for number in budget:
        with fuzzing.bounded(cpu_seconds=1.0):
            ...
    sys.exit(budget.close("conditions", findings))

Import this module before anything that is not of the standard library. A fuzzer is called after
what it tries, so files here have the names of modules (`statistics`, `grpc`): importing this one
puts their directory behind all others.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_HERE = str(Path(__file__).resolve().parent)
sys.path[:] = [*(entry for entry in sys.path if entry != _HERE), _HERE]


class Excess(AssertionError):
    """An input took too much time or memory."""


def arguments(description: str | None, *more: tuple[str, dict[str, object]]) -> argparse.Namespace:
    """Read the arguments of a fuzzer.

    Args:
        description: the fuzzer's docstring; its first line is shown.
        more: further options: name, and arguments of `add_argument`.
    """
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, help="go on for so long (default 60)")
    parser.add_argument("--inputs", type=int, help="stop after so many inputs")
    parser.add_argument("--seed", type=int, help="the same inputs again (default: a new seed)")
    parser.add_argument("--findings", type=int, default=1, help="stop after so many (default 1)")
    for name, how in more:
        parser.add_argument(name, **how)  # type: ignore[arg-type]
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

    def extend(self, seconds: float) -> None:
        """Do not count so many seconds, which went into something else."""
        self._begun += seconds

    def close(
        self, name: str, findings: int, *, what: str = "inputs", rss: float | None = None
    ) -> int:
        """Print the closing line.

        Args:
            name: of the fuzzer.
            findings: how many it has.
            what: its inputs are.
            rss: the most memory of what was tried, in bytes, where that is another process.

        Returns:
            The exit code.
        """
        most = peak_rss() if rss is None else rss
        print(
            f"{name}: {self.inputs} {what}, {findings} findings, {self.elapsed:.0f} s, "
            f"{most / 1e6:.0f} MB",
            flush=True,
        )
        return 1 if findings else 0


def peak_rss() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextlib.contextmanager
def bounded(*, cpu_seconds: float = 1.0, rss_mb: float = 200.0) -> Iterator[None]:
    """Bound what the block may take; CPU time, so that a busy machine changes nothing.

    Raises:
        Excess: it took more, which is found out when it has ended.
    """
    cpu, rss = time.process_time(), peak_rss()
    yield
    took, grown = time.process_time() - cpu, (peak_rss() - rss) / 1e6
    if took > cpu_seconds:
        raise Excess(f"took {took:.1f} s of CPU time, expected at most {cpu_seconds:g} s")
    if grown > rss_mb:
        raise Excess(f"took {grown:.0f} MB of memory, expected at most {rss_mb:g} MB")
