"""The description of a member, whoever starts it: its identity, its size, and what runs in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from flux_ensemble.document.members import SiteLimits
from flux_ensemble.texts import clip

#: The event that ends a member, published within it.
END_TOPIC = "ensemble-member.end"

#: The variables of a worker's environment that say how many cores it has, and how many seconds,
#: where nothing else does.
CORES = "FLUX_ENSEMBLE_CORES"
SECONDS = "FLUX_ENSEMBLE_SECONDS"


class Program(Enum):
    """The program of a member's job."""

    #: An instance that waits for its end; the service of the ensemble is connected to it.
    INSTANCE = "instance"
    #: An instance with a service of its own, which calls.
    SERVED = "served"
    #: A worker: no instance, but a service whose jobs are processes, which calls.
    WORKER = "worker"

    @property
    def calls(self) -> bool:
        """True if it calls the service of the ensemble, which is not connected to it."""
        return self is not Program.INSTANCE


@dataclass(frozen=True, slots=True)
class MemberTag:
    """The identity of a member's job.

    Args:
        name, run: of the ensemble.
        member: its name, such as "pool.0".
        ordinal: number of the member in its ensemble.
        epoch: of the service that started it.
    """

    name: str
    run: int
    member: str
    ordinal: int
    epoch: int

    @property
    def key(self) -> tuple[str, int, int]:
        """Identity of the member, whichever service started it."""
        return self.name, self.run, self.ordinal

    def dump(self) -> dict[str, Any]:
        """Return the tag as JSON."""
        return {key: getattr(self, key) for key in self.__slots__}


@dataclass(frozen=True, slots=True)
class Size:
    """The resources of a member.

    Args:
        nodes: number of nodes; None for any number that has the cores.
        cores: cores of each node, or of the member if `nodes` is None; None for whole nodes.
        gpus: GPUs of each node, or of the member if `nodes` is None.
        duration: seconds; 0 for no limit.
    """

    nodes: int | None = 1
    cores: int | None = None
    gpus: int = 0
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class Shape:
    """The description of a member, whoever starts it.

    Args:
        tag: of the member.
        home: identifies its ensemble among all of a user, wherever they run.
        size: its resources.
        environment, cwd: of its brokers.
        program: of its job.
        labels: of its entry.
        drain: seconds before its walltime from which it is sent no more jobs.
        prefix: of the name of its job.
        attributes: of its job, if Flux starts it (RFC 14).
        options: of its job, if Slurm starts it, by name.
        template: of its job, if Kubernetes starts it: a JobSet (`providers.jobset.template`).
        credentials: of its worker, if that calls its home over TLS.
        limits: of its pool.
    """

    tag: MemberTag
    home: str
    size: Size
    environment: Mapping[str, str]
    cwd: str
    program: Program = Program.INSTANCE
    labels: tuple[str, ...] = ()
    drain: float = 0.0
    prefix: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, str | bool] = field(default_factory=dict)
    template: Mapping[str, Any] | None = None
    credentials: str = ""
    limits: SiteLimits = field(default_factory=SiteLimits)


def job_name(ensemble: str, member: str, prefix: str = "") -> str:
    """Return the name of a member's job.

    Args:
        ensemble, member: their names.
        prefix: of the names of the ensemble's jobs.
    """
    return clip(f"{prefix}{ensemble}:{member}")
