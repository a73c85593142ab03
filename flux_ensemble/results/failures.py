"""Reasons of failures: the kinds of failures, and what the jobs of each have in common.

    jobs ──add──► Failures ──kinds──► a kind for each group and reason, the most frequent first
                             described──► a `Failure` for each, with what its jobs wrote at last

One exit code may be that of several problems: jobs of a kind are read, up to some number, and an
example is shown for each of the most frequent last lines, compared without numbers and names.

A value is over-represented among the failed jobs of a kind by its lift: its share among them,
divided by its share among all jobs of the group that have ended. Among a few failed jobs some value
is frequent by chance; such values are not reported. Of two values that only together are so
frequent the combination is reported. Nodes come after parameters, and have to be more certain: jobs
get their nodes in the order of their parameters.
"""

from __future__ import annotations

import errno
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from flux_ensemble.client import EnsembleError
from flux_ensemble.job_ids import shown
from flux_ensemble.metrics.signals import name_of
from flux_ensemble.report.source import Failure, Lift, Written, place_of
from flux_ensemble.report.texts import plural, seconds
from flux_ensemble.results.best import told_keys
from flux_ensemble.results.hosts import Target
from flux_ensemble.results.job_output import Outputs
from flux_ensemble.results.shared_files import SharedFiles
from flux_ensemble.scalars import as_text, brief
from flux_ensemble.texts import clip, hanging, listed, one_line

Job = Mapping[str, Any]

#: A value of a parameter, or the place of a job: its name, and the value as text.
Trait = tuple[str, str]

#: Identity of a job's work: its original rule and firing, as text, and its index.
Work = tuple[str, int]

FAILED = ("failed", "timeout")

#: Minimum number of failed jobs with a value, and minimum lift, for it to be reported.
MIN_JOBS, MIN_LIFT = 3, 1.5

#: Largest probability that one of the values of a parameter, or one of the places, is that frequent
#: by chance.
MAX_CHANCE = 0.05
MAX_CHANCE_OF_PLACE = 0.001

#: Values and places that are reported of a kind, and different values of a parameter that are
#: counted.
MOST_SHOWN = 3
MOST_RANKS = 5
MOST_VALUES = 10_000

#: Most failed jobs of a kind whose points are listed, each with up to so many parameters.
FEW, MOST_NAMES = 5, 8

#: Most characters of a point.
MOST_TEXT = 200

#: Most failed jobs of a kind that are read, and most of their different last lines that are shown.
MOST_READ, MOST_WRITTEN = 20, 3

#: Parts of a line that differ between jobs with the same problem: quotations, and words with a
#: digit or a slash.
_OWN = re.compile(r"""'[^']*'|"[^"]*"|[^\s=:,;()\[\]]*[\d/][^\s=:,;()\[\]]*""")

#: A program that exists in a named place and cannot be executed, in the note of an exception.
_DENIED = re.compile(r"start failed: (\S*/\S*): Permission denied$")

#: Combinations are looked for in groups of up to so many jobs, and parameters.
MOST_JOBS = 10_000
MOST_PARAMS = 8


