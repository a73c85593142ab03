"""Points of searches are asked for: asks, their answers, and asks that failed."""

from __future__ import annotations

from collections.abc import Mapping

from flux_ensemble.engine.commands import Ask, StartTimer, StopTimer
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.events import CommandDone
from flux_ensemble.engine.pending import Origin, Pending
from flux_ensemble.engine.search_state import AGAIN, Searched
from flux_ensemble.engine.submitter import search_rule
from flux_ensemble.engine.trials import moved

#: How often they are asked for, and the first delay in seconds, which doubles each time.
TRIES = 3
TRY_DELAY = 1.0


class Asking:
    """The asks of one engine.

    Args:
        core: of the engine.
        states: the searches, by id.
    """

    def __init__(self, core: Core, states: Mapping[str, Searched]) -> None:
        self._core = core
        self._table = core.pending_table
        self._states = states

    def ask(self, state: Searched, count: int) -> None:
        """Ask for so many points of a search."""
        trials = state.trials
        command = Ask(
            self._table.next_id(), state.search.id, len(trials.all), count, len(trials.ended)
        )
        state.ask = command.id, self._core.t
        self._core.send(Pending(self.origin(state), command))

    def answered(self, command: Ask, event: CommandDone) -> None:
        """Points have been given."""
        state = self._states[command.search]
        if state.ask is None or state.ask[0] != command.id:
            return
        _, t_asked = state.ask
        state.look(event.t)
        state.ask = None
        state.chain = ()
        state.tries = 0
        state.asks += 1
        # The first time, a process had to be started.
        took = event.t - t_asked if state.asks > 1 else event.result.get("seconds", 0.0)
        state.ask_seconds = moved(state.ask_seconds, max(0.0, took))
        points = event.result.get("points", ())
        for point in points:
            state.trials.add(point["params"], point.get("attributes"))
        state.exhausted = not points
        self._core.record(
            "ask",
            search=command.search,
            first=command.first,
            points=len(points),
            ended=command.ended,
            seconds=event.result.get("seconds", 0.0),
        )
        self.changed(state)

    def failed(self, command: Ask, reason: str) -> bool:
        """Points could not be given.

        Returns:
            Whether that was the last try; else points are asked for once more, or are not wanted
            any more.
        """
        state = self._states[command.search]
        if state.ask is None or state.ask[0] != command.id or not self._core.acting:
            return False
        state.ask = None
        state.tries += 1
        self._core.record("ask-failed", search=command.search, tries=state.tries, reason=reason)
        if state.tries < TRIES:
            state.again = True
            self._table.ask_again(state.timer, self.origin(state))
            self._core.emit(StartTimer(state.timer, TRY_DELAY * 2 ** (state.tries - 1)))
            return False
        return True

    def on_timer(self, key: str) -> bool:
        """Points are to be asked for once more; False if the timer is for something else."""
        if not key.startswith(AGAIN):
            return False
        state = self._states.get(key.removeprefix(AGAIN))
        if state is not None and state.again:
            state.again = False
            self._table.asked_again(key)
            self.changed(state)
        return True

    def forget(self, state: Searched) -> None:
        """No points are wanted of what was asked for."""
        if state.ask is not None:
            # Its outcome may still come.
            self._table.take(state.ask[0])
            state.ask = None
        if state.again:
            state.again = False
            if self._table.asked_again(state.timer):
                self._core.emit(StopTimer(state.timer))

    def changed(self, state: Searched) -> None:
        """It is to be looked at when the event has been handled."""
        self._core.search_due[state.search.id] = None
        self._core.stats.searches[state.search.id] = state.trials.figures()

    def origin(self, state: Searched) -> Origin:
        """Who asks."""
        search = state.search
        return Origin(search_rule(search.id), state.asks, (), None, (search.group,))
