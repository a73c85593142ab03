"""Ensembles in queues of Kueue: what waits, for what, and what is taken away again.

Kueue itself is stood in for: its webhook suspends a Job of a queue, and its Workload says why. On a
real API server, KUEUE_CRDS can name a folder with its CRDs, as its repository has them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apiserver
import pytest
from ensembles import (
    CRDS,
    KUBERNETES,
    Bench,
    condition,
    ensemble,
    entrypoint_of,
    job_of,
    member,
    objects,
    write_status,
)
from lightkube.codecs import from_dict
from memory_api import MemoryApi
from test_operator_app import until

from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.check import check
from flux_ensemble.k8s.operator.cluster import ClusterFailure
from flux_ensemble.k8s.operator.minicluster import minicluster, template

pytest_plugins = ["operator_cluster"]

ACCOUNT = "system:serviceaccount:flux-ensemble:flux-ensemble-operator"
TOKEN = "flux-ensemble-flux-ensemble-operator"

PENDING = (
    "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, "
    "request > maximum capacity (1 > 0)"
)

#: What Kueue says of a Workload, in its words -> what the status says.
SAID: dict[str, tuple[list[tuple[str, str, str, str]], str]] = {
    "a LocalQueue that does not exist": (
        [("QuotaReserved", "False", "Misconfigured", "LocalQueue gpu doesn't exist")],
        "LocalQueue gpu doesn't exist",
    ),
    "a quota of zero": ([("QuotaReserved", "False", "ExceedsMaxQuota", PENDING)], PENDING),
    "a preempted workload": (
        [
            ("Evicted", "True", "Preempted", "Preempted to accommodate a workload (UID: 1)"),
            ("QuotaReserved", "False", "Pending", "waiting for quota"),
        ],
        "Preempted: Preempted to accommodate a workload (UID: 1); waiting for quota",
    ),
    "nothing yet": ([], "Job suspended"),
}


def crd(folder: str | None = None) -> dict[str, Any]:
    """The CRD of Workloads, or one that takes anything."""
    if folder:
        (found,) = objects(Path(folder) / "kueue.x-k8s.io_workloads.yaml")
        # Its webhook is part of Kueue, which is not there.
        found["spec"]["conversion"] = {"strategy": "None"}
        return found
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": anything},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "workloads.kueue.x-k8s.io"},
        "spec": {
            "group": "kueue.x-k8s.io",
            "names": {"kind": "Workload", "plural": "workloads"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def queued(queue: str | None = "gpu", **spec: Any) -> dict[str, Any]:
    sizes = {"size": 2, "minSize": 2, "maxSize": 2}
    given = {} if queue is None else {"queue": queue}
    return ensemble("sweep", member(**{**sizes, **spec}), **given)


def suspended(bench: Bench) -> list[str]:
    """What the Job controller says of the Job."""
    live = bench.admin.get("batch/v1", "Job", "default", "sweep-solve") or {}
    found = (live.get("status") or {}).get("conditions") or ()
    return [one["message"] for one in found if one["type"] == "Suspended"]


def with_job(bench: Bench) -> dict[str, Any]:
    """The Job that the Flux Operator makes, and Kueue suspends."""
    cluster = bench.minicluster()
    assert cluster is not None
    bench.admin.create(entrypoint_of(cluster))
    job = job_of(cluster)
    job["spec"]["suspend"] = True
    made = bench.admin.create(job)
    until(lambda: bool(suspended(bench)), "the Job controller does not say that it is suspended")
    return made


def with_workload(
    bench: Bench, job: dict[str, Any], conditions: list[tuple[str, str, str, str]]
) -> None:
    """What Kueue makes of the Job."""
    keys = ("type", "status", "reason", "message")
    now = "2026-01-01T00:00:00Z"
    found = [{**dict(zip(keys, one, strict=True)), "lastTransitionTime": now} for one in conditions]
    pod = {"containers": [{"name": "a", "image": "a"}], "restartPolicy": "Never"}
    made = bench.admin.create(
        {
            "apiVersion": names.WORKLOAD,
            "kind": "Workload",
            "metadata": {
                "name": f"job-{job['metadata']['name']}-1",
                "namespace": "default",
                "labels": {names.JOB_UID_LABEL: job["metadata"]["uid"]},
            },
            "spec": {
                "queueName": "gpu",
                "podSets": [{"name": "main", "count": 2, "template": {"spec": pod}}],
            },
        }
    )
    write_status(bench.admin, made, {"conditions": found})


def tell_the_queue(bench: Bench, what: str) -> None:
    """An Ensemble waits; what the status says of it."""
    conditions, said = SAID[what]
    bench.put(queued())

    def begins() -> bool:
        # What is left of an earlier one of the name is awaited.
        return "Admitted" in [one["type"] for one in bench.look()["conditions"]]

    until(begins, lambda: str(bench.look()))
    assert condition(bench.look(), "Admitted")[0] == "False"
    job = with_job(bench)
    assert job["metadata"]["labels"][names.QUEUE_LABEL] == "gpu"
    with_workload(bench, job, conditions)
    status = bench.look()
    (one,) = status["members"]
    assert (one["state"], one["queue"], one["admitted"]) == ("Pending", "gpu", False)
    sentence = f"its Job is suspended until the queue 'gpu' admits it: {said}"
    assert one["reason"] == sentence
    assert condition(status, "Admitted") == ("False", "Queued", f"solve: {sentence}")
    assert sentence in condition(status, "Ready")[2]
    assert "MemberWaits" in bench.events()


def admit(bench: Bench) -> None:
    live = bench.admin.get("batch/v1", "Job", "default", "sweep-solve")
    assert live is not None
    live["spec"]["suspend"] = False
    bench.admin.replace(live)


@pytest.fixture
def kueue(api: MemoryApi) -> None:
    """A cluster with the CRDs of Kueue."""
    code, answer = api.answer(
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "admin",
        crd(),
        "application/json",
    )
    assert code == 201, answer


@pytest.mark.parametrize("what", SAID)
@pytest.mark.usefixtures("kueue")
def test_the_status_says_what_a_queue_says(bench: Bench, what: str) -> None:
    tell_the_queue(bench, what)
    # It is looked at again: what Kueue says is not watched.
    after = bench.reconciler.reconcile("default", "sweep")
    assert after == (10 if what == "nothing yet" else 60)
    admit(bench)
    status = bench.look()
    assert condition(status, "Admitted") == (
        "True", "Admitted", "the queues have admitted all members"
    )  # fmt: skip


@pytest.mark.usefixtures("kueue")
def test_a_preempted_member_runs_again_when_it_is_admitted_again(bench: Bench) -> None:
    bench.put(queued())
    bench.look()
    job = with_job(bench)
    admit(bench)
    bench.pod()
    assert bench.look()["phase"] == "Running"
    live = bench.admin.get("batch/v1", "Job", "default", "sweep-solve")
    assert live is not None
    live["spec"]["suspend"] = True
    bench.admin.replace(live)
    with_workload(bench, job, SAID["a preempted workload"][0])
    status = bench.look()
    (one,) = status["members"]
    assert (status["phase"], one["state"], one["admitted"]) == ("Pending", "Pending", False)
    assert "Preempted to accommodate" in one["reason"]
    admit(bench)
    bench.pod()
    assert bench.look()["phase"] == "Running"


def test_without_kueue_a_job_waits_all_the_same(bench: Bench) -> None:
    """There are no Workloads in this cluster."""
    bench.put(queued())
    bench.look()
    with_job(bench)
    (one,) = bench.look()["members"]
    assert one["reason"] == "its Job is suspended until the queue 'gpu' admits it: Job suspended"


def test_without_a_queue_there_is_no_such_condition(bench: Bench) -> None:
    bench.put(ensemble())
    status = bench.look()
    assert "Admitted" not in [one["type"] for one in status["conditions"]]
    assert "queue" not in status["members"][0]


def test_a_member_can_have_a_queue_of_its_own() -> None:
    own: dict[str, Any] = {"jobLabels": {names.QUEUE_LABEL: "cpu", "a": "b"}}
    made = minicluster(queued(**own), queued(**own)["spec"]["members"][0])
    assert made["spec"]["jobLabels"] == own["jobLabels"]
    made = minicluster(queued(), queued()["spec"]["members"][0])
    assert made["spec"]["jobLabels"] == {names.QUEUE_LABEL: "gpu"}


def test_a_member_of_a_queue_has_one_size() -> None:
    """Kueue stops a Job whose size changes."""
    grows = queued(minSize=1, maxSize=4)
    text = {"solve": "jobs: [{name: a, command: b}]"}
    place = "members[solve].minicluster.spec"
    why = "Kueue stops a Job of its queues whose size changes"
    assert check(grows, text) == [
        f"{place}.minSize: expected 2, which is its size, not 1: {why}",
        f"{place}.maxSize: expected 2, which is its size, not 4: {why}",
    ]
    assert check(queued(), text) == []
    assert check(queued(None, minSize=1, maxSize=4), text) == []
    plain = ensemble("sweep", member(), queue="gpu")
    spec = plain["spec"]["members"][0]["minicluster"]["spec"]
    del spec["minSize"], spec["maxSize"]
    spec["size"] = 3
    made = minicluster(plain, plain["spec"]["members"][0])["spec"]
    assert (made["minSize"], made["maxSize"]) == (3, 3)


def test_another_queue_is_another_member() -> None:
    one, other, none = queued(), queued("cpu"), queued(None)
    digests = {template(each, each["spec"]["members"][0]) for each in (one, other, none)}
    assert len(digests) == 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apiserver.ApiServer]:
    with apiserver.api_server(tmp_path_factory.mktemp("apiserver"), {TOKEN: ACCOUNT}) as server:
        admin = server.client()
        for one in [
            *objects(KUBERNETES / "install.yaml", CRDS[1]),
            crd(os.environ.get("KUEUE_CRDS")),
        ]:
            admin.create(from_dict(one))
        bench = Bench(server, "admin")

        def served() -> bool:
            try:
                for kind in (
                    (names.API_VERSION, names.KIND),
                    (names.MINICLUSTER, "MiniCluster"),
                    (names.WORKLOAD, "Workload"),
                ):
                    bench.admin.list(*kind, "default")
            except ClusterFailure:
                return False
            return True

        until(served, "the CRDs are not established")
        bench.close()
        yield server


def left(bench: Bench) -> list[Any]:
    """What would hold up the next Ensemble of the name."""
    found = [
        bench.minicluster(),
        bench.admin.get("batch/v1", "Job", "default", "sweep-solve"),
        bench.admin.get("v1", "ConfigMap", "default", names.entrypoint("sweep-solve")),
    ]
    return [one for one in found if one is not None]


@pytest.mark.apiserver
@pytest.mark.skipif(apiserver.binaries() is None, reason="kube-apiserver and etcd are not on PATH")
@pytest.mark.parametrize("what", SAID)
def test_so_it_is_on_a_real_api_server(server: apiserver.ApiServer, what: str) -> None:
    """With the rights of the operator."""
    bench = Bench(server, TOKEN)
    try:
        tell_the_queue(bench, what)
    finally:
        for kind, name in (
            ((names.WORKLOAD, "Workload"), "job-sweep-solve-1"),
            ((names.API_VERSION, names.KIND), "sweep"),
            (("batch/v1", "Job"), "sweep-solve"),
            (("v1", "ConfigMap"), names.entrypoint("sweep-solve")),
            ((names.MINICLUSTER, "MiniCluster"), "sweep-solve"),
        ):
            bench.remove(*kind, name)
        until(lambda: not left(bench), "it does not go")
        bench.close()
