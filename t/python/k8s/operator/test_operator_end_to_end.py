"""Only an Ensemble is created: the operator makes everything, and real brokers run it.

The operator and the gRPC service are processes with the tokens that they have in a cluster; what
stands in for the rest of it is `standin`.
"""

from __future__ import annotations

import copy
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from ensembles import ROOT, Bench, condition, ensemble, objects
from memory_api import MemoryApi
from standin import Standin, standin
from test_operator_app import operator, until

from flux_ensemble.k8s.operator import names

pytest_plugins = ["operator_cluster"]

EXAMPLE = ROOT / "etc" / "kubernetes" / "example.yaml"


def example(gate: Path) -> dict[str, Any]:
    """The example, with what runs it in its image.

    Its large job says that it runs (`started`), and ends when there is the file `gate`.
    """
    found = copy.deepcopy(objects(EXAMPLE)[0])
    (one,) = found["spec"]["members"]
    wait = f"sh -c 'touch {started(gate)}; until test -e {gate}; do sleep 0.1; done'"
    assert "name: solve, command: hostname" in one["ensemble"]
    one["ensemble"] = one["ensemble"].replace(
        "name: solve, command: hostname", f'name: solve, command: "{wait}"'
    )
    found["metadata"]["namespace"] = "default"
    found["spec"]["install"] = {"skip": True}
    return found


def started(gate: Path) -> Path:
    return gate.with_name("started")


def state(bench: Bench) -> dict[str, Any]:
    found = bench.ensemble() or {}
    status: dict[str, Any] = found.get("status") or {}
    return status


def watch(
    bench: Bench, running: Standin, gate: Path, trouble: Callable[[], None] = lambda: None
) -> None:
    """Waits for the large job, kills the service under it, lets it end, and waits for the end.

    Args:
        bench, running, gate: the cluster.
        trouble: what else is done while the job runs.
    """

    def grown() -> bool:
        assert not running.errors, running.errors
        members = state(bench).get("members") or [{}]
        return members[0].get("wanted") == 3 and started(gate).exists()

    def reported() -> bool:
        """What the member's Flux instance says: one job runs, on all of its nodes."""
        known = state(bench)
        return (
            known.get("queue", {}).get("run") == 1
            and known.get("nodes", {}).get("node_up_count") == 3
        )

    def ended() -> bool:
        assert not running.errors, running.errors
        return state(bench).get("phase") in ("Completed", "Failed", "Canceled", "Rejected")

    until(grown, lambda: f"it does not grow: {state(bench)}")
    until(reported, lambda: f"it is not reported: {state(bench)}\n{running.logs()}")
    # The ensemble needs the service to shrink: it asks until another one is there.
    running.kill_service("sweep-grpc")
    trouble()
    gate.touch()
    until(ended, lambda: f"{state(bench)}\n{bench.events()}\n{running.logs()}")


def told(bench: Bench, *reasons: str) -> None:
    """Waits for events: they are written after the status that they tell of."""
    until(lambda: set(reasons) <= set(bench.events()), lambda: f"events: {bench.events()}")


def gone(bench: Bench, running: Standin) -> None:
    """Deletes the Ensemble, and waits until nothing of it is left."""
    bench.remove(names.API_VERSION, names.KIND, "sweep")
    kinds = ("ConfigMap", "Secret", "Service", "ServiceAccount", "Pod")
    others = ((names.MINICLUSTER, "MiniCluster"), ("batch/v1", "Job"), ("apps/v1", "Deployment"))

    def left() -> list[str]:
        found = [
            one["metadata"]["name"]
            for kind in (*(("v1", kind) for kind in kinds), *others)
            for one in bench.admin.list(*kind, "default")
        ]
        return [name for name in found if name.startswith("sweep")]

    def over() -> bool:
        assert not running.errors, running.errors
        return not left() and not running.brokers and not running.services

    until(over, lambda: f"left: {left()}, {[*running.brokers]}, {[*running.services]}")


@pytest.mark.flux
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("flux") is None, reason="flux is not on PATH")
def test_an_ensemble_grows_runs_shrinks_completes_and_leaves_nothing(
    api: MemoryApi, bench: Bench, tmp_path: Path
) -> None:
    with operator(api, tmp_path), standin(api) as running:
        bench.put(example(tmp_path / "gate"))
        watch(bench, running, tmp_path / "gate")
        status = state(bench)
        assert status["phase"] == "Completed", f"{status}\n{running.logs()}"
        (one,) = status["members"]
        ended = {"success": 3, "failed": 0, "canceled": 0, "timeout": 0, "interrupted": 0}
        assert one["jobs"] == ended
        assert condition(status, "Completed")[0] == "True"
        live = bench.minicluster()
        assert live is not None
        assert live["spec"]["size"] == 1
        told(bench, "Accepted", "MemberCreated", "Resized", "MemberCompleted", "Completed")
        gone(bench, running)


