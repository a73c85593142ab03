"""Progress of ensembles and their groups: counts, rates, time left, and bars.

    status ──► Paces.take ──► Progress, of all jobs and of each group ──► lines with bars

`run`, `status` and `top` print the same lines. A bar is text, so that it works without colours and
in a file; its numbers are printed next to it.
"""

from __future__ import annotations

import locale
import math
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from flux_ensemble.cli.display.colours import colour, colour_off
from flux_ensemble.texts import one_line
from flux_ensemble.words import Line, Span, elapsed, in_words, known_jobs, plain, trials_to_come

#: The rate at which jobs end is measured over so many seconds; while less than `SOON` seconds are
#: known, since the start.
WINDOW_SECONDS = 60.0
SOON = 5.0

#: Longest name in a line with a bar, on a terminal that is not wide; and the limits of a bar's
#: width.
MOST_NAME = 24
LEAST_BAR, MOST_BAR = 6, 40

#: Columns next to a bar that are reserved for the states of the jobs: as many of these steps as
#: they need, so that a bar does not change with each count.
DETAIL_STEP = 20

#: States of the jobs of a group, with their styles.
_DETAILS = (
    ("running", "action"),
    ("pending", "detail"),
    ("waiting", "detail"),
    ("failed", "bad"),
    ("timeout", "bad"),
    ("canceled", "warn"),
    ("interrupted", "warn"),
)

#: Outcomes of attempts of which some were tried again, in words.
_OF_ATTEMPTS = {"failed": "failed", "timeout": "timed out"}

#: The order in which they are left out where there is no room for all.
_DROPPED = ("waiting", "pending", "interrupted", "canceled", "running", "timeout", "failed")


@dataclass(frozen=True)
class Progress:
    """The progress of an ensemble or a group.

    Args:
        name: of a group or of an ensemble.
        counts: as in the status of a group.
        finished, total: numbers of jobs; the total has the trials that a search is still to submit.
        rate: jobs that finish per second; None if unknown.
        predicted: seconds until the jobs are over, from their predicted durations; None if nothing
            is predicted.
    """

    name: str
    counts: Mapping[str, int]
    finished: int
    total: int
    rate: float | None = None
    predicted: float | None = None

    @property
    def active(self) -> bool:
        """True if some jobs have not finished."""
        return self.finished < self.total

    @property
    def share(self) -> float:
        """The share that is finished, 0 to 1."""
        return self.finished / self.total if self.total else 0.0

    @property
    def left(self) -> float | None:
        """Seconds until all known jobs are finished, at this rate; None if unknown."""
        if not self.active or not self.rate:
            return None
        return (self.total - self.finished) / self.rate

    @property
    def outlook(self) -> str | None:
        """The time left, in words; None if unknown.

        >>> Progress("a", {}, 5, 10, 0.5).outlook, Progress("a", {}, 5, 10, 0.5, 42.0).outlook
        ('10s left at 30/min', '42s left as predicted')
        """
        if self.active and self.predicted is not None:
            return f"{in_words(self.predicted)} left as predicted"
        left = self.left
        return None if left is None else f"{in_words(left)} left at {per_time(self.rate or 0.0)}"


