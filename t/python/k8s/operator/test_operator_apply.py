"""What is applied: what is not said any more goes, what is kept in another form stays alone."""

from __future__ import annotations

from typing import Any

import pytest
from ensembles import Bench, condition, ensemble, member
from memory_api import Failure, MemoryApi

from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.cluster import ClusterFailure, resource_class
from flux_ensemble.k8s.operator.members import Observed, kind_of
from flux_ensemble.k8s.operator.minicluster import minicluster

pytest_plugins = ["operator_cluster"]

DEPLOYMENT = "apps/v1", "Deployment", "default", "sweep-grpc"

#: What can be said of the pods of the service, and taken out again.
SCHEDULING = {
    "priorityClassName": "high",
    "nodeSelector": {"disk": "ssd", "zone": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
}


def pod_of(bench: Bench) -> dict[str, Any]:
    deployment = bench.admin.get(*DEPLOYMENT)
    assert deployment is not None
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def writes(api: MemoryApi) -> list[str]:
    """What was written, but for what is told."""
    return [one for one in api.writes if " events " not in one and " ensembles " not in one]


def test_what_is_taken_out_of_the_spec_goes(bench: Bench) -> None:
    taken_out(bench)


def taken_out(bench: Bench) -> None:
    """Each of these stayed in the Deployment, which was not made by an apply."""
    service = {
        "scheduling": SCHEDULING,
        "imagePullSecrets": [{"name": "one"}, {"name": "two"}],
        "resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "2", "memory": "1Gi"}},
    }
    bench.put(ensemble(service=service))
    bench.look()
    before = pod_of(bench)
    assert before["priorityClassName"] == "high"
    # A controller and a person write there, too.
    deployment = bench.admin.get(*DEPLOYMENT) or {}
    deployment["spec"]["template"]["metadata"]["annotations"] = {"added": "by hand"}
    resource = resource_class(*DEPLOYMENT[:2])(deployment)
    bench.clients[0].replace(resource, namespace="default", field_manager="by hand")
    bench.put(
        ensemble(
            service={
                "scheduling": {"nodeSelector": {"disk": "ssd"}},
                "imagePullSecrets": [{"name": "two"}],
                "resources": {"requests": {"cpu": "50m"}, "limits": {"memory": "1Gi"}},
            }
        )
    )
    bench.look()
    after = pod_of(bench)
    assert not {"priorityClassName", "tolerations"} & set(after)
    assert after["nodeSelector"] == {"disk": "ssd"}
    assert after["imagePullSecrets"] == [{"name": "two"}]
    assert after["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    # And once more, when it has been applied before.
    bench.put(ensemble())
    bench.look()
    after = pod_of(bench)
    assert "imagePullSecrets" not in after
    assert "nodeSelector" not in after
    deployment = bench.admin.get(*DEPLOYMENT) or {}
    assert deployment["spec"]["template"]["metadata"]["annotations"] == {"added": "by hand"}


def test_a_label_that_is_taken_out_of_a_minicluster_goes_and_its_size_stays(bench: Bench) -> None:
    minicluster_mended(bench)


def minicluster_mended(bench: Bench) -> None:
    """It is made with a size, which is not applied afterwards, and must not go by that."""
    bench.put(ensemble("sweep", member(size=2, minSize=2)))
    bench.look()
    live = bench.minicluster()
    assert live is not None
    bench.put(ensemble("sweep", member(size=2, minSize=1)))
    bench.look()
    mended = bench.minicluster()
    assert mended is not None
    assert (mended["spec"]["size"], mended["spec"]["minSize"]) == (2, 1)
    bench.admin.resize(mended, 3)
    bench.put(ensemble("sweep", member(size=2, minSize=2)))
    bench.look()
    mended = bench.minicluster()
    assert mended is not None
    assert (mended["spec"]["size"], mended["spec"]["minSize"]) == (3, 2)
    assert mended["metadata"]["uid"] == live["metadata"]["uid"]


def test_another_port_of_the_service_reaches_all_that_has_it(bench: Bench) -> None:
    another_port(bench)


def another_port(bench: Bench) -> None:
    """The old one stayed beside it, with the same name, which the API server refuses."""
    bench.put(ensemble())
    bench.look()
    bench.put(ensemble(service={"port": 7000}, onChange="Recreate"))
    bench.look()
    bench.look()
    service = bench.admin.get("v1", "Service", "default", "sweep-grpc")
    (port,) = (service or {})["spec"]["ports"]
    assert port["port"] == 7000
    (container,) = pod_of(bench)["containers"]
    assert {one["name"]: one["containerPort"] for one in container["ports"]}["grpc"] == 7000
    assert "--port=7000" in container["args"]
    # Members have it in their command.
    (runs,) = (bench.minicluster() or {})["spec"]["containers"]
    assert "--port=7000" in runs["command"]


def test_another_port_is_a_change_of_members_that_run(bench: Bench) -> None:
    bench.put(ensemble())
    bench.look()
    bench.put(ensemble(service={"port": 7000}))
    status = bench.look()
    assert condition(status, "Accepted")[:2] == ("False", "ChangeRefused")
    # They would find nobody any more: the service stays where they look for it.
    (port,) = (bench.admin.get("v1", "Service", "default", "sweep-grpc") or {})["spec"]["ports"]
    assert port["port"] == 50051


@pytest.mark.parametrize("cpu", ["1000m", 1, "1.0", "1"])
def test_a_quantity_in_another_form_is_no_change(bench: Bench, api: MemoryApi, cpu: Any) -> None:
    quantity(bench, api, cpu)


def quantity(bench: Bench, api: MemoryApi, cpu: Any) -> None:
    api.canonical = {"1000m": "1", 1: "1", "1.0": "1"}
    bench.put(ensemble(service={"resources": {"limits": {"cpu": cpu}}}))
    bench.look()
    bench.look()
    before = writes(api)
    for _ in range(3):
        bench.look()
    assert writes(api) == before
    # What somebody changes is mended all the same.
    deployment = bench.admin.get(*DEPLOYMENT) or {}
    limits = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    limits["cpu"] = "7"
    bench.admin.replace(deployment)
    bench.look()
    limits = pod_of(bench)["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "1"}
    assert writes(api)[-1] == "APPLY deployments default/sweep-grpc"


def test_what_the_api_server_does_not_keep_is_applied_once(bench: Bench, api: MemoryApi) -> None:
    """A field that it does not know is dropped without a word."""
    api.unknown = {"tolerationSecond"}
    tolerations = [{"key": "gpu", "operator": "Exists", "tolerationSecond": 5}]
    bench.put(ensemble(service={"scheduling": {"tolerations": tolerations}}))
    bench.look()
    bench.look()
    before = writes(api)
    bench.look()
    assert writes(api) == before
    assert "tolerationSecond" not in pod_of(bench)["tolerations"][0]


@pytest.mark.parametrize("kind", ["deployments", "services", "networkpolicies"])
def test_what_the_api_server_refuses_for_good_is_in_the_condition_accepted(
    bench: Bench, api: MemoryApi, kind: str
) -> None:
    def refuse(method: str, plural: str, name: str) -> None:
        if (method, plural) in (("POST", kind), ("PATCH", kind)):
            raise Failure(422, "Invalid", f'{kind} "{name}" is invalid: spec: wrong')

    api.refuse = refuse
    bench.put(ensemble())
    status = bench.look()
    holds, reason, message = condition(status, "Accepted")
    assert (holds, reason) == ("False", "Invalid")
    assert "is invalid: spec: wrong" in message
    # Members do without their service, as where its pods cannot start.
    assert bench.minicluster() is not None
    api.refuse = lambda *_: None
    assert condition(bench.look(), "Accepted")[0] == "True"
    # Likewise when it is there already.
    api.refuse = refuse
    bench.put(ensemble(service={"port": 7000, "imagePullSecrets": [{"name": "a"}]}))
    if kind == "deployments":
        assert "is invalid" in condition(bench.look(), "Accepted")[2]


def test_an_object_that_is_leaving_is_awaited_and_is_no_reason_for_another_name(
    bench: Bench, api: MemoryApi
) -> None:
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": "sweep",
        "uid": "of the one before",
        "controller": True,
    }
    metadata = {"name": "sweep-grpc", "namespace": "default"}
    before = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": []}}
    bench.admin.create({**before, "metadata": {**metadata, "ownerReferences": [owner]}})
    bench.put(ensemble())
    status = bench.look()
    assert condition(status, "Accepted")[0] == "True"
    assert status["phase"] == "Pending"
    message = "Service 'sweep-grpc' from before is still being deleted"
    assert condition(status, "Ready")[:2] == ("False", "Progressing")
    assert condition(status, "Ready")[2].startswith(f"{message}; ")
    # The garbage collector has taken it.
    bench.remove("v1", "Service", "sweep-grpc")
    status = bench.look()
    assert message not in condition(status, "Ready")[2]
    made = bench.admin.get("v1", "Service", "default", "sweep-grpc") or {}
    assert made["spec"]["ports"][0]["name"] == "grpc"


def test_a_secret_that_is_leaving_is_awaited_too(bench: Bench) -> None:
    metadata = {
        "name": "sweep-solve-tls",
        "namespace": "default",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    bench.admin.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {}})
    bench.put(ensemble())
    status = bench.look()
    assert condition(status, "Accepted")[0] == "True"
    assert "Secret 'sweep-solve-tls' from before" in condition(status, "Ready")[2]
    bench.remove("v1", "Secret", "sweep-solve-tls")
    bench.look()
    assert bench.minicluster() is not None


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ({}, "its Job is suspended: Job suspended"),
        (
            {"kueue.x-k8s.io/queue-name": "gpu"},
            "its Job is suspended until the queue 'gpu' admits it: Job suspended",
        ),
    ],
)
def test_a_job_that_is_suspended_is_said_to_be(labels: dict[str, str], sentence: str) -> None:
    cluster = minicluster(ensemble(), member())
    cluster["metadata"]["uid"] = "a"
    suspended = {"type": "Suspended", "status": "True", "message": "Job suspended"}
    job = {
        "metadata": {"name": "sweep-solve", "uid": "b", "labels": labels},
        "spec": {"suspend": True},
        "status": {"conditions": [suspended]},
    }
    found = kind_of(member()).status(member(), Observed(cluster, job))
    assert (found["state"], found["reason"]) == ("Pending", sentence)
    job["spec"] = {"suspend": False}
    found = kind_of(member()).status(member(), Observed(cluster, job))
    assert found["reason"] == "its pods start"


