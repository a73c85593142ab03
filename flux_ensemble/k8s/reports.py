"""The numbers of a member's Flux instance, from the member to its Ensemble's status; pure.

    member ──Report──► gRPC service ──► ConfigMap ENSEMBLE-grpc ──watch──► operator ──► status

Members have no access to the API server, and the operator has none to members. So the service,
which members reach with a certificate for their own name, writes what they report into the one
ConfigMap that its Role lets it change. An entry has the uid of its MiniCluster, since an earlier
one may have had the name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flux_ensemble.k8s.grpc.backend import Report

#: Parts of a report.
PARTS = ("nodes", "queue")


def service(ensemble: str) -> str:
    """Return the name of the gRPC service of an Ensemble, and of its objects."""
    return f"{ensemble}-grpc"


def patch(minicluster: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Return the merge patch of the ConfigMap for the report of a MiniCluster."""
    metadata = minicluster["metadata"]
    entry = json.dumps({"uid": metadata["uid"], **report}, sort_keys=True)
    return {"data": {metadata["name"]: entry}}


def read(config_map: Mapping[str, Any] | None, minicluster: Mapping[str, Any]) -> Report | None:
    """Return the latest report of a MiniCluster; None if there is none.

    Args:
        config_map: with the reports of all MiniClusters of an Ensemble.
        minicluster: the one.

    >>> mini = {"metadata": {"name": "sweep-solve", "uid": "1"}}
    >>> read({"data": {"sweep-solve": '{"uid": "1", "queue": {"run": 2}}'}}, mini)
    {'queue': {'run': 2}}
    >>> read({"data": {"sweep-solve": '{"uid": "0", "queue": {"run": 2}}'}}, mini)
    """
    metadata = minicluster["metadata"]
    text = ((config_map or {}).get("data") or {}).get(metadata["name"], "")
    try:
        entry = json.loads(text)
        if entry["uid"] != metadata["uid"]:
            return None
        return {
            part: {str(key): int(value) for key, value in entry[part].items()}
            for part in PARTS
            if entry.get(part)
        } or None
    except (ValueError, TypeError, KeyError, AttributeError):
        # Somebody else has written it.
        return None


def total(reports: list[Report]) -> dict[str, dict[str, int]]:
    """Return the sums of reports.

    >>> total([{"queue": {"run": 2}}, {"queue": {"run": 1, "sched": 4}}])
    {'queue': {'run': 3, 'sched': 4}}
    """
    sums: dict[str, dict[str, int]] = {}
    for report in reports:
        for part, numbers in report.items():
            known = sums.setdefault(part, {})
            for key, value in numbers.items():
                known[key] = known.get(key, 0) + value
    return sums
