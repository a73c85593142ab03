"""Members in their checked form: pools of Flux instances that jobs are shared out over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.document.distributions import Drawable
from flux_ensemble.document.keys.forms import ON_LOST
from flux_ensemble.document.keys.members import BREAKER_JOBS, RUNS, TASKS
from flux_ensemble.document.keys.provider import PoolProvider, pool_providers
from flux_ensemble.provider_list import PROVIDERS

#: Key of a member's tag, in `attributes.user` of its job.
MEMBER_KEY = "ensemble-member"

#: With `auto`, the members have services of their own where there may be more of them than this.
MANY_MEMBERS = 8

#: Seconds before its allocation expires from which a member gets no more jobs, if nothing is said.
DRAIN_SECONDS = 30.0

#: Seconds until a simulated member is up, if nothing is said; as measured with Flux 0.88.
STARTUP_SECONDS = 2.0

#: A job that fails within so many seconds from its start fails at once.
QUICK_SECONDS = 5.0

#: A job is placed where this many times its time limit is left.
TIME_MARGIN = 1.1

_AWAY = " or ".join(
    f"'from: {name}'" for name, one in pool_providers().items() if not one.enclosing
)

#: Why the local queue does not take a document.
NOT_LOCAL = (
    "members: the local queue has none but workers that call it ('runs: tasks' with "
    f"{_AWAY}): run the document in a Flux instance ('flux ensemble run') or simulate it "
    "('flux-ensemble simulate'), or leave out that key"
)


@dataclass(frozen=True, slots=True)
class SiteLimits:
    """Limits on what a site is asked for, for one pool.

    Args:
        queued: members that wait in its queue at once; 0 for any number.
        spacing: seconds between two submissions.
        node_hours: that all members may use together; infinity for any number.
    """

    queued: int = 0
    spacing: float = 0.0
    node_hours: float = math.inf


@dataclass(frozen=True, slots=True)
class Pool:
    """An entry of `members:`: a pool of members that are alike.

    Args:
        name: its name; its members are NAME.0, NAME.1 and so on.
        low, high: how many are started at first, and how many there are at most.
        nodes: of each.
        exclusive: they have their nodes alone.
        cores, gpus: on each node, if not.
        queue, bank, constraint, attributes: of their jobs in the enclosing instance.
        duration: seconds that each lasts; 0 is no limit of its own.
        drain: seconds before it expires from which nothing is placed on it.
        on_lost: one of `ON_LOST`.
        labels: what jobs can ask for with `member`, besides the name.
        calls: they have services of their own, which call that of the ensemble.
        runs: one of `RUNS`: what their jobs are.
        uri: of an instance that is there already; None for those that are started.
        provider: one of `PROVIDERS`: who starts them.
        options: of the job that it starts for each, by name.
        limits: on what the provider is asked for.
        idle: seconds after which a member beyond `low` that no job needs ends; 0 for never.
        template: the JobSet that each is made of; None if Kubernetes does not start them.
        silence: seconds that such an instance may be silent until it is lost; 0 for ever.
        wait: how long a member waits in the queue of its site in a simulation; None for not at all.
        startup: how long it takes then to be up; None where nothing is said.
        loss: how long it is up there until it is lost; None for never.
        broken: the probability that a member fails each of its jobs there.
        breaker: after how many jobs that fail at once a member is in doubt; 0 for never.

    >>> pool = Pool("big", labels=("gpu",))
    >>> pool.has("gpu"), pool.has("big"), pool.has("small")
    (True, True, False)
    """

    name: str
    low: int = 1
    high: int = 1
    nodes: int = 1
    duration: float = 0.0
    drain: float = DRAIN_SECONDS
    on_lost: str = ON_LOST[0]
    labels: tuple[str, ...] = ()
    calls: bool = False
    runs: str = RUNS[0]
    uri: str | None = None
    wait: Drawable | None = None
    startup: Drawable | None = None
    loss: Drawable | None = None
    broken: float = 0.0
    breaker: int = BREAKER_JOBS
    exclusive: bool = True
    cores: int = 1
    gpus: int = 0
    queue: str | None = None
    bank: str | None = None
    constraint: Mapping[str, Any] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    silence: float = 0.0
    provider: str = PROVIDERS[0]
    options: Mapping[str, str | bool] = field(default_factory=dict)
    limits: SiteLimits = field(default_factory=SiteLimits)
    template: Mapping[str, Any] | None = None
    idle: float = 0.0

    @property
    def started_by(self) -> PoolProvider:
        """The provider that starts its members."""
        return pool_providers()[self.provider]

    @property
    def calls_home(self) -> bool:
        """True if its members are workers that call the service over a network of their own.

        >>> Pool("hpc", provider="slurm", runs="tasks").calls_home, Pool("hpc").calls_home
        (True, False)
        """
        return self.runs == TASKS and not self.started_by.enclosing

    def has(self, wanted: str) -> bool:
        """Return True if `member: WANTED` selects the pool, by its name or a label."""
        return wanted == self.name or wanted in self.labels

    def job_attributes(self) -> dict[str, Any]:
        """Return the attributes (RFC 14) that the document gives the job of each member.

        >>> Pool("big", queue="batch", constraint={"properties": ["gpu"]}).job_attributes()
        {'system': {'queue': 'batch', 'constraints': {'properties': ['gpu']}}}
        """
        system = dict(self.attributes.get("system", {}))
        for key, value in (("queue", self.queue), ("bank", self.bank)):
            if value is not None:
                system.setdefault(key, value)
        if self.constraint is not None:
            other = system.get("constraints")
            both = {"and": [self.constraint, other]} if other else self.constraint
            system["constraints"] = both
        return {**self.attributes, "system": system}
