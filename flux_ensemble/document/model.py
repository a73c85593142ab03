"""The checked form of an ensemble document, for the engine and the members.

Only `flux_ensemble.document.loading` makes a `Spec`. Everything here is immutable, so the engine,
members, the simulator and a replay can share it.

Durations are seconds (float), and 0 means no limit, as in Flux jobspecs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from flux_ensemble.document.distributions import Simulated
from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.keys.rules import AGAIN
from flux_ensemble.document.members import Pool
from flux_ensemble.metrics.best import Best
from flux_ensemble.metrics.by_value import ByValue
from flux_ensemble.metrics.detector import Detector
from flux_ensemble.metrics.families import Named
from flux_ensemble.metrics.names import Statistic

#: Rule ids that are reserved for the engine.
REQUEST_RULE = "request"
RETRY_RULE = "retry"
RESERVED_RULES = frozenset({REQUEST_RULE, RETRY_RULE})


@dataclass(frozen=True, slots=True)
class Action:
    """An action of a rule. `repetitions` None means unlimited; see docs/document.md.

    `overrides` is what a submission has in place of what its group says; see
    `JobSet.overridden`. `expressions` has the keys with expressions, as in the document;
    `filling` gives the action with their values, and their fields are not looked at before. `near`
    is "trigger" where the jobs are to run on the member of the triggering job.
    """

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
    overrides: Mapping[str, Any] | None = None
    jobs: str | None = None
    state: str = "completed"
    reason: str | None = None
    expressions: Mapping[str, Any] | None = None
    near: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """Trigger, condition, action.

    `trigger` is never an alias. For a metric rule `name` is the metric's path (None
    where `when` is an expression that names its own metrics); for `scale-*` triggers it is
    the id of the rule that asked, or None for every request; for `search-done` that of the search,
    or None for every one; for `member-*` the pool, or None for all; for `drift` and `anomaly` it
    is the stream that `detector` watches; for `job-*` and `idle` triggers `group` is the group
    selected, or None for every job. `when` is the
    document's own number or text; the engine compiles it. `by` are the parameters of an `idle`
    rule that fires for each combination of their values. `more_*` are the other items where the
    document has lists of triggers, groups or actions.
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
    detector: Detector | None = None
    more_triggers: tuple[str, ...] = ()
    more_groups: tuple[str, ...] = ()
    more_actions: tuple[Action, ...] = ()

    @property
    def triggers(self) -> tuple[str, ...]:
        """The triggers of the rule."""
        return (self.trigger, *self.more_triggers)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that the rule selects; none if it selects every job."""
        return () if self.group is None else (self.group, *self.more_groups)

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of the rule, in order."""
        return (self.action, *self.more_actions)

    @property
    def named_actions(self) -> list[str]:
        """The actions of the rule in words, such as "submit md"."""
        return [f"{action.name} {action.label or ''}".rstrip() for action in self.actions]

    @property
    def title(self) -> str:
        """The text that `run` prints after "trigger": the metric, the event, or the trigger."""
        if self.trigger == "metric":
            return self.name or str(self.when)
        triggers = ", ".join(self.triggers)
        about = ", ".join(self.groups) or self.name
        title = triggers if about is None else f"{triggers} {about}"
        return f"{title} by {', '.join(self.by)}" if self.by else title


class SectionEntry(Protocol):
    """An entry of a list at the top of a document that a feature reads."""

    @property
    def id(self) -> str:
        """The name of the entry."""
        ...

    @property
    def group(self) -> str:
        """The group of its jobs."""
        ...

    @property
    def metrics(self) -> Named:
        """The names of it in expressions."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps of one ensemble.

    Args:
        active_jobs: jobs in the queue at once.
        jobs: jobs in all.
        records: jobs in its record.
        losses: how often one job is lost and runs again.
    """

    active_jobs: int = 10_000
    jobs: int = 100_000
    records: int = 1_000_000
    losses: int = 3


@dataclass(frozen=True, slots=True)
class Spec:
    """A checked ensemble document.

    `custom` is Python source or None; `heartbeat` (0 when off) and `rate_window` are in seconds.
    `durability` "strict" has Flux start no job before the queue's record of it is on disk.
    `share` is the weight of its jobs beside those of other ensembles of the instance.
    `records` is whether there is a record of the jobs that have ended. `job_prefix` goes before
    the group in the names of jobs.
    `directory` is the base of relative paths. `simulate` says for each group how its jobs behave
    in a simulation; only the simulator reads it. `by` are the metrics that are kept by value.
    `units` are those of memo keys, or of GROUP-KEY, which are only shown.
    `expansion` is the document with what its `use` makes in its place, as plain data; None where
    it has no `use`. `features` has the entries of the lists at the top that features read, by key;
    `settings` what they read of the other keys there.
    `custom_at` is the file, and the line in it, that `custom` begins in; None
    where that is not known. `packaged` is the part of `custom` that algorithms of flux-ensemble
    made.
    `members` are the pools of instances that the jobs run on; without any, they run on the
    enclosing one.
    """

    name: str
    groups: Mapping[str, Group]
    rules: tuple[Rule, ...]
    statistics: tuple[Statistic, ...]
    limits: Limits = Limits()
    finish: str = "idle"
    durability: str = "fast"
    share: float = 1.0
    records: bool = True
    job_prefix: str = ""
    heartbeat: float = 0.0
    rate_window: float = 60.0
    debug: bool = False
    custom: str | None = None
    plugins: tuple[str, ...] = ()
    seed: int = 0
    directory: str = "."
    bests: tuple[Best, ...] = ()
    by: tuple[ByValue, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, Sequence[SectionEntry]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    simulate: Mapping[str, Simulated] = field(default_factory=dict)
    expansion: Mapping[str, Any] | None = field(default=None, repr=False)
    custom_at: tuple[str, int] | None = field(default=None, compare=False, repr=False)
    packaged: str | None = None
    members: tuple[Pool, ...] = ()

    def renamed(self, name: str) -> Spec:
        """The same document for an ensemble of another name.

        >>> Spec("a", {}, (), ()).renamed("b").name
        'b'
        """
        return replace(self, name=name, job_prefix=f"{name}." if self.job_prefix else "")

    @property
    def keeps_off(self) -> bool:
        """True if jobs that run again, or twice at once, avoid nodes used before."""
        again = any(action.name in AGAIN for rule in self.rules for action in rule.actions)
        return any(
            job_set.avoid_nodes and (again or job_set.retries.times)
            for group in self.groups.values()
            for job_set in group.sets
        )

    @property
    def bested(self) -> dict[str, tuple[Best, Collection[str]]]:
        """The best jobs that are kept, by name, with the parameters that they can have."""
        return {best.name: (best, self.groups[best.group].params) for best in self.bests}

    @property
    def named(self) -> dict[str, dict[str, Named]]:
        """The metrics that features have names for, by family and name."""
        return {
            key: {entry.id: entry.metrics for entry in entries}
            for key, entries in self.features.items()
        }
