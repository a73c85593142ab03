"""The host of an ensemble: the options `--queue` and `--state-dir`.

Commands are about ensembles of the service. With `--queue local` or `--state-dir`, and if no Flux
instance can be reached and none is named, they are about runs on the local queue.
"""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from pathlib import Path, PurePath
from typing import Any, TypeVar

import click

from flux_ensemble.bindings import BindingsError
from flux_ensemble.cli.common import DOCUMENTS, Failure
from flux_ensemble.client import Client, EnsembleError, is_named
from flux_ensemble.own_command import own_command
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.queues.local.kinds import QUEUES, own_queue
from flux_ensemble.queues.local.root import StateError, default_root
from flux_ensemble.results.hosts import Target
from flux_ensemble.texts import listed

#: The beginning of the error about an unknown ensemble.
_UNKNOWN = "no ensemble named"

#: The beginning of the error about an instance without a service.
_UNLOADED = "the ensemble service is not loaded"

#: FLUX_KVS_READDIR.
_READDIR = 1

_Command = TypeVar("_Command", bound=Callable[..., Any])


def queue_options(command: _Command, choices: Sequence[str] = ("flux", *QUEUES)) -> _Command:
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
        names = options.get("names") or (options.get("name"),)
        with advising(target, names):
            return command(target=target, **options)

    return queue_options(reached)


def _unloaded(target: Target, text: str) -> str:
    """Return what to do next in an instance in which nobody has started the service.

    Args:
        target: a client of the instance.
        text: what is said if it is not known what the instance has kept.
    """
    kept, command = kept_names(target), partial(own_command, flux=True)
    if kept is None:
        return text
    if not kept:
        return (
            f"{_UNLOADED}, and there is no ensemble in this Flux instance yet: "
            f"'{command('init', 'sweep')}' writes sweep.yaml, a document to begin with, and "
            f"'{command('run', 'sweep.yaml')}' runs it"
        )
    return (
        f"{_UNLOADED}, and this Flux instance has kept {listed(map(repr, kept))}: "
        f"'{command('run', '--resume', 'FILE')}' starts it, and goes on with the run of document "
        f"FILE; '{command('supervise')}' starts it alone, and all that is kept goes on"
    )


def kept_names(client: Any) -> list[str] | None:
    """Return the names of the ensembles in the KVS of an instance; None if it cannot be read."""
    request = {"key": "ensemble", "flags": _READDIR, "namespace": "primary"}
    try:
        found = client.handle.rpc("kvs.lookup", request).get()["val"]["data"]
    except FileNotFoundError:
        return []
    except OSError:
        return None  # a guest
    return sorted(name for name, entry in found.items() if entry["type"] in ("dir", "dirref"))


@contextlib.contextmanager
def advising(target: Target, names: Sequence[str | None]) -> Iterator[None]:
    """Add what to do next to the error about an unknown ensemble, or a service that is not there.

    That is the command that was probably meant, or the local run that has the name.

    Args:
        target: the host of ensembles.
        names: the given names of ensembles.
    """
    try:
        yield
    except EnsembleError as error:
        text = str(error)
        if text.startswith(_UNLOADED):
            text = _unloaded(target, text)
        elif not text.startswith(_UNKNOWN):
            raise
        elif advice := _meant(target, names):
            text += f"; {advice}"
        if not isinstance(target, LocalClient) and (here := local_names().intersection(names)):
            text += f"; a local run has the name {min(here)!r}: add --queue local"
        if text == str(error):
            raise
        raise EnsembleError(error.errno or errno.ENOENT, text) from error


def _meant(target: Target, names: Sequence[str | None]) -> str:
    """Return the command in which the name of an ensemble is its first argument; "" if unknown."""
    ctx = click.get_current_context()
    known: list[str] = []
    with contextlib.suppress(EnsembleError):
        known = [one["name"] for one in target.list()]
    given = [
        str(getattr(value, "path", value))
        for param in ctx.command.params
        if isinstance(param, click.Argument)
        for value in _several(ctx.params.get(param.name or ""))
    ]
    command = ctx.command_path.split()[1:]
    wrong = next((name for name in names if name is not None and name not in known), None)
    if wrong is None:
        return ""
    if PurePath(wrong).suffix in DOCUMENTS:
        name = PurePath(wrong).stem
        if name in known:
            words = [name if word == wrong else word for word in given]
            meant = target.command(*command, *words)
            return f"{wrong!r} is a document: name its ensemble, '{meant}'"
        return f"{wrong!r} is a document: '{own_command('run', wrong)}' runs it"
    name = next((word for word in given if word in known), "")
    if PurePath(wrong).suffix == ".html" and command == ["report"]:
        words = [name] if name else known[-1:]
        if words:
            meant = target.command(*command, *words, "-o", wrong)
            return f"the file to write is an option, '{meant}'"
    if not name or given[0] == name:
        return ""
    given.remove(name)
    return f"NAME comes first: '{target.command(*command, name, *given)}'"


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def here() -> Target:
    """Return the host that commands without options are about."""
    return reach(Client, None, None)


def trials_of(host: Callable[[], Target]) -> Callable[[str], str | None]:
    """Return what finds the trials of an ensemble, for documents that begin with them.

    Args:
        host: returns the host of ensembles; it is asked only where a document names one.
    """

    def jobs(name: str) -> str | None:
        try:
            (status,) = host().status(name)["ensembles"]
            rows = [
                {key: row.get(key) for key in ("group", "trial", "trial_state", "params", "memo")}
                for row in host().jobs(name)
                if row.get("trial") is not None
            ]
        except (EnsembleError, BindingsError, Failure, OSError):
            return None
        searches = [
            {key: one[key] for key in ("group", "objective", "direction")}
            for one in status.get("searches", ())
        ]
        if not rows:
            none = "no trial of its search has begun" if searches else "it has no search"
            raise ValueError(f"{name!r} has no trials: {none}")
        return "\n".join(map(json.dumps, ({"searches": searches}, *rows)))

    return jobs


def local_names() -> set[str]:
    """Return the names of the existing local runs, as far as they can be read."""
    with contextlib.suppress(StateError, EnsembleError, OSError):
        return set(LocalClient(default_root()).names())
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
    own = own_queue(queue)
    if queue != "flux" and (own or state_dir is not None):
        try:
            return LocalClient(state_dir or default_root(), queue=own)
        except StateError as error:
            raise Failure(str(error)) from None
    client = connect_unless(connect, queue)
    if client is not None:
        return client
    with contextlib.suppress(StateError):
        root = default_root()
        if root.is_dir():
            return LocalClient(root)
    try:
        return connect()
    except (BindingsError, EnsembleError) as error:
        run = own_command("run", "FILE")
        text = f"no ensemble has run on this machine yet: '{run}' does so without Flux, too"
        raise _longer(error, text) from error


def _longer(error: BindingsError | EnsembleError, text: str) -> BindingsError | EnsembleError:
    """Return an error that says something more."""
    if isinstance(error, BindingsError):
        return BindingsError(f"{error}; {text}")
    return EnsembleError(error.errno or errno.ENOENT, f"{error}; {text}")


def connect_unless(connect: Callable[[], Client], queue: str | None) -> Client | None:
    """Return a client of the Flux instance, or None if the local queue may take its place.

    Args:
        connect: makes a client.
        queue: as `--queue`.

    Raises:
        BindingsError, EnsembleError: the instance that the user named cannot be reached.
    """
    if own_queue(queue):
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
