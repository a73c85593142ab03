"""The input of a report: an ensemble of the service, or of the local queue's files."""

from __future__ import annotations

import contextlib
import errno
import time
from typing import Any

from flux_ensemble.client import EnsembleError
from flux_ensemble.queues.local.client import LocalStateError
from flux_ensemble.report.source import Source
from flux_ensemble.results.hosts import Target
from flux_ensemble.results.job_output import Outputs


def source_of(target: Target, name: str) -> Source:
    """Return an ensemble as the source of a report.

    Raises:
        EnsembleError: there is none of the name, or it cannot be read.
    """
    status: Any = target.status(name)
    (ensemble,) = status["ensembles"]
    if "rules" not in ensemble:
        raise EnsembleError(errno.EPERM, "only the owner of the instance may make a report")
    jobs, outputs = target.jobs(name, interrupted=True), Outputs(target, name)
    why: dict[str, Any] = {}
    # A local run of an earlier version has no such file.
    with contextlib.suppress(LocalStateError):
        why = {rule["id"]: rule for rule in target.why(name)["rules"]}
    nodes = status.get("nodes", {})
    up = None if "pools" in ensemble else nodes.get("node_up_count")
    return Source(
        kind=target.KIND,
        status=ensemble,
        metrics=target.metrics(name),
        jobs=jobs,
        entries=target.log(name),
        label=target.label,
        now=time.time(),
        dropped=lambda: jobs.dropped,
        why=why,
        size=None if up is None else (up, nodes["node_cores_up"] // max(1, up)),
        facts={**target.facts(status), "Directory": ensemble.get("directory", "")},
        tail=outputs.tail,
        command=target.command,
        missing=outputs.missing,
    )
