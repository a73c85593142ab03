"""Where an ensemble runs: the options `--member` and `--state-dir`, and reading from files.

`run` on the local queue leaves files; `log`, `status`, `metrics` and `list` read them with
`--member local` or `--state-dir`, and where no Flux instance can be reached.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from flux_ensemble.bindings import BindingsError
from flux_ensemble.cli.common import USAGE, Failure
from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.client.responses import EnsembleStatus, Summary
from flux_ensemble.members.local.directory import StateError
from flux_ensemble.members.local.state_dir import default_root
from flux_ensemble.members.local.states import Mark, States

_Command = TypeVar("_Command", bound=Callable[..., Any])


def member_options(command: _Command, choices: Sequence[str] = ("flux", "local")) -> _Command:
    """The options `--member` (`--executor`) and `--state-dir`."""
    for option in (
        click.option(
            "--state-dir",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            help="Where the local queue keeps its logs "
            "(default: flux-ensemble in $XDG_STATE_HOME or ~/.local/state).",
        ),
        click.option(
            "--member",
            "--executor",
            "member",
            type=click.Choice(choices),
            help="Flux, or the local queue of this machine (default: Flux where it is reached).",
        ),
    ):
        command = option(command)
    return command


class LocalStates:
    """What a `client.Client` tells about ensembles, from the files of the local queue."""

    def __init__(self, root: Path) -> None:
        self._states = States(root)

    def list(self) -> builtins.list[Any]:
        """As `Client.list`: those that began last at the end."""
        return [summary_of(self._status(name)) for name in self._names()]

    def status(self, name: str | None = None) -> dict[str, Any]:
        """As `Client.status`, without what is about the service."""
        names = self._names() if name is None else [name]
        return {"ensembles": [self._status(one) for one in names]}

    def metrics(self, name: str) -> dict[str, dict[str, Any]]:
        """As `Client.metrics`."""
        with _sentences():
            return self._states.metrics(name)

    def jobs(
        self,
        name: str,
        *,
        filter: str | None = None,
        group: str | None = None,
        outcome: str | None = None,
    ) -> Iterator[Any]:
        """As `Client.jobs`, without those that are active."""
        # Here, because most commands have no filter.
        from flux_ensemble.metrics.job_filter import compile_filter

        try:
            matches = compile_filter(filter) if filter is not None else None
        except ValueError as error:
            raise Failure(f"filter: {error}", USAGE) from None
        with _sentences():
            for job in self._states.jobs(name):
                if (group or job["group"]) == job["group"] and (
                    (outcome or job["outcome"]) == job["outcome"]
                    and (matches is None or matches(job))
                ):
                    yield job

    def why(self, name: str, rule: str | None = None) -> Any:
        """As `Client.why`."""
        with _sentences():
            return self._states.why(name, rule)

    def log(self, name: str) -> Iterator[Any]:
        """As `Client.log`."""
        with _sentences():
            yield from self._states.log(name)

    def read_on(
        self, name: str, file: str, mark: Mark | None, most: int
    ) -> tuple[builtins.list[dict[str, Any]], Mark, bool]:
        """As `States.read_on`: what is new in the log, or of the jobs."""
        with _sentences():
            return self._states.read_on(name, file, mark, most)

    def _names(self) -> builtins.list[str]:
        with _sentences():
            return self._states.names()

    def _status(self, name: str) -> Any:
        with _sentences():
            return self._states.status(name)


def reach(
    connect: Callable[[], Client], member: str | None, state_dir: Path | None
) -> Client | LocalStates:
    """Whoever knows about ensembles: the service, or the files of the local queue.

    Args:
        connect: makes a client.
        member: as `--member`.
        state_dir: as `--state-dir`, which implies the local queue.

    Raises:
        BindingsError, EnsembleError: there is no Flux to reach, nor a state directory.
        Failure: the user has no home directory, where the state directory would be.
    """
    if member != "flux" and (member == "local" or state_dir is not None):
        with _sentences():
            return LocalStates(state_dir or default_root())
    try:
        return connect()
    except (BindingsError, EnsembleError):
        root = None
        if member != "flux":
            with contextlib.suppress(StateError):
                root = default_root()
        if root is None or not root.is_dir():
            raise
        return LocalStates(root)


def summary_of(status: EnsembleStatus) -> Summary:
    """What `list` would say about an ensemble of `status`."""
    return {
        "name": status["name"],
        "state": status["state"],
        "reason": status.get("reason", ""),
        "t_start": status["t_start"],
        "t_end": status["t_end"],
        "active": status["jobs"]["active"],
        "waiting": status["jobs"]["waiting"],
        "finished": sum(group["finished"] for group in status["groups"].values()),
    }


@contextmanager
def _sentences() -> Iterator[None]:
    try:
        yield
    except StateError as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise Failure(f"cannot read {error.filename}: {error.strerror}") from None
