"""The same on Flux: runs in an instance, while something is done to that or to the service.

    with OnFlux(directory, features) as stage:
        seen = stage.play([ON_FLUX["queue-disabled"]], [2])

The instance has one broker with many cores that are not there, or, for documents with members and
for nodes that are lost, several with four cores each.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from .commands import PATIENCE, Commands
from .features import Feature
from .judge import judge
from .local import NAME, NOT_AGAIN, TICK, Local, Situation, reran

sys.path.append(str(Path(__file__).parents[1] / "fault"))

from instance import Instance

#: Sets when the allocation of an instance ends.
_EXPIRE = """
import flux, sys
payload = {"expiration": float(sys.argv[1])}
flux.Flux().rpc("resource.expiration-update", payload, nodeid=0).get()
"""

#: Seconds that are left then: the service looks every 30 s.
_ALLOCATION_SECONDS = 35.0


class OnFlux(Local):
    """A document in a Flux instance of its own.

    Args:
        directory: an empty one, with a short path: sockets are in it.
        features: of the document.
        brokers: of the instance.
    """

    options = ()
    # A service that was started again would miss the beginning.
    records = False

    def __init__(self, directory: Path, features: Sequence[Feature], *, brokers: int = 1) -> None:
        super().__init__(directory, features)
        self.size = ()
        self.instance = Instance(directory, statedir=True, brokers=brokers)
        self._options = ["--test-exit-mode=leader"] if brokers > 1 else []
        self.begin()

    def begin(self) -> None:
        """Start the instance, where one has ended with its statedir, and the service."""
        self.instance.start(self._options)
        self._connect()

    def _connect(self) -> None:
        variables: dict[str, str | None] = dict(self.instance.environment)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.commands = Commands(self.directory, {**variables, "PATH": path})
        self.ask("supervise")

    def __enter__(self) -> OnFlux:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.instance.stop()

    def allocating(self) -> int:
        """How many jobs wait for the scheduler's answer."""
        said = self.instance.flux("queue", "status", "--verbose")
        many = re.search(r"(\d+) alloc requests pending to scheduler", said)
        assert many, said
        return int(many[1])

    def status(self) -> dict[str, Any]:
        """The answer of `status`."""
        answer: dict[str, Any] = json.loads(self.ask("status", "--json", NAME).out)
        return answer

    def await_(self, what: str, holds: Any) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                raise RuntimeError(f"it does not come about: {what}")
            time.sleep(10 * TICK)


