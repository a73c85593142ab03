"""What `doctor` looks at in a Flux instance, one function for each thing.

Each takes the `InstanceInfo` and returns a `Finding`: what was found, whether that is good, and
what to do if not. A function that raises `OSError` is reported as a problem by the caller.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from flux_ensemble import __version__
from flux_ensemble.bindings import BindingsError, module_problem
from flux_ensemble.client import EnsembleError
from flux_ensemble.client.errors import failure
from flux_ensemble.deploy.loading import MODULES_SINCE, parse_version
from flux_ensemble.deploy.supervision import NOPANIC, supervisors
from flux_ensemble.members.elastic.settings import read_scaler
from flux_ensemble.service.settings import kept_directory, read_settings

#: Seconds that one answer takes at most.
PATIENCE = 10.0

#: Slower than this, a commit to the KVS holds up every rule, in seconds.
SLOW_COMMIT = 1.0

#: Clocks may differ by this, in seconds.
CLOCK_SLACK = 1.0

#: Less room for the KVS than this is worth a warning, in bytes.
LITTLE_ROOM = 1 << 30

#: A key that nobody else uses.
SCRATCH = "ensemble-doctor"

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """What one check found: `advice` says what to do, and is empty where all is well."""

    check: str
    state: State
    found: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        """As `doctor --json` prints it."""
        return asdict(self)


class InstanceInfo:
    """A Flux instance, and what several checks want to know of it.

    Args:
        handle: an open `flux.Flux`.

    Attributes:
        modules: the broker modules of rank 0, or None where they are not told.
        service: what the ensemble service says of itself, or the error that it gave.
        members: what it says of its members; empty for guests, or if it gave an error.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.modules: frozenset[str] | None
        try:
            listed = self.ask("module.list", {})["mods"]
            self.modules = frozenset(one["name"] for one in listed)
        except OSError:
            self.modules = None
        self.service: Mapping[str, Any] | OSError
        self.members: Mapping[str, Any] = {}
        try:
            status = self.ask("ensemble.status", {})
            self.service = status["service"]
            self.members = status.get("members", {})
        except OSError as error:
            self.service = error

    def ask(self, topic: str, payload: Mapping[str, Any]) -> Any:
        """Ask rank 0, and wait for the answer a limited time.

        Raises:
            OSError: it gave an error, or no answer in time.
        """
        future = self.handle.rpc(topic, payload, nodeid=0)
        future.wait_for(PATIENCE)
        return future.get()

    def attribute(self, name: str) -> str:
        """A broker attribute of rank 0.

        Raises:
            OSError: there is none.
        """
        return str(self.ask("attr.get", {"name": name})["value"])

    @property
    def is_module(self) -> bool:
        """The service is a broker module, or will be one."""
        return not isinstance(self.service, Mapping) or self.service.get("mode") != "client"


def flux_version(instance: InstanceInfo) -> Finding:
    """The broker is new enough, and the bindings are of its version."""
    from flux.core.inner import raw

    broker = instance.attribute("version")
    bindings = raw.flux_core_version_string().decode()
    found = f"Flux {broker}, Python bindings {bindings}"
    if parse_version(broker) != parse_version(bindings):
        return Finding(
            "flux",
            "problem",
            found,
            "put the `flux` of this instance first on PATH, or install the flux-python of its "
            "version",
        )
    if parse_version(broker) < MODULES_SINCE:
        return Finding(
            "flux",
            "warning",
            found,
            "Python broker modules came with 0.84: run `flux ensemble serve` beside this one",
        )
    return Finding("flux", "ok", found)


def service(instance: InstanceInfo) -> Finding:
    """The service answers, and is of this version."""
    said = instance.service
    if isinstance(said, Mapping):
        if "pid" not in said:
            return Finding("service", "ok", f"flux-ensemble {said['version']} (seen as a guest)")
        found = (
            f"flux-ensemble {said['version']}, {said['mode']} (pid {said['pid']}), "
            f"Python {said['python']}"
        )
        if said["version"] != __version__:
            advice = f"this command is {__version__}: load the module of the same version"
            return Finding("service", "warning", found, advice)
        return Finding("service", "ok", found)
    if said.errno == errno.EPERM:
        advice = "the owner of the instance has to run this, or to open status to guests"
        return Finding("service", "warning", "it does not answer guests", advice)
    if said.errno == errno.ETIMEDOUT:
        return Finding(
            "service",
            "problem",
            f"it does not answer within {PATIENCE:.0f} s",
            "`flux dmesg` may say why, and `flux module reload ensemble` begins again",
        )
    if said.errno != errno.ENOSYS:
        return Finding("service", "problem", str(failure(said, "status")), "see `flux dmesg`")
    try:
        problem = module_problem()
    except BindingsError as error:
        problem = str(error)
    if problem is not None:
        return Finding("service", "problem", "it is not loaded, and cannot be", problem)
    return Finding(
        "service",
        "problem",
        "it is not loaded; Flux's Python can load it",
        "`flux ensemble supervise` loads it, and again after a crash; `run` and `load` do so "
        "when they need it",
    )


