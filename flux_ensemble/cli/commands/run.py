"""The commands that start and follow an ensemble: run, load, watch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from flux_ensemble.bindings import BindingsError
from flux_ensemble.cli.common import (
    EXIT_CODES,
    FAILED,
    FILE,
    MOST,
    USAGE,
    Duration,
    Failure,
    check_document,
    naming,
    own_cores,
    print_error,
    read_document,
    say,
)
from flux_ensemble.cli.display.troubles import FAIL_ON_OPTION
from flux_ensemble.cli.help_parts import InParts
from flux_ensemble.cli.session import completion
from flux_ensemble.cli.session.own_service import is_needed, serving
from flux_ensemble.cli.session.results import ExportFile, Results, Summary
from flux_ensemble.cli.session.target import (
    connect_unless,
    queue_options,
    reach,
    targeted,
    trials_of,
)
from flux_ensemble.client import Client, EnsembleError, is_named, user_context
from flux_ensemble.deploy.service_start import ensure_service
from flux_ensemble.own_command import own_command
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.queues.local.kinds import QUEUES, USUAL, own_queue
from flux_ensemble.results.hosts import Target
from flux_ensemble.run_names import Listed, begun_as, can_be_named, cannot_resume, named_otherwise
from flux_ensemble.words import counted

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus
    from flux_ensemble.document.model import Spec
    from flux_ensemble.queues.virtual.cluster import VirtualCluster

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: Default address of the gRPC service that changes the size of a MiniCluster.
HOST = "localhost"
PORT = 50051

_FILE = click.Path(path_type=Path, dir_okay=False, resolve_path=True)

NAME_OPTION = click.option(
    "--name", metavar="NAME", help="The ensemble's name, instead of the document's."
)
ISOLATE_OPTION = click.option(
    "--isolate",
    is_flag=True,
    help="Start the service, where it is not there, as a process beside the broker.",
)
TASKS_OPTION = click.option(
    "--tasks",
    is_flag=True,
    help="Run the jobs as processes of a worker on each node, and not as jobs of Flux: for short "
    "ones.",
)
#: Reason why an ensemble cannot be left alone without Flux.
NO_SERVICE = "without a Flux instance there is no service to leave an ensemble to"

DEBUG_OPTION = click.option("--debug", is_flag=True, help="Print every event of its jobs.")


def run_queue_options(command: _Command) -> _Command:
    """Add the options that choose the queue of an ensemble."""
    for option in (
        click.option("--tls-ca", type=_FILE, help="The authority of the service, in PEM."),
        click.option("--tls-key", type=_FILE, help="The key of the certificate, in PEM."),
        click.option("--tls-cert", type=_FILE, help="The certificate to show it, in PEM."),
        click.option("--port", type=click.IntRange(1, 65535), help=f"Its port (default {PORT})."),
        click.option(
            "--host",
            help="Where the gRPC service is that changes the size of the MiniCluster "
            f"(default {HOST}).",
        ),
    ):
        command = option(command)
    return queue_options(command, ("flux", *QUEUES, "minicluster"))


def read_minicluster(
    queue: str | None, name: str | None, options: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the scaler of a MiniCluster; None for another queue.

    The ensemble service receives it with the document, in the form of the table [ensemble]
    (docs/elastic.md).

    Args:
        queue: as `--queue`.
        name: as `--name`: the MiniCluster, as NAMESPACE/NAME.
        options: `host`, `port`, `tls_cert`, `tls_key` and `tls_ca`.

    Raises:
        Failure: an option is for a MiniCluster, but the queue is another.
    """
    if queue != "minicluster":
        for key, value in options.items():
            if value is not None:
                option = "--" + key.replace("_", "-")
                raise Failure(f"{option} is for a MiniCluster: add --queue minicluster", USAGE)
        return None
    host, port = options.pop("host") or HOST, options.pop("port") or PORT
    scaler = {"scaler": "minicluster", "grpc-target": f"{host}:{port}"}
    if name is not None:
        scaler["grpc-cluster"] = name
    files = {key.replace("_", "-"): value for key, value in options.items()}
    return {**scaler, **{key: str(value) for key, value in files.items() if value is not None}}


