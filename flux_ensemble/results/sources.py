"""The input of a report: an ensemble of the service, or of the local queue's files."""

from __future__ import annotations

import contextlib
import errno
import time
from functools import partial
from typing import Any

from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.report.source import Source
from flux_ensemble.results.hosts import command_of, job_id
from flux_ensemble.results.job_output import Outputs


def source_of(client: Client | LocalClient, name: str) -> Source:
    """Return an ensemble as the source of a report.

    Raises:
        EnsembleError: there is none of the name, or it cannot be read.
    """
    return _local(client, name) if isinstance(client, LocalClient) else _loaded(client, name)


def _loaded(client: Client, name: str) -> Source:
    status = client.status(name)
    ensemble: Any = status["ensembles"][0]
    service = status["service"]
    if "pid" not in service:
        raise EnsembleError(errno.EPERM, "only the owner of the instance may make a report")
    jobs, outputs = client.jobs(name, interrupted=True), Outputs(client, name)
    nodes = status["nodes"]["node_up_count"]
    facts = {
        "Service": f"flux-ensemble {service['version']}, Python {service['python']}",
        "Flux": str(client.handle.attr_get("version")),
        "Directory": ensemble["directory"],
    }
    return Source(
        kind="Flux",
        status=ensemble,
        metrics=client.metrics(name),
        jobs=jobs,
        entries=client.log(name),
        label=job_id,
        now=time.time(),
        dropped=lambda: jobs.dropped,
        why={rule["id"]: rule for rule in client.why(name)["rules"]},
        size=None
        if nodes is None or "pools" in ensemble
        else (nodes, status["nodes"]["node_cores_up"] // max(1, nodes)),
        facts=facts,
        tail=outputs.tail,
        command=partial(command_of, client),
        missing=outputs.missing,
    )


def _local(states: LocalClient, name: str) -> Source:
    (ensemble,) = states.status(name)["ensembles"]
    outputs = Outputs(states, name)
    why: dict[str, Any] = {}
    # A run of an earlier version has no such file.
    with contextlib.suppress(EnsembleError):
        why = {rule["id"]: rule for rule in states.why(name)["rules"]}
    return Source(
        kind="local queue",
        status=ensemble,
        metrics=states.metrics(name),
        jobs=states.jobs(name, interrupted=True),
        entries=states.log(name),
        label=str,
        now=time.time(),
        why=why,
        facts={"Directory": ensemble.get("directory", "")},
        tail=outputs.tail,
        command=states.command,
        missing=outputs.missing,
    )
