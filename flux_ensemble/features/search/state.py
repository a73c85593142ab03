"""A search at run time: its progress, its open ask and its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.pending import Origin
from flux_ensemble.features.search.early_stop import stopping
from flux_ensemble.features.search.keys import MAX_BATCH
from flux_ensemble.features.search.matter import Matter
from flux_ensemble.features.search.model import INDEPENDENT, Search, Value
from flux_ensemble.features.search.outcomes import violated
from flux_ensemble.features.search.paths import PRUNED
from flux_ensemble.features.search.trials import (
    CANCELED,
    COMPLETE,
    FAILED,
    INFEASIBLE,
    Part,
    Trials,
)
from flux_ensemble.metrics.names import INTERRUPTED
from flux_ensemble.words import unfeasible

#: States of a search.
IDLE, RUNNING, CLOSING, DONE = "idle", "running", "closing", "done"

#: Prefix of the timers after which points are requested again.
AGAIN = "ask:"

#: The most trials of a Pareto front in the status.
MAX_FRONT = 100


#: The least number of points per ask if points do not depend on the outcomes of trials.
_MANY = 64


class SearchState:
    """The run-time state of one search.

    Attributes:
        trials: the trials of the search.
        state: one of `IDLE`, `RUNNING`, `CLOSING`, `DONE`.
        reason: the reason why the search closes, or is done: "trials", "closed", "exhausted",
            "failures" or "error".
        more: the number of trials that users have added to those of the document.
        origin: the firing that started the search.
        asks: the number of answered asks.
        ask: id and time of the open command `Ask`; None if there is none.
        again: True if a timer is set to repeat an ask.
        tries: the number of failures of the present ask.
        failures: the number of trials that have failed in a row.
        wrong: the reason why the last trial, or the last ask, failed.
        exhausted: True if the last answer had no points, and no trial has ended since.
        ask_seconds: the time per ask, as a moving mean.
        idle_seconds: the time for which slots were empty, summed over all slots.
        stopping: the policy that stops trials early; None if there is none.
        stopped: trial that is being stopped -> its last value and the step of the value; None
            where the value is no finite number.
        chain: the rules that started or closed the search with no job or time since.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self.trials = Trials(search)
        self._matter = Matter(self.trials)
        self.state = IDLE
        self.reason = ""
        self.more = 0
        self.origin: Origin | None = None
        self.asks = 0
        self.ask: tuple[int, float] | None = None
        self.again = False
        self.tries = 0
        self.failures = 0
        self.wrong = ""
        self.exhausted = False
        self.ask_seconds: float | None = None
        self.idle_seconds = 0.0
        self.stopping = stopping(search)
        self.stopped: dict[int, tuple[float | None, float | None]] = {}
        self.chain: tuple[str, ...] = ()
        self._t_looked: float | None = None

    @property
    def total(self) -> int:
        """The number of trials: those of the document, and those that users have added."""
        return self.search.trials + self.more

    @property
    def open(self) -> bool:
        """True if the search has been started, and is not done."""
        return self.state in (RUNNING, CLOSING)

    @property
    def trouble(self) -> str | None:
        """The reason why the search gave up or found nothing, in words; None if it did not."""
        search, trials = self.search, self.trials
        name, ended = f"search {search.id!r}", len(trials.ended)
        if self.reason == "error":
            return f"{name} gave up, as it could not be given points: {self.wrong}"
        if self.reason == "failures":
            return f"{name} gave up after {self.failures} failed trials in a row: {self.wrong}"
        if self.state != DONE or trials.counts[COMPLETE]:
            return None
        of = f"{name} found nothing in {ended} trial{'s'[: ended != 1]}: "
        if trials.nearest is not None:
            return f"{of}{unfeasible({**trials.counts, **self._report_nearest()}, '')}"
        return f"{of}{self.wrong}" if trials.counts[FAILED] else None

    @property
    def timer(self) -> str:
        """Key of the timer after which points are requested again."""
        return f"{AGAIN}{self.search.id}"

    def begin(self, origin: Origin, t: float) -> range:
        """Start or continue the search at time `t`.

        Returns:
            The trials of the document's points, which are those of the first time.
        """
        given = range(0)
        if self.state != RUNNING:
            # Nobody wanted the slots of a search that was done, or whose ensemble had ended.
            self._t_looked = None
        if self.state == IDLE and self.search.points:
            first = self.trials.give(self.search.points)
            given = range(first, first + len(self.search.points))
        self.state, self.reason, self.origin = RUNNING, "", origin
        self.chain = origin.chain
        self.failures = self.tries = 0
        self.wrong = ""
        self.exhausted = False
        self.look(t)
        return given

    def ahead(self) -> int:
        """Return the number of points to keep in stock, so that no slot waits for one.

        A search with one slot has none in stock, so that each point is chosen with all results.
        """
        seconds, parallel = self.trials.seconds, self.search.parallel
        if parallel == 1 or self.ask_seconds is None or seconds is None:
            return 0
        ended_meanwhile = self.ask_seconds * parallel / max(seconds, 1e-3)
        return min(int(ended_meanwhile + 0.5), parallel, MAX_BATCH)

    def wanted(self) -> int:
        """Return the number of points to request now."""
        trials, search = self.trials, self.search
        if search.sampler in INDEPENDENT and not (search.batch or search.sequential):
            # These points do not depend on results, so they may be requested long before.
            enough = len(trials.stock) >= search.parallel
            return 0 if enough else min(max(_MANY, 2 * search.parallel), self._left(), MAX_BATCH)
        slots = search.parallel - len(trials.active) - len(trials.stock) + self.ahead()
        if slots <= 0 or (search.sequential and (trials.active or trials.stock)):
            return 0
        return min(search.batch or slots, self._left(), MAX_BATCH)

    def instead(self, dropped: int) -> int:
        """Return the number of points to request in place of those dropped by a refresh."""
        if self.search.sequential and self.trials.active:
            return 0
        return min(self.search.batch or max(dropped, self.wanted()), self._left(), MAX_BATCH)

    def _left(self) -> int:
        return self.total - len(self.trials.all)

    def end(
        self,
        number: int,
        how: str,
        value: Value | None,
        t: float,
        step: float | None = None,
        violations: Sequence[float] = (),
    ) -> bool:
        """End an active trial; the arguments and the result are those of `Trials.end`."""
        self.stopped.pop(number, None)
        if self.stopping is not None:
            self.stopping.end(number, how in (COMPLETE, INFEASIBLE))
        return self.trials.end(number, how, value, t, step, violations)

    def runs_again(self, number: int) -> None:
        """Note that the job of an active trial runs once more."""
        if self.stopping is not None:
            self.stopping.again(number)

    def look(self, t: float) -> None:
        """Count the time for which slots are empty, up to time `t`."""
        if self._t_looked is not None and self.state == RUNNING:
            empty = self.search.parallel - len(self.trials.active)
            self.idle_seconds += max(0.0, t - self._t_looked) * max(0, empty)
        self._t_looked = t if self.state == RUNNING else None

    def check(self) -> None:
        """Check the invariants of the search that hold after every event.

        Raises:
            AssertionError: an invariant is broken.
        """
        trials = self.trials
        assert len(trials.active) <= self.search.parallel
        assert len(trials.all) + len(trials.partial) <= self.total
        assert len(trials.all) == len(trials.stock) + len(trials.active) + len(trials.ended)
        assert list(trials.stock) == list(
            range(len(trials.all) - len(trials.stock), len(trials.all))
        )
        assert trials.given <= len(trials.stock)
        assert not trials.partial or trials.given == len(trials.stock)
        assert len(set(trials.ended)) == len(trials.ended) == sum(trials.counts.values())
        assert self.stopped.keys() <= trials.active.keys()

    def report(self) -> dict[str, Any]:
        """Return the search's entry in the status, as JSON (docs/rpc.md, `ensemble.status`)."""
        search, trials = self.search, self.trials
        several = search.repeats > 1
        return {
            "id": search.id,
            "group": search.group,
            "state": self.state,
            "reason": self.reason,
            "sampler": search.suggests,
            "objective": ", ".join(objective.key for objective in search.objectives),
            "direction": ", ".join(objective.direction for objective in search.objectives),
            "trials": self.total,
            **({"subject_to": list(search.subject_to)} if search.subject_to else {}),
            **({"repeats": search.repeats, "aggregate": search.aggregate} if several else {}),
            "parallel": search.parallel,
            "active": len(trials.active),
            "stock": len(trials.stock),
            **trials.counts,
            "trouble": self.trouble,
            "asks": self.asks,
            "ask_seconds": self.ask_seconds,
            "trial_seconds": trials.seconds,
            "idle_seconds": self.idle_seconds,
            "best": [
                {
                    "trial": trial.number,
                    "job": trial.job,
                    "value": trial.value,
                    "params": trials.params(trial),
                }
                for trial in trials.best
            ],
            **self._report_nearest(),
            **self._report_front(),
            "importances": self._matter.report(),
            **self._report_told(),
        }

    def _report_nearest(self) -> dict[str, Any]:
        """Return the infeasible trial that is nearest while none is feasible; else nothing."""
        search, trials = self.search, self.trials
        trial = trials.nearest
        if trial is None or trials.counts[COMPLETE]:
            return {}
        nearest = {
            "trial": trial.number,
            "job": trial.job,
            "value" if not search.several else "values": search.to_json(trial.value),
            "violations": dict(zip(search.subject_to, trial.violations, strict=True)),
            "params": trials.params(trial),
        }
        return {"nearest": nearest}

    def _report_told(self) -> dict[str, Any]:
        """Return how many trials of others it begins with, and the best; empty without them."""
        search = self.search
        if not search.warm_start.trials:
            return {}
        best = search.best_told
        found = None if best is None else {"value": best[1], "params": search.named(best[0])}
        return {"warm_start": {"trials": len(search.warm_start.trials), "best": found}}

    def _report_front(self) -> dict[str, Any]:
        """Return size and first trials of the Pareto front; empty for a single objective."""
        search, trials = self.search, self.trials
        if not search.several:
            return {}
        front = [
            {
                "trial": trial.number,
                "job": trial.job,
                "values": search.to_json(trial.value),
                "params": trials.params(trial),
            }
            for trial in trials.front[:MAX_FRONT]
        ]
        return {"front": front, "front_size": len(trials.front)}

    # -- snapshots --------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {
            **{name: getattr(self, name) for name in _DUMPED},
            "origin": None if self.origin is None else self.origin.dump(),
            "t_looked": self._t_looked,
            "trials": self.trials.dump(),
            **({"more": self.more} if self.more else {}),
            **self._dump_stopping(),
        }

    def _dump_stopping(self) -> dict[str, Any]:
        if self.stopping is None:
            return {}
        stopped = [[number, *of_trial] for number, of_trial in self.stopped.items()]
        return {"stopping": self.stopping.dump(), "stopped": stopped}

    def load(self, value: Mapping[str, Any]) -> None:
        """Set the state from the result of `dump`."""
        ask = None if value["ask"] is None else tuple(value["ask"])
        kept = {"wrong": "", **value, "ask": ask, "chain": tuple(value["chain"])}
        for name in _DUMPED:
            setattr(self, name, kept[name])
        self.origin = None if value["origin"] is None else Origin.load(value["origin"])
        self._t_looked = value["t_looked"]
        self.trials.load(value["trials"])
        self.more = value.get("more", 0)
        if self.stopping is not None:
            self.stopping.load(value["stopping"])
            self.stopped = {number: (last, step) for number, last, step in value["stopped"]}