QUIET_OPTION = click.option("-q", "--quiet", is_flag=True, help="Print only how it ended.")

TIMEOUT_OPTION = click.option(
    "--timeout",
    type=Duration(),
    default=0.0,
    metavar="DURATION",
    help="End the ensemble and cancel its jobs after so long (30s, 2m, 1.5h), and exit 124.",
)

FORCE_OPTION = click.option(
    "--force", is_flag=True, help="Replace files for --report and --export that exist."
)


#: Headings of options in the help of `run`.
_PARTS = {
    "When it has ended": ("report", "shown", "exports", "force", "summary", "fail_on"),
    "Where the jobs run": ("queue", "tasks", "nodes", "cores", "gpus", "state_dir"),
}
_RARE = {
    "The service in Flux": ("isolate", "serve"),
    "Recording": ("record",),
    "A MiniCluster in Kubernetes": ("host", "port", "tls_cert", "tls_key", "tls_ca"),
}


@click.command(cls=InParts, parts=_PARTS, rare=_RARE)
@click.argument("file", shell_complete=completion.files)
@NAME_OPTION
@DEBUG_OPTION
@QUIET_OPTION
@TIMEOUT_OPTION
@click.option(
    "--fail-on-job-failure",
    "strict",
    is_flag=True,
    hidden=True,  # --fail-on job
)
@click.option(
    "--record",
    metavar="FILE",
    help='Record every event and command in FILE, for "replay".',
)
@click.option(
    "--summary",
    type=FILE,
    metavar="FILE",
    help="Write how it ended to FILE, as JSON.",
)
@click.option(
    "--report",
    type=FILE,
    metavar="FILE",
    help="Write a report to FILE, one HTML page.",
)
@click.option(
    "--export",
    "exports",
    type=ExportFile(),
    multiple=True,
    metavar="[best:]FILE",
    help="Write its jobs to FILE (.csv, .json, .jsonl, .sqlite, .parquet), or the best of them; "
    "may be repeated.",
)
@FORCE_OPTION
@click.option(
    "--open",
    "shown",
    is_flag=True,
    help="Open the report in a browser; without --report it is NAME.html.",
)
@FAIL_ON_OPTION
@ISOLATE_OPTION
@TASKS_OPTION
@click.option(
    "--serve",
    is_flag=True,
    help="Where Flux is too old to load the service (before 0.84), run it with this command.",
)
@run_queue_options
@click.option(
    "--nodes",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="Nodes that the local queue offers (default 4).",
)
@click.option(
    "--cores",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="Cores of each of its nodes (default: those of this machine).",
)
@click.option(
    "--gpus",
    type=click.IntRange(0, MOST),
    metavar="N",
    help="GPUs of each of its nodes (default 0).",
)
@click.option(
    "--resume/--no-resume",
    default=None,
    help="Go on with a run that was killed, or begin anew. On Flux: with the ensemble of the name, "
    "if the statedir of the instance has it. --resume begins one that never began.",
)
def run(**options: Any) -> int:
    """Load document FILE ("-": standard input), follow the ensemble, and exit with it.

    In a Flux instance the jobs go to its queue, by the service, which is loaded where it is
    not yet; without one they are processes of this machine. Ctrl-C ends the ensemble and
    cancels its jobs, which is final; a second Ctrl-C leaves at once. If the terminal is closed
    instead, --resume goes on with it.
    """
    kept = {field.name for field in fields(_Run)} - {"minicluster", "summary", "results"}
    strict = options.pop("strict")
    summary = Summary(options.pop("summary"))
    results = Results(*map(options.pop, ("report", "exports", "shown", "force")))
    given = {key: value for key, value in options.items() if key in kept}
    if strict:
        given["fail_on"] |= {"job"}
    minicluster = {key: value for key, value in options.items() if key not in kept}
    summary.check()
    try:
        code = _Run(**given, minicluster=minicluster, summary=summary, results=results).execute()
    except Exception as exc:
        summary.write(getattr(exc, "code", FAILED), str(exc))
        raise
    return summary.write(code)