@dataclass
class FailureKind:
    """The failed jobs of a group that failed for the same reason.

    Args:
        group, reason: common to the jobs.
        example: the last one.
        jobs: number of jobs.
        ranks: number of jobs by place.
        spread: jobs to be read: all, or some that are evenly spread among them.
    """

    group: str
    reason: str
    example: Job
    jobs: int = 0
    spread: list[Job] = field(default_factory=list)
    ranks: Counter[str] = field(default_factory=Counter)
    traits: Counter[Trait] = field(default_factory=Counter)
    _step: int = 1

    def add(self, job: Job) -> None:
        """Count a job, and keep it if it is one to be read."""
        self.example = job
        if self.jobs % self._step == 0:
            self.spread.append(job)
            if len(self.spread) > MOST_READ:
                del self.spread[1::2]
                self._step *= 2
        self.jobs += 1

    @property
    def read(self) -> list[Job]:
        """The jobs to be read, with the last one at the end."""
        before = [job for job in self.spread if job is not self.example]
        return [*before[-MOST_READ + 1 :], self.example]

    def words(self, name: str) -> tuple[str, ...]:
        """The words of the command that shows these jobs of ensemble `name`."""
        return "jobs", name, "--group", self.group, "--filter", self.expression

    @property
    def expression(self) -> str:
        """A filter that chooses these jobs."""
        job = self.example
        if job["outcome"] == "success":
            return 'job.trial_state == "failed" and job.outcome == "success"'
        if job["outcome"] == "timeout":
            return 'job.outcome == "timeout"'
        if job["exception"]["type"] is not None:
            return f'job.exception.type == "{job["exception"]["type"]}"'
        if job["signal"] is not None:
            return f"job.signal == {job['signal']}"
        if job["returncode"] is None:
            return f'job.outcome == "{job["outcome"]}"'
        return f"job.returncode == {job['returncode']}"


