"""What the ensemble service answers: the shapes of what `client.Client` returns (docs/rpc.md)."""

from __future__ import annotations

from typing import Any, TypedDict


class State(TypedDict):
    """The state of an ensemble after a request."""

    state: str


class Loaded(TypedDict):
    """The answer to `load`: the name that the ensemble got, and its state."""

    name: str
    state: str


class Ended(TypedDict):
    """How an ensemble ended: `state` is completed, failed or canceled."""

    name: str
    state: str
    reason: str


class Summary(TypedDict):
    """One ensemble of `list`.

    Times are epoch seconds: `t_start` is None until it starts, `t_end` until it ends.
    """

    name: str
    state: str
    reason: str
    t_start: float | None
    t_end: float | None
    active: int
    waiting: int
    finished: int


class GroupCounts(TypedDict):
    """The jobs of one group, by where they are and by how they ended."""

    waiting: int
    pending: int
    running: int
    submitted: int
    finished: int
    success: int
    failed: int
    canceled: int
    timeout: int


class RuleStatus(TypedDict):
    """One rule.

    `repetitions` None means unlimited; `error` is what went wrong last, with the
    traceback if there is one.
    """

    id: str
    trigger: str
    action: str
    label: str | None
    enabled: bool
    fired: int
    repetitions: int | None
    error: str | None


class EnsembleStatus(TypedDict):
    """One ensemble of `status`; `errors` are those of the service, on its account."""

    name: str
    state: str
    reason: str
    t_start: float | None
    t_end: float | None
    finish: str
    groups: dict[str, GroupCounts]
    rules: list[RuleStatus]
    jobs: dict[str, int]
    firings: int
    directory: str
    errors: list[str]


class Status(TypedDict):
    """The answer to `status`."""

    service: dict[str, Any]
    nodes: dict[str, int]
    queue: dict[str, int]
    members: dict[str, Any]
    ensembles: list[EnsembleStatus]


class Entry(TypedDict):
    """One entry (RFC 18) of an ensemble's eventlog."""

    timestamp: float
    name: str
    context: dict[str, Any]
