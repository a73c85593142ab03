"""An ensemble, as Python programs make, run and examine it."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from inspect import signature
from numbers import Integral, Real
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flux_ensemble.api.border import (
    TOLD,
    MisuseError,
    WrongArgumentError,
    WrongValueError,
    tell_shortly,
    told_shortly,
)
from flux_ensemble.api.draft import Draft
from flux_ensemble.client import EnsembleError
from flux_ensemble.client.tables import JobTable, wants_interrupted
from flux_ensemble.engine.lifecycle import FINAL_STATES
from flux_ensemble.entries import caller, key_of
from flux_ensemble.job_ids import JobIds
from flux_ensemble.queues.local.kinds import QUEUES, QueueName, own_queue
from flux_ensemble.renamed import takes_old_arguments
from flux_ensemble.run_names import begun_as, can_be_named
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import hanging, shortened
from flux_ensemble.words import counted, shown_state

if TYPE_CHECKING:
    from typing import Unpack

    from flux_ensemble.api.hosts import Host
    from flux_ensemble.client.responses import EnsembleStatus, Entry, RunEnded, Why
    from flux_ensemble.entry_keys import EnsembleKeys
    from flux_ensemble.metrics.job_row import JobRow
    from flux_ensemble.queues.simulation.simulation import Prediction
    from flux_ensemble.queues.virtual.cluster import VirtualCluster
    from flux_ensemble.results.failures import FailureSummary

Queue = Literal["flux", QueueName]

#: Nodes of the local queue and of a simulation, as for the commands.
NODES = 4


#: What this program has been told is done without Flux; once is enough.
_TOLD_INSTEAD = set[str]()

#: What the note of an interrupt adds.
_INSTEAD = (
    ". An interrupt of 'await wait()', after start(), leaves the ensemble running. Jupyter "
    "interrupts a cell before it restarts or shuts down the kernel, which cancels what run() waits "
    "for; a local run whose program is killed, or whose kernel ends after start(), goes on with "
    "run(resume=True)."
)


class NotStartedError(MisuseError, RuntimeError):
    """The ensemble has not been started yet."""


class StartedElsewhereError(MisuseError, RuntimeError):
    """The ensemble was started elsewhere, and so cannot be started here."""


@tell_shortly
class Ensemble:
    """An ensemble: its document, and its run once there is one.

    Args:
        mapping: a document as plain data, as from YAML; the keywords replace its keys.
        name: of the ensemble.
        jobs: `Job`s, or mappings with their keys.
        rules: `Rule`s, or mappings with their keys.
        keys: the other keys of a document (docs/document.md), with underscores for hyphens.

    Nothing is checked before `validate`, `simulate`, `start` or `run`, which report all errors.

    >>> from flux_ensemble import Action, Ensemble, Job, Rule
    >>> ensemble = Ensemble(
    ...     name="sweep",
    ...     jobs=[Job(name="md", command="md -t {t}", params={"t": [280, 300]})],
    ...     rules=[Rule(trigger="start", action=Action(name="submit", label="md"))],
    ... )
    >>> ensemble.validate()
    []
    >>> ensemble.simulate().status["groups"]["md"]["success"]
    2
    """

    def __init__(
        self,
        mapping: Mapping[str, Any] | None = None,
        /,
        *,
        name: str | None = None,
        jobs: Iterable[Mapping[str, Any]] = (),
        rules: Iterable[Mapping[str, Any]] = (),
        **keys: Unpack[EnsembleKeys],
    ) -> None:
        if mapping is not None and not isinstance(mapping, Mapping):
            raise TypeError(_no_mapping(mapping))
        given = dict(mapping or {})
        self.name = given.get("name", "") if name is None else name
        if not self.name:
            raise TypeError("Ensemble: it needs a name, such as name='sweep'")
        self._host: Host | None = None
        document: dict[str, Any] = {**given, "name": self.name}
        document |= {key_of(key): value for key, value in keys.items() if value is not None}
        for key, entries in (("jobs", jobs), ("rules", rules)):
            # What is no list is kept, so that it is refused with a remedy.
            listed = entries if isinstance(entries, Mapping | str) else list(entries)
            if listed:
                document[key] = listed
        self._draft: Draft = Draft(document, caller())

    @classmethod
    @takes_old_arguments
    @told_shortly
    def attach(
        cls, name: str, queue: Queue | None = None, *, state_dir: str | Path | None = None
    ) -> Ensemble:
        """Return an ensemble that was started elsewhere, to examine and steer it.

        Its document is the one that was loaded.

        Args:
            name: the ensemble.
            queue: "flux" or "local"; default: Flux if an instance is reached.
            state_dir: the directory of the local queue's files.

        Raises:
            EnsembleError: there is no such ensemble.
        """
        from flux_ensemble.api.draft import LoadedDraft
        from flux_ensemble.api.hosts import FluxHost, LocalHost

        _check_name(name)
        ensemble = cls(name=name)
        host: Host
        if _chosen(queue, state_dir, "looking at runs of this machine") == "flux":
            host = FluxHost(name)
        else:
            host = LocalHost(name, _root(state_dir))
        host.status()
        ensemble._host = host
        ensemble._draft = LoadedDraft(name, host.document)
        return ensemble

    # -- the document -----------------------------------------------------------------

    @property
    def document(self) -> dict[str, Any]:
        """The document as plain data, as its YAML would be read.

        >>> Ensemble(name="demo", jobs=[{"name": "a", "command": ("echo", 1)}]).document
        {'name': 'demo', 'jobs': [{'name': 'a', 'command': ['echo', 1]}]}
        """
        return self._draft.plain()

    def to_yaml(self) -> str:
        """Return the document as YAML, for `flux ensemble run`.

        Raises:
            DocumentError: it holds values that no document can.

        >>> print(Ensemble(name="demo", finish="never").to_yaml(), end="")
        name: demo
        finish: never
        """
        return self._draft.yaml()

    def validate(self) -> list[str]:
        """Check the document, as `flux-ensemble validate` does.

        Returns:
            The warnings about it.

        Raises:
            DocumentError: it has errors; one a line, with the lines of the program.
        """
        from flux_ensemble.document.lint import Warnings

        warnings = Warnings()
        self._draft.check(warnings=warnings)
        return warnings.warnings

    def simulate(
        self,
        *,
        nodes: int = NODES,
        cores: int | None = None,
        gpus: int = 0,
        seed: int | None = None,
        until: float | None = 30 * 86400.0,
    ) -> Prediction:
        """Predict a run in virtual time, as `flux-ensemble simulate` does.

        Args:
            nodes, cores, gpus: the cluster; default: 4 nodes with the cores of this machine.
            seed: of the random numbers; default: the document's.
            until: stop after so many seconds in virtual time; None is no limit.

        Raises:
            DocumentError: the document has errors.
            TypeError, ValueError: the cluster is wrong, or cannot run its jobs.
            SimulationError: the simulation cannot continue.
        """
        import math

        from flux_ensemble.document.distributions import Simulated
        from flux_ensemble.queues.simulation.simulation import Simulation, resolve

        spec = self._draft.check(elastic=False)
        behaviour = {group: spec.simulate.get(group, Simulated()) for group in spec.groups}
        simulation = Simulation(
            spec,
            _cluster(nodes, cores, gpus),
            resolve(spec, behaviour),
            seed=spec.seed if seed is None else seed,
        )
        return simulation.run(math.inf if until is None else until)

    # -- its run ----------------------------------------------------------------------

    @takes_old_arguments
    @told_shortly
    def start(
        self,
        queue: Queue | None = None,
        *,
        nodes: int | None = None,
        cores: int | None = None,
        gpus: int | None = None,
        state_dir: str | Path | None = None,
        resume: bool | None = None,
    ) -> Ensemble:
        """Start the ensemble, without waiting for its end.

        If an ended ensemble of its name is kept, this one gets a number: see `name`.

        On Flux, the service continues the ensemble when the program ends; a run on the local queue
        ends with the program.

        Args:
            queue: "flux" or "local"; default: Flux if an instance is reached.
            nodes, cores, gpus: of the local queue: the number of nodes (default 4), and the cores
                (default those of this machine) and GPUs (default 0) of each.
            state_dir: the directory of the local queue's files.
            resume: go on with what there is of this ensemble (True): with a local run that was
                interrupted, with an ensemble that the service has, or one that has ended, of which
                nothing runs again; begin if there is none. Or begin anew (False).

        Returns:
            The ensemble itself.

        Raises:
            DocumentError: the document has errors; warnings about it are printed.
            EnsembleError: it cannot be started; an earlier run of this object stays its run.
            StartedElsewhereError: the ensemble is one of `attach`.
            TypeError, ValueError: an argument is wrong.
        """
        from flux_ensemble.api import hosts
        from flux_ensemble.api.draft import LoadedDraft
        from flux_ensemble.api.local_session import HasEndedError
        from flux_ensemble.client.connection import keeping_interrupts
        from flux_ensemble.document.lint import Warnings

        if isinstance(self._draft, LoadedDraft):
            raise StartedElsewhereError(self._elsewhere())
        warnings = Warnings()
        spec = self._draft.check(warnings=warnings)
        for sentence in warnings.warnings:
            print(f"warning: {hanging(sentence)}", file=sys.stderr)
        local = {"nodes": nodes, "cores": cores, "gpus": gpus}
        text = self._draft.yaml(spec)
        if _chosen(queue, state_dir) == "flux":
            for name, value in local.items():
                if value is not None:
                    raise WrongValueError(f"{name} is for the local queue: say queue='local'")
            host = hosts.FluxHost(spec.name)
            with keeping_interrupts():
                # It may have an ensemble of an earlier instance to go on with.
                hosts.start_service(host.client)
                if resume:
                    # The latest run of the name has a number, if one before it is kept.
                    host.name = begun_as(spec.name, host.client.list()) or spec.name
                host.resumed = bool(resume) and hosts.kept(host, text)
                if not host.resumed:
                    host.name = hosts.load(host.client, text)
            self._host = host
        else:
            cluster = _cluster(nodes, cores, gpus)
            root = _root(state_dir)
            started = hosts.start_locally(spec, text, cluster, root, resume, own_queue(queue))
            # Stored before it is waited for, so that an interrupt of `run` can end it.
            before, self._host = self._host, started
            try:
                started.begun()
            except HasEndedError as error:
                self._host = before
                ended = hosts.LocalHost(error.name, root)
                hosts.kept(ended, text)
                self._host, self.name = ended, error.name
            except EnsembleError:
                self._host = before
                raise
        if self._host.name != spec.name and (told := self._host.naming(spec.name)):
            print(f"flux-ensemble: {told}", file=sys.stderr)
        self.name = self._host.name
        return self

    @takes_old_arguments
    @told_shortly
    def run(
        self, queue: Queue | None = None, *, timeout: float | None = None, **how: Any
    ) -> RunEnded:
        """Run the ensemble to its end; in a notebook, display its progress.

        An interrupt cancels the ensemble and its jobs.

        Args:
            queue: as for `start`.
            timeout: cancel the ensemble after so many seconds.
            how: the other arguments of `start`.

        Returns:
            {"name", "state", "reason", "trouble"} at its end; "trouble" is what went wrong, such
            as "2 jobs failed", also in one that has completed.

        Raises:
            DocumentError, EnsembleError: as `start`.
            TimeoutError: it was cancelled after `timeout` seconds.
            TypeError, ValueError: an argument is wrong; nothing has been started.
        """
        from flux_ensemble.api.notebook import showing
        from flux_ensemble.api.threads import apart

        _check_timeout(timeout)
        arguments = signature(self.start).parameters
        for name in how:
            if name not in arguments:
                near = hint(name, arguments)
                named = ", ".join(("timeout", *arguments))
                raise WrongArgumentError(
                    f"run: unknown argument {name!r} ({near}arguments: {named})"
                )
        with self._canceling():
            self.start(queue, **how)
            # What is displayed at last is the end, also of what is cancelled.
            with showing(self) as show, self._canceling():
                show()
                host = self._running
                return apart(lambda stopped: host.wait(timeout, stopped))

    def _elsewhere(self) -> str:
        """Return why an ensemble of `attach` is not started, and what to do."""
        status = self.status()
        told = f"ensemble {self.name!r} was started elsewhere: "
        if not status.get("resumable"):
            return (
                f"{told}'await wait()' waits for its end, and 'to_yaml()' has its document, which "
                "'flux-ensemble run' runs again"
            )
        return told + status["reason"]

    @contextmanager
    def _canceling(self) -> Iterator[None]:
        """Cancel the ensemble, and wait for its end, if the block is interrupted or too slow."""
        from flux_ensemble.api.threads import apart

        try:
            yield
        except (KeyboardInterrupt, TimeoutError) as error:
            host = self._host
            if host is not None and host.status()["state"] not in FINAL_STATES:
                self.cancel()
                instead = _INSTEAD if isinstance(error, KeyboardInterrupt) else ""
                error.add_note(f"{_after_cancel(host.status())}{instead}")
                apart(lambda stopped: host.wait(None, stopped))
            raise

    async def wait(self, timeout: float | None = None) -> RunEnded:
        """Wait until the ensemble and its jobs have ended; in a notebook, display its progress.

        Args:
            timeout: seconds to wait at most.

        Returns:
            {"name", "state", "reason", "trouble"} at its end; "trouble" is what went wrong, such
            as "2 jobs failed", also in one that has completed.

        Raises:
            TimeoutError: it has not ended in time; it continues.
            EnsembleError: it could not continue, or its service stays away.
        """
        from asyncio import CancelledError

        from flux_ensemble.api.notebook import showing
        from flux_ensemble.api.threads import in_thread

        host = self._running
        _check_timeout(timeout)
        try:
            with self._leaving(), showing(self) as show:
                show()
                return await in_thread(lambda stopped: host.wait(timeout, stopped))
        except (*TOLD, CancelledError) as error:
            raise error.with_traceback(None) from None

    async def log(self, *, follow: bool = True) -> AsyncIterator[Entry]:
        """Yield the entries of the ensemble's eventlog, oldest first.

        Args:
            follow: continue with new entries until the ensemble and its jobs have ended.
        """
        from flux_ensemble.api.threads import stream

        host = self._running
        with self._leaving():
            async for entry in stream(lambda stopped: host.log(follow=follow, stopped=stopped)):
                yield entry

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        """Add what becomes of the ensemble to an interrupt of a cell that awaits it."""
        from asyncio import CancelledError

        try:
            yield
        except (CancelledError, KeyboardInterrupt) as error:
            error.add_note(self._running.left())
            raise

    def status(self) -> EnsembleStatus:
        """Return the ensemble's state, groups and rules; see docs/rpc.md, `status`.

        Of a run that was interrupted and can go on, `state` is "failed" and `resumable` True.
        """
        return self._running.status()

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Return the ensemble's metrics: statistic -> "GROUP-VARIABLE" -> value."""
        return self._running.metrics()

    def why(self, rule: str | None = None) -> Why:
        """Return why the ensemble's rules, or one of them, fire or do not."""
        return self._running.why(rule)

    def jobs(
        self,
        *,
        filter: str | None = None,
        group: str | None = None,
        outcome: str | None = None,
        interrupted: bool = False,
    ) -> JobTable:
        """Return the ensemble's jobs: ended ones, then active ones.

        They are mappings to iterate over; `to_pandas()` and `to_polars()` make a table of them.

        Args:
            filter: an expression such as "job.returncode != 0".
            group: only jobs of this group.
            outcome: only jobs with this outcome.
            interrupted: include attempts that were interrupted and whose jobs run again. They are
                also included if `outcome` or `filter` names them.

        >>> [job["outcome"] for job in echoes.jobs(group="echo")]
        ['success', 'success', 'failed']
        """
        from flux_ensemble.metrics.job_filter import check_outcome, compile_choice, keys_in
        from flux_ensemble.results.hosts import unknown_keys

        host, chosen = self._running, {"filter": filter, "outcome": outcome}
        try:
            compile_choice(filter)
        except ValueError as error:
            raise EnsembleError(errno.EINVAL, f"filter: {error}") from None
        try:
            check_outcome(outcome)
        except ValueError as error:
            raise EnsembleError(errno.EINVAL, str(error)) from None
        unknown: Iterator[str] | None = None
        if filter is not None:
            unknown = unknown_keys(keys_in(filter), host.jobs)

        def rows() -> Iterator[JobRow]:
            empty = True
            for job in host.jobs(group=group, interrupted=True, **chosen):
                empty = False
                yield job
            if empty:
                for sentence in unknown or ():  # once for a table
                    _say(sentence)

        return JobTable(
            rows,
            lambda: host.jobs(group=group, interrupted=True) if any(chosen.values()) else (),
            interrupted=interrupted or wants_interrupted(filter, outcome),
            stopped=lambda: bool(host.status().get("resumable")),
        )

    # -- its results ------------------------------------------------------------------

    def failures(self, group: str | None = None) -> FailureSummary:
        """Return why jobs failed, and what those that failed have in common.

        Its text is what `flux-ensemble failures` prints, and it iterates over the reasons, each
        with a `filter` for `jobs`.

        Args:
            group: only jobs of this group.

        >>> echoes.failures()
        1 of 3 jobs failed
        <BLANKLINE>
        echo: exit 1: 1 job
          ranks: 0 (1)
          point: x=3
          job 3 wrote at last:
            3
          see: jobs(group='echo', filter='job.returncode == 1')
        >>> [(one.group, one.reason, one.jobs, one.tail) for one in echoes.failures()]
        [('echo', 'exit 1', 1, ['3'])]
        """
        from flux_ensemble.results.failures import failures_of

        client = self._running.client
        return failures_of(
            client,
            self.name,
            client.jobs(self.name, group=group, interrupted=True),
            lambda kind: f"jobs(group={kind.group!r}, filter={kind.expression!r})",
        )

    def output(self, job: Mapping[str, Any] | int | str) -> str:
        """Return what a job wrote (the end, if it is long); "" if that cannot be read.

        Args:
            job: one of `jobs`, or its id, as `best` has it or as it is printed; or one of `best`,
                such as the best trial of a search.

        Raises:
            EnsembleError: there is no job with the id.

        >>> echoes.output(echoes.best()[0]["job"])
        '2\\n'
        >>> [echoes.output(job) for job in echoes.jobs(outcome="success")]
        ['1\\n', '2\\n']
        """
        from flux_ensemble.results.job_output import Outputs

        written = Outputs(self._running.client, self.name).written(self._row(job))
        return "".join(text.decode(errors="replace") for _, text in written)

    def _row(self, job: Mapping[str, Any] | int | str) -> Mapping[str, Any]:
        if isinstance(job, Mapping) and "trial" in job and "job" in job:  # one of `best`
            if job["job"] is None:  # a service of 0.2.0 does not say which it was
                return self._of_trial(job["trial"], job["name"])
            job = job["job"]
        if isinstance(job, Mapping):
            return job
        # A job of a member has its name before its id.
        member, _, text = str(job).rpartition(":")
        try:
            id = self._running.client.job_id(text)
        except ValueError:
            one = ": pass one of them, such as output(best()[0])" * isinstance(job, list)
            raise WrongArgumentError(
                "job: expected one of jobs() or of best(), or the id of a job, not "
                f"{shortened(repr(job), 60)}{one}"
            ) from None
        of_member = f" and job.member == {member!r}" if member else ""
        rows = list(self.jobs(filter=f"job.id == {id}{of_member}", interrupted=True))
        if not rows:
            raise EnsembleError(errno.ENOENT, f"ensemble {self.name!r} has no job {job}")
        return rows[-1]

    def _of_trial(self, trial: int, search: str) -> Mapping[str, Any]:
        (status,) = self._running.client.status(self.name)["ensembles"]
        groups = [one["group"] for one in status.get("searches", ()) if one["id"] == search]
        rows = list(self.jobs(filter=f"job.trial == {trial}", group=next(iter(groups), None)))
        if not rows:
            raise EnsembleError(
                errno.ENOENT, f"search {search!r} of {self.name!r} has no job of trial {trial}"
            )
        return rows[-1]

    def best(self) -> list[dict[str, Any]]:
        """Return the best jobs, and the best trials of searches.

        Those are the entries `best` under `metrics` of the document, and its searches.

        Returns:
            {"name", "of", "value", "job", "trial", "params"} for each; `job` is the id of the job
            that has the value, and `trial` None if it is of no search. Why there is none is printed
            to standard error.

        Raises:
            EnsembleError: the document has neither.

        >>> [(one["name"], one["value"], one["params"]) for one in echoes.best()]
        [('top', 22, {'x': 2})]
        """
        from flux_ensemble.api.python_words import in_words_of_python
        from flux_ensemble.results.best import best_of

        try:
            return best_of(self._running.client, self.name, say=_say)
        except EnsembleError as error:
            said = in_words_of_python(str(error), keywords=False)
            raise EnsembleError(error.errno, said) from None

    def export(
        self,
        path: str | Path,
        *,
        filter: str | None = None,
        group: str | None = None,
        outcome: str | None = None,
        interrupted: bool = False,
        best: bool = False,
        force: bool = False,
    ) -> int:
        """Write jobs to a file, in the format of its suffix, as `flux-ensemble export` does.

        Args:
            path: the file: .csv, .json, .jsonl, .sqlite or .parquet.
            filter, group, outcome, interrupted: as for `jobs`.
            best: write the rows of `best` instead.
            force: replace an existing file.

        Returns:
            The number of jobs.

        Raises:
            EnsembleError: the file cannot be written.

        >>> echoes.export("echoes.csv"), echoes.export("best.json", best=True)
        (3, 1)
        """
        from flux_ensemble.api.local_session import in_python
        from flux_ensemble.results.export import ExportError, write, write_best

        if best and (filter or group or outcome or interrupted):
            raise WrongValueError("best: all best jobs are written: give no choice of jobs")
        client, file = self._running.client, Path(path)
        try:
            if best:
                return write_best(client, self.name, file, force=force)
            jobs = client.jobs(
                self.name, filter=filter, group=group, outcome=outcome, interrupted=interrupted
            )
            return write(file, jobs, force=force)
        except ExportError as error:
            raise ExportError(in_python(str(error))) from None

    def report(
        self, path: str | Path | None = None, *, force: bool = False, environment: bool = False
    ) -> Path:
        """Write a report as one HTML file for any browser, as `flux-ensemble report` does.

        Args:
            path: the file; default: NAME.html in the working directory. An earlier report is
                replaced.
            force: replace a file that is no report.
            environment: include the values of environment variables.

        Returns:
            The file.

        Raises:
            EnsembleError: the file cannot be written.

        >>> echoes.report("echoes.html").name
        'echoes.html'
        """
        from flux_ensemble.api.local_session import in_python
        from flux_ensemble.results.report import ReportError, write_report

        file = Path(f"{self.name}.html" if path is None else path)
        try:
            write_report(
                self._running.client, self.name, file, force=force, environment=environment
            )
        except ReportError as error:
            raise ReportError(in_python(str(error))) from None
        return file

    # -- steering ---------------------------------------------------------------------

    def submit(
        self,
        group: str,
        *,
        count: int | None = None,
        params: Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> JobIds:
        """Submit a group again; the arguments are those of `Client.submit`.

        Returns:
            The job ids, as `Client.submit`.
        """
        asked = {"group": group, "count": count, "params": params, "overrides": overrides}
        return JobIds(self._running.ask("submit", **asked))

    def rerun(
        self,
        *,
        filter: str | None = None,
        failed: bool = False,
        dry_run: bool = False,
        timeout: float | None = None,
        nodes: int | None = None,
        cores: int | None = None,
        gpus: int | None = None,
    ) -> dict[str, Any]:
        """Run jobs that did not succeed again, with the same parameters, in the same record.

        So do those that were never submitted, since the ensemble was cancelled or failed before,
        unless `filter` or `failed` chooses others. An ensemble that has ended goes on to its end,
        as by `run`; an interrupt cancels it. While one goes on, its jobs run again beside the
        others, and this does not wait for them.

        Args:
            filter: an expression as for `jobs`: the jobs that match run again, whatever their
                outcome.
            failed: only jobs that failed or ran out of time, not those that were canceled.
            dry_run: only return what would run again.
            timeout: cancel an ensemble that has ended, and goes on, after so many seconds.
            nodes, cores, gpus: of a local run that goes on after its end; default: those that it
                had, or those of `start` if another program began it.

        Returns:
            `jobs` (how many run), `outcomes` (how many of them by the outcome of the attempt
            before; what becomes of them now is in `jobs()`), `unsent` (how many had never been
            submitted), `state`, and `entries` (how many its log had before); where one was
            chosen `reopened`, whether the ensemble had ended and went on; after that one's end also
            `name`, `reason` and `trouble`, as `run` has them. `trials` (of searches, which do not
            run again) and `dropped` (jobs that are not in the record) are there if there are some.

        Raises:
            EnsembleError: there is no record of its jobs, the filter is wrong, or it cannot go on.
            TimeoutError: it was cancelled after `timeout` seconds.
            TypeError, ValueError: an argument is wrong; nothing has been started.

        >>> echoes.rerun(dry_run=True)["outcomes"]
        {'failed': 1}
        """
        from flux_ensemble.metrics.job_filter import compile_choice

        if failed and filter is not None:
            raise WrongValueError("failed and filter choose jobs in two ways: give one of them")
        try:
            compile_choice(filter)
        except ValueError as error:
            raise EnsembleError(errno.EINVAL, f"filter: {error}") from None
        asked = {"filter": filter, "failed": failed or None, "dry_run": dry_run or None}
        sizes = {"nodes": nodes, "cores": cores, "gpus": gpus}
        before = self._running.status()
        answer = self._reopen("rerun", asked, sizes, timeout, waits=not dry_run)
        if trials := answer.get("trials"):
            verb = "does" if trials == 1 else "do"
            _say(
                f"{counted(trials, 'trial')} of searches {verb} not run again, as their search has "
                "their results: search(more=N) gives it further ones"
            )
        _say_left(before)
        return {"unsent": 0, **answer}

    def search(
        self,
        id: str | None = None,
        *,
        more: int | None = None,
        points: Iterable[Mapping[str, Any]] = (),
        timeout: float | None = None,
        nodes: int | None = None,
        cores: int | None = None,
        gpus: int | None = None,
    ) -> dict[str, Any]:
        """Give a search more trials, in the same record; nothing that is over changes.

        An ensemble that has ended goes on to its end, as by `run`; an interrupt cancels it. While
        one goes on, this does not wait for the trials.

        Args:
            id: the search; it may be left out if there is only one.
            more: how many more trials the suggester chooses, with all results.
            points: points that are tried first, each a further trial with values of variables;
                the suggester chooses those that are missing.
            timeout: cancel an ensemble that has ended, and goes on, after so many seconds.
            nodes, cores, gpus: as for `rerun`.

        Returns:
            `search`, `trials` (how many there are now), `added`, `state`, `reopened` (whether the
            ensemble had ended and went on) and `entries` (how many its log had before); with
            `name`, `reason` and `trouble`, as `run` has them, after the end of one that went on.

        Raises:
            EnsembleError: there is no such search, it cannot have such a point, or it cannot go on.
            TimeoutError: it was cancelled after `timeout` seconds.
            TypeError, ValueError: an argument is wrong; nothing has been started.

        >>> echoes.search(more=20)
        Traceback (most recent call last):
        flux_ensemble.client.errors.EnsembleError: ensemble 'echoes' has no search
        """
        _check_search(id)
        asked = {"search": id, "more": more, "points": _points(points) or None}
        return self._reopen(
            "search", asked, {"nodes": nodes, "cores": cores, "gpus": gpus}, timeout
        )

    def _reopen(
        self,
        op: str,
        asked: Mapping[str, Any],
        given: Mapping[str, int | None],
        timeout: float | None,
        *,
        waits: bool = True,
    ) -> dict[str, Any]:
        """Send a request; wait for the end of an ensemble that had ended and goes on.

        Args:
            op: the request.
            asked: its payload; None is a key that is not there.
            given: sizes of a local run that goes on.
            timeout: cancel it after so many seconds.
            waits: the ensemble may go on.
        """
        from flux_ensemble.api.hosts import LocalHost
        from flux_ensemble.api.notebook import showing
        from flux_ensemble.api.threads import apart
        from flux_ensemble.client.connection import keeping_interrupts

        host = self._running
        _check_timeout(timeout)
        sizes = {key: value for key, value in given.items() if value is not None}
        if sizes and not isinstance(host, LocalHost):
            raise WrongValueError(
                f"{min(sizes)} is for a run on this machine, and this one is on Flux"
            )
        own = given["nodes"]
        _cluster(NODES if own is None else own, given["cores"], given["gpus"])
        payload = {key: value for key, value in asked.items() if value is not None}
        defaults = {"nodes": NODES, "cores": None, "gpus": 0}
        goes_on = waits and host.status()["state"] in FINAL_STATES
        with self._canceling() if goes_on else nullcontext(), keeping_interrupts():
            answer = host.reopen(
                op, payload, lambda **known: _cluster(**{**defaults, **known, **sizes})
            )
            if not answer.get("reopened"):
                return answer
            with showing(self) as show, self._canceling():
                show()
                ended = apart(lambda stopped: host.wait(timeout, stopped))
        return {**answer, **ended}

    def pause(self) -> str:
        """Keep the ensemble's rules from firing; return its state."""
        return self._ask("pause")

    def resume(self) -> str:
        """Resume the ensemble; return its state."""
        return self._ask("resume")

    def cancel(self, group: str | None = None) -> str:
        """Cancel the ensemble and its jobs, or the jobs of one group; return its state."""
        return self._ask("cancel", group=group)

    def terminate(self, *, cancel: bool = False) -> str:
        """End the ensemble, and with `cancel` cancel its jobs; return its state."""
        return self._ask("terminate", cancel=cancel)

    def _ask(self, op: str, **payload: Any) -> str:
        state: str = self._running.ask(op, **payload)["state"]
        return state

    @property
    def _running(self) -> Host:
        if self._host is None:
            raise NotStartedError(f"ensemble {self.name!r} has not been started: {self._first()}")
        return self._host

    def _first(self) -> str:
        """Return what is to be done before anything else: a run of the name may be kept."""
        from flux_ensemble.api.hosts import flux_names
        from flux_ensemble.queues.local.client import LocalClient

        kept = begun_as(self.name, flux_names())
        if kept is not None:
            return (
                "call start() or run() first; with resume=True they follow the run of this name "
                f"that Flux has, which is Ensemble.attach({kept!r})"
            )
        try:
            client = LocalClient(_root(None))
            # The latest run of the name may have a number.
            name = [name for name in client.names() if can_be_named(name, self.name)][-1]
            (status,) = client.status(name)["ensembles"]
        except (EnsembleError, IndexError):
            return "call start() or run() first"
        if status.get("resumable"):
            return "a run of it was interrupted, and run(resume=True) or start(resume=True) goes on"
        return (
            "call start() or run() first; the run of this name that is kept is "
            f"Ensemble.attach({name!r})"
        )

    # -- in a notebook ----------------------------------------------------------------

    def __repr__(self) -> str:
        from flux_ensemble.client.troubles import joined

        if self._host is None:
            return f"<Ensemble {self.name!r}: not started>"
        status = self._host.status()
        state = ", ".join(filter(None, (shown_state(status), joined(status))))
        return f"<Ensemble {self.name!r}: {state}>"

    def _repr_html_(self) -> str:
        from flux_ensemble.api.notebook import document_html, status_html

        if self._host is None:
            return document_html(self.document)
        return status_html(self._host.status())


def _say(sentence: str) -> None:
    print(f"flux-ensemble: {sentence}", file=sys.stderr)


def _after_cancel(status: EnsembleStatus) -> str:
    """Return the note of what has cancelled `run`: what goes on with what was cancelled.

    >>> group = {"waiting": 0, "pending": 0, "running": 2, "finished": 4, "unsent": 14}
    >>> note = _after_cancel({"name": "sweep", "groups": {"md": group}})
    >>> note.partition(": ")[2]
    'rerun() runs those jobs again, and what did not run (14 of 20 jobs were never submitted), ...'
    >>> search = {"id": "hpo", "group": "md"}
    >>> note = _after_cancel({"name": "tune", "groups": {"md": {}}, "searches": [search]})
    >>> "rerun()" in note, "search(more=N) goes on with search 'hpo', with the trials that" in note
    (False, True)
    """
    from flux_ensemble.client.troubles import unsent

    searches = status.get("searches", ())
    ways = []
    for search in searches:
        id = f"{search['id']!r}, " if len(searches) > 1 else ""
        ways.append(
            f"search({id}more=N) goes on with search {search['id']!r}, with the trials that are "
            "left and N more"
        )
    if not {search["group"] for search in searches}.issuperset(status.get("groups", {})):
        ways.append(f"rerun() runs {'the other' if searches else 'those'} jobs again")
        if never := unsent(status):
            ways[-1] += f", and what did not run ({never})"
    told = ", ".join([*ways, "and run() begins another run"])
    return f"ensemble {status['name']!r} and its jobs were cancelled: {told}"


def _say_left(status: EnsembleStatus) -> None:
    """Print which trials `rerun` leaves to `search`, as the command does."""
    from flux_ensemble.client.troubles import left_of_searches

    for sentence in left_of_searches(
        status, lambda id, more: f"search({'' if id is None else f'{id!r}, '}more={more})"
    ):
        _say(sentence)


def _no_mapping(given: object) -> str:
    """Return what to do in place of `Ensemble(given)`.

    >>> _no_mapping("demo")
    "Ensemble: its arguments are keywords: name='demo'"
    >>> _no_mapping("a.yaml")
    "Ensemble: 'flux-ensemble run a.yaml' runs a file, and Ensemble.attach('a') has its ..."
    """
    if isinstance(given, str | Path) and Path(given).suffix in (".yaml", ".yml", ".json"):
        return (
            f"Ensemble: 'flux-ensemble run {shlex.quote(str(given))}' runs a file, and "
            f"Ensemble.attach({Path(given).stem!r}) has its results; here a document has keywords, "
            "or is a mapping"
        )
    return f"Ensemble: its arguments are keywords: name={given!r}"


def _cluster(nodes: int | None, cores: int | None, gpus: int | None) -> VirtualCluster:
    """Return the cluster of the local queue, or of a simulation.

    Raises:
        TypeError, ValueError: an argument is no such number.
    """
    from flux_ensemble.queues.virtual.cluster import VirtualCluster

    sizes = (
        _whole("nodes", nodes, NODES),
        _whole("cores", cores, len(os.sched_getaffinity(0))),
        _whole("gpus", gpus, 0),
    )
    try:
        return VirtualCluster(*sizes)
    except ValueError as error:
        raise WrongValueError(str(error)) from None


def _check_name(name: object) -> None:
    """Check the argument of `attach`.

    Raises:
        TypeError: it is no name.
    """
    if isinstance(name, str):
        return
    is_one = isinstance(name, Ensemble)
    given = "an Ensemble, which needs no attach()" if is_one else shortened(repr(name), 60)
    raise WrongArgumentError(f"attach: expected the name of an ensemble, not {given}")


def _whole(name: str, value: Any, default: int) -> int:
    if value is None:
        return default
    try:
        return index(value)
    except TypeError:
        raise WrongArgumentError(f"{name}: expected a whole number, not {value!r}") from None


def _check_search(id: object) -> None:
    """Check the argument of `search`.

    Raises:
        TypeError: it is no id.
    """
    if id is None or isinstance(id, str):
        return
    write = f" (write more={id})" if isinstance(id, Integral) else ""
    given = shortened(repr(id), 60)
    raise WrongArgumentError(f"search: expected the id of a search, not {given}{write}")


def _points(points: Any) -> list[dict[str, Any]]:
    """Return the argument of `search` as mappings.

    >>> _points({"x": 0.5})
    Traceback (most recent call last):
    flux_ensemble.api.border.WrongArgumentError: points: expected a list of points, not ...
    """
    if isinstance(points, Mapping):
        raise WrongArgumentError(
            "points: expected a list of points, not a mapping: write "
            f"points=[{shortened(repr(dict(points)), 60)}]"
        )
    if isinstance(points, str) or not isinstance(points, Iterable):
        given = shortened(repr(points), 60)
        raise WrongArgumentError(f"points: expected a list of points, not {given}")
    listed = list(points)
    for place, point in enumerate(listed):
        if not isinstance(point, Mapping):
            raise WrongArgumentError(
                f"points[{place}]: expected values of variables, such as {{'x': 0.5}}, not "
                f"{shortened(repr(point), 60)}"
            )
    return [dict(point) for point in listed]


def _check_timeout(timeout: Any) -> None:
    """Check the argument before anything runs that would then not be waited for.

    Raises:
        TypeError, ValueError: it is no number of seconds.
    """
    if timeout is None:
        return
    if not isinstance(timeout, Real):
        raise WrongArgumentError(f"timeout: expected a number of seconds, not {timeout!r}")
    if not float(timeout) >= 0:
        raise WrongValueError(f"timeout: expected a number of seconds, not {timeout!r}")


def _root(state_dir: str | Path | None) -> Path:
    from flux_ensemble.api.hosts import local_root

    return local_root() if state_dir is None else Path(state_dir)


def _chosen(
    queue: Queue | None, state_dir: str | Path | None, instead: str = "running on this machine"
) -> Queue:
    """Return the requested queue, else Flux if an instance is reached.

    Args:
        queue, state_dir: as for `Ensemble.start`.
        instead: what is done without Flux, for the message about that.
    """
    if queue not in (None, "flux", *QUEUES):
        known = " or ".join(map(repr, ("flux", *QUEUES)))
        raise WrongValueError(f"queue: expected {known}, not {queue!r}")
    if queue is not None:
        return queue
    if state_dir is not None:
        return "local"

    from flux_ensemble.api.hosts import reaches_flux

    if reaches_flux():
        return "flux"
    if instead not in _TOLD_INSTEAD:
        _TOLD_INSTEAD.add(instead)
        _say(f"no Flux instance can be reached: {instead}")
    return "local"
