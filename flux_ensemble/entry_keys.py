"""The keywords of `Job`, `Rule`, `Action` and `Ensemble`, for type checkers; nothing runs here.

Hyphens in a key of a document become underscores here, and a key that is a word of Python's gets an
underscore at its end. Written by docs/keys.py from `document.keys`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, Literal, TypedDict

#: Seconds, or text such as "30s"; and values that an expression can also compute.
Duration = float | str | timedelta
Number = int | str


class Overrides(TypedDict, total=False):
    """The keys of a submission that override those of its group."""

    nodes: Number
    tasks: Number
    cores: Number
    gpus: Number
    duration: Duration
    urgency: Number
    queue: str
    bank: str
    environment: Mapping[str, Any]
    workdir: str | PathLike[str]
    attributes: Mapping[str, Any]


class ActionKeys(Overrides, total=False):
    """The keys of an action."""

    name: str
    label: str
    value: Number
    count: Number
    params: Mapping[str, Any] | Literal["trigger"]
    jobs: Literal["trigger"]
    near: Literal["trigger"]
    state: Literal["completed", "failed"]
    reason: str
    repetitions: int | Literal["unlimited"]
    backoff: int
    cooldown: Duration
    cancel: bool
    timeout: Duration


class RuleKeys(TypedDict, total=False):
    """The keys of a rule."""

    id: str
    trigger: str | Sequence[str]
    name: str
    group: str | Sequence[str]
    when: float | str
    scope: Literal["ensemble", "member", "queue"]
    on_error: Literal["disable", "fail", "retry"]
    after: Duration
    every: Duration
    below: Duration
    by: Sequence[str]
    detector: Mapping[str, Any]
    enabled: bool
    action: Mapping[str, Any]
    actions: Sequence[Mapping[str, Any]]


class JobKeys(TypedDict, total=False):
    """The keys of a job group."""

    name: str
    command: str | Sequence[Any]
    jobspec: str | PathLike[str] | Mapping[str, Any]
    count: int
    nodes: Number
    tasks: Number
    cores: Number
    gpus: Number
    duration: Duration
    workdir: str | PathLike[str]
    inputs: Sequence[str | PathLike[str]]
    environment: Mapping[str, Any]
    output: str | PathLike[str]
    error: str | PathLike[str]
    queue: str
    bank: str
    urgency: Number
    exclusive: bool
    attributes: Mapping[str, Any]
    params: Mapping[str, Any]
    sweep: Literal["product", "zip", "sample"]
    samples: int
    retries: int | Mapping[str, Any]
    max_active: int
    predict: Sequence[str]
    order: Literal["longest-first"]
    start: Literal["in-time", "always"]
    member: str
    on_lost: Literal["resubmit", "fail", "hold"]
    avoid_nodes: bool


Limits = TypedDict(
    "Limits",
    {"active-jobs": int, "jobs": int, "records": int, "losses": int},
    total=False,
)


class EnsembleKeys(TypedDict, total=False):
    """The keys of a document, except for its name, its jobs and its rules."""

    logging: Mapping[str, Any]
    search: Sequence[Mapping[str, Any]]
    members: Sequence[Mapping[str, Any]]
    use: Sequence[Mapping[str, Any]]
    custom: str
    plugins: Sequence[str]
    metrics: Sequence[Mapping[str, Any] | str]
    rate_window: Duration
    limits: Limits
    scaling: Mapping[str, Any]
    finish: Literal["idle", "never"]
    job_names: Literal["group", "full"]
    durability: Literal["fast", "strict"]
    share: float
    records: bool
    seed: int
    simulate: Mapping[str, Mapping[str, Any]]
