"""Writes logs of ensembles as this version keeps them: `golden.py DIRECTORY`.

One ensemble has every kind of rule, action and outcome; one has searches, early stopping, copies
and predictions; one has members, of which one is lost. The service of each is killed once. Of each
there are two files: the log from the beginning, and a snapshot with what stands beside it. Later
versions have to read them, or to refuse them with a sentence
(t/python/runtime/test_golden_logs.py), so files that are there are not written again.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flux_ensemble import __version__
from flux_ensemble.bindings import require_flux

require_flux()

import members  # noqa: E402
from kills import patience  # noqa: E402
from learning import Publisher, learning  # noqa: E402
from scenario import Context, Row  # noqa: E402
from scene import Scene, within  # noqa: E402
from searches import GO_ON, HELPERS  # noqa: E402
from workloads import Workload, mixed, shared  # noqa: E402

from flux_ensemble.service.store.kvs import KvsStores  # noqa: E402

#: By the end of the file's name: options of standby.py.
KINDS = {"log": (), "snapshot": ("--snapshot-events=150",)}


def context() -> Context:
    """For one run."""
    return Context(Row("golden"), random.Random(1), 0, False)


@contextmanager
def plain(options: tuple[str, ...]) -> Iterator[tuple[Scene, Workload]]:
    """An ensemble in the midst of its run."""
    workload = mixed("golden", 40, Path("/dev/null"))
    with within(Scene(context(), options=options)) as stage:
        load(stage, workload)
        stage.witness.wait_seen(workload.name, "finish", 30)
        yield stage, workload


@contextmanager
def searches(options: tuple[str, ...]) -> Iterator[tuple[Scene, Workload]]:
    """One that searches."""
    workload = learning(24, sampler="qmc", parallel=4)
    with within(Scene(context(), options=options)) as stage:
        shutil.copy(HELPERS / "generators.py", stage.directory)
        # What the generator of the scenario waits for.
        (stage.directory / GO_ON).touch()
        publisher = Publisher(stage.instance.uri, stage.witness)
        try:
            load(stage, workload)
            stage.witness.wait_seen(workload.name, "finish", 60)
            yield stage, workload
        finally:
            publisher.close()


@contextmanager
def pool(options: tuple[str, ...]) -> Iterator[tuple[Scene, Workload]]:
    """One with members, of which one was killed."""
    workload = shared("members", 24)
    with within(members.Stage(context(), options=options)) as stage:
        load(stage, workload)
        (victim, *_) = stage.busiest(workload.name, many=2)
        victim.kill()
        stage.await_("it is lost", lambda: stage.count(workload.name, "member-lost") > 0)
        yield stage, workload


#: By the beginning of the file's name.
ENSEMBLES = {"": plain, "search-": searches, "members-": pool}


def load(stage: Scene, workload: Workload) -> None:
    """Load an ensemble, with nothing of this machine in its environment."""
    payload = {
        "spec": workload.document,
        "cwd": str(stage.directory),
        "environment": {"PATH": "/usr/local/bin:/usr/bin:/bin", **stage.instance.nested},
    }
    stage.handle.rpc("ensemble.load", payload).wait_for(60).get()


def take(stage: Scene, workload: Workload) -> dict[str, Any]:
    """Kill the service of an ensemble that runs, and read its log when it is over."""
    name = workload.name
    stage.kill()
    stage.service.await_answer(stage.handle)
    status = stage.await_end(name, patience(workload, 1))
    metrics = stage.rpc("metrics", name=name)
    stored = KvsStores(stage.handle, lambda callback: callback).read(name)
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
            "jobs": len(stage.recorded(name)),
            "searches": status.get("searches", []),
        },
    }


def main() -> None:
    """Write the files that are not there."""
    directory = Path(sys.argv[1])
    for ensemble, running in ENSEMBLES.items():
        for kind, options in KINDS.items():
            file = directory / f"{__version__}-{ensemble}{kind}.json.gz"
            if file.exists():
                continue
            with running(options) as (stage, workload):
                taken = take(stage, workload)
            if stage.row.problems:
                sys.exit(f"golden.py: {stage.row.problems}")
            text = json.dumps(taken, separators=(",", ":")).encode()
            file.write_bytes(gzip.compress(text, mtime=0))
            held = "a" if taken["snapshot"] is not None else "no"
            print(f"{file}: {len(taken['lines'])} lines, {held} snapshot")


if __name__ == "__main__":
    main()
