"""The checks of `doctor` in a Flux instance, a function for each, and all of them in order.

Each takes the `InstanceInfo` and returns a `Finding`: what was found, whether that is good, and the
remedy if not. If a function raises `OSError`, `examine` reports a problem.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flux_ensemble import __version__
from flux_ensemble.bindings import BindingsError, module_problem
from flux_ensemble.client import EnsembleError
from flux_ensemble.client.errors import KEEPER, failure
from flux_ensemble.deploy.launch import split_by_launcher
from flux_ensemble.deploy.service_start import MODULES_SINCE, parse_version
from flux_ensemble.finding import Finding
from flux_ensemble.queues.elastic.settings import old_settings, read_scaler
from flux_ensemble.queues.flux.refusals import refusal
from flux_ensemble.service.settings import kept_directory, read_settings
from flux_ensemble.service.status.conditions import BEHIND, NODES, Conditions, conditions
from flux_ensemble.texts import listed
from flux_ensemble.words import counted

#: Seconds to wait for one response.
PATIENCE = 10.0

#: Difference of clocks that is tolerated, in seconds.
CLOCK_SLACK = 1.0

_ADVICE = "`flux ensemble supervise` runs it beside the broker, and again after a crash"

#: Seconds of a commit to the KVS from which it delays every rule noticeably.
SLOW_COMMIT = 1.0

#: Free space for the KVS, in bytes, below which there is a warning.
LITTLE_ROOM = 1 << 30

#: Free space of a rundir, in bytes, below which there is a warning.
LITTLE_RUNDIR = 64 << 20


#: Most brokers that are asked one by one.
MANY_RANKS = 1024

#: A key that nobody else uses.
SCRATCH = "ensemble-doctor"

#: Most reasons of waits, and most ensembles with one reason, that are named.
_MOST = 5

#: The reason of jobs that wait for nodes that are not up, or behind such a job.
_FOR_NODES = "wait for nodes that are not up"


class InstanceInfo:
    """A Flux instance, with the facts that several checks need.

    Args:
        handle: an open `flux.Flux`.

    Attributes:
        modules: the broker modules of rank 0, or None if Flux does not list them.
        service: the report of the ensemble service on itself, or its error.
        instance: the service's report on the Flux instance; None for guests, and after an error.
        ensembles: the service's report on the ensembles; empty after an error.
        has_members: an ensemble has members of its own: Flux instances.
        keeper: the report of the module `ensemble-keeper` on the service; None without one.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.modules: frozenset[str] | None
        try:
            modules = self.ask("module.list", {})["mods"]
            self.modules = frozenset(module["name"] for module in modules)
        except OSError:
            self.modules = None
        self.service: Mapping[str, Any] | OSError
        self.instance: Mapping[str, Any] | None = None
        self.has_members = False
        self.ensembles: Sequence[Mapping[str, Any]] = ()
        try:
            status = self.ask("ensemble.status", {})
            self.service = status["service"]
            self.instance = status.get("instance")
            self.ensembles = status["ensembles"]
            self.has_members = any(one.get("pools") for one in self.ensembles)
        except OSError as error:
            self.service = error
        self.keeper: Mapping[str, Any] | None
        try:
            self.keeper = self.ask(f"{KEEPER}.stats-get", {})
        except OSError:
            self.keeper = None

    def ask(self, topic: str, payload: Mapping[str, Any]) -> Any:
        """Send a request to rank 0, and wait for the response for `PATIENCE` seconds.

        Raises:
            OSError: an error, or no response in time.
        """
        future = self.handle.rpc(topic, payload, nodeid=0)
        future.wait_for(PATIENCE)
        return future.get()

    def attribute(self, name: str) -> str:
        """Return a broker attribute of rank 0.

        Raises:
            OSError: there is none of the name.
        """
        return str(self.ask("attr.get", {"name": name})["value"])


def config(instance: InstanceInfo, table: str) -> Any:
    """Return a table of the configuration of rank 0; {} if there is none."""
    return instance.ask("config.get", {}).get(table, {})


# -- what the service depends on -----------------------------------------------------------


