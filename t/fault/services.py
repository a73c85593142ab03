"""The service as a test has it: started in one of three ways, killed, stopped, started again."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol

import flux
from instance import Instance
from scenario import TICK, children, ends

from flux_ensemble.bindings import module_arguments, module_path

#: Seconds in which the service answers after its start, and a process is gone that was killed.
PATIENCE = 60.0


def load(instance: Instance, verb: str, *arguments: str) -> None:
    """Load a broker module; one of its name that was killed may be listed a little longer."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            instance.flux("module", verb, *arguments)
            return
        except RuntimeError as error:
            if "exists" not in str(error) or time.monotonic() > deadline:
                raise


class Launcher(Protocol):
    """A way to start the service; `start` returns the id of its process."""

    def start(self, instance: Instance) -> int: ...

    def close(self) -> None: ...


def _standby() -> list[str]:
    """The command of `standby.py`; a fork where there is a process for that (warm_server.py)."""
    here = Path(__file__)
    client = str(here.parents[1] / "lib" / "warm_client.py")
    fork = ["-IS", client, "python"] if "WARM_COMMANDS" in os.environ else []
    return [sys.executable, *fork, str(here.with_name("standby.py"))]


class Warm:
    """By a process that has imported everything before (`standby.py`); back at once.

    Args:
        log: the file for what services write to standard error.
        options: those of standby.py.
    """

    def __init__(self, log: Path, options: Sequence[str] = ()) -> None:
        self._log = log.open("a")
        self._process = subprocess.Popen(
            [*_standby(), *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip
        self._ready = False

    def _line(self) -> str:
        assert self._process.stdout is not None
        text = self._process.stdout.readline().strip()
        if not text:
            raise RuntimeError("the standby process has ended (see service.log)")
        return text

    def start(self, instance: Instance) -> int:
        """Fork a service."""
        if not self._ready:
            self._line()
            self._ready = True
        assert self._process.stdin is not None
        self._process.stdin.write(instance.uri + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def close(self) -> None:
        """Fork no more."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(PATIENCE)
        self._log.close()


class Command:
    """By `flux ensemble serve`, as a user or a supervisor does."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("a")
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, instance: Instance) -> int:
        """Start the command."""
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("flux-ensemble")), "serve"],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            env=instance.environment,
        )  # fmt: skip
        self._processes.append(process)
        return process.pid

    def close(self) -> None:
        """Reap what has ended."""
        for process in self._processes:
            process.wait(PATIENCE)
        self._log.close()


class Module:
    """As a broker module, whose death must not be the instance's.

    Args:
        verb: "load", or "reload" to replace the one that is loaded.
    """

    def __init__(self, verb: str = "load") -> None:
        self._verb = verb

    def start(self, instance: Instance) -> int:
        """Load the module."""
        instance.flux("setattr", "broker.module-nopanic", "1")
        load(instance, self._verb, str(module_path()), *module_arguments())
        pid = flux.Flux(instance.uri).rpc("ensemble.status", {}).get()["service"]["pid"]
        return int(pid)

    def close(self) -> None:
        """Nothing is left to do."""


class Service:
    """The service of one instance.

    Args:
        instance: where it serves.
        launcher: how it is started.

    Attributes:
        kills: how often it was killed.
        deaths: how often it died by itself.
        orphans: processes of custom functions that outlived it.
        pid: of its process, 0 before there was one.
    """

    def __init__(self, instance: Instance, launcher: Launcher) -> None:
        self.instance = instance
        self.launcher = launcher
        self.kills = 0
        self.deaths = 0
        self.orphans = 0
        self.pid = 0
        self._fd = -1

    def start(self) -> None:
        """Start it; it may not answer yet."""
        self.pid = self.launcher.start(self.instance)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        with contextlib.suppress(ProcessLookupError):  # dead already: `alive` will say so
            self._fd = os.pidfd_open(self.pid)

    @property
    def alive(self) -> bool:
        """Its process is there."""
        return self._fd >= 0 and not select.select([self._fd], [], [], 0)[0]

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        signal.pidfd_send_signal(self._fd, number)

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        started = children(self.pid)
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.gone()
        self.kills += 1
        self.orphans += sum(not ends(child) for child in started)

    def kill_worker(self, random: Random) -> int:
        """Kill one of the processes that run custom functions; how many that were."""
        workers = children(self.pid)
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(workers), signal.SIGKILL)
        return len(workers[:1])

    def end(self) -> None:
        """End it as Ctrl-C does; one that does not listen is killed."""
        if self._fd < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGTERM)
            if not select.select([self._fd], [], [], 20)[0]:
                self.signal(signal.SIGKILL)
        self.gone()

    def gone(self) -> None:
        """Wait until its process is gone."""
        if self._fd < 0:
            return
        if not select.select([self._fd], [], [], PATIENCE)[0]:
            raise RuntimeError(f"process {self.pid} does not end")
        os.close(self._fd)
        self._fd = -1

    def await_answer(self, handle: Any) -> list[dict[str, Any]]:
        """Wait until it answers requests; one that dies meanwhile is started again, once.

        Returns:
            Its ensembles, as `ensemble.list` has them.
        """
        deadline = time.monotonic() + PATIENCE
        tried = False
        while time.monotonic() < deadline:
            try:
                listed = handle.rpc("ensemble.list", {}).wait_for(PATIENCE).get()
                return list(listed["ensembles"])
            except OSError:
                if not self.alive:
                    self.deaths += 1
                    if tried:
                        break
                    tried = True
                    self.gone()
                    self.start()
            time.sleep(5 * TICK)
        raise RuntimeError("the service does not come up")
