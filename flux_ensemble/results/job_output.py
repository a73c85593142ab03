"""The output of a job: from its files, or from Flux's KVS.

    a job of the service's instance ──► the KVS there
    a job of a member ──► the KVS of that member, which ends with it
    a task of a worker ──► that worker, by the service; the last lines of failed ones ──► what the
    worker has printed, in the KVS of the service's instance, or what its home keeps without Flux

Files stay where they are; after the end of a member, what it has of the output is lost. A file that
was modified after the end of its job is no evidence of what that job wrote: a later run whose
document names the same files has written it again.

The owner of the ensemble decides where the files are. For another user's ensemble only files of
that user are read: otherwise root could be made to read any file.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from flux_ensemble.client.errors import EnsembleError
from flux_ensemble.files import ForeignFile, open_to_read
from flux_ensemble.metrics.expressions import MAX_LENGTH
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.queues.nested.tails import tails
from flux_ensemble.results.hosts import members_of
from flux_ensemble.results.shared_files import SharedFiles
from flux_ensemble.texts import one_line

if TYPE_CHECKING:
    from flux_ensemble.client import Client
    from flux_ensemble.client.responses import EnsembleStatus

#: Seconds within which a broker has to accept a connection, and a worker to end.
ANSWER_SECONDS = 5.0

#: Seconds between two looks at a worker that is about to end.
PAUSE_SECONDS = 0.05

#: Bytes at the end that `tail` examines, and how many lines of standard error, or of what there is,
#: and of standard output before it.
_BYTES, _LINES, _LINES_BEFORE = 8192, 5, 3

#: Most bytes of a file that `written` returns.
_MOST_BYTES = 1 << 20

#: Seconds after the end of a job within which a file may be modified and be the job's own: buffers
#: are flushed, and the clock of a file server differs.
LATE_SECONDS = 2.0

#: The name of what a job wrote to standard error in Flux.
_STANDARD_ERROR = "its standard error in Flux"

_Job = Mapping[str, Any]

#: The message about a job without output, which may be elsewhere.
NOTHING = "it has written nothing that can be read from here"


class Outputs:
    """The output of the jobs of one ensemble.

    Args:
        target: the host of the ensemble.
        name: the ensemble.
    """

    def __init__(self, target: Client | LocalClient, name: str) -> None:
        self._client = None if isinstance(target, LocalClient) else target
        self._members = (
            None if self._client is None else MemberHandles(self._client, name, lambda: self._owner)
        )
        self._target = target
        self._name = name

    @cached_property
    def _owner(self) -> int:
        """The user who owns the ensemble."""
        return self._target.owner(self._name)

    def tail(self, job: _Job) -> list[str]:
        """Return the last lines that a job wrote; none if they cannot be read.

        Those of its standard error are last, after fewer of its standard output: some programs
        write there why they fail. Files that were written again after the job are left out.
        """
        # Flux's shell writes the text of the exception, which is printed next to this.
        note = job["exception"]["note"] or "\n"
        ends: list[list[str]] = []
        later = self._later(job)
        texts = [each for each in self.written(job, _BYTES) if each[0] not in later]
        for _, text in sorted(texts, key=lambda each: each[0] in (job["error"], _STANDARD_ERROR)):
            lines = text[-_BYTES:].decode(errors="replace").splitlines()
            if kept := [line for line in lines if line.strip() and note not in line]:
                ends.append(kept)
        before = [line for lines in ends[:-1] for line in lines[-_LINES_BEFORE:]]
        return before + (ends[-1][-_LINES:] if ends else [])

    def written(self, job: _Job, most: int = _MOST_BYTES) -> list[tuple[str, bytes]]:
        """Return a job's outputs (the end of long ones), each with its name.

        Args:
            job: the job.
            most: bytes of a file.
        """
        found = [(path, self._of_file(path, most)) for path in _paths(job)]
        if None in (job["output"], job["error"]):
            streams = self._streams(job)
            where = "" if self._client is None else " in Flux"
            found += [
                (f"its {name}{where}", text.encode(errors="replace")) for name, text in streams
            ]
        return found

    def missing(self, job: _Job) -> str:
        """Return why a job's output cannot be read; "" if it can, or the job has files for it.

        What is in a file that was written again cannot be read as the job's, either.
        """
        for path in _paths(job):
            try:
                os.close(self._open(path))
            except ForeignFile as error:
                return f"{error}, and not to user {self._owner}, whose job it was"
            except OSError:
                continue
        if rewritten := self.rewritten(job):
            return rewritten
        if "member" not in job or job["error"] or job["output"] or self._members is None:
            return ""
        if self._members.is_worker(job["member"]):
            return ""
        if self._members.handle(job["member"]) is not None:
            return ""
        if job["id"] in self._members.tails(job["member"]):
            return ""
        fate = self._members.fate(job["member"])
        return (
            f"what it wrote was in member {job['member']}, which {fate}; 'output: FILE' in the "
            "document keeps it"
        )

    def nothing(self, job: _Job) -> str:
        """Return the message about a job of which no output was found.

        It is certain that an ended job wrote nothing if each of its outputs is here, and empty.
        """
        here = job["t_end"] is not None and all(self._is_here(job, one) for one in _paths(job))
        if not _paths(job) or (self._client is not None and None in (job["output"], job["error"])):
            here = here and bool(self._streams(job))
        return "it wrote nothing" if here else NOTHING

    def _is_here(self, job: _Job, path: str) -> bool:
        """Return whether a file of a job can be read, or is one that a local run removed empty."""
        try:
            file = self._open(path)
        except FileNotFoundError:
            return self._is_kept(job, path)
        except OSError:
            return False
        try:
            return stat.S_ISREG(os.fstat(file).st_mode)
        finally:
            os.close(file)

    def rewritten(self, job: _Job) -> str:
        """Return a note if files of a job were written again after its end; "" if none was."""
        if not (later := self._later(job)):
            return ""
        were = "was" if len(later) == 1 else "were"
        again = f"{were} written again after the job ended, perhaps by another run"
        return f"{' and '.join(map(one_line, later))} {again}"

    def _later(self, job: _Job) -> list[str]:
        """Return the files of a job that were modified after its end.

        The end of an interrupted attempt is when it was last known to go on, so its own output may
        be later. A file that a local run keeps for a job is the job's own, also if it was copied.
        """
        end = job["t_end"]
        if end is None or job["outcome"] == "interrupted":
            return []
        return [
            path
            for path in _paths(job)
            if self._is_later(self._modified(path), end, path) and not self._is_kept(job, path)
        ]

    def _is_later(self, modified: float, end: float, path: str) -> bool:
        """Return whether a file was written after the end of its job by something else."""
        if modified <= end:
            return False
        return modified > end + LATE_SECONDS or self._is_of_another(path, end, modified)

    def _is_of_another(self, path: str, end: float, modified: float) -> bool:
        """Return whether a job of another ensemble had a file when it was modified."""
        file = repr(path)
        ran = f"t_run <= {modified:.6f} and not t_end < {end:.6f}"
        for one in self._others:
            began, ended = one["t_start"], one["t_end"]
            if began is None or began > modified or (ended is not None and ended < end):
                continue
            filter = f"(output == {file} or error == {file}) and {ran}"
            with contextlib.suppress(EnsembleError):  # removed meanwhile, or the name is too long
                if any(True for _ in self._target.jobs(one["name"], filter=filter)):
                    return True
        return False

    @cached_property
    def _others(self) -> Sequence[Any]:
        """The other ensembles of the host."""
        try:
            return [one for one in self._target.list() if one["name"] != self._name]
        except EnsembleError:
            return []

    def _modified(self, path: str) -> float:
        """Return when a regular file was modified; 0 if it is none, or cannot be read."""
        try:
            file = self._open(path)
        except OSError:
            return 0.0
        try:
            status = os.fstat(file)
        finally:
            os.close(file)
        return status.st_mtime if stat.S_ISREG(status.st_mode) else 0.0

    def shared(self, jobs: Collection[_Job]) -> SharedFiles:
        """Return which files of these jobs others wrote, too.

        Only the jobs that have these files are requested. A file that a local run keeps for a job
        is named after its id, so no other job writes to it.
        """
        files = SharedFiles()
        paths = sorted(
            {path for job in jobs for path in _paths(job) if not self._is_kept(job, path)}
        )
        if paths:
            # As Python writes texts, so does a filter.
            same = f"output in {paths!r} or error in {paths!r}"
            filter = same if len(same) <= MAX_LENGTH else None
            for job in self._target.jobs(self._name, filter=filter, interrupted=True):
                files.add(job)
        return files

    def _is_kept(self, job: _Job, path: str) -> bool:
        return path == self._target.kept_file(self._name, job["id"])

    def _of_file(self, path: str, most: int) -> bytes:
        try:
            with os.fdopen(self._open(path), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - most))
                return file.read(most)
        except OSError:
            return b""

    def _open(self, path: str) -> int:
        if self._owner == os.geteuid():
            # Without O_NONBLOCK, opening a FIFO could block for ever.
            return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return open_to_read(path, owners=(self._owner,))

    def _streams(self, job: _Job) -> list[tuple[str, str]]:
        if self._client is None or self._members is None:
            return self._of_worker(self._target, job) if "member" in job else []
        if "member" in job and self._members.is_worker(job["member"]):
            return self._of_worker(self._client, job)
        handle = self._members.handle(job["member"]) if "member" in job else self._client.handle
        return self._of_ended(job) if handle is None else _of_kvs(job["id"], handle)

    def _of_worker(self, client: Client | LocalClient, job: _Job) -> list[tuple[str, str]]:
        from flux_ensemble.client import EnsembleError

        try:
            output = client.output(self._name, job["member"], job["id"])
        except EnsembleError:
            return self._of_ended(job)
        return [] if output is None else [("output", output)]

    def _of_ended(self, job: _Job) -> list[tuple[str, str]]:
        """Return what a member that is not there has left of a job's output."""
        member = job["member"]
        if isinstance(self._target, LocalClient):
            kept = self._target.tails(self._name, member)
        else:
            assert self._members is not None
            kept = self._members.tails(member)
        tail = kept.get(job["id"])
        return [] if tail is None else [("last output", tail)]


