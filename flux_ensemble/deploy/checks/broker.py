"""Checks of what the service depends on: Flux's version, its job manager, and the clocks."""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping

from flux_ensemble.deploy.checks.instance import PATIENCE, Finding, InstanceInfo
from flux_ensemble.deploy.launch import split_by_launcher
from flux_ensemble.deploy.service_start import MODULES_SINCE, parse_version
from flux_ensemble.words import counted

#: Difference of clocks that is tolerated, in seconds.
CLOCK_SLACK = 1.0


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
    if parse_version(broker) < MODULES_SINCE:
        return Finding(
            "flux",
            "warning",
            text,
            "Python broker modules came with 0.84: run `flux ensemble serve` beside this one",
        )
    return Finding("flux", "ok", text)


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


def _milliseconds(begun: float) -> str:
    return f"{(time.monotonic() - begun) * 1000:.0f} ms"
