"""Only an Ensemble is created: the operator makes everything, and real brokers run it.

The operator and the gRPC service are processes with the tokens that they have in a cluster; what
stands in for the rest of it is `standin`.
"""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
from ensembles import ROOT, Bench, condition, objects
from memory_api import MemoryApi
from standin import Standin, standin
from test_operator_app import operator, until

from flux_ensemble.operator import names

pytest_plugins = ["operator_cluster"]

EXAMPLE = ROOT / "etc" / "kubernetes" / "example.yaml"


def example() -> dict[str, Any]:
    """The example, with what runs it in its image."""
    found = copy.deepcopy(objects(EXAMPLE)[0])
    found["metadata"]["namespace"] = "default"
    found["spec"]["install"] = {"skip": True}
    return found


def state(bench: Bench) -> dict[str, Any]:
    found = bench.ensemble() or {}
    status: dict[str, Any] = found.get("status") or {}
    return status


def watch(bench: Bench, running: Standin) -> set[int]:
    """Waits until the ensemble has ended; the sizes that it had."""
    sizes: set[int] = set()

    def ended() -> bool:
        assert not running.errors, running.errors
        live = bench.minicluster()
        if live is not None:
            sizes.add(live["spec"].get("size", 1))
        return state(bench).get("phase") in ("Completed", "Failed", "Canceled", "Rejected")

    until(ended, f"{state(bench)}")
    return sizes


def gone(bench: Bench, running: Standin) -> None:
    """Deletes the Ensemble, and waits until nothing of it is left."""
    bench.admin.delete(names.API_VERSION, names.KIND, "default", "sweep")
    kinds = ("ConfigMap", "Secret", "Service", "ServiceAccount", "Pod")
    others = ((names.MINICLUSTER, "MiniCluster"), ("batch/v1", "Job"), ("apps/v1", "Deployment"))

    def left() -> list[str]:
        found = [
            one["metadata"]["name"]
            for kind in (*(("v1", kind) for kind in kinds), *others)
            for one in bench.admin.list(*kind, "default")
        ]
        return [name for name in found if name.startswith("sweep")]

    until(lambda: not left() and not running.brokers and not running.services, "something is left")


@pytest.mark.flux
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("flux") is None, reason="flux is not on PATH")
def test_an_ensemble_grows_runs_shrinks_completes_and_leaves_nothing(
    api: MemoryApi, bench: Bench, tmp_path: Path
) -> None:
    with operator(api, tmp_path), standin(api) as running:
        bench.put(example())
        sizes = watch(bench, running)
        status = state(bench)
        logs = "\n".join(log.read_text() for log in running.directory.glob("*.log"))
        assert status["phase"] == "Completed", f"{status}\n{logs}"
        (one,) = status["members"]
        assert one["jobs"] == {"success": 3, "failed": 0, "canceled": 0, "timeout": 0}, logs
        assert {1, 3} <= sizes
        assert condition(status, "Completed")[0] == "True"
        live = bench.minicluster()
        assert live is not None
        assert live["spec"]["size"] == 1
        reasons = bench.events()
        for reason in ("Accepted", "MemberCreated", "Resized", "MemberCompleted", "Completed"):
            assert reason in reasons
        gone(bench, running)
