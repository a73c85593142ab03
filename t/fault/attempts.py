"""Holds what an ensemble says of jobs on its members against what its members said of them.

A job that was asked for is an intent; each time that it is sent somewhere is an attempt, with a tag
of its own. Whatever becomes of members, each intent succeeds once, each attempt is recorded once,
and no two attempts of an intent run at the same time: one of a member that was lost may run until
the enclosing instance says that it cannot.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from nested import Member
from verify import OUTCOMES, Findings
from witness import Job
from workloads import Expected

#: Rule, firing, index.
Attempt = tuple[str, int, int]

#: Seconds by which a time of the record may be off: it has microseconds.
_RESOLUTION = 2e-6

Entry = Mapping[str, Any]


class Attempts:
    """The attempts of an ensemble that is over.

    Args:
        jobs: that its members accepted, each with its member.
        rows: its record of jobs.
        entries: its log.
    """

    def __init__(
        self,
        jobs: Sequence[tuple[Member, Job]],
        rows: Sequence[Entry],
        entries: Sequence[Entry],
    ) -> None:
        self._jobs = jobs
        self._rows = rows
        #: The attempt before, by a further one.
        self._before: dict[Attempt, Attempt] = {}
        for entry in entries:
            if entry["name"] == "retry":
                one = entry["context"]
                index = one["index"]
                self._before["retry", one["retry"], index] = one["rule"], one["firing"], index

    @property
    def further(self) -> int:
        """How many attempts there were besides the first ones."""
        return len(self._before)

    def intent(self, attempt: Attempt) -> Attempt:
        """What an attempt is of."""
        while attempt in self._before:
            attempt = self._before[attempt]
        return attempt

    def began_on(self, job: Job) -> list[str]:
        """The members on which attempts of the intent of a job have begun."""
        intent = self.intent(_of_job(job))
        return [
            member.name
            for member, one in self._jobs
            if one.first("start") is not None and self.intent(_of_job(one)) == intent
        ]

    def check(self, expected: Expected, metrics: Mapping[str, Any], findings: Findings) -> None:
        """Note all that is not as it has to be."""
        self._check_record(expected, findings)
        self._check_counts(metrics, findings)
        self._check_tags(findings)
        self._check_seen(findings)
        self._check_done(findings)
        self._check_alone(findings)

    def _check_record(self, expected: Expected, findings: Findings) -> None:
        """Each attempt is there once, and each intent has succeeded once."""
        attempts = Counter(map(_of_row, self._rows))
        _note(findings, [one for one, n in attempts.items() if n > 1], "attempts twice")
        successes: Counter[tuple[str, Attempt]] = Counter()
        for row in self._rows:
            successes[row["group"], self.intent(_of_row(row))] += row["outcome"] == "success"
        twice = [intent for intent, count in successes.items() if count > 1]
        findings.duplicates += len(twice)
        _note(findings, twice, "jobs that succeeded twice")
        wanted = {(group, (rule, firing, index)) for group, rule, firing, index in expected.tags()}
        done = {intent for intent, count in successes.items() if count}
        findings.missing += len(wanted - done)
        _note(findings, sorted(wanted - done), "jobs that did not succeed")
        _note(findings, sorted(successes.keys() - wanted), "jobs that nobody asked for")

    def _check_counts(self, metrics: Mapping[str, Any], findings: Findings) -> None:
        """The counts are those of the record."""
        outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        for row in self._rows:
            outcomes[row["group"]][row["outcome"]] += 1
        for group, told in metrics["count"].items():
            ours = outcomes[group]
            found = {outcome: told[outcome] for outcome in OUTCOMES}
            findings.expect({one: ours[one] for one in OUTCOMES}, found, f"outcomes of {group}")
            findings.expect(ours.total(), told["attempts"], f"count.{group}.attempts")
            findings.expect(ours.total(), told["submitted"], f"count.{group}.submitted")
            findings.expect(ours["success"], told["finished"], f"count.{group}.finished")

    def _check_tags(self, findings: Findings) -> None:
        """No attempt was sent twice."""
        tags = Counter(map(_of_job, (job for _, job in self._jobs)))
        twice = [tag for tag, count in tags.items() if count > 1]
        findings.duplicates += len(twice)
        _note(findings, twice, "attempts that were sent twice")

    def _check_seen(self, findings: Findings) -> None:
        """The record says of each job what its member said; what one that was lost said may miss.

        Either of them may have heard the last of it, and the other one not.
        """
        rows = {_of_row(row): row for row in self._rows}
        seen = {_of_job(job): (member, job) for member, job in self._jobs}
        for attempt, (member, job) in seen.items():
            row = rows.get(attempt)
            if row is None:
                findings.problems.append(f"{attempt} is not in the record")
                continue
            if row["id"] == 0 and member.lost:
                continue  # it was never heard of
            finish = job.first("finish")
            told = (row.get("member"), row["id"], row["outcome"] == "success")
            wanted = (member.name, job.id, finish is not None and finish[1].get("status") == 0)
            if told != wanted and (told[:2] != wanted[:2] or not member.lost):
                findings.problems.append(f"{attempt}: expected {wanted}, found {told}")
            elif finish is not None and row["outcome"] == "success":
                start = job.first("start") or (math.nan, {})
                for key, t in (("t_run", start[0]), ("t_end", finish[0])):
                    if not abs(row[key] - t) <= _RESOLUTION:
                        findings.problems.append(f"{attempt}: {key}: {t!r}, not {row[key]!r}")
        lost = {member.name for member, _ in self._jobs if member.lost}
        unseen = [one for one, row in rows.items()
                  if one not in seen and row["id"] and row.get("member") not in lost]  # fmt: skip
        _note(findings, unseen, "attempts of the record that no member has had")

    def _check_done(self, findings: Findings) -> None:
        """No intent was done on two members; what one that was lost did may not be known."""
        done: Counter[Attempt] = Counter()
        for member, job in self._jobs:
            finish = job.first("finish")
            if not member.lost and finish is not None and finish[1].get("status") == 0:
                done[self.intent(_of_job(job))] += 1
        twice = [intent for intent, count in done.items() if count > 1]
        findings.duplicates += len(twice)
        _note(findings, twice, "jobs that were done twice")

    def _check_alone(self, findings: Findings) -> None:
        """No two attempts of an intent run at once."""
        times: dict[Attempt, list[tuple[float, float]]] = defaultdict(list)
        for member, job in self._jobs:
            start, finish = job.first("start"), job.first("finish")
            if start is not None:
                end = finish[0] if finish is not None else member.t_clean
                times[self.intent(_of_job(job))].append((start[0], end or math.inf))
        both = [
            intent
            for intent, spans in times.items()
            if any(ours[1] > next_one[0] for ours, next_one in pairwise(sorted(spans)))
        ]
        findings.duplicates += len(both)
        _note(findings, both, "jobs of which two attempts ran at once")


def _of_row(row: Entry) -> Attempt:
    return row["rule"], row["firing"], row["index"]


def _of_job(job: Job) -> Attempt:
    assert job.tag is not None
    return job.tag["rule"], job.tag["firing"], job.tag["index"]


def _note(findings: Findings, what: Sequence[Any], sentence: str) -> None:
    if what:
        shown = ", ".join(map(str, what[:5])) + (", ..." if len(what) > 5 else "")
        findings.problems.append(f"{len(what)} {sentence}: {shown}")
