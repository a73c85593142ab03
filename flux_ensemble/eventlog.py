"""The entries of an ensemble's eventlog: one class for each kind, with its fields and its words.

Stored and sent, an entry is an object of RFC 18: `timestamp`, `name` and `context`. The name is the
tag of the entry's class, the context has its fields. Whoever writes an entry makes one:

    core.record(eventlog.RuleAdded(rule="r", by="grow"))

and whoever shows or counts entries reads the stored form:

>>> entry = read({"timestamp": 2.0, "name": "rule-added", "context": {"rule": "r", "by": "grow"}})
>>> entry.rule, entry.sentence(2.0, str)
('r', 'rule=r by=grow')

A new kind is a class here, and a row in docs/eventlog.md. An entry of a later version, whose kind
is not known, is an `Unknown`: it is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

from flux_ensemble.feature_list import parts
from flux_ensemble.job_ids import shown
from flux_ensemble.texts import listed
from flux_ensemble.words import (
    STATE_STYLES,
    Line,
    Span,
    counted,
    each_pair,
    in_words,
    pairs,
    running_again,
    undone_jobs,
    word,
)

#: An entry as JSON.
Stored = Mapping[str, Any]

#: Gives the text of a job id.
JobId = Callable[[int], str]

#: The classes by their tags.
KINDS: dict[str, type[Entry]] = {}

#: A line of a traceback that says where something was raised.
_PLACE = re.compile(r'  File ".*", line \d+')

#: Most characters of a submission's parameters that `run` shows.
_PARAMS = 100

#: Keys of an action that `log` leaves out: named already, or not about what was done.
_QUIET = frozenset({"name", "label", "repetitions", "backoff", "cooldown", "timeout"})


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Entry:
    """An entry.

    A subclass declares its fields in the order in which they are stored, which is that of the
    keywords of whoever makes one; those that it inherits and does not declare again are the first.
    A field whose default is None is left out while it is None. The keywords are kept as they are,
    because an engine makes two entries for each firing.

    Attributes:
        tag: the name of the kind in the log.
        style: of its line in the log.
        announces: `run` prints its sentence.
        noted: what drives the engine writes it, and not the engine: a replay does not know it.
        timeline: `simulate` shows it.
    """

    __slots__ = ("_context",)

    _context: Mapping[str, Any]

    tag: ClassVar[str] = ""
    style: ClassVar[str] = "action"
    announces: ClassVar[bool] = False
    noted: ClassVar[bool] = False
    timeline: ClassVar[bool] = False
    fields: ClassVar[tuple[str, ...]] = ()
    _optional: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, tag: str = "") -> None:
        cls.tag = tag
        names = [
            name for name, kind in cls.__annotations__.items() if not kind.startswith("ClassVar")
        ]
        cls.fields = (*(name for name in cls.fields if name not in names), *names)
        optional = [name for name in names if name in vars(cls)]
        cls._optional = cls._optional | frozenset(optional)
        for name in optional:
            delattr(cls, name)
        if tag:
            KINDS[tag] = cls

    def __init__(self, **fields: Any) -> None:
        if None in fields.values():
            for name in self._optional:
                if fields.get(name, True) is None:
                    del fields[name]
        _keep(self, fields)

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            try:
                return self._context[name]
            except KeyError:
                if name in self._optional:
                    return None
            raise AttributeError(f"the entry {self.tag!r} of the log has no {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"an entry of the log stays as it is: {name!r} cannot be set")

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._context.items())
        return f"{type(self).__name__}({fields})"

    def stored(self, t: float) -> dict[str, Any]:
        """Return the stored form of an entry at time `t`."""
        return {"timestamp": t, "name": self.tag, "context": self._context}

    def to_json(self) -> Mapping[str, Any]:
        """Return the context of the stored form."""
        return self._context

    @property
    def job_groups(self) -> Iterator[Any]:
        """The job groups that it is about."""
        yield self._context.get("group")

    @property
    def is_note(self) -> bool:
        """True if the driver of the engine wrote the entry, and not the engine."""
        return self.noted

    @property
    def on_timeline(self) -> bool:
        """True if `simulate` shows the entry."""
        return self.timeline

    def line_style(self) -> str:
        """Return the style of its line in the log."""
        return self.style

    def sentence(self, t: float, jobid: JobId) -> str:
        """Return what `log` says of it.

        Args:
            t: its time.
            jobid: gives the text of a job id.
        """
        return " ".join(each_pair(self._context))

    def announced(self, t: float) -> Iterator[Line]:
        """Yield the lines by which `run` announces it at time `t`."""
        if self.announces:
            yield (Span(f"   {self.sentence(t, str)}", self.style),)


#: Sets the context of a new entry, whose `__setattr__` refuses it; faster than that of `object`.
_keep = vars(Entry)["_context"].__set__


def read(stored: Stored) -> Entry:
    """Return the entry of a stored one.

    Raises:
        LookupError, TypeError, ValueError: it is no entry.
    """
    return of(stored["name"], stored["context"])


def of(name: str, context: Mapping[str, Any]) -> Entry:
    """Return the entry with a name and a context."""
    entry: Entry = object.__new__(KINDS.get(name, Unknown))
    _keep(entry, context)
    return entry


class Unknown(Entry):
    """An entry of a later version."""


# -- the life of an ensemble ---------------------------------------------------------------


class Load(Entry, tag="load"):
    """The document was loaded; of that `log` says nothing, since it is long."""

    noted = True

    document: Any

    def sentence(self, t: float, jobid: JobId) -> str:
        return ""


class Start(Entry, tag="start"):
    """The ensemble has begun."""


class Request(Entry, tag="request"):
    """A user's `cancel` or `terminate`, with its arguments."""

    op: str
    group: str | None = None
    jobs: int | None = None
    reason: str | None = None
    cancel: bool | None = None

    def sentence(self, t: float, jobid: JobId) -> str:
        values = {key: value for key, value in self._context.items() if value is not False}
        return f"{self.op} {pairs(values, [key for key in values if key != 'op'])}".rstrip()

    def announced(self, t: float) -> Iterator[Line]:
        yield (Span(f"   request {self.sentence(t, str)}", "warn"),)


