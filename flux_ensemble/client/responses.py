"""Types of the service's responses, as `client.Client` returns them (docs/rpc.md)."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from flux_ensemble.metrics.job_row import JobRow


class State(TypedDict):
    """The state of an ensemble after a request."""

    state: str


class Loaded(TypedDict):
    """The response to `load`: the name of the ensemble, and its state."""

    name: str
    state: str


class Ended(TypedDict):
    """The end of an ensemble: `state` is completed, failed or canceled."""

    name: str
    state: str
    reason: str


class RunEnded(Ended):
    """The end of an ensemble of Python: `trouble` is what went wrong all the same, or ""."""

    trouble: str


class Absence(TypedDict):
    """A span in which an ensemble did not run, in epoch seconds.

    If a crash of the instance undid results, `undone` is of how many jobs, those since `since`, and
    `ended` is when the crash was. `over` is True if the ensemble had ended, before a `rerun`.
    """

    since: float
    until: float
    undone: NotRequired[int]
    ended: NotRequired[float]
    over: NotRequired[bool]


class Summary(TypedDict):
    """An ensemble of `list`.

    Times are epoch seconds: `t_start` is None until it starts, `t_end` until it ends. `failed` jobs
    are `finished`, too: they failed or ran out of time, and were not tried again.
    """

    name: str
    state: str
    reason: str
    t_start: float | None
    t_end: float | None
    active: int
    waiting: int
    finished: int
    failed: int
    #: True for a local run that was interrupted and can go on; and for how many seconds since its
    #: start it was interrupted.
    resumable: NotRequired[bool]
    away: NotRequired[float]
    absences: NotRequired[list[Absence]]


_GaveUp = TypedDict("_GaveUp", {"gave-up": int})


class GroupCounts(_GaveUp):
    """The jobs of one group, counted by state and outcome.

    `finished` counts jobs, and the keys after it count the attempts to run them; `gave-up` counts
    the jobs that have been tried as often as they may be.
    """

    waiting: int
    pending: int
    running: int
    submitted: int
    finished: int
    success: int
    failed: int
    canceled: int
    timeout: int
    interrupted: int
    attempts: int
    #: Jobs that were still to be submitted when the ensemble was cancelled, or failed.
    unsent: NotRequired[int]


class RuleStatus(TypedDict):
    """A rule of an ensemble.

    `after` and `every` are the seconds of its timer, or None; `repetitions` None means unlimited;
    `error` is the latest error, with the traceback if there is one.
    """

    id: str
    trigger: str
    after: float | None
    every: float | None
    action: str
    label: str | None
    actions: list[str]
    enabled: bool
    fired: int
    repetitions: int | None
    error: str | None
    #: With `scope: member`: how often the rule has fired for each member that has not ended, and
    #: its limit per member; None is unlimited.
    members: NotRequired[dict[str, int]]
    each: NotRequired[int | None]


class Term(TypedDict):
    """A term of a rule's condition; `holds` is None if that depends on the event."""

    text: str
    holds: bool | None
    values: dict[str, Any]
    missing: str | None


class MemberReason(TypedDict):
    """The reason why a rule with `scope: member` fires or does not for one member."""

    name: str
    fired: int
    left: int | None
    skips: int
    t_cooldown: float | None
    terms: list[Term]


class RuleReason(TypedDict):
    """The reason why a rule fires or does not; see docs/rpc.md."""

    id: str
    trigger: str
    action: str
    label: str | None
    actions: list[str]
    enabled: bool
    fired: int
    left: int | None
    error: str | None
    terms: list[Term]
    skips: int
    t_cooldown: float | None
    t_next: float | None
    waits: str | None
    never: str | None
    #: With `scope: member`, in place of `terms`: those of the first members that have not ended.
    members: NotRequired[list[MemberReason]]
    #: For which combinations a rule on `idle` did not fire, in sentences, if there are any.
    unmet: NotRequired[list[str]]


class Why(TypedDict):
    """The response to `why`; `t` is the time that it describes."""

    state: str
    reason: str
    t: float
    rules: list[RuleReason]
    waits: NotRequired[list[Wait]]
    #: True for a local run that was interrupted and can go on.
    resumable: NotRequired[bool]


class BestJob(TypedDict):
    """A best job of the document (`best` under `metrics`); its values are None before there is one.

    `of` is the variable of the group. `running` is True if the job still runs, as it can with
    `live`. `job` is its id, preceded by the name of its member and a colon if it has one.
    """

    name: str
    group: str
    of: str
    mode: str
    live: bool
    running: bool
    value: float | None
    job: int | str | None
    params: dict[str, Any]


class BestTrial(TypedDict):
    """A trial among the best of a search.

    `job` is the id of the job that gave the value, as text with the member in front if there are
    members; None if it is not known, as with a service of 0.2.0.
    """

    trial: int
    job: NotRequired[int | str | None]
    value: float
    params: dict[str, Any]


class FrontTrial(TypedDict):
    """A trial in the Pareto front of a search with several objectives; `values` are theirs."""

    trial: int
    job: NotRequired[int | str | None]
    values: list[float]
    params: dict[str, Any]


