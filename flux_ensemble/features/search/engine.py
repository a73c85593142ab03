"""Searches: points are requested and become jobs, and the next ask reports the outcomes of these.

    action `search` ──► Ask ──answer──► stock ──► jobs of the group ──► ended ──► Ask ...
                                                                          └──► `search-done`

The answers are events. So a replay takes the parameters from the log, and no job can be in the
queue before the event with its point is in the log. An ask that was interrupted by a crash is
repeated with the same id, and refers to the same trials.

A trial is a firing of the search with one job, or with as many as `repeats` says. Its key is the
search's own rule id, which has a colon as no id in a document has, and the number of the trial.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from types import NoneType
from typing import Any

from flux_ensemble.document.model import REQUEST_RULE
from flux_ensemble.engine.commands import Ask, StartTimer, StopTimer
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.events import CommandDone, CommandFailed
from flux_ensemble.engine.feature import CheckedRequest, CommandHooks, Feature, JobHooks
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_changes import Change
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.pending import Call, Origin, Pending
from flux_ensemble.engine.submitter import Submitter
from flux_ensemble.engine.trigger_queue import Cause, TriggerQueue
from flux_ensemble.features.search import entries
from flux_ensemble.features.search.keys import RETRY, SEARCH_TRIGGER, THRESHOLD
from flux_ensemble.features.search.model import Search, Value, searches_of
from flux_ensemble.features.search.paths import PRUNED, SEARCH
from flux_ensemble.features.search.state import (
    AGAIN,
    CLOSING,
    DONE,
    IDLE,
    RUNNING,
    SearchState,
    judge,
    parse_trial,
    stopped_early,
    trial_name,
)
from flux_ensemble.features.search.trials import (
    CANCELED,
    FAILED,
    Part,
    Trials,
    moved,
)
from flux_ensemble.metrics.names import INTERRUPTED
from flux_ensemble.metrics.numbers import finite
from flux_ensemble.scalars import NULL, WRITTEN, packed, unpacked
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown
from flux_ensemble.words import counted

#: What the state of searches is called in snapshots and in the status.
NAME = "searches"

#: The prefix of the rule ids under which searches submit jobs; no id in a document has a colon.
_RULE = "search:"

#: The most tries of one ask, and the first delay in seconds, which doubles each time.
TRIES = 3
TRY_DELAY = 1.0


def feature(core: Core, sending: Submitter) -> Feature:
    """Return the feature for an engine.

    Args:
        core: the engine's core.
        sending: submits jobs.
    """
    searches = Searches(core, sending)
    states = searches.states
    if states:
        core.hooks.follow(
            JobHooks(
                published=searches.published,
                tried=searches.tried,
                withdrawn=searches.withdrawn,
                refused=searches.refused,
                unaccepted=searches.unaccepted,
                reacts=True,
            )
        )
    return Feature(
        NAME,
        actions={
            "search": searches.on_search,
            "close": searches.on_close,
            "refresh": searches.on_refresh,
        },
        requests={"search": searches.on_request},
        commands={
            Ask: CommandHooks(searches.answered, searches.not_answered, searches.asked),
        },
        timer=searches.on_timer if states else None,
        submits=searches.submits,
        again=frozenset(state.search.group for state in states.values()),
        dump=searches.dump,
        load=searches.load,
        status=searches.status,
        check=searches.check,
        reopened=searches.reopened,
    )


class Asks:
    """The asks of one engine.

    Args:
        core: the engine's core.
        states: the searches, by id.
        due: marks a search to be settled when the event has been handled.
    """

    def __init__(
        self, core: Core, states: Mapping[str, SearchState], due: Callable[[str], None]
    ) -> None:
        self._core = core
        self._table = core.pending_table
        self._states = states
        self._due = due

    def ask(self, state: SearchState, count: int) -> None:
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
            entries.Asked(
                search=command.search,
                first=command.first,
                points=len(points),
                ended=command.ended,
                seconds=event.result.get("seconds", 0.0),
            )
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
        self._core.record(
            entries.AskFailed(search=command.search, tries=state.tries, reason=reason)
        )
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

    def forget(self, state: SearchState) -> None:
        """Drop the open ask of a search, and its next try."""
        if state.ask is not None:
            # The outcome may still come; it is ignored then.
            self._table.take(state.ask[0])
            state.ask = None
        if state.again:
            state.again = False
            if self._table.asked_again(state.timer):
                self._core.emit(StopTimer(state.timer))

    def changed(self, state: SearchState) -> None:
        """Mark a search to be settled when the event has been handled, and update its metrics."""
        self._due(state.search.id)
        self._core.stats.named[SEARCH][state.search.id] = state.trials.figures(NULL)

    def origin(self, state: SearchState) -> Origin:
        """Return the origin under which points of a search are requested."""
        search = state.search
        return Origin(rule_of(search.id), state.asks, (), None, (search.group,))


#: The most times that `on-failure: retry` runs a trial again.
RETRIES = 3

#: Outcome of a trial's job -> the reason of the failure, for `SearchState.wrong`.
_FAILED = {"failed": "the last trial failed", "timeout": "the last trial ran out of time"}


class Searches:
    """The searches of one engine."""

    def __init__(self, core: Core, sending: Submitter) -> None:
        self._core = core
        self._sending = sending
        self._table = core.pending_table
        self.states = {search.id: SearchState(search) for search in searches_of(core.spec)}
        self._asking = Asks(core, self.states, self._mark)
        #: The searches to settle after the event has been handled.
        self._due: dict[str, None] = {}
        #: True if jobs, perhaps of trials, were dropped before they were sent or accepted.
        self._withdrawn = False
        #: Stops trials early; None if no search does that.
        self.published: Callable[[ActiveJob, Mapping[str, Any]], None] | None = None
        if any(state.search.stop for state in self.states.values()):
            self.published = Pruner(core, self.states).published

    def _mark(self, id: str) -> None:
        """Have a search settled when the event has been handled."""
        self._due[id] = None
        self._core.hooks.unsettled[NAME] = self.settle

    # -- actions ----------------------------------------------------------------------

    def on_search(self, origin: Origin, call: Call) -> Iterable[TriggerQueue]:
        """Perform the action `search`; with a count the search goes on with more trials."""
        id, count = call.action.label or "", call.action.count
        changed = self.start(id, origin) if count is None else self._more(id, count, origin)
        self._core.outcome(origin, changed=changed)
        return ()

    def on_close(self, origin: Origin, call: Call) -> Iterable[TriggerQueue]:
        """Perform the action `close`."""
        changed = self.close(call.action.label or "", origin.chain)
        self._core.outcome(origin, changed=changed)
        return ()

    def on_refresh(self, origin: Origin, call: Call) -> Iterable[TriggerQueue]:
        """Perform the action `refresh`."""
        dropped = self.refresh(call.action.label or "", origin.chain)
        self._core.outcome(origin, dropped=dropped)
        return ()

    def submits(self, can_run: Callable[[str, str], bool]) -> Iterator[str]:
        """Yield the groups of the searches that may still send trials.

        Args:
            can_run: returns whether a rule can still run an action on a label.
        """
        for id, state in self.states.items():
            if state.open or can_run("search", id):
                yield state.search.group

    def start(self, id: str, origin: Origin) -> bool:
        """Start a search, or continue a closed one; return whether that changes anything."""
        state = self.states[id]
        if state.state == RUNNING or len(state.trials.ended) >= state.total:
            return False
        self._begin(state, origin)
        return True

    def _more(self, id: str, count: int, origin: Origin) -> bool:
        """Have a search go on with more trials, at most `limits.jobs` in all.

        Returns:
            True if there are some.
        """
        state = self.states[id]
        more = min(count, self._most(state) - state.total)
        if more <= 0:
            return False
        self._extend(state, more)
        if state.state != RUNNING:
            self._begin(state, origin)
        return True

    def _most(self, state: SearchState) -> int:
        """Return the most trials of a search."""
        return self._core.spec.limits.jobs // state.search.repeats

    def _extend(self, state: SearchState, more: int, left: int = 0) -> None:
        state.more += more
        state.exhausted = False
        self._core.record(
            entries.More(search=state.search.id, more=more, left=left or None, trials=state.total)
        )
        self._asking.changed(state)

    def _begin(self, state: SearchState, origin: Origin) -> None:
        id, told = state.search.id, state.search.warm_start.trials
        if told and state.state == IDLE:
            best = state.search.best_told
            found = None if best is None else best[1]
            self._core.record(entries.Told(search=id, trials=len(told), best=found))
        given = state.begin(origin, self._core.t)
        if given:
            self._core.record(entries.Given(search=id, first=given.start, points=len(given)))
        self._asking.changed(state)

    def on_request(self, args: Mapping[str, Any]) -> CheckedRequest:
        """Check a request for more trials of a search (docs/rpc.md, `ensemble.search`).

        Raises:
            RequestError: there is no such search, or it cannot have such trials.
        """
        state = self._chosen(args.get("search"))
        points = list(_points(state.search, args.get("points", ())))
        more = args.get("more", 0) + len(points)
        if not more:
            raise RequestError(errno.EINVAL, "give 'more', a number of trials, or 'points'")
        repeats, total = state.search.repeats, state.total + more
        if total > self._most(state):
            of = f" with {repeats} jobs each" if repeats > 1 else ""
            raise RequestError(
                errno.EINVAL,
                f"{counted(more, 'more trial')} would make {total} of search "
                f"{state.search.id!r}{of}, and limits.jobs is {self._core.spec.limits.jobs}",
            )
        return CheckedRequest(state.search.group, partial(self._go_on, state, more, points))

    def _chosen(self, id: str | None) -> SearchState:
        """Return a search that a request names, or the only one."""
        name, ids = self._core.spec.name, list(self.states)
        if not ids:
            raise RequestError(errno.ENOENT, f"ensemble {name!r} has no search")
        if id is None and len(ids) > 1:
            raise RequestError(
                errno.EINVAL,
                f"ensemble {name!r} has {len(ids)} searches: name one of them ({listed(ids)})",
            )
        if id is not None and id not in ids:
            raise RequestError(
                errno.ENOENT,
                f"ensemble {name!r} has no search {id!r} ({hint(id, ids)}searches: {listed(ids)})",
            )
        return self.states[ids[0] if id is None else id]

    def _go_on(
        self, state: SearchState, more: int, points: Sequence[Mapping[str, Any]], ended: bool
    ) -> Mapping[str, Any]:
        """Give a search more trials, and go on with it.

        One that no rule has started yet is left to the rules, as long as there may be one.
        """
        id, again = state.search.id, ended or state.state in (CLOSING, DONE)
        # Those of before run, too, if it was cut short.
        left = state.total - len(state.trials.ended) - len(state.trials.active) if again else 0
        self._extend(state, more, left)
        if again:
            number = self._table.next_number(REQUEST_RULE)
            self._begin(state, Origin(REQUEST_RULE, number))
        if points:
            # Points that are suggested now would have the numbers of these.
            self._asking.forget(state)
            first = state.trials.give(points)
            self._core.record(entries.Given(search=id, first=first, points=len(points)))
        return {
            "search": id,
            "trials": state.total,
            "added": more,
            **({"left": left} if left else {}),
        }

    def close(self, id: str, chain: tuple[str, ...] = (), reason: str = "closed") -> bool:
        """Close a search, so that no more trials are sent; return whether it was running.

        Args:
            id: the id of the search.
            chain: the rules that led here with no job or time between.
            reason: the reason.
        """
        state = self.states[id]
        if state.state != RUNNING:
            return False
        state.chain = chain
        state.look(self._core.t)
        state.state, state.reason = CLOSING, reason
        self._asking.forget(state)
        self._asking.changed(state)
        return True

    def refresh(self, id: str, chain: tuple[str, ...] = ()) -> int:
        """Drop the points of a search that were not sent, and request others.

        Args:
            id: the id of the search.
            chain: the rules that led here with no job or time between.

        Returns:
            The number of dropped points.
        """
        state = self.states[id]
        if state.state != RUNNING:
            return 0
        state.chain = chain
        asked = state.ask is not None
        self._asking.forget(state)
        state.tries = 0
        state.exhausted = False
        dropped = state.trials.drop_stock()
        # The new points are requested even if no slot is free, so that no slot waits for them.
        if (dropped or asked) and self._core.acting and (count := state.instead(dropped)):
            self._asking.ask(state, count)
        self._asking.changed(state)
        return dropped

    # -- asks -------------------------------------------------------------------------

    def asked(self, command: Ask) -> Trials | None:
        """Return the trials of which a point is requested; None if the ask was given up."""
        state = self.states[command.search]
        if state.ask is None or state.ask[0] != command.id:
            return None
        return state.trials

    def answered(self, pending: Pending, event: CommandDone) -> Iterable[TriggerQueue]:
        """Handle the answer to an ask."""
        assert isinstance(pending.command, Ask)
        self._asking.answered(pending.command, event)
        return ()

    def not_answered(self, pending: Pending, event: CommandFailed) -> Origin | None:
        """Handle a failed ask; close the search after the last try.

        Returns:
            The firing that started the search, if the search has failed now; None if points are
            requested once more, or are not needed any more.
        """
        command, reason = pending.command, event.reason
        assert isinstance(command, Ask)
        if not self._asking.failed(command, reason):
            return None
        self.states[command.search].wrong = reason
        self.close(command.search, reason="error")
        return self.states[command.search].origin

    def on_timer(self, key: str) -> bool:
        """Have points requested once more; return False if the timer is for something else."""
        return self._asking.on_timer(key)

    # -- trials -----------------------------------------------------------------------

    def tried(self, job: ActiveJob, t: float, again: bool) -> tuple[Change, ...] | None:
        """Handle the end of a trial's job.

        Args:
            job: a job of a firing with a trial.
            t: the time of the end.
            again: the job runs again, by the `retries` of its group or after an interruption.

        Returns:
            The change of the search's metrics; None if the search runs the trial again.
        """
        firing = job.firing
        assert firing is not None
        assert firing.trial is not None
        id, number = parse_trial(firing.trial)
        state = self.states[id]
        if again or number not in state.trials.active:
            state.runs_again(number)
            if again and job.interrupted and number in state.trials.active:
                state.trials.interrupted(number)
            return None if again else _changed(id)
        params = state.trials.params(state.trials.all[number])
        part = judge(state.search, job, params, stopped=number in state.stopped)
        if part.how == INTERRUPTED:
            # An interrupted job that does not run again is not needed any more.
            part = part._replace(how=CANCELED)
        if part.how == FAILED and self._is_retried(state.search, job):
            state.runs_again(number)
            attempt = firing.overrides, 0.0, firing.attempt + 1, firing.avoid
            self._sending.retry(firing, job.index, *attempt, failed=job)
            return None
        return _changed(id) if self._over(state, number, part, t) else ()

    def _over(self, state: SearchState, number: int, part: Part, t: float, many: int = 1) -> bool:
        """Handle the end of a trial's job, or of `many` of them.

        Returns:
            True if the trial has ended; else other jobs of it are still to end.
        """
        state.look(t)
        state.chain = ()
        end = state.trials.add_part(number, part, many)
        if end is None:
            return False
        if end.value is not None:
            self._complete(state, number, end, end.value, t)
        elif end.how == PRUNED:
            self._prune(state, number, end, t)
        else:
            self._fail(state, number, end, t)
        return True

    def _is_retried(self, search: Search, job: ActiveJob) -> bool:
        """Return whether a failed trial runs again by `on-failure: retry`.

        A trial whose job was interrupted or cancelled does not.
        """
        firing = job.firing
        return (
            search.on_failure == RETRY
            and firing is not None
            and firing.attempt < RETRIES
            and self._core.acting
            and not (job.interrupted or job.canceling or firing.cancel_unseen)
        )

    def _prune(self, state: SearchState, number: int, end: Part, t: float) -> None:
        """End a trial that was stopped early, whose job is over."""
        value, step = state.stopped[number]
        state.failures = 0
        state.exhausted = False
        state.end(number, PRUNED, value, t, step, end.violations)
        self._asking.changed(state)

    def _complete(self, state: SearchState, number: int, end: Part, value: Value, t: float) -> None:
        state.failures = 0
        state.exhausted = False
        trials = state.trials
        trials.all[number].job = self._core.job_name(end.id)
        if state.end(number, end.how, value, t, violations=end.violations):
            search, params = state.search, trials.params(trials.all[number])
            found, id = search.to_json(value), search.id
            self._core.record(
                entries.Front(search=id, trial=number, values=found, params=params)
                if search.several
                else entries.Best(search=id, trial=number, value=found, params=params)
            )
        self._asking.changed(state)

    def _fail(self, state: SearchState, number: int, end: Part, t: float) -> None:
        search, how, reason = state.search, end.how, end.reason
        penalty = search.penalty if how == FAILED else None
        state.end(number, how, penalty, t)
        state.exhausted = False
        if how == FAILED:
            state.wrong = _FAILED.get(reason, f"the last trial failed, as {reason}")
        self._core.record(
            entries.TrialFailed(search=search.id, trial=number, id=end.id, reason=reason)
        )
        if how == FAILED and not end.interrupted:
            state.failures += 1
            if state.failures >= search.failures:
                self.close(search.id, reason="failures")
        self._asking.changed(state)

    def withdrawn(self, groups: Collection[str]) -> None:
        """Note that the waiting jobs of groups were dropped; `settle` ends their trials."""
        for id, state in self.states.items():
            if state.search.group in groups:
                self._withdrawn = True
                self._mark(id)

    def unaccepted(self, firing: Firing) -> None:
        """Note that a job was never accepted; if it was a trial's, `settle` ends the trial."""
        if firing.trial is not None:
            id, _ = parse_trial(firing.trial)
            self._withdrawn = True
            self._mark(id)

    def refused(self, firing: Firing) -> None:
        """End a trial whose job the queue refused for good, and close its search."""
        if firing.trial is None:
            return
        id, number = parse_trial(firing.trial)
        state = self.states[id]
        if number in state.trials.active:
            state.look(self._core.t)
            state.end(number, CANCELED, None, self._core.t)
            self._asking.changed(state)
        self.close(id, reason="error")

    def reopened(self) -> None:
        """Leave the searches as they were at the end of the ensemble: they ask for nothing more."""
        for state in self.states.values():
            if state.open:
                self._asking.forget(state)
                for number in list(state.trials.active):
                    state.end(number, CANCELED, None, self._core.t)
                state.state, state.reason = DONE, "closed"
                self._core.stats.named[SEARCH][state.search.id] = state.trials.figures(NULL)

    def _recount(self) -> None:
        """End the trials whose jobs were dropped before they were sent or accepted, as canceled."""
        core = self._core
        left = {firing.trial for firing in core.workload.firings}
        for id, state in self.states.items():
            for number in list(state.trials.active):
                if number not in state.trials.parts and trial_name(id, number) not in left:
                    state.look(core.t)
                    state.end(number, CANCELED, None, core.t)
                    self._asking.changed(state)
            if state.search.repeats > 1:
                self._recount_parts(state)

    def _recount_parts(self, state: SearchState) -> None:
        """End the trials some of whose jobs were dropped, as soon as the others have ended."""
        id, workload = state.search.id, self._core.workload
        left: Counter[str | None] = Counter()
        for firing in workload.firings:
            left[firing.trial] += firing.waiting + firing.unseen + firing.lost
        for job in workload.jobs.values():
            if job.firing is not None and job.outcome is None:
                left[job.firing.trial] += 1
        dropped = Part(CANCELED, None, CANCELED, 0, False)
        for number in list(state.trials.active):
            parts = len(state.trials.parts.get(number, ()))
            many = state.search.repeats - parts - left[trial_name(id, number)]
            if many > 0:
                self._over(state, number, dropped, self._core.t, many)

    # -- the end of an event ------------------------------------------------------------

    def settle(self) -> Iterator[TriggerQueue]:
        """Send trials and request points; yield the rules on searches that are done."""
        core = self._core
        if core.state != "running" or core.t_start is None:
            return
        if self._withdrawn:
            self._withdrawn = False
            self._recount()
        due = list(self._due)
        self._due.clear()
        core.hooks.unsettled.pop(NAME, None)
        for id in due:
            state = self.states[id]
            if state.open:
                yield from self._settle(state)

    def _settle(self, state: SearchState) -> Iterable[TriggerQueue]:
        core, trials, search = self._core, state.trials, state.search
        if state.state == RUNNING:
            state.look(core.t)
            while trials.stock and len(trials.active) < search.parallel:
                self._send(state)
                if not core.acting:
                    return ()
            waits = state.ask is not None or state.again or state.exhausted
            count = 0 if waits else state.wanted()
            if count:
                self._asking.ask(state, count)
        if trials.active or state.ask is not None or state.again:
            return ()
        if state.state == RUNNING and not trials.stock:
            state.reason = "exhausted" if state.exhausted else "trials"
        return self._done(state)

    def _send(self, state: SearchState) -> None:
        trials, search = state.trials, state.search
        trial = trials.next(self._core.t)
        self._sending.submit(
            search.group,
            search.repeats if search.repeats > 1 else None,
            {name: packed(value) for name, value in trials.params(trial).items()},
            Origin(rule_of(search.id), trial.number),
            trial=trial_name(search.id, trial.number),
        )

    def _done(self, state: SearchState) -> Iterable[TriggerQueue]:
        core, id = self._core, state.search.id
        state.look(core.t)
        state.state = DONE
        figures = state.trials.figures()
        event = {
            "trigger": SEARCH_TRIGGER,
            "timestamp": core.t,
            "search": id,
            "reason": state.reason,
            **figures,
        }
        core.record(entries.SearchDone(search=id, reason=state.reason, **figures))
        cause = Cause(event, rule_of(id), state.chain)
        return [
            TriggerQueue(rule, cause)
            for rule in core.rules.plain(SEARCH_TRIGGER)
            if rule.rule.name in (None, id)
        ]

    def check(self) -> None:
        """Check the invariants that hold after every event.

        Raises:
            AssertionError: an invariant is broken.
        """
        firings = {firing.trial for firing in self._core.workload.firings}
        for id, state in self.states.items():
            state.check()
            if self._core.acting and not self._withdrawn:
                assert all(trial_name(id, number) in firings for number in state.trials.active)
            if state.ask is not None and self._core.acting:
                assert state.ask[0] in self._table.commands

    def status(self) -> dict[str, Any]:
        """Return the searches for the status; empty if there are none."""
        return {NAME: [state.report() for state in self.states.values()]} if self.states else {}

    # -- snapshots ----------------------------------------------------------------------

    def dump(self) -> dict[str, Any] | None:
        """Return the searches that have been started, as JSON; None if there are no searches."""
        if not self.states:
            return None
        due = list(self._due)
        begun = [
            (id, state) for id, state in self.states.items() if state.state != IDLE or state.more
        ]
        if not begun and not due:
            return {}
        return {
            "due": due,
            "withdrawn": self._withdrawn,
            "searches": {id: state.dump() for id, state in begun},
        }

    def load(self, value: Mapping[str, Any] | None) -> None:
        """Set the state from the result of `dump`."""
        if not value:
            return
        self._withdrawn = value["withdrawn"]
        for id in value["due"]:
            self._mark(id)
        for id, dumped in value["searches"].items():
            state = self.states[id]
            state.load(dumped)
            if state.again and self._core.acting:
                self._table.ask_again(state.timer, self._asking.origin(state))
            self._core.stats.named[SEARCH][id] = state.trials.figures(NULL)


