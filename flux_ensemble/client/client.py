"""Python client of the ensemble service: one method for each RPC topic.

    from flux_ensemble.client import Client

    client = Client()
    name = client.load(open("ensemble.yaml").read(), file="ensemble.yaml")["name"]
    client.submit(name, "echo", count=2)
    print(client.wait(name)["state"])

Every failure, of the service or the connection, is an `EnsembleError` with an errno and one
sentence. If the service goes away while `log` or `wait` follow an ensemble, these wait for up to a
minute until it is back, and continue.

docs/rpc.md describes the payloads. A script can also send the requests itself, with Flux as its
only dependency (examples/raw_rpc.py).
"""

from __future__ import annotations

import builtins
import errno
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flux_ensemble import eventlog
from flux_ensemble.client.connection import Connection
from flux_ensemble.client.errors import EnsembleError
from flux_ensemble.client.instance import user_context
from flux_ensemble.client.log import EnsembleLog
from flux_ensemble.client.news import News
from flux_ensemble.client.requests import EnsembleRequests
from flux_ensemble.client.tables import JobTable, wants_interrupted

if TYPE_CHECKING:
    from flux_ensemble.client.responses import (
        Ended,
        Entry,
        Loaded,
        State,
        Status,
        Summary,
        Why,
    )
    from flux_ensemble.metrics.job_row import JobRow

    # `Client.list` hides the built-in name inside the class.
    Summaries = list[Summary]

#: Jobs of a page. The service reads its record in pieces of thousands, one of them again for each
#: page; the number of jobs that it examines for a page is bounded, too.
PAGE = 10_000


