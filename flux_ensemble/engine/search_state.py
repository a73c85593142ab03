"""One search at run time: how far it is, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble.document.keys.search import MAX_BATCH
from flux_ensemble.document.search import INDEPENDENT, Search, Value
from flux_ensemble.engine.early_stop import stopping
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.pending import Origin
from flux_ensemble.engine.trials import CANCELED, COMPLETE, FAILED, Trials
from flux_ensemble.metrics.names import INTERRUPTED

#: States of a search.
IDLE, RUNNING, CLOSING, DONE = "idle", "running", "closing", "done"

#: Prefix of the timers after which points are asked for again.
AGAIN = "ask:"

#: Most trials of a Pareto front that the status has.
MAX_FRONT = 100


#: How many points are asked for at once, at least, of which none depends on what becomes of trials.
_MANY = 64


class Searched:
    """One search at run time.

    Attributes:
        trials: its trials.
        state: one of `IDLE`, `RUNNING`, `CLOSING`, `DONE`.
        reason: why it closes, or is done: "trials", "closed", "exhausted", "failures" or "error".
        origin: the firing that started it.
        asks: how often points were given.
        ask: the id of the command that asks for points, and since when; None if there is none.
        again: a timer is set to ask again.
        tries: how often the present ask has failed.
        failures: how many trials in a row have failed.
        wrong: why the last trial failed, or points could not be given.
        exhausted: there were no points the last time, and no trial has ended since.
        ask_seconds: how long an ask takes, as a moving mean.
        idle_seconds: how long slots were empty, summed over all slots.
        stopping: which trials are stopped early; None if none are.
        stopped: trials that are being stopped, each with its last value and the step of that.
        chain: the rules that started or closed it with no job or time since.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self.trials = Trials(search)
        self.state = IDLE
        self.reason = ""
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
        self.stopping = None if search.stop is None else stopping(search.stop)
        self.stopped: dict[int, tuple[float, float]] = {}
        self.chain: tuple[str, ...] = ()
        self._t_looked: float | None = None

    @property
    def open(self) -> bool:
        """It has been started, and is not done."""
        return self.state in (RUNNING, CLOSING)

    @property
    def trouble(self) -> str | None:
        """Why it gave up or found nothing, in words; None where it did not."""
        search, trials = self.search, self.trials
        name, ended = f"search {search.id!r}", len(trials.ended)
        if self.reason == "error":
            return f"{name} gave up, as it could not be given points: {self.wrong}"
        if self.reason == "failures":
            return f"{name} gave up after {self.failures} failed trials in a row: {self.wrong}"
        if self.state == DONE and trials.counts[FAILED] and not trials.counts[COMPLETE]:
            return f"{name} found nothing in {ended} trial{'s'[: ended != 1]}: {self.wrong}"
        return None

    @property
    def timer(self) -> str:
        """Key of the timer after which points are asked for again."""
        return f"{AGAIN}{self.search.id}"

    def begin(self, origin: Origin, t: float) -> None:
        """It is started, or goes on, at time `t`."""
        self.state, self.reason, self.origin = RUNNING, "", origin
        self.chain = origin.chain
        self.failures = self.tries = 0
        self.wrong = ""
        self.exhausted = False
        self.look(t)

    def ahead(self) -> int:
        """How many points are to be in stock, so that no slot waits for one.

        With one slot there are none, so that each point is chosen with all that is known.
        """
        seconds, parallel = self.trials.seconds, self.search.parallel
        if parallel == 1 or self.ask_seconds is None or seconds is None:
            return 0
        ended_meanwhile = self.ask_seconds * parallel / max(seconds, 1e-3)
        return min(int(ended_meanwhile + 0.5), parallel, MAX_BATCH)

    def wanted(self) -> int:
        """How many points to ask for now."""
        trials, search = self.trials, self.search
        if search.sampler in INDEPENDENT and not (search.batch or search.sequential):
            # Nothing is lost if they are known long before.
            enough = len(trials.stock) >= search.parallel
            return 0 if enough else min(max(_MANY, 2 * search.parallel), self._left(), MAX_BATCH)
        slots = search.parallel - len(trials.active) - len(trials.stock) + self.ahead()
        if slots <= 0 or (search.sequential and (trials.active or trials.stock)):
            return 0
        return min(search.batch or slots, self._left(), MAX_BATCH)

    def instead(self, dropped: int) -> int:
        """How many points to ask for in the place of those that were dropped or asked for."""
        if self.search.sequential and self.trials.active:
            return 0
        return min(self.search.batch or max(dropped, self.wanted()), self._left(), MAX_BATCH)

    def _left(self) -> int:
        return self.search.trials - len(self.trials.all)

    def end(
        self, number: int, how: str, value: Value | None, t: float, step: float | None = None
    ) -> bool:
        """An active trial has ended; the arguments and the result are those of `Trials.end`."""
        self.stopped.pop(number, None)
        if self.stopping is not None:
            self.stopping.end(number, how == COMPLETE)
        return self.trials.end(number, how, value, t, step)

    def runs_again(self, number: int) -> None:
        """The job of an active trial runs once more."""
        if self.stopping is not None:
            self.stopping.again(number)

    def look(self, t: float) -> None:
        """Count the time for which slots are empty, up to time `t`."""
        if self._t_looked is not None and self.state == RUNNING:
            empty = self.search.parallel - len(self.trials.active)
            self.idle_seconds += max(0.0, t - self._t_looked) * max(0, empty)
        self._t_looked = t if self.state == RUNNING else None

    def check(self) -> None:
        """Check the invariants of its own that hold after every event.

        Raises:
            AssertionError: one is broken.
        """
        trials = self.trials
        assert len(trials.active) <= self.search.parallel
        assert len(trials.all) <= self.search.trials
        assert len(trials.all) == len(trials.stock) + len(trials.active) + len(trials.ended)
        assert len(set(trials.ended)) == len(trials.ended) == sum(trials.counts.values())
        assert self.stopped.keys() <= trials.active.keys()

    def report(self) -> dict[str, Any]:
        """Its entry in the status, as JSON (docs/rpc.md, `ensemble.status`)."""
        search, trials = self.search, self.trials
        return {
            "id": search.id,
            "group": search.group,
            "state": self.state,
            "reason": self.reason,
            "sampler": search.suggests,
            "objective": ", ".join(objective.key for objective in search.objectives),
            "direction": ", ".join(objective.direction for objective in search.objectives),
            "trials": search.trials,
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
                {"trial": trial.number, "value": trial.value, "params": trials.params(trial)}
                for trial in trials.best
            ],
            **self._report_front(),
        }

    def _report_front(self) -> dict[str, Any]:
        """Of several objectives, how many trials are in the Pareto front, and the first of them."""
        search, trials = self.search, self.trials
        if not search.several:
            return {}
        front = [
            {
                "trial": trial.number,
                "values": search.to_json(trial.value),
                "params": trials.params(trial),
            }
            for trial in trials.front[:MAX_FRONT]
        ]
        return {"front": front, "front_size": len(trials.front)}

    # -- snapshots --------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """It as JSON."""
        return {
            **{name: getattr(self, name) for name in _DUMPED},
            "origin": None if self.origin is None else self.origin.dump(),
            "t_looked": self._t_looked,
            "trials": self.trials.dump(),
            **self._dump_stopping(),
        }

    def _dump_stopping(self) -> dict[str, Any]:
        if self.stopping is None:
            return {}
        stopped = [[number, *of_trial] for number, of_trial in self.stopped.items()]
        return {"stopping": self.stopping.dump(), "stopped": stopped}

    def load(self, value: Mapping[str, Any]) -> None:
        """Set what `dump` returned."""
        ask = None if value["ask"] is None else tuple(value["ask"])
        kept = {"wrong": "", **value, "ask": ask, "chain": tuple(value["chain"])}
        for name in _DUMPED:
            setattr(self, name, kept[name])
        self.origin = None if value["origin"] is None else Origin.load(value["origin"])
        self._t_looked = value["t_looked"]
        self.trials.load(value["trials"])
        if self.stopping is not None:
            self.stopping.load(value["stopping"])
            self.stopped = {number: (last, step) for number, last, step in value["stopped"]}


def judge(search: Search, job: ActiveJob) -> tuple[str, Value | None, str]:
    """What the job of a trial, which has ended, has made of it.

    Args:
        search: of the trial.
        job: that has ended.

    Returns:
        One of `COMPLETE`, `FAILED`, `CANCELED` and `INTERRUPTED`; the value, if it is complete; and
        why it is not.
    """
    outcome = job.outcome or ""
    if outcome == "success":
        try:
            return COMPLETE, search.values(job.memo), ""
        except ValueError as error:
            return FAILED, None, str(error)
    return (outcome if outcome in (CANCELED, INTERRUPTED) else FAILED), None, outcome


def trial_name(id: str, number: int) -> str:
    """The name of a trial, by which firings know it."""
    return f"{id}:{number}"


def parse_trial(name: str) -> tuple[str, int]:
    """The search and the number of a trial with a name."""
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
