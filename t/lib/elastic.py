"""Run inside an instance of three configured hosts: `elastic.py SCENARIO ...`.

Each scenario begins when one host is up, and no other. Prints what goes on; exits with a traceback
if it is not as it should be.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flux_ensemble.bindings import require_flux

require_flux()

import flux  # noqa: E402
import flux.job  # noqa: E402

from flux_ensemble.k8s.grpc.backend import Grant, Report, Size, target  # noqa: E402
from flux_ensemble.k8s.scaler import MiniCluster, connect  # noqa: E402
from flux_ensemble.queues.elastic.factory import make_scaler  # noqa: E402
from flux_ensemble.queues.elastic.ranks import REASON  # noqa: E402
from flux_ensemble.queues.elastic.scaler import START_SECONDS, ElasticInstance  # noqa: E402
from flux_ensemble.queues.elastic.settings import read_scaler  # noqa: E402
from flux_ensemble.queues.elastic.site_command import SiteCommand  # noqa: E402
from flux_ensemble.queues.flux.broker import Broker  # noqa: E402

START = f"flux python {Path(__file__).with_name('start_broker.py')} {{rank}}"

handle = flux.Flux()
failures: list[BaseException] = []


def unexpected(error: BaseException) -> None:
    failures.append(error)
    handle.reactor_stop()


broker = Broker(handle, unexpected)


def wait(until: Callable[[], bool], limit: float = 60.0) -> None:
    """Run the reactor until a condition holds."""
    t_end = time.monotonic() + limit
    tick = broker.loop.timer(0.05, handle.reactor_stop, every=0.05)
    while not until():
        assert time.monotonic() < t_end, "it took too long"
        handle.reactor_run()
        if failures:
            raise failures[0]
    tick.cancel()


def instance_scaler(
    command: str,
    *,
    start_seconds: float = START_SECONDS,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> ElasticInstance:
    """A scaler that runs a command for each broker."""
    command_of_site = SiteCommand(
        broker, command, start_seconds=start_seconds, environment=environment
    )
    return ElasticInstance(broker, command_of_site, start_seconds=start_seconds, **options)


class Bench:
    """A scaler, and what it has told."""

    def __init__(
        self, command: str = START, *, scaler: ElasticInstance | None = None, **options: Any
    ) -> None:
        self.scaler = scaler or instance_scaler(command, **options)
        self.seen: list[tuple[int, int, int]] = []
        self.scaler.watch(lambda *numbers: self.seen.append(numbers))

    def begin(self, to: int) -> list[int | Exception]:
        """Change the size; what came of it will be in the list."""
        results: list[int | Exception] = []
        self.scaler.scale(to, results.append)
        return results

    def scale(self, to: int) -> int:
        """Change the size, and wait for it."""
        results = self.begin(to)
        wait(lambda: bool(results))
        (result,) = results
        print("scale", to, "->", result, self.seen[-1:], flush=True)
        if isinstance(result, Exception):
            raise result
        return result

    def refused(self, to: int, number: int, *words: str) -> None:
        """Fail to change the size, with an errno and a sentence that has all of the words."""
        results = self.begin(to)
        wait(lambda: bool(results))
        failed(results, number, *words)

    def sees(self, size: int, up: int, free: int) -> None:
        wait(lambda: self.seen[-1:] == [(size, up, free)])


def failed(results: list[int | Exception], number: int, *words: str) -> None:
    """Check that there is one error, with an errno and a sentence that has all of the words."""
    (error,) = results
    print("failed:", error, flush=True)
    assert isinstance(error, OSError), error
    assert error.errno == number, error
    for word in words:
        assert word in str(error.strerror), (word, error)


def wrong(words: str, table: dict[str, Any]) -> None:
    """Check that a configuration is refused, and that the sentence has some words.

    Args:
        words: of the sentence.
        table: differences to a right one; None leaves a key out.
    """
    whole = {"scaler": "instance", "start-broker": START, **table}
    settings = {key: value for key, value in whole.items() if value is not None}
    try:
        configured(settings)
    except ValueError as error:
        sentence = str(error)
    else:
        sentence = "it was not refused"
    assert words in sentence, sentence


def configured(table: dict[str, Any]) -> ElasticInstance:
    """The scaler of a configuration."""
    settings = read_scaler(table)
    assert settings is not None
    return make_scaler(broker, settings)


def submit(nodes: int, seconds: float) -> int:
    """Submit a job that has its nodes to itself."""
    jobspec = flux.job.JobspecV1.from_command(
        ["sleep", str(seconds)], num_tasks=nodes, num_nodes=nodes, exclusive=True
    )
    jobspec.environment = dict(os.environ)
    jobspec.cwd = "/"
    return int(flux.job.submit(handle, jobspec))


def started(job: int) -> None:
    flux.job.event_wait(handle, job, "start")


def succeeded(*jobs: int) -> None:
    for job in jobs:
        result = flux.job.result(handle, job)
        assert result.returncode == 0, result


def status() -> dict[str, object]:
    return dict(handle.rpc("resource.status").get())


def drained() -> dict[str, str]:
    return {ranks: one["reason"] for ranks, one in status()["drain"].items()}  # type: ignore


def shrunk() -> None:
    """Have one broker, and nothing drained, as at the start of the instance."""
    undrain()
    if status()["online"] != "0":
        bench = Bench()
        assert bench.scale(1) == 1
        bench.scaler.close()
        undrain()


def undrain() -> None:
    for ranks in drained():
        handle.rpc("resource.undrain", {"targets": ranks}).get()


def lifecycle() -> None:
    """Grow to three, run what waits, shrink without losing a job, and grow again."""
    bench = Bench()
    bench.sees(1, 1, 1)
    waiting = submit(3, 0.2)
    assert bench.scale(3) == 3
    succeeded(waiting)
    bench.sees(3, 3, 3)
    running = [submit(1, 2), submit(1, 2), submit(1, 2)]
    for job in running:
        started(job)
    bench.sees(3, 3, 0)
    later = submit(3, 0.1)
    assert bench.scale(1) == 1
    succeeded(*running)
    bench.sees(1, 1, 1)
    assert status()["online"] == "0"
    assert drained() == {"1-2": REASON}
    assert bench.scale(1) == 1
    assert bench.scale(3) == 3
    assert drained() == {}
    succeeded(later)
    bench.scaler.close()


def again() -> None:
    """What a crash has cut short goes on when it is asked for again."""
    first = Bench()
    one, two = first.begin(3), first.begin(3)
    starter = flux.Flux(os.environ["FLUX_START_URI"])
    wait(lambda: starter.rpc("start.status").get()["procs"][1]["pid"] != -1)
    first.scaler.close()
    failed(one, errno.ESHUTDOWN)
    failed(two, errno.ESHUTDOWN)
    second = Bench()
    assert second.scale(3) == 3
    job = submit(3, 1.5)
    started(job)
    results = second.begin(1)
    wait(lambda: drained() == {"1-2": REASON})
    second.scaler.close()
    assert len(results) == 1
    third = Bench()
    third.sees(1, 1, 0)
    assert third.scale(1) == 1
    succeeded(job)
    assert status()["online"] == "0"
    # Drained by a shrink, and online: it was not undrained yet, or not stopped yet.
    handle.rpc("resource.undrain", {"targets": "1"}).get()
    assert third.scale(2) == 2
    handle.rpc("resource.drain", {"targets": "1", "reason": REASON}).get()
    assert third.scale(2) == 2
    assert status()["online"] == "0-1"
    third.scaler.close()


def overtaken() -> None:
    """A change gives way to the next one, and nothing of it stays."""
    bench = Bench()
    assert bench.scale(3) == 3
    job = submit(3, 2)
    started(job)
    results = bench.begin(1)
    wait(lambda: bool(drained()))
    assert bench.scale(2) == 2
    failed(results, errno.ECANCELED, "overtaken by a change to 2 nodes")
    assert drained() == {"2": REASON}
    assert bench.scale(3) == 3
    assert drained() == {}
    succeeded(job)
    bench.scaler.close()


def grace() -> None:
    """After the grace period, jobs on ranks that go are canceled, and no others."""
    bench = Bench(grace=0.5)
    assert bench.scale(2) == 2
    jobs = [submit(1, 300), submit(1, 300)]
    for job in jobs:
        started(job)
    assert bench.scale(1) == 1
    listed = {job: flux.job.get_job(handle, job)["state"] for job in jobs}
    assert sorted(listed.values()) == ["INACTIVE", "RUN"], listed
    for job in jobs:
        if listed[job] == "RUN":
            flux.job.cancel(handle, job)
    bench.scaler.close()


def failing() -> None:
    """Commands that fail or hang, and brokers that do not come up, end with the reason."""
    bench = Bench("sh -c 'echo no route to {host} >&2; exit 3'")
    bench.refused(2, errno.EIO, "rank 1 (fake1)", "exit status 3", "no route to fake1", "is 1")
    bench.scaler.close()
    bench = Bench("/no/such/command {rank}")
    bench.refused(3, errno.EIO, "rank 1 (fake1), rank 2 (fake2)", "No such file")
    bench.scaler.close()
    bench = Bench("true {rank}", start_seconds=0.5)
    bench.refused(3, errno.ETIMEDOUT, "fake2", "did not come up within 0.5 s", "is 1")
    bench.scaler.close()
    bench = Bench("sleep 1{rank}0", start_seconds=2.0)
    bench.refused(2, errno.EIO, "'sleep 110' did not end within 1 s")
    bench.scaler.close()
    # One of two fails: the other one stays.
    bench = Bench(f"sh -c 'test {{rank}} != 2 && exec {START}'")
    bench.refused(3, errno.EIO, "cannot start rank 2 (fake2)", "the size is 2")
    bench.scaler.close()
    bench = Bench()
    bench.sees(2, 2, 2)
    assert bench.scale(3) == 3
    assert bench.scale(1) == 1
    bench.scaler.close()


def others() -> None:
    """What somebody else has drained is left alone."""
    bench = Bench()
    handle.rpc("resource.drain", {"targets": "2", "reason": "bad disk"}).get()
    bench.refused(3, errno.EBUSY, "rank 2 ('bad disk')", "drained by somebody else")
    assert bench.scale(2) == 2
    assert bench.scale(1) == 1
    assert drained() == {"1": REASON, "2": "bad disk"}
    handle.rpc("resource.undrain", {"targets": "2"}).get()
    assert bench.scale(3) == 3
    # Somebody drains one of three: it counts no more, and is not stopped either.
    handle.rpc("resource.drain", {"targets": "1", "reason": "noisy fan"}).get()
    bench.sees(2, 2, 2)
    assert bench.scale(1) == 1
    assert status()["online"] == "0-1"
    assert drained() == {"1": "noisy fan", "2": REASON}
    bench.scaler.close()


def interference() -> None:
    """Somebody undrains a rank that is to go: it stays."""
    bench = Bench()
    assert bench.scale(3) == 3
    job = submit(3, 2)
    started(job)
    results = bench.begin(1)
    wait(lambda: drained() == {"1-2": REASON})
    wait(lambda: bench.seen[-1][0] == 1)
    handle.rpc("resource.undrain", {"targets": "1"}).get()
    wait(lambda: bool(results))
    failed(results, errno.EBUSY, "rank 1 (fake1) was undrained by somebody else")
    succeeded(job)
    assert status()["online"] == "0-1"
    bench.scaler.close()


def bounds() -> None:
    """Sizes out of bounds and wrong settings are refused with a sentence."""
    made = configured(
        {
            "scaler": "instance",
            "start-broker": START,
            "min-nodes": 1,
            "max-nodes": 2,
            "grace": "5m",
            "start-limit": "30s",
        }
    )
    bench = Bench(scaler=made)
    bench.refused(3, errno.EINVAL, "3 nodes", "1 to 2")
    bench.refused(0, errno.EINVAL, "0 nodes", "1 to 2")
    bench.scaler.close()
    bench.refused(2, errno.ESHUTDOWN, "shutting down")
    wrong("min-nodes: expected 1", {"min-nodes": 0})
    wrong("has 3 hosts", {"max-nodes": 4})
    wrong("max-nodes", {"min-nodes": 3, "max-nodes": 2})
    wrong("max-nodes: expected a whole number", {"max-nodes": "2"})
    wrong("grace: expected a duration", {"grace": "soon"})
    wrong("start-limit", {"start-limit": 0})
    wrong("{host} or {rank}", {"start-broker": "start fake1"})
    wrong("{nodename}", {"start-broker": "start {nodename}"})
    wrong("No closing quotation", {"start-broker": "start 'fake1 {rank}"})
    wrong("start-broker: expected a text", {"start-broker": 1})
    wrong("scaler: expected 'instance'", {"scaler": "cloud"})
    wrong("tls-cert: not a key of the scaler 'instance'", {"tls-cert": "cert.pem"})
    wrong("start-broker: not a key", {"scaler": "minicluster"})
    absent = {"start-broker": None, "scaler": "minicluster"}
    wrong("grpc-target: missing", absent)
    wrong("all of tls-cert, tls-key", {**absent, "grpc-target": "a:1", "tls-cert": "b"})
    tls = {"tls-cert": "/no/cert", "tls-key": "/no/key", "tls-ca": "/no/ca"}
    wrong("/no/", {**absent, "grpc-target": "a:1", **tls})
    assert read_scaler({"service": "process"}) is None


def discovered() -> None:
    """An instance that has found its nodes by itself cannot grow."""
    wrong("[bootstrap]", {})


class Brokers:
    """A back end of the gRPC service that starts and ends brokers as the Flux Operator does."""

    name = "brokers"
    discovers = False
    maximum = 3
    # `pending`: pods are made, and no broker starts in them.

    def __init__(self) -> None:
        self.nodes = 1
        self.pending = False

    def canonical(self, member: str) -> str:
        return member

    def size(self, member: str, deadline: float) -> Size:
        return Size(self.nodes, 1, self.maximum)

    def scale(
        self, member: str, *, deadline: float, to: int | None = None, by: int | None = None
    ) -> Grant:
        before = self.nodes
        self.nodes = target(member, self.size(member, deadline), to=to, by=by)
        if self.pending:
            return Grant(before, self.nodes)
        # A handle belongs to the thread that has opened it.
        starter = flux.Flux(os.environ["FLUX_START_URI"])
        for rank in range(before, self.nodes):
            starter.rpc("start.wait", {"rank": rank}).get()
            starter.rpc("start.run", {"rank": rank}).get()
        for rank in range(self.nodes, before):
            starter.rpc("start.kill", {"rank": rank, "signum": signal.SIGTERM}).get()
        return Grant(before, self.nodes)

    def report(self, member: str, report: Report, deadline: float) -> None:
        raise AssertionError("strangers report nothing")


def minicluster() -> None:
    """The gRPC service changes the size, and no job is lost; while it is down it is waited for."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "helpers"))
    from rpc_servers import serving

    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]

    def scaler(timeout: float = 10, **options: Any) -> ElasticInstance:
        client = connect(f"localhost:{port}", "alpha", timeout=timeout)
        start_seconds = options.get("start_seconds", START_SECONDS)
        minicluster = MiniCluster(broker, client, start_seconds=start_seconds)
        return ElasticInstance(broker, minicluster, **options)

    hasty = Bench(scaler=scaler(timeout=0.3, start_seconds=1))
    hasty.refused(2, errno.ETIMEDOUT, "rank 1 (fake1) did not come up", "is not available")
    hasty.scaler.close()
    bench = Bench(scaler=scaler(timeout=1))
    waiting = submit(3, 0.2)
    results = bench.begin(3)
    wait(lambda: bench.scaler.provisioner.trouble is not None)
    assert "is not available" in str(bench.scaler.provisioner.trouble)
    brokers = Brokers()
    with serving(brokers, port=port):
        wait(lambda: bool(results))
        assert results == [3]
        assert bench.scaler.provisioner.trouble is None
        succeeded(waiting)
        running = [submit(1, 2), submit(1, 2), submit(1, 2)]
        for job in running:
            started(job)
        results = bench.begin(1)
        wait(lambda: drained() == {"1-2": REASON})
        assert brokers.nodes == 3
        wait(lambda: bool(results))
        assert results == [1]
        assert brokers.nodes == 1
        succeeded(*running)
        assert bench.scale(2) == 2
        assert drained() == {"2": REASON}
        # Its pod would be the last but one, and only the last one can go.
        assert bench.scale(3) == 3
        handle.rpc("resource.drain", {"targets": "2", "reason": "bad disk"}).get()
        bench.sees(2, 2, 2)
        bench.refused(1, errno.EBUSY, "rank 2 stays")
        handle.rpc("resource.undrain", {"targets": "2"}).get()
        bench.sees(3, 3, 3)
        assert bench.scale(1) == 1
        brokers.maximum = 2
        bench.refused(3, errno.EIO, "rank 2 (fake2)", "grants no more than 2 nodes", "size is 2")
        bench.refused(3, errno.EIO, "cannot grow", "maximum is 2", "the size is 2")
        # Pods that do not come in time are given back: they would cost a node each for nothing.
        brokers.maximum, brokers.pending = 3, True
        slow = Bench(scaler=scaler(start_seconds=1))
        slow.refused(3, errno.ETIMEDOUT, "did not come up within 1 s", "the size is")
        wait(lambda: brokers.nodes == slow.scaler.report()["granted"] == 2)
        slow.scaler.close()
        brokers.pending = False
        unknown = Bench(
            scaler=ElasticInstance(
                broker, MiniCluster(broker, connect(f"localhost:{port}", "beta"))
            )
        )
        unknown.refused(1, errno.EIO, "'beta'")
        unknown.refused(3, errno.EIO, "'beta'")
        unknown.scaler.close()
    bench.scaler.close()


for scenario in sys.argv[1:]:
    shrunk()
    globals()[scenario]()
    if failures:
        raise failures[0]
