"""The searches of an ensemble: their progress, and the course of the best value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from flux_ensemble.metrics.importance import Importance, importances
from flux_ensemble.metrics.units import with_unit
from flux_ensemble.report.gather import Run, Slices
from flux_ensemble.report.markup import Markup, h, meter, table
from flux_ensemble.report.summary import extreme, mode_of
from flux_ensemble.report.texts import NOTHING, number, plural, seconds, spelling
from flux_ensemble.words import (
    aggregate,
    ended_trials,
    shown_search,
    unfeasible,
    warm_started,
)

#: Limits of searches, variables of one, best trials, and trials of a Pareto front in a report.
_SEARCHES, _VARIABLES, _BEST, _FRONT = 10, 8, 10, 20

#: The states of trials that are counted for each search, with their headings.
_STATES = {
    "active": "Active",
    "complete": "Complete",
    "infeasible": "Infeasible",
    "failed": "Failed",
    "pruned": "Stopped early",
    "canceled": "Canceled",
}

#: Most parameters in a table of importances.
_IMPORTANCES = 20

#: Most parameters with a slice, and most values in a report that have slices.
_SLICES, _SLICED = 8, 10

#: Most steps of the line of a course, and of a part of it: the length of an attribute is limited.
_STEPS, _PART = 400, 50

#: Size of a drawing, and the space to the left and below for labels of the axes.
_WIDTH, _HEIGHT, _LEFT, _BELOW = 640, 170, 100, 22

#: Ratio of the first to the best value from which the axis is logarithmic.
_LOG = 1000


def searches(run: Run, key: str) -> Iterator[Markup]:
    """Yield the parts about each search; `key` begins the ids of their elements."""
    found: Sequence[Mapping[str, Any]] = run.source.status.get("searches", [])
    for position, search in enumerate(found[:_SEARCHES]):
        if search["trouble"]:
            yield h("p", f"{search['trouble']}.")
        if "subject_to" in search:
            yield h("p.quiet", f"Subject to {' and '.join(search['subject_to'])}.")
        if "warm_start" in search:
            yield h("p", f"Search {search['id']!r} {warm_started(search['warm_start'])}.")
        if "front" in search:
            yield _counts(search, run.source.status)
            yield _front(run, search)
            directions = search["direction"].split(", ")
            for objective, how in zip(search["objective"].split(", "), directions, strict=True):
                yield from _matter(run, key, search, objective, mode_of(how))
        else:
            values = _values(run.jobs.trials.get(search["group"], ()), search.get("aggregate"))
            if "subject_to" in search and "repeats" in search:
                # Whether a trial is feasible is not known from each of its jobs.
                values = []
            yield _counts(search, run.source.status)
            if values:
                yield _course(run, search, values, f"{key}-search-{position}")
            yield _best(run, search)
            yield from _matter(run, key, search, search["objective"], mode_of(search["direction"]))
    if len(found) > _SEARCHES:
        yield h("p.quiet", f"There are {len(found) - _SEARCHES} further searches.")


def _values(jobs: Iterable[tuple[int, float, float]], how: str | None) -> list[float]:
    """Return the values of complete trials, in the order of their ends.

    Args:
        jobs: number of the trial, end and value, of each job.
        how: what the value of a trial is of those of its jobs; None if it has one job.

    >>> _values([(0, 5.0, 3.0), (1, 2.0, 4.0), (0, 1.0, 1.0)], "mean")
    [4.0, 2.0]
    """
    trials: dict[int, list[tuple[float, float]]] = {}
    for trial, t_end, value in jobs:
        trials.setdefault(trial, []).append((t_end, value))
    ended = [
        (max(t for t, _ in found), aggregate([value for _, value in found], how))
        for found in trials.values()
    ]
    return [value for _, value in sorted(ended)]


def _counts(search: Mapping[str, Any], status: Mapping[str, Any]) -> Markup:
    # Others have no column where no trial is in them: the table has to fit on paper.
    states = {
        state: many
        for state in _STATES
        if (many := search.get(state, 0)) or state in ("complete", "failed")
    }
    state = shown_search(search, status) + (f" ({search['reason']})" if search["reason"] else "")
    row = [
        search["id"],
        state,
        search["sampler"],
        f"{ended_trials(search):,} of {search['trials']:,}",
        *states.values(),
        seconds(search["ask_seconds"]),
        seconds(search["idle_seconds"]),
    ]
    headings = ["Search", "State", "Sampler", "Ended", *(_STATES[state] for state in states)]
    return table(
        f"Trials of search {search['id']!r}",
        [*headings, "Time per suggestion", "Idle slot time"],
        [row],
        numeric=range(3, len(row)),
    )


def _best(run: Run, search: Mapping[str, Any]) -> Markup:
    if not search["best"]:
        words = unfeasible(search, "") or "no trial is complete"
        return h("p", f"{words[0].upper()}{words[1:]}, so there is no best one.")
    rows = [
        [str(trial["trial"]), number(trial["value"]), *_params(trial, search["best"])]
        for trial in search["best"][:_BEST]
    ]
    words = f"{search['direction']} {search['objective']}"
    return _trials(f"Best trials: {words}", _labels(run, search), search["best"], rows)


def _front(run: Run, search: Mapping[str, Any]) -> Markup:
    keys = search["objective"].split(", ")
    directions = search["direction"].split(", ")
    front = search["front"][:_FRONT]
    rows = [
        [str(trial["trial"]), *map(number, trial["values"]), *_params(trial, front)]
        for trial in front
    ]
    words = ", ".join(f"{how} {key}" for how, key in zip(directions, keys, strict=True))
    size = plural(search["front_size"], "trial")
    caption = f"Pareto front of {size}: {words}"
    if len(front) < search["front_size"]:
        caption += f"; the first {len(front)}"
    return _trials(caption, _labels(run, search), front, rows)


def _labels(run: Run, search: Mapping[str, Any]) -> list[str]:
    """Return the objectives of a search with their units."""
    keys = search["objective"].split(", ")
    return [with_unit(run.source.status, [search["group"]], key) for key in keys]


def _trials(
    caption: str, keys: list[str], trials: Sequence[Mapping[str, Any]], rows: list[list[str]]
) -> Markup:
    headings = ["Trial", *keys, *_names(trials)]
    return table(caption, headings, rows, numeric=range(1, len(headings)))


def _names(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for trial in trials for name in trial["params"]))[:_VARIABLES]


def _params(trial: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> list[str]:
    return [spelling(trial["params"].get(name, NOTHING)) for name in _names(trials)]


# -- importances --------------------------------------------------------------------------


def importance_of(run: Run, ids: str, group: str, key: str, mode: str | None) -> Iterator[Markup]:
    """Yield the importances of a group's parameters for what its jobs published, and its slices.

    Args:
        run: the ensemble.
        ids: begins the ids of elements.
        group: the group.
        key: of the memos.
        mode: whether the "max" or the "min" of it is the best; None if that is unknown.
    """
    params, values = run.jobs.values_of(group, key)
    found = importances(params, values)
    yield from _parts(run, ids, group, key, mode, found, plural(len(values), "job"))


def _matter(
    run: Run, ids: str, search: Mapping[str, Any], key: str, mode: str | None
) -> Iterator[Markup]:
    """Yield the importances of a search's variables for an objective, as its status has them."""
    of = search.get("importances", {}).get(key, ())
    found = [Importance(one["name"], one["share"], one["trials"]) for one in of]
    trials = plural(max((one.points for one in found), default=0), "trial")
    yield from _parts(run, ids, search["group"], key, mode, found, trials)


