"""Submits jobs as Flux's own users do: `flux_client.py bare|watch|chain NAME JOBS SECONDS`.

`bare` and `watch` submit all jobs at once, without waiting for responses in between. `watch` then
follows the eventlog of each job until it is clean, which is what Flux's own throughput benchmark
does (src/test/throughput.py of flux-core); `bare` ends when each job has its id. They are mock jobs
that run for SECONDS. `chain` submits a job as soon as the one before has finished, and does nothing
else; they are processes, `true`, that no validator looks at.

Prints JSON: `begin` and `end`, when the first job was submitted and the last one had its id (or, of
a chain, has finished), in epoch seconds; and `clean`, how many jobs were seen to the end.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from flux_ensemble.bindings import require_flux

require_flux()

import flux  # noqa: E402
from flux.constants import FLUX_JOB_NOVALIDATE, FLUX_RPC_STREAMING  # noqa: E402
from flux.core.inner import lib  # noqa: E402
from flux.job import JobspecV1, event_watch_async, submit_async  # noqa: E402


class Client:
    """Submits, and watches.

    Args:
        handle: a Flux handle.
        watch: follow each job to its end.
    """

    def __init__(self, handle: Any, *, watch: bool) -> None:
        self._handle = handle
        self._watch = watch
        self.end = 0.0
        self.clean = 0

    def run(self, jobspec: str, jobs: int) -> None:
        """Submit so many jobs, and return when that, and the watching, is over."""
        for _ in range(jobs):
            submit_async(self._handle, jobspec).then(self._accepted)
        self._handle.reactor_run()

    def _accepted(self, future: Any) -> None:
        job = future.get_id()
        self.end = time.time()
        if self._watch:
            event_watch_async(self._handle, job).then(self._event)

    def _event(self, future: Any) -> None:
        event = future.get_event()
        self.clean += event is not None and event.name == "clean"


class Chain:
    """Submits a job when it sees in the journal that the one before has finished."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._futures: list[Any] = []
        self.end = 0.0
        self.clean = 0

    def run(self, jobspec: str, jobs: int) -> None:
        """Submit so many jobs, and return when the last one has finished."""
        text = jobspec.encode()
        journal = self._handle.rpc(
            "job-manager.events-journal", {"allow": {"finish": 1}}, flags=FLUX_RPC_STREAMING
        )
        # First comes what there has been, which an id of -1 ends.
        while journal.get()["id"] != -1:
            journal.reset()
        for _ in range(jobs):
            # No response is waited for: the journal tells of the job.
            future = lib.flux_job_submit(self._handle.handle, text, 16, FLUX_JOB_NOVALIDATE)
            self._futures.append(future)
            journal.reset()
            journal.get()
            self.clean += 1
        self.end = time.time()


def main() -> None:
    """Print when it began and ended."""
    kind, name, jobs, seconds = sys.argv[1:]
    jobspec = JobspecV1.from_command(["true"])
    if kind != "chain":
        jobspec.setattr("system.exec.test.run_duration", f"{seconds}s")
    jobspec.setattr("system.job.name", name)
    handle = flux.Flux()
    client = Chain(handle) if kind == "chain" else Client(handle, watch=kind == "watch")
    begin = time.time()
    client.run(jobspec.dumps(), int(jobs))
    print(json.dumps({"begin": begin, "end": client.end, "clean": client.clean}))


if __name__ == "__main__":
    main()