class Rerun(Entry, tag="rerun"):
    """A user's `rerun`: jobs that were over run again, with a `retry` for each, and others at last.

    Fields:
        jobs: how many in all.
        unsent: how many of them had never been submitted, as the ensemble had ended before.
        ended: the state in which the ensemble had ended before; it goes on with this.
        away: for how many seconds it had ended.
    """

    style = "warn"
    announces = True

    jobs: int
    unsent: int | None = None
    ended: str | None = None
    away: float | None = None

    def sentence(self, t: float, jobid: JobId) -> str:
        runs = running_again(self.jobs, self.unsent or 0)
        return runs if self.ended is None else f"{runs}: going on after the end ({self.ended})"


class Reopen(Entry, tag="reopen"):
    """A user has an ensemble go on that had ended; the next entry says with what.

    Fields:
        ended: the state in which it had ended.
        away: for how many seconds it had ended.
    """

    style = "warn"
    announces = True

    ended: str
    away: float

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"going on after the end ({self.ended})"


class Pause(Entry, tag="pause"):
    """Rules do not fire any more."""

    def announced(self, t: float) -> Iterator[Line]:
        yield (Span("   paused", "warn"),)


class Resume(Entry, tag="resume"):
    """Rules fire again."""

    def announced(self, t: float) -> Iterator[Line]:
        yield (Span("   resumed", "warn"),)