def flux_version(instance: InstanceInfo) -> Finding:
    """Check that the broker is new enough, and the bindings have its version."""
    from flux.core.inner import raw

    broker = instance.attribute("version")
    bindings = raw.flux_core_version_string().decode()
    text = f"Flux {broker}, Python bindings {bindings}"
    if parse_version(broker) != parse_version(bindings):
        return Finding(
            "flux",
            "problem",
            text,
            "put the `flux` of this instance first on PATH, or install the flux-python of its "
            "version",
        )
    unmet = [
        need for need in NEEDS if parse_version(broker) < need.since and need.is_used(instance)
    ]
    if not unmet:
        return Finding("flux", "ok", text)
    text = "; ".join([text, *(f"{need.lacks}, before {_dotted(need.since)}" for need in unmet)])
    return Finding("flux", "warning", text, "; ".join(need.advice for need in unmet))


@dataclass(frozen=True)
class Need:
    """Something that flux-ensemble, or a document, needs a certain version of Flux for.

    Args:
        since: major and minor of that version.
        lacks: what is otherwise.
        advice: the remedy, besides a newer Flux.
        is_used: whether an instance needs it.
    """

    since: tuple[int, int]
    lacks: str
    advice: str
    is_used: Callable[[InstanceInfo], bool] = lambda instance: True


def _shrinks(instance: InstanceInfo) -> bool:
    """Return True if the site has the instance shrink, or rules of an ensemble do."""
    if config(instance, "ensemble").get("scaler"):
        return True
    rules = (rule for one in instance.ensembles for rule in one.get("rules", ()))
    # With a label it is a pool of members that shrinks.
    return any("shrink" in rule.get("actions", ()) for rule in rules)


def _called_by_flux(instance: InstanceInfo) -> bool:
    """Return True if only PATH leads from `flux ensemble` to the command."""
    return shutil.which("flux-ensemble", path=os.environ.get("FLUX_EXEC_PATH", "")) is None


#: What older versions of Flux lack.
NEEDS = (
    Need(
        MODULES_SINCE,
        "there are no broker modules in Python",
        "run `flux ensemble serve` beside this one",
    ),
    Need(
        (0, 86),
        "`flux ensemble` is not found on PATH",
        "call it `flux-ensemble`, or add its folder to FLUX_EXEC_PATH",
        _called_by_flux,
    ),
    Need(
        (0, 88),
        "an instance that has shrunk may not grow again",
        "have rules only grow",
        _shrinks,
    ),
)


def _dotted(version: tuple[int, int]) -> str:
    return f"Flux {version[0]}.{version[1]}"


def launch(instance: InstanceInfo) -> Finding:
    """Check that the instance is not one of several that were meant to be one."""
    split = split_by_launcher(instance.handle.attr_get)
    if split is not None:
        text, _, advice = split.partition(": ")
        return Finding("launch", "problem", text, advice)
    size = int(instance.handle.attr_get("size"))
    return Finding("launch", "ok", f"{counted(size, 'broker')} in one instance")


def journal(instance: InstanceInfo) -> Finding:
    """Check that the job manager streams the events of jobs."""
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


def clocks(instance: InstanceInfo) -> Finding:
    """Check that the clock of this node has not gone back, and is not behind the broker's."""
    now = time.time()
    times = {"the start of the broker": float(instance.attribute("broker.starttime"))}
    if isinstance(instance.service, Mapping) and "t_start" in instance.service:
        times["the start of the service"] = instance.service["t_start"]
    what, latest = max(times.items(), key=lambda item: item[1])
    if latest > now + CLOCK_SLACK:
        return Finding(
            "clocks",
            "problem",
            f"by the clock of this node {what} is {latest - now:.0f} s in the future",
            "have the clocks of the nodes set by one time server: timers, cooldowns and "
            "durations come from them",
        )
    return Finding("clocks", "ok", f"{what} was {now - latest:.0f} s ago by this node's clock")


