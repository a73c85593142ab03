"""Lines about an ensemble: what `run` and `watch` announce, and what `log` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flux_ensemble import eventlog
from flux_ensemble.words import STATE_STYLES, Line, Span, counted, ended_trials

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus


def announce(entry: eventlog.Stored) -> Iterator[Line]:
    """Yield what `run` says about an entry: what fired and what it does, and what went wrong."""
    return eventlog.read(entry).announced(entry["timestamp"])


def explain(entry: eventlog.Stored, t_start: float, jobid: eventlog.JobId) -> Line:
    """Return an entry as one line of `log`: when, what, why, and how it went."""
    read = eventlog.read(entry)
    return _line(entry, t_start, read.line_style(), read.sentence(entry["timestamp"], jobid))


def explain_several(
    stored: eventlog.Stored, entries: Sequence[eventlog.Interrupted], t_start: float
) -> Line:
    """Return several entries that differ in their jobs alone, the first as stored, as one line."""
    return _line(stored, t_start, entries[0].line_style(), entries[0].sentence_of(len(entries)))


def _line(entry: eventlog.Stored, t_start: float, style: str, sentence: str) -> Line:
    name = entry["name"].ljust(13) + " " if sentence else entry["name"]
    return (
        Span(f"{entry['timestamp'] - t_start:11.3f}s  ", "detail"),
        Span(name, style),
        Span(sentence),
    )


def time_is_up(timeout: float) -> str:
    """Return why an ensemble is cancelled at the end of `--timeout` seconds."""
    from flux_ensemble.cli.display.plain_tables import fsd

    return f"the time is up (--timeout {fsd(timeout)})"


def closing(status: EnsembleStatus) -> Line:
    """Return the last line of `run` and `watch`: how the ensemble ended, and after how long."""
    from flux_ensemble.cli.display import troubles
    from flux_ensemble.cli.display.plain_tables import fsd

    state, reason = status["state"], status["reason"]
    t_end = status["t_end"]
    t_start = status["t_start"]
    after = "" if t_end is None or t_start is None else f" after {fsd(t_end - t_start)}"
    wrong = troubles.sentence(status)
    joint = "but" if state == "completed" else "and"
    return (
        Span(f"{status['name']}: "),
        Span(state, STATE_STYLES.get(state, "")),
        Span(after),
        Span(f": {reason}" if reason else ""),
        Span(f", {joint} {wrong}" if wrong else "", "bad"),
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
