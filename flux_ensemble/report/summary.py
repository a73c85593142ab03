"""The beginning of a report: what happened, what failed and why, which points are the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flux_ensemble import job_ids
from flux_ensemble.client import troubles
from flux_ensemble.metrics.units import with_unit
from flux_ensemble.report.gather import Run
from flux_ensemble.report.markup import Child, Markup, h
from flux_ensemble.report.source import Failure
from flux_ensemble.report.texts import NOTHING, amount, number, plural, seconds, spelling
from flux_ensemble.report.usage import Usage
from flux_ensemble.words import left_out, shown_state, unfeasible

#: The outcomes of jobs, in the order of the report, with the words for them.
OUTCOMES = {
    "success": "succeeded",
    "failed": "failed",
    "timeout": "ran out of time",
    "canceled": "canceled",
    "interrupted": "interrupted, and run again",
    None: "active",
}


#: The modes of a best with their words, and the modes of a search's directions.
_WORDS = {"max": "highest", "min": "lowest"}
_MODES = {"maximize": "max", "minimize": "min"}

#: Number of best points on the card, and of parameters of one.
_POINTS, _PARAMS = 4, 8


@dataclass(frozen=True)
class Figure:
    """The memo key by which points are compared, according to the document.

    Args:
        group: of the jobs.
        key: of their memos.
        mode: "max" or "min".
        label: the key with its unit.
    """

    group: str
    key: str
    mode: str
    label: str

    @property
    def words(self) -> str:
        """The property of the best point, in words."""
        return f"{_WORDS[self.mode]} {self.label}"


def figure_of(run: Run) -> Figure | None:
    """Return how the points of a run are compared by its document.

    None if it does not define that.
    """
    status, keys = run.source.status, run.jobs.points.keys
    for best in status.get("best", ()):
        if best["of"] in keys:
            label = with_unit(status, [best["group"]], best["of"])
            return Figure(best["group"], best["of"], best["mode"], label)
    for search in status.get("searches", ()):
        if search["objective"] in keys:
            group, key = search["group"], search["objective"]
            label = with_unit(status, [group], key)
            return Figure(group, key, _MODES[search["direction"]], label)
    return None


def label_of(run: Run, key: str) -> str:
    """Return a key of memos with its unit, if that is the same in all groups that publish it."""
    status, published = run.source.status, run.source.metrics.get("mean", {})
    groups = [group for group in status["groups"] if f"{group}-{key}" in published]
    return with_unit(status, groups or status["groups"], key)


def counts(run: Run) -> dict[str | None, int]:
    """Count jobs by outcome, from the status; None is active."""
    groups = run.source.status["groups"].values()
    found: dict[str | None, int] = {
        outcome: sum(group.get(outcome, 0) for group in groups) for outcome in OUTCOMES if outcome
    }
    found[None] = run.source.status["jobs"]["active"]
    return found


def _ended(found: Mapping[str | None, int]) -> int:
    """Count the attempts with an outcome of their own; interrupted ones have run again."""
    return sum(many for outcome, many in found.items() if outcome not in (None, "interrupted"))


def noun(run: Run) -> str:
    """Return the noun for outcomes: jobs, or attempts if some jobs were tried again."""
    finished = sum(group["finished"] for group in run.source.status["groups"].values())
    return "job" if _ended(counts(run)) == finished else "attempt"


def firings(run: Run) -> int:
    """Count how often rules fired; one that fires with several actions fires once."""
    return sum(rule["fired"] for rule in run.source.status.get("rules", ()))


def headline(run: Run, failures: Sequence[Failure]) -> str:
    """Return one sentence about what happened: to the jobs, and what else went wrong."""
    status: Any = run.source.status
    wrong = [*troubles.KINDS["rule"](status), *troubles.KINDS["search"](status), *_bad_end(status)]
    return "; ".join([_outcome(run, failures), *wrong]) + "."


def _bad_end(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield how an ensemble ended that has not completed."""
    reason = status["reason"]
    if status.get("resumable"):
        yield reason
        return
    how = {"canceled": "was canceled", "failed": "failed"}.get(status["state"])
    if how is not None:
        why = f": {reason}" if reason else ""
        yield (
            f"the ensemble was {reason}"
            if f"was {reason}".startswith(how)
            else f"the ensemble {how}{why}"
        )


