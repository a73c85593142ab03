"""The service as a process of the keeper, which starts it again by itself."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import flux
from instance import Instance
from scenario import TICK, children, ends, parent
from services import load

from flux_ensemble.bindings import keeper_arguments, keeper_path

#: Seconds in which the keeper has started a service.
PATIENCE = 60.0

#: As many kills as there are, one after the other.
PATIENT = ("deaths=1000000", "pause=0")


class Kept:
    """A `services.Launcher`: the keeper is loaded once, and then waited for."""

    def __init__(self) -> None:
        self._pid = 0
        self._keeper = 0

    def start(self, instance: Instance) -> int:
        """The id of the process after the last one."""
        if not self._keeper:
            load(instance, "load", str(keeper_path()), *keeper_arguments(), *PATIENT)
        handle = flux.Flux(instance.uri)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                pid = handle.rpc("ensemble-keeper.stats-get", {}).wait_for(PATIENCE).get()["pid"]
                if pid not in (None, self._pid):
                    self._pid, self._keeper = pid, parent(pid)
                    return self._pid
            time.sleep(TICK)
        raise RuntimeError("the keeper does not start the service again")

    def kill(self, instance: Instance) -> int:
        """Kill the keeper.

        Returns:
            How many processes that it had started are still there seconds later.
        """
        instance.flux("setattr", "broker.module-nopanic", "1")
        services = children(self._keeper)
        os.kill(self._keeper, signal.SIGKILL)
        self._keeper = 0
        return sum(not ends(service) for service in services)

    def close(self) -> None:
        """The end of the instance ends both."""
