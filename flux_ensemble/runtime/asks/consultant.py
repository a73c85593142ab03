"""A source of points in this process: a `runtime.ports.Adviser` for simulations.

The samplers are those of a run, so a simulation shows the points that they would choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flux_ensemble.document.search import Search
from flux_ensemble.engine.commands import Ask
from flux_ensemble.engine.trials import Trials
from flux_ensemble.runtime.asks.asker import Advice, described
from flux_ensemble.runtime.suggester import Suggester, suggesting


class Consultant:
    """The samplers of an ensemble's searches.

    Args:
        searches: of the ensemble.
        seed: of all draws.
    """

    def __init__(self, searches: Iterable[Search], seed: int) -> None:
        self._searches = {search.id: search for search in searches}
        self._seed = seed
        #: For each search the sampler, and the numbers of points and of ends of trials that it
        #: knows.
        self._known: dict[str, tuple[Suggester, int, int]] = {}

    def ask(self, command: Ask, trials: Trials, done: Callable[[Advice], None]) -> None:
        """Request points, as `runtime.ports.Adviser.ask`; they are returned at once."""
        known = self._known.get(command.search)
        if known is None or known[1] > command.first or known[2] > command.ended:
            search = self._searches[command.search]
            known = suggesting(described(search, self._seed)), 0, 0
        sampling, points, ends = known
        seen = trials.seen(points, ends, command.first, command.ended)
        answer = sampling.answer({"count": command.count, **seen})
        given = answer["points"]
        self._known[command.search] = sampling, command.first + len(given), command.ended
        # No virtual time passes meanwhile.
        done(Advice(True, given))

    def close(self) -> None:
        """Do nothing: no process runs."""
