"""The frozen form of an ensemble document: what the engine and the members read.

`flux_ensemble.spec.loading.load` turns a document into a `Spec`; nothing else makes
one. Everything here is immutable data with no behaviour beyond looking things up, so
that a `Spec` can be shared by the engine, a member, the simulator and a replay.

Durations are seconds (float), and 0 means no limit, as in Flux jobspecs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.spec.distributions import Simulated
from flux_ensemble.spec.sweep import Sweep

#: Key of `attributes.user` in a jobspec under which a job carries its tag.
TAG_KEY = "ensemble"

#: Rule ids that the engine uses itself; a document may not.
REQUEST_RULE = "request"
RETRY_RULE = "retry"
RESERVED_RULES = frozenset({REQUEST_RULE, RETRY_RULE})

#: The name of the member that an ensemble runs on.
MEMBER = "default"

#: Outcomes of a job (SPEC "Outcomes of a job"); a job ends in exactly one.
OUTCOMES = ("success", "failed", "canceled", "timeout")

#: Counters of a group, as in `count.GROUP.COUNTER`.
COUNTERS = ("submitted", "finished", *OUTCOMES)

#: Metrics of the member and of the jobs that wait for it, as in `nodes.free`.
MEMBER_METRICS = {"nodes": ("size", "up", "free"), "queue": ("pending-nodes",)}

#: Variables that every group has a stream of; memo keys add to them.
STREAMS = ("duration", "pending")

#: Variables that exist only while a heartbeat is evaluated.
GAUGES = ("waiting", "running")

#: River statistics that every stream has: document name -> River class.
DEFAULT_STATISTICS = {
    "variance": "Var",
    "mean": "Mean",
    "iqr": "IQR",
    "max": "Max",
    "min": "Min",
    "mad": "MAD",
}

#: Arguments of River's statistics that say how many values are kept, and the least that each
#: may be.
STATISTIC_SIZES = {"window_size": 1, "lag": 1, "amount": 0, "k": 1}

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

#: Triggers that name an outcome, and the outcome they name.
OUTCOME_TRIGGERS = {
    "job-success": "success",
    "job-fail": "failed",
    "job-cancel": "canceled",
    "job-timeout": "timeout",
}

#: Older names that are accepted, and what they mean.
TRIGGER_ALIASES = {
    "job-run": "job-start",
    "job-sched": "job-priority",
    "job-cleanup": "job-clean",
}

#: Triggers for what became of a request to change the member's size.
SCALE_TRIGGERS = ("scale-done", "scale-denied")

TRIGGERS = (
    "start",
    "metric",
    "heartbeat",
    "timer",
    "idle",
    *SCALE_TRIGGERS,
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


@dataclass(frozen=True, slots=True)
class Group:
    """The job sets of one name, submitted together, in document order."""

    name: str
    sets: tuple[JobSet, ...]

    @property
    def params(self) -> frozenset[str]:
        """The parameters that any of its job sets declares."""
        return frozenset(name for one in self.sets for name in one.sweep.names)

    def submission(
        self, count: int | None = None, params: Mapping[str, Any] | None = None
    ) -> Submission:
        """The jobs of one submission; `count` and `params` override the document's.

        Raises:
            ValueError: a parameter that no job set declares, values that are none or do
                not fit together, or too many jobs.
        """
        for name in params or ():
            if name not in self.params:
                known = ", ".join(sorted(self.params)) or "none"
                raise ValueError(
                    f"group {self.name!r} has no parameter {name!r} (parameters: {known})"
                )
        return Submission(
            tuple(
                (one, one.sweep.override(params), one.count if count is None else count)
                for one in self.sets
            )
        )


class Submission(Sequence[tuple[JobSet, dict[str, Any]]]):
    """The jobs of one submission of a group, as a sequence computed on demand.

    Jobs are numbered from 0: set by set, within a set combination by combination, and
    `count` jobs for each combination. Item `i` is the job set of job `i` and its
    parameter values.
    """

    def __init__(self, parts: tuple[tuple[JobSet, Sweep, int], ...]) -> None:
        self._parts = parts
        self._length = sum(len(sweep) * each for _, sweep, each in parts)
        if self._length > MAX_JOBS:
            raise ValueError(f"expected at most {MAX_JOBS} jobs, not {self._length}")

    @property
    def sizes(self) -> list[tuple[JobSet, int]]:
        """Each job set and how many of the jobs are its."""
        return [(one, len(sweep) * each) for one, sweep, each in self._parts]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        left = index
        for one, sweep, each in self._parts:
            size = len(sweep) * each
            if 0 <= left < size:
                return one, sweep[left // each]
            left -= size
        raise IndexError(f"the submission has no job {index}")


@dataclass(frozen=True, slots=True)
class Action:
    """What a rule does. `repetitions` None means unlimited; see SPEC "Actions"."""

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
    document's own number or text; the engine compiles it.
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
    enabled: bool = True

    @property
    def title(self) -> str:
        """What `run` prints after "trigger": the metric, the event, or the trigger."""
        if self.trigger == "metric":
            return self.name or str(self.when)
        about = self.group or self.name
        return self.trigger if about is None else f"{self.trigger} {about}"


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic kept for every stream: `name` in paths, River `kind` and arguments."""

    name: str
    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps of one ensemble: jobs in the queue at once, and jobs in all."""

    active_jobs: int = 10_000
    jobs: int = 100_000


@dataclass(frozen=True, slots=True)
class Scaling:
    """How far and how `grow` and `shrink` go.

    Args:
        min_size: fewest nodes.
        max_size: most nodes, None where only the member has a bound.
        deadline: seconds that a request has to be answered in.
        refusals: after so many in a row a rule is disabled.
    """

    min_size: int = 1
    max_size: int | None = None
    deadline: float = 600.0
    refusals: int = 3


@dataclass(frozen=True, slots=True)
class Spec:
    """A checked ensemble document.

    `custom` is Python source or None; `heartbeat` is in seconds, 0 when off. `durability`
    "strict" has Flux start no job before the queue's record of it is on disk.
    `directory` is what relative paths of the document are relative to. `simulate` says,
    by group, how jobs behave in a simulation; nothing else looks at it.
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
    debug: bool = False
    custom: str | None = None
    plugins: tuple[str, ...] = ()
    seed: int = 0
    directory: str = "."
    simulate: Mapping[str, Simulated] = field(default_factory=dict)
