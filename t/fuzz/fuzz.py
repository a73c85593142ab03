"""Runs all fuzzers, two at a time, and ends with their closing lines: `make fuzz` calls this.

    python t/fuzz/fuzz.py --seconds 3600 --seed 7

The one of requests has half of the machine for all the time, as it needs a Flux instance; the
others share the rest. What a fuzzer prints comes when it has ended.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: The fuzzer that needs Flux.
WITH_FLUX = HERE / "fuzz_requests.py"

#: Inputs of a short run, for each of which a fuzzer takes seconds rather than milliseconds.
SHORT = {"fuzz_seams": 3}


def fuzzers() -> list[Path]:
    """The fuzzers that need no Flux."""
    return [path for path in sorted(HERE.glob("fuzz_*.py")) if path != WITH_FLUX]


def run(paths: Sequence[Path], seconds: float, seed: int) -> list[tuple[str, int]]:
    """Run fuzzers one after the other; the last line and the exit code of each."""
    ended = []
    for path in paths:
        command = [sys.executable, str(path), "--seconds", f"{seconds:g}", "--seed", str(seed)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines = done.stdout.splitlines() or ["it printed nothing"]
        print(f"---- {path.name} --seed {seed}", *lines, sep="\n", flush=True)
        ended.append((lines[-1], done.returncode))
    return ended


def inputs(line: str) -> int:
    """How many a fuzzer's closing line tells of; none where that is no such line."""
    counted = re.match(r"\w+: (\d+) (inputs|requests), ", line)
    return int(counted[1]) if counted else 0


def main() -> int:
    """Run them all; 1 if one of them has found something, or does not run."""
    parser = argparse.ArgumentParser(description="Run all fuzzers, two at a time.")
    parser.add_argument("--seconds", type=float, default=3600.0, help="altogether (default 3600)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    pure = fuzzers()
    shares = [(pure, options.seconds / max(1, len(pure)))]
    if shutil.which("flux") is None:
        print("skipped: fuzz_requests.py (flux is not on PATH)")
    else:
        shares.append(([WITH_FLUX], options.seconds))
    with ThreadPoolExecutor(len(shares)) as pool:
        runs = [pool.submit(run, paths, seconds, options.seed) for paths, seconds in shares]
        ended = [one for each in runs for one in each.result()]
    print("----", *(line for line, _ in ended), sep="\n")
    print(f"{sum(inputs(line) for line, _ in ended)} inputs altogether")
    return 1 if any(code for _, code in ended) else 0


if __name__ == "__main__":
    sys.exit(main())
