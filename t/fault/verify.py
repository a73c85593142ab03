"""Holds what an ensemble did against what was expected, by what the queue says of its jobs."""

from __future__ import annotations

import math
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from witness import Job
from workloads import Expected, Tag

OUTCOMES = ("success", "failed", "canceled", "timeout", "interrupted")

#: By which exceptions a job ends without any doing of its own, as the queues spell them.
_INTERRUPTING = (("lost", ""), ("member-lost", ""), ("exec", "node failure on "),
                 ("exec", "failed to create guest ns"),
                 ("cancel", "its run was interrupted"))  # fmt: skip

#: How far sums that were added in another order may be apart.
_TOLERANCE = 1e-6


@dataclass
class Findings:
    """What is wrong.

    Args:
        duplicates: jobs with a tag that an earlier job has.
        missing: jobs that were expected and are not there.
        problems: a sentence for each thing that is wrong.
    """

    duplicates: int = 0
    missing: int = 0
    problems: list[str] = field(default_factory=list)

    def expect(self, wanted: Any, found: Any, what: str) -> None:
        """Note a problem unless the two are equal."""
        if wanted != found:
            self.problems.append(f"{what}: expected {wanted!r}, found {found!r}")


def check_tags(
    expected: Expected, jobs: Iterable[Job], findings: Findings, *, purged: bool = False
) -> None:
    """Every expected job is there, and none twice.

    Args:
        purged: jobs may not have been sent that might have been there and were purged.
    """
    tags: Counter[Tag] = Counter()
    retried: Counter[Tag] = Counter()
    copies: Counter[tuple[str, int]] = Counter()
    interrupted: Counter[tuple[str, int]] = Counter()
    runs = set()
    for job in jobs:
        assert job.tag is not None
        runs.add(job.tag["run"])
        tag = (job.tag["group"], job.tag["rule"], job.tag["firing"], job.tag["index"])
        if expected.copied.get(tag[1]) == tag[0]:
            copies[tag[0], tag[3]] += 1
            continue
        (retried if tag[1] == "retry" else tags)[tag] += 1
        interrupted[tag[0], tag[3]] += is_interrupted(job)
    if len(runs) > 1:
        findings.problems.append(f"jobs of {len(runs)} runs: {sorted(runs)}")
    twice = {tag: count for tag, count in (tags + retried).items() if count > 1}
    findings.duplicates += sum(twice.values()) - len(twice)
    _list(findings, twice, "tags twice")
    more = [key for key, count in copies.items() if count > 1]
    _list(findings, more, "jobs with more than one copy")
    wanted = expected.tags()
    # What was interrupted runs again.
    wanted_again = expected.retried()[1] + interrupted
    again = Counter((tag[0], tag[3]) for tag in retried.elements())
    missing = [*sorted(wanted - tags.keys()), *sorted((wanted_again - again).elements())]
    if not purged:
        findings.missing += len(missing)
        _list(findings, missing, "missing tags")
    # Nobody saw what became of those that were purged: they run again.
    more_again = [] if purged else sorted((again - wanted_again).elements())
    _list(findings, [*sorted(tags.keys() - wanted), *more_again], "unexpected tags")


def _list(findings: Findings, tags: Iterable[Any], what: str) -> None:
    found = list(tags)
    if found:
        shown = ", ".join(map(str, found[:5])) + (", ..." if len(found) > 5 else "")
        findings.problems.append(f"{len(found)} {what}: {shown}")


def check_log(expected: Expected, entries: Sequence[Mapping[str, Any]], findings: Findings) -> None:
    """No intent is there twice, every firing is, and the log begins and ends once."""
    fires = [one["context"] for one in entries if one["name"] == "fire"]
    intents = Counter((one["rule"], one["firing"]) for one in fires)
    _list(findings, [key for key, count in intents.items() if count > 1], "intents twice")
    by_rule = Counter(rule for rule, _ in intents if rule not in expected.copied)
    findings.expect(expected.fires(), dict(by_rule), "firings by rule")
    last = ("outcome",) if expected.patient else ("outcome", "custom-error")
    outcomes = Counter(
        (one["context"]["rule"], one["context"]["firing"]) for one in entries if one["name"] in last
    )
    _list(findings, [key for key, count in outcomes.items() if count > 1], "outcomes twice")
    # A copy that is not needed any more before it was sent has none.
    open_ = {key for key in intents.keys() - outcomes.keys() if key[0] not in expected.copied}
    _list(findings, open_, "firings without an outcome")
    names = Counter(one["name"] for one in entries)
    for name in ("load", "start", "finish"):
        findings.expect(1, names[name], f"entries {name!r}")
    violations = names["violation"]
    findings.expect(0, violations, "violations in the log")


