"""The command `flux ensemble`: parsing, and the only place where errors become text and exit codes.

Exit codes: 0 completed, 1 failed, 2 usage or invalid document, 3 canceled, 124 the
`--timeout` ran out, 130 interrupted.
"""

from __future__ import annotations

import errno
import gc
import io
import re
import sys
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import click

from flux_ensemble import __version__
from flux_ensemble.bindings import BindingsError
from flux_ensemble.cli.common import (
    DOCUMENTS,
    FAILED,
    INTERRUPTED,
    OK,
    USAGE,
    Failure,
    drop_output,
    print_error,
    warn,
)
from flux_ensemble.cli.display.colours import WHEN, choose_colour, use_colour
from flux_ensemble.cli.table import COMMANDS, SECTIONS
from flux_ensemble.client import EnsembleError
from flux_ensemble.deploy.service_start import DeployError
from flux_ensemble.own_command import own_command
from flux_ensemble.renamed import OPTIONS, deprecated, renamed

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: The messages of click about a text that is no number, and about arguments that a command does not
#: have.
_NO_INTEGER = re.compile(r"('[^']*') is not a valid integer(?: range)?")
_EXTRA = re.compile(r"Got unexpected extra arguments? \((?P<words>.*)\)")

#: Names of commands in other tools -> the advice for them.
MEANT = {
    **dict.fromkeys(
        ("delete", "remove", "del", "purge", "clean"), "'rm' removes an ensemble that has ended"
    ),
    **dict.fromkeys(
        ("kill", "stop", "abort", "end"), "'cancel' ends an ensemble and cancels its jobs"
    ),
    **dict.fromkeys(("ls", "ps"), "'list' lists ensembles, and 'jobs' the jobs of one"),
    **dict.fromkeys(("start", "exec"), "'run' runs a document"),
    **dict.fromkeys(
        ("restart", "retry"),
        "'run' runs a document again, under a new name; 'rerun' the failed jobs",
    ),
    **dict.fromkeys(("logs", "tail"), "'log' prints what an ensemble did"),
    **dict.fromkeys(("check", "lint"), "'validate' checks documents"),
    **dict.fromkeys(("attach", "follow"), "'watch' follows an ensemble"),
}

#: Ending of a file -> the options of which it can be the value, of which a command has one.
WRITTEN = {
    ".html": ("--report", "--output"),
    **dict.fromkeys((".csv", ".json", ".jsonl", ".sqlite", ".parquet"), ("--export",)),
}

#: Options of other tools -> the advice for them.
MEANT_OPTIONS = {
    **dict.fromkeys(
        ("--dry-run", "--dryrun", "--check", "--test-only"),
        "'flux-ensemble validate' checks a document, and 'simulate' predicts its run",
    ),
    **dict.fromkeys(
        ("-n", "-N", "-c", "-g", "--ntasks", "--cores", "--cpus-per-task", "--gpus", "--walltime"),
        "the size of a job is in the document: 'nodes', 'tasks', 'cores', 'gpus' and 'duration'",
    ),
    **dict.fromkeys(
        ("-p", "--param", "--params", "--set", "--var", "-D", "--array"),
        "parameters and their values are in the document: 'params'",
    ),
    **dict.fromkeys(
        ("-j", "--jobs", "--max-jobs", "--parallel"),
        "the number of jobs at once is in the document: 'limits: {active-jobs: N}'",
    ),
    "--local": "without a Flux instance that can be reached a document runs on this machine",
}

#: Number of new objects before garbage is collected.
YOUNG = 20_000

#: Exception of click for a missing command; older versions print their help.
_NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())

#: Key in a context's `meta`: old names of options for which a warning was printed.
_WARNED = "flux_ensemble.cli.old_options"


