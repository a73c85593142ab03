"""Points for simulated searches; no virtual time passes while they are computed.

Samplers run in this process. Generators are code of the user's, so they run in processes of their
own, as in a run, where their output, side effects and waits do no harm.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace

from flux_ensemble.document.model import Spec
from flux_ensemble.engine.commands import Ask
from flux_ensemble.engine.trials import Trials
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.runtime.asks.advisers import Advisers, processes
from flux_ensemble.runtime.asks.asker import Advice
from flux_ensemble.runtime.asks.consultant import Consultant


class SimulatedAdvisers:
    """A source of points: a `runtime.ports.Adviser`.

    Args:
        spec: the ensemble's document.
        seed: of all draws.
    """

    def __init__(self, spec: Spec, seed: int) -> None:
        self._spec = spec
        self._seed = seed
        self._generators = {search.id for search in spec.searches if search.generator is not None}
        self._consultant = Consultant(spec.searches, seed)
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
