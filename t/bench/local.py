"""How many `true` jobs a second the local queue starts, and 10,000 of them queued.

    python t/bench/local.py [JOBS]

The goals (docs/local.md): at least 300 jobs a second on two cores, 10,000 jobs queued.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DOCUMENT = """
jobs: [{{name: t, command: "true", count: {count}}}]
rules: [{{trigger: start, action: {{name: submit, label: t}}}}]
limits: {{active-jobs: 100000, jobs: 100000}}
"""


def main() -> int:
    """Run the ensemble in a process of its own; exit 1 if it is slower than the goal."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "bench.yaml").write_text(DOCUMENT.format(count=count))
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "flux_ensemble.cli.main", "run", "--member", "local",
             "--state-dir", directory, "bench.yaml"],
            cwd=directory, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    rate = count / seconds
    print(
        f"local queue: {count} jobs in {seconds:.1f} s, {rate:.0f} a second on "
        f"{os.cpu_count()} cores, {peak} MB (goal: 300 a second)"
    )
    return 0 if rate >= 300 else 1


if __name__ == "__main__":
    sys.exit(main())