def _parts(
    run: Run,
    ids: str,
    group: str,
    key: str,
    mode: str | None,
    found: Sequence[Importance],
    points: str,
) -> Iterator[Markup]:
    if not found:
        return
    of = f" of {group}" if len(run.source.status["groups"]) > 1 else ""
    label = with_unit(run.source.status, [group], key)
    if len(found) > 1:
        yield from _importances(found, of, label, points)
    slices = Slices(group, key, label, mode, tuple(one.name for one in found[:_SLICES]))
    if slices not in run.slices:
        if len(run.slices) == _SLICED:
            note = f"slices of more than {_SLICED} values"
            run.notes.extend([note] if note not in run.notes else [])
            return
        run.slices.append(slices)
    jobs = len(run.jobs.values_of(group, key)[1])
    yield _sliced(run, slices, ids, of, len(found), jobs)


def _sliced(run: Run, slices: Slices, ids: str, of: str, params: int, jobs: int) -> Markup:
    number, group = run.slices.index(slices), slices.group
    infeasible = run.jobs.infeasible_by(group, slices.key)
    those = f"the {plural(jobs, 'job')} that succeeded and published {slices.label}"
    words = f"Each point is one of {those}."
    if slices.mode is not None and run.jobs.points.first(group, slices.key, slices.mode):
        one = "feasible one" if infeasible else "one"
        words += f" The ring is around the {one} with the {extreme(slices.mode, slices.label)}."
    if infeasible:
        words += " Grey points are infeasible trials."
    if params > 1:
        words += " The most important parameter is the first."
    if params > _SLICES:
        words += f" Not shown: {plural(params - _SLICES, 'less important parameter')}."
    described = f"{ids}-slices-{number}-text"
    return h(
        "figure.figure",
        h("h4.charted", f"Slices: {slices.label}{of} over each parameter"),
        h("div.chart", data_chart="slices", data_slices=number, aria_describedby=described),
        h("figcaption", words, id=described),
    )