def _choose_colour(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        choose_colour(value)
        # Otherwise click removes colours from output that is not on a terminal.
        ctx.color = use_colour()


#: `--color` after the name of a command, as in flux-jobs(1).
_COLOR: Final = click.Option(
    ["--color"],
    type=click.Choice(WHEN),
    callback=_choose_colour,
    expose_value=False,
    is_eager=True,
    hidden=True,
)


class Commands(click.Group):
    """The commands of `cli.table`: listed and completed without an import, imported to run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "help":
            return show_help
        if cmd_name not in COMMANDS:
            return None
        module = COMMANDS[cmd_name].module
        commands = import_module(f"flux_ensemble.cli.commands.{module}").COMMANDS
        found: click.Command = next(one for one in commands if one.name == cmd_name)
        if not isinstance(found, click.Group) and _COLOR not in found.params:
            found.params.append(_COLOR)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = ctx.resilient_parsing or name.startswith("-") or name == "help"
        if not known and name not in COMMANDS:
            raise click.UsageError(unknown_command(name), ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # A reader that has had enough, as in "log NAME | head", is no failure.
            drop_output()
            return OK

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                rows = [(f"{name:<9}", entry.summary) for name, entry in entries.items()]
                # A longer name gets a line of its own, so that others keep theirs.
                formatter.write_dl(rows, col_max=9)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=entry.summary)
            for entries in SECTIONS.values()
            for name, entry in entries.items()
            if name.startswith(incomplete)
        ]
        # Not that of click.Group, which would import every command for its summary.
        return commands + click.Command.shell_complete(self, ctx, incomplete)


def unknown_command(name: str) -> str:
    """Return the error for an unknown command, with the most similar known one."""
    from flux_ensemble.suggestions import hint
    from flux_ensemble.texts import shown

    meant = MEANT.get(name)
    near = hint(name, COMMANDS) if meant is None else f"{meant}; "
    return f"no such command {shown(name)} ({near}see 'flux-ensemble --help')"


@click.command("help", hidden=True)
@click.argument("command", required=False)
@click.pass_context
def show_help(ctx: click.Context, command: str | None) -> None:
    """Print what "--help" prints, of all or of one command."""
    top = ctx.parent
    assert top is not None
    if command is None:
        click.echo(top.get_help())
        return
    found = ensemble.get_command(top, command)
    if found is None:
        raise click.UsageError(unknown_command(command), top)
    click.echo(found.get_help(click.Context(found, info_name=command, parent=top)))


def _as_called_now(name: str) -> str:
    """Return the name of an option without its dashes; warn of one that has a new name."""
    if name not in OPTIONS:
        return name
    ctx = click.get_current_context()
    known = {word.lstrip("-") for param in ctx.command.get_params(ctx) for word in param.opts}
    new = renamed(name, OPTIONS, known)
    if new is None:
        return name
    # click calls this more than once.
    warned = ctx.find_root().meta.setdefault(_WARNED, set())
    if not ctx.resilient_parsing and name not in warned:
        warned.add(name)
        warn(deprecated(f"--{name}", f"--{new}"))
    return new


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={
        "help_option_names": ["-h", "--help"],
        # Sub-commands inherit this.
        "token_normalize_func": _as_called_now,
    },
)
@click.version_option(__version__, "-V", "--version", message="flux-ensemble %(version)s")
@click.option(
    "--color",
    type=click.Choice(WHEN),
    default="auto",
    callback=_choose_colour,
    expose_value=False,
    help="When to print in colour; auto: on a terminal, see NO_COLOR and FORCE_COLOR.",
)
@click.pass_context
def ensemble(ctx: click.Context) -> None:
    """Ensembles of jobs on Flux, driven by rules that react to the queue's events.

    "flux ensemble run ensemble.yaml" loads a document, follows it and exits with it;
    "load" leaves it to the service, and the other commands look at it and steer it.
    Without a command it shows what there is, and what to do next.
    """
    if ctx.invoked_subcommand is None:
        from flux_ensemble.cli.session.overview import overview

        overview()


def main(argv: list[str] | None = None) -> None:
    """Run the command and exit with its code."""
    # Modules are no garbage, and searching them takes a tenth of the time until a command works.
    gc.set_threshold(YOUNG)
    for stream in (sys.stdout, sys.stderr):
        # Characters that the terminal lacks are escaped. The stream can be closed.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = run_command(argv)
    # Python must not search all objects for garbage when it ends, either.
    gc.freeze()
    sys.exit(code)


def run_command(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code; print every error as one line each."""
    try:
        code: Any = ensemble.main(argv, prog_name="flux-ensemble", standalone_mode=False)
        return code or 0
    except _NO_ARGUMENTS as exc:
        click.echo(exc.format_message(), err=True)
        return USAGE
    except click.UsageError as exc:
        if exc.ctx is not None:
            click.echo(exc.ctx.get_usage(), err=True)
        if isinstance(exc, click.NoSuchOption) and exc.option_name in MEANT_OPTIONS:
            print_error(f"no such option {exc.option_name!r} ({MEANT_OPTIONS[exc.option_name]})")
            return USAGE
        print_error(_sentence(exc.format_message()) + _meant(exc))
        return USAGE
    except click.Abort:
        return INTERRUPTED
    except Failure as exc:
        print_error(str(exc))
        return exc.code
    except EnsembleError as exc:
        print_error(str(exc))
        return USAGE if exc.errno == errno.EINVAL else FAILED
    except (BindingsError, DeployError) as exc:
        print_error(str(exc))
        return FAILED
    except OSError as exc:
        print_error(exc.strerror or str(exc))
        return FAILED


def _meant(error: click.UsageError) -> str:
    """Return the right command for an argument too many; "" if none is known."""
    ctx, extra = error.ctx, _EXTRA.fullmatch(error.message)
    name = ctx.info_name if ctx else None
    if ctx is None or name is None or extra is None or len(words := extra["words"].split()) != 1:
        return ""
    first, word = str(ctx.params.get("file", ctx.params.get("name"))), words[0]
    options = {option for param in ctx.command.params for option in param.opts}
    for option in WRITTEN.get(PurePath(word).suffix, ()):
        if option in options:
            return f": a file to write is an option, '{own_command(name, first, option, word)}'"
    if word.isdigit() and ctx.params.get("no_header"):
        # As for head(1), and many other tools.
        most = ""
        if name == "best":
            jobs = own_command("jobs", first, "--sort", "-memo.KEY", "-c", word)
            most = f"; '{jobs}' shows the {word} jobs with the largest KEY"
        elif "-c" in options:
            most = f"; -c {word} shows so many"
        return f": -n leaves out the headings, and takes no number{most}"
    files = [one for one in (first, word) if PurePath(one).suffix in DOCUMENTS]
    if name not in ("run", "load") or len(files) != 1:
        return ""
    title = word if files == [first] else first
    return f": a name is an option, '{own_command(name, '--name', title, files[0])}'"


def _sentence(message: str) -> str:
    """Return click's message in our form: no capital at the beginning, no full stop at the end."""
    message = _NO_INTEGER.sub(r"expected a whole number such as 20, not \1", message)
    return message[:1].lower() + message[1:].rstrip(".")


if __name__ == "__main__":
    main()
