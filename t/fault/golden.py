"""Writes the log of an ensemble as this version keeps it: `golden.py DIRECTORY`.

The ensemble has every kind of rule, action and outcome, and its service is killed once. One file
has the log from the beginning; the other one has a snapshot, and what stands beside it. Later
versions have to read them, or to refuse them with a sentence
(t/python/runtime/test_golden_logs.py), so files of versions that have been released are not written
again.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

from flux_ensemble import __version__
from flux_ensemble.bindings import require_flux

require_flux()

from scenario import Context, Row  # noqa: E402
from scene import Scene, scene  # noqa: E402
from workloads import mixed  # noqa: E402

from flux_ensemble.service.store.kvs import KvsStores  # noqa: E402

#: By name of the file: options of standby.py.
KINDS = {"log": (), "snapshot": ("--snapshot-events=150",)}


def take(stage: Scene) -> dict[str, Any]:
    """Run an ensemble, and read its log."""
    workload = mixed("golden", 40, Path("/dev/null"))
    payload = {"spec": workload.document, "cwd": "/", "environment": {"PATH": "/usr/bin:/bin"}}
    stage.handle.rpc("ensemble.load", payload).wait_for(60).get()
    stage.witness.wait_seen("golden", "finish", 30)
    stage.kill()
    stage.service.await_answer(stage.handle)
    status = stage.await_end("golden", 120)
    metrics = stage.rpc("metrics", name="golden")
    stored = KvsStores(stage.handle, lambda callback: callback).read("golden")
    return {
        "version": __version__,
        "load": stored.load,
        "snapshot": stored.snapshot,
        "values": list(stored.values),
        "lines": list(stored.lines),
        "expected": {
            "state": status["state"],
            "count": metrics["count"],
            "mean": metrics["mean"],
            "jobs": len(list(stage.recorded("golden"))),
        },
    }


def main() -> None:
    """Write the files."""
    directory = Path(sys.argv[1])
    for kind, options in KINDS.items():
        row = Row("golden")
        with scene(Context(row, random.Random(1), 0, False), options=options) as stage:
            taken = take(stage)
        if row.problems:
            sys.exit(f"golden.py: {row.problems}")
        text = json.dumps(taken, separators=(",", ":")).encode()
        file = directory / f"{__version__}-{kind}.json.gz"
        file.write_bytes(gzip.compress(text, mtime=0))
        print(f"{file}: {len(taken['lines'])} lines, snapshot: {taken['snapshot'] is not None}")


if __name__ == "__main__":
    main()