def test_what_has_changed_is_told_though_the_operator_dies_before_its_status_is_written(
    bench: Bench, api: MemoryApi
) -> None:
    bench.put(ensemble())
    bench.look()
    live = bench.minicluster()
    assert live is not None
    bench.admin.resize(live, 3)

    def refuse(method: str, plural: str, name: str) -> None:
        if method == "PUT" and plural == "ensembles":
            raise Failure(500, "InternalError", "it died")

    api.refuse = refuse
    with pytest.raises(ClusterFailure, match="it died"):
        bench.look()
    assert bench.events().count("Resized") == 1
    api.refuse = lambda *_: None
    bench.look()
    bench.look()
    # Told once, however often it was tried.
    assert bench.events().count("Resized") == 1
    live = bench.minicluster()
    assert live is not None
    bench.admin.resize(live, 2)
    bench.look()
    assert bench.events().count("Resized") == 2


def test_a_pod_that_ends_is_not_one_that_runs() -> None:
    cluster = minicluster(ensemble(), member())
    cluster["metadata"]["uid"] = "a"
    running = {"metadata": {"name": "a"}, "status": {"phase": "Running"}}
    leaving = {**running, "metadata": {"name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    found = kind_of(member()).status(member(), Observed(cluster, None, [running, leaving]))
    assert found["size"] == 1