def node_clocks(instance: InstanceInfo) -> Finding:
    """Check that the clocks of all nodes agree with that of this one."""
    size = int(instance.handle.attr_get("size"))
    if size == 1:
        return Finding("node-clocks", "ok", "the instance has one broker")
    command = ["flux", "exec", "--label-io", "-r", "all", "date", "+%s.%N"]
    begun = time.time()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        text = f"not known: `{shlex.join(command)}` takes more than {PATIENCE:.0f} s"
        return Finding("node-clocks", "warning", text, "`flux overlay status` names what is lost")
    ended = time.time()
    off = {}
    known = 0
    for line in done.stdout.splitlines():
        rank, _, text = line.partition(": ")
        try:
            at = float(text.split(".N")[0].removesuffix(".%N"))
        except ValueError:
            continue
        known += 1
        # Its clock was read between the two times by this node's.
        if not begun - CLOCK_SLACK <= at <= ended + CLOCK_SLACK:
            off[rank] = at - (ended if at > ended else begun)
    if not known:
        why = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Finding("node-clocks", "ok", f"not known: {why}")
    if off:
        ranks = [
            f"rank {rank} is {abs(seconds):.0f} s {'ahead' if seconds > 0 else 'behind'}"
            for rank, seconds in off.items()
        ]
        return Finding(
            "node-clocks",
            "warning",
            f"of {known} clocks, by that of this node, {_first(ranks)}",
            "have the clocks of the nodes set by one time server: times of jobs are those of the "
            "nodes where they run",
        )
    return Finding("node-clocks", "ok", f"{known} agree")


def _milliseconds(begun: float) -> str:
    return f"{(time.monotonic() - begun) * 1000:.0f} ms"


# -- the service ---------------------------------------------------------------------------


def service(instance: InstanceInfo) -> Finding:
    """Check that the service answers, and has this version."""
    answer = instance.service
    if isinstance(answer, Mapping):
        if "pid" not in answer:
            return Finding("service", "ok", f"flux-ensemble {answer['version']} (seen as a guest)")
        text = (
            f"flux-ensemble {answer['version']}, {answer['mode']} (pid {answer['pid']}), "
            f"Python {answer['python']}"
        )
        if answer["version"] != __version__:
            advice = f"this command is {__version__}: load the module of the same version"
            return Finding("service", "warning", text, advice)
        return Finding("service", "ok", text)
    if answer.errno == errno.EPERM:
        advice = "the owner of the instance has to run this, or to open status to guests"
        return Finding("service", "warning", "it does not answer guests", advice)
    if answer.errno == errno.ETIMEDOUT:
        return Finding(
            "service",
            "problem",
            f"it does not answer within {PATIENCE:.0f} s",
            "`flux dmesg` may say why",
        )
    if answer.errno != errno.ENOSYS:
        return Finding("service", "problem", str(failure(answer, "status")), "see `flux dmesg`")
    if instance.keeper is not None:
        return Finding("service", "problem", "it died", "see what the keeper, below, does about it")
    try:
        problem = module_problem()
    except BindingsError as error:
        problem = str(error)
    if problem is not None:
        return Finding(
            "service",
            "warning",
            "it is not loaded, and runs beside the broker only",
            f"`run` and `load` start it so when they need it; {problem}",
        )
    return Finding(
        "service",
        "ok",
        "it is not loaded yet: `run` and `load` do so when they need it; `flux ensemble supervise` "
        "runs it beside the broker, and again after a crash",
    )


def others(instance: InstanceInfo) -> Finding:
    """Check that no second service runs in the instance."""
    size = int(instance.handle.attr_get("size"))
    futures = [
        (rank, instance.handle.rpc("ensemble.claim", {}, nodeid=rank))
        for rank in range(min(size, MANY_RANKS))
    ]
    ends = time.monotonic() + PATIENCE
    services = []
    for rank, future in futures:
        try:
            future.wait_for(max(0.1, ends - time.monotonic()))
            claim = future.get()
        except OSError as error:
            if error.errno == errno.EPERM:
                return Finding("others", "ok", "not known: only the owner of the instance is told")
            if error.errno == errno.ETIMEDOUT:
                services.append(f"one on rank {rank} that does not answer")
            continue
        services.append(f"{claim.get('mode', 'a service')} on rank {rank} (pid {claim.get('pid')})")
    if len(services) > 1:
        return Finding(
            "others",
            "warning",
            f"{len(services)} services: {_first(services)}; one drives the ensembles",
            "end those that do not: `flux module remove ensemble` or `kill PID` on their node",
        )
    return Finding("others", "ok", "no second service runs in this instance")