class Pruner:
    """Stops the trials of one engine.

    Args:
        core: the engine's core.
        states: the searches, by id.
    """

    def __init__(self, core: Core, states: Mapping[str, SearchState]) -> None:
        self._core = core
        self._states = states

    def published(self, job: ActiveJob, memo: Mapping[str, Any]) -> None:
        """Stop a trial if the values in a memo of its job are too bad."""
        firing = job.firing
        if firing is None or firing.trial is None:
            return
        id, number = parse_trial(firing.trial)
        state = self._states[id]
        stop, objective = state.search.stop, state.search.objectives[0]
        if stop is None or state.stopping is None or objective.key not in memo:
            return
        value, step = _number(memo[objective.key]), _number(job.memo.get(stop.step))
        given = value
        if value is None and stop.policy == THRESHOLD:
            given = _not_finite(memo[objective.key])
        if given is None or step is None:
            return
        if number not in state.trials.active or number in state.stopped:
            return
        (cost,) = state.search.costs(given)
        late = job.evicted or not job.may_be_canceled or not self._core.acting
        if not state.stopping.publish(number, step, cost) or late:
            return
        # A sampler takes no other numbers than finite ones.
        state.stopped[number] = value, None if value is None else step
        job.canceling = True
        core, search = self._core, state.search
        core.record(entries.Pruned(search=id, trial=number, id=job.id, step=step, value=value))
        core.cancel(
            (job.id,),
            stopped_early(id, number),
            Origin(rule_of(id), number, (), None, (search.group,)),
        )


