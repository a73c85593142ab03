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

import errno
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flux_ensemble import eventlog
from flux_ensemble.client.connection import Connection
from flux_ensemble.client.errors import EnsembleError, failure
from flux_ensemble.client.instance import user_context
from flux_ensemble.client.log import EnsembleLog
from flux_ensemble.client.tables import JobTable, wants_interrupted
from flux_ensemble.job_ids import JobIds

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


class Client(Connection):
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

    def output(self, name: str, member: str, id: int) -> str | None:
        """Return the end of what a job wrote that is a task of a worker; None if nothing is kept.

        Args:
            name: the ensemble.
            member: the worker: a member with `runs: tasks`.
            id: of the job on it.

        Raises:
            EnsembleError: there is no such worker (any more), or it cannot be asked now.

        >>> client.output("demo", "worker.0", 7)
        Traceback (most recent call last):
        flux_ensemble.client.errors.EnsembleError: ensemble 'demo' has no members
        """
        output: str | None = self.call("output", name=name, member=member, id=id)["output"]
        return output

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

    def submit(
        self,
        name: str,
        group: str,
        *,
        count: int | None = None,
        params: Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> JobIds:
        """Submit a group again; return the job ids once the queue has accepted them.

        The ids of an ensemble with members have the attributes `members` and `waiting`, and the
        call does not wait for jobs that no member has room for.

        Args:
            name: the ensemble.
            group: the job group.
            count: jobs for each combination of parameters; default: the document's.
            params: values of parameters; default: the document's.
            overrides: values for keys of the group such as `nodes` and `duration`, as a submit
                action has them; default: the document's.

        >>> len(client.submit("demo", "echo", count=2))
        2
        """
        answer = self.call(
            "submit", name=name, group=group, count=count, params=params, overrides=overrides
        )
        return JobIds(answer)

    def rerun(
        self,
        name: str,
        *,
        filter: str | None = None,
        failed: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Run jobs that did not succeed again, with the same parameters; go on after the end.

        Args:
            name: the ensemble.
            filter: run the jobs again that match, as for `jobs`, whatever their outcome.
            failed: only jobs that failed or ran out of time, not those that were canceled.
            dry_run: only return what would run again.

        Returns:
            `jobs` (how many run), `outcomes` (how many by the outcome of the last attempt),
            `unsent` (how many had never been submitted), and `state`; docs/rpc.md has it all.

        >>> client.rerun("demo")["jobs"]
        0
        """
        result: dict[str, Any] = self.call(
            "rerun", name=name, filter=filter, failed=failed or None, dry_run=dry_run or None
        )
        return result

    def search(
        self,
        name: str,
        search: str | None = None,
        *,
        more: int | None = None,
        points: Iterable[Mapping[str, Any]] = (),
    ) -> dict[str, Any]:
        """Give a search more trials; an ensemble that has ended goes on.

        Args:
            name: the ensemble.
            search: the id of the search; it may be left out if there is only one.
            more: how many more trials the suggester chooses.
            points: points that are tried first, each a further trial with values of variables;
                the suggester chooses those that are missing.

        Returns:
            `search`, `trials` (how many there are now), `added`, `reopened` (whether the ensemble
            had ended), `state` and `entries`; see docs/rpc.md.

        Raises:
            EnsembleError: there is no such search, it cannot have such a point, or the ensemble
                cannot go on.

        >>> client.search("demo", more=20)
        Traceback (most recent call last):
        flux_ensemble.client.errors.EnsembleError: ensemble 'demo' has no search
        """
        result: dict[str, Any] = self.call(
            "search", name=name, search=search, more=more, points=list(points) or None
        )
        return result

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

    def pause(self, name: str) -> State:
        """Pause an ensemble: its rules do not fire until `resume`.

        >>> client.pause("demo")
        {'state': 'paused'}
        """
        return self._state("pause", name=name)

    def resume(self, name: str) -> State:
        """Resume a paused ensemble.

        >>> client.pause("demo")["state"], client.resume("demo")["state"]
        ('paused', 'running')
        """
        return self._state("resume", name=name)

    def terminate(self, name: str, *, cancel: bool = False) -> State:
        """End an ensemble; the queue keeps its jobs unless `cancel` is given.

        >>> client.terminate("demo", cancel=True)
        {'state': 'completed'}
        """
        return self._state("terminate", name=name, cancel=cancel)

    def cancel(self, name: str, group: str | None = None) -> State:
        """Cancel an ensemble and its jobs; with a group, only that group's active jobs.

        >>> client.cancel("demo", "echo")
        {'state': 'running', 'jobs': 0}
        >>> client.cancel("demo")
        {'state': 'canceled'}
        """
        return self._state("cancel", name=name, group=group)

    def unload(self, name: str) -> State:
        """Remove an ensemble that has ended from the service.

        >>> client.cancel("demo")["state"], client.unload("demo")["state"]
        ('canceled', 'canceled')
        >>> client.list()
        []
        """
        return self._state("unload", name=name)

    def set_rule(self, name: str, rule: str, *, enabled: bool) -> None:
        """Enable or disable a rule.

        >>> stop = {"id": "stop", "trigger": "job-fail", "action": {"name": "terminate"}}
        >>> rules = {"name": "ruled", "finish": "never", "rules": [stop]}
        >>> client.load(rules)["state"]
        'running'
        >>> client.set_rule("ruled", "stop", enabled=False)
        >>> client.status("ruled")["ensembles"][0]["rules"][0]["enabled"]
        False
        """
        self.call("rules", name=name, id=rule, enabled=enabled)

    def action(self, name: str, action: Mapping[str, Any]) -> dict[str, Any]:
        """Perform one action now; return its firing number and, for submit, the job ids.

        >>> done = client.action("demo", {"name": "submit", "label": "echo", "count": 2})
        >>> len(done["ids"])
        2
        """
        result: dict[str, Any] = self.call("action", name=name, action=dict(action))
        return result

    def _state(self, op: str, **payload: Any) -> State:
        state: State = self.call(op, **payload)
        return state


class Jobs(JobTable):
    """Jobs of an ensemble: ended ones in the order of their ends, then the active ones.

    Each iteration requests them again from the service.

    Args:
        connection: to the service.
        payload: of the requests: the ensemble, and the selection of jobs.
        interrupted, last: as for `JobTable`.

    Attributes:
        dropped: after an iteration, the number of jobs that the record had no room for.
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
        self.dropped = 0

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

    def _requested_page(self, last: int) -> tuple[Sequence[JobRow], int] | None:
        chosen = any(self._payload[key] for key in ("filter", "group", "outcome"))
        if chosen or last > PAGE:
            return None
        rows: list[JobRow] = []
        total = None
        for answer in self._answers({"last": last}):
            rows += answer["jobs"]
            if "total" in answer:
                total, self.dropped = answer["total"], answer["dropped"]
        return None if total is None else (rows[-last:], total)

    def _answers(self, more: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Send a request, and yield the responses to it."""
        t_sent = time.monotonic()
        future = self._connection.send("jobs", {**self._payload, **more}, stream=True)
        try:
            while True:
                yield self._connection.response(future, t_sent)
                future.reset()
        except OSError as exc:
            if exc.errno != errno.ENODATA:
                raise failure(exc, "jobs") from exc