def statedir(instance: InstanceInfo) -> Finding:
    """The KVS outlives the instance."""
    directory = kept_directory(instance.attribute)
    if directory is not None:
        return Finding("statedir", "ok", directory)
    return Finding(
        "statedir",
        "warning",
        "none: ensembles, their logs and all jobs are gone when the instance ends",
        "start it with `flux start -Sstatedir=DIRECTORY`, a directory on a disk that stays",
    )


def content(instance: InstanceInfo) -> Finding:
    """The KVS is on a disk, and there is room on it."""
    modules = instance.modules or frozenset()
    backing = sorted(modules & {"content-sqlite", "content-files", "content-s3"})
    if not backing:
        return Finding(
            "content",
            "warning",
            "the KVS is in memory only: no module backs it",
            "load one, such as `flux module load content-sqlite`",
        )
    found = backing[0]
    if found == "content-sqlite":
        stats = instance.ask("content-sqlite.stats-get", {})
        size, room = stats["dbfile_size"], stats["dbfile_free"]
        found += f", {_bytes(size)} used, {_bytes(room)} free"
        if room < LITTLE_ROOM:
            return Finding("content", "warning", found, "make room on that disk")
    return Finding("content", "ok", found)


def checkpoint(instance: InstanceInfo) -> Finding:
    """A crash of the broker loses little."""
    period = _config(instance, "kvs").get("checkpoint-period")
    if period:
        return Finding("checkpoint", "ok", f"the KVS is made safe every {period}")
    if kept_directory(instance.attribute) is None:
        return Finding("checkpoint", "ok", "not set; without a statedir it would keep nothing")
    return Finding(
        "checkpoint",
        "warning",
        "kvs.checkpoint-period is not set: a crash of the broker, not of the service, loses "
        "all since the instance began",
        'set `checkpoint-period = "1m"` in [kvs] of its configuration, or load documents with '
        "`durability: strict`",
    )


def nopanic(instance: InstanceInfo) -> Finding:
    """The instance outlives the service."""
    if not instance.is_module:
        return Finding("nopanic", "ok", "not needed: the service is a client of the broker")
    try:
        value = instance.attribute(NOPANIC)
    except OSError:
        value = "0"
    if value != "0":
        return Finding("nopanic", "ok", f"{NOPANIC} is {value}")
    return Finding(
        "nopanic",
        "warning",
        f"{NOPANIC} is not set: should the service die, the whole instance does",
        "`flux ensemble supervise` sets it; etc/README.md says what that means for other modules",
    )


def supervision(instance: InstanceInfo) -> Finding:
    """The service is started again after a crash."""
    if not instance.is_module:
        return Finding("supervision", "ok", "up to what started `flux ensemble serve`")
    try:
        entries = supervisors(instance.handle)
    except OSError as error:
        return Finding("supervision", "warning", f"cannot tell: {error.strerror}", _SUPERVISE)
    if not entries:
        return Finding("supervision", "warning", "not supervised", _SUPERVISE)
    if entries[0]["stopped"]:
        return Finding("supervision", "warning", "the cron entry is stopped", _SUPERVISE)
    found = f"an entry of flux-cron(1), which has run {entries[0]['stats']['total']:.0f} times"
    return Finding("supervision", "ok", found)


_SUPERVISE = "`flux ensemble supervise` has it started again after a crash"


def journal(instance: InstanceInfo) -> Finding:
    """The job manager tells the events of jobs."""
    from flux.constants import FLUX_RPC_STREAMING

    begun = time.monotonic()
    future = instance.handle.rpc("job-manager.events-journal", {}, flags=FLUX_RPC_STREAMING)
    try:
        future.wait_for(PATIENCE)
        future.get()
    except OSError as error:
        if error.errno == errno.EPERM:
            return Finding("journal", "warning", "guests may not read it", "ask as the owner")
        return Finding(
            "journal",
            "problem",
            f"the job manager does not answer ({error.strerror})",
            "see `flux dmesg`; `flux module reload job-manager` begins again, and the service "
            "goes on by itself",
        )
    return Finding("journal", "ok", f"answers in {_milliseconds(begun)}")


def kvs(instance: InstanceInfo) -> Finding:
    """A key can be written for good, and read."""
    import flux.kvs
    from flux.constants import FLUX_KVS_SYNC

    handle, value = instance.handle, f"{os.getpid()} {time.time()}"
    begun = time.monotonic()
    try:
        flux.kvs.put(handle, SCRATCH, value)
        flux.kvs.commit_async(handle, FLUX_KVS_SYNC).wait_for(PATIENCE).get()
        seconds = time.monotonic() - begun
        right = flux.kvs.get(handle, SCRATCH) == value
        flux.kvs.put_unlink(handle, SCRATCH)
        flux.kvs.commit_async(handle).wait_for(PATIENCE).get()
    except OSError as error:
        if error.errno == errno.EPERM:
            return Finding("kvs", "warning", "guests may not write to it", "ask as the owner")
        return Finding("kvs", "problem", f"it fails: {error.strerror}", "see `flux dmesg`")
    found = f"written, made safe and read; that took {seconds * 1000:.0f} ms"
    if not right:
        return Finding("kvs", "problem", "it gave back another value than was written", "")
    if seconds > SLOW_COMMIT:
        return Finding("kvs", "warning", found, "a statedir on a local disk is faster")
    return Finding("kvs", "ok", found)


