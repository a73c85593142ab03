"""Output of `flux-ensemble` alone: the ensembles that there are, and what to do next.

A user who comes for the first time is shown how to begin; one who comes back after a day, a reboot
or a killed terminal, what has become of the runs. Each line names a command that works there.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from flux_ensemble.bindings import BindingsError
from flux_ensemble.cli.prose import fitted
from flux_ensemble.cli.session.target import kept_names, local_names, reach
from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.own_command import own_command
from flux_ensemble.queues.local.client import LocalClient, summary_of
from flux_ensemble.queues.local.continuation import Continuation
from flux_ensemble.results.hosts import Target
from flux_ensemble.texts import listed

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus

#: Number of ensembles that are shown, the latest ones.
MOST = 5

#: The template for a first document.
TEMPLATE = "sweep"

#: Characters of a command beside which there is room for what it does.
_WIDEST = 48

#: A command, and what it does.
Advice = tuple[str, str]


def overview() -> None:
    """Print the ensembles of the Flux instance, or the local runs, and the next commands.

    Raises:
        BindingsError, EnsembleError: the instance that the user named cannot be reached.
    """
    target = _target()
    try:
        ensembles = [] if target is None else latest(target)
    except EnsembleError as error:
        if error.errno != errno.ENOSYS:
            raise
        _say_unloaded(target)
        return
    where = "in this Flux instance" if _is_flux(target) else "on this machine"
    if target is None or not ensembles:
        click.echo("flux-ensemble runs many jobs from one document, and says why some failed.")
        click.echo(f"There is no ensemble {where} yet. Begin with a sweep of your own:\n")
        _print(first_steps(flux=_is_flux(target)))
        _say_local_runs(target)
        return
    from flux_ensemble.cli.display.tables import ENSEMBLES, ensemble_row

    now = time.time()
    ENSEMBLES.show([ensemble_row(summary_of(status), now) for status in ensembles])
    more = len(target.names()) - MOST if len(ensembles) == MOST else 0
    if more > 0:
        click.echo(f"and {more} more: '{target.command('list')}'")
    click.echo()
    _print(next_steps(ensembles, target.command, flux=_is_flux(target)))
    _say_local_runs(target)


def _say_unloaded(target: Any) -> None:
    """Print the next commands in an instance in which nobody has started the service."""
    kept = kept_names(target)
    if kept:
        names = listed(map(repr, kept))
        click.echo(
            fitted(f"The service of this Flux instance does not run. It has kept {names}.\n")
        )
        _print(after_restart())
        _say_local_runs(target)
        return
    click.echo("flux-ensemble runs many jobs from one document, and says why some failed.")
    if kept is None:
        click.echo(
            "The service of this Flux instance does not run, so its ensembles are not known.\n"
        )
        shown = own_command("supervise", flux=True), "starts it, with what the instance has kept"
        _print(iter([shown, *first_steps(flux=True)]))
    else:
        click.echo(
            "There is no ensemble in this Flux instance yet. Begin with a sweep of your own:\n"
        )
        _print(first_steps(flux=True))
    _say_local_runs(target)


def after_restart() -> Iterator[Advice]:
    """Yield the commands that go on with ensembles after a restart of the instance."""
    command = partial(own_command, flux=True)
    yield command("run", "--resume", "FILE"), "starts it, and goes on with the run of document FILE"
    yield command("supervise"), "starts it alone; all that is kept goes on"
    yield command("--help"), "lists all commands"


def _is_flux(target: Target | None) -> bool:
    return target is not None and not isinstance(target, LocalClient)


def _say_local_runs(target: Target | None) -> None:
    """Print where the runs of this machine are, if the ensembles of an instance were printed."""
    if _is_flux(target) and (names := local_names()):
        command = own_command("list", "--queue", "local")
        runs = "run is" if len(names) == 1 else "runs are"
        click.echo(f"\n{len(names)} {runs} on this machine, without Flux: '{command}'")


def _target() -> Target | None:
    """Return the host of ensembles; None if there has been none on this machine."""
    try:
        return reach(Client, None, None)
    except (BindingsError, EnsembleError):
        from flux_ensemble.client import is_named

        if is_named():
            raise
        return None


def latest(target: Target) -> list[EnsembleStatus]:
    """Return the status of the latest ensembles, the latest last.

    Only their status is requested. Ensembles that cannot be read, or have been removed meanwhile,
    are left out.
    """
    names = target.names()
    found: list[EnsembleStatus] = []
    for name in reversed(names):
        if len(found) == MOST:
            break
        with contextlib.suppress(EnsembleError):
            answer: Any = target.status(name)
            found += answer["ensembles"]
    return found[::-1]


def first_steps(*, flux: bool) -> Iterator[Advice]:
    """Yield the commands for a first ensemble, in a Flux instance or without one."""
    command = partial(own_command, flux=flux)
    yield command("init", TEMPLATE), f"writes {TEMPLATE}.yaml: change its command and values"
    yield command("run", f"{TEMPLATE}.yaml", "--open"), "runs it, and shows its report"
    yield command("--help"), "lists all commands"


def next_steps(
    ensembles: Sequence[EnsembleStatus], command: Callable[..., str], *, flux: bool = False
) -> Iterator[Advice]:
    """Yield the commands that lead on, the latest ensemble first, and interrupted ones before all.

    Args:
        ensembles: the status of each, the latest last.
        command: returns a command about them, from its words.
        flux: they are in a Flux instance.
    """
    latest_first = ensembles[::-1]
    # Interrupted ones need their user.
    for status in sorted(latest_first, key=lambda one: not one.get("resumable")):
        yield from _steps(status, command)
    yield own_command("--help", flux=flux), "lists all commands"


def _steps(status: EnsembleStatus, command: Callable[..., str]) -> Iterator[Advice]:
    from flux_ensemble.cli.common import EXIT_CODES
    from flux_ensemble.client.troubles import cut_short, failed_jobs, failed_trials, unsent

    name = status["name"]
    if status.get("resumable"):
        again: Any = status.get("again")  # not of another user's run
        if again:
            yield Continuation(**again).advice(name, command("rerun", "--resume", name))
        return
    if status["state"] not in EXIT_CODES:
        yield command("top", name), f"shows {name!r}, which is {status['state']}"
        return
    if failed := failed_jobs(status):
        yield command("failures", name), f"says why {failed} of its jobs failed"
    elif failed := failed_trials(status):
        yield command("failures", name), f"says why {failed} of its trials failed"
    never = ", and what was never submitted" if unsent(status) else ""
    if never or _cancelled(status):
        yield command("rerun", name), f"runs what was cancelled{never}"
    for id, more in cut_short(status):
        of = () if len(status["searches"]) == 1 else (id,)
        yield command("search", name, *of, "--more", str(more)), "goes on with its search"
    if any(best["job"] is not None for best in status.get("best", ())) or any(
        search.get("front", search["best"]) for search in status.get("searches", ())
    ):
        yield command("best", name), "shows its best points"
    yield command("report", name, "--open"), f"shows what became of {name!r}"


def _cancelled(status: EnsembleStatus) -> bool:
    """Return whether `rerun` has cancelled jobs to run, which trials of searches are not."""
    of_searches = {search["group"] for search in status.get("searches", ())}
    return status["state"] == "canceled" and any(
        group["canceled"]
        for name, group in status.get("groups", {}).items()
        if name not in of_searches
    )


def _print(advice: Iterator[Advice]) -> None:
    rows = list(advice)
    width = max(len(text) for text, _ in rows if len(text) <= _WIDEST)
    for text, why in rows:
        if len(text) > _WIDEST:
            click.echo(f"  {text}")
            text = ""
        click.echo(f"  {text:<{width}}  {why}")