def _queue_disabled(stage: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """What is to be sent waits, says so, and is sent when the queue is enabled."""
    assert isinstance(stage, OnFlux)
    stage.instance.flux("queue", "disable", "--message", "maintenance")
    stage.open()
    stage.await_(
        "all that was sent ends", lambda: not stage.status()["ensembles"][0]["jobs"]["active"]
    )
    said = json.dumps(stage.status()["ensembles"][0])
    if "disabled" not in said:
        stage.problems.append("the status does not say that the queue is disabled")
    stage.instance.flux("queue", "enable")
    return process


def _service_killed(stage: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """The keeper starts it again."""
    assert isinstance(stage, OnFlux)
    pid = stage.status()["service"]["pid"]
    os.kill(pid, signal.SIGKILL)
    return process


def _closed(stage: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """The ensemble is left to the service."""
    assert isinstance(stage, OnFlux)
    stage.end_by(process, signal.SIGHUP)
    return stage.commands.start("watch", NAME)


def _second_user(stage: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """A guest of the instance changes nothing, and sees no parameters."""
    assert isinstance(stage, OnFlux)
    guest = {"FLUX_HANDLE_ROLEMASK": "0x2", "FLUX_HANDLE_USERID": "9999"}
    commands = Commands(stage.directory, {**stage.commands.environment, **guest})
    for words in (
        ["pause", NAME], ["cancel", NAME], ["submit", NAME, "sweep"], ["unload", NAME],
        ["terminate", "--cancel", NAME],
    ):  # fmt: skip
        done = commands.run(*words)
        if done.code == 0:
            stage.problems.append(f"a guest may {' '.join(words)}: {done.out}")
    return process


def _node_lost(stage: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """The broker of the last node is killed; what ran there runs again elsewhere."""
    assert isinstance(stage, OnFlux)
    pid = int(stage.instance.flux("exec", "-r", "3", "flux", "getattr", "broker.pid"))
    os.kill(pid, signal.SIGKILL)
    stage.interrupted = True
    stage.open()
    return process


def _broker_killed(stage: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """An instance with the same statedir goes on."""
    assert isinstance(stage, OnFlux)
    # A crash between the R of a job and its `alloc` stops the scheduler of Flux 0.88 for good:
    # "sched.alloc-response: id=... already allocated".
    stage.instance.flux("queue", "stop")
    stage.await_("no job is being allocated", lambda: not stage.allocating())
    # All that there is now survives; without it, it is as if nothing had been loaded.
    stage.instance.flux("kvs", "put", "--sync", "seams.checkpoint=1")
    stage.instance.crash()
    stage.commands.end(process)
    stage.interrupted = True
    stage.begin()
    stage.instance.flux("queue", "start")
    stage.open()
    return stage.commands.start("watch", NAME)


def _allocation_over(stage: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """The command says what is left, and the next allocation goes on with it."""
    assert isinstance(stage, OnFlux)
    stage.instance.flux("python", "-c", _EXPIRE, str(time.time() + _ALLOCATION_SECONDS))
    done = stage.commands.end(process)
    if not re.search(
        r"the allocation (is about to expire|has expired), \d+ of \d+ jobs? ", done.out
    ):
        stage.problems.append(f"the run does not say that the allocation ends: {done.out[-500:]}")
    stage.instance.stop()
    stage.interrupted = True
    stage.begin()
    stage.open()
    return stage.commands.start("watch", NAME)


#: Of features, why it makes no difference to them that the queue takes no jobs.
_OWN_QUEUES = dict.fromkeys(
    ("members", "growing", "tasks"), "its jobs go to the queues of members, which nobody disables"
)

#: Of features, why an instance cannot end around them.
_NO_MEMBERS = {"members": "all members end with their instance, and no rule of it starts others"}

#: What happens on Flux, besides what is in `local.SITUATIONS`.
ON_FLUX = {
    situation.name: situation
    for situation in (
        Situation("queue-disabled", "flux queue disable, and enable", _queue_disabled,
                  without=_OWN_QUEUES),
        Situation("service-killed", "kill -9 of the service", _service_killed),
        Situation("reran-on-flux", "what has not succeeded runs again, in the same record",
                  after=reran, without=NOT_AGAIN),
        Situation("run-closed", "SIGHUP of the command that follows it", _closed),
        Situation("second-user", "a guest tries to steer it", _second_user),
        Situation("node-lost", "kill -9 of a broker with jobs", _node_lost),
        Situation("broker-killed", "kill -9 of the instance, which goes on from its statedir",
                  _broker_killed, without=_NO_MEMBERS),
        Situation("allocation-over", "its time is up; the next one goes on from its statedir",
                  _allocation_over, without=_NO_MEMBERS),
    )
}  # fmt: skip


def play_on_flux(
    directory: Path, features: Sequence[Feature], situation: Situation, at: int
) -> list[str]:
    """Run a document in an instance of its own, have a situation happen, and judge it.

    Returns:
        What is wrong.
    """
    # Members are nodes of their own, and a node that is lost is one of several.
    several = situation.name == "node-lost" or any(feature.alone for feature in features)
    with OnFlux(directory, features, brokers=6 if several else 1) as stage:
        try:
            seen = stage.play([situation], [at])
        except (RuntimeError, OSError, ValueError) as error:
            with contextlib.suppress(RuntimeError):
                stage.ask("cancel", NAME)
            return [*stage.problems, f"{type(error).__name__}: {error}"]
    problems = list(stage.problems)
    if situation.during is not None and not stage.met:
        problems.append("it has ended before anything could happen to it")
    for evidence, happened in seen:
        problems += judge(features, evidence, replace(happened, forgets=stage.interrupted))
    return problems
