"""Client of local runs: the methods of `client.Client`, without a service.

What has happened is read from the files of a run, whether it continues or not; requests are sent
to its socket. Every failure is an `EnsembleError`, as for `Client`.
"""

from __future__ import annotations

import builtins
import errno
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flux_ensemble.client import EnsembleError
from flux_ensemble.client.requests import EnsembleRequests
from flux_ensemble.client.tables import AttemptFilter, JobTable, wants_interrupted
from flux_ensemble.client.troubles import failed_jobs
from flux_ensemble.queues.local.kinds import QueueName
from flux_ensemble.queues.local.root import StateError, UnreadableError, advised

if TYPE_CHECKING:
    from flux_ensemble.client.responses import Ended, EnsembleStatus, Summary
    from flux_ensemble.queues.local.states import Mark

#: Seconds between two reads of the files.
LOOK_SECONDS = 0.1

#: Bytes at the end of a log or file of jobs that `News` reads at once.
MOST_BYTES = 4 << 20

#: The member of a job, if there are any, and its id there.
_Key = tuple[str | None, int]


class LocalStateError(EnsembleError):
    """The files of a run cannot be read, or there is none of the name; similar ones are named."""


class LocalClient(EnsembleRequests):
    """The local runs in a state directory; the methods are those of `client.Client`.

    Args:
        root: the state directory.
        queue: the user chose it with `--queue`.
        sleep: waits so many seconds between two reads; it may raise to end the wait.
    """

    #: What the ensembles are in, and a job as it is named to commands.
    KIND = "local queue"
    EXAMPLE = "17"

    def __init__(
        self,
        root: Path,
        *,
        queue: QueueName | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        # Imported here, because most commands use a service.
        from flux_ensemble.queues.local.states import States

        self.root = root
        self.queue = queue
        self._sleep = sleep
        self.states = States(root)

    def command(self, *words: str) -> str:
        """A command about these ensembles, for people."""
        return advised(self.root, *words, queue=self.queue)

    # -- what there is ----------------------------------------------------------------

    def list(self) -> builtins.list[Any]:
        """Do as `Client.list`: latest begun at the end, including unreadable ensembles."""
        listed: builtins.list[Any] = []
        for name in self.names():
            try:
                listed.append(summary_of(self._status(name)))
            except LocalStateError as error:
                listed.append(_unreadable(name, str(error)))
        return listed

    def status(self, name: str | None = None) -> dict[str, Any]:
        """Do as `Client.status`, without the parts about the service."""
        if name is not None:
            return {"ensembles": [self._status(name)]}
        ensembles, unreadable = [], {}
        for one in self.names():
            try:
                ensembles.append(self._status(one))
            except LocalStateError as error:
                unreadable[one] = str(error)
        return {"ensembles": ensembles, "unreadable": unreadable}

    def interrupted(self, name: str) -> dict[str, Any] | None:
        """Return the status of an ensemble whose run was interrupted; else None."""
        status = self._status(name)
        return status if self.states.is_interrupted(status) else None

    def facts(self, status: Mapping[str, Any]) -> dict[str, str]:
        """Return facts about the host, of which a local run has none."""
        return {}

    def host_of(self, rank: int) -> None:
        """Return the host of a rank, which there is only in Flux."""

    @staticmethod
    def label(id: int) -> str:
        """Return a job id as it is printed."""
        return str(id)

    @staticmethod
    def job_id(text: str) -> int:
        """Return the job id of a text, or raise `ValueError`."""
        return int(text)

    def owner(self, name: str) -> int:
        """Return the user who owns the ensemble."""
        with _sentences():
            return self.states.owner(name)

    def kept_file(self, name: str, job: int) -> str:
        """Return the file for the output of a job whose document names none."""
        from flux_ensemble.queues.local.state_dir import kept_files

        return kept_files(self.root / name)(job)

    def tails(self, name: str, member: str) -> dict[int, str]:
        """Return the last output of failed tasks of a worker, by their ids."""
        from flux_ensemble.queues.local.directory import open_directory
        from flux_ensemble.queues.local.root import StateError
        from flux_ensemble.queues.local.state_dir import TAILS
        from flux_ensemble.queues.nested.tails import MOST_BYTES, tails

        try:
            with (
                open_directory(self.root, ours=False) as root,
                root.enter(name) as run,
                run.enter(TAILS) as directory,
            ):
                return tails(directory.read(member, MOST_BYTES).decode(errors="replace"))
        except (StateError, OSError):
            return {}

    def metrics(self, name: str) -> dict[str, dict[str, Any]]:
        """Do as `Client.metrics`."""
        with _sentences():
            return self.states.metrics(name)

    def jobs(
        self,
        name: str,
        *,
        filter: str | None = None,
        group: str | None = None,
        outcome: str | None = None,
        interrupted: bool = False,
        last: int | None = None,
    ) -> JobTable:
        """Do as `Client.jobs`; with active jobs only if the run reports them."""
        all_attempts = interrupted or wants_interrupted(filter, outcome)
        chosen = any((filter, group, outcome))
        return JobTable(
            lambda: self._jobs(name, filter, group, outcome),
            lambda: self._jobs(name, None, group, None) if filter or outcome else (),
            interrupted=all_attempts,
            last=last,
            page=lambda most: None if chosen else self._last_jobs(name, most, every=all_attempts),
            stopped=lambda: self.states.is_interrupted(self._status(name)),
        )

    def _last_jobs(
        self, name: str, most: int, *, every: bool
    ) -> tuple[builtins.list[Any], int, int] | None:
        """Return the last jobs, their number, and that of the attempts that are left out.

        None if there is no file of those that ended. `every`: leave no attempt out.
        """
        attempts = None if every else AttemptFilter()
        with _sentences():
            size = self.states.ended_size(name)
            active = self._active(name)
            page = self.states.last_jobs(name, most, attempts, size)
            if page is None:
                return None
            rows, total, meanwhile = page
            for row in meanwhile:
                active.pop(_key(row), None)
            others = list(active.values())
            if attempts is not None:
                others = [row for row in others if attempts.take(row)]
                stopped = bool(attempts.held) and self.states.is_interrupted(self._status(name))
                others += attempts.last(stopped=stopped)
            left_out = 0 if attempts is None else attempts.left_out
            return [*rows, *others][-most:], total + len(others), left_out

    def _jobs(
        self, name: str, filter: str | None, group: str | None, outcome: str | None
    ) -> Iterator[Any]:
        # Imported here, because most commands have no filter.
        from flux_ensemble.metrics.job_filter import check_outcome, compile_choice
        from flux_ensemble.metrics.paths import no_group

        try:
            check_outcome(outcome)
        except ValueError as error:
            raise EnsembleError(errno.EINVAL, str(error)) from None
        try:
            chosen = compile_choice(filter, group, outcome)
        except ValueError as error:
            raise EnsembleError(errno.EINVAL, f"filter: {error}") from None
        if group is not None and group not in (groups := self._status(name)["groups"]):
            raise EnsembleError(errno.ENOENT, no_group(group, groups))
        with _sentences():
            active = self._active(name)
            for job in self.states.jobs(name):
                active.pop(_key(job), None)
                if chosen(job):
                    yield job
            for job in active.values():
                if chosen(job):
                    yield job

    def why(self, name: str, rule: str | None = None) -> Any:
        """Do as `Client.why`."""
        with _sentences():
            return self.states.why(name, rule)

    def log(self, name: str, *, follow: bool = False) -> Iterator[Any]:
        """Do as `Client.log`."""
        if follow:
            yield from (entry for entry in self.follow(name) if entry is not None)
            return
        with _sentences():
            yield from self.states.log(name)

    def follow(self, name: str, pause: float = LOOK_SECONDS) -> Iterator[Any]:
        """Yield the entries of a log until its run is over, with None after each read.

        Args:
            name: the ensemble.
            pause: seconds between two reads.

        Raises:
            EnsembleError: another run has taken its place, or it was unloaded.
        """
        from flux_ensemble.queues.local.states import LogFollower

        following = LogFollower(self.states, name)
        with _sentences():
            while True:
                yield from following.take()
                yield None
                if following.over:
                    return
                self._sleep(pause)

    def news(self, name: str) -> News:
        """Do as `Client.news`."""
        return News(self, name)

    def wait(self, name: str, timeout: float | None = None) -> Ended:
        """Do as `Client.wait`; a run that was killed has ended, as failed."""
        from flux_ensemble.engine.lifecycle import FINAL_STATES

        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            status = self._status(name)
            if status["state"] in FINAL_STATES:
                return {"name": name, "state": status["state"], "reason": status["reason"]}
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"ensemble {name!r} has not ended in time")
            self._sleep(LOOK_SECONDS)

    # -- what they are asked for --------------------------------------------------------

    def unload(self, name: str, *, force: bool = False) -> str:
        """Do as `Client.unload`: remove the ensemble's files, with the output of its jobs.

        Args:
            name: the ensemble.
            force: also if its run was killed and could continue.
        """
        from flux_ensemble.queues.local.removal import unload

        with _sentences():
            return unload(self.states, self.root, name, force=force)

    # -- helpers ----------------------------------------------------------------------

    def call(self, op: str, **payload: Any) -> Any:
        """Send a request to the run of a `name`, and return its response, as `Client.call` does."""
        from flux_ensemble.queues.local.contact import ask

        with _sentences():
            return ask(self.states, payload.pop("name"), op, payload)

    def _active(self, name: str) -> dict[_Key, Any]:
        """Return the jobs that the run has; none if the run cannot be reached."""
        from flux_ensemble.engine.errors import RequestError
        from flux_ensemble.engine.lifecycle import FINAL_STATES
        from flux_ensemble.queues.local.contact import ask

        if self.states.status(name)["state"] in FINAL_STATES:
            return {}
        try:
            jobs = ask(self.states, name, "jobs", {})["jobs"]
        except RequestError:
            return {}
        return {_key(job): job for job in jobs}

    def names(self) -> builtins.list[str]:
        """Return the names of the runs, the latest last."""
        with _sentences():
            return self.states.names()

    def _status(self, name: str) -> Any:
        with _sentences():
            return self.states.status(name)


