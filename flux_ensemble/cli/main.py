"""The command `flux ensemble`: parsing, and one place where errors become text and a code.

Exit codes: 0 completed, 1 failed, 2 usage or invalid document, 3 canceled, 124 the
`--timeout` ran out, 130 interrupted.
"""

from __future__ import annotations

import errno
import sys
from typing import Any

import click

from flux_ensemble import __version__
from flux_ensemble.bindings import BindingsError
from flux_ensemble.cli import (
    control,
    doctor,
    document,
    grpc,
    logs,
    memo,
    replay,
    run,
    serve,
    show,
    simulate,
    supervise,
)
from flux_ensemble.cli.common import (
    FAILED,
    INTERRUPTED,
    USAGE,
    Failure,
    complain,
)
from flux_ensemble.client import EnsembleError

FAMILIES = (
    run,
    show,
    logs,
    control,
    document,
    memo,
    simulate,
    replay,
    serve,
    supervise,
    doctor,
    grpc,
)


class Commands(click.Group):
    """A group that lists its commands in the order of a session, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="flux-ensemble %(version)s")
def ensemble() -> None:
    """Ensembles of jobs on Flux, driven by rules that react to the queue's events.

    "flux ensemble run ensemble.yaml" loads a document, follows it and exits with it;
    "load" leaves it to the service, and the other commands look at it and steer it.
    """


for _family in FAMILIES:
    for _command in _family.COMMANDS:
        ensemble.add_command(_command)


def main(argv: list[str] | None = None) -> None:
    """Runs the command and exits with its code."""
    sys.exit(run_command(argv))


def run_command(argv: list[str] | None = None) -> int:
    """Runs the command and returns its exit code; prints every error as one line each."""
    try:
        code: Any = ensemble.main(argv, prog_name="flux-ensemble", standalone_mode=False)
        return code or 0
    except click.UsageError as exc:
        if exc.ctx is not None:
            click.echo(exc.ctx.get_usage(), err=True)
        complain(_sentence(exc.format_message()))
        return USAGE
    except click.Abort:
        return INTERRUPTED
    except Failure as exc:
        complain(str(exc))
        return exc.code
    except EnsembleError as exc:
        complain(str(exc))
        return USAGE if exc.errno == errno.EINVAL else FAILED
    except BindingsError as exc:
        complain(str(exc))
        return FAILED
    except OSError as exc:
        complain(exc.strerror or str(exc))
        return FAILED


def _sentence(message: str) -> str:
    """click's message in the form of ours: no capital in front, no full stop behind."""
    return message[:1].lower() + message[1:].rstrip(".")


if __name__ == "__main__":
    main()