@dataclass
class _Run:
    """A run of an ensemble.

    The fields are the options, with those of a MiniCluster in a mapping.
    """

    file: str
    name: str | None
    debug: bool
    quiet: bool
    timeout: float
    record: str | None
    isolate: bool
    tasks: bool
    serve: bool
    fail_on: frozenset[str]
    queue: str | None
    state_dir: Path | None
    nodes: int | None
    cores: int | None
    gpus: int | None
    resume: bool | None
    minicluster: dict[str, Any]
    summary: Summary
    results: Results
    #: Name of the ensemble, once it has ended.
    ended: str | None = None

    def execute(self) -> int:
        """Check the document, and run it on Flux or on this machine.

        Returns:
            The exit code.

        Raises:
            Failure: it cannot run.
        """
        scaler = read_minicluster(self.queue, self.name, self.minicluster)
        if scaler is not None:
            self.name, self.queue = None, "flux"
        text, label = read_document(self.file)
        client = connect_unless(Client, self.queue)
        if self.resume and client is None:
            from flux_ensemble.cli.session.local_run import begun_with

            self._check_program()
            text = begun_with(text, label, self.name, self.state_dir)
        tasks = self.tasks and client is not None
        workers = 1 if tasks else None
        # A run that goes on has its points in its log.
        here = client is None and not self.resume
        begins: Literal["here", "elsewhere"] = "here" if here else "elsewhere"
        jobs = trials_of(partial(reach, Client, self.queue, self.state_dir))
        spec = check_document(text, label, self.name, workers, begins=begins, jobs=jobs)
        if self.resume and self.record is not None:
            raise Failure(
                "--record cannot be given with --resume: it would miss the beginning", USAGE
            )
        self.results.check(spec.name, best=bool(spec.bests or spec.features))
        events = self.debug or spec.debug
        if client is None:
            if self.isolate:
                raise Failure("--isolate is for the service in a Flux instance", USAGE)
            code = self._run_locally(spec, text, events)
            return code if not self.results else self._written(_local(self.state_dir), code)
        document = {"text": text} if spec.expansion is None else {"spec": spec.expansion}
        return self._run_on_flux(client, spec, document, label, events, scaler)

    def _check_program(self) -> None:
        """Raise a `Failure` if the file is a Python program with a run that was interrupted."""
        if not self.file.endswith(".py"):
            return
        from flux_ensemble.queues.local.continuation import Continuation

        target = _local(self.state_dir)
        for name in target.names():
            with suppress(EnsembleError):
                (status,) = target.status(name)["ensembles"]
                again = status.get("resumable") and status.get("again")
                if again and Continuation(**again).is_of(self.file):
                    own = target.command("rerun", "--resume", name)
                    raise Failure(f"{self.file}: this is a program: '{own}' goes on with its run")

    def _take(self, status: EnsembleStatus) -> None:
        """Note the final status."""
        self.summary.take(status)
        if status["state"] in EXIT_CODES:
            self.ended = status["name"]

    def _written(self, target: Target, code: int) -> int:
        """Write the requested files about an ended ensemble; return the exit code."""
        if self.ended is None:
            print_error("it has not ended: there is no report, and no export")
            return code or FAILED
        wrong = self.results.write(target, self.ended)
        return code or wrong

    def _run_locally(self, spec: Spec, text: str, events: bool) -> int:
        from flux_ensemble.cli.display.views import make_view
        from flux_ensemble.cli.session.local_run import Options, run_locally

        cluster = self._cluster()
        if spec.members:
            say("no Flux instance is used: the jobs run on members, which call this machine")
        elif self.queue is None:
            fewer = " (--nodes 1: no more at once than it has)" if self.nodes is None else ""
            say(
                "no Flux instance can be reached: running on this machine as "
                f"{counted(cluster.nodes, 'node')} of {counted(cluster.cores, 'core')}{fewer}"
            )
        options = Options(
            events=events,
            timeout=self.timeout,
            state_dir=self.state_dir,
            record=self.record,
            resume=self.resume,
            fail_on=self.fail_on,
            again=own_command(*self._again()),
            queue=own_queue(self.queue),
        )
        view = make_view(quiet=self.quiet)
        return run_locally(spec, text, cluster, view, options, self._take)

    def _again(self) -> Iterator[str]:
        """Yield the words of the command that continues an interrupted local run."""
        yield "run"
        for option, value in (
            ("--queue", self.queue),
            ("--state-dir", self.state_dir),
            ("--name", self.name),
            ("--nodes", self.nodes),
            ("--cores", self.cores),
            ("--gpus", self.gpus),
        ):
            if value is not None:
                yield from (option, str(value))
        yield from self.results.options()
        yield from ("--resume", self.file)

    def _cluster(self) -> VirtualCluster:
        """Return the virtual cluster: by default one like that of `flux start -s4` here."""
        from flux_ensemble.queues.virtual.cluster import VirtualCluster

        cores = self.cores or own_cores()
        return VirtualCluster(self.nodes or 4, cores, self.gpus or 0)

    def _run_on_flux(
        self,
        client: Client,
        spec: Spec,
        document: dict[str, Any],
        label: str | None,
        events: bool,
        scaler: dict[str, Any] | None,
    ) -> int:
        for option in ("nodes", "cores", "gpus", "state_dir"):
            if getattr(self, option) is not None:
                name = "--" + option.replace("_", "-")
                raise Failure(f"{name} is for the local queue: add --queue local", USAGE)
        if self.resume and scaler is not None:
            # The instance belongs to this ensemble only, and continues from what a lost pod has
            # left.
            from flux_ensemble.deploy.scheduler import revive

            try:
                done = revive(client.handle)
            except OSError as exc:
                done = f"cannot find out whether Flux has its scheduler: {exc.strerror or exc}"
            if done is not None:
                say(done)
        with ExitStack() as stack:
            if self.serve and is_needed(client):
                stack.enter_context(serving(client))
            else:
                _need_service(client, self.isolate)
            return self._follow(client, spec, document, label, events, scaler)

    def _follow(
        self,
        client: Client,
        spec: Spec,
        document: dict[str, Any],
        label: str | None,
        events: bool,
        scaler: dict[str, Any] | None,
    ) -> int:
        from flux_ensemble.cli.display.views import make_view
        from flux_ensemble.cli.session.follow import Follower
        from flux_ensemble.service.settings import forgets_at_a_crash

        follower = Follower(
            client,
            make_view(quiet=self.quiet),
            owner=True,
            events=events,
            timeout=self.timeout,
            fail_on=self.fail_on,
            ended=self._take,
            results=self.results,
        )
        request = {**document, "name": self.name, "file": label, **user_context()}
        if scaler is not None:
            request["scaler"] = scaler
        if self.tasks:
            request["workers"] = _nodes(client)
        if self.record is not None:
            request["record"] = os.path.abspath(self.record)
        listed = client.list()
        begun = begun_as(spec.name, listed) if self.resume else None
        if begun is not None:
            if begun != spec.name:
                say(f"going on with {begun!r}")
            canceled = canceled_as(spec.name, listed)
            if canceled is not None:
                say(cannot_resume(canceled))
            code = follower.follow(begun)
        else:
            if self.resume:
                say(
                    f"the instance has no run of {spec.name!r} to go on with: it begins. If one "
                    "was lost with its broker, 'flux ensemble doctor' says how to keep the next"
                )
            if not self.quiet and spec.durability != "strict" and forgets_at_a_crash(client.handle):
                say(
                    "a crash of the first broker would lose this run, since kvs.checkpoint-period "
                    "is not set: see 'flux ensemble doctor'"
                )
            others = [(other["name"], other["t_start"]) for other in listed]
            code = follower.load(request, spec.name, others)
        return self._written(client, code) if self.results else code


