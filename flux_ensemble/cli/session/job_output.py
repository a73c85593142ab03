"""The end of what a job wrote to standard error: from its file, or from Flux's KVS."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

#: Bytes and lines at the end that are looked at.
_BYTES, _LINES = 8192, 5


def tail(job: Mapping[str, Any], handle: Any | None) -> list[str]:
    """The last lines of a job's standard error; none where it cannot be read.

    Args:
        job: as in `ensemble.jobs`.
        handle: Flux handle, or None for a job of the local queue.
    """
    path = job["error"] or job["output"]
    text = _of_file(path) if path is not None else ""
    if path is None and handle is not None:
        text = _of_kvs(job["id"], handle)
    return [line for line in text.splitlines() if line.strip()][-_LINES:]


def _of_file(path: str) -> str:
    try:
        # A FIFO would never end.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            file.seek(max(0, os.fstat(fd).st_size - _BYTES))
            return file.read(_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _of_kvs(job: int, handle: Any) -> str:
    import flux.job
    from flux.job.output import job_output

    try:
        output = job_output(handle, job, nowait=True)
    except (OSError, ValueError, flux.job.JobException):
        return ""
    text: str = output.stderr or output.stdout
    return text[-_BYTES:]
