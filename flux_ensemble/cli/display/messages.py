"""Lines about an ensemble that `run` and `watch` print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flux_ensemble import eventlog
from flux_ensemble.words import (
    STATE_STYLES,
    Line,
    Span,
    counted,
    elapsed,
    ended_trials,
    left_out,
)

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus


def announce(entry: eventlog.Stored) -> Iterator[Line]:
    """Yield what `run` says about an entry: what fired and what it does, and what went wrong."""
    return eventlog.read(entry).announced(entry["timestamp"])


def time_is_up(timeout: float) -> str:
    """Return why an ensemble is cancelled at the end of `--timeout` seconds."""
    from flux_ensemble.cli.display.plain_tables import fsd

    return f"the time is up (--timeout {fsd(timeout)})"


def closing(status: EnsembleStatus) -> Line:
    """Return the last line of `run` and `watch`: how the ensemble ended, and after how long."""
    from flux_ensemble.cli.display.plain_tables import fsd
    from flux_ensemble.client import troubles

    state, reason = status["state"], status["reason"]
    took = None if status["t_end"] is None else elapsed(status, status["t_end"])
    after = "" if took is None else f" after {fsd(took)}"
    away, undone = left_out(status)
    if away:
        after += f", not counting {fsd(away)} in which it did not run"
    if undone:
        after += f", and {fsd(undone)} whose results a crash undid"
    # Guests do not see the jobs.
    none = status["state"] == "completed" and not status.get("jobs", {"total": 1})["total"]
    wrong = troubles.joined(status)
    return (
        Span(f"{status['name']}: "),
        Span(state, STATE_STYLES.get(state, "")),
        Span(after),
        Span(f": {reason}" if reason else ""),
        Span(", and no job was ever submitted" if none else ""),
        Span(f", {wrong}" if wrong else "", "bad"),
    )


def not_over(status: Mapping[str, Any], again: str) -> str:
    """Return what is said of a run that was interrupted.

    A search has asked for a few of its trials so far: how many there will be is said, too.

    Args:
        status: of the ensemble.
        again: the command that continues the run.
    """
    done = sum(group["finished"] for group in status["groups"].values())
    total = status["jobs"]["total"]
    searches = [
        f"search {search['id']!r}: {ended_trials(search)} of {counted(search['trials'], 'trial')}"
        for search in status.get("searches", ())
        if search["state"] != "done"
    ]
    so_far = " so far" if searches else ""
    jobs = f"{done} of {counted(total, 'job')}{so_far} {'is' if total == 1 else 'are'} done"
    trials = f" ({'; '.join(searches)})" if searches else ""
    return f"{status['name']!r} is not over: {jobs}{trials}, and {again!r} goes on with it"
