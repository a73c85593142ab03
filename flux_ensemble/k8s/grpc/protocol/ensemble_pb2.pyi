from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatusRequest(_message.Message):
    __slots__ = ("cluster", "ensemble", "size_only")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_FIELD_NUMBER: _ClassVar[int]
    SIZE_ONLY_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    ensemble: str
    size_only: bool
    def __init__(self, cluster: _Optional[str] = ..., ensemble: _Optional[str] = ..., size_only: bool = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("cluster", "size", "size_error", "flux_error", "service", "nodes", "queue", "ensembles", "t_certificate_expires")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SIZE_ERROR_FIELD_NUMBER: _ClassVar[int]
    FLUX_ERROR_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLES_FIELD_NUMBER: _ClassVar[int]
    T_CERTIFICATE_EXPIRES_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    size: Size
    size_error: str
    flux_error: str
    service: Service
    nodes: Nodes
    queue: Queue
    ensembles: _containers.RepeatedCompositeFieldContainer[EnsembleStatus]
    t_certificate_expires: float
    def __init__(self, cluster: _Optional[str] = ..., size: _Optional[_Union[Size, _Mapping]] = ..., size_error: _Optional[str] = ..., flux_error: _Optional[str] = ..., service: _Optional[_Union[Service, _Mapping]] = ..., nodes: _Optional[_Union[Nodes, _Mapping]] = ..., queue: _Optional[_Union[Queue, _Mapping]] = ..., ensembles: _Optional[_Iterable[_Union[EnsembleStatus, _Mapping]]] = ..., t_certificate_expires: _Optional[float] = ...) -> None: ...

class Size(_message.Message):
    __slots__ = ("nodes", "minimum", "maximum")
    NODES_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    nodes: int
    minimum: int
    maximum: int
    def __init__(self, nodes: _Optional[int] = ..., minimum: _Optional[int] = ..., maximum: _Optional[int] = ...) -> None: ...

class Service(_message.Message):
    __slots__ = ("version", "mode", "pid", "t_start", "python", "events", "commands", "firings")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    T_START_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    FIRINGS_FIELD_NUMBER: _ClassVar[int]
    version: str
    mode: str
    pid: int
    t_start: float
    python: str
    events: int
    commands: int
    firings: int
    def __init__(self, version: _Optional[str] = ..., mode: _Optional[str] = ..., pid: _Optional[int] = ..., t_start: _Optional[float] = ..., python: _Optional[str] = ..., events: _Optional[int] = ..., commands: _Optional[int] = ..., firings: _Optional[int] = ...) -> None: ...

class Nodes(_message.Message):
    __slots__ = ("node_cores_free", "node_cores_up", "node_up_count", "node_free_count")
    NODE_CORES_FREE_FIELD_NUMBER: _ClassVar[int]
    NODE_CORES_UP_FIELD_NUMBER: _ClassVar[int]
    NODE_UP_COUNT_FIELD_NUMBER: _ClassVar[int]
    NODE_FREE_COUNT_FIELD_NUMBER: _ClassVar[int]
    node_cores_free: int
    node_cores_up: int
    node_up_count: int
    node_free_count: int
    def __init__(self, node_cores_free: _Optional[int] = ..., node_cores_up: _Optional[int] = ..., node_up_count: _Optional[int] = ..., node_free_count: _Optional[int] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("new", "depend", "priority", "sched", "run", "cleanup", "inactive")
    NEW_FIELD_NUMBER: _ClassVar[int]
    DEPEND_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SCHED_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    CLEANUP_FIELD_NUMBER: _ClassVar[int]
    INACTIVE_FIELD_NUMBER: _ClassVar[int]
    new: int
    depend: int
    priority: int
    sched: int
    run: int
    cleanup: int
    inactive: int
    def __init__(self, new: _Optional[int] = ..., depend: _Optional[int] = ..., priority: _Optional[int] = ..., sched: _Optional[int] = ..., run: _Optional[int] = ..., cleanup: _Optional[int] = ..., inactive: _Optional[int] = ...) -> None: ...

class EnsembleStatus(_message.Message):
    __slots__ = ("name", "state", "reason", "t_start", "t_end", "finish", "groups", "rules", "jobs", "firings", "directory", "errors", "pools")
    class GroupsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: GroupCounts
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[GroupCounts, _Mapping]] = ...) -> None: ...
    class PoolsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: PoolStatus
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[PoolStatus, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    T_START_FIELD_NUMBER: _ClassVar[int]
    T_END_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    FIRINGS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    reason: str
    t_start: float
    t_end: float
    finish: str
    groups: _containers.MessageMap[str, GroupCounts]
    rules: _containers.RepeatedCompositeFieldContainer[RuleStatus]
    jobs: Jobs
    firings: int
    directory: str
    errors: _containers.RepeatedScalarFieldContainer[str]
    pools: _containers.MessageMap[str, PoolStatus]
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., t_start: _Optional[float] = ..., t_end: _Optional[float] = ..., finish: _Optional[str] = ..., groups: _Optional[_Mapping[str, GroupCounts]] = ..., rules: _Optional[_Iterable[_Union[RuleStatus, _Mapping]]] = ..., jobs: _Optional[_Union[Jobs, _Mapping]] = ..., firings: _Optional[int] = ..., directory: _Optional[str] = ..., errors: _Optional[_Iterable[str]] = ..., pools: _Optional[_Mapping[str, PoolStatus]] = ...) -> None: ...