def _outcome(run: Run, failures: Sequence[Failure]) -> str:
    """Return what became of the jobs."""
    found = counts(run)
    ended = _ended(found)
    bad = found["failed"] + found["timeout"]
    after = seconds(run.span)
    if not ended:
        return f"No job has ended in {after}"
    if not bad:
        good = "all of them succeeded" if found["success"] == ended else "none of them failed"
        return f"{plural(ended, noun(run))} ended in {after}, and {good}"
    most = failures[0] if failures else None
    why = f", most often in {most.group}: {most.reason}" if most else ""
    if noun(run) == "job":
        return f"{bad:,} of {plural(ended, 'job')} failed in {after}{why}"
    status: Any = run.source.status
    jobs = plural(sum(group["finished"] for group in status["groups"].values()), "job")
    tried = f"{bad:,} of {plural(ended, 'attempt')} did"
    if lost := troubles.failed_jobs(status):
        return f"{lost:,} of {jobs} failed in {after}{why}; {tried}"
    return f"{jobs} ended in {after}, and none of them failed at last; {tried}{why}"


def bar(counts: Mapping[str | None, int]) -> Markup:
    """Return the counts of outcomes as parts of a bar, with a legend in words."""
    total = sum(counts.values())
    here = [(outcome, count) for outcome, count in counts.items() if count]
    parts, x = [], 0.0
    for outcome, count in here:
        # Every part is wide enough to be seen.
        width = max(1.0, 100 * count / total)
        parts.append(
            h(
                "rect",
                x=f"{x:.3f}",
                y="0",
                width=f"{width:.3f}",
                height="10",
                class_=_class(outcome),
            )
        )
        x += width
    legend = [
        h(
            "li",
            h("span", "", class_=f"swatch {_class(outcome)}"),
            h("b", count),
            " ",
            OUTCOMES[outcome],
        )
        for outcome, count in here
    ]
    drawn = h(
        "svg.bar", parts, viewBox=f"0 0 {max(x, 1):.3f} 10", preserveAspectRatio="none",
        aria_hidden="true",
    )  # fmt: skip
    return Markup(drawn + h("ul.legend", legend))


def _class(outcome: str | None) -> str:
    return f"o-{outcome or 'active'}"


def cards(run: Run, failures: Sequence[Failure], usage: Usage | None) -> Markup:
    """Return the three most important facts."""
    return h(
        "div.cards",
        _card("What happened", _happened(run, usage)),
        _card("What failed, and why", _failed(run, failures)),
        _card("The best point", _best(run)),
    )


def _card(title: str, content: Child) -> Markup:
    return h("section.card", h("h3", title), content)


def _happened(run: Run, usage: Usage | None) -> Iterator[Markup]:
    status = run.source.status
    yield h("p.big", h("b", seconds(run.span)), h("span", f" {shown_state(status)}"))
    yield bar(counts(run))
    parts = [plural(firings(run), "firing") + " of rules"]
    again = run.jobs.again if run.jobs.count else status.get("retries")
    if again:
        parts.append(plural(again, "further attempt"))
    if run.jobs.replaced:
        parts.append(f"{plural(run.jobs.replaced, 'earlier attempt')} left out")
    away, undone = left_out(status)
    if away or undone:
        parts.append(f"it did not run for {seconds(away)}, which the times and charts leave out")
    if undone:
        jobs = sum(span.get("undone", 0) for span in status["absences"])
        parts.append(
            f"as they do the {seconds(undone)} before a crash, which undid the results of at least "
            f"{plural(jobs, 'job')}"
        )
    if usage is not None:
        parts.append(f"something ran on the nodes {usage.share(run.span):.0%} of the time")
    yield h("p.quiet", "; ".join(parts) + ".")
    used = _used(run, usage)
    if used:
        yield h("p.quiet", f"Used: {used}.")


def _used(run: Run, usage: Usage | None) -> str:
    """Return what the jobs used of nodes, cores and GPUs, in words; "" if that is unknown.

    Of nodes it is the time in which something ran on them, and of cores and GPUs what the jobs
    asked for, for as long as they ran.
    """
    used: list[tuple[float, str, str]] = []
    if usage is not None and usage.busy:
        used.append((sum(usage.busy.values()), "node", ""))
    for what, name in (("core", "core"), ("gpu", "GPU")):
        by_outcome = {out: many for (one, out), many in run.jobs.used.items() if one == what}
        whole = sum(by_outcome.values())
        if whole:
            lost = sum(by_outcome.get(outcome, 0.0) for outcome in ("failed", "timeout"))
            # What was used includes attempts that a rerun has replaced.
            who = "attempt" if run.jobs.replaced else noun(run)
            bad = f", {lost / whole:.0%} of them by {who}s that failed" if lost else ""
            if what == "core":
                bad += _busy(run)
            used.append((whole, name, bad))
    # In one unit, so that they can be compared.
    least = min((many for many, *_ in used), default=0.0)
    return "; ".join(f"{amount(many, name, least)}{bad}" for many, name, bad in used)