def judge(
    search: Search, job: ActiveJob, params: Mapping[str, Any], *, stopped: bool = False
) -> Part:
    """Judge a trial by its job, which has ended.

    Args:
        search: the search of the trial.
        job: the job of the trial.
        params: the values that the trial has of the variables.
        stopped: it was stopped early.

    Returns:
        How the trial ended: `COMPLETE`, `INFEASIBLE`, `PRUNED`, `FAILED`, `CANCELED` or
        `INTERRUPTED`.
    """
    how, value, reason = job.outcome or "", None, job.outcome or ""
    violations: tuple[float, ...] = ()
    if how == "success":
        try:
            value, violations = search.values(job.memo), search.violations(params, job.memo)
            how, reason = INFEASIBLE if violated(violations) else COMPLETE, ""
        except ValueError as error:
            how, value, reason = FAILED, None, str(error)
    elif how not in (CANCELED, INTERRUPTED):
        how = FAILED
    if value is None and stopped:
        how = PRUNED
        with suppress(ValueError):
            # Of a job that has published too little so far, it is unknown.
            violations = search.violations(params, job.memo)
    return Part(how, value, reason, job.id, job.interrupted, violations)


def trial_name(id: str, number: int) -> str:
    """Return the name of a trial, as in `Firing.trial`."""
    return f"{id}:{number}"


def parse_trial(name: str) -> tuple[str, int]:
    """Return the search id and the number in the name of a trial."""
    id, _, number = name.rpartition(":")
    return id, int(number)


#: Attributes that a snapshot holds as they are.
_DUMPED = (
    "state",
    "reason",
    "asks",
    "ask",
    "again",
    "tries",
    "failures",
    "wrong",
    "exhausted",
    "ask_seconds",
    "idle_seconds",
    "chain",
)


def stopped_early(id: str, number: int) -> str:
    """Return the note with which the job of a trial is cancelled that is stopped early.

    >>> stopped_early("hpo", 3)
    "trial 3 of search 'hpo' is stopped early"
    """
    return f"trial {number} of search {id!r} is stopped early"
