"""The sections of a report on one ensemble: tables for every reader, and placeholders of charts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from flux_ensemble import job_ids
from flux_ensemble.metrics.names import STREAMS
from flux_ensemble.metrics.statistics import ESTIMATED, ESTIMATES
from flux_ensemble.metrics.units import with_unit
from flux_ensemble.report.files import Files, reference
from flux_ensemble.report.gather import Run
from flux_ensemble.report.markup import Child, Markup, h, meter, pre, table
from flux_ensemble.report.members import members
from flux_ensemble.report.searches import importance_of, searches
from flux_ensemble.report.source import Failure
from flux_ensemble.report.summary import Figure, firings, label_of, noun
from flux_ensemble.report.texts import (
    MAX_TEXT,
    NOTHING,
    memory,
    number,
    numbers,
    plural,
    seconds,
    shown,
    spelling,
)
from flux_ensemble.report.usage import Usage

#: Rows of a table, in all ensembles of a page.
MOST_ROWS = 36


@dataclass
class Content:
    """The data of a report's part on one ensemble.

    Args:
        run: its jobs and its log.
        failures: reasons of failures, the most frequent first.
        statistics: the headings and the rows of the table of metrics.
        files: makes references to the output of jobs.
        document: its text; None if unknown.
        figure: by which points are compared.
        logarithmic: whether parameters were chosen by their order of magnitude, if known.
        usage: of the nodes; None if unknown.
        simulated: another run of the same document, to compare with.
        seed: of the document.
        rows: most rows of a table.
    """

    run: Run
    failures: list[Failure]
    statistics: tuple[list[str], list[list[str]]]
    files: Files
    document: str | None
    figure: Figure | None
    usage: Usage | None
    simulated: Run | None = None
    seed: Any = None
    logarithmic: Mapping[str, bool] = field(default_factory=dict)
    rows: int = MOST_ROWS
    left_out: list[str] = field(default_factory=list)

    def first(self, rows: Sequence[Any], what: str) -> Sequence[Any]:
        """Return the rows within the limit; note that others are left out."""
        if len(rows) > self.rows:
            self.left_out.append(f"of {len(rows):,} {what} the first {self.rows} are shown")
        return rows[: self.rows]


def sections(content: Content, key: str) -> Iterator[Markup]:
    """Yield all sections but the first; `key` begins the ids of their elements."""
    run = content.run
    made: Iterable[tuple[str, str, Child]] = (
        ("time", "Time line", _time_line(content, key)),
        ("course", "Course", _course(content, key)),
        ("members", "Members", members(run.members, run.begin, run.end, content.rows)),
        ("failures", "Failures", _failures(content)),
        ("searches", "Searches", searches(content.run, key)),
        ("sweep", "Parameters and points", _sweep(content, key)),
        ("groups", "Groups", _groups(content)),
        ("statistics", "Statistics", _statistics(content, key)),
        ("rules", "Rules", _rules(content)),
        ("jobs", "Jobs", _jobs(content, key)),
        ("log", "Log", _log(content)),
        ("document", "Document", _document(content)),
    )
    for name, title, children in made:
        inside = list(children)  # type: ignore[arg-type]
        if inside:
            yield h(
                "section.part",
                h("h3", title, id=f"{key}-{name}-title"),
                inside,
                id=f"{key}-{name}",
                aria_labelledby=f"{key}-{name}-title",
            )


def _chart(key: str, name: str, title: str, summary: Child) -> Markup:
    """Return the placeholder of a chart, which a script fills, and its summary in words."""
    return h(
        "figure.figure",
        h("h4.charted", title),
        h("div.chart", data_chart=name, data_title=title, aria_describedby=f"{key}-{name}-text"),
        h("figcaption", summary, id=f"{key}-{name}-text"),
    )


def _time_line(content: Content, key: str) -> Iterator[Markup]:
    run = content.run
    if not run.jobs.count and not firings(run):
        yield h("p", "There are no jobs in the record, and no rule has fired.")
        return
    nodes = content.usage.nodes if content.usage else 0
    where = f" on {plural(nodes, 'node')}" if nodes else ""
    bad = sum(
        n for (_, outcome), n in run.jobs.outcomes.items() if outcome in ("failed", "timeout")
    )
    jobs, replaced = run.jobs.count, run.jobs.replaced
    those = f"the {plural(jobs - replaced, noun(run))}" if replaced else "them"
    failed = f"{bad:,} of {those} failed or ran out of time" if bad else f"none of {those} failed"
    summary = (
        f"{numbers(jobs, replaced, noun(run))}{where} and {plural(firings(run), 'firing')} in "
        f"{seconds(run.span)}; {failed}."
    )
    yield _chart(key, "timeline", "Jobs by node, and firings of rules, over time", summary)


def _course(content: Content, key: str) -> Iterator[Markup]:
    run = content.run
    if not run.jobs.count:
        return
    mean = run.jobs.seconds / run.span if run.span else 0.0
    text = f"On average {mean:,.{0 if mean >= 100 else 1}f} jobs ran at a time"
    if content.usage is not None:
        text += (
            f", and something ran on {plural(content.usage.nodes, 'node')} "
            f"{content.usage.share(run.span):.0%} of the time"
        )
    if run.source.size is not None:
        nodes, cores = run.source.size
        text += f"; the cluster has {plural(nodes, 'node')} of {plural(cores, 'core')}"
    yield _chart(key, "running", "Jobs that run and wait", text + ".")
    ended = sum(count for (_, outcome), count in run.jobs.outcomes.items() if outcome)
    text = f"{plural(ended, noun(run))} had ended after {seconds(run.span)}"
    if content.simulated is not None:
        text += f"; in the simulation after {seconds(content.simulated.span)} (dashed lines)"
    yield _chart(key, "progress", "Jobs that have ended", text + ".")
    if content.simulated is not None:
        yield _compared(run, content.simulated)


def _compared(run: Run, simulated: Run) -> Markup:
    groups = [*run.source.status["groups"]]

    def mean(of: Run, group: str) -> str:
        found = of.jobs.durations.get(group)
        return seconds(fmean(found)) if found else NOTHING

    rows: list[list[Child]] = [
        ["all: from begin to end", seconds(run.span), seconds(simulated.span)]
    ]
    rows += [
        [f"{group}: mean of a job", mean(run, group), mean(simulated, group)] for group in groups
    ]
    return table(
        "What was, and what the simulation said", ["", "actual", "simulated"], rows[:MOST_ROWS],
        numeric=(1, 2),
    )  # fmt: skip


def _failures(content: Content) -> Iterator[Markup]:
    failures = content.failures
    if not failures:
        yield h("p", "No job in the record has failed or run out of time.")
        return
    if any(failure.lifts for failure in failures):
        yield h(
            "p.quiet",
            "Lift: the value's share among these failed jobs, divided by its share among all jobs "
            "of the group that have ended.",
        )
    for failure in content.first(failures, "reasons")[:12]:
        many = h("span.count", plural(failure.jobs, failure.noun))
        yield h(
            "article.failure",
            h("h4", h("b", failure.group), f": {failure.reason} ", many),
            _lifts(failure),
            _points(failure),
            h("p", failure.note) if failure.note else None,
            h("p.quiet", f"Ranks: {failure.where}") if failure.where else None,
            [
                [
                    h("p.quiet", _sentence(words)),
                    pre(one.tail),
                    _output(content, one.file),
                ]
                for one, words in failure.wrote()
            ],
            h("p.quiet", f"{_sentence(failure.others)}.") if failure.others else None,
            h("p.quiet", f"Job {failure.example}: {failure.missing}.") if failure.missing else None,
            None if failure.written else _output(content, failure.file),
            h("p", h("code", failure.command)) if failure.command else None,
        )  # fmt: skip
    rest = failures[12:]
    if rest:
        yield table(
            "Further reasons",
            ["Group", "Reason", "Jobs"],
            [[one.group, one.reason, one.jobs] for one in content.first(rest, "further reasons")],
            numeric=(2,),
        )


def _output(content: Content, path: str | None) -> Markup | None:
    file = content.files.of(path)
    return h("p.quiet", "Its output: ", reference(file)) if file else None


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _points(failure: Failure) -> Markup | None:
    if not failure.points:
        return None
    title = "Point: " if len(failure.points) == 1 else "Points: "
    return h("p", title, [[h("code", point), " "] for point in failure.points])


def _lifts(failure: Failure) -> Markup | None:
    if not failure.lifts:
        return None
    items = []
    for one in failure.lifts:
        share = one.failed / one.ended if one.ended else 0.0
        many = f"{one.failed:,} of {plural(one.ended, failure.noun)}"
        words = f" {many} failed so, lift {one.lift:.2g}"
        items.append(h("li", meter(share, "o-failed"), h("code", one.words), words))
    return h("ul.lifts", items)


def _sweep(content: Content, key: str) -> Iterator[Markup]:
    run, figure = content.run, content.figure
    params = list(run.jobs.params)
    if not params and figure is None:
        return
    best = run.jobs.points.first(figure.group, figure.key, figure.mode) if figure else []
    constrained = figure is not None and run.jobs.infeasible_by(figure.group, figure.key)
    # Other groups may have parameters that these jobs do not have.
    names = list(dict.fromkeys(name for job in best for name in job["params"]))[:8]
    if params:
        # As the chart begins: see `parallel.js`.
        what = (
            figure.words
            if figure
            else f"lowest {label_of(run, next(iter(run.jobs.points.keys), 'runtime'))}"
        )
        yield _chart(
            key,
            "parallel",
            "Parameters of the jobs",
            [
                f"Each line is a job, through its values of {', '.join(names or params[:8])}; the "
                "strongest lines are jobs that succeeded with the ",
                h("span.compared", what),
                ". Dashed lines are jobs that failed.",
                f" Compared by {figure.label}, infeasible trials are pale."
                if figure and constrained
                else "",
            ],
        )
    if figure is None:
        # The number of the chart: the document says nothing about what is good, and this neither.
        first = next(iter(run.jobs.points.keys), None)
        searched = {one["group"] for one in run.source.status.get("searches", ())}
        for group in run.source.status["groups"]:
            if first is not None and group not in searched:
                yield from importance_of(run, key, group, first, None)
        return
    files = _files(content, best)
    rows = [
        [
            job_ids.shown(job["id"], job, run.source.label),
            job["group"],
            number(job["memo"][figure.key]),
            *(spelling(job["params"].get(name, "")) for name in names),
            *file,
        ]
        for job, file in zip(best, files, strict=True)
    ]
    yield h(
        "div",
        table(
            f"Jobs {'of feasible trials' if constrained else 'that succeeded'} with the "
            f"{figure.words}",
            ["Job", "Group", figure.label, *names, *["Output"] * any(files)],
            rows,
            numeric=range(2, 3 + len(names)),
        ),
        data_first=True,
    )  # fmt: skip
    objectives = [(one["group"], one["objective"]) for one in run.source.status.get("searches", ())]
    if (figure.group, figure.key) not in objectives:
        yield from importance_of(run, key, figure.group, figure.key, figure.mode)


def _groups(content: Content) -> Iterator[Markup]:
    groups = content.run.source.status["groups"]
    always = ("submitted", "success", "failed")
    columns = [
        column
        for column in (
            "submitted",
            "waiting",
            "pending",
            "running",
            "success",
            "failed",
            "timeout",
            "canceled",
            "interrupted",
        )
        if column in always or any(found.get(column) for found in groups.values())
    ]
    rows = []
    for name, found in content.first(list(groups.items()), "groups"):
        times = sorted(content.run.jobs.durations.get(name, ()))
        quantiles = [_quantile(times, share) for share in (0.0, 0.5, 0.95, 1.0)]
        rows.append([name, *(found.get(column, 0) for column in columns), *map(seconds, quantiles)])
    if rows:
        headings = ["Group", *(column.capitalize() for column in columns)]
        yield table(
            "Jobs of each group by outcome, and how long those ran that succeeded",
            [*headings, "Least", "Median", "95 %", "Most"], rows,
            numeric=range(1, len(columns) + 5),
        )  # fmt: skip
    yield from _use(content)


def _use(content: Content) -> Iterator[Markup]:
    """Yield what the jobs of each group used of processors and memory, if that is known."""
    use = content.run.jobs.use
    rows = [
        [
            name,
            f"{of.jobs:,}",
            seconds(of.cpu),
            seconds(of.cpu / of.jobs),
            seconds(of.most_cpu),
            NOTHING if of.efficiency is None else f"{of.efficiency:.0%}",
            memory(of.rss / of.jobs),
            memory(of.most_rss),
        ]
        for name, of in content.first(list(use.items()), "groups with their use")
    ]
    if rows:
        yield table(
            "Processor time and peak memory of the jobs of each group",
            ["Group", "Jobs", "Processor time", "Mean", "Most", "Efficiency", "Mean memory",
             "Most memory"], rows,
            numeric=range(1, 8),
        )  # fmt: skip


def _quantile(values: Sequence[float], share: float) -> float | None:
    """Return a quantile of values in order, between two of them in proportion.

    >>> _quantile([1.0, 2.0, 4.0, 8.0], 0.5), _quantile([1.0, 3.0, 9.0], 1.0), _quantile([], 0.5)
    (3.0, 9.0, None)
    """
    if not values:
        return None
    below = share * (len(values) - 1)
    lower, upper = values[math.floor(below)], values[math.ceil(below)]
    return lower + (upper - lower) * (below - math.floor(below))


def _statistics(content: Content, key: str) -> Iterator[Markup]:
    if content.run.jobs.count:
        text = "How often each value occurred; choose what and of which group above the chart."
        yield _chart(key, "histogram", "Distribution", text)
    headings, rows = content.statistics
    if rows:
        # Rules compare the number, so this is what is shown.
        shown_rows = [
            [
                group,
                f"{variable}\N{NO-BREAK SPACE}(s)"
                if variable.partition("[")[0] in STREAMS
                else with_unit(content.run.source.status, [group], variable),
                *values,
            ]
            for group, variable, *values in content.first(rows, "statistics")
        ]
        yield table(
            "Statistics that rules can read", headings, shown_rows,
            numeric=range(2, len(headings)),
        )  # fmt: skip
        if not set(ESTIMATED).isdisjoint(headings):
            yield h("p.quiet", ESTIMATES)


def _rules(content: Content) -> Iterator[Markup]:
    status, why = content.run.source.status, content.run.source.why
    rules: Sequence[Mapping[str, Any]] = status.get("rules", [])
    rows: list[Sequence[Child]] = []
    for rule in content.first(rules, "rules"):
        reason = why.get(rule["id"], {})
        most = rule["repetitions"]
        rows.append(
            [
                rule["id"],
                rule["trigger"],
                ", ".join(rule["actions"]),
                f"{rule['fired']:,}" + ("" if most is None else f" of {most:,}"),
                "" if rule["enabled"] else "disabled",
                (rule["error"] or "").partition("\n")[0]
                or reason.get("never")
                or reason.get("waits")
                or "",
            ]
        )
    if rows:
        yield table(
            "What each rule did", ["Rule", "Trigger", "Action", "Fired", "State", "Why not again"],
            rows, numeric=(3,),
        )  # fmt: skip
    for error in status.get("errors", [])[:5]:
        yield pre(error.splitlines())


def _files(content: Content, jobs: Sequence[Mapping[str, Any]]) -> list[list[Child]]:
    """Return the cell with the output of each job; no cells if there are no files."""
    virtual = content.run.source.virtual
    found = [None if virtual else content.files.of(job["output"]) for job in jobs]
    return [[reference(one)] if any(found) else [] for one in found]


def _jobs(content: Content, key: str) -> Iterator[Markup]:
    run = content.run
    if not run.jobs.count:
        return
    label = run.source.label
    files = _files(content, run.jobs.first)
    rows = [
        [
            job_ids.shown(job["id"], job, label),
            job["group"],
            job["outcome"] or job["state"],
            seconds(job["runtime"]),
            "" if job["returncode"] is None else str(job["returncode"]),
            " ".join(f"{name}={spelling(value)}" for name, value in job["params"].items()),
            " ".join(
                f"{with_unit(run.source.status, [job['group']], name)}={number(value)}"
                for name, value in job["memo"].items()
            ),
            *file,
        ]
        for job, file in zip(run.jobs.first, files, strict=True)
    ]
    yield h(
        "div",
        table(
            f"{numbers(run.jobs.count, run.jobs.replaced, noun(run))}, in the order of their ends"
            + (f"; the first {len(rows)}" if len(rows) < run.jobs.count else ""),
            ["Job", "Group", "Outcome", "Runtime", "Exit code", "Parameters", "Memo"]
            + ["Output"] * any(files),
            rows[: max(5, content.rows)],
            numeric=(3, 4),
        ),
        data_jobs=True,
    )


def _log(content: Content) -> Iterator[Markup]:
    log = content.run.log
    if not log.count:
        return
    head, tail = log.head, log.tail
    left = log.count - len(head) - len(tail)
    lines = [*head, *([f"... {left:,} entries left out ..."] if left else []), *tail]
    yield h(
        "details",
        h("summary", f"{plural(log.count, 'entry').replace('entrys', 'entries')}"),
        pre(lines, tabindex="0"),
    )


def _document(content: Content) -> Iterator[Markup]:
    run = content.run
    facts = [
        *run.source.facts.items(),
        *([("Seed", str(content.seed))] if content.seed is not None else []),
        (
            "SHA-256 of the log",
            f"{run.log.digest.text} ({run.log.digest.count:,} entries of the engine)",
        ),
    ]
    yield h("dl.facts", [[h("dt", name), h("dd", value)] for name, value in facts])
    if content.document is not None:
        text = content.document
        if len(text) > MAX_TEXT:
            content.left_out.append(f"of the document the first {MAX_TEXT:,} characters are shown")
            text = text[:MAX_TEXT]
        yield h("details", h("summary", "The document"), pre(text.splitlines(), tabindex="0"))
    notes = [*run.notes, *content.left_out]
    if notes:
        yield h("p", "What is not in this report:")
        yield h("ul", [h("li", shown(note)) for note in notes])
