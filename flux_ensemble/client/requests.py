"""Requests about one ensemble, whoever runs it: the service, or a run on the local queue.

Each client has a `call`, which is its transport: Flux RPC, or the socket of a run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flux_ensemble.job_ids import JobIds

if TYPE_CHECKING:
    from flux_ensemble.client.responses import State


class EnsembleRequests(ABC):
    """The requests about an ensemble that its clients send."""

    @abstractmethod
    def call(self, op: str, **payload: Any) -> Any:
        """Send a request, and return its response.

        Args:
            op: the request: a topic of docs/rpc.md.
            payload: what it has; what is None is left out.

        Raises:
            EnsembleError: it is refused, or nobody answers.
        """

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
