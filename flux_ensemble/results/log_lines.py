"""The entries of an ensemble's log as lines for people."""

from __future__ import annotations

from collections.abc import Sequence

from flux_ensemble import eventlog
from flux_ensemble.words import Line, Span


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
