"""The source of the live view's pictures: the service, or the files of local runs.

It transfers little: for a picture a list and the status of one ensemble, new entries of the log,
and jobs that failed since. Slow requests are repeated less often.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

from flux_ensemble.cli.common import Failure
from flux_ensemble.cli.display.progress import Paces
from flux_ensemble.cli.session.target import reach
from flux_ensemble.cli.top.picture import Picture
from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.client.news import PAGE
from flux_ensemble.client.reconnect import AWAY
from flux_ensemble.client.responses import EnsembleStatus, Entry, RuleReason, Summary
from flux_ensemble.engine.lifecycle import FINAL_STATES
from flux_ensemble.queues.local.client import LocalStateError, summary_of
from flux_ensemble.results.failures import Failures
from flux_ensemble.results.hosts import Target
from flux_ensemble.results.job_output import Outputs

#: Number of log entries that are kept.
MOST_ENTRIES = 500

#: Pause before a request is repeated, as a multiple of its duration.
PATIENCE = 20.0

_T = TypeVar("_T")


class Spaced:
    """A limiter that spends only a small share of the time on something, however long it takes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0

    def do(self, function: Callable[[], _T], before: _T) -> _T:
        """Call a function, or return the previous result if the last call was not long ago."""
        begin = self._clock()
        if begin < self._next:
            return before
        result = function()
        end = self._clock()
        self._next = end + PATIENCE * (end - begin)
        return result


class Source:
    """A maker of pictures; used by one thread.

    Args:
        client: the host.
        name: the ensemble to display; None for all, beginning with the latest one.

    Attributes:
        client: as the argument.
        label: returns the text of a job id.
    """

    def __init__(self, client: Target, name: str | None) -> None:
        self.client = client
        self.label = client.label
        self._only = name
        self._chosen = name
        self._forget()
        self._last = Picture(0.0)

    def _forget(self) -> None:
        self._paces = Paces()
        self._failures = Failures()
        self._rules: Sequence[RuleReason] = ()
        self._log: deque[Entry] = deque(maxlen=MOST_ENTRIES)
        self._spaced_rules, self._spaced_failures = Spaced(), Spaced()
        self._begin_again()

    def _begin_again(self) -> None:
        """Read the log and the jobs from the beginning."""
        self._news = self.client.news(self._chosen or "")

    def choose(self, name: str) -> None:
        """Display this ensemble from now on."""
        if name != self._chosen:
            self._chosen = name
            self._forget()

    def look(self, *, quick: bool = False) -> Picture:
        """Return a current picture; while nobody answers, the last one with a trouble.

        Args:
            quick: without failures that are not known yet, since finding these can take a while.

        Raises:
            EnsembleError, Failure: there is no such ensemble, or no more Flux.
        """
        try:
            self._last = self._look(quick)
        except EnsembleError as error:
            if error.errno not in AWAY:
                raise
            self._begin_again()
            self._log.clear()
            trouble = f"{error}; waiting for it to come back"
            self._last = Picture(**{**vars(self._last), "trouble": trouble})
        return self._last

    def _look(self, quick: bool) -> Picture:
        now = time.time()
        ensembles = sorted(self._ensembles(), key=_first_going)
        known = {summary["name"]: summary for summary in ensembles}
        if self._only is None and self._chosen not in known:
            chosen = _latest(ensembles)
            if chosen is None:
                return Picture(now)
            self.choose(chosen)
        assert self._chosen is not None
        status = self._status(self._chosen)
        if not ensembles:
            ensembles = [summary_of(cast(EnsembleStatus, status))] if "groups" in status else []
        whole, groups = self._paces.take(status, now)
        if "rules" in status:  # guests see neither these nor a log
            self._rules = self._spaced_rules.do(self._why, self._rules)
            self._news.read(self._log)
            failed = sum(one["failed"] + one["timeout"] for one in status["groups"].values())
            if failed < self._failures.failed:
                self._forget()  # another ensemble of the name
            if failed > self._failures.failed and not quick:
                self._spaced_failures.do(self._count_failures, None)
        return Picture(
            now, ensembles, status, whole, groups, self._rules, self._failures.kinds(),
            list(self._log), self._news.t_first,
        )  # fmt: skip

    def _count_failures(self) -> None:
        for job in self._news.failed():
            self._failures.add(job)

    def _why(self) -> Sequence[RuleReason]:
        assert self._chosen is not None
        try:
            rules: Sequence[RuleReason] = self.client.why(self._chosen)["rules"]
        except LocalStateError:
            return self._rules  # a run that has only begun has said nothing yet
        return rules

    def _ensembles(self) -> Sequence[Summary]:
        """Return all ensembles; none if one was named."""
        return [] if self._only is not None else self.client.list()

    def _status(self, name: str) -> Mapping[str, Any]:
        status: Mapping[str, Any] = self.client.status(name)["ensembles"][0]
        return status

    def jobs(self, group: str | None, text: str | None) -> tuple[list[Mapping[str, Any]], bool]:
        """Return the first jobs of the ensemble that a filter chooses; and if there are more."""
        of = self._chosen or ""
        found = iter(self.client.jobs(of, group=group, filter=text, interrupted=True))
        jobs = list(islice(found, PAGE))
        return list(jobs), next(found, None) is not None

    def output(self, job: Mapping[str, Any]) -> str:
        """Return the end of a job's output; or a sentence about why there is none."""
        return _output(job, self.client, self._chosen or "")

    def ask(self, op: str, *arguments: Any, **more: Any) -> Any:
        """Send a request about the ensemble, by the client's method of that name.

        Raises:
            EnsembleError, Failure: the request is refused.
        """
        method = getattr(self.client, op, None)
        if method is None:
            raise Failure(
                f"a local run cannot be asked to {op}: Ctrl-C in its own terminal ends it"
            )
        return method(self._chosen, *arguments, **more)


def open_source(name: str | None, queue: str | None, state_dir: Path | None) -> Source:
    """Return the source for `--queue` and `--state-dir`.

    Raises:
        BindingsError, EnsembleError, Failure: as `reach`.
    """
    return Source(reach(Client, queue, state_dir), name)


def _first_going(ensemble: Summary) -> tuple[bool, float]:
    """Return the sort key of ensembles: those that continue first, then the latest first."""
    return ensemble["state"] in FINAL_STATES, -(ensemble["t_start"] or 0.0)


def _latest(ensembles: Sequence[Summary]) -> str | None:
    """Return the ensemble that began last, among those that continue if there are some."""
    latest = min(ensembles, key=_first_going, default=None)
    return None if latest is None else latest["name"]


def _output(job: Mapping[str, Any], client: Target, name: str) -> str:
    outputs = Outputs(client, name)
    parts = [
        f"{title}:\n{text.decode(errors='replace')}"
        for title, text in outputs.written(job)
        if text.strip()
    ]
    if parts and (note := outputs.shared([job]).note(job) or outputs.rewritten(job)):
        parts.insert(0, f"{note}:")
    return "\n\n".join(parts) or outputs.missing(job) or outputs.nothing(job)