class PoolStatus(_message.Message):
    __slots__ = ("min", "max", "ended", "lost", "members", "runs")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    min: int
    max: int
    ended: int
    lost: int
    members: _containers.RepeatedCompositeFieldContainer[MemberStatus]
    runs: str
    def __init__(self, min: _Optional[int] = ..., max: _Optional[int] = ..., ended: _Optional[int] = ..., lost: _Optional[int] = ..., members: _Optional[_Iterable[_Union[MemberStatus, _Mapping]]] = ..., runs: _Optional[str] = ...) -> None: ...

class MemberStatus(_message.Message):
    __slots__ = ("name", "state", "reason", "nodes", "cores", "t_up", "t_expires", "jobs", "job")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    T_UP_FIELD_NUMBER: _ClassVar[int]
    T_EXPIRES_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    reason: str
    nodes: int
    cores: int
    t_up: float
    t_expires: float
    jobs: int
    job: int
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., nodes: _Optional[int] = ..., cores: _Optional[int] = ..., t_up: _Optional[float] = ..., t_expires: _Optional[float] = ..., jobs: _Optional[int] = ..., job: _Optional[int] = ...) -> None: ...

class GroupCounts(_message.Message):
    __slots__ = ("waiting", "pending", "running", "submitted", "finished", "success", "failed", "canceled", "timeout", "attempts", "gave_up", "interrupted")
    WAITING_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELED_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    GAVE_UP_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTED_FIELD_NUMBER: _ClassVar[int]
    waiting: int
    pending: int
    running: int
    submitted: int
    finished: int
    success: int
    failed: int
    canceled: int
    timeout: int
    attempts: int
    gave_up: int
    interrupted: int
    def __init__(self, waiting: _Optional[int] = ..., pending: _Optional[int] = ..., running: _Optional[int] = ..., submitted: _Optional[int] = ..., finished: _Optional[int] = ..., success: _Optional[int] = ..., failed: _Optional[int] = ..., canceled: _Optional[int] = ..., timeout: _Optional[int] = ..., attempts: _Optional[int] = ..., gave_up: _Optional[int] = ..., interrupted: _Optional[int] = ...) -> None: ...