#: How long a job lasts, and how long none may have begun when a pod of rank 0 is taken away, in
#: seconds: more than Flux takes to write its state. One that has resources in that state and no
#: word of it yet has Flux 0.88 refuse its scheduler for good ("already allocated").
_LASTS, _SETTLED = 5, 2.5


def sweep_of(ran: Path, count: int) -> dict[str, Any]:
    """An Ensemble with a volume, whose jobs leave a line in files when they begin and end."""
    line = f"echo >>{ran}.begun; sleep {_LASTS}; echo >>{ran}"
    document = {
        "jobs": [{"name": "a", "count": count, "command": f"sh -c '{line}'"}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
    }
    spec = {"size": 2, "containers": [{"image": "app"}]}
    one = {
        "name": "solve",
        "ensemble": yaml.safe_dump(document),
        "state": {"template": {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}},
        "minicluster": {"spec": spec},
    }
    return ensemble("sweep", one, install={"skip": True})


@pytest.mark.flux
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("flux") is None, reason="flux is not on PATH")
def test_with_a_volume_an_ensemble_goes_on_through_the_loss_of_any_pod(
    api: MemoryApi, bench: Bench, tmp_path: Path
) -> None:
    """Of rank 0 by its node, of a worker, and of rank 0 again by a drain."""
    ran, count = tmp_path / "ran", 10
    begun = tmp_path / "ran.begun"
    for file in (ran, begun):
        file.touch()
    with operator(api, tmp_path), standin(api) as running:
        bench.put(sweep_of(ran, count))

        def done() -> int:
            assert not running.errors, running.errors
            return len(ran.read_text())

        def has(jobs: int) -> bool:
            age = time.time() - begun.stat().st_mtime
            return done() >= jobs and _SETTLED < age < _LASTS

        for lost, (way, index) in enumerate((("evicted", 0), ("deleted", 1), ("eviction", 0))):
            until(partial(has, 2 * (lost + 1)), lambda: running.logs())
            bench.lose(way, index)
        until(
            lambda: not done() < count and state(bench).get("phase") in ("Completed", "Failed"),
            lambda: f"{state(bench)}\n{running.logs()}",
        )
        status = state(bench)
        assert status["phase"] == "Completed", f"{status}\n{running.logs()}"
        (one,) = status["members"]
        # Each counts once. What ran when a pod was lost, or ended in the second before, ran again:
        # far less than an ensemble that begins anew each time.
        assert (one["jobs"]["success"], one["jobs"]["failed"]) == (count, 0)
        assert count <= done() < 2 * count
        gone(bench, running)


@pytest.mark.flux
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("flux") is None, reason="flux is not on PATH")
def test_two_operators_that_do_not_know_of_each_other_do_the_work_once(
    api: MemoryApi, bench: Bench, tmp_path: Path
) -> None:
    """Such as one for all namespaces, and one for this one: each has a Lease of its own."""
    other = ("--lease-namespace=default", "--namespace=default")
    api.account_token("flux-ensemble", "flux-ensemble-operator")
    bench.admin.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "lease", "namespace": "default"},
            "rules": [
                {
                    "apiGroups": ["coordination.k8s.io"],
                    "resources": ["leases"],
                    "verbs": ["create", "get", "update"],
                }
            ],
        }
    )
    bench.admin.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "lease", "namespace": "default"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "lease",
            },
            "subjects": [
                {
                    "kind": "ServiceAccount",
                    "name": "flux-ensemble-operator",
                    "namespace": "flux-ensemble",
                }
            ],
        }
    )
    with (
        operator(api, tmp_path),
        operator(api, tmp_path, "another", *other),
        standin(api) as running,
    ):
        until(
            lambda: all(
                "begin" in (tmp_path / f"{name}.log").read_text()
                for name in ("operator", "another")
            ),
            lambda: (tmp_path / "another.log").read_text(),
        )
        bench.put(example(tmp_path / "gate"))
        watch(bench, running, tmp_path / "gate")
        status = state(bench)
        assert status["phase"] == "Completed", f"{status}\n{running.logs()}"
        (one,) = status["members"]
        assert one["jobs"]["success"] == 3
        made = [line for line in api.writes if line.startswith("POST miniclusters")]
        assert len(set(made)) == 1
        gone(bench, running)
