"""Words for people that several rooms need: lines with styles, spans of time, counts, pairs.

A line is a tuple of spans, each a text and the name of its style. A view prints the texts, and uses
the styles where it has colours.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

from flux_ensemble.scalars import WRITTEN, brief
from flux_ensemble.texts import hanging


class Span(NamedTuple):
    """A piece of a line: style is "trigger", "action", "detail", "good", "bad" or "warn"."""

    text: str
    style: str = ""


Line = tuple[Span, ...]

#: Style of each state of an ensemble.
STATE_STYLES = {
    "running": "action",
    "paused": "warn",
    "ending": "warn",
    "completed": "good",
    "failed": "bad",
    "canceled": "warn",
    "interrupted": "warn",
}


def shown_state(status: Mapping[str, Any]) -> str:
    """Return the state of an ensemble in words: a failed one that can go on is "interrupted".

    Args:
        status: of the ensemble, or its summary.

    >>> shown_state({"state": "failed", "resumable": True})
    'interrupted'
    """
    return "interrupted" if status.get("resumable") else str(status["state"])


def shown_search(search: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Return the state of a search in words: one that its ensemble ended has the ensemble's.

    Args:
        search: an entry of the status.
        status: of the ensemble.

    >>> shown_search({"state": "running"}, {"state": "canceled", "t_end": 90.0})
    'canceled'
    >>> shown_search({"state": "done"}, {"state": "canceled", "t_end": 90.0})
    'done'
    """
    over = status.get("t_end") is not None and search["state"] not in ("idle", "done")
    return shown_state(status) if over else str(search["state"])


def elapsed(status: Mapping[str, Any], now: float) -> float | None:
    """Return the seconds that an ensemble has gone on; None if it has not started.

    The time between the runs of a local ensemble that was interrupted is not among them.

    Args:
        status: of the ensemble, or its summary.
        now: in epoch seconds.

    >>> elapsed({"t_start": 10.0, "t_end": 100.0, "away": 60.0}, 200.0)
    30.0
    """
    t_start, t_end = status.get("t_start"), status.get("t_end")
    if t_start is None:
        return None
    return max(0.0, float((now if t_end is None else t_end) - t_start - status.get("away", 0.0)))


def undone_jobs(jobs: int, since: float) -> str:
    """Return what is said of jobs that had ended, but for a crash of their instance.

    Args:
        jobs: how many, at least: those that ended in the last second before are not known.
        since: when the last checkpoint before the crash was, in epoch seconds.
    """
    at = time.strftime("%H:%M:%S", time.localtime(since))
    whose = f"results of at least {counted(jobs, 'job')}"
    return f"a crash undid the {whose} since the checkpoint of {at}; they run again"