class Importance(TypedDict):
    """The importance of a variable of a search: a share from 0 to 1, of so many trials."""

    name: str
    share: float
    trials: int


class NearestTrial(TypedDict):
    """The trial of a search that violates its constraints the least, while none is feasible.

    `violations` has by how much, by the text of each constraint; 0 or less if it holds. With
    several objectives there are `values`.
    """

    trial: int
    job: NotRequired[int | str | None]
    value: NotRequired[float]
    values: NotRequired[list[float]]
    violations: dict[str, float]
    params: dict[str, Any]


class ToldTrial(TypedDict):
    """The best trial of others that a search begins with."""

    value: float
    params: dict[str, Any]


class WarmStarted(TypedDict):
    """The trials of others that a search begins with; `best` is None with several objectives."""

    trials: int
    best: ToldTrial | None


class SearchStatus(TypedDict):
    """A search (docs/rpc.md, `ensemble.status`); `best` has the best trial first.

    With several objectives `best` is empty, and there is a `front` instead. `subject_to`,
    `infeasible` and `nearest` are there with constraints on outcomes.
    """

    id: str
    group: str
    state: str
    reason: str
    sampler: str
    objective: str
    direction: str
    trials: int
    subject_to: NotRequired[list[str]]
    repeats: NotRequired[int]
    aggregate: NotRequired[str]
    parallel: int
    active: int
    stock: int
    complete: int
    infeasible: NotRequired[int]
    failed: int
    canceled: int
    pruned: NotRequired[int]
    asks: int
    ask_seconds: float | None
    trial_seconds: float | None
    idle_seconds: float
    trouble: str | None
    best: list[BestTrial]
    nearest: NotRequired[NearestTrial]
    front: NotRequired[list[FrontTrial]]
    front_size: NotRequired[int]
    importances: NotRequired[dict[str, list[Importance]]]
    warm_start: NotRequired[WarmStarted]


class MemberStatus(TypedDict):
    """A member of an ensemble that has not ended; values that are unknown before it is up are None.

    On Flux, `job` is its id where it was started (text, if not by Flux), and `uri` its address.
    """

    name: str
    state: str
    reason: str
    nodes: int | None
    cores: int | None
    t_up: float | None
    t_expires: float | None
    jobs: int
    job: NotRequired[int | str | None]
    uri: NotRequired[str | None]


class PoolStatus(TypedDict):
    """A pool of members: its bounds, how many have ended, and how many of these were lost.

    `runs` is what its jobs are: "jobs" of Flux, or "tasks" of workers. `service` is which one
    submits them: "parent", that of the ensemble, or "child", one in each member. Services of older
    versions do not send it. `node_hours` are those that it has used or asked for, and
    `most_node_hours` its limit, if it has one. `spared` is how many members ended that no job
    needed, and start when one does.
    """

    min: int
    max: int
    runs: str
    service: NotRequired[str]
    ended: int
    lost: int
    node_hours: NotRequired[float]
    most_node_hours: NotRequired[float]
    spared: NotRequired[int]
    members: list[MemberStatus]


class Wait(TypedDict):
    """The wait of some jobs of an ensemble; `text` is all of it in a sentence."""

    group: str | None
    member: str | None
    jobs: int
    kind: str
    reason: str
    advice: str
    t: float | None
    text: str


class QueueStatus(TypedDict):
    """The nodes of the queue that an ensemble submits to, and requests to change their number.

    `request` is the outstanding one, and `denied` the latest one that was denied.
    """

    nodes: int
    low: int
    high: int
    request: dict[str, Any] | None
    denied: dict[str, Any] | None


class EnsembleStatus(TypedDict):
    """An ensemble of `status`; `errors` are the service's errors about it.

    `t_predicted` is when its jobs are predicted to end; `away` is for how many seconds since its
    start it did not run, and `absences` are the spans of that.
    """

    name: str
    state: str
    reason: str
    t_start: float | None
    t_end: float | None
    finish: str
    groups: dict[str, GroupCounts]
    rules: list[RuleStatus]
    jobs: dict[str, int]
    queue: QueueStatus | None
    firings: int
    failed: int
    #: How many of those that `failed` ran out of time.
    timed_out: NotRequired[int]
    interrupted: int
    retries: int
    directory: str
    errors: list[str]
    best: NotRequired[list[BestJob]]
    units: NotRequired[dict[str, str]]
    waits: NotRequired[list[Wait]]
    searches: NotRequired[list[SearchStatus]]
    pools: NotRequired[dict[str, PoolStatus]]
    t_predicted: NotRequired[float]
    away: NotRequired[float]
    absences: NotRequired[list[Absence]]


class Status(TypedDict):
    """The response to `status`."""

    service: dict[str, Any]
    nodes: dict[str, int]
    queue: dict[str, int]
    instance: dict[str, Any]
    #: The name before of what `instance` has, for one release.
    members: dict[str, Any]
    ensembles: list[EnsembleStatus]


class Entry(TypedDict):
    """An entry (RFC 18) of an ensemble's eventlog."""

    timestamp: float
    name: str
    context: dict[str, Any]


#: The type of the jobs of `jobs`.
Job = JobRow
