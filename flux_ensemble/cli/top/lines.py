"""The lines of the live view, for a given width.

Lines are spans of text with styles, so that plain text, rich and Textual display the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flux_ensemble.cli.display.progress import (
    Progress,
    bar_lines,
    details_of,
    name_room,
    percent,
    told_apart,
)
from flux_ensemble.cli.display.searches import search_line
from flux_ensemble.cli.display.tables import MEMBER_STYLES
from flux_ensemble.cli.top.picture import Picture
from flux_ensemble.client.responses import Entry, MemberStatus, RuleReason, Summary
from flux_ensemble.queues.local.continuation import Continuation
from flux_ensemble.report.texts import plural
from flux_ensemble.results.failures import FailureKind
from flux_ensemble.results.log_lines import explain
from flux_ensemble.words import STATE_STYLES, Line, Span, elapsed, in_words, shown_state

#: Longest label of an action in the line of a rule, on a terminal that is not wide.
LEAST_LABEL = 15

#: The width of lines that are not for a terminal.
ENDLESS = 10_000


def title(picture: Picture) -> Line:
    """Return the line about the chosen ensemble: its state, its time, and its progress."""
    status, whole = picture.status, picture.whole
    if status is None or whole is None:
        return (Span("no ensemble is loaded yet", "detail"),)
    state = shown_state(status)
    spans = [Span(status["name"], "name"), Span(": "), Span(state, STATE_STYLES.get(state, ""))]
    took = elapsed(status, picture.t)
    if took is not None:
        spans.append(Span(f" {'for' if status['t_end'] is None else 'after'} {in_words(took)}"))
    spans.append(Span(f", {whole.finished:,} of {whole.total:,} jobs ({percent(whole.share)})"))
    if whole.outlook is not None:
        spans.append(Span(f", {whole.outlook}"))
    if status.get("reason"):
        spans.append(Span(f": {status['reason']}", "detail"))
    waits = status.get("waits", ())
    if waits:
        more = f" (and {len(waits) - 1} more: see status)" if len(waits) > 1 else ""
        spans.append(Span(f"; {waits[0]['text']}{more}", "warn"))
    return tuple(spans)


def ensemble_lines(
    summaries: Sequence[Summary], now: float, chosen: str | None, width: int, ascii_only: bool
) -> list[Line]:
    """Return a line for each ensemble; the chosen one is marked."""
    labels = _labels([summary["name"] for summary in summaries], width, ascii_only)
    mark = ">" if ascii_only else "▸"
    lines = []
    for summary, label in zip(summaries, labels, strict=True):
        name, state, seconds = summary["name"], shown_state(summary), elapsed(summary, now)
        took = "" if seconds is None else in_words(seconds)
        spans = [
            Span(f"{mark if name == chosen else ' '} {label} ", "name"),
            Span(f"{state:<9}", STATE_STYLES.get(state, "")),
            Span(f" {took:>8}  {summary['finished']:,} finished"),
        ]
        if failed := summary.get("failed"):
            spans.append(Span(f", {failed:,} failed", "bad"))
        for key in ("active", "waiting"):
            if summary[key]:
                spans.append(Span(f", {summary[key]:,} {key}", "detail"))
        if summary.get("reason"):
            spans.append(Span(f"  {summary['reason']}", "detail"))
        lines.append(tuple(spans))
    return lines


def group_lines(groups: Sequence[Progress], width: int, ascii_only: bool) -> list[Line]:
    """Return a line with a bar for each group."""
    return bar_lines(groups, width, ascii_only=ascii_only)


def _labels(names: Sequence[str], width: int, ascii_only: bool) -> list[str]:
    """Return names as a column of a terminal of `width` columns."""
    labels = told_apart(names, name_room(width), ascii_only)
    longest = max(map(len, labels), default=0)
    return [f"{label:<{longest}}" for label in labels]


def search_lines(
    searches: Sequence[Mapping[str, Any]], status: Mapping[str, Any], width: int, ascii_only: bool
) -> list[Line]:
    """Return a line for each search: its progress, the best so far, and what matters."""
    labels = _labels([search["id"] for search in searches], width, ascii_only)
    return [
        search_line(search, status, label) for search, label in zip(searches, labels, strict=True)
    ]


def rule_lines(rules: Sequence[RuleReason], now: float, width: int, ascii_only: bool) -> list[Line]:
    """Return a line for each rule: its actions, its firings, and when it can fire next."""
    names = [action for rule in rules for action in rule["actions"]]
    actions = dict(zip(names, _actions(names, width, ascii_only), strict=True))
    labels = _labels([rule["id"] for rule in rules], width, ascii_only)
    return [
        _rule_line(rule, now, label, [actions[action] for action in rule["actions"]])
        for rule, label in zip(rules, labels, strict=True)
    ]


def _actions(actions: Sequence[str], width: int, ascii_only: bool) -> list[str]:
    """Return actions with labels of limited length.

    >>> _actions(["submit equilibrate-at-280K", "submit equilibrate-at-290K", "quit"], 80, True)
    ['submit equilib..t-280K', 'submit equilib..t-290K', 'quit']
    """
    words = [action.partition(" ") for action in actions]
    room = max(LEAST_LABEL, name_room(width) // 2)
    labels = told_apart([label for _, _, label in words], room, ascii_only)
    return [f"{verb}{space}{label}" for (verb, space, _), label in zip(words, labels, strict=True)]


def _rule_line(rule: RuleReason, now: float, label: str, actions: Sequence[str]) -> Line:
    left = "" if rule["left"] is None else f" of {rule['fired'] + rule['left']}"
    text, style = chance(rule, now)
    return (
        Span(f"{label}  ", "name"),
        Span(", ".join(actions), "trigger"),
        Span(f"  fired {rule['fired']:,}{left}  "),
        Span(text, style),
    )


def chance(rule: RuleReason, now: float) -> tuple[str, str]:
    """Return when a rule can fire next, in words, and their style."""
    if rule["error"]:
        return rule["error"].splitlines()[0], "bad"
    if not rule["enabled"]:
        return "disabled", "warn"
    if rule["never"]:
        return f"never again: {rule['never']}", "detail"
    if rule["t_cooldown"] is not None and rule["t_cooldown"] > now:
        return f"not before {in_words(rule['t_cooldown'] - now)} from now", "detail"
    if rule["t_next"] is not None:
        return f"due in {in_words(rule['t_next'] - now)}", "action"
    for term in rule["terms"]:
        if term["holds"] is False:
            values = ", ".join(
                f"{name} is {'empty' if value is None else f'{value:.4g}'}"
                for name, value in term["values"].items()
            )
            return f"when {term['text']}" + f" ({values})" * bool(values), "action"
    return rule["waits"] or f"at the next {rule['trigger']}", "action"


def member_lines(
    members: Sequence[MemberStatus],
    runs: Mapping[str, str],
    now: float,
    width: int,
    ascii_only: bool,
) -> list[Line]:
    """Return a line for each member: its state, size, number of jobs, and time left.

    `runs` says what the jobs of a member are, by its name: "jobs" of Flux, or "tasks".
    """
    labels = _labels([member["name"] for member in members], width, ascii_only)
    return [
        _member_line(member, runs[member["name"]], now, label)
        for member, label in zip(members, labels, strict=True)
    ]


def _member_line(member: MemberStatus, runs: str, now: float, label: str) -> Line:
    parts = [
        plural(number, noun)
        for number, noun in ((member["nodes"], "node"), (member["cores"], "core"))
        if number is not None
    ]
    parts.append(plural(member["jobs"], runs.removesuffix("s")))
    if member["t_expires"] is not None:
        parts.append(f"{in_words(member['t_expires'] - now)} left")
    state = member["state"]
    spans = [
        Span(f"{label}  ", "name"),
        Span(f"{state:<8}", MEMBER_STYLES.get(state, "")),
        Span(f"  {', '.join(parts)}"),
    ]
    if member["reason"]:
        spans.append(Span(f"  {member['reason']}", "detail"))
    return tuple(spans)


def failure_lines(kinds: Sequence[FailureKind], width: int, ascii_only: bool) -> list[Line]:
    """Return a line about each kind of failures: number of jobs, group, reason, and place."""
    names = [kind.group for kind in kinds]
    labels = told_apart(names, name_room(width), ascii_only)
    return [_failure_line(kind, label) for kind, label in zip(kinds, labels, strict=True)]


def _failure_line(kind: FailureKind, label: str) -> Line:
    spans = [
        Span(f"{kind.jobs:,} ", "bad"),
        Span(f"{label} ", "name"),
        Span(kind.reason, "bad"),
    ]
    if kind.ranks:
        most = ", ".join(ranks for ranks, _ in kind.ranks.most_common(3))
        spans.append(Span(f"  ranks {most}" + ", ..." * (len(kind.ranks) > 3), "detail"))
    if note := kind.example["exception"]["note"]:
        spans.append(Span(f"  {note}", "detail"))
    return tuple(spans)


def log_line(entry: Entry, t_log: float | None, label: Callable[[int], str]) -> Line:
    """Return an entry of the log as one line, with the time as in `log`."""
    line = explain(entry, entry["timestamp"] if t_log is None else t_log, label)
    return tuple(span._replace(text=span.text.replace("\n", " ")) for span in line)


def plain_view(picture: Picture, label: Callable[[int], str]) -> list[Line]:
    """Return all of a picture, for `--once`: a paragraph for each part, with a heading."""
    status = picture.status
    lines: list[Line] = [title(picture)]
    if picture.trouble:
        lines.append((Span(picture.trouble, "warn"),))
    if len(picture.ensembles) > 1:
        lines += [(), _heading("Ensembles")]
        lines += ensemble_lines(picture.ensembles, picture.t, picture.name, ENDLESS, True)
    if status is None:
        return lines
    if picture.groups:
        lines += [(), _heading("Groups")]
        for group in picture.groups:
            done = f"{group.finished:,} of {group.total:,} finished"
            words = [f"{group.name}: {done} ({percent(group.share)})"]
            if group.outlook is not None:
                words.append(group.outlook)
            details = details_of(group.counts)
            more = (Span(", "), *details) if details else ()
            lines.append((Span(f"  {', '.join(words)}"), *more))
    for name, found in (
        ("Searches", search_lines(picture.searches, status, ENDLESS, True)),
        ("Members", member_lines(picture.members, picture.runs, picture.t, ENDLESS, True)),
        ("Rules", rule_lines(picture.rules, picture.t, ENDLESS, True)),
        ("Failures", failure_lines(picture.failures, ENDLESS, True)),
        ("Log", [log_line(entry, picture.t_log, label) for entry in list(picture.log)[-10:]]),
    ):
        if found:
            lines += [(), _heading(name)]
            lines += [(Span("  "), *line) for line in found]
    again: Any = status.get("again")
    if status.get("resumable") and again:
        command, what = Continuation(**again).advice(status["name"])
        lines += [(), (Span(f"{command}  {what}"),)]
    return lines


def _heading(text: str) -> Line:
    return (Span(text, "name"),)


def clock(t: float) -> str:
    """Return the time of day."""
    return time.strftime("%H:%M:%S", time.localtime(t))