def _busy(run: Run) -> str:
    """Return how busy the jobs kept their cores, in words; "" if that is unknown."""
    uses = run.jobs.use.values()
    cores = sum(use.cores for use in uses)
    return f", kept busy {sum(use.cpu for use in uses) / cores:.0%} of the time" if cores else ""


def _failed(run: Run, failures: Sequence[Failure]) -> Iterator[Markup]:
    found = counts(run)
    bad = found["failed"] + found["timeout"]
    for search in run.source.status.get("searches", ()):
        if search["trouble"]:
            yield h("p", f"{search['trouble']}.")
    if not bad:
        yield h("p.big", h("b", "0"), h("span", " jobs"))
        yield h("p", "No job failed or ran out of time.")
        return
    ended = _ended(found)
    yield h("p.big", h("b", bad), h("span", f" of {plural(ended, noun(run))}"))
    if not failures:
        yield h("p", "The reasons are not recorded.")
        return
    first = failures[0]
    yield h("p", h("b", first.group), f": {first.reason}, {plural(first.jobs, first.noun)}")
    if first.lifts:
        lift = first.lifts[0]
        yield h("p", h("code", lift.words), f" is {lift.lift:.2g} times as frequent among them")
    elif first.points:
        yield h("p", "At ", [[h("code", point), " "] for point in first.points])
    if first.note:
        yield h("p.quiet", first.note)
    for one in first.written:
        alike = "" if one.jobs == first.read else f" ({first.share(one)})"
        yield h("p", h("code", one.tail[-1]), alike)
    if len(failures) > 1:
        yield h("p.quiet", f"{plural(len(failures) - 1, 'more reason')}: see below.")


def _best(run: Run) -> Iterator[Markup]:
    """Yield the best points of the status, and no others."""
    status = run.source.status
    points = [_best_job(best, run) for best in status.get("best", ())]
    points += [_best_trial(search, status) for search in status.get("searches", ())]
    if not points:
        yield h("p.big", h("b", NOTHING))
        yield h(
            "p.quiet",
            "The document keeps no best point: it has no entry 'best' under 'metrics', and no "
            "search.",
        )
    for point in points[:_POINTS]:
        yield from point
    if len(points) > _POINTS:
        yield h("p.quiet", f"There are {len(points) - _POINTS} more.")


def _best_job(best: Mapping[str, Any], run: Run) -> Iterator[Markup]:
    of = with_unit(run.source.status, [best["group"]], best["of"])
    what = f"{_WORDS[best['mode']]} {of}"
    if best["value"] is None:
        yield h("p.big", h("b", NOTHING), h("span", f" {what}"))
        yield h("p.quiet", f"No job of {best['group']} that succeeded has a value of {best['of']}.")
        return
    yield from _point(best, what)
    member, _, id = str(best["job"]).rpartition(":")
    context = {"member": member} if member else {}
    job = job_ids.shown(int(id), context, run.source.label)
    runs = ", which still runs" if best["running"] else ""
    yield h("p.quiet", f"Best {best['name']!r}: job {job} of {best['group']}{runs}.")


def _best_trial(search: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Markup]:
    name = f"search {search['id']!r}"
    if "front" in search:
        yield h("p.big", h("b", search["front_size"]), h("span", " in the Pareto front"))
        yield h("p.quiet", f"Of {name}: see below.")
        return
    of = with_unit(status, [search["group"]], search["objective"])
    what = f"{_WORDS[_MODES[search['direction']]]} {of}"
    if not search["best"]:
        yield h("p.big", h("b", NOTHING), h("span", f" {what}"))
        words = unfeasible(search, "")
        yield h("p.quiet", f"{name}: {words}." if words else f"No trial of {name} is complete.")
        return
    trial = search["best"][0]
    yield from _point(trial, what)
    yield h("p.quiet", f"Trial {trial['trial']} of {name}.")


def _point(point: Mapping[str, Any], what: str) -> Iterator[Markup]:
    yield h("p.big", h("b", number(point["value"])), h("span", f" {what}"))
    pairs = [(name, spelling(value)) for name, value in point["params"].items()]
    yield h("p", [[h("code", f"{name} = {value}"), " "] for name, value in pairs[:_PARAMS]])


def mode_of(direction: str) -> str:
    """Return the mode of a direction, "minimize" or "maximize"."""
    return _MODES[direction]


def extreme(mode: str, name: str) -> str:
    """Return the best value of something in words.

    >>> extreme("min", "loss")
    'lowest loss'
    """
    return f"{_WORDS[mode]} {name}"