def mark_beaten(expected: Expected, jobs: Iterable[Job]) -> None:
    """Of a job and its copy the first to succeed counts; the other is canceled in any case."""
    works: dict[tuple[str, int], list[Job]] = defaultdict(list)
    for job in jobs:
        if job.tag is not None and job.tag["group"] in expected.copied.values():
            works[job.tag["group"], job.tag["index"]].append(job)
    for same in works.values():
        ends = [(finish[0], job.id) for job in same if (finish := job.first("finish"))
                and finish[1].get("status") == 0]  # fmt: skip
        for job in same:
            job.beaten = bool(ends) and job.id != min(ends)[1]


def fold(
    jobs: Iterable[Job], absences: Sequence[tuple[float, float]] = ()
) -> tuple[dict[str, Counter[str]], dict[str, dict[str, list[float]]]]:
    """Counts by group, and the values of its streams, out of the events of its jobs.

    Args:
        jobs: of one ensemble.
        absences: spans in which nothing was there that ran jobs, so that none waited for nodes.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for job in jobs:
        assert job.tag is not None
        group = job.tag["group"]
        counts[group]["submitted"] += 1
        submit, start, finish = (job.first(name) for name in ("submit", "start", "finish"))
        if submit and start:
            away = [min(until, start[0]) - max(since, submit[0]) for since, until in absences]
            waited = start[0] - submit[0] - sum(max(0.0, span) for span in away)
            values[group]["pending"].append(max(0.0, waited))
        if start and finish and _outcome(job, finish) == "success":
            values[group]["duration"].append(max(0.0, finish[0] - start[0]))
        if finish or job.first("clean"):
            counts[group]["attempts"] += 1
            counts[group]["finished"] += 1
            counts[group][_outcome(job, finish)] += 1
        if job.tag["rule"] == "retry" or job.beaten:
            # The attempt before it was not the last of its job; or this one was not.
            counts[group]["finished"] -= 1
    return counts, values


def is_interrupted(job: Job) -> bool:
    """Whether the end of a job was no doing of its own, by its first fatal exception."""
    finish = job.first("finish")
    if job.beaten or (finish is not None and finish[1].get("status") == 0):
        return False
    for name, _, context in job.events:
        if name == "exception" and not context.get("severity"):
            kind, note = context.get("type"), str(context.get("note") or "")
            return any(kind == one and note.startswith(begin) for one, begin in _INTERRUPTING)
    return False


def _outcome(job: Job, finish: tuple[float, Mapping[str, Any]] | None) -> str:
    if job.beaten:
        return "canceled"
    if finish is not None and finish[1].get("status") == 0:
        return "success"
    if is_interrupted(job):
        return "interrupted"
    end = math.inf if finish is None else finish[0]
    kinds = {
        context.get("type") for name, t, context in job.events if name == "exception" and t <= end
    }
    return "timeout" if "timeout" in kinds else "canceled" if "cancel" in kinds else "failed"


def check_metrics(
    jobs: list[Job],
    metrics: Mapping[str, Any],
    findings: Findings,
    absences: Sequence[tuple[float, float]] = (),
) -> None:
    """Counts and statistics are those of a fold over the jobs from scratch."""
    counts, values = fold(jobs, absences)
    for group, told in metrics["count"].items():
        ours = counts[group]
        for counter, number in told.items():
            if counter != "gave-up":
                findings.expect(ours[counter], number, f"count.{group}.{counter}")
        # Which of the jobs that ended badly could not run again is in the document alone.
        if not 0 <= told["gave-up"] <= ours["finished"] - ours["success"]:
            findings.problems.append(f"count.{group}.gave-up is {told['gave-up']}")
        for variable, stream in values[group].items():
            ours_by_name = {
                "mean": math.fsum(stream) / len(stream),
                "max": max(stream),
                "min": min(stream),
                "variance": _variance(stream),
            }
            for statistic, value in ours_by_name.items():
                path = f"{group}-{variable}"
                told_value = metrics[statistic].get(path)
                if told_value is None or not math.isclose(
                    value, told_value, rel_tol=_TOLERANCE, abs_tol=1e-9
                ):
                    findings.expect(value, told_value, f"{statistic}.{path}")


def _variance(values: list[float]) -> float:
    """As River has it: of a sample, and 0 of one value."""
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def check_sums(
    expected: Expected, jobs: list[Job], metrics: Mapping[str, Any], findings: Findings
) -> None:
    """Where jobs were lost by the fault: every job is counted, and has exactly one outcome."""
    of_group = Counter(tag[0] for tag in expected.tags())
    wanted = of_group + expected.retried()[0]
    counts, _ = fold(jobs)
    for group, told in metrics["count"].items():
        ours = counts[group]
        # Those that were expected to be are among the others that run again.
        more = told["interrupted"] - expected.interrupted.get(group, 0) * of_group[group]
        attempts = wanted[group] + more
        findings.expect(attempts, told["submitted"], f"count.{group}.submitted")
        findings.expect(attempts, told["attempts"], f"count.{group}.attempts")
        outcomes = sum(told[outcome] for outcome in OUTCOMES)
        findings.expect(told["attempts"], outcomes, f"outcomes of group {group}")
        if told["success"] > ours["success"]:
            findings.problems.append(
                f"count.{group}.success is {told['success']}, and {ours['success']} succeeded"
            )


def check_outcomes(expected: Expected, metrics: Mapping[str, Any], findings: Findings) -> None:
    """Each group's jobs ended as they had to."""
    for group, outcomes in (expected.outcomes or {}).items():
        told = metrics["count"][group]
        found = {outcome: told[outcome] for outcome in OUTCOMES if told[outcome]}
        findings.expect(dict(outcomes), found, f"outcomes of group {group}")