class Failures:
    """Counts of jobs that have ended.

    Attributes:
        ended, failed: number of jobs.
    """

    def __init__(self) -> None:
        self.ended = self.failed = self._again = 0
        #: Jobs that were canceled.
        self._canceled: set[Work] = set()
        #: Copies that have ended, by their work; True for further attempts.
        self._copies: dict[Work, bool] = {}
        #: Jobs that have not ended, or were interrupted.
        self._unended: set[Work] = set()
        #: Numbers of ended and of failed jobs, by place.
        self._there: Counter[str] = Counter()
        self._failed_there: Counter[str] = Counter()
        self._kinds: dict[tuple[str, str], FailureKind] = {}
        self._ended: Counter[str] = Counter()
        self._traits: defaultdict[str, Counter[Trait]] = defaultdict(Counter)
        self._values: Counter[tuple[str, str]] = Counter()
        #: The parameters of the first jobs of each group, with the kind of their failure.
        self._rows: defaultdict[str, list[tuple[tuple[Trait, ...], FailureKind | None]]]
        self._rows = defaultdict(list)
        #: The jobs that succeeded and gave their trials no value, by the rule of their search, and
        #: what they published.
        self.valueless: dict[str, FailureKind] = {}
        self.published: defaultdict[str, set[str]] = defaultdict(set)
        self._files = SharedFiles()

    def unshown(self, job: Job) -> str:
        """Return why a job's files are not quoted; "" if only this job wrote them."""
        return self._files.note(job)

    def add(self, job: Job) -> None:
        """Count a job; an active one counts only as a further attempt."""
        reran = "replaced" in job and job["outcome"] != "interrupted"
        if not reran:
            # The files of an attempt that a user has run again are those of the later one.
            self._files.add(job)
        original = job.get("copy_of")
        work = original or f"{job['rule']}:{job['firing']}", job["index"]
        if original is None and job["outcome"] in (None, "interrupted"):
            self._unended.add(work)
        if job["outcome"] == "interrupted" or "replaced" in job:
            # It runs again, and is no evidence about failures.
            return
        if original is None:
            self._again += job["attempt"] > 0
        if job["outcome"] is None:
            return
        if original is not None:
            self._copies[work] = job["attempt"] > 0
        if job["outcome"] == "canceled":
            # It has not ended by itself, and is no evidence either.
            self.ended += 1
            if original is None:
                self._canceled.add(work)
            return
        if job["outcome"] == "success" and job.get("trial_state") == "failed":
            kind = self.valueless.setdefault(job["rule"], FailureKind(job["group"], "", job))
            kind.add(job)
            self.published[job["rule"]].update(job["memo"])
        place = place_of(job)
        if place is not None:
            self._there[place] += 1
            self._failed_there[place] += job["outcome"] in FAILED
        group, traits = job["group"], list(_traits(job))
        self.ended += 1
        self._ended[group] += 1
        counted = self._traits[group]
        for trait in traits:
            if trait not in counted:
                if self._values[group, trait[0]] >= MOST_VALUES:
                    continue
                self._values[group, trait[0]] += 1
            counted[trait] += 1
        failed = self._kind(job) if job["outcome"] in FAILED else None
        if len(self._rows[group]) <= MOST_JOBS:
            params = [trait for trait in traits if not _is_place(trait[0])]
            self._rows[group].append((tuple(params[:MOST_PARAMS]), failed))
        if failed is None:
            return
        self.failed += 1
        failed.add(job)
        if place is not None:
            failed.ranks[place] += 1
        failed.traits.update(trait for trait in traits if trait in counted)

    def kinds(self) -> list[FailureKind]:
        """Return the kinds of failures, the most frequent first."""
        return sorted(self._kinds.values(), key=lambda kind: (-kind.jobs, kind.group, kind.reason))

    def _kind(self, job: Job) -> FailureKind:
        key = job["group"], reason(job)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = FailureKind(*key, job)
        return kind

    def points(self, kind: FailureKind) -> list[str]:
        """Return the points of a kind's jobs, if these are few.

        Parameters that no other value is known of are left out.
        """
        return self._points(kind.group, kind.spread) if kind.jobs <= FEW else []

    def common(self, kind: FailureKind, jobs: list[Job]) -> str:
        """Return the points of some jobs of a kind, or what they have in common, in words."""
        if len(jobs) <= FEW:
            return "; ".join(self._points(kind.group, jobs))
        some, counted = FailureKind(kind.group, kind.reason, jobs[-1]), self._traits[kind.group]
        for job in jobs:
            some.add(job)
            some.traits.update(trait for trait in _traits(job) if trait in counted)
        return "; ".join(
            f"{lift.words} in {lift.failed:,} of them (lift {lift.lift:.2g})"
            for lift in self.lifts(some)
        )

    def _points(self, group: str, jobs: Iterable[Job]) -> list[str]:
        found: dict[str, None] = {}
        for job in sorted(jobs, key=lambda job: job["index"]):
            params = job["params"]
            varied = {
                name: value
                for name, value in params.items()
                if self._values[group, f"params.{name}"] > 1
            }
            words = [f"{name}={brief(value)}" for name, value in (varied or params).items()]
            more = " ..." if len(words) > MOST_NAMES else ""
            found[one_line(clip(" ".join(words[:MOST_NAMES]), MOST_TEXT)) + more] = None
        return [point for point in found if point]

    def lifts(self, kind: FailureKind) -> list[Lift]:
        """Return the values that are most over-represented among the jobs of a kind.

        Those of parameters come before places.
        """
        counted = self._traits[kind.group]
        lifts, ordered = [], set(self._ordered(kind))
        for trait, failed in kind.traits.items():
            name, ended = trait[0], counted[trait]
            lift = self._lift(kind, (trait,), failed, ended)
            if lift is None:
                continue
            tries = self._values[kind.group, name]
            most = MAX_CHANCE_OF_PLACE if _is_place(name) else MAX_CHANCE
            likely = chance(failed, kind.jobs, ended, self._ended[kind.group])
            if likely * tries <= most or (likely <= most and name in ordered):
                lifts.append(lift)
        pairs = list(self._pairs(kind))
        # A value all of whose failed jobs a combination has is no reason of its own.
        explained = {(trait, pair.failed) for pair in pairs for trait in pair.condition}
        lifts = [one for one in lifts if (one.condition[0], one.failed) not in explained]
        lifts += pairs
        lifts.sort(key=lambda one: (_is_place(one.condition[0][0]), -one.failed * one.lift))
        return lifts[:MOST_SHOWN]

    def _lift(
        self, kind: FailureKind, condition: tuple[Trait, ...], failed: int, ended: int
    ) -> Lift | None:
        """Return how over-represented a condition is; None if it hardly is."""
        lift = (failed / kind.jobs) / (ended / self._ended[kind.group])
        if failed < MIN_JOBS or lift < MIN_LIFT:
            return None
        return Lift(condition, failed, ended, lift)

    def _ordered(self, kind: FailureKind) -> Iterator[str]:
        """Yield the parameters of which failed jobs have the largest or the smallest numbers.

        The sum of the ranks of their values is compared with that of as many jobs at random
        (Wilcoxon), by the normal distribution.
        """
        found: defaultdict[str, list[tuple[float, int, int]]] = defaultdict(list)
        for (name, text), ended in self._traits[kind.group].items():
            if not _is_place(name):
                found[name].append((_number(text), ended, kind.traits[name, text]))
        for name, values in found.items():
            everyone, drawn = (sum(each) for each in list(zip(*values, strict=True))[1:])
            finite = all(math.isfinite(value) for value, _, _ in values)
            if not finite or len(values) < 3 or not 0 < drawn < everyone:
                continue
            # Ranks are counted from the middle one, twice.
            below = total = squares = 0
            for _, ended, failed in sorted(values):
                rank = 2 * below + ended - everyone
                total += failed * rank
                squares += ended * rank**2
                below += ended
            variance = squares / everyone * drawn * (everyone - drawn) / (everyone - 1)
            if math.erfc(abs(total) / math.sqrt(2 * variance)) <= MAX_CHANCE:
                yield name

    def _pairs(self, kind: FailureKind) -> Iterator[Lift]:
        """Yield the pairs of values of parameters of which each makes the other one worse."""
        rows, everyone = self._rows[kind.group], self._ended[kind.group]
        if everyone > MOST_JOBS:
            return
        # Combinations are only those of jobs that failed.
        failures = Counter(
            pair for traits, of in rows if of is kind for pair in combinations(traits, 2)
        )
        failures = Counter({pair: many for pair, many in failures.items() if many >= MIN_JOBS})
        if not failures:
            return
        there = Counter(
            pair for traits, _ in rows for pair in combinations(traits, 2) if pair in failures
        )
        counted, values = self._traits[kind.group], self._values
        for pair, failed in failures.items():
            ended = there[pair]
            lift = self._lift(kind, pair, failed, ended)
            tries = math.prod(values[kind.group, name] for name, _ in pair)
            if lift is None or tries * chance(failed, kind.jobs, ended, everyone) > MAX_CHANCE:
                continue
            if all(
                chance(failed, kind.traits[one], ended, counted[one]) <= MAX_CHANCE for one in pair
            ):
                yield lift

    @property
    def again(self) -> int:
        """Number of jobs that are further attempts of one that ended before."""
        copies = self._copies.items()
        return self._again + sum(again for work, again in copies if work in self._unended)

    @property
    def copies(self) -> int:
        """Number of copies of jobs that are counted, too."""
        return sum(work not in self._unended for work in self._copies)

    @property
    def canceled(self) -> int:
        """Number of jobs that were canceled, and not because a copy of theirs was faster."""
        return sum(work not in self._copies for work in self._canceled)

    @property
    def said(self) -> str:
        """A sentence with the number of failures, or of failed attempts: see `noun`."""
        failed = f"{self.failed:,} of {plural(self.ended, self.noun)}"
        again, copies = self.again, self.copies
        canceled = "1 was canceled" if self.canceled == 1 else f"{self.canceled:,} were canceled"
        if not again and not copies:
            return f"{failed} failed" + (f"; {canceled}" if self.canceled else "")
        more = [f"{again:,} ran again"] if again else []
        if copies:
            more.append("1 was a copy" if copies == 1 else f"{copies:,} were copies")
        if self.canceled:
            more.append(canceled)
        jobs = plural(self.ended - again - copies, "job")
        return f"{failed} at {jobs} failed; {', '.join(more)}"

    @property
    def noun(self) -> str:
        """The noun for what is counted: jobs, or attempts if some ran again or have copies."""
        return "attempt" if self.again or self.copies else "job"

    def bad_places(self) -> Iterator[tuple[str, str]]:
        """Name the nodes on which all jobs failed, and too many for it to be chance.

        Yields:
            The rank, after its member if it has one, and a sentence about the jobs that ended
            there.
        """
        ended, failed = sum(self._there.values()), sum(self._failed_there.values())
        single = [place for place in self._failed_there if place.rpartition(":")[2].isdigit()]
        for place in single:
            here = self._there[place]
            if here < MIN_JOBS or self._failed_there[place] < here or ended == failed:
                continue
            if len(self._there) * chance(here, failed, here, ended) <= MAX_CHANCE:
                there = plural(ended - here, self.noun)
                yield (
                    place,
                    f"all {here:,} {self.noun}s failed, and {failed - here:,} of {there} elsewhere",
                )


