"""What a job wrote: from its files, or from Flux's KVS.

    a job of the service's instance ──► the KVS there
    a job of a member ──► the KVS of that member, which ends with it

Files are where they are; where a member has ended nobody has what its jobs wrote into its KVS.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flux_ensemble.cli.session.member_handles import MemberHandles

if TYPE_CHECKING:
    from flux_ensemble.client import Client

#: Bytes and lines at the end that are looked at; and bytes of all that `written` gives.
_BYTES, _LINES = 8192, 5
_MOST_BYTES = 1 << 20

_Job = Mapping[str, Any]


class Outputs:
    """What the jobs of one ensemble wrote.

    Args:
        client: of the service; None for a local run.
        name: the ensemble.
    """

    def __init__(self, client: Client | None = None, name: str = "") -> None:
        self._client = client
        self._members = None if client is None else MemberHandles(client, name)

    def tail(self, job: _Job) -> list[str]:
        """The last lines of a job's standard error; none where it cannot be read."""
        path = job["error"] or job["output"]
        text = _of_file(path) if path is not None else _last(self._streams(job))
        # The shell of Flux writes what the exception says, which is told beside this.
        note = job["exception"]["note"] or "\n"
        return [line for line in text.splitlines() if line.strip() and note not in line][-_LINES:]

    def written(self, job: _Job) -> list[tuple[str, str]]:
        """What a job wrote, of very much the end: where to, and the text."""
        paths = dict.fromkeys(path for path in (job["output"], job["error"]) if path is not None)
        found = [(path, _of_file(path, _MOST_BYTES)) for path in paths]
        if None in (job["output"], job["error"]):
            found += [(f"its {name} in Flux", text) for name, text in self._streams(job)]
        return found

    def missing(self, job: _Job) -> str:
        """Why what a job wrote cannot be read; "" where it can, or the job has files for it."""
        if "member" not in job or job["error"] or job["output"] or self._members is None:
            return ""
        if self._members.handle(job["member"]) is not None:
            return ""
        fate = self._members.fate(job["member"])
        return (
            f"what it wrote was in member {job['member']}, which {fate}; 'output: FILE' in the "
            "document keeps it"
        )

    def _streams(self, job: _Job) -> list[tuple[str, str]]:
        if self._client is None or self._members is None:
            return []
        handle = self._members.handle(job["member"]) if "member" in job else self._client.handle
        return [] if handle is None else _of_kvs(job["id"], handle)


def _last(streams: list[tuple[str, str]]) -> str:
    found = dict(streams)
    return (found.get("standard error") or found.get("standard output") or "")[-_BYTES:]


def _of_file(path: str, most: int = _BYTES) -> str:
    try:
        # A FIFO would never end.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            file.seek(max(0, os.fstat(fd).st_size - most))
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""


def _of_kvs(job: int, handle: Any) -> list[tuple[str, str]]:
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