def keeper(instance: InstanceInfo) -> Finding:
    """Check that the instance outlives the service, which is restarted after a crash."""
    kept = instance.keeper
    if kept is not None:
        ended = f"; the last one {kept['last_exit']}" if kept["last_exit"] else ""
        text = f"a process beside the broker, started again {kept['restarts']} times{ended}"
        if kept["state"] == "given up":
            advice = "`flux dmesg` says why; `flux ensemble supervise` begins anew"
            return Finding("keeper", "problem", f"not started again any more{ended}", advice)
        return Finding("keeper", "ok", text)
    answer = instance.service
    if isinstance(answer, Mapping) and answer.get("mode") == "client":
        return Finding("keeper", "ok", "up to what started `flux ensemble serve`")
    if not (isinstance(answer, Mapping) and "mode" in answer):
        return Finding("keeper", "warning", "none", _ADVICE)
    return Finding(
        "keeper",
        "warning",
        "none: the service is a module of the broker, and should it die, the whole instance does",
        _ADVICE,
    )


def guests(instance: InstanceInfo) -> Finding:
    """Check that the configuration of guests' access is valid."""
    wrong: list[str] = []
    settings = read_settings(config(instance, "ensemble"), wrong.append)
    if wrong:
        return Finding("guests", "problem", "; ".join(wrong), "correct the configuration")
    open_to = "list and status" if settings.allow_guest_status else "nothing"
    return Finding("guests", "ok", f"guests may ask for {open_to}")


def scaler(instance: InstanceInfo) -> Finding:
    """Check that the scaler of the instance is configured in a way that can work."""
    table = config(instance, "ensemble")
    try:
        settings = read_scaler(table) if isinstance(table, Mapping) else None
    except ValueError as error:
        return Finding("scaler", "problem", f"[ensemble] {error}", "correct the configuration")
    if settings is None:
        return Finding("scaler", "ok", "none is configured: the size of the instance is fixed")
    if instance.instance is not None and instance.instance["scaler"] is None:
        text = f"{settings.kind!r} is configured, and the service does not use it"
        advice = "`flux dmesg` says why; the configuration is read when the service starts"
        return Finding("scaler", "problem", text, advice)
    text = f"the instance can change its size: {settings.kind!r}"
    old = old_settings(table)
    if old:
        text = f"{text}; [ensemble] {'; '.join(old)}"
        return Finding("scaler", "warning", text, "rename the keys in the configuration")
    return Finding("scaler", "ok", text)


def members(instance: InstanceInfo) -> Finding:
    """Check that processes started by a member's broker end with the broker."""
    if config(instance, "exec").get("service") == "sdexec":
        return Finding("members", "ok", "what they run ends with their brokers")
    text = "what they run can live on for a while if their brokers are killed"
    if not instance.has_members:
        return Finding("members", "ok", f"no ensemble has any; {text}")
    advice = 'where systemd is there, set `service = "sdexec"` in [exec] of the configuration'
    return Finding("members", "warning", text, advice)


def ssh(instance: InstanceInfo) -> Finding:
    """Check that the service can reach members on other nodes."""
    from flux_ensemble.queues.nested.ssh import SECONDS, failed, probe

    here = instance.attribute("hostname") if _has(instance, "hostname") else os.uname().nodename
    command = probe(instance.attribute("hostlist"), here)
    if command is None:
        return Finding("ssh", "ok", "not needed: all brokers are on this node")
    text = ""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if done.returncode:
            text = failed(command, done.stderr, done.returncode)
    except subprocess.TimeoutExpired:
        text = failed(command, "", None)
    except OSError as error:
        text = failed(command, str(error.strerror), 1)
    if not text:
        return Finding("ssh", "ok", f"`{shlex.join(command)}` works")
    return Finding(
        "ssh",
        "ok",
        f"{text}; members get services of their own, unless the document has `service: parent`",
    )


def _has(instance: InstanceInfo, name: str) -> bool:
    try:
        return bool(instance.attribute(name))
    except OSError:
        return False


# -- directories ---------------------------------------------------------------------------


def rundir(instance: InstanceInfo) -> Finding:
    """Check that the broker's rundir has free space: sockets and, without a statedir, the KVS."""
    directory = instance.attribute("rundir")
    try:
        found = os.statvfs(directory)
    except OSError as error:
        return Finding("rundir", "ok", f"{directory}: not looked at ({error.strerror})")
    room = found.f_bavail * found.f_frsize
    text = f"{directory}, {_bytes(room)} free"
    if room < LITTLE_RUNDIR or not (found.f_favail or not found.f_files):
        return Finding(
            "rundir",
            "warning",
            text,
            "make room there, or start the instance with a TMPDIR that has more",
        )
    return Finding("rundir", "ok", text)