def chance(failed: int, drawn: int, ended: int, everyone: int) -> float:
    """Return the probability that so many failed jobs have a value that is unrelated to failure.

    That is the upper tail of the hypergeometric distribution.

    Args:
        failed: minimum number of failed jobs with the value.
        drawn: number of failed jobs.
        ended: number of all jobs with the value.
        everyone: number of all jobs.

    >>> round(chance(3, 3, 3, 18), 5)
    0.00123
    """
    most = min(drawn, ended)
    term = math.exp(
        _log_choose(ended, failed)
        + _log_choose(everyone - ended, drawn - failed)
        - _log_choose(everyone, drawn)
    )
    total = 0.0
    for number in range(failed, most + 1):
        total += term
        left = everyone - ended - drawn + number + 1
        if left <= 0 or term < total * 1e-9:
            break
        term *= (ended - number) * (drawn - number) / ((number + 1) * left)
    return min(1.0, total)


def _log_choose(of: int, some: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)


def reason(job: Job) -> str:
    """Return the reason of a job's failure in words: its exit code, signal, or exception."""
    if job["outcome"] == "timeout":
        return "timeout"
    exception, code = job["exception"]["type"], job["returncode"]
    if exception is not None:
        return f"exception {exception}"
    if job["signal"] is not None:
        return name_of(job["signal"])
    return "unknown" if code is None else f"exit {code}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _is_place(name: str) -> bool:
    """Return whether a trait is where a job ran, not one of its parameters."""
    return not name.startswith("params.")


