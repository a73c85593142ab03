"""What fuzzers of pure code share: inputs by number, a process that tries them, the smallest one.

An input is plain data and follows from the seed and its number, so that nothing has to be kept
of those that do no harm. They are tried one after the other in a process of its own, which the
kernel ends if it takes too much processor time, even in the midst of one long operation.

A fuzzer gives `main` a function that makes an input, and one that tries it and raises what is
wrong. What is found is made as small as it still goes wrong, and printed.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

#: Bytes of memory that one input may take.
MOST_BYTES = 200 << 20

#: Bytes of addresses that a process may have besides those it begins with; more is MemoryError.
_MOST_ADDRESSES = 4 << 30

#: Findings after which a fuzzer gives up, and seconds that it takes to make one smaller.
_MOST_FINDINGS = 5
_MOST_SHRINKING = 20.0

Make = Callable[[Random], Any]
Try = Callable[[Any], None]


@dataclass(frozen=True)
class Patience:
    """How long an input may take.

    Attributes:
        seconds: of processor time, for an input.
        tries: an input that took longer is tried so often, as a busy machine counts too much.
        end: the process is ended after so many times the seconds.
    """

    seconds: Callable[[Any], float] = lambda given: 1.0
    tries: int = 1
    end: float = 2.0


def main(
    name: str,
    make: Make,
    attempt: Try,
    *,
    patience: Patience = Patience(),
    show: Callable[[Any, str], str] = lambda given, called: repr(given),
) -> None:
    """Run a fuzzer as a command, and exit with 1 if it found something.

    Args:
        name: its name, for people.
        make: makes an input, plain data, by drawing.
        attempt: tries one, and raises what is wrong.
        patience: how long one may take.
        show: says what one is that is a finding, which is called so.
    """
    parser = argparse.ArgumentParser(description=(sys.modules["__main__"].__doc__ or "").strip())
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--inputs", type=int, help="no more than so many (default: no limit)")
    parser.add_argument("--seed", type=int, help="which inputs (default: others each time)")
    options = parser.parse_args()
    seed = int.from_bytes(os.urandom(4), "big") if options.seed is None else options.seed
    fuzzer = _Fuzzer(name, make, attempt, seed, patience, show)
    sys.exit(fuzzer.run(options.seconds, options.inputs))


class _Fuzzer:
    def __init__(
        self,
        name: str,
        make: Make,
        attempt: Try,
        seed: int,
        patience: Patience,
        show: Callable[[Any, str], str],
    ) -> None:
        self._name = name
        self._make = make
        self._attempt = attempt
        self._seed = seed
        self._patience = patience
        self._shown = show

    def run(self, seconds: float, most: int | None) -> int:
        """Try inputs until the time is up, or so many have been tried; the exit code."""
        began = time.monotonic()
        number, findings = 0, 0
        print(f"{self._name}: seed {self._seed}", flush=True)
        while (left := began + seconds - time.monotonic()) > 0 and findings < _MOST_FINDINGS:
            number, fault = self._inputs(number, left, most)
            if fault:
                findings += 1
                self._show(number, fault)
            number += 1
            if most is not None and number >= most:
                break
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(
            f"{self._name}: {number} inputs, {findings} findings, "
            f"{time.monotonic() - began:.0f} s, {children.ru_maxrss >> 10} MB"
        )
        return 1 if findings else 0

    def _input(self, number: int) -> Any:
        return self._make(Random(f"{self._seed} {number}"))

    def _inputs(self, first: int, seconds: float, most: int | None) -> tuple[int, str]:
        """Try inputs from a number on; the last number, and what is wrong with that."""
        place = mmap.mmap(-1, 8)

        def work() -> str:
            t_end = time.monotonic() + seconds
            number = first
            while True:
                place[:8] = struct.pack("q", number)
                fault = self._fault(self._input(number))
                if fault or time.monotonic() >= t_end or number + 1 == most:
                    return fault
                number += 1

        fault = _in_a_process(work)
        return struct.unpack("q", place[:8])[0], fault

    def _fault(self, given: Any) -> str:
        """What goes wrong with an input; empty if nothing does."""
        most = self._patience.seconds(given)
        for _ in range(self._patience.tries):
            memory = _memory(reset=True)
            # The kernel ends the process that goes on for much longer.
            signal.setitimer(signal.ITIMER_PROF, self._patience.end * most)
            began = time.process_time()
            try:
                self._attempt(given)
            except BaseException:
                return traceback.format_exc()
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0.0)
            took = time.process_time() - began
            more = _memory() - memory
            if more > MOST_BYTES:
                return f"it took {more >> 20} MB of memory"
            if took <= most:
                return ""
        return f"it took {took:.1f} s of processor time, expected at most {most:g} s"

    def _show(self, number: int, fault: str) -> None:
        given = self._input(number)
        if _in_a_process(lambda: self._fault(given)):
            how = "made smaller"
            given, fault = self._less(given, fault)
        else:
            how = "and those before it"
        shown = self._shown(given, f"{self._name}-{self._seed}-{number}")
        print(f"input {number} of seed {self._seed}, {how}:\n  {shown}\n{fault}", flush=True)

    def _less(self, given: Any, fault: str) -> tuple[Any, str]:
        """An input as small as it still goes wrong, as far as there is time, and how it does."""
        t_end = time.monotonic() + _MOST_SHRINKING
        candidates = _smaller(given)
        while time.monotonic() < t_end:
            try:
                less = next(candidates)
            except (StopIteration, RecursionError):
                break
            found = _in_a_process(partial(self._fault, less))
            if found:
                given, fault, candidates = less, found, _smaller(less)
        return given, fault


def _memory(reset: bool = False) -> int:
    """The most bytes of memory that the process had since this was called with `reset`."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def _in_a_process(work: Callable[[], str]) -> str:
    """What a function returns in a process of its own, or how that ended."""
    sys.stdout.flush()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm") as statm:
            pages = int(statm.read().split()[0])
        most = pages * resource.getpagesize() + _MOST_ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        # Panics are told by what they raise; what they print too is of no use to anybody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            # A lone surrogate could not be printed.
            told = work()[-60_000:].encode(errors="backslashreplace").decode()
            os.write(write, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    if answer:
        return str(json.loads(answer))
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        return "it took far too much processor time, and did not end"
    return f"the process ended with the wait status {status}"


def _smaller(value: Any) -> Iterator[Any]:
    """Values like this one with something less, those with much less first."""
    if isinstance(value, (str, list)):
        size = len(value)
        while size:
            for at in range(0, len(value), size):
                yield value[:at] + value[at + size :]  # type: ignore[operator]
            size //= 2
    if isinstance(value, list):
        for place, item in enumerate(value):
            for less in _smaller(item):
                yield [*value[:place], less, *value[place + 1 :]]
    elif isinstance(value, dict):
        for key in value:
            yield {name: item for name, item in value.items() if name != key}
        for key, item in value.items():
            for less in _smaller(item):
                yield {**value, key: less}
    elif isinstance(value, (int, float)) and value not in (0, 1) and value == value:
        yield 1
        yield 0
        if abs(value) > 1 and abs(value) != float("inf"):
            yield value // 2