def canceled_as(asked: str, listed: Sequence[Listed]) -> str | None:
    """Return the newest run of a name if that was canceled and none is left to go on; else None.

    Args:
        asked: the requested name.
        listed: all ensembles.
    """
    states = {one["name"]: one["state"] for one in listed if can_be_named(one["name"], asked)}
    newest = max(states, key=lambda name: (len(name), name), default=asked)
    ended = all(state in EXIT_CODES for state in states.values())
    return newest if ended and states.get(newest) == "canceled" else None


def _local(state_dir: Path | None) -> LocalClient:
    from flux_ensemble.queues.local.root import default_root

    return LocalClient(state_dir or default_root())


def _nodes(client: Client) -> int:
    """Return the number of nodes of the instance that are up, at least 1."""
    from flux.resource import resource_list

    up: int = resource_list(client.handle).get().up.nnodes
    return max(1, up)


def _need_service(client: Client, isolate: bool) -> None:
    """Start the service if it does not run, and print how."""
    said = ensure_service(client, isolate=isolate)
    if said is not None:
        say(said)


@click.command
@click.argument("file", shell_complete=completion.files)
@NAME_OPTION
@ISOLATE_OPTION
@TASKS_OPTION
@queue_options
def load(
    file: str,
    name: str | None,
    isolate: bool,
    tasks: bool,
    queue: str | None,
    state_dir: Path | None,
) -> None:
    """Load document FILE ("-": standard input), and print the ensemble's name.

    Loads the service first where that is not loaded. The ensemble belongs to the service:
    "watch" follows it, and "terminate" or "cancel" ends it. A local run has no service that it
    could be left to: "run" runs it, and goes on as long as it.
    """
    if own_queue(queue) or state_dir is not None:
        place = () if state_dir is None else ("--state-dir", str(state_dir))
        command = own_command("run", "--queue", own_queue(queue) or USUAL, *place, file)
        raise Failure(f"{NO_SERVICE}: '{command}' runs it", USAGE)
    text, label = read_document(file)
    spec = check_document(
        text,
        label,
        name,
        workers=1 if tasks else None,
        begins="elsewhere",
        jobs=trials_of(partial(reach, Client, queue, state_dir)),
    )
    try:
        client = Client()
    except (BindingsError, EnsembleError) as exc:
        if queue == "flux":
            raise
        # A run asks the instance that is named, too.
        words = ["run", "--queue", "local", file] if is_named() else ["run", file]
        raise Failure(f"{exc}\n{NO_SERVICE}: '{own_command(*words)}' runs it here") from exc
    _need_service(client, isolate)
    document = text if spec.expansion is None else spec.expansion
    workers = _nodes(client) if tasks else None
    loaded = client.load(document, name=name, file=label, workers=workers)["name"]
    if loaded != spec.name:
        say(named_otherwise(spec.name, loaded, own_command("rm", spec.name, flux=True)))
    click.echo(loaded)


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@DEBUG_OPTION
@QUIET_OPTION
@FAIL_ON_OPTION
@targeted
def watch(name: str, debug: bool, quiet: bool, fail_on: frozenset[str], target: Target) -> int:
    """Follow ensemble NAME as "run" does, from its beginning to its end, and exit with it.

    Ctrl-C leaves it to the service, or to its run.
    """
    from flux_ensemble.cli.display.views import make_view

    view = make_view(quiet=quiet)
    if isinstance(target, LocalClient):
        from flux_ensemble.cli.session.local_follow import follow_locally

        if debug:
            reason = "--debug is not for local runs: 'run --debug' prints the events of its jobs"
            raise Failure(reason, USAGE)
        target.status(name)
        return follow_locally(target, name, view, fail_on)

    from flux_ensemble.cli.session.follow import Follower

    with naming(target, name):
        target.status(name)
        follower = Follower(target, view, owner=False, events=debug, fail_on=fail_on)
        return follower.follow(name)


COMMANDS = (run, load, watch)