def _traits(job: Job) -> Iterator[Trait]:
    for name, value in job["params"].items():
        yield f"params.{name}", as_text(value)
    if "member" in job:
        yield "member", job["member"]
    if (ranks := place_of(job)) is not None:
        yield "ranks", ranks


def described(
    counted: Failures,
    *,
    label: Callable[[int], str],
    tail: Callable[[Job], list[str]],
    missing: Callable[[Job], str],
    command: Callable[[FailureKind], str],
    files: bool = True,
) -> Iterator[Failure]:
    """Yield the reasons of failures, the most frequent first.

    Args:
        counted: the jobs.
        label: returns the text of a job id.
        tail: returns the last lines that a job wrote.
        missing: returns why these cannot be read, or "".
        command: returns what shows the jobs of a kind.
        files: the files that jobs name exist.
    """
    for kind in counted.kinds():
        unshown = counted.unshown(kind.example)
        points = counted.points(kind)
        job, most = kind.example, kind.ranks.most_common(MOST_RANKS)
        more = ", ..." if len(kind.ranks) > MOST_RANKS else ""
        written, read = _written(counted, kind, tail, missing, label, files=files)
        if len(written) > 1 and sum(one.jobs for one in written if one.where) == kind.jobs:
            points = []  # each is named beside what its job wrote
        yield Failure(
            group=kind.group,
            reason=kind.reason,
            outcome=job["outcome"],
            returncode=job["returncode"],
            jobs=kind.jobs,
            noun=counted.noun,
            where=", ".join(f"{ranks} ({jobs})" for ranks, jobs in most) + more,
            lifts=counted.lifts(kind),
            note=_note(job),
            points=points,
            example=written[0].example if written else shown(job["id"], job, label),
            written=written,
            read=read,
            missing="" if written else unshown or missing(job),
            file=job["output"] if files else None,
            filter=kind.expression,
            command=command(kind),
        )