class News:
    """The log of an ensemble, and its jobs that failed, as `client.news.News` reads them.

    Args:
        client: has the files of the run.
        name: the ensemble.

    Attributes:
        t_first: time of the first entry of the log; None before that is read.
    """

    def __init__(self, client: LocalClient, name: str) -> None:
        self._client = client
        self._name = name
        self._marks: dict[str, Mark] = {}
        self.t_first: float | None = None

    def read(self, log: deque[Any]) -> None:
        """Add the entries that are new; of a long log, or one that is another, the end alone."""
        entries, fresh = self._read_on("eventlog")
        if fresh:
            log.clear()
        log.extend(entries)
        if self.t_first is None:
            # Of a long log the end alone was read.
            first = next(self._client.log(self._name), None)
            self.t_first = None if first is None else first["timestamp"]

    def failed(self) -> Iterator[Any]:
        """Yield jobs that failed or ran out of time."""
        jobs, _ = self._read_on("jobs")
        return (job for job in jobs if job["outcome"] in ("failed", "timeout"))

    def _read_on(self, file: str) -> tuple[builtins.list[dict[str, Any]], bool]:
        before = self._marks.get(file)
        with _sentences():
            found, self._marks[file], fresh = self._client.states.read_on(
                self._name, file, before, MOST_BYTES
            )
        return found, fresh


