"""A search of which many trials are under way at once, until they are told to go on."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from scene import Scene
from workloads import Expected, Workload

#: Trials at once and in all.
PARALLEL, TRIALS = 24, 30


def held(directory: Path, **more: Any) -> Workload:
    """A search whose first failure would close it; its trials run until `release`.

    Args:
        directory: where trials look for the word to go on, and leave their points in `points`.
        more: keys of the document; rules and keys of the group `trial` are added to its own.
    """
    script = (
        f"until test -e {directory}/go-on; do sleep 0.2; done; "
        f"flux job memo $FLUX_JOB_ID fom={{x}} && echo {{x}} >>{directory}/points"
    )
    search = {
        "id": "hpo", "group": "trial", "variables": {"x": {"low": 0, "high": 1}},
        "maximize": "fom", "sampler": "random", "trials": TRIALS, "parallel": PARALLEL,
        "failures": 1,
    }  # fmt: skip
    rules: Sequence[Mapping[str, Any]] = more.pop("rules", ())
    document = {
        "name": "search",
        "search": [search],
        "jobs": [{"name": "trial", "command": ["sh", "-c", script], **more.pop("trial", {})}],
        "rules": [{"trigger": "start", "action": {"name": "search", "label": "hpo"}}, *rules],
        **more,
    }
    return Workload(document, Expected({}))


def release(directory: Path) -> None:
    """Have the trials end, those that run and those that will."""
    (directory / "go-on").touch()


def check_trials(
    stage: Scene, name: str, status: Mapping[str, Any], interrupted: Container[int]
) -> None:
    """Note what is not as expected: each trial is complete, each point once, none has failed.

    Args:
        stage: where it ran.
        name: of the ensemble.
        status: of the ensemble at its end.
        interrupted: how many attempts may have been.
    """
    (search,) = status["searches"]
    counts = status["groups"]["trial"]
    recorded = [row["params"]["x"] for row in stage.recorded(name) if row["outcome"] == "success"]
    # A task that outlived its broker writes its point, too.
    done = {float(line) for line in (stage.directory / "points").read_text().split()}
    held_to = {
        "state": ("completed", status["state"]),
        "complete trials": (TRIALS, search["complete"]),
        "failed trials": (0, search["failed"]),
        "canceled trials": (0, search["canceled"]),
        "jobs that succeeded": (TRIALS, counts["success"]),
        "jobs that failed": (0, counts["failed"]),
        "points that are recorded": (TRIALS, len(set(recorded))),
        "points that were run and not recorded": (set(), done - set(recorded)),
        "points that are recorded and were not run": (set(), set(recorded) - done),
    }
    problems = [
        f"{name}: expected {right!r} as {what}, found {found!r}"
        for what, (right, found) in held_to.items()
        if right != found
    ]
    if counts["interrupted"] not in interrupted:
        problems.append(f"{name}: {counts['interrupted']} attempts were interrupted")
    met = stage.row.reached
    met["interrupted"] = met.get("interrupted", 0) + counts["interrupted"]
    stage.row.jobs += counts["attempts"]
    stage.note(problems)