class RuleStatus(_message.Message):
    __slots__ = ("id", "trigger", "action", "label", "enabled", "fired", "repetitions", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    FIRED_FIELD_NUMBER: _ClassVar[int]
    REPETITIONS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    trigger: str
    action: str
    label: str
    enabled: bool
    fired: int
    repetitions: int
    error: str
    def __init__(self, id: _Optional[str] = ..., trigger: _Optional[str] = ..., action: _Optional[str] = ..., label: _Optional[str] = ..., enabled: bool = ..., fired: _Optional[int] = ..., repetitions: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class Jobs(_message.Message):
    __slots__ = ("waiting", "active", "total")
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    waiting: int
    active: int
    total: int
    def __init__(self, waiting: _Optional[int] = ..., active: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("cluster", "ensemble", "group", "count", "params")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    ensemble: str
    group: str
    count: int
    params: str
    def __init__(self, cluster: _Optional[str] = ..., ensemble: _Optional[str] = ..., group: _Optional[str] = ..., count: _Optional[int] = ..., params: _Optional[str] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("ids", "members", "waiting")
    IDS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    members: _containers.RepeatedScalarFieldContainer[str]
    waiting: int
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., members: _Optional[_Iterable[str]] = ..., waiting: _Optional[int] = ...) -> None: ...

class ActionRequest(_message.Message):
    __slots__ = ("cluster", "scale", "ensemble")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    scale: Scale
    ensemble: EnsembleAction
    def __init__(self, cluster: _Optional[str] = ..., scale: _Optional[_Union[Scale, _Mapping]] = ..., ensemble: _Optional[_Union[EnsembleAction, _Mapping]] = ...) -> None: ...

class Scale(_message.Message):
    __slots__ = ("to", "by")
    TO_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    to: int
    by: int
    def __init__(self, to: _Optional[int] = ..., by: _Optional[int] = ...) -> None: ...

class EnsembleAction(_message.Message):
    __slots__ = ("name", "action")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    action: str
    def __init__(self, name: _Optional[str] = ..., action: _Optional[str] = ...) -> None: ...

class ActionResponse(_message.Message):
    __slots__ = ("scaled", "performed")
    SCALED_FIELD_NUMBER: _ClassVar[int]
    PERFORMED_FIELD_NUMBER: _ClassVar[int]
    scaled: Scaled
    performed: Performed
    def __init__(self, scaled: _Optional[_Union[Scaled, _Mapping]] = ..., performed: _Optional[_Union[Performed, _Mapping]] = ...) -> None: ...

class Scaled(_message.Message):
    __slots__ = ("before", "size")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    before: int
    size: int
    def __init__(self, before: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class Performed(_message.Message):
    __slots__ = ("firing", "ids", "members", "waiting")
    FIRING_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    firing: int
    ids: _containers.RepeatedScalarFieldContainer[int]
    members: _containers.RepeatedScalarFieldContainer[str]
    waiting: int
    def __init__(self, firing: _Optional[int] = ..., ids: _Optional[_Iterable[int]] = ..., members: _Optional[_Iterable[str]] = ..., waiting: _Optional[int] = ...) -> None: ...

class LogRequest(_message.Message):
    __slots__ = ("cluster", "ensemble", "follow", "events")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    ensemble: str
    follow: bool
    events: bool
    def __init__(self, cluster: _Optional[str] = ..., ensemble: _Optional[str] = ..., follow: bool = ..., events: bool = ...) -> None: ...

class LogEntry(_message.Message):
    __slots__ = ("timestamp", "name", "context")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    timestamp: float
    name: str
    context: str
    def __init__(self, timestamp: _Optional[float] = ..., name: _Optional[str] = ..., context: _Optional[str] = ...) -> None: ...

class MetricsRequest(_message.Message):
    __slots__ = ("cluster", "ensemble")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    ensemble: str
    def __init__(self, cluster: _Optional[str] = ..., ensemble: _Optional[str] = ...) -> None: ...

class MetricsResponse(_message.Message):
    __slots__ = ("metrics",)
    METRICS_FIELD_NUMBER: _ClassVar[int]
    metrics: str
    def __init__(self, metrics: _Optional[str] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("cluster", "ensemble")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    ensemble: str
    def __init__(self, cluster: _Optional[str] = ..., ensemble: _Optional[str] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("cluster", "ensemble")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    ensemble: str
    def __init__(self, cluster: _Optional[str] = ..., ensemble: _Optional[str] = ...) -> None: ...

class StateResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: str
    def __init__(self, state: _Optional[str] = ...) -> None: ...

class LoadRequest(_message.Message):
    __slots__ = ("cluster", "document", "name", "cwd", "environment", "workers")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    document: str
    name: str
    cwd: str
    environment: _containers.ScalarMap[str, str]
    workers: int
    def __init__(self, cluster: _Optional[str] = ..., document: _Optional[str] = ..., name: _Optional[str] = ..., cwd: _Optional[str] = ..., environment: _Optional[_Mapping[str, str]] = ..., workers: _Optional[int] = ...) -> None: ...

class LoadResponse(_message.Message):
    __slots__ = ("name", "state")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("cluster", "nodes", "queue")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    nodes: Nodes
    queue: Queue
    def __init__(self, cluster: _Optional[str] = ..., nodes: _Optional[_Union[Nodes, _Mapping]] = ..., queue: _Optional[_Union[Queue, _Mapping]] = ...) -> None: ...

class ReportResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