class Epoch(Entry, tag="epoch"):
    """A service, or a local run, continues an ensemble that another one began.

    Fields:
        epoch: the number of the service; a local run has none.
        firings: how many there were before the local run.
        away: for how many seconds the local run was interrupted, or there was no instance.
        ago: how many seconds before this the next instance began; it starts jobs before there is a
            service.
        undone: the jobs that ended, and whose results a crash of the instance undid.
        since: when what was undone began, in epoch seconds.
    """

    style = "warn"
    noted = True

    epoch: int | None = None
    version: str
    firings: int | None = None
    away: float | None = None
    ago: float | None = None
    undone: int | None = None
    since: float | None = None

    def sentence(self, t: float, jobid: JobId) -> str:
        if self.epoch is not None:
            return f"service number {self.epoch} goes on with it{self._interrupted()}"
        return self._goes_on()

    def announced(self, t: float) -> Iterator[Line]:
        yield (Span(f"   {self._goes_on()}", "warn"),)

    def _goes_on(self) -> str:
        if self.firings is not None:
            return f"going on after {counted(self.firings, 'firing')}{self._interrupted()}"
        return f"the service was started again, and goes on{self._interrupted()}"

    def _interrupted(self) -> str:
        away = "" if self.away is None else f", interrupted for {in_words(self.away)}"
        if self.undone is None or self.since is None:
            return away
        return f"{away}; {undone_jobs(self.undone, self.since)}"


class Shutdown(Entry, tag="shutdown"):
    """The Flux instance shuts down, or a local run was interrupted for a reason."""

    style = "warn"
    noted = True

    reason: str | None = None
    lost: bool | None = None

    def sentence(self, t: float, jobid: JobId) -> str:
        return str(self._context.get("reason", "the Flux instance began to shut down"))

    def announced(self, t: float) -> Iterator[Line]:
        reason = self._context.get("reason", "the Flux instance is shutting down")
        yield (Span(f"   {reason}", "warn"),)


class Walltime(Entry, tag="walltime"):
    """The allocation is about to end, so no more jobs are started."""

    style = "warn"
    announces = True

    t_expires: float
    active: int
    waiting: int

    def sentence(self, t: float, jobid: JobId) -> str:
        return (
            f"the allocation ends in {in_words(self.t_expires - t)}: no more jobs are started; "
            f"{self.active} are in the queue, {self.waiting} wait"
        )


class Allocation(Entry, tag="allocation"):
    """The allocation lasts longer, or there is another one."""

    style = "warn"
    announces = True

    t_expires: float | None

    def sentence(self, t: float, jobid: JobId) -> str:
        lasts = "" if self.t_expires is None else f", for {in_words(self.t_expires - t)}"
        return f"there is time again{lasts}: what was left goes on"


class Error(Entry, tag="error"):
    """Something went wrong inside the service."""

    style = "bad"
    noted = True

    text: str

    def sentence(self, t: float, jobid: JobId) -> str:
        return _indented(self.text.splitlines())

    def announced(self, t: float) -> Iterator[Line]:
        yield (Span(f"   {self.text.partition(chr(10))[0]}", "bad"),)


class Finish(Entry, tag="finish"):
    """The ensemble has ended.

    Fields:
        stopped: its engine cannot go on, for a reason outside of it.
        reopened: it went on later (`rerun`); for readers only, the log does not have it.
    """

    timeline = True

    state: str
    reason: str
    stopped: bool | None = None
    reopened: bool | None = None

    @property
    def is_note(self) -> bool:
        return self.stopped is not None

    def line_style(self) -> str:
        return STATE_STYLES.get(self.state, "")

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"{self.state}: {self.reason}"


class Stopped(Entry, tag="stopped"):
    """Something went wrong inside the service after the end of the ensemble."""

    style = "bad"
    noted = True

    state: str
    reason: str
    stopped: bool | None = None

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"{self.state}: {self.reason}"


# -- rules ---------------------------------------------------------------------------------