def _note(job: Job) -> str:
    """Return the note of a job's exception, with a remedy where one is known."""
    note = job["exception"]["note"] or ""
    if job["outcome"] == "timeout" and job["duration"]:
        limit = f"it had {seconds(job['duration'])}, its 'duration'"
        return f"{note}: {limit}" if note else limit
    if not (denied := _DENIED.search(note)):
        return note
    program = denied[1]
    by_shell = f", or sh {program}" if program.endswith(".sh") else ""
    return f"{note} (chmod +x {program}{by_shell})"


def _written(
    counted: Failures,
    kind: FailureKind,
    tail: Callable[[Job], list[str]],
    missing: Callable[[Job], str],
    label: Callable[[int], str],
    *,
    files: bool,
) -> tuple[list[Written], int]:
    """Return what jobs of a kind wrote at last, and the number of those that were read.

    There is an item for each different last line, the most frequent first; the last of its jobs is
    its example.
    """
    found: dict[str, list[Job]] = {}
    tails: dict[str, list[str]] = {}
    read = 0
    for job in kind.read:
        if counted.unshown(job):
            continue
        lines = tail(job)
        read += bool(lines) or not missing(job)
        if lines:
            form = _OWN.sub("?", lines[-1])
            found[form] = [*found.pop(form, ()), job]
            tails[form] = lines
    latest = [*found.items()][::-1]
    latest.sort(key=lambda one: -len(one[1]))
    # What is common to a few of those that wrote the same would be no more than chance.
    tell = len(found) > 1 and read == kind.jobs
    written = [
        Written(
            example=shown(jobs[-1]["id"], jobs[-1], label),
            tail=tails[form],
            jobs=len(jobs),
            file=jobs[-1]["output"] if files else None,
            where=counted.common(kind, jobs) if tell else "",
        )
        for form, jobs in latest[:MOST_WRITTEN]
    ]
    return written, read