class Paces:
    """The rates at which the jobs of one ensemble finish, from one status to the next."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def take(self, status: Mapping[str, Any], now: float) -> tuple[Progress, list[Progress]]:
        """Process a status.

        Args:
            status: of the ensemble, as in `ensemble.status`.
            now: epoch seconds.

        Returns:
            The progress of the ensemble, and of each of its groups that has jobs.
        """
        took = elapsed(status, now)
        ended = status.get("t_end") is not None
        to_come = trials_to_come(status)
        groups = []
        sums: dict[str, int] = {}
        for name, counts in status.get("groups", {}).items():
            for key, number in counts.items():
                sums[key] = sums.get(key, 0) + number
            if known_jobs(counts):
                left = to_come.get(name, 0)
                groups.append(self._progress(f"g{name}", name, counts, left, took, now, ended))
        if not sums:
            sums = dict.fromkeys(("waiting", "pending", "running", "finished"), 0)
        left = sum(to_come.values())
        whole = self._progress("", status["name"], sums, left, took, now, ended)
        if status.get("waits"):
            # The end cannot be predicted.
            return replace(whole, rate=None), [replace(group, rate=None) for group in groups]
        t_predicted = status.get("t_predicted")
        if t_predicted is not None and not left:  # what is to come is not predicted
            whole = replace(whole, predicted=max(0.0, t_predicted - now))
        return whole, groups

    def _progress(
        self,
        key: str,
        name: str,
        counts: Mapping[str, int],
        to_come: int,
        took: float | None,
        now: float,
        ended: bool,
    ) -> Progress:
        finished = counts["finished"]
        seen = self._seen.setdefault(key, deque())
        if seen and finished < seen[-1][1]:
            seen.clear()  # another ensemble of the name
        seen.append((now, finished))
        while now - seen[0][0] > WINDOW_SECONDS:
            seen.popleft()
        t, before = seen[0]
        rate = None
        if now - t >= SOON:
            rate = (finished - before) / (now - t)
        elif took and finished:
            rate = finished / took
        total = known_jobs(counts) + to_come
        return Progress(name, counts, finished, total, None if ended else rate)


def active_first(groups: Iterable[Progress], room: int) -> list[Progress]:
    """Return the groups in their order if there is room for all, else active ones first.

    >>> done, busy = Progress("a", {"running": 0}, 1, 1), Progress("b", {"running": 1}, 0, 1)
    >>> [group.name for group in active_first([done, busy], 1)]
    ['b', 'a']
    """
    listed = list(groups)
    if len(listed) > room:
        listed.sort(key=lambda group: (not group.active, not group.counts.get("running")))
    return listed


def progress_lines(
    whole: Progress,
    groups: Sequence[Progress],
    elapsed: float | None,
    width: int,
    room: int,
    *,
    ascii_only: bool = False,
) -> list[Line]:
    """Return lines about an ensemble and bars of its groups, at most `room` lines.

    Args:
        whole, groups: from `Paces.take`.
        elapsed: seconds since it started; None if it has not.
        width: columns.
        room: lines, at least two.
        ascii_only: draw bars in ASCII.
    """
    if not groups:
        return []
    words = [f"{whole.finished:,} of {whole.total:,} jobs ({percent(whole.share)})"]
    if elapsed is not None:
        words.append(f"{in_words(elapsed)} elapsed")
    if whole.outlook is not None:
        words.append(whole.outlook)
    lines: list[Line] = [(Span(", ".join(words)),)]
    shown = active_first(groups, room - 1)
    if len(shown) > room - 1:
        shown = shown[: max(room - 2, 0)]
    lines += bar_lines(shown, width, ascii_only=ascii_only)
    if len(shown) < len(groups):
        lines.append((Span(f"... and {len(groups) - len(shown)} more groups", "detail"),))
    return lines


def show_progress(status: Mapping[str, Any]) -> None:
    """Print the progress of an ensemble on a terminal, and an empty line; nothing without jobs.

    Args:
        status: of the ensemble, as in `ensemble.status`.
    """
    now = time.time()
    whole, groups = Paces().take(status, now)
    took = elapsed(status, now)
    width, height = shutil.get_terminal_size()
    # The tables need room, too.
    room = max(height // 3, 3)
    for line in progress_lines(whole, groups, took, width, room, ascii_only=is_ascii()):
        text, left = "", width
        for span in line:
            words = one_line(span.text)[:left]
            left -= len(words)
            begin = colour(span.style)
            text += f"{begin}{words}{colour_off()}" if begin else words
        click.echo(text)
    if groups:
        click.echo()


def is_terminal() -> bool:
    """Return True if standard output is a terminal that can place what it shows."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def is_live() -> bool:
    """Return True if standard output is a terminal that can redraw lines.

    A command in a cell of a notebook has a pseudoterminal, but the cell appends all that is drawn,
    and nobody can press a key. Jupyter sets JPY_PARENT_PID for kernels only, not for its terminals.
    """
    return is_terminal() and "JPY_PARENT_PID" not in os.environ


def is_ascii() -> bool:
    """Return True if the user's locale has no characters beyond ASCII (`LC_ALL=C`)."""
    try:
        locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error:
        return True
    return locale.getencoding().lower().replace("-", "") != "utf8"