class OfFiring(Entry):
    """An entry about a firing of a rule, or of a request."""

    rule: str
    firing: int

    @property
    def title(self) -> str:
        """The rule, and the number of the firing."""
        return f"{self.rule} #{self.firing}"


class Fire(OfFiring, tag="fire"):
    """A rule has fired.

    Fields:
        trigger: the title of its trigger.
        action: the action, as in `ensemble.status`.
        cause: the event, and the metric with its value.
        jobs: of a submission: name, command, count and nodes of each job set.
    """

    style = "trigger"
    timeline = True

    trigger: str
    action: Mapping[str, Any]
    cause: Mapping[str, Any]
    jobs: Sequence[Mapping[str, Any]] | None = None

    @property
    def job_groups(self) -> Iterator[Any]:
        yield self.action.get("label")
        yield self.cause.get("group")
        yield from (job.get("name") for job in self.jobs or ())

    def sentence(self, t: float, jobid: JobId) -> str:
        what = f"{self.action['name']} {self.action.get('label') or ''}".rstrip()
        rest = pairs(self.action, [key for key in self.action if key not in _QUIET])
        why = explain_cause(self.trigger, self.cause, jobid)
        return f"{self.title}: {what}{f' ({rest})' if rest else ''} on {why}"

    def announced(self, t: float) -> Iterator[Line]:
        yield (Span(f" => trigger {self.trigger}{_combination(self.cause)}", "trigger"),)
        if self.action["name"] == "submit":
            for job in self.jobs or ():
                words = describe_jobs(job) + _parameters(self.action)
                name = f"   submit {job['name']}".ljust(21)
                yield (Span(f"{name} ", "action"), Span(words, "detail"))
        else:
            yield (Span(f"   {_deed(self.action)}", "action"),)


def _deed(action: Mapping[str, Any]) -> str:
    """Return what an action other than a submission does."""
    name, label = action["name"], action.get("label")
    jobs = "the triggering job" if action.get("jobs") else label or "all jobs"
    match name:
        case "terminate":
            what = "terminate ensemble" + (" as failed" if action.get("state") == "failed" else "")
            return what + (" and cancel its jobs" if action.get("cancel") else "")
        case "cancel":
            return f"cancel {jobs}"
        case "update":
            return f"update {jobs} " + pairs(action, ("urgency", "duration"))
        case _:
            for part in parts("words"):
                if name in part.DEEDS:
                    deed: str = part.DEEDS[name].format(value=action.get("value", 1))
                    return deed
            return f"{name} {label or ''}".rstrip()


def describe_jobs(job: Mapping[str, Any]) -> str:
    """Return a job set in the form `(name:echo),(command:echo hello),(count:5),(nodes:1)`."""
    return ",".join(f"({key}:{job[key]})" for key in ("name", "command", "count", "nodes"))


def _parameters(action: Mapping[str, Any]) -> str:
    """Return the parameters that a submission has in place of its group's: `,(params:t=280)`."""
    params = action.get("params")
    if not isinstance(params, Mapping) or not params:
        return ""
    return f",(params:{cut_pairs(params)})"


def cut_pairs(params: Mapping[str, Any]) -> str:
    """Return values of parameters in a line of limited length."""
    words = " ".join(each_pair(params))
    return words if len(words) <= _PARAMS else words[: _PARAMS - 3] + "..."


def explain_cause(title: str, cause: Mapping[str, Any], jobid: JobId) -> str:
    """Return why a rule fired.

    Args:
        title: the rule's trigger as it is announced.
        cause: what the log says of the event, and of the metric and its value.
        jobid: gives the text of a job id.
    """
    trigger = str(cause.get("trigger", title))
    words = title
    if "metric" in cause:
        # That of a drift or an anomaly says so.
        name = title if title.endswith(f" {cause['metric']}") else cause["metric"]
        words = f"{name} = {word(cause['value'])}"
    if "job" in cause:
        job = shown(cause["job"], cause, jobid)
        event = [cause["group"], trigger.removeprefix("job-"), *each_pair(cause["context"] or {})]
        return f"{words} ({' '.join([job, *filter(None, event)])})"
    if trigger == "custom":
        return f"{words} (returned by {cause['rule']} #{cause['firing']})"
    if trigger == "idle":
        return words + _combination(cause)
    if "member" in cause:
        return f"{words} ({cause['member']})"
    return words if trigger in (words, "metric") else f"{words} ({trigger})"