def _key(job: Mapping[str, Any]) -> _Key:
    return job.get("member"), job["id"]


def summary_of(status: EnsembleStatus) -> Summary:
    """Return the entry of `list` for an ensemble of `status`."""
    summary: Summary = {
        "name": status["name"],
        "state": status["state"],
        "reason": status.get("reason", ""),
        "t_start": status["t_start"],
        "t_end": status["t_end"],
        "active": status["jobs"]["active"],
        "waiting": status["jobs"]["waiting"],
        "finished": sum(group["finished"] for group in status["groups"].values()),
        "failed": failed_jobs(status),
    }
    if status.get("resumable"):
        summary["resumable"] = True
    if "away" in status:
        summary["away"] = status["away"]
    if "absences" in status:
        summary["absences"] = status["absences"]
    return summary


def _unreadable(name: str, reason: str) -> Summary:
    """Return the entry of `list` for an ensemble whose files cannot be read."""
    return {
        "name": name,
        "state": "unreadable",
        "reason": reason,
        "t_start": None,
        "t_end": None,
        "active": 0,
        "waiting": 0,
        "finished": 0,
        "failed": 0,
    }


@contextmanager
def _sentences() -> Iterator[None]:
    """Convert what files and runs raise to the errors of a client."""
    from flux_ensemble.engine.errors import RequestError

    try:
        yield
    except UnreadableError as error:
        raise LocalStateError(errno.EIO, str(error)) from None
    except StateError as error:
        raise LocalStateError(errno.ENOENT, str(error)) from None
    except RequestError as error:
        raise EnsembleError(error.errno, str(error)) from None
    except EnsembleError:
        raise
    except OSError as error:
        where = f"cannot read {error.filename}: " if error.filename is not None else ""
        text = f"{where}{error.strerror or error}"
        raise LocalStateError(error.errno or errno.EIO, text) from None