def bar(share: float, width: int, *, ascii_only: bool = False) -> tuple[str, str]:
    """Return the two parts of a bar: finished, and the rest.

    >>> bar(0.5, 6), bar(0.5, 6, ascii_only=True)
    (('━━━', '╌╌╌'), ('###', '...'))
    """
    filled = min(int(share * width), width)
    done, rest = ("#", ".") if ascii_only else ("━", "╌")
    return done * filled, rest * (width - filled)


def bar_lines(groups: Sequence[Progress], width: int, *, ascii_only: bool = False) -> list[Line]:
    """Return a line for each progress: name, bar, counts, time left, rate, and states of the jobs.

    Args:
        groups: with their progress.
        width: columns of the terminal.
        ascii_only: draw bars in ASCII.
    """
    if not groups:
        return []
    names = min(max(len(one.name) for one in groups), name_room(width))
    counts = max(len(_fraction(one)) for one in groups)
    lefts = max(len(_left(one)) for one in groups)
    fixed = names + counts + (lefts + 2 if lefts else 0) + 9
    wanted = max(len(plain(details_of(one.counts))) for one in groups)
    details = max(1, math.ceil(wanted / DETAIL_STEP)) * DETAIL_STEP
    room = max(0, min(MOST_BAR, width - fixed - details))
    bars = room if room >= LEAST_BAR else LEAST_BAR if width - fixed > LEAST_BAR + 1 else 0
    labels = told_apart([one.name for one in groups], names, ascii_only)
    return [
        _bar_line(one, f"{label:<{names}} ", bars, counts, lefts, width - fixed - bars, ascii_only)
        for one, label in zip(groups, labels, strict=True)
    ]


def _bar_line(
    group: Progress,
    label: str,
    bars: int,
    counts: int,
    lefts: int,
    details_room: int,
    ascii_only: bool,
) -> Line:
    spans = [Span(label, "name")]
    if bars:
        done, rest = bar(group.share, bars, ascii_only=ascii_only)
        style = "action" if group.active else "good"
        bad = _troubled(group, len(done))
        spans += [Span(done[bad:], style), Span(done[:bad], "bad"), Span(rest + " ", "detail")]
    spans.append(Span(f"{_fraction(group):>{counts}} {percent(group.share):>4}"))
    if lefts:
        spans.append(Span(f"  {_left(group):<{lefts}}", "detail"))
    details = _fitting(group.counts, details_room)
    return (*spans, Span("  "), *details) if details else tuple(spans)


def _troubled(group: Progress, width: int) -> int:
    """Return how many columns of the finished part are for failed jobs: at least one if any."""
    troubled = group.counts.get("failed", 0) + group.counts.get("timeout", 0)
    share = troubled / max(1, troubled, group.counts.get("attempts", group.finished))
    return math.ceil(share * width)


def details_of(counts: Mapping[str, Any], thousands: str = ",") -> Line:
    """Return the states and outcomes of jobs in words, without those that are zero.

    Of jobs that were tried again, attempts have failed.

    >>> [span.text for span in details_of({"running": 1200, "waiting": 0, "failed": 1})]
    ['1,200 running', ', ', '1 failed']
    >>> plain(details_of({"failed": 3, "timeout": 1, "attempts": 12, "finished": 8}))
    '3 attempts failed, 1 attempt timed out'
    >>> plain(details_of({"failed": 1, "interrupted": 2, "attempts": 4, "finished": 2}))
    '1 failed, 2 interrupted'
    """
    # Attempts that were interrupted say nothing of those that failed.
    ended = counts.get("attempts", 0) - counts.get("interrupted", 0)
    again = ended > counts.get("finished", 0)
    spans: list[Span] = []
    for key, style in _DETAILS:
        if counts.get(key):
            number = format(counts[key], thousands)
            words = f"{number} {key}"
            if again and key in _OF_ATTEMPTS:
                words = f"{number} attempt{'s'[: counts[key] != 1]} {_OF_ATTEMPTS[key]}"
            spans += [Span(", ")] * bool(spans) + [Span(words, style)]
    return tuple(spans)


def _fitting(counts: Mapping[str, Any], room: int) -> Line:
    """Return the states of `details_of` that fit into `room` columns, those that failed first.

    >>> [span.text for span in _fitting({"running": 8, "waiting": 12, "failed": 4}, 20)]
    ['8 running', ', ', '4 failed']
    """
    left = dict(counts)
    for key in _DROPPED:
        if len(plain(details_of(left))) <= room:
            break
        left[key] = 0
    return details_of(left)