def _paths(job: _Job) -> list[str]:
    """Return the files that a job wrote to."""
    return list(dict.fromkeys(path for path in (job["output"], job["error"]) if path is not None))


def _of_kvs(job: int, handle: Any, *, whole: bool = False) -> list[tuple[str, str]]:
    import flux.job
    from flux.job.output import job_output

    try:
        output = job_output(handle, job, nowait=True)
    except (OSError, ValueError, flux.job.JobException):
        return []
    first = 0 if whole else -_MOST_BYTES
    return [
        ("standard output", output.stdout[first:]),
        ("standard error", output.stderr[first:]),
    ]


class MemberHandles:
    """Handles of the members of one ensemble, opened when they are needed.

    Args:
        client: of the service that has the ensemble.
        name: the ensemble.
        owner: returns the user who owns it.
    """

    def __init__(self, client: Client, name: str, owner: Callable[[], int]) -> None:
        self._client = client
        self._name = name
        self._owner = owner
        self._handles: dict[str, Any] = {}
        self._tails: dict[str, dict[int, str]] = {}

    def handle(self, member: str) -> Any | None:
        """Return a handle of a member; None if it has ended, or does not answer."""
        if member not in self._handles:
            uri = self._known.get(member)
            self._handles[member] = None if uri is None else _opened(uri)
        return self._handles[member]

    def is_worker(self, member: str) -> bool:
        """Return whether a member is there and is a worker, which is reached by its service."""
        return self._known.get(member, "") is None

    def fate(self, member: str) -> str:
        """Return why there is no handle of a member."""
        return "cannot be reached" if member in self._known else "has ended"

    def tails(self, member: str) -> dict[int, str]:
        """Return the last lines of failed jobs that a member has printed, if it was a worker."""
        if member not in self._tails:
            self._tails[member] = tails(
                "".join(
                    text
                    for job in self._jobs(member)
                    for name, text in _of_kvs(job, self._client.handle, whole=True)
                    if name == "standard output"
                )
            )
        return self._tails[member]

    def _jobs(self, member: str) -> list[int]:
        """Return the ids of the jobs that have run a member."""
        from flux.constants import FLUX_JOB_STATE_INACTIVE as INACTIVE

        from flux_ensemble.queues.nested.shape import job_name

        names = [job_name(self._name, member, prefix) for prefix in ("", f"{self._name}.")]
        times = ((">=", self._status["t_start"]), ("<=", self._status["t_end"]))
        constraint = {
            "and": [
                {"name": names},
                {"userid": [self._owner()]},
                *({"t_submit": [f"{sign}{t}"]} for sign, t in times if t is not None),
            ]
        }
        request = {"max_entries": 0, "attrs": ["state"], "constraint": constraint}
        late = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                jobs = self._client.handle.rpc("job-list.list", request).get()["jobs"]
            except OSError:
                return []
            # Workers end after their ensemble, and then Flux has all that they printed.
            ended = all(job["state"] == INACTIVE for job in jobs)
            if ended or self._status["t_end"] is None or time.monotonic() > late:
                return sorted(job["id"] for job in jobs)
            time.sleep(PAUSE_SECONDS)

    @cached_property
    def _status(self) -> EnsembleStatus:
        (status,) = self._client.status(self._name)["ensembles"]
        return status

    @cached_property
    def _known(self) -> dict[str, str | None]:
        """The URIs of the members that have not ended."""
        return {member["name"]: member.get("uri") for member in members_of(self._status)}


def _opened(uri: str) -> Any | None:
    import flux

    from flux_ensemble.queues.nested.proxy import here

    local = here(uri)
    with contextlib.suppress(OSError, ValueError):
        return flux.Flux(uri) if local is None else _local(local)
    return None


def _local(uri: str) -> Any:
    """Open a handle of a broker of this machine, without waiting for a stopped one.

    Flux waits for a byte by which the broker accepts it (flux-core `librouter/usock.c`).
    """
    import flux

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(urlparse(uri).path)
        if not connection.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError
        connection.setblocking(True)
        handle = flux.Flux(f"fd://{connection.fileno()}")
        connection.detach()
    return handle
