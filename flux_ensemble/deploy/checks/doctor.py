"""All checks, in the order in which `doctor` prints their findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flux_ensemble.client import EnsembleError
from flux_ensemble.deploy.checks.broker import clocks, flux_version, journal, launch
from flux_ensemble.deploy.checks.instance import Finding, InstanceInfo
from flux_ensemble.deploy.checks.queue import nodes, queue, waits
from flux_ensemble.deploy.checks.service import guests, keeper, members, scaler, service
from flux_ensemble.deploy.checks.storage import checkpoint, content, kvs, logs, statedir

CHECKS: tuple[Callable[[InstanceInfo], Finding], ...] = (
    flux_version,
    launch,
    service,
    keeper,
    statedir,
    content,
    checkpoint,
    kvs,
    journal,
    clocks,
    queue,
    nodes,
    waits,
    guests,
    scaler,
    members,
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