@dataclass(frozen=True, repr=False)
class FailureSummary:
    """The reasons why jobs failed, over which it iterates; as text, `flux-ensemble failures`.

    Attributes:
        summary: a sentence with the number of failures.
        failed, ended: number of jobs that failed, and of all that have ended.
        nodes: the nodes on which all jobs failed, each with a sentence.
        reasons: the most frequent first. Each has `group`, `reason`, `jobs` (their number), `lifts`
            (values that are over-represented: `words`, such as "params.t = 4", `failed`, `ended`,
            `lift`), `points` (of a few jobs), `note`, `example` (a job), `tail` (the last lines
            that it wrote), `written` (such examples of each different last line), and `filter`,
            with which `jobs` returns all of them.
        output: the command that prints what all of them wrote, or "".
        trials: of each search, a sentence about the jobs that succeeded and gave no value, each
            with the command that shows these jobs.
    """

    summary: str
    failed: int
    ended: int
    nodes: list[tuple[str, str]]
    reasons: list[Failure]
    output: str = ""
    trials: list[tuple[str, str]] = field(default_factory=list)

    def __iter__(self) -> Iterator[Failure]:
        return iter(self.reasons)

    def __len__(self) -> int:
        return len(self.reasons)

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the lines for people."""
        yield self.summary
        for node, what in self.nodes:
            yield hanging(f"{node}: {what}")
        for trials, command in self.trials:
            yield ""
            yield hanging(trials)
            yield hanging(f"  see: {command}")
        for failure in self.reasons:
            yield ""
            yield from map(hanging, _about(failure))
        if self.output:
            yield ""
            yield hanging(f"all that they wrote: {self.output}")


def failures_of(
    target: Target,
    name: str,
    jobs: Iterable[Job],
    command: Callable[[FailureKind], str] | None = None,
    group: str | None = None,
) -> FailureSummary:
    """Return why jobs of an ensemble failed.

    Args:
        target: the host of the ensemble.
        name: the ensemble.
        jobs: its jobs, or those of a group.
        command: returns what shows the jobs of a kind; default: a command for a shell.
        group: the group of the jobs, or None for all.

    Raises:
        EnsembleError: the jobs cannot be had, or are those of another user.
    """
    counted = Failures()
    for job in jobs:
        if "exception" not in job:
            raise EnsembleError(
                errno.EPERM, "only the owner of the instance may see why jobs failed"
            )
        counted.add(job)
    outputs = Outputs(target, name)
    command_for = command or (lambda kind: target.command(*kind.words(name)))
    reasons = list(
        described(
            counted,
            label=target.label,
            tail=outputs.tail,
            missing=outputs.missing,
            command=command_for,
        )
    )
    output, wrote = "", {one.outcome for one in reasons if one.tail}
    if wrote and command is None:
        words = [] if group is None else ["--group", group]
        words += ["--outcome", next(one for one in FAILED if one in wrote)]
        output = target.command("output", name, *words)
    return FailureSummary(
        summary=counted.said,
        failed=counted.failed,
        ended=counted.ended,
        nodes=[(_node(place, target), what) for place, what in counted.bad_places()],
        reasons=reasons,
        output=output,
        trials=list(_trials(counted, target, name, command_for)),
    )


def _trials(
    counted: Failures, target: Target, name: str, command: Callable[[FailureKind], str]
) -> Iterator[tuple[str, str]]:
    """Yield of each search how many jobs gave no value, and what shows them."""
    if not counted.valueless:
        return
    for search in target.status(name)["ensembles"][0].get("searches", ()):
        kind = counted.valueless.get(f"search:{search['id']}")
        if kind is not None:
            keys = counted.published[f"search:{search['id']}"]
            missing = [key for key in search["objective"].split(", ") if key not in keys]
            how = told_keys(missing[0], keys) if missing else f"published: {listed(sorted(keys))}"
            jobs = plural(kind.jobs, "job")
            yield (
                f"search {search['id']!r}: {jobs} succeeded and gave no value of "
                f"{search['objective']!r}, so their trials failed ({how})",
                command(kind),
            )


def _about(failure: Failure) -> Iterator[str]:
    """Yield the lines about a reason."""
    yield f"{failure.group}: {failure.reason}: {plural(failure.jobs, failure.noun)}"
    if failure.where:
        yield f"  ranks: {failure.where}"
    for lift in failure.lifts:
        yield (
            f"  {lift.words}: {lift.failed:,} of {plural(lift.ended, failure.noun)} "
            f"failed so (lift {lift.lift:.2g})"
        )
    if failure.points:
        yield f"  point{'s'[: len(failure.points) != 1]}: {'; '.join(failure.points)}"
    if failure.note:
        yield f"  {failure.note}"
    for one, sentence in failure.wrote():
        yield f"  {sentence}"
        yield from (f"    {line}" for line in one.tail)
    if failure.others:
        yield f"  {failure.others}"
    if failure.missing:
        yield f"  job {failure.example}: {failure.missing}"
    yield f"  {'see' if failure.jobs == 1 else 'all of them'}: {failure.command}"


def _node(place: str, target: Target) -> str:
    """Return a node in words: its rank, with its member or the name of its host."""
    member, _, rank = place.rpartition(":")
    if member:
        return f"rank {rank} of member {member}"
    host = target.host_of(int(rank))
    return f"rank {rank} ({host})" if host else f"rank {rank}"
