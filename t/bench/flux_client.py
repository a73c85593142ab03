"""Submits mock jobs as Flux's own users do: `flux_client.py bare|watch NAME JOBS SECONDS`.

Both submit all jobs at once, without waiting for responses in between. `watch` then follows the
eventlog of each job until it is clean, which is what Flux's own throughput benchmark does
(src/test/throughput.py of flux-core); `bare` ends when each job has its id. The jobs run for
SECONDS.

Prints JSON: `begin` and `end`, when the first job was submitted and the last one had its id, in
epoch seconds; and `clean`, how many jobs were seen to the end.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from flux_ensemble.bindings import require_flux

require_flux()

import flux  # noqa: E402
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


def main() -> None:
    """Print when it began and ended."""
    kind, name, jobs, seconds = sys.argv[1:]
    jobspec = JobspecV1.from_command(["true"])
    jobspec.setattr("system.exec.test.run_duration", f"{seconds}s")
    jobspec.setattr("system.job.name", name)
    client = Client(flux.Flux(), watch=kind == "watch")
    begin = time.time()
    client.run(jobspec.dumps(), int(jobs))
    print(json.dumps({"begin": begin, "end": client.end, "clean": client.clean}))


if __name__ == "__main__":
    main()
