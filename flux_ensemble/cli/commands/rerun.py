"""The command that runs jobs of an ensemble again, in the same record: rerun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from flux_ensemble.cli.commands.run import FORCE_OPTION, QUIET_OPTION, TIMEOUT_OPTION
from flux_ensemble.cli.common import (
    FAILED,
    FILE,
    MOST,
    OK,
    USAGE,
    Failure,
    check_document,
    naming,
    own_cores,
    print_error,
    say,
)
from flux_ensemble.cli.display.troubles import DEFAULT_KINDS, FAIL_ON_OPTION, left
from flux_ensemble.cli.session import completion
from flux_ensemble.cli.session.results import Export, ExportFile, Results
from flux_ensemble.cli.session.target import targeted
from flux_ensemble.client import Client
from flux_ensemble.client.troubles import failed_trials
from flux_ensemble.engine.lifecycle import FINAL_STATES
from flux_ensemble.own_command import own_command
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.queues.local.continuation import SIZES
from flux_ensemble.queues.local.root import StateError, advised
from flux_ensemble.results.hosts import Target
from flux_ensemble.words import counted, running_again

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus
    from flux_ensemble.document.model import Spec
    from flux_ensemble.queues.virtual.cluster import VirtualCluster


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.option("--failed", is_flag=True, help="Only jobs that failed or ran out of time.")
@click.option(
    "--filter",
    metavar="EXPRESSION",
    help='The jobs for which it holds, such as "job.params.t > 300", whatever their outcome.',
)
@click.option("--dry-run", is_flag=True, help="Only say which jobs would run again.")
@click.option("--detach", is_flag=True, help="Do not follow it: leave it to the service.")
@click.option(
    "--resume", is_flag=True, help="Go on with a rerun of a local run that was interrupted."
)
@QUIET_OPTION
@TIMEOUT_OPTION
@click.option("--report", type=FILE, metavar="FILE", help="Write a report to FILE, one HTML page.")
@click.option(
    "--export",
    "exports",
    type=ExportFile(),
    multiple=True,
    metavar="[best:]FILE",
    help="Write its jobs to FILE, as run does; may be repeated.",
)
@FORCE_OPTION
@FAIL_ON_OPTION
@click.option("--nodes", type=click.IntRange(1, MOST), metavar="N", help="As of a local run.")
@click.option("--cores", type=click.IntRange(1, MOST), metavar="N", help="As of a local run.")
@click.option("--gpus", type=click.IntRange(0, MOST), metavar="N", help="As of a local run.")
@targeted
def rerun(target: Target, **options: Any) -> int:
    """Run the jobs of ensemble NAME again that did not succeed, in the same record.

    They are those that failed, ran out of time or were canceled, each with the parameters and
    resources of its last attempt, and those that were never submitted, as the ensemble was canceled
    or failed before. An ensemble that has ended goes on, and is followed to its end as by "run";
    its rules fire as they do after any other job. While one goes on, jobs of it that are over run
    again beside the others.
    """
    return RerunCommand(target=target, **options).execute()


@dataclass
class RerunCommand:
    """A request after whose answer an ensemble that had ended is followed: the fields are options.

    This is that of `rerun`; others override `OP`, `asked`, `_say` and `_begin`.
    """

    #: The request.
    OP: ClassVar[str] = "rerun"

    target: Target
    name: str
    failed: bool = False
    filter: str | None = None
    dry_run: bool = False
    detach: bool = False
    resume: bool = False
    quiet: bool = False
    timeout: float = 0.0
    report: Path | None = None
    exports: tuple[Export, ...] = ()
    force: bool = False
    fail_on: frozenset[str] = DEFAULT_KINDS
    nodes: int | None = None
    cores: int | None = None
    gpus: int | None = None
    #: Name of the ensemble, once it has ended.
    ended: str | None = None
    #: No job was chosen.
    none: bool = False
    #: Status of the ensemble before.
    before: EnsembleStatus | None = None

    def execute(self) -> int:
        """Run jobs again, and follow the ensemble if it had ended; return the exit code."""
        if self.failed and self.filter is not None:
            raise Failure("--failed and --filter choose jobs in two ways: give one of them", USAGE)
        if self.resume and (self.failed or self.filter is not None or self.dry_run):
            raise Failure("--resume chooses no jobs: it goes on with those of before", USAGE)
        if self.filter is not None:
            _check_filter(self.filter)
        results = Results(self.report, self.exports, force=self.force)
        with naming(self.target, self.name):
            status = self._ended_or_live(self.target.status(self.name)["ensembles"][0])
        self.before = status
        self._check(results, status)
        if isinstance(self.target, LocalClient):
            code = self._run_locally(self.target, status, results)
        else:
            code = self._run_on_flux(self.target, results)
        if self.none and self.filter is not None:
            _report_unknown(self.target, self.name, self.filter)
        if not results or self.dry_run:
            return code
        if self.none:
            # It has its results all the same.
            self.ended = self.name
        if self.ended is None:
            print_error("it has not ended: there is no report, and no export")
            return code or FAILED
        wrong = results.write(self.target, self.ended)
        return code or wrong

    def _ended_or_live(self, status: EnsembleStatus) -> EnsembleStatus:
        """Return the status, after the end of an ensemble that is about to end."""
        if status["state"] != "ending":
            return status
        jobs = counted(status["jobs"]["active"], "job")
        say(
            f"{self.name!r} is about to end: waiting until "
            f"{jobs} that it cancels {'is' if jobs == '1 job' else 'are'} gone"
        )
        self.target.wait(self.name)
        return self.target.status(self.name)["ensembles"][0]

    def _check(self, results: Results, status: EnsembleStatus) -> None:
        """Check before anything runs that the files can be written, once it has ended."""
        results.check(self.name, best="best" in status or bool(status.get("searches")))
        if results and self.detach:
            raise Failure(
                "--detach does not wait for the end, when --report and --export are written", USAGE
            )
        if results and status["state"] not in FINAL_STATES:
            command = self.target.command("report", self.name)
            raise Failure(
                f"{self.name!r} goes on, and rerun does not wait for its end: there is no report "
                f"and no export yet; '{command}' and 'export' write them later",
                USAGE,
            )

    @property
    def asked(self) -> dict[str, Any]:
        """The payload of the request, without the name."""
        asked: dict[str, Any] = {"failed": self.failed, "dry_run": self.dry_run}
        return asked if self.filter is None else {**asked, "filter": self.filter}

    def _take(self, status: EnsembleStatus) -> None:
        if status["state"] in FINAL_STATES:
            self.ended = status["name"]

    def _say(self, answer: Mapping[str, Any]) -> bool:
        """Print which jobs run again; return whether to go on."""
        click.echo(f"{self.name}: {self._said(answer)}")
        if trials := answer.get("trials"):
            more = self.target.command("search", self.name, "--more", "N")
            say(
                f"{counted(trials, 'trial')} of searches {'does' if trials == 1 else 'do'} not run "
                f"again, as their search has their results: '{more}' gives it further ones"
            )
        if self.before is not None:
            command, all = self.target.command, not self.failed and self.filter is None
            for sentence in left(self.before, command, searches=all):
                say(sentence)
        if dropped := answer.get("dropped"):
            print_error(f"{counted(dropped, 'job')} could not be looked at: limits.records")
        self.none = not answer["jobs"]
        trials = 0 if self.before is None else failed_trials(self.before)
        if trials and self.none and self.filter is None:
            why = self.target.command("failures", self.name)
            say(f"{counted(trials, 'trial')} of searches failed: '{why}' says why")
        return not self.none and not self.dry_run

    def _said(self, answer: Mapping[str, Any]) -> str:
        jobs = answer["jobs"]
        if not jobs:
            none = "no job that is over " if self.filter is not None else "no job "
            if answer.get("trials"):
                none = "no job but trials of searches "
            what = "matches" if self.filter is not None else "failed or ran out of time"
            if self.filter is None and not self.failed:
                what = "failed, ran out of time or was canceled"
            return f"{none}{what}: nothing runs again"
        outcomes = ", ".join(f"{many} {outcome}" for outcome, many in answer["outcomes"].items())
        unsent = answer.get("unsent", 0)
        return running_again(jobs, unsent, f" ({outcomes})", would=self.dry_run)

    # -- on Flux ----------------------------------------------------------------------

    def _run_on_flux(self, client: Client, results: Results) -> int:
        for option in (*SIZES, "resume"):
            if getattr(self, option):
                raise Failure(f"--{option} is for the local queue: add --queue local", USAGE)
        from flux_ensemble.cli.display.views import make_view
        from flux_ensemble.cli.session.follow import Follower

        with naming(client, self.name):
            answer = client.call(self.OP, name=self.name, **self.asked)
        if not self._say(answer) or self.detach or not answer["reopened"]:
            return OK
        follower = Follower(
            client,
            make_view(quiet=self.quiet),
            owner=True,
            timeout=self.timeout,
            fail_on=self.fail_on,
            ended=self._take,
            results=results,
        )
        return follower.follow(self.name, answer["entries"])

    # -- on the local queue -----------------------------------------------------------

    def _run_locally(self, client: LocalClient, status: EnsembleStatus, results: Results) -> int:
        if status["state"] not in FINAL_STATES and self.resume:
            watch = client.command("watch", self.name)
            raise Failure(f"the run of {self.name!r} goes on: '{watch}' follows it")
        if status["state"] not in FINAL_STATES:
            self._say(client.call(self.OP, name=self.name, **self.asked))
            return OK
        if client.states.is_interrupted(status) and not self.resume:
            raise Failure(f"the run of {self.name!r} {self._interrupted(status)}")
        if self.detach:
            raise Failure("--detach is for the service in a Flux instance", USAGE)
        from flux_ensemble.queues.local.state_dir import kept_of

        try:
            text, source, where, again = kept_of(client.root, self.name)
        except StateError as error:
            raise Failure(str(error)) from None
        except OSError as error:
            raise Failure(f"cannot read {error.filename}: {error.strerror}") from None
        file = str(Path(where, again.document()))
        if not self.resume and _is_other(Path(file), source):
            now = own_command("run", again.document())
            say(
                f"{again.document()} has changed since: {self.OP} goes by the document that is "
                f"kept; '{now}' runs what it has now"
            )
        for key, value in again.sizes().items():
            if getattr(self, key) is None:
                setattr(self, key, value)
        spec = check_document(text, file, self.name, begins="here")
        return self._go_on(client, spec, text, where, self._again(client, results, where))

    def _go_on(self, client: LocalClient, spec: Spec, text: str, where: str, again: str) -> int:
        from flux_ensemble.cli.display.views import make_view
        from flux_ensemble.cli.session.local_run import Options, reopen_locally

        options = Options(
            timeout=self.timeout,
            state_dir=client.root,
            resume=True if self.resume else None,
            fail_on=self.fail_on,
            queue=client.queue,
            again=again,
        )
        view = make_view(quiet=self.quiet)
        cluster = self._cluster()
        return reopen_locally(
            spec, text, where, cluster, view, options, self.OP, self.asked, self._say, self._take
        )

    def _again(self, client: LocalClient, results: Results, where: str) -> str:
        """Return the command that continues it, in the directory in which the run was begun."""
        root = client.root
        if Path(where) != Path.cwd():
            root, results = root.absolute(), results.absolute()
        words = ("rerun", *self._sizes(), *results.options(), "--resume", self.name)
        return advised(root, *words, queue=client.queue)

    def _interrupted(self, status: Mapping[str, Any]) -> str:
        from flux_ensemble.queues.local.continuation import clause_of

        clause = clause_of(status.get("again"))
        if own_command("rerun") in clause:
            return f"was interrupted before it ended: {clause}"
        own = self.target.command("rerun", "--resume", self.name)
        return f"was interrupted before it ended: {clause}, and so does '{own}'"

    def _cluster(self) -> VirtualCluster:
        from flux_ensemble.queues.virtual.cluster import VirtualCluster

        return VirtualCluster(self.nodes or 4, self.cores or own_cores(), self.gpus or 0)

    def _sizes(self) -> Iterator[str]:
        for key in SIZES:
            if (value := getattr(self, key)) is not None:
                yield from (f"--{key}", str(value))


def _check_filter(text: str) -> None:
    from flux_ensemble.metrics.job_filter import compile_filter

    try:
        compile_filter(text)
    except ValueError as error:
        raise Failure(f"filter: {error}", USAGE) from None


def _report_unknown(target: Target, name: str, filter: str) -> None:
    from flux_ensemble.cli.commands.jobs import report_unknown
    from flux_ensemble.metrics.job_filter import keys_in

    report_unknown(target, name, keys_in(filter))


def _is_other(file: Path, source: str) -> bool:
    """Return whether a file has another document; one that cannot be read has none."""
    try:
        return file.is_file() and file.read_text() != source
    except (OSError, UnicodeDecodeError):
        return False


COMMANDS = (rerun,)
