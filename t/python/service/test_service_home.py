"""A home without Flux, and workers that call it, with real processes and TLS."""

from __future__ import annotations

import datetime
import errno
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from patience import PATIENCE

from flux_ensemble import Action, Ensemble, Job, Rule, __version__
from flux_ensemble.client.errors import EnsembleError
from flux_ensemble.document.loading import load_text
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.queues.local.run import LocalRun, RunError
from flux_ensemble.queues.local.state_dir import StateLog
from flux_ensemble.queues.nested.link import FORMAT
from flux_ensemble.queues.nested.provider import JobName, Started, Written
from flux_ensemble.queues.nested.shape import MemberTag, Shape
from flux_ensemble.queues.providers.site_providers import SiteProviders
from flux_ensemble.queues.virtual.cluster import VirtualCluster
from flux_ensemble.results.failures import failures_of
from flux_ensemble.results.job_output import Outputs
from flux_ensemble.service.home import Home, Kept, new_kept, worker_uri
from flux_ensemble.service.requests.protocol import parse
from flux_ensemble.service.wire import HOME_NAME, tls_context


class Site:
    """What starts workers on this machine, and outlasts homes: it stands for a batch system.

    Attributes:
        workers: by the ids of their jobs.
        starts: how many there were.
    """

    def __init__(self) -> None:
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.starts = 0

    def start(self, job: str, credentials: str) -> None:
        self.starts += 1
        self.workers[job] = process = subprocess.Popen(
            [sys.executable, "-P", "-m", "flux_ensemble.service.worker"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(credentials.encode())
        process.stdin.close()

    def said(self, job: str) -> str:
        """What a worker printed until its end."""
        process = self.workers[job]
        process.wait(PATIENCE)
        assert process.stderr is not None
        return process.stderr.read().decode()

    def close(self) -> None:
        for process in self.workers.values():
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()


class Provider:
    """The provider of one home on a `Site`."""

    tells = False
    prints = "its output"

    def __init__(self, loop: LocalLoop, site: Site) -> None:
        self._loop, self._site = loop, site
        self._members: dict[str, Started] = {}
        self._look = loop.timer(0.05, self._watch, 0.05)

    def describe(self, shape: Shape) -> Mapping[str, Any]:
        return {"job": str(shape.tag.ordinal), "credentials": shape.credentials}

    def start(self, member: Started, job: Mapping[str, Any], written: Written) -> None:
        name = job["job"]
        if name in self._site.workers:
            self.find(member, "", name)
            return
        self._members[name] = member
        member.submitted(name)
        written(name, partial(self._site.start, name, job["credentials"]))

    def find(self, member: Started, home: str, job: str | None) -> None:
        assert job is not None
        self._members[job] = member
        member.submitted(job)

    def end(self, job: JobName, reason: str, done: Report) -> None:
        if str(job) in self._site.workers:
            self._site.workers[str(job)].terminate()
        done(None)

    def why(self, job: JobName) -> str | None:
        return None

    def forget(self, job: JobName) -> None:
        self._members.pop(str(job), None)

    def close(self) -> None:
        self._look.cancel()

    def _watch(self) -> None:
        for job, member in list(self._members.items()):
            process = self._site.workers.get(job)
            if process is not None and process.poll() is not None:
                del self._members[job]
                member.broke(f"it exited with {process.returncode}")
                member.over()


class Listener:
    events = False

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.entries: list[Mapping[str, Any]] = []

    def entry(self, entry: Mapping[str, Any]) -> None:
        self.entries.append(entry)

    def note(self, text: str) -> None:
        self.lines.append(text)

    warn = note

    def progress(self, status: Mapping[str, Any]) -> None:
        pass


class Bench:
    """A run whose home can be lost, and its workers."""

    def __init__(self, tmp_path: Path, site: Site) -> None:
        self.root, self.site = tmp_path / "state", site
        self.ran = tmp_path / "ran"
        self.ran.touch()
        self.patience = 600.0
        self.listener = Listener()
        self.home: Home
        self.loop: LocalLoop
        self.run: LocalRun

    def document(self, jobs: int, seconds: float, more: str = "", count: str = "2") -> str:
        return f"""
name: sweep
members:
  - {{name: hpc, from: slurm, runs: tasks, count: {count}}}
jobs:
  - name: sim
    command: sh -c 'echo {{s}} >>{self.ran}; sleep {seconds}'
    params: {{s: {{range: [0, {jobs}]}}}}
rules:
  - {{trigger: start, action: {{name: submit, label: sim}}}}
{more}"""

    def begin(self, stack: ExitStack, text: str, *, resume: bool = False) -> None:
        """Begin a run, or go on with one whose home was lost."""
        loop = self.loop = LocalLoop()
        stack.callback(loop.close)
        log = StateLog(self.root, "sweep", text, resume or None)
        stack.callback(log.close)

        def make(*args: Any, **keys: Any) -> Home:
            provider = Provider(loop, self.site)
            self.home = Home(*args, **keys, patience=self.patience, providers={"slurm": provider})
            return self.home

        self.run = LocalRun(
            stack,
            load_text(text),
            VirtualCluster(1, 1, 0),
            loop,
            log,
            self.listener,
            environment=dict(os.environ),
            cwd="/",
            home=make,
            text=text,
        )
        if resume:
            self.run.recover(text)
        else:
            self.run.begin(text)

    def lines(self) -> list[str]:
        return self.ran.read_text().split()

    def finish(self, jobs: int) -> dict[str, Any]:
        self.run.drive(0.05)
        status, _ = self.run.finish()
        group = status["groups"]["sim"]
        assert (status["state"], group["success"], group["finished"]) == ("completed", jobs, jobs)
        assert not self.home.busy
        return status

    def until(self, true: Callable[[], bool]) -> None:
        """Go on until something holds."""
        late = self.loop.timer(PATIENCE, lambda: pytest.fail("nothing came of it"))
        # What is waited for need not wake the loop.
        tick = self.loop.timer(0.0, lambda: None, every=0.02)
        self.loop.run(true)
        late.cancel()
        tick.cancel()

    def beside(self, work: Callable[[], Any]) -> Any:
        """Do what blocks, beside the run."""
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(work()))
        thread.start()
        self.until(lambda: not thread.is_alive())
        return results[0]

    def logged(self, text: str) -> bool:
        return any(text in line for line in self.listener.lines)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    site = Site()
    try:
        yield Bench(tmp_path, site)
    finally:
        site.close()


def call(credentials: Mapping[str, Any]) -> ssl.SSLSocket:
    """Call a home as a worker does."""
    parts = (credentials[name].encode() for name in ("ca", "cert", "key"))
    context = tls_context(ssl.PROTOCOL_TLS_CLIENT, *parts)
    with socket.create_connection(("127.0.0.1", credentials["port"]), PATIENCE) as plain:
        return context.wrap_socket(plain, server_hostname=HOME_NAME)


def answer(credentials: Mapping[str, Any], message: Mapping[str, Any]) -> Any:
    """Call, send a message, and return what the home says to it; None if it hangs up."""
    text = json.dumps(message).encode()
    data = b""
    with suppress(OSError), call(credentials) as sock:
        sock.sendall(struct.pack("!I", len(text)) + text)
        while len(data) < 4 or len(data) < 4 + struct.unpack("!I", data[:4])[0]:
            more = sock.recv(4096)
            if not more:
                return None
            data += more
    return json.loads(data[4:]) if data else None


def test_jobs_run_on_workers_once_each_and_the_workers_end_with_them(bench: Bench) -> None:
    with ExitStack() as stack:
        bench.begin(stack, bench.document(20, 0.05))
        status = bench.finish(20)
    assert sorted(map(int, bench.lines())) == list(range(20))
    # One that was up ends in order; one that had just begun is ended.
    ups = [entry for entry in bench.listener.entries if entry["name"] == "member-up"]
    codes = [process.wait(PATIENCE) for process in bench.site.workers.values()]
    assert len(codes) == 2
    assert codes.count(0) >= len(ups) > 0
    assert status["pools"]["hpc"]


def test_an_ensemble_in_python_has_workers_that_call_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the same document has with `run`: a home is part of each run of this machine."""

    def providers(loop: LocalLoop, log: Any, given: Any, directory: Path) -> SiteProviders:
        return SiteProviders(loop, log, {"slurm": Provider(loop, bench.site)}, directory)

    monkeypatch.setattr("flux_ensemble.service.home.SiteProviders", providers)
    job = Job(name="sim", command=f"sh -c 'echo {{s}} >>{bench.ran}'", params={"s": [1, 2, 3]})
    rule = Rule(trigger="start", action=Action(name="submit", label="sim"))
    pool = {"name": "hpc", "from": "slurm", "runs": "tasks", "count": 1}
    ensemble = Ensemble(name="sweep", members=[pool], jobs=[job], rules=[rule])
    ended = ensemble.run("local", state_dir=bench.root)
    assert (ended["state"], ended["trouble"]) == ("completed", "")
    assert sorted(map(int, bench.lines())) == [1, 2, 3]
    assert {row["member"] for row in ensemble.jobs()} == {"hpc.0"}


def test_what_tasks_wrote_is_read_from_their_workers_and_of_failed_ones_kept(bench: Bench) -> None:
    """`output` and `failures` have it while a worker is there, and afterwards."""
    text = bench.document(3, 0, count="1").replace("sleep 0'", "echo bad {s} >&2; exit {s}'")
    hold = {"trigger": "timer", "after": "1h", "action": {"name": "submit", "label": "sim"}}
    client = LocalClient(bench.root)

    def written() -> dict[int, str]:
        outputs = Outputs(client, "sweep")
        jobs = {job["params"]["s"]: outputs.written(job) for job in client.jobs("sweep")}
        return {s: parts[0][1].decode() for s, parts in jobs.items() if parts}

    def refusal() -> str:
        try:
            return str(client.output("sweep", "hpc.7", 1))
        except EnsembleError as error:
            return str(error)

    with ExitStack() as stack:
        bench.begin(stack, text + f"  - {json.dumps(hold)}\n")
        bench.run.listen(parse)
        bench.until(lambda: bench.home.ensemble.engine.stats.counts["sim"]["finished"] == 3)
        while_there = bench.beside(written)
        assert while_there == {0: "bad 0\n", 1: "bad 1\n", 2: "bad 2\n"}
        assert "has no member 'hpc.7'" in bench.beside(refusal)
        bench.beside(lambda: client.terminate("sweep"))
        bench.run.drive(0.05)
        bench.run.finish()
    assert written() == {1: "bad 1\n", 2: "bad 2\n"}
    lines = failures_of(client, "sweep", client.jobs("sweep")).lines()
    assert any("bad 2" in line for line in lines)


def test_a_home_that_is_lost_and_comes_back_finds_what_its_workers_did(bench: Bench) -> None:
    text = bench.document(16, 0.2)
    with ExitStack() as stack:
        bench.begin(stack, text)
        bench.until(lambda: len(bench.lines()) >= 4)
    # Lost: nothing was written any more, and nobody was told.
    for last in (False, True):
        with ExitStack() as stack:
            bench.begin(stack, text, resume=True)
            if last:
                bench.finish(16)
            else:
                bench.until(lambda: len(bench.lines()) >= 8)
    assert sorted(map(int, bench.lines())) == list(range(16))
    assert bench.site.starts == 2


def test_a_worker_without_a_home_ends_what_it_runs_starts_nothing_and_ends(bench: Bench) -> None:
    bench.patience = 3.0
    with ExitStack() as stack:
        bench.begin(stack, bench.document(40, 0.4, count="1"))
        bench.until(lambda: len(bench.lines()) >= 1)
    cores = len(os.sched_getaffinity(0))
    said = bench.site.said("1")
    assert "its home was away for 3 seconds" in said
    assert bench.site.workers["1"].returncode == 1
    # Those that had begun, and those that had been asked for before the home was lost.
    assert len(bench.lines()) <= 3 * cores


def test_a_worker_that_is_ended_is_lost_and_its_jobs_run_elsewhere(bench: Bench) -> None:
    more = "  - {trigger: member-lost, action: {name: grow, label: hpc}}\n"
    with ExitStack() as stack:
        bench.begin(stack, bench.document(12, 0.3, more, "{min: 1, max: 2}"))
        bench.until(lambda: len(bench.lines()) >= 3)
        bench.site.workers["1"].terminate()
        status = bench.finish(12)
    assert set(map(int, bench.lines())) == set(range(12))
    assert status["groups"]["sim"]["failed"] == 0
    assert bench.site.starts == 2


def test_another_ensembles_worker_is_refused_by_its_certificate(bench: Bench) -> None:
    other, sock = new_kept("other")
    sock.close()
    with ExitStack() as stack:
        bench.begin(stack, bench.document(1, 2.0))
        kept = Kept.read(bench.home._directory)
        tag = MemberTag("sweep", kept.run, "hpc.0", 1, 0)
        theirs = {**json.loads(other.credentials(tag, 1.0)), "port": kept.port}

        def refused() -> str:
            try:
                call(theirs)
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
            return ""

        # The worker refuses the home.
        assert "self" in bench.beside(refused) or "unable" in bench.beside(refused)
        # And the home refuses the worker.
        both = {**theirs, "ca": json.loads(kept.credentials(tag, 1.0))["ca"]}

        assert bench.beside(lambda: answer(both, {"attach": {}})) is None
        bench.until(lambda: bench.logged("a call of ") and bench.logged("refused"))
        bench.finish(1)


def test_a_certificate_is_good_for_one_member(bench: Bench) -> None:
    with ExitStack() as stack:
        bench.begin(stack, bench.document(1, 1.0))
        kept = Kept.read(bench.home._directory)
        mine = json.loads(kept.credentials(MemberTag("sweep", kept.run, "hpc.1", 2, 0), 1.0))
        attach = {**mine["tag"], "version": __version__, "format": FORMAT}
        stolen = {**attach, "ordinal": 1, "member": "hpc.0"}
        said = bench.beside(lambda: answer(mine, {"attach": stolen}))
        assert said["error"] == [errno.EPERM, "the certificate is not that of member 'hpc.0'"]
        bench.finish(1)


def test_a_worker_of_another_format_is_told_so(bench: Bench) -> None:
    with ExitStack() as stack:
        bench.begin(stack, bench.document(1, 1.0))
        kept = Kept.read(bench.home._directory)
        tag = MemberTag("sweep", kept.run, "hpc.0", 1, 0)
        mine = json.loads(kept.credentials(tag, 1.0))
        attach = {**tag.dump(), "version": "9.9", "format": FORMAT + 1}
        said = bench.beside(lambda: answer(mine, {"attach": attach}))
        assert said["error"][0] == errno.EPROTONOSUPPORT
        assert "its service is flux-ensemble 9.9" in said["error"][1]
        bench.finish(1)


@pytest.mark.parametrize(("hours", "where"), [(1, "1h ahead of"), (-1, "1h behind")])
def test_a_worker_whose_clock_is_an_hour_off_is_told_so(
    bench: Bench, hours: int, where: str
) -> None:
    with ExitStack() as stack:
        bench.begin(stack, bench.document(1, 1.0))
        kept = Kept.read(bench.home._directory)
        tag = MemberTag("sweep", kept.run, "hpc.0", 1, 0)
        mine = json.loads(kept.credentials(tag, 1.0))
        # TLS does not mind that clock.
        issued = x509.load_pem_x509_certificate(mine["cert"].encode())
        now = datetime.datetime.now(datetime.UTC)
        assert issued.not_valid_before_utc < now - datetime.timedelta(hours=2)
        clock = time.time() + hours * 3600
        attach = {**tag.dump(), "version": __version__, "format": FORMAT, "clock": clock}
        said = bench.beside(lambda: answer(mine, {"attach": attach}))
        assert said["error"][0] == errno.EPROTONOSUPPORT
        assert f"its clock is {where} this machine's" in said["error"][1]
        assert bench.logged("member hpc.0 is not up: its clock is ")
        bench.finish(1)


def test_a_worker_ends_when_it_is_of_another_format_or_of_no_member(bench: Bench) -> None:
    with ExitStack() as stack:
        bench.begin(stack, bench.document(1, 1.0))
        kept = Kept.read(bench.home._directory)
        bench.site.start("7", kept.credentials(MemberTag("sweep", kept.run, "hpc.7", 7, 0), 60.0))
        bench.until(lambda: bench.site.workers["7"].poll() is not None)
        assert "has no member 'hpc.7'" in bench.site.said("7")
        bench.finish(1)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01",
        b"",
    ],
)
def test_who_calls_without_tls_disturbs_nobody(bench: Bench, data: bytes) -> None:
    with ExitStack() as stack:
        bench.begin(stack, bench.document(4, 0.1))
        port = Kept.read(bench.home._directory).port
        for _ in range(20):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            sock.sendall(data)
        bench.finish(4)


@pytest.mark.parametrize(
    "message",
    [{"attach": {}}, {"attach": {"run": [], "ordinal": 0}}, {"attach": 7}, {"report": 7}],
)
def test_a_worker_that_says_nonsense_is_hung_up_on(bench: Bench, message: Any) -> None:
    with ExitStack() as stack:
        bench.begin(stack, bench.document(1, 1.0))
        kept = Kept.read(bench.home._directory)
        tag = MemberTag("sweep", kept.run, "hpc.0", 1, 0)
        mine = json.loads(kept.credentials(tag, 1.0))
        if "attach" in message:
            assert bench.beside(lambda: answer(mine, message)) is None
            assert bench.logged("is not understood")
        bench.finish(1)


def test_a_port_that_another_program_has_is_said(bench: Bench) -> None:
    text = bench.document(4, 0.2)
    with ExitStack() as stack:
        bench.begin(stack, text)
        port = Kept.read(bench.home._directory).port
    taken = pytest.raises(RunError, match=f"cannot listen on port {port}.*in use$")
    with socket.create_server(("", port)), ExitStack() as stack, taken:
        bench.begin(stack, text, resume=True)
    with ExitStack() as stack:
        bench.begin(stack, text, resume=True)
        bench.finish(4)


def test_the_key_of_the_authority_is_the_users_alone(bench: Bench) -> None:
    with ExitStack() as stack:
        bench.begin(stack, bench.document(1, 0.0))
        assert (bench.root / "sweep" / "home").stat().st_mode & 0o777 == 0o600
        bench.finish(1)


def test_a_name_in_a_certificate_is_that_of_one_run() -> None:
    assert worker_uri(1, 11) != worker_uri(11, 1)