def _combination(cause: Mapping[str, Any]) -> str:
    """Return the values that an `idle` rule with `by` fires for: ` (t=280)`."""
    params = cause.get("params")
    return f" ({' '.join(each_pair(params))})" if isinstance(params, Mapping) else ""


class Failable(OfFiring):
    """An entry about an action that may have failed."""

    ok: bool
    reason: str | None = None
    detail: str | None = None

    def line_style(self) -> str:
        return "good" if self.ok else "bad"

    def sentence(self, t: float, jobid: JobId) -> str:
        detail = (self.detail or "").splitlines()
        return _indented([f"{self.title}: {self.reason}", *detail])

    def announced(self, t: float) -> Iterator[Line]:
        if self.ok:
            return
        yield (Span(f"   {self.rule} failed: {self.reason}", "bad"),)
        detail = reversed((self.detail or "").splitlines())
        if place := next((line for line in detail if _PLACE.match(line)), None):
            yield (Span(f"   {place.strip()}", "bad"),)


class Outcome(Failable, tag="outcome"):
    """The outcome of an action.

    Fields:
        member, nodes, by: of `grow` and `shrink`; the size after it, and what was granted.
        pool, members: of those on a pool; which members they are about.
        jobs, streams, changed, dropped: what it was about, as far as it is about that.
        late: it came after the deadline.
    """

    member: str | None = None
    pool: str | None = None
    ok: bool
    nodes: int | None = None
    by: int | None = None
    members: Sequence[str] | None = None
    jobs: int | None = None
    streams: int | None = None
    changed: bool | None = None
    dropped: int | None = None
    reason: str | None = None
    detail: str | None = None
    late: bool | None = None

    @property
    def on_timeline(self) -> bool:
        return not self.ok

    def sentence(self, t: float, jobid: JobId) -> str:
        if not self.ok:
            return super().sentence(t, jobid)
        if self.streams is not None:
            more = counted(self.streams, "metric")
        elif self.jobs is not None:
            more = counted(self.jobs, "job")
        else:
            more = "" if self.nodes is None else counted(self.nodes, "node")
        late = "late" if self.late else ""
        return f"{self.title}: " + ", ".join(filter(None, ("ok", more, late)))

    def announced(self, t: float) -> Iterator[Line]:
        yield from super().announced(t)
        if self.ok and self.nodes is not None:
            yield (Span(f"   the size is {counted(self.nodes, 'node')} now", "good"),)


class CustomError(Failable, tag="custom-error"):
    """A custom function has failed."""

    timeline = True

    def line_style(self) -> str:
        return "bad"


class CustomOutput(Entry, tag="custom-output"):
    """The output that a call of a custom function printed."""

    style = "detail"
    noted = True

    function: str
    text: str

    def sentence(self, t: float, jobid: JobId) -> str:
        return _indented([f"{self.function}:", *self.text.splitlines()])

    def announced(self, t: float) -> Iterator[Line]:
        for text in self.text.splitlines():
            yield (Span(f"   {self.function}: "), Span(text, "detail"))


class OfRule(Entry):
    """An entry about a rule."""

    timeline = True

    rule: str

    def announced(self, t: float) -> Iterator[Line]:
        yield (Span(f"   rule {self.rule} {self.tag.removeprefix('rule-')}", "warn"),)


class RuleAdded(OfRule, tag="rule-added"):
    """A custom function returned a rule."""

    by: str