class Client(Connection, EnsembleRequests):
    """The ensemble service of one Flux instance; see `Connection` for the arguments.

    The examples of the methods continue from this one.

    >>> client = Client()
    >>> jobs = [{"name": "echo", "command": "true"}]
    >>> client.load({"name": "demo", "finish": "never", "jobs": jobs})["state"]
    'running'
    """

    def load(
        self,
        document: str | Mapping[str, Any],
        *,
        name: str | None = None,
        file: str | None = None,
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
        scaler: Mapping[str, Any] | None = None,
        workers: int | None = None,
    ) -> Loaded:
        """Load a document and start the ensemble.

        Args:
            document: the text of an ensemble document, or the document as a mapping.
            name: the ensemble's name; default: the document's, else the stem of `file`.
            file: the document's file name, for messages and for paths relative to it.
            cwd: working directory of its jobs; default: this process's directory.
            environment: of its jobs; default: this process's environment.
            scaler: how to change the size of the instance: keys of the table [ensemble]
                (docs/elastic.md); default: the site's configuration.
            workers: run the jobs as tasks of so many workers, each of which takes a node.

        >>> text = "jobs: [{name: sleep, command: sleep 1}]"
        >>> client.load(text, name="short", environment={"PATH": "/bin:/usr/bin"})["name"]
        'short'
        """
        kind = "text" if isinstance(document, str) else "spec"
        payload = {kind: document, **user_context(cwd, environment)}
        payload.update(name=name, file=file, scaler=scaler, workers=workers)
        loaded: Loaded = self.call("load", **payload)
        return loaded

    def list(self) -> Summaries:
        """Return all ensembles, including those that have ended.

        >>> [(summary["name"], summary["state"]) for summary in client.list()]
        [('demo', 'running')]
        """
        ensembles: Summaries = self.call("list")["ensembles"]
        return ensembles

    def names(self) -> builtins.list[str]:
        """Return the names of all ensembles, the latest last.

        >>> client.names()
        ['demo']
        """
        return [summary["name"] for summary in self.list()]

    def status(self, name: str | None = None) -> Status:
        """Return the service, the nodes, the queue, and the ensembles (or the one of that name).

        >>> status = client.status("demo")
        >>> status["ensembles"][0]["groups"]["echo"]["submitted"]
        0
        """
        status: Status = self.call("status", name=name)
        return status

    def scale(self, to: int) -> dict[str, int]:
        """Start to change the size of the instance, as far as its bounds allow.

        Returns:
            {"before": nodes now, "size": nodes after the change}.

        >>> client.scale(2)
        Traceback (most recent call last):
        flux_ensemble.client.errors.EnsembleError: the instance has a fixed size: ...
        """
        answer: dict[str, int] = self.call("scale", to=to)
        return answer

    def metrics(self, name: str) -> dict[str, dict[str, Any]]:
        """Return metrics as statistic -> "GROUP-VARIABLE" -> value; "count" -> group -> counter.

        A statistic without values is None.

        >>> metrics = client.metrics("demo")
        >>> metrics["count"]["echo"]["success"], metrics["mean"]["echo-duration"]
        (0, None)
        """
        metrics: dict[str, dict[str, Any]] = self.call("metrics", name=name)
        return metrics

    def why(self, name: str, rule: str | None = None) -> Why:
        """Return why the rules of an ensemble, or one of them, fire or do not.

        >>> client.why("demo")["rules"]
        []
        """
        answer: Why = self.call("why", name=name, rule=rule)
        return answer

    def jobs(
        self,
        name: str,
        *,
        filter: str | None = None,
        group: str | None = None,
        outcome: str | None = None,
        interrupted: bool = False,
        last: int | None = None,
    ) -> Jobs:
        """Return the jobs of an ensemble, active ones last; `to_pandas()` makes a table of them.

        Args:
            name: the ensemble.
            filter: an expression over the fields of a job, such as "job.returncode != 0".
            group: only jobs of this group.
            outcome: only jobs that ended so: success, failed, canceled, timeout or interrupted.
            interrupted: include attempts that were interrupted and whose jobs run again. They are
                also included if `outcome` or `filter` names them.
            last: only so many of the last jobs. Where nothing else is chosen the service sends
                no others, so they are there at once; `total` is the number of all, afterwards.

        >>> [(job["id"], job["returncode"]) for job in client.jobs("demo", outcome="failed")]
        []
        >>> jobs = client.jobs("demo", last=10)
        >>> list(jobs), jobs.total
        ([], 0)
        """
        asked = {"name": name, "filter": filter, "group": group, "outcome": outcome}
        all_attempts = interrupted or wants_interrupted(filter, outcome)
        return Jobs(self, asked, interrupted=all_attempts, last=last)

    def log(self, name: str, *, follow: bool = False, events: bool = False) -> Iterator[Entry]:
        """Yield the entries of an ensemble's eventlog, oldest first.

        Args:
            name: the ensemble.
            follow: continue with new entries until the ensemble and its jobs have ended.
            events: while following, also yield job events, as entries "job-event".

        >>> [entry["name"] for entry in client.log("demo")]
        ['load', 'start']
        """
        yield from EnsembleLog(self, name, follow=follow, events=events).read()

    def wait(self, name: str, timeout: float | None = None) -> Ended:
        """Wait until an ensemble has ended.

        Args:
            name: the ensemble.
            timeout: seconds to wait at most; None waits without a limit.

        Raises:
            TimeoutError: the ensemble has not ended in time.
            EnsembleError: there is no such ensemble, or it was unloaded.

        >>> client.wait("demo", timeout=0.1)
        Traceback (most recent call last):
        TimeoutError: ensemble 'demo' has not ended in time
        >>> client.terminate("demo")["state"], client.wait("demo")["state"]
        ('completed', 'completed')
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        for entry in EnsembleLog(self, name, follow=True, deadline=deadline).read():
            read = eventlog.read(entry)
            if isinstance(read, eventlog.Finish) and not read.reopened:
                return {"name": name, "state": read.state, "reason": read.reason}
        raise EnsembleError(errno.ENOENT, f"ensemble {name!r} was unloaded before it ended")

    def news(self, name: str) -> News:
        """Return a reader of what is new in an ensemble.

        >>> from collections import deque
        >>> news, log = client.news("demo"), deque()
        >>> news.read(log)
        >>> log[0]["name"], list(news.failed())
        ('load', [])
        """
        return News(self, name)

    def unload(self, name: str) -> State:
        """Remove an ensemble that has ended from the service.

        >>> client.cancel("demo")["state"], client.unload("demo")["state"]
        ('canceled', 'canceled')
        >>> client.list()
        []
        """
        return self._state("unload", name=name)


class Jobs(JobTable):
    """Jobs of an ensemble: ended ones in the order of their ends, then the active ones.

    Each iteration requests them again from the service.

    Args:
        connection: to the service.
        payload: of the requests: the ensemble, and the selection of jobs.
        interrupted, last: as for `JobTable`.
    """

    def __init__(
        self,
        connection: Connection,
        payload: dict[str, Any],
        *,
        interrupted: bool,
        last: int | None = None,
    ) -> None:
        super().__init__(
            self._requested, interrupted=interrupted, last=last, page=self._requested_page
        )
        self._connection = connection
        self._payload = payload

    def _others(self) -> Iterable[JobRow]:
        chosen = [self._payload[key] for key in ("filter", "outcome")]
        if not any(chosen):
            return ()
        every = {**self._payload, "filter": None, "outcome": None}
        return Jobs(self._connection, every, interrupted=self._interrupted)

    def _requested(self) -> Iterator[JobRow]:
        after: int | None = 0
        while after is not None:
            for answer in self._answers({"after": after, "count": PAGE}):
                yield from answer["jobs"]
                if "next" in answer:
                    after, self.dropped = answer["next"], answer["dropped"]

    def _requested_page(self, last: int) -> tuple[Sequence[JobRow], int, int] | None:
        chosen = any(self._payload[key] for key in ("filter", "group", "outcome"))
        if chosen or last > PAGE:
            return None
        rows: list[JobRow] = []
        total, left_out = None, 0
        asked = {"last": last, "interrupted": True} if self._interrupted else {"last": last}
        for answer in self._answers(asked):
            rows += answer["jobs"]
            if "total" in answer:
                total, self.dropped = answer["total"], answer["dropped"]
                left_out = answer.get("left_out", 0)
        return None if total is None else (rows[-last:], total, left_out)

    def _answers(self, more: Mapping[str, Any]) -> Iterator[Any]:
        return self._connection.stream("jobs", {**self._payload, **more})
