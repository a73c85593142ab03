"""Points for simulated searches; no virtual time passes while they are computed.

Samplers run in this process. Generators are code of the user's, so they run in processes of their
own, as in a run, where their output, side effects and waits do no harm.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace

from flux_ensemble.document.model import Spec
from flux_ensemble.engine.commands import Ask
from flux_ensemble.features.search.advisers import Advice, Advisers, described, processes
from flux_ensemble.features.search.model import Search, searches_of
from flux_ensemble.features.search.suggester import Suggester, suggesting
from flux_ensemble.features.search.trials import Trials
from flux_ensemble.queues.local.loop import LocalLoop


def adviser(spec: Spec, seed: int) -> SimulatedAdvisers:
    """Return the source of points of a simulation; the arguments are those of the class."""
    return SimulatedAdvisers(spec, seed)


class SimulatedAdvisers:
    """A source of points: a `runtime.ports.Adviser`.

    Args:
        spec: the ensemble's document.
        seed: of all draws.
    """

    def __init__(self, spec: Spec, seed: int) -> None:
        self._spec = spec
        self._seed = seed
        searches = searches_of(spec)
        self._generators = {search.id for search in searches if search.generator is not None}
        self._consultant = Consultant(searches, seed)
        self._loop: LocalLoop | None = None
        self._processes: Advisers | None = None

    def ask(self, command: Ask, trials: Trials, done: Callable[[Advice], None]) -> None:
        """Request points, as `runtime.ports.Adviser.ask`; they are returned at once."""
        if command.search not in self._generators:
            self._consultant.ask(command, trials, done)
            return
        if self._loop is None or self._processes is None:
            self._loop = LocalLoop()
            self._processes = processes(
                self._spec,
                self._loop,
                seed=self._seed,
                environment=os.environ,
                cwd=os.getcwd(),
                log=lambda level, line: print(line, file=sys.stderr),
            )
        advice: list[Advice] = []
        self._processes.ask(command, trials, advice.append)
        self._loop.run(lambda: bool(advice))
        # The real duration differs each time, and a simulation has to be repeatable.
        done(replace(advice[0], seconds=0.0))

    def close(self) -> None:
        """End the processes, and wait until they are gone."""
        loop, asked = self._loop, self._processes
        if loop is not None and asked is not None:
            asked.close()
            loop.run(lambda: loop.timers == 0)
            loop.close()


class Consultant:
    """The samplers of an ensemble's searches, in this process: a `runtime.ports.Adviser`.

    They are those of a run, so a simulation shows the points that a run would choose.

    Args:
        searches: of the ensemble.
        seed: of all draws.
    """

    def __init__(self, searches: Iterable[Search], seed: int) -> None:
        self._searches = {search.id: search for search in searches}
        self._seed = seed
        #: For each search the sampler, the numbers of points and of ends of trials that it knows,
        #: and how many times points had got other numbers.
        self._known: dict[str, tuple[Suggester, int, int, int]] = {}

    def ask(self, command: Ask, trials: Trials, done: Callable[[Advice], None]) -> None:
        """Request points, as `runtime.ports.Adviser.ask`; they are returned at once."""
        known = self._known.get(command.search)
        if (
            known is None
            or known[1] > command.first
            or known[2] > command.ended
            or known[3] != trials.refreshes
        ):
            search = self._searches[command.search]
            known = suggesting(described(search, self._seed)), 0, 0, 0
        sampling, points, ends, _ = known
        seen = trials.seen(points, ends, command.first, command.ended)
        answer = sampling.answer({"count": command.count, **seen})
        given = answer["points"]
        known = sampling, command.first + len(given), command.ended, trials.refreshes
        self._known[command.search] = known
        # No virtual time passes meanwhile.
        done(Advice(True, given))

    def close(self) -> None:
        """Do nothing: no process runs."""
