"""The source of points for all searches of an ensemble: a `runtime.ports.Adviser`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from flux_ensemble.document.model import Spec
from flux_ensemble.document.search import Search
from flux_ensemble.engine.commands import Ask
from flux_ensemble.engine.trials import Trials
from flux_ensemble.runtime.asks.asker import Advice, Asker

if TYPE_CHECKING:
    from flux_ensemble.runtime.ports import Loop


class Advisers:
    """The processes of an ensemble's searches; each starts with the first request.

    Args:
        searches: of the ensemble.
        start: makes the asker of a search.
    """

    def __init__(self, searches: Iterable[Search], start: Callable[[Search], Asker]) -> None:
        self._searches = {search.id: search for search in searches}
        self._start = start
        self._askers: dict[str, Asker] = {}

    def ask(self, command: Ask, trials: Trials, done: Callable[[Advice], None]) -> None:
        """Request points, as `runtime.ports.Adviser.ask`."""
        asker = self._askers.get(command.search)
        if asker is None:
            asker = self._askers[command.search] = self._start(self._searches[command.search])
        asker.ask(command, trials, done)

    def close(self) -> None:
        """End the processes."""
        for asker in self._askers.values():
            asker.close()


def processes(
    spec: Spec,
    loop: Loop,
    *,
    seed: int | None = None,
    environment: Mapping[str, str],
    cwd: str,
    log: Callable[[str, str], None],
) -> Advisers:
    """Make the advisers of an ensemble.

    The arguments are those of `Asker`; `seed` is the document's if it is not given.
    """
    make = partial(
        Asker,
        loop,
        seed=spec.seed if seed is None else seed,
        environment=environment,
        cwd=cwd,
        info={"name": spec.name, "directory": spec.directory},
        log=log,
    )
    return Advisers(spec.searches, make)
