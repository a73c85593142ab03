"""The end of what a job wrote: from its files, or from Flux's KVS."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

#: Bytes and lines at the end that are looked at; and bytes of all that `written` gives.
_BYTES, _LINES = 8192, 5
_MOST_BYTES = 1 << 20


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
    # The shell of Flux writes what the exception says, which is told beside this.
    note = job["exception"]["note"] or "\n"
    return [line for line in text.splitlines() if line.strip() and note not in line][-_LINES:]


def written(job: Mapping[str, Any], handle: Any | None) -> list[tuple[str, str]]:
    """What a job wrote, of very much the end: where to, and the text.

    Args:
        job, handle: as for `tail`.
    """
    paths = dict.fromkeys(path for path in (job["output"], job["error"]) if path is not None)
    found = [(path, _of_file(path, _MOST_BYTES)) for path in paths]
    if handle is not None and None in (job["output"], job["error"]):
        found += [(f"its {name} in Flux", text) for name, text in _streams(job["id"], handle)]
    return found


def _of_file(path: str, most: int = _BYTES) -> str:
    try:
        # A FIFO would never end.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            file.seek(max(0, os.fstat(fd).st_size - most))
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""


def _of_kvs(job: int, handle: Any) -> str:
    streams = dict(_streams(job, handle))
    text = streams.get("standard error") or streams.get("standard output") or ""
    return text[-_BYTES:]


def _streams(job: int, handle: Any) -> list[tuple[str, str]]:
    import flux.job
    from flux.job.output import job_output

    try:
        output = job_output(handle, job, nowait=True)
    except (OSError, ValueError, flux.job.JobException):
        return []
    return [
        ("standard output", output.stdout[-_MOST_BYTES:]),
        ("standard error", output.stderr[-_MOST_BYTES:]),
    ]