class Switched(OfRule):
    """An entry about a rule that was switched on or off."""

    reason: str

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"{self.rule}: {self.reason}"


class RuleEnabled(Switched, tag="rule-enabled"):
    """A rule was enabled."""


class RuleDisabled(Switched, tag="rule-disabled"):
    """A rule was disabled."""


# -- jobs ----------------------------------------------------------------------------------


class OfJob(Entry):
    """An entry about a job of the ensemble; `member` is the one that it is on."""

    id: int
    member: str | None = None
    group: str
    rule: str
    firing: int
    index: int

    def whose(self, jobid: JobId) -> str:
        """Return which job it is about."""
        job = shown(self.id, self._context, jobid)
        return f"{job} {self.group}, index {self.index} of {self.rule} #{self.firing}"


class Interrupted(OfJob, tag="interrupted"):
    """A job was interrupted.

    Fields:
        fate: what becomes of it (`engine.retries.Fate`).
        reason: the note of its exception, or "".
    """

    style = "warn"

    #: What becomes of a job, and of several.
    _FATES: ClassVar[Mapping[str, tuple[str, str]]] = {
        "again": ("it runs again", "they run again"),
        "held": ("it is submitted again with urgency 0", "they are submitted again with urgency 0"),
        "failed": ("it has failed", "they have failed"),
        "gave up": ("it is given up", "they are given up"),
        "bound": ("it can run nowhere else", "they can run nowhere else"),
        "over": ("it is not needed any more", "they are not needed any more"),
    }

    fate: str
    reason: str

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"{self.whose(jobid)}: {self._why()}; {self._FATES[self.fate][0]}"

    def sentence_of(self, jobs: int) -> str:
        """Return the sentence of several entries that differ in their jobs alone."""
        where = "" if self.member is None else f" on {self.member}"
        whose = f"{jobs} jobs of group {self.group!r}{where}"
        return f"{whose}: {self._why()}; {self._FATES[self.fate][1]}"

    def _why(self) -> str:
        return str(self.reason or "what it ran on was ending")


class Violation(OfJob, tag="violation"):
    """A job has the tag of another one, and is cancelled."""

    style = "bad"
    noted = True

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"{self.whose(jobid)}: it has the tag of another job, and is cancelled"

    def announced(self, t: float) -> Iterator[Line]:
        what = f"index {self.index} of {self.rule} #{self.firing} was in the queue twice"
        yield (Span(f"   {what}; one is cancelled", "bad"),)


class OfAttempt(OfFiring):
    """An entry about a job that has run and does not run on.

    Fields:
        index: of the job among those of its firing.
        attempt: the number of attempts before; for `retry` those before the new one.
        group: of the job.
        point: the values of its parameters as people write them, at most 100 characters of them.
    """

    index: int
    attempt: int
    group: str | None = None
    point: str | None = None

    @property
    def which(self) -> str:
        """The job, by its group and parameters, and by its place in the firing."""
        place = f"index {self.index} of {self.title}"
        # Earlier versions did not keep them.
        if self.group is None:
            return place
        return f"{' '.join(filter(None, (self.group, self.point)))} ({place})"


class Retry(OfAttempt, tag="retry"):
    """A job that failed, or was interrupted, is submitted again.

    Fields:
        attempt: 0 of a job that was interrupted, or that a user has run again: it runs as if it had
            not run.
        retry: the number of the firing that submits it.
        params: the values of parameters that it has in place of those it was asked for, if any.
    """

    retry: int
    params: Mapping[str, Any] | None = None

    def sentence(self, t: float, jobid: JobId) -> str:
        again = f"again as firing retry #{self.retry} (attempt {self.attempt})"
        return f"{self.which}: {again}{self._given()}"

    def announced(self, t: float) -> Iterator[Line]:
        if self.attempt:
            again = f"retry {self.attempt} of {self.which}"
            yield (Span(f"   {again}{self._given()}", "warn"),)

    def _given(self) -> str:
        return f", with {cut_pairs(self.params)}" if self.params else ""


