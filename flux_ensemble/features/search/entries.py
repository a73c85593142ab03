"""The entries of the eventlog about searches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from flux_ensemble.eventlog import Entry, JobId, Line, Span
from flux_ensemble.scalars import brief
from flux_ensemble.words import counted, each_pair, more_trials


class OfSearch(Entry):
    """An entry about a search."""

    search: str


class Asked(OfSearch, tag="ask"):
    """A search has been given points.

    Fields:
        first, points: the number of the first trial, and how many there are.
        ended: how many trials had ended before.
        seconds: how long that took.
    """

    first: int
    points: int
    ended: int
    seconds: float

    def sentence(self, t: float, jobid: JobId) -> str:
        which = _trials(self.first, self.points)
        what = f"points of {which}" if self.points else "no points"
        return f"{self.search}: {what}, {self.ended} ended before"


class Given(OfSearch, tag="given"):
    """A user has given points to a search, which are tried before those of its suggester.

    Fields:
        first, points: the number of the first trial, and how many there are.
    """

    first: int
    points: int

    def sentence(self, t: float, jobid: JobId) -> str:
        which, verb = _trials(self.first, self.points), "is" if self.points == 1 else "are"
        return f"{self.search}: {which} {verb} given, and tried first"


class Told(OfSearch, tag="told"):
    """A search begins with trials that others have made.

    Fields:
        trials: how many.
        best: the best value of them; None with several objectives.
    """

    announces = True

    trials: int
    best: float | None = None

    def sentence(self, t: float, jobid: JobId) -> str:
        best = "" if self.best is None else f", the best {self.best:.6g}"
        return f"{self.search}: begins with {counted(self.trials, 'trial')} of others{best}"


class More(OfSearch, tag="more"):
    """A user has a search go on with more trials.

    Fields:
        more, trials: how many more trials there are, and how many in all.
        left: how many were left of those before, as the search was cut short; they run, too.
    """

    style = "warn"
    announces = True

    more: int
    left: int | None = None
    trials: int

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"{self.search}: {more_trials(self.more, self.left or 0, self.trials)}"


class AskFailed(OfSearch, tag="ask-failed"):
    """A search could not be given points."""

    style = "warn"
    announces = True

    tries: int
    reason: str

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"{self.reason} (try {self.tries})"


class TrialFailed(OfSearch, tag="trial-failed"):
    """A trial has failed."""

    style = "warn"
    announces = True

    #: What became of its job, by the outcome of that; other reasons are sentences.
    _ENDED: ClassVar[Mapping[str, str]] = {
        "failed": "failed",
        "timeout": "timed out",
        "canceled": "was canceled",
        "interrupted": "was interrupted",
    }

    trial: int
    id: int
    reason: str

    def sentence(self, t: float, jobid: JobId) -> str:
        ended = self._ENDED.get(self.reason)
        if ended is not None:
            return f"{self.search}: the job of trial {self.trial} {ended}"
        return f"{self.search}: trial {self.trial} failed: {self.reason}"


class Pruned(OfSearch, tag="pruned"):
    """A trial is stopped early.

    Fields:
        step, value: where it was then; the value is None if it is no finite number.
    """

    trial: int
    id: int
    step: float
    value: float | None

    def sentence(self, t: float, jobid: JobId) -> str:
        at = f"step {self.step:g}"
        value = "no finite number" if self.value is None else f"{self.value:.6g}"
        return f"{self.search}: trial {self.trial} is stopped at {at}, with {value}"

    def announced(self, t: float) -> Iterator[Line]:
        yield (Span(f"   {self.sentence(t, str)}"),)


class Found(OfSearch):
    """An entry about a trial that is better than those before it."""

    style = "good"
    announces = True

    trial: int

    def _found(self, what: str, params: Mapping[str, Any]) -> str:
        values = {
            key: brief(value) if isinstance(value, float) else value
            for key, value in params.items()
        }
        return f"{self.search}: {what} (trial {self.trial}: {' '.join(each_pair(values))})"


class Best(Found, tag="best"):
    """A trial is the best so far."""

    timeline = True

    value: float
    params: Mapping[str, Any]

    def sentence(self, t: float, jobid: JobId) -> str:
        return self._found(f"best {self.value:.6g}", self.params)


class Front(Found, tag="front"):
    """A trial is in the Pareto front."""

    values: Sequence[float]
    params: Mapping[str, Any]

    def sentence(self, t: float, jobid: JobId) -> str:
        values = ", ".join(f"{value:.6g}" for value in self.values)
        return self._found(f"none is better in all than {values}", self.params)


class SearchDone(OfSearch, tag="search-done"):
    """A search is done.

    Fields:
        reason: why.
        trials: how many have ended; complete, infeasible, failed, canceled, pruned: how many of
            them how.
        front: how many trials are in the Pareto front.
        best: parameters, value and number of the best trial.
    """

    announces = True
    timeline = True

    reason: str
    trials: int
    complete: int
    infeasible: int | None = None
    failed: int
    canceled: int
    pruned: int | None = None
    front: int | None = None
    best: Mapping[str, Any] | None = None

    def sentence(self, t: float, jobid: JobId) -> str:
        counts = f"{self.complete} complete"
        if self.infeasible is not None:
            counts += f", {self.infeasible} infeasible"
        counts += f", {self.failed} failed"
        if self.pruned is not None:
            counts += f", {self.pruned} stopped early"
        found = ""
        if self.front is not None:
            found = f", {self.front} in the Pareto front"
        elif self.best is not None:
            found = f", best {self.best['value']:.6g} (trial {self.best['trial']})"
        return f"{self.search}: done ({self.reason}): {counts}{found}"


def _trials(first: int, many: int) -> str:
    """Return the trials from a number on, in words."""
    return f"trial {first}" if many == 1 else f"trials {first} to {first + many - 1}"