def clocks(instance: InstanceInfo) -> Finding:
    """The clock of this node has not gone back, and is not behind the broker's."""
    now = time.time()
    times = {"the start of the broker": float(instance.attribute("broker.starttime"))}
    if isinstance(instance.service, Mapping) and "t_start" in instance.service:
        times["the start of the service"] = instance.service["t_start"]
    what, latest = max(times.items(), key=lambda one: one[1])
    if latest > now + CLOCK_SLACK:
        return Finding(
            "clocks",
            "problem",
            f"by the clock of this node {what} is {latest - now:.0f} s in the future",
            "have the clocks of the nodes set by one time server: timers, cooldowns and "
            "durations come from them",
        )
    return Finding("clocks", "ok", f"{what} was {now - latest:.0f} s ago by this node's clock")


def guests(instance: InstanceInfo) -> Finding:
    """Who may look is written down in a way that is understood."""
    wrong: list[str] = []
    settings = read_settings(_config(instance, "ensemble"), wrong.append)
    if wrong:
        return Finding("guests", "problem", "; ".join(wrong), "correct the configuration")
    open_to = "list and status" if settings["allow-guest-status"] else "nothing"
    return Finding("guests", "ok", f"guests may ask for {open_to}")


def scaler(instance: InstanceInfo) -> Finding:
    """What grows and shrinks the instance is configured in a way that can work."""
    table = _config(instance, "ensemble")
    try:
        settings = read_scaler(table) if isinstance(table, Mapping) else None
    except ValueError as error:
        return Finding("scaler", "problem", f"[ensemble] {error}", "correct the configuration")
    if settings is None:
        return Finding("scaler", "ok", "none is configured: the size of the instance is fixed")
    if instance.members and all(one["scaler"] is None for one in instance.members.values()):
        found = f"{settings.kind!r} is configured, and the service does not use it"
        advice = "`flux dmesg` says why; the configuration is read when the service starts"
        return Finding("scaler", "problem", found, advice)
    return Finding("scaler", "ok", f"the instance can change its size: {settings.kind!r}")


def logs(instance: InstanceInfo) -> Finding:
    """What the KVS holds of ensembles."""
    try:
        names = _directory(instance, "ensemble")
    except OSError as error:
        if error.errno == errno.ENOENT:
            return Finding("logs", "ok", "the KVS holds no ensembles")
        if error.errno == errno.EPERM:
            return Finding("logs", "warning", "guests may not read them", "ask as the owner")
        raise
    values = sum(_count(instance, f"ensemble.{name}", tree) for name, tree in names.items())
    what = f"{len(names)} ensemble{'s'[: len(names) != 1]}"
    return Finding("logs", "ok", f"the KVS holds {what} in {values} values")


CHECKS: tuple[Callable[[InstanceInfo], Finding], ...] = (
    flux_version,
    service,
    nopanic,
    supervision,
    statedir,
    content,
    checkpoint,
    kvs,
    journal,
    clocks,
    guests,
    scaler,
    logs,
)


def examine(handle: Any) -> list[Finding]:
    """Check an instance.

    Args:
        handle: an open `flux.Flux`.
    """
    instance = InstanceInfo(handle)
    findings = []
    for check in CHECKS:
        try:
            findings.append(check(instance))
        except OSError as error:
            name = check.__name__.removesuffix("_version")
            why = error if isinstance(error, EnsembleError) else error.strerror
            findings.append(Finding(name, "problem", f"cannot tell: {why}", "see `flux dmesg`"))
    return findings


def _config(instance: InstanceInfo, table: str) -> Any:
    """A table of the configuration of rank 0; {} where there is none."""
    return instance.ask("config.get", {}).get(table, {})


def _directory(instance: InstanceInfo, key: str) -> dict[str, Any]:
    """The entries of a directory of the KVS, as tree objects (RFC 11)."""
    from flux.constants import FLUX_KVS_READDIR

    request = {"key": key, "flags": FLUX_KVS_READDIR, "namespace": "primary"}
    entries: dict[str, Any] = instance.ask("kvs.lookup", request)["val"]["data"]
    return entries


def _count(instance: InstanceInfo, key: str, tree: Mapping[str, Any]) -> int:
    """How many values a key of the KVS stands for, where `tree` is its tree object."""
    if tree["type"] == "valref":
        return len(tree["data"])  # a key that was appended to has several
    if tree["type"] not in ("dir", "dirref"):
        return 1
    try:
        entries = _directory(instance, key)
    except FileNotFoundError:
        return 0  # removed meanwhile
    return sum(_count(instance, f"{key}.{name}", one) for name, one in entries.items())


def _bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def _milliseconds(begun: float) -> str:
    return f"{(time.monotonic() - begun) * 1000:.0f} ms"