class GaveUp(OfAttempt, tag="gave-up"):
    """A job does not run again, though its group has retries."""

    reason: str

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"{self.which}: does not run again (attempt {self.attempt}): {self.reason}"

    def announced(self, t: float) -> Iterator[Line]:
        yield (Span(f"   no retry of {self.which}: {self.reason}", "bad"),)


class OfGroup(Entry):
    """An entry about a job group that people have to know of."""

    style = "warn"
    announces = True

    group: str
    reason: str

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"{self.group}: {self.reason}"


class NotStarted(OfGroup, tag="not-started"):
    """Jobs wait, because their time limit is longer than the allocation lasts."""


class NotJoined(Entry, tag="not-joined"):
    """The ensemble ends, and an `idle` rule on several groups has not fired for some values."""

    style = "warn"
    announces = True

    rule: str
    reason: str

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"{self.rule}: it did not fire, since {self.reason}"


class UsedUp(Entry, tag="used-up"):
    """The ensemble ends, and an `idle` rule would have fired again with more repetitions."""

    style = "warn"
    announces = True

    rule: str
    reason: str

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"{self.rule}: {self.reason}"


class MemoLeftOut(OfGroup, tag="memo-left-out"):
    """A key of a memo has no statistics."""


class ValuesLeftOut(OfGroup, tag="values-left-out"):
    """A metric has no statistics for some values of parameters."""


class RecordsFull(Entry, tag="records-full"):
    """The record has as many jobs as it may have."""

    limit: int


#: The kind of waits for a store that cannot be written.
UNWRITTEN = "unwritten"


class JobsHeld(Entry, tag="held"):
    """The queue takes no jobs for now; the fields are those of an item of `waits` in `status`."""

    style = "warn"
    announces = True
    noted = True

    group: str | None
    member: str | None
    jobs: int
    kind: str
    reason: str
    advice: str
    text: str

    def sentence(self, t: float, jobid: JobId) -> str:
        return str(self.text)


class GoOn(Entry, tag="go-on"):
    """The queue takes jobs again, after so many `seconds`; the rest is as in `JobsHeld`."""

    style = "good"
    announces = True
    noted = True

    group: str | None
    member: str | None
    jobs: int
    kind: str
    reason: str
    advice: str
    text: str
    seconds: float

    def sentence(self, t: float, jobid: JobId) -> str:
        whose = f"jobs of group {self.group!r}"
        if self.group is None:
            whose = f"the job of member {self.member!r}"
        if self.kind == UNWRITTEN:
            return f"{whose} are safe on disk again, after {in_words(self.seconds)}"
        return f"the queue accepts {whose} again, after {in_words(self.seconds)}"


class JobEvent(Entry, tag="job-event"):
    """An event of a job (RFC 21), for those who follow the log; it is not kept."""

    id: int
    member: str | None = None
    name: str
    context: Mapping[str, Any] | None

    def line(self, jobid: JobId) -> Line:
        """Return the event as `flux job eventlog` prints it: id, name, key=value."""
        return (
            Span(f"   {shown(self.id, self._context, jobid)} ", "detail"),
            Span(self.name),
            Span("".join(f" {pair}" for pair in each_pair(self.context or {})), "detail"),
        )


# -- members -------------------------------------------------------------------------------


class OfMember(Entry):
    """An entry about a member."""

    member: str


class MemberStart(OfMember, tag="member-start"):
    """A member was asked for."""

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"{self.member} was asked for"