def _importances(found: Sequence[Importance], of: str, label: str, points: str) -> Iterator[Markup]:
    shown = found[:_IMPORTANCES]
    # Of variables under a condition it is among the trials that have them.
    differ = len({one.points for one in found}) > 1
    yield table(
        f"Importance of the parameters{of} for {label}, from {points}",
        ["Parameter", "Importance", *["Trials"] * differ],
        [
            [one.name, [meter(one.share, "share"), f"{one.share:.0%}"], *[one.points] * differ]
            for one in shown
        ],
        numeric=range(2, 3),
    )
    yield h(
        "p.quiet",
        f"Importance: the share of the variance of the ranks of {label} between ranges of the "
        "parameter, less what chance gives (epsilon squared). It is that of each parameter alone, "
        "among the points that were tried" + ", and that have the parameter" * differ + ".",
    )


# -- the course of the best value ---------------------------------------------------------


def course(values: Sequence[float], direction: str) -> list[tuple[int, float]]:
    """Return the improvements of the best value: the number of complete trials, and the value.

    >>> course([3, 5, 2, 2, 1], "minimize"), course([3, 5, 2], "maximize")
    ([(1, 3), (3, 2), (5, 1)], [(1, 3), (2, 5)])
    """
    steps: list[tuple[int, float]] = []
    sign = -1 if direction == "maximize" else 1
    for count, value in enumerate(values, start=1):
        if not steps or sign * value < sign * steps[-1][1]:
            steps.append((count, value))
    return steps


def _course(run: Run, search: Mapping[str, Any], values: Sequence[float], key: str) -> Markup:
    steps = course(values, search["direction"])
    first, best = steps[0][1], steps[-1][1]
    (label,) = _labels(run, search)
    words = (
        f"The best {label} after so many complete trials: {number(first)} after the "
        f"first, {number(best)} after {plural(steps[-1][0], 'trial')} and to the end, after "
        f"{len(values):,}."
    )
    if _is_logarithmic(*sorted((first, best))):
        words += " The axis is logarithmic."
    return h(
        "figure.figure",
        h("h4.charted", f"The best value of search {search['id']!r}"),
        _drawing(_thinned(steps), len(values), f"{key}-text"),
        h("figcaption", words, id=f"{key}-text"),
    )


def _is_logarithmic(low: float, high: float) -> bool:
    return low > 0 and high / low > _LOG


def _thinned(steps: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return at most as many steps as can be seen, including the first and the last."""
    each = max(1, math.ceil(len(steps) / _STEPS))
    return [*steps[:-1:each], steps[-1]]


def _drawing(steps: list[tuple[int, float]], trials: int, described: str) -> Markup:
    low, high = sorted((steps[0][1], steps[-1][1]))
    scale = math.log10 if _is_logarithmic(low, high) else float
    bottom, top = scale(low), scale(high)

    def x(count: int) -> float:
        return _LEFT + (count - 1) / max(1, trials - 1) * (_WIDTH - _LEFT - 8)

    def y(value: float) -> float:
        share = (scale(value) - bottom) / (top - bottom) if top > bottom else 0.5
        return 8 + (1 - share) * (_HEIGHT - _BELOW - 16)

    points = [(x(count), y(value)) for count, value in steps]
    points.append((x(trials), points[-1][1]))
    parts = []
    for start in range(0, len(points) - 1, _PART):
        (right, down), *more = points[start : start + _PART + 1]
        line = "".join(f"H{right:.1f}V{down:.1f}" for right, down in more)
        parts.append(h("path.best", d=f"M{right:.1f} {down:.1f}{line}"))
    ends = sorted({low, high})
    digits = 3 if len({f"{end:.3g}" for end in ends}) == len(ends) else 6
    axis = _HEIGHT - _BELOW
    return h(
        "svg.course",
        h("path.axis", d=f"M{_LEFT} 0V{axis}H{_WIDTH}"),
        parts,
        [
            h("text", f"{end:.{digits}g}", x=_LEFT - 8, y=f"{y(end) + 4:.1f}", text_anchor="end")
            for end in ends
        ],
        h("text", "1", x=_LEFT, y=_HEIGHT - 6),
        h("text", plural(trials, "trial"), x=_WIDTH - 8, y=_HEIGHT - 6, text_anchor="end"),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_labelledby=described,
    )