def tmpdir(instance: InstanceInfo) -> Finding:
    """Check that nobody else can replace files in the directories for temporary ones."""
    directories = {
        Path(os.environ.get("TMPDIR") or tempfile.gettempdir()),
        Path(instance.attribute("rundir")).parent,
    }
    for directory in sorted(directories):
        try:
            found = directory.stat()
        except OSError:
            continue
        others_write = found.st_mode & stat.S_IWOTH
        if others_write and not found.st_mode & stat.S_ISVTX:
            return Finding(
                "tmpdir",
                "warning",
                f"others can remove and replace files in {directory} "
                f"({stat.filemode(found.st_mode)})",
                f"`chmod +t {directory}`, or set TMPDIR to a directory of your own",
            )
        if found.st_uid not in (0, os.getuid()):
            return Finding(
                "tmpdir",
                "warning",
                f"{directory} belongs to another user (uid {found.st_uid})",
                "set TMPDIR to a directory of your own",
            )
    return Finding(
        "tmpdir", "ok", f"nobody else replaces files in {_first(sorted(map(str, directories)))}"
    )


# -- the KVS -------------------------------------------------------------------------------


def statedir(instance: InstanceInfo) -> Finding:
    """Check that the KVS outlives the instance."""
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
    """Check that the KVS is on a disk, with enough free space."""
    modules = instance.modules or frozenset()
    backing = sorted(modules & {"content-sqlite", "content-files", "content-s3"})
    if not backing:
        return Finding(
            "content",
            "warning",
            "the KVS is in memory only: no module backs it",
            "load one, such as `flux module load content-sqlite`",
        )
    text = backing[0]
    if text == "content-sqlite":
        stats = instance.ask("content-sqlite.stats-get", {})
        size, room = stats["dbfile_size"], stats["dbfile_free"]
        text += f", {_bytes(size)} used, {_bytes(room)} free"
        if room < LITTLE_ROOM:
            return Finding("content", "warning", text, "make room on that disk")
    return Finding("content", "ok", text)


def checkpoint(instance: InstanceInfo) -> Finding:
    """Check that a crash of the broker loses little."""
    period = config(instance, "kvs").get("checkpoint-period")
    if period:
        return Finding("checkpoint", "ok", f"the KVS is made safe every {period}")
    if kept_directory(instance.attribute) is None:
        return Finding("checkpoint", "ok", "not set; without a statedir it would keep nothing")
    return Finding(
        "checkpoint",
        "warning",
        "kvs.checkpoint-period is not set: a crash of the broker, not of the service, can "
        "lose all since the instance began",
        'set `checkpoint-period = "1m"` in [kvs] of its configuration, as in '
        "`flux start -Sstatedir=DIR --conf=kvs.checkpoint-period=1m`",
    )


def kvs(instance: InstanceInfo) -> Finding:
    """Check that a key can be written durably, and read."""
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
    text = f"written, made safe and read; that took {seconds * 1000:.0f} ms"
    if not right:
        return Finding("kvs", "problem", "it gave back another value than was written", "")
    if seconds > SLOW_COMMIT:
        return Finding("kvs", "warning", text, "a statedir on a local disk is faster")
    return Finding("kvs", "ok", text)


def logs(instance: InstanceInfo) -> Finding:
    """Report how much the KVS holds of ensembles."""
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


def _directory(instance: InstanceInfo, key: str) -> dict[str, Any]:
    """Return the entries of a directory of the KVS, as tree objects (RFC 11)."""
    from flux.constants import FLUX_KVS_READDIR

    request = {"key": key, "flags": FLUX_KVS_READDIR, "namespace": "primary"}
    entries: dict[str, Any] = instance.ask("kvs.lookup", request)["val"]["data"]
    return entries


def _count(instance: InstanceInfo, key: str, tree: Mapping[str, Any]) -> int:
    """Count the values of a key of the KVS, where `tree` is its tree object."""
    if tree["type"] == "valref":
        return len(tree["data"])  # a key that was appended to has several
    if tree["type"] not in ("dir", "dirref"):
        return 1
    try:
        entries = _directory(instance, key)
    except FileNotFoundError:
        return 0  # removed meanwhile
    return sum(_count(instance, f"{key}.{name}", entry) for name, entry in entries.items())