def all_undone(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is said of the results of an ensemble that crashes undid, a sentence for each.

    Args:
        status: of the ensemble, or its summary.
    """
    for span in status.get("absences", ()):
        if span.get("undone"):
            yield undone_jobs(span["undone"], span["since"])


def left_out(status: Mapping[str, Any]) -> tuple[float, float]:
    """Return what `elapsed` leaves out: the seconds without a run, and those whose work was undone.

    >>> left_out({"away": 80.0, "absences": [{"since": 0, "until": 80, "undone": 2, "ended": 20}]})
    (60.0, 20.0)
    """
    undone = sum(
        float(span["ended"] - span["since"])
        for span in status.get("absences", ())
        if span.get("undone")
    )
    return max(0.0, status.get("away", 0.0) - undone), undone


def plain(line: Line) -> str:
    """Return the line without styles."""
    return hanging("".join(span.text for span in line))


def in_words(seconds: float) -> str:
    """Return a duration in its two largest units, as in "20m 3s".

    >>> in_words(1203.4), in_words(59.6), in_words(7322), in_words(0.2)
    ('20m 3s', '1m', '2h 2m', '0s')
    """
    left, parts = round(max(seconds, 0.0)), list[str]()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        number, left = divmod(left, size)
        if number or parts:
            parts.append(f"{number}{unit}" if number else "")
    return " ".join(filter(None, parts[:2])) or "0s"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "job"), counted(2, "job")
    ('1 job', '2 jobs')
    """
    return f"{number} {noun}{'s'[: number != 1]}"


def more_trials(more: int, left: int, trials: int, of: str = "") -> str:
    """Return how many more trials a search has, how many follow, and how many there are in all.

    >>> more_trials(20, 0, 120)
    '20 more trials, 120 in all'
    >>> more_trials(2, 12, 22)
    '2 more trials and 12 that were left, 22 in all'
    >>> more_trials(1, 0, 21, " of hpo")
    '1 more trial of hpo, 21 in all'
    """
    before = f" and {left:,} that {'was' if left == 1 else 'were'} left" if left else ""
    return f"{counted(more, 'more trial')}{of}{before}, {trials:,} in all"


def warm_started(told: Mapping[str, Any]) -> str:
    """Return in words which trials of others a search begins with.

    >>> warm_started({"trials": 40, "best": {"value": 0.25, "params": {"lr": 0.01, "opt": "sgd"}}})
    'begins with 40 trials of others, the best 0.25 (lr=0.01 opt=sgd)'
    """
    words = f"begins with {counted(told['trials'], 'trial')} of others"
    best = told["best"]
    if best is None:
        return words
    params = {
        key: brief(value) if isinstance(value, float) else value
        for key, value in best["params"].items()
    }
    return f"{words}, the best {best['value']:.6g} ({' '.join(each_pair(params))})"


def running_again(jobs: int, unsent: int, which: str = "", *, would: bool = False) -> str:
    """Return how many jobs of an ensemble run by a rerun.

    Args:
        jobs: how many.
        unsent: how many of them were never submitted before.
        which: more about the others, in parentheses.
        would: they do not run, but would.

    >>> running_again(1, 0), running_again(3, 0, " (3 failed)", would=True)
    ('1 job runs again', '3 jobs would run again (3 failed)')
    >>> running_again(16, 14, " (2 canceled)"), running_again(14, 14)
    ('2 jobs run again (2 canceled), and 14 that were never submitted', '14 jobs that were ...')
    """
    again = jobs - unsent
    never = f"that {'was' if unsent == 1 else 'were'} never submitted"
    if not again:
        run = "would run" if would else "runs" if unsent == 1 else "run"
        return f"{counted(unsent, 'job')} {never} {run}"
    run = "would run" if would else "runs" if again == 1 else "run"
    others = f", and {unsent:,} {never}" if unsent else ""
    return f"{counted(again, 'job')} {run} again{which}{others}"


#: States of a trial: its job is in the queue, has given a value, has given one and violates a
#: constraint, or was stopped early.
ACTIVE, COMPLETE, INFEASIBLE, PRUNED = "active", "complete", "infeasible", "pruned"

#: States of trials that have ended, as they are counted for each search.
TRIAL_ENDS = (COMPLETE, INFEASIBLE, "failed", PRUNED, "canceled")


def ended_trials(search: Mapping[str, Any]) -> int:
    """Return how many trials of a search have ended.

    >>> ended_trials({"complete": 3, "failed": 1, "canceled": 0})
    4
    """
    # A search without early stopping has no pruned trials, for example.
    return sum(search.get(state, 0) for state in TRIAL_ENDS)


def unfeasible(search: Mapping[str, Any], yet: str = " yet") -> str | None:
    """Return that no trial of a search is feasible, and which one is the nearest.

    Args:
        search: an entry of the status.
        yet: follows if there may still be one.

    Returns:
        None if some are feasible, or none is infeasible.

    >>> nearest = {"trial": 7, "violations": {"mass <= 3": 0.25, "loss >= 0": -1.0}}
    >>> unfeasible({"complete": 0, "nearest": nearest})
    'no trial is feasible yet; the least violation is that of trial 7 (mass <= 3, by 0.25)'
    """
    nearest = search.get("nearest")
    if nearest is None or search["complete"]:
        return None
    by = (f"{text}, by {one:.4g}" for text, one in nearest["violations"].items() if one > 0)
    return (
        f"no trial is feasible{yet}; the least violation is that of trial {nearest['trial']} "
        f"({'; '.join(by)})"
    )


def known_jobs(counts: Mapping[str, Any]) -> int:
    """Return the number of jobs of a group that are known so far.

    >>> known_jobs({"waiting": 0, "pending": 0, "running": 2, "finished": 6, "unsent": 12})
    20
    """
    known: int = counts["waiting"] + counts["pending"] + counts["running"] + counts["finished"]
    # Those that were never submitted are not done, either.
    return known + int(counts.get("unsent", 0))


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)


def _median(values: Sequence[float]) -> float:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


#: What the value of a trial with several jobs may be of theirs. None depends on their order.
AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": _mean,
    "median": _median,
    "min": min,
    "max": max,
}


def aggregate(values: Sequence[float], how: str | None) -> float:
    """Return the value of a trial, of those of its jobs.

    >>> aggregate([1.0, 2.0, 6.0], "mean"), aggregate([1.0, 2.0, 6.0], "median")
    (3.0, 2.0)
    """
    return values[-1] if how is None else AGGREGATES[how](values)


def trials_to_come(status: Mapping[str, Any]) -> dict[str, int]:
    """Return how many jobs of trials running searches have still to submit, by job group.

    >>> search = {"group": "trial", "state": "running", "trials": 20, "active": 2, "complete": 4}
    >>> trials_to_come({"state": "running", "searches": [{**search, "failed": 1, "canceled": 0}]})
    {'trial': 13}
    """
    found: dict[str, int] = {}
    for search in status.get("searches", ()) if status.get("t_end") is None else ():
        if search.get("state") == "running":
            left = search["trials"] - search["active"] - ended_trials(search)
            jobs = max(0, left) * int(search.get("repeats", 1))
            found[search["group"]] = found.get(search["group"], 0) + jobs
    return found


def pairs(values: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return those of some values that are not None as text: `urgency=31 duration=60.0`."""
    return " ".join(each_pair({key: values[key] for key in keys if values.get(key) is not None}))


def each_pair(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield each value with its name.

    >>> list(each_pair({"t": 280, "x": "fine", "y": "not so"}))
    ['t=280', 'x=fine', 'y="not so"']
    """
    for key, value in values.items():
        yield f"{key}={word(value)}"


def word(value: Any) -> str:
    """Return a value as JSON; a text without spaces is not quoted."""
    value = _as_written(value)
    return value if isinstance(value, str) and " " not in value else json.dumps(value)


def _as_written(value: Any) -> Any:
    """Return the values of a parameter with their spellings."""
    if isinstance(value, list):
        return list(map(_as_written, value))
    spelling = isinstance(value, Mapping) and value.keys() == {WRITTEN}
    return value[WRITTEN] if spelling else value