class MemberServices(Entry, tag="member-services"):
    """Members have services of their own, since ssh does not reach other nodes.

    >>> MemberServices(pools=["pool"], reason="`ssh n2 true` fails: no").sentence(0.0, str)
    'members of pool submit their jobs themselves (service: child), since `ssh n2 true` fails: no'
    """

    style = "detail"
    announces = True

    pools: list[str]
    reason: str

    def sentence(self, t: float, jobid: JobId) -> str:
        who = f"members of {listed(self.pools)}"
        return f"{who} submit their jobs themselves (service: child), since {self.reason}"


class QueuesUnknown(OfMember, tag="queues-unknown"):
    """The service could not find out whether an instance has the queues that jobs name.

    >>> QueuesUnknown(member="other.0", reason="no answer within 10 s").sentence(0.0, str)
    'it is not known whether other.0 has the queues that jobs name: no answer within 10 s'
    """

    style = "warn"
    announces = True

    reason: str

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"it is not known whether {self.member} has the queues that jobs name: {self.reason}"


class MemberUp(OfMember, tag="member-up"):
    """A member is up.

    >>> up = MemberUp(member="pool.0", nodes=1, cores=8, t_expires=7300.0)
    >>> up.sentence(100.0, str)
    'pool.0 is up: 1 node, 8 cores, for 2h'
    """

    style = "good"
    announces = True
    timeline = True

    nodes: int
    cores: int
    t_expires: float | None

    def sentence(self, t: float, jobid: JobId) -> str:
        lasts = "" if self.t_expires is None else f", for {in_words(self.t_expires - t)}"
        size = f"{counted(self.nodes, 'node')}, {counted(self.cores, 'core')}"
        return f"{self.member} is up: {size}{lasts}"


class MemberExpires(OfMember, tag="member-expires"):
    """A member has another time limit."""

    style = "detail"
    announces = True

    t_expires: float | None

    def sentence(self, t: float, jobid: JobId) -> str:
        if self.t_expires is None:
            return f"{self.member} has no time limit any more"
        left = in_words(self.t_expires - t)
        return f"{self.member} has another time limit: {left} from now"


class MemberDraining(OfMember, tag="member-draining"):
    """A member gets no more jobs, and has `active`."""

    style = "warn"
    announces = True
    timeline = True

    reason: str
    active: int

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"{self.member} gets no more jobs, and has {self.active}: {self.reason}"


class MemberLost(OfMember, tag="member-lost"):
    """A member does not answer any more; it had `active` jobs."""

    style = "bad"
    announces = True
    timeline = True

    reason: str
    active: int

    def sentence(self, t: float, jobid: JobId) -> str:
        return f"{self.member} is lost, with {counted(self.active, 'job')}: {self.reason}"


class MemberEnded(OfMember, tag="member-ended"):
    """A member has ended, with all that ran in it.

    Fields:
        unended, unseen: how many of its jobs had not ended, and how many had not shown.
    """

    style = "detail"
    timeline = True

    reason: str
    unended: int
    unseen: int

    def sentence(self, t: float, jobid: JobId) -> str:
        left = self.unended + self.unseen
        had = f"; {counted(left, 'job')} had not ended" if left else ""
        return f"{self.member} has ended: {self.reason}{had}"


class MemberDoubted(OfMember, tag="member-doubted"):
    """`jobs` of `groups` have failed on a member in a row; it gets no more for now."""

    timeline = True

    jobs: int
    groups: Sequence[str]


class MemberTrusted(OfMember, tag="member-trusted"):
    """A member gets jobs again."""

    timeline = True

    reason: str


class NotPlaced(OfGroup, tag="not-placed"):
    """Jobs wait, and no member is up or starting that could run them."""

    timeline = True


class JobsDropped(OfGroup, tag="jobs-dropped"):
    """Jobs that were to run on one member alone are dropped, since it takes no more."""

    timeline = True

    group: str
    member: str
    reason: str


def _indented(lines: Iterable[str]) -> str:
    """Return the lines of a sentence, with those after the first indented."""
    return f"\n{'':15}".join(lines)


# The entries of features are classes of this table, too.
parts("entries")
