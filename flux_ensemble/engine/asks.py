"""The asks of searches: requests for points, their answers, and failures."""

from __future__ import annotations

from collections.abc import Mapping

from flux_ensemble.engine.commands import Ask, StartTimer, StopTimer
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.events import CommandDone
from flux_ensemble.engine.pending import Origin, Pending
from flux_ensemble.engine.search_state import AGAIN, Searched
from flux_ensemble.engine.submitter import search_rule
from flux_ensemble.engine.trials import moved

#: The most tries of one ask, and the first delay in seconds, which doubles each time.
TRIES = 3
TRY_DELAY = 1.0


class Asking:
    """The asks of one engine.

    Args:
        core: the engine's core.
        states: the searches, by id.
    """

    def __init__(self, core: Core, states: Mapping[str, Searched]) -> None:
        self._core = core
        self._table = core.pending_table
        self._states = states

    def ask(self, state: Searched, count: int) -> None:
        """Request `count` points of a search."""
        trials = state.trials
        command = Ask(
            self._table.next_id(), state.search.id, len(trials.all), count, len(trials.ended)
        )
        state.ask = command.id, self._core.t
        self._core.send(Pending(self.origin(state), command))

    def answered(self, command: Ask, event: CommandDone) -> None:
        """Add the points of an answer as trials."""
        state = self._states[command.search]
        if state.ask is None or state.ask[0] != command.id:
            return
        _, t_asked = state.ask
        state.look(event.t)
        state.ask = None
        state.chain = ()
        state.tries = 0
        state.asks += 1
        # The first ask starts a process, so only the seconds that the sampler reports count.
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
        """Handle a failed ask: start the timer of the next try.

        Returns:
            True if that was the last try; else points are requested once more, or are not needed
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
        """Have points requested once more; return False if the timer is for something else."""
        if not key.startswith(AGAIN):
            return False
        state = self._states.get(key.removeprefix(AGAIN))
        if state is not None and state.again:
            state.again = False
            self._table.asked_again(key)
            self.changed(state)
        return True

    def forget(self, state: Searched) -> None:
        """Drop the open ask of a search, and its next try."""
        if state.ask is not None:
            # The outcome may still come; it is ignored then.
            self._table.take(state.ask[0])
            state.ask = None
        if state.again:
            state.again = False
            if self._table.asked_again(state.timer):
                self._core.emit(StopTimer(state.timer))

    def changed(self, state: Searched) -> None:
        """Mark a search to be settled when the event has been handled, and update its metrics."""
        self._core.search_due[state.search.id] = None
        self._core.stats.searches[state.search.id] = state.trials.figures()

    def origin(self, state: Searched) -> Origin:
        """Return the origin under which points of a search are requested."""
        search = state.search
        return Origin(search_rule(search.id), state.asks, (), None, (search.group,))
