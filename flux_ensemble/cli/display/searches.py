"""Searches of a status as text: a line for each, the best trials, and the importances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flux_ensemble.cli.display.tables import words_of
from flux_ensemble.metrics.importance import LEAST
from flux_ensemble.scalars import brief
from flux_ensemble.texts import one_line
from flux_ensemble.words import (
    STATE_STYLES,
    Line,
    Span,
    counted,
    ended_trials,
    shown_search,
    unfeasible,
    warm_started,
)

#: The variables that the line of a search names for each objective.
_NAMED = 3

_COUNTED = (
    ("active", "action"),
    ("infeasible", "detail"),
    ("failed", "bad"),
    ("pruned", "detail"),
    ("canceled", "warn"),
)


def found(search: Mapping[str, Any]) -> str:
    """Return the best value of a search, or the size of its Pareto front.

    >>> found({"best": [{"value": 0.25}]}), found({"best": []}), found({"front_size": 7})
    ('0.25', '-', 'front 7')
    """
    if "front_size" in search:
        return f"front {search['front_size']}"
    return f"{search['best'][0]['value']:.6g}" if search["best"] else "-"


def search_line(search: Mapping[str, Any], status: Mapping[str, Any], label: str) -> Line:
    """Return the progress of a search, its best trial, and what matters most.

    Args:
        search: an entry of the status.
        status: of the ensemble.
        label: the search's name.
    """
    state = shown_search(search, status)
    spans = [
        Span(f"{label}  ", "name"),
        Span(state, STATE_STYLES.get(state, "")),
        Span(f"  {ended_trials(search):,} of {counted(search['trials'], 'trial')}"),
    ]
    for key, style in _COUNTED:
        if search.get(key):
            spans += [Span(", "), Span(f"{search[key]:,} {key}", style)]
    if search["trouble"]:
        spans.append(Span(f"; {search['trouble']}", "bad"))
    elif words := unfeasible(search):
        spans.append(Span(f"; {words}", "warn"))
    if "front_size" in search:
        spans.append(Span(f"; {counted(search['front_size'], 'trial')} in the Pareto front"))
    elif search["best"]:
        spans.append(Span(f"; best {search['objective']} {found(search)}", "good"))
    spans += [Span(f"; {words}", "detail") for words in _matters(search)]
    if search["best"]:
        spans.append(Span(f"; at {words_of(search['best'][0]['params'])}", "detail"))
    return tuple(spans)


def _matters(search: Mapping[str, Any]) -> Iterator[str]:
    """Yield the most important variables for each objective.

    >>> of = [{"name": "lr", "share": 0.62}, {"name": "opt", "share": 0.184}]
    >>> list(_matters({"importances": {"loss": of}}))
    ['importance lr 62%, opt 18%']
    >>> list(_matters({"importances": {"loss": of, "size": of[:1]}}))
    ['importance for loss lr 62%, opt 18%']
    """
    several = search.get("importances", {})
    for key, shares in several.items():
        if len(shares) > 1:
            words = ", ".join(f"{one['name']} {one['share']:.0%}" for one in shares[:_NAMED])
            yield f"importance {f'for {key} ' if len(several) > 1 else ''}{words}"


def detail_lines(search: Mapping[str, Any], *, header: bool = True) -> list[str]:
    """Return the best trials, or those of the Pareto front, and the importances, as tables.

    The trials of others that it begins with have a line.

    Args:
        search: an entry of the status.
        header: the tables have headings.
    """
    tables = [_trials(search), _importances(search)]
    lines: list[str] = []
    for rows in tables:
        if len(rows) > 1:
            lines += ["", *_aligned(rows)[0 if header else 1 :]]
    if "warm_start" in search:
        lines += ["", one_line(f"{search['id']} {warm_started(search['warm_start'])}")]
    valued = search["complete"] + search.get("infeasible", 0)
    if search["state"] == "running" and valued < LEAST <= search["trials"]:
        which = "complete or infeasible" if "infeasible" in search else "complete"
        lines += ["", f"the importance of variables is known from {LEAST} {which} trials on"]
    return lines


def _trials(search: Mapping[str, Any]) -> list[list[str]]:
    if "front" in search:
        keys = search["objective"].split(", ")
        trials = [(trial, trial["values"]) for trial in search["front"]]
    else:
        keys = ["value"]
        trials = [(trial, [trial["value"]]) for trial in search["best"]]
    names = list(dict.fromkeys(name for trial, _ in trials for name in trial["params"]))
    return [
        _headings("trial", *keys, *names),
        *(
            [
                str(trial["trial"]),
                *(f"{value:.6g}" for value in values),
                *(_text(trial["params"], name) for name in names),
            ]
            for trial, values in trials
        ),
    ]


def _importances(search: Mapping[str, Any]) -> list[list[str]]:
    """Return a row for each variable: its importance for each objective, and of how many trials.

    A single variable is compared with nothing, so it has no row.
    """
    importances = search.get("importances", {})
    found: dict[str, dict[str, Any]] = {}
    for key, shares in importances.items():
        for one in shares:
            found.setdefault(one["name"], {"": str(one["trials"])})[key] = f"{one['share']:.0%}"
    rows = [
        [one_line(name), *(of.get(key, "-") for key in importances), of[""]]
        for name, of in found.items()
    ]
    return [_headings("importance", *importances, "trials"), *(rows if len(rows) > 1 else ())]


def _headings(*names: str) -> list[str]:
    return [one_line(name).upper() for name in names]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        " ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    ]


def _text(params: Mapping[str, Any], name: str) -> str:
    # A trial need not have a variable that is there under a condition.
    return one_line(brief(params[name])) if name in params else "-"
