"""The control ensemble: a chain of jobs that must go on undisturbed, and be counted exactly."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import verify
from witness import Job
from workloads import Expected, Submits, mock

from hostile.judge import Finding

NAME = "control"

#: Prints the jobs of an ensemble, as the queue recorded them.
JOBS = Path(__file__).resolve().parents[2] / "lib" / "jobs.py"

#: A job takes so many seconds; the chain stands still when none ends in so many.
_SECONDS, _STILL = 0.1, 20.0

DOCUMENT: Mapping[str, Any] = {
    "name": NAME,
    "jobs": [{"name": "link", "command": "true", "attributes": mock(_SECONDS)}],
    "rules": [
        {"id": "first", "trigger": "start", "action": {"name": "submit", "label": "link"}},
        {
            "id": "next",
            "trigger": "job-success",
            "group": "link",
            "action": {"name": "submit", "label": "link", "repetitions": "unlimited"},
        },
    ],
}


class Control:
    """Watches the control ensemble."""

    def __init__(self) -> None:
        self._finished = 0
        self._t = time.monotonic()

    def progress(self, status: Mapping[str, Any]) -> Iterator[Finding]:
        """Look at it in an answer to `ensemble.status`; a finding if it stands still."""
        found = [one for one in status["ensembles"] if one["name"] == NAME]
        if not found or found[0]["state"] != "running":
            state = f"{found[0]['state']}: {found[0]['reason']}" if found else "gone"
            yield Finding("control", f"the control ensemble is {state}")
            return
        finished, now = found[0]["groups"]["link"]["finished"], time.monotonic()
        if finished > self._finished:
            self._finished, self._t = finished, now
        elif now > self._t + _STILL:
            yield Finding("control", "the control ensemble stands still", vague=True)


def verified(jobs: str, status: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[Finding]:
    """Hold the control ensemble, which has ended, against what the queue says of its jobs.

    Args:
        jobs: what `JOBS` printed.
        status: of it.
        metrics: the answer to `ensemble.metrics`.
    """
    found = [_job(one) for one in json.loads(jobs)]
    many = len(found)
    submits = {"first": Submits("link", 1, 1), "next": Submits("link", many - 1, 1)}
    expected = Expected(submits, outcomes={"link": {"success": many}})
    findings = verify.Findings()
    verify.check_tags(expected, found, findings)
    verify.check_metrics(found, metrics, findings)
    verify.check_outcomes(expected, metrics, findings)
    fired = {rule["id"]: rule["fired"] for rule in status["rules"]}
    findings.expect(expected.fires(), fired, "firings by rule")
    findings.expect("completed", status["state"], "state")
    findings.expect(0, status["violations"], "violations")
    return [Finding("control", f"the control ensemble: {one}") for one in findings.problems]


def _job(told: Mapping[str, Any]) -> Job:
    job = Job(told["id"])
    job.tag = dict(told["tag"])
    for event in told["events"]:
        job.take(event)
    return job