def _points(search: Search, points: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the points of a request.

    Raises:
        RequestError: one of them cannot be used.
    """
    for index, point in enumerate(points):
        try:
            if not isinstance(point, Mapping):
                raise ValueError(f"expected a mapping of the variables, not {shown(point)}")
            yield search.read({name: _given(name, value) for name, value in point.items()})
        except ValueError as error:
            raise RequestError(errno.EINVAL, f"points[{index}]: {error}") from None


def _given(name: str, value: Any) -> Any:
    """Return a value of a request's point.

    Raises:
        ValueError: it is a mapping, and not the text of a value.
    """
    if isinstance(value, Mapping) and not (
        value.keys() == {WRITTEN} and isinstance(value[WRITTEN], (str, NoneType))
    ):
        raise ValueError(
            f"{name}: expected text, a number, true, false or null, not {shown(value)}"
        )
    return unpacked(value)


def rule_of(id: str) -> str:
    """Return the rule id in the tags of a search's jobs."""
    return f"{_RULE}{id}"


def _changed(id: str) -> tuple[Change, ...]:
    """Return the change when a trial has ended: the metrics of its search."""
    return ((SEARCH, id),)


def _not_finite(value: Any) -> float | None:
    """Return NaN or the infinite number that a job published, which may be a text in a memo.

    >>> _not_finite("nan"), _not_finite("-inf"), _not_finite("1.5"), _not_finite("none")
    (nan, -inf, None, None)
    """
    try:
        number = float(value) if type(value) in (str, float) else 0.0
    except ValueError:
        return None
    return None if isfinite(number) else number


def _number(value: Any) -> float | None:
    return finite(value) if type(value) in (int, float) else None
