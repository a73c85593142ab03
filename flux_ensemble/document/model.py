"""The checked form of an ensemble document, for the engine and the members.

Only `flux_ensemble.document.loading` makes a `Spec`. Everything here is immutable, so the engine,
members, the simulator and a replay can share it.

Durations are seconds (float), and 0 means no limit, as in Flux jobspecs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

from flux_ensemble.document.distributions import Simulated
from flux_ensemble.document.sweep import Sweep, parse_values
from flux_ensemble.document.texts import check_sizes, sizes
from flux_ensemble.metrics.names import Statistic
from flux_ensemble.texts import listed, shown

#: Key of `attributes.user` in a jobspec under which a job carries its tag.
TAG_KEY = "ensemble"

#: Rule ids that are reserved for the engine.
REQUEST_RULE = "request"
RETRY_RULE = "retry"
RESERVED_RULES = frozenset({REQUEST_RULE, RETRY_RULE})

#: Job events of RFC 21 that a rule can name as `job-EVENT`.
JOB_EVENTS = (
    "submit",
    "validate",
    "invalidate",
    "depend",
    "priority",
    "alloc",
    "start",
    "finish",
    "release",
    "free",
    "clean",
    "exception",
    "urgency",
    "memo",
    "dependency-add",
    "dependency-remove",
    "prolog-start",
    "prolog-finish",
    "epilog-start",
    "epilog-finish",
    "jobspec-update",
    "resource-update",
    "set-flags",
    "flux-restart",
    "debug",
)

#: Triggers on an outcome of a job -> the outcome.
OUTCOME_TRIGGERS = {
    "job-success": "success",
    "job-fail": "failed",
    "job-cancel": "canceled",
    "job-timeout": "timeout",
}

#: Older names that are still accepted -> today's names.
TRIGGER_ALIASES = {
    "job-run": "job-start",
    "job-sched": "job-priority",
    "job-cleanup": "job-clean",
}

#: Triggers on the outcome of a scaling request.
SCALE_TRIGGERS = ("scale-done", "scale-denied")

TRIGGERS = (
    "start",
    "metric",
    "heartbeat",
    "timer",
    "idle",
    *SCALE_TRIGGERS,
    "time-left",
    *(f"job-{name}" for name in JOB_EVENTS),
    *OUTCOME_TRIGGERS,
    *TRIGGER_ALIASES,
)

ACTIONS = (
    "submit",
    "cancel",
    "terminate",
    "custom",
    "grow",
    "shrink",
    "enable",
    "disable",
    "update",
)

#: Most jobs in one submission of a group.
MAX_JOBS = 2**31 - 1

#: Actions that need a member whose size can change.
SCALE_ACTIONS = frozenset({"grow", "shrink"})


@dataclass(frozen=True, slots=True)
class JobSet:
    """One entry of `jobs:`; entries of one name form a group.

    `jobspec` is a canonical V1 jobspec (RFC 25) when the entry gave one, else None and
    the other fields describe the job. Text fields may hold `{param}` placeholders.

    >>> md = JobSet("md", 0, ("run", "{t}"), output="md.out")
    >>> list(md.texts())[-1]
    ("a path in 'output'", 'md.out')
    """

    name: str
    index: int
    command: tuple[str, ...] = ()
    count: int = 1
    nodes: int = 1
    tasks: int = 1
    cores: int = 1
    gpus: int = 0
    duration: float = 0.0
    workdir: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    output: str | None = None
    error: str | None = None
    queue: str | None = None
    bank: str | None = None
    urgency: int = 16
    exclusive: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)
    retries: int = 0
    jobspec: Mapping[str, Any] | None = None
    sweep: Sweep = field(default_factory=Sweep)

    def texts(self) -> Iterator[tuple[str, str]]:
        """The texts of each job and what they are, placeholders not filled in."""
        for word in self.command:
            yield "a word of a command", word
        for name, value in self.environment.items():
            yield "an environment variable", f"{name}={value}"
        paths = (("workdir", self.workdir), ("output", self.output), ("error", self.error))
        for what, path in paths:
            if path is not None:
                yield f"a path in {what!r}", path


@dataclass(frozen=True)
class Group:
    """The job sets of one name, submitted together, in document order."""

    name: str
    sets: tuple[JobSet, ...]

    @cached_property
    def params(self) -> KeysView[str]:
        """The parameters that any of its job sets declares, in document order."""
        return dict.fromkeys(name for jobset in self.sets for name in jobset.sweep.names).keys()

    @cached_property
    def _whole(self) -> Submission:
        return Submission(tuple((jobset, jobset.sweep, jobset.count) for jobset in self.sets))

    @cached_property
    def _single(self) -> Submission:
        """One job for each combination."""
        return Submission(tuple((jobset, jobset.sweep, 1) for jobset in self.sets))

    def submission(
        self, count: int | None = None, params: Mapping[str, Any] | None = None
    ) -> Submission:
        """The jobs of one submission; `count` and `params` override the document's.

        Args:
            count: jobs for each combination.
            params: parameter -> a list of values, `{"range": [...]}`, or one value.

        Raises:
            ValueError: an unknown parameter, invalid values, values that do not fit together,
                too many jobs, or texts that get too long.

        >>> md = JobSet("md", 0, ("run", "{t}"), sweep=Sweep({"t": (300, 310)}))
        >>> [params for _, params in Group("md", (md,)).submission(count=2)]
        [{'t': 300}, {'t': 300}, {'t': 310}, {'t': 310}]
        >>> len(Group("md", (md,)).submission(params={"t": {"range": [0, 100]}}))
        100
        """
        if params:
            return self._overridden(count, params)
        return self._whole if count is None else self._single.times(count)

    def _overridden(self, count: int | None, params: Mapping[str, Any]) -> Submission:
        for name in params:
            if name not in self.params:
                raise ValueError(
                    f"group {self.name!r} has no parameter {shown(name)} "
                    f"(parameters: {listed(sorted(self.params))})"
                )
        values: dict[str, Sequence[Any]] = {}
        for name in [name for name in self.params if name in params]:
            try:
                values[name] = parse_values(params[name])
            except ValueError as error:
                raise ValueError(f"parameter {name!r}: {error}") from None
        changed = sizes(values)
        parts = []
        for jobset in self.sets:
            sweep = jobset.sweep.override(values)
            if sweep is not jobset.sweep:
                own = {name: changed.get(name, size) for name, size in jobset.sweep.sizes.items()}
                check_sizes(jobset.texts(), own)
            parts.append((jobset, sweep, jobset.count if count is None else count))
        return Submission(tuple(parts))


class Submission(Sequence[tuple[JobSet, dict[str, Any]]]):
    """The jobs of one submission of a group: a sequence that is computed on demand.

    Jobs are numbered from 0, by job set, then by combination of parameters. Item `i` is the
    job set and the parameter values of job `i`.

    Args:
        parts: each job set, its sweep, and how many jobs each combination has.
        ends: the number of the first job after each part; computed if it is not given.
        each: multiplies the number of jobs of every part.

    Raises:
        ValueError: there are too many jobs.

    >>> jobs = Submission(((JobSet("md", 0), Sweep({"t": (300, 310)}), 1),))
    >>> len(jobs), jobs[1][1], len(jobs.times(5))
    (2, {'t': 310}, 10)
    """

    def __init__(
        self,
        parts: tuple[tuple[JobSet, Sweep, int], ...],
        ends: Sequence[int] | None = None,
        each: int = 1,
    ) -> None:
        self._parts = parts
        self._ends = ends or list(accumulate(len(sweep) * count for _, sweep, count in parts))
        self._each = each
        self._length = (self._ends[-1] if self._ends else 0) * each
        if self._length > MAX_JOBS:
            raise ValueError(f"expected at most {MAX_JOBS} jobs, not {self._length}")

    def times(self, each: int) -> Submission:
        """The submission with `each` times as many jobs for each combination."""
        return Submission(self._parts, self._ends, each)

    @property
    def sizes(self) -> list[tuple[JobSet, int]]:
        """Each job set and its number of jobs."""
        return [(jobset, len(sweep) * count * self._each) for jobset, sweep, count in self._parts]

    def tally(self, names: Collection[str]) -> Iterator[tuple[dict[str, Any], int]]:
        """The values that some parameters have together, and how many jobs have them.

        Args:
            names: of parameters that each job set has.
        """
        for _, sweep, count in self._parts:
            for values, combinations in sweep.tally(names):
                yield values, combinations * count * self._each

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._length:
            raise IndexError(f"the submission has no job {index}")
        job = index // self._each
        part = bisect_right(self._ends, job)
        jobset, sweep, count = self._parts[part]
        return jobset, sweep[(job - (self._ends[part - 1] if part else 0)) // count]


@dataclass(frozen=True, slots=True)
class Action:
    """What a rule does. `repetitions` None means unlimited; see docs/document.md."""

    name: str
    label: str | None = None
    value: int = 1
    count: int | None = None
    params: Mapping[str, Any] | None = None
    repetitions: int | None = 1
    backoff: int = 0
    cooldown: float = 0.0
    cancel: bool = False
    urgency: int | None = None
    duration: float | None = None
    timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class Rule:
    """Trigger, condition, action.

    `trigger` is never an alias. For a metric rule `name` is the metric's path (None
    where `when` is an expression that names its own metrics); for `scale-*` triggers it is
    the id of the rule that asked, or None for every request; for `job-*` and `idle`
    triggers `group` is the group selected, or None for every job. `when` is the
    document's own number or text; the engine compiles it. `by` are the parameters of an `idle`
    rule that fires for each combination of their values.
    """

    id: str
    trigger: str
    action: Action
    name: str | None = None
    group: str | None = None
    when: float | str | None = None
    scope: str = "ensemble"
    on_error: str = "disable"
    after: float | None = None
    every: float | None = None
    below: float | None = None
    enabled: bool = True
    by: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What `run` prints after "trigger": the metric, the event, or the trigger."""
        if self.trigger == "metric":
            return self.name or str(self.when)
        about = self.group or self.name
        title = self.trigger if about is None else f"{self.trigger} {about}"
        return f"{title} by {', '.join(self.by)}" if self.by else title


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps of one ensemble: jobs in the queue at once, and jobs in all."""

    active_jobs: int = 10_000
    jobs: int = 100_000


@dataclass(frozen=True, slots=True)
class Scaling:
    """Bounds and limits of `grow` and `shrink`.

    Args:
        min_size: fewest nodes.
        max_size: most nodes; None leaves it to the member.
        deadline: seconds after which an unanswered request is given up.
        refusals: how many in a row disable a rule.
    """

    min_size: int = 1
    max_size: int | None = None
    deadline: float = 600.0
    refusals: int = 3


@dataclass(frozen=True, slots=True)
class Spec:
    """A checked ensemble document.

    `custom` is Python source or None; `heartbeat` and `rate_window` are in seconds, and without
    heartbeats `heartbeat` is 0. `durability` "strict" has Flux start no job before the queue's
    record of it is on disk.
    `directory` is the base of relative paths. `simulate` says for each group how its jobs behave
    in a simulation; only the simulator reads it.
    """

    name: str
    groups: Mapping[str, Group]
    rules: tuple[Rule, ...]
    statistics: tuple[Statistic, ...]
    limits: Limits = Limits()
    scaling: Scaling = Scaling()
    finish: str = "idle"
    durability: str = "fast"
    heartbeat: float = 0.0
    rate_window: float = 60.0
    debug: bool = False
    custom: str | None = None
    plugins: tuple[str, ...] = ()
    seed: int = 0
    directory: str = "."
    simulate: Mapping[str, Simulated] = field(default_factory=dict)