def _bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


# -- the queue -----------------------------------------------------------------------------


def queue(instance: InstanceInfo) -> Finding:
    """Check that the queues accept jobs, and start them."""
    try:
        instance.ask("job-ingest.stats-get", {})
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        text = f"no job can be submitted: {error.strerror}"
        return Finding("queue", "problem", text, refusal(error).advice.replace("'", "`"))
    if instance.modules is not None and "job-exec" not in instance.modules:
        text = "no job can start: the module job-exec is not loaded"
        return Finding("queue", "problem", text, "load it with `flux module load job-exec`")
    found = _conditions(instance)
    wrong = [
        *(_named(name, "takes no jobs", why) for name, why in found.disabled.items()),
        *(_named(name, "is stopped", why) for name, why in found.stopped.items()),
    ]
    if wrong:
        remedies = [
            *(f"enable it with `flux queue enable {name or '--all'}`" for name in found.disabled),
            *(found.start(name).replace("'", "`") for name in found.stopped),
        ]
        return Finding("queue", "warning", "; ".join(wrong), "; ".join(remedies))
    if not found.has_default:
        text = "there are queues and no default one: jobs that name none are not taken"
        advice = (
            "give each group a `queue`, or set `queue` in [policy.jobspec.defaults.system] of the "
            "configuration"
        )
        return Finding("queue", "warning", text, advice)
    return Finding("queue", "ok", "jobs are taken, and started")


def nodes(instance: InstanceInfo) -> Finding:
    """Check that all nodes are up."""
    found = _conditions(instance)
    if found.nodes_up < found.nodes:
        advice = found.advice.replace("'", "`")
        return Finding("nodes", "warning", found.nodes_text, advice)
    return Finding("nodes", "ok", f"{found.nodes} up")


def waits(instance: InstanceInfo) -> Finding:
    """Check that no jobs of ensembles wait for something that a person has to do."""
    if isinstance(instance.service, OSError):
        return Finding("waits", "ok", "not known: there is no service that says so")
    if any("waits" not in ensemble for ensemble in instance.ensembles):
        return Finding("waits", "ok", "not known: only the owner of the instance is told")
    names: dict[str, dict[str, None]] = {}
    for ensemble in instance.ensembles:
        for wait in ensemble["waits"]:
            # The check of the nodes says which of them are not up.
            reason = _FOR_NODES if wait["kind"] in (NODES, BEHIND) else wait["reason"]
            names.setdefault(reason, {})[ensemble["name"]] = None
    texts = [f"{_first(list(those))}: {reason}" for reason, those in names.items()]
    if not texts:
        return Finding("waits", "ok", "no ensemble's jobs wait for more than free nodes")
    more = f"; and {len(texts) - _MOST} more" if len(texts) > _MOST else ""
    advice = "`flux ensemble status NAME` says which jobs, and what ends it"
    return Finding("waits", "warning", "; ".join(texts[:_MOST]) + more, advice)


def _first(names: list[str]) -> str:
    """Return the first names, and the number of the others."""
    more = f", and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return listed(names[:_MOST]) + more


def _named(name: str, what: str, why: str) -> str:
    which = f"queue {name!r}" if name else "the queue"
    return f"{which} {what}" + (f" ({why})" if why else "")


def _conditions(instance: InstanceInfo) -> Conditions:
    names = instance.ask("job-manager.queue-list", {})["queues"]
    topic = "job-manager.queue-status"
    queues = {name: instance.ask(topic, {"name": name}) for name in names}
    return conditions(
        queues or {"": instance.ask(topic, {})},
        instance.ask("resource.status", {}),
        instance.ask("config.get", {}),
    )


# -- all of them ---------------------------------------------------------------------------


CHECKS: tuple[Callable[[InstanceInfo], Finding], ...] = (
    flux_version,
    launch,
    service,
    others,
    keeper,
    rundir,
    tmpdir,
    statedir,
    content,
    checkpoint,
    kvs,
    journal,
    clocks,
    node_clocks,
    queue,
    nodes,
    waits,
    guests,
    scaler,
    members,
    ssh,
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
            name = check.__name__.removesuffix("_version").replace("_", "-")
            why = error if isinstance(error, EnsembleError) else error.strerror
            findings.append(Finding(name, "problem", f"cannot tell: {why}", "see `flux dmesg`"))
    return findings