#: What a shell adds to the number of a signal that ended its command; Flux's shell exits so.
_SHELL = 128

#: The signals that end a process which does nothing about them.
_ENDING = set(range(1, 32)) - {
    signal.SIGCHLD, signal.SIGCONT, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN,
    signal.SIGTTOU, signal.SIGURG, signal.SIGWINCH,
}  # fmt: skip

#: What the record has to say of a job, besides its id.
RECORDED = (
    "group", "rule", "firing", "index", "state", "outcome", "returncode", "signal",
    "t_submit", "t_alloc", "nnodes", "t_run", "t_end",
)  # fmt: skip

#: Seconds by which a time of the record may be off: it has microseconds.
_RESOLUTION = 2e-6


def check_record(
    jobs: Iterable[Job], rows: Iterable[Mapping[str, Any]], findings: Findings
) -> None:
    """The record has each job once, and says of it what the queue says.

    Args:
        jobs: those of the ensemble, which have all ended.
        rows: the jobs in the answers to `ensemble.jobs`.
    """
    told: dict[int, Mapping[str, Any]] = {}
    twice: Counter[int] = Counter()
    for row in rows:
        twice[row["id"]] += row["id"] in told
        told[row["id"]] = row
    known = {job.id: job for job in jobs}
    _list(findings, +twice, "jobs twice in the record")
    _list(findings, sorted(known.keys() - told.keys()), "jobs that are not in the record")
    _list(findings, sorted(told.keys() - known.keys()), "jobs of the record that never were")
    for id in sorted(known.keys() & told.keys()):
        wanted = _row(known[id])
        found = {key: told[id][key] for key in wanted}
        for key, value in wanted.items():
            if not _same(value, found[key]):
                findings.problems.append(
                    f"job {id} in the record: {key}: expected {value!r}, found {found[key]!r}"
                )


def _same(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return abs(wanted - found) <= _RESOLUTION
    return bool(wanted == found)


def _row(job: Job) -> dict[str, Any]:
    """What the record has to say of a job, by its events."""
    assert job.tag is not None
    submit, alloc, start, finish, clean = (
        job.first(name) for name in ("submit", "alloc", "start", "finish", "clean")
    )
    assert submit is not None
    end = finish or clean
    values = (
        *(job.tag[key] for key in RECORDED[:4]),
        "inactive",
        _outcome(job, finish),
        # One that never ran has neither of them.
        *((None, None) if finish is None else _codes(finish[1]["status"])),
        submit[0],
        # These two are told with its start.
        alloc[0] if alloc and start else None,
        len(_ids(job.ranks)) if alloc and start else None,
        None if start is None else start[0],
        None if end is None else end[0],
    )
    return dict(zip(RECORDED, values, strict=True))


def _codes(status: int) -> tuple[int, int | None]:
    """What a wait status says: the exit code or the signal as a negative number, and the signal."""
    code = os.WEXITSTATUS(status)
    if os.WIFSIGNALED(status):
        ended_by = os.WTERMSIG(status)
    elif code - _SHELL in _ENDING:
        ended_by = code - _SHELL
    else:
        return code, None
    return -ended_by, ended_by


def _ids(ranks: Iterable[str]) -> set[int]:
    """The ranks in idsets (RFC 22)."""
    found: set[int] = set()
    for part in (part for ids in ranks for part in ids.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def check_calls(expected: Expected, file: Path, findings: Findings) -> None:
    """Custom functions were called at least as often as they had to be."""
    words = Counter(
        line.split()[0] for line in (file.read_text().splitlines() if file.exists() else [])
    )
    for word, least in expected.calls.items():
        if words[word] < least:
            findings.problems.append(
                f"function {word!r} was called {words[word]} times, and {least} at least is right"
            )