def percent(share: float) -> str:
    """Return a share in percent; 100 only if all is finished.

    >>> percent(0.999), percent(1.0)
    ('99%', '100%')
    """
    return f"{int(share * 100)}%"


def _fraction(group: Progress) -> str:
    return f"{group.finished:,}/{group.total:,}"


def _left(group: Progress) -> str:
    if group.left is None:
        return ""
    return f"{in_words(group.left)} left, {per_time(group.rate or 0.0)}"


def per_time(rate: float) -> str:
    """Return a rate per second, minute or hour, whichever is more than one.

    >>> per_time(2.13), per_time(0.5), per_time(0.001)
    ('2.1/s', '30/min', '3.6/h')
    """
    units = ((1, "s"), (60, "min"), (3600, "h"))
    factor, unit = next((one for one in units if rate * one[0] >= 1), units[-1])
    number = rate * factor
    return f"{number:.0f}/{unit}" if number >= 10 else f"{number:.2g}/{unit}"


def middle(text: str, width: int, ascii_only: bool = False) -> str:
    """Return text without its middle if it is longer than `width`.

    >>> middle("a-very-long-name", 9), middle("short", 9)
    ('a-ve…name', 'short')
    """
    if len(text) <= width:
        return text
    gap = ".." if ascii_only else "…"
    tail = (width - len(gap)) // 2
    return text[: width - len(gap) - tail] + gap + text[len(text) - tail :]


def name_room(width: int) -> int:
    """Return the columns for names in a terminal of `width` columns.

    >>> name_room(40), name_room(80), name_room(120), name_room(200)
    (10, 20, 40, 66)
    """
    return max(width // 4, 8) if width < 4 * MOST_NAME else max(MOST_NAME, width // 3)


def told_apart(names: Sequence[str], width: int, ascii_only: bool = False) -> list[str]:
    """Return names that fit into `width` columns, and differ where the names differ.

    What is left out of long names is as much as possible of what several have in common.

    >>> told_apart(["relax-with-water-300K-long", "relax-with-water-310K-long", "short"], 14)
    ['rela…-300K…ong', 'rela…-310K…ong', 'short']
    >>> told_apart(["equilibrate-a-protein-fast", "equilibrate-b-protein-slow"], 12)
    ['equili…-fast', 'equili…-slow']
    """
    labels = [middle(name, width, ascii_only) for name in names]
    if len(set(labels)) == len(set(names)):
        return labels
    long = sorted({name for name in names if len(name) > width})
    gap = ".." if ascii_only else "…"
    around = {name: _around(name, _branches(name, long), width, gap) for name in long}
    return [around.get(name, name) for name in names]


def _branches(name: str, others: Sequence[str]) -> list[int]:
    """Return where a name differs from others, first from those that it has most in common with.

    >>> _branches("ab1c", ["ab1c", "ab2c", "xb1c"])
    [2, 0]
    """
    commons = {_common(name, other) for other in others if other != name}
    return sorted((min(one, len(name) - 1) for one in commons), reverse=True)


def _common(one: str, other: str) -> int:
    """Return how many characters two names begin with in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _around(name: str, marks: Sequence[int], width: int, gap: str) -> str:
    """Return a name of at most `width` columns: around its marks, its beginning and its end."""
    kept = set[int]()
    last = len(name) - 1
    centres = [*marks, 0, last]
    reach = [(centre, 0) for centre in centres]
    reach += [
        (centre, step * away)
        for away in range(1, width)
        for centre in (0, last, *marks)
        for step in (1, -1)
    ]
    for centre, away in reach:
        place = centre + away
        if place in range(len(name)) and len(_with_gaps(name, {*kept, place}, gap)) <= width:
            kept.add(place)
    return _with_gaps(name, kept, gap)


def _with_gaps(name: str, kept: Collection[int], gap: str) -> str:
    """Return the characters of a name at some places, with a gap where others are left out."""
    text, before = "", -1
    for place in sorted(kept):
        missing = name[before + 1 : place]
        text += (missing if len(missing) <= len(gap) else gap) + name[place]
        before = place
    rest = name[before + 1 :]
    return text + (rest if len(rest) <= len(gap) else gap)
