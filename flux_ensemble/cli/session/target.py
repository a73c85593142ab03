"""The host of an ensemble: the options `--queue` and `--state-dir`.

Commands are about ensembles of the service. With `--queue local` or `--state-dir`, and if no Flux
instance can be reached and none is named, they are about runs on the local queue.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from flux_ensemble.bindings import BindingsError
from flux_ensemble.cli.common import Failure, job_id
from flux_ensemble.client import Client, EnsembleError, is_named
from flux_ensemble.own_command import own_command
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.queues.local.root import StateError, default_root

#: The host to which a command sends its requests.
Target = Client | LocalClient

_Command = TypeVar("_Command", bound=Callable[..., Any])


def queue_options(command: _Command, choices: Sequence[str] = ("flux", "local")) -> _Command:
    """Add the options `--queue` and `--state-dir`."""
    for option in (
        click.option(
            "--state-dir",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            help="Where the local queue keeps its logs "
            "(default: flux-ensemble in $XDG_STATE_HOME or ~/.local/state).",
        ),
        click.option(
            "--queue",
            type=click.Choice(choices),
            help="Flux, or the local queue of this machine (default: Flux if it can be reached).",
        ),
    ):
        command = option(command)
    return command


def targeted(command: _Command) -> Callable[..., Any]:
    """Add `--queue` and `--state-dir`, and pass the command the chosen host as `target`."""

    @wraps(command)
    def reached(*, queue: str | None, state_dir: Path | None, **options: Any) -> Any:
        target = reach(Client, queue, state_dir)
        try:
            return command(target=target, **options)
        except EnsembleError as error:
            names = options.get("names") or (options.get("name"),)
            if error.errno != errno.ENOENT or isinstance(target, LocalClient):
                raise
            here = local_names().intersection(names)
            if not here or not str(error).startswith("no ensemble named"):
                raise
            advice = f"; a local run has the name {min(here)!r}: add --queue local"
            raise EnsembleError(errno.ENOENT, f"{error}{advice}") from error

    return queue_options(reached)


def local_names() -> set[str]:
    """Return the names of the existing local runs, as far as they can be read."""
    with contextlib.suppress(StateError, OSError):
        return set(LocalClient(default_root()).states.names())
    return set()


def reach(connect: Callable[[], Client], queue: str | None, state_dir: Path | None) -> Target:
    """Return the host of ensembles: the service, or the local queue.

    Args:
        connect: makes a client.
        queue: as `--queue`.
        state_dir: as `--state-dir`, which implies the local queue.

    Raises:
        BindingsError, EnsembleError: neither Flux nor a state directory can be reached.
        Failure: the user has no home directory for the state directory.
    """
    if queue != "flux" and (queue == "local" or state_dir is not None):
        try:
            return LocalClient(state_dir or default_root(), local=queue == "local")
        except StateError as error:
            raise Failure(str(error)) from None
    client = connect_unless(connect, queue)
    if client is not None:
        return client
    with contextlib.suppress(StateError):
        root = default_root()
        if root.is_dir():
            return LocalClient(root)
    return connect()


def connect_unless(connect: Callable[[], Client], queue: str | None) -> Client | None:
    """Return a client of the Flux instance, or None if the local queue may take its place.

    Args:
        connect: makes a client.
        queue: as `--queue`.

    Raises:
        BindingsError, EnsembleError: the instance that the user named cannot be reached.
    """
    if queue == "local":
        return None
    try:
        return connect()
    except (BindingsError, EnsembleError) as error:
        if queue == "flux":
            raise
        if not is_named():
            return None
        text = f"{error}: unset FLUX_URI, or add --queue local, for runs of this machine"
        if isinstance(error, BindingsError):
            raise BindingsError(text) from error
        raise EnsembleError(error.errno or errno.ENOENT, text) from error


def label_of(target: Target) -> Callable[[int], str]:
    """Return the function that formats a job id: f58 in Flux, a small number in a local run."""
    return str if isinstance(target, LocalClient) else job_id


def command_of(target: Target, *words: str) -> str:
    """Return a command about ensembles of the target, with the options that chose it."""
    if isinstance(target, LocalClient):
        return target.command(*words)
    return own_command(*words, flux=True)
