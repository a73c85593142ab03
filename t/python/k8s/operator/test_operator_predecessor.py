"""What docs/comparison.md says of ensemble-operator, on a real API server where it is built.

ENSEMBLE_OPERATOR names a folder with its source, in its second design, and with `bin/manager`, as
its Makefile builds it; ENSEMBLE_OPERATOR_FIRST one of its first design (c00f92a of its history).
ENSEMBLE_PYTHON is a Python that has ensemble-python and its client of Kubernetes, by which its
members and its service run, in real brokers
(`test_operator_predecessor_runs`). Without it, what is made is looked at.
"""

from __future__ import annotations

import copy
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apiserver
import httpx2
import pytest
import yaml
from ensembles import CRDS, KUBERNETES, Bench, condition, ensemble, member, objects
from lightkube.codecs import from_dict
from test_operator_app import operator, until

from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.cluster import ClusterFailure

pytestmark = apiserver.MARKS

WHERE = "/apis/{}/namespaces/default/{}"
ENSEMBLES = WHERE.format("ensemble.flux-framework.org/v1alpha1", "ensembles")
MINICLUSTERS = WHERE.format("flux-framework.org/v1alpha2", "miniclusters")

#: Where it is: its second design, and its first one.
VARIABLES = ("ENSEMBLE_OPERATOR", "ENSEMBLE_OPERATOR_FIRST")

#: The label by which Kueue knows the queue of a Job.
QUEUE = {names.QUEUE_LABEL: "team-a"}

#: Seconds in which it would have done something, if it did: it has looked several times by then.
QUIET = 5.0


class Operator:
    """ensemble-operator on an API server, as its administrator."""

    def __init__(self, server: apiserver.ApiServer, log: Path) -> None:
        self.server = server
        self._log = log

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = httpx2.request(
            method,
            self.server.url + path,
            json=body,
            headers={"Authorization": "Bearer admin"},
            verify=False,
        )
        return answer.raise_for_status().json() if answer.status_code != 404 else None

    def put(self, one: dict[str, Any]) -> None:
        path = f"{ENSEMBLES}/{one['metadata']['name']}"
        live = self.ask("GET", path)
        if live is None:
            self.ask("POST", ENSEMBLES, one)
        else:
            self.ask("PUT", path, {**live, "spec": one["spec"]})

    def miniclusters(self) -> dict[str, dict[str, Any]]:
        found = self.ask("GET", MINICLUSTERS)["items"]
        return {one["metadata"]["name"]: one for one in found}

    def get(self, api: str, plural: str, name: str) -> Any:
        return self.ask("GET", f"{WHERE.format(api, plural)}/{name}".replace("/apis/v1", "/api/v1"))

    def log(self) -> str:
        return self._log.read_text()


def folder_of(variable: str) -> Path:
    """The folder that a variable of the environment names."""
    folder = Path(os.environ.get(variable, "/nonexistent"))
    if not (folder / "bin" / "manager").exists():
        pytest.skip(f"{variable} names no folder with bin/manager")
    return folder


@contextmanager
def running(
    variable: str, directory: Path, users: dict[str, str] | None = None
) -> Iterator[Operator]:
    """ensemble-operator of a folder, on an API server with these users."""
    folder = folder_of(variable)
    crd = folder / "config" / "crd" / "bases" / "ensemble.flux-framework.org_ensembles.yaml"
    with apiserver.api_server(directory, users or {}) as server:
        config, log = directory / "config", directory / "manager.log"
        config.write_text(server.kubeconfig("admin"))
        operator = Operator(server, log)
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for one in objects(crd, CRDS[1]):
            operator.ask("POST", crds, one)
        until(
            lambda: operator.ask("GET", ENSEMBLES) and operator.ask("GET", MINICLUSTERS),
            "the CRDs are not established",
        )
        command = [folder / "bin" / "manager", f"--kubeconfig={config}"]
        ports = ["--metrics-bind-address=0", "--health-probe-bind-address=0"]
        with log.open("wb") as out:
            child = subprocess.Popen([*map(str, command), *ports], stdout=out, stderr=out)
        try:
            yield operator
        finally:
            child.terminate()
            child.wait(60)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    with running("ENSEMBLE_OPERATOR", tmp_path_factory.mktemp("second")) as operator:
        yield operator


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    with running("ENSEMBLE_OPERATOR_FIRST", tmp_path_factory.mktemp("first")) as operator:
        yield operator


def given(name: str, *own: dict[str, Any], **minicluster: Any) -> dict[str, Any]:
    """An Ensemble of theirs, with a member for each of what its members are given."""
    container = {
        "image": "app",
        "volumes": {"data": {"hostPath": "/data", "path": "/data"}},
        "commands": {"pre": "echo mine"},
        "command": "mine",
    }
    spec = {
        "size": 1,
        "minSize": 1,
        "maxSize": 4,
        "containers": [container],
        "jobLabels": QUEUE,
        **minicluster,
    }
    members = [{**one, "minicluster": {"spec": copy.deepcopy(spec)}} for one in own]
    return {
        "apiVersion": "ensemble.flux-framework.org/v1alpha1",
        "kind": "Ensemble",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"members": members, "sidecar": {"image": "sidecar"}},
    }


def document(command: str = "true") -> dict[str, str]:
    jobs = [{"name": "a", "command": command}]
    return {"ensemble": yaml.safe_dump({"jobs": jobs, "rules": []})}


def jobs(command: str = "true", nodes: int = 1) -> dict[str, Any]:
    group = {"name": "a", "command": command, "count": 3, "nodes": nodes}
    return {"jobs": [group], "sidecar": {"workers": 1}}


def installs(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run what a pod installs where nothing can be installed."""
    for name in ("apt-get", "yum", "python3"):
        program = directory / name
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
    path = f"{directory}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", script], env={"PATH": path}, capture_output=True, text=True
    )


def test_its_second_design_is_as_the_comparison_says(second: Operator, tmp_path: Path) -> None:
    second.put(given("one", document(), document()))
    until(lambda: len(second.miniclusters()) == 2, second.log)
    one, other = second.miniclusters().values()
    # A headless Service: one name for all members.
    assert one["spec"]["network"]["headlessName"] == "one"
    assert other["spec"]["network"]["headlessName"] == "one"
    # The user's volumes and commands are overwritten; it is installed on all pods, and a failure
    # of that is ignored.
    (container,) = one["spec"]["containers"]
    assert container["volumes"].keys() == {"one-0"}
    assert "mine" not in container["commands"]["pre"]
    assert installs(container["commands"]["pre"], tmp_path).returncode == 0
    # A member finds the service by its address, and without certificates.
    address = second.get("v1", "services", "one-grpc")["spec"]["clusterIP"]
    assert f"--host {address} " in container["command"]
    assert "tls" not in container["command"]
    # Rights of the service: all MiniClusters of the namespace, to delete them, too.
    (rule,) = second.get("rbac.authorization.k8s.io/v1", "roles", "one")["rules"]
    assert "resourceNames" not in rule
    assert "delete" in rule["verbs"]
    # Nothing is in the status. A queue of Kueue is a label of the MiniCluster, as the user has it.
    live = second.ask("GET", f"{ENSEMBLES}/one")
    assert not live.get("status")
    assert one["spec"]["jobLabels"] == QUEUE


def test_the_second_ignores_changes_and_keeps_the_miniclusters_of_members_that_go(
    second: Operator,
) -> None:
    second.put(given("two", document(), document()))
    until(lambda: {"two-0", "two-1"} <= second.miniclusters().keys(), second.log)
    before = second.miniclusters()
    kept = second.get("v1", "configmaps", "two-0")
    second.put(given("two", document("false"), size=2))
    time.sleep(QUIET)
    assert second.get("v1", "configmaps", "two-0")["data"] == kept["data"]
    now = second.miniclusters()
    assert [now[name]["spec"] for name in before] == [before[name]["spec"] for name in before]


def test_the_second_makes_pods_for_a_document_that_is_none(second: Operator) -> None:
    second.put(given("three", {"ensemble": "jobs: [{nome: a}"}))
    until(lambda: "three-0" in second.miniclusters(), second.log)
    assert not second.ask("GET", f"{ENSEMBLES}/three").get("status")


def test_its_first_design_is_as_the_comparison_says(first: Operator) -> None:
    first.put(given("one", jobs(), jobs()))
    until(lambda: len(first.miniclusters()) == 2, first.log)
    one, other = first.miniclusters().values()
    # No name of a headless Service of their own, so the Flux Operator's: one for all MiniClusters.
    assert "headlessName" not in one["spec"].get("network", {})
    assert "headlessName" not in other["spec"].get("network", {})
    # Volumes are kept. What is interactive runs no command; the member's is in a second container.
    container, sidecar = one["spec"]["containers"]
    assert container["volumes"].keys() == {"data"}
    assert one["spec"]["interactive"]
    assert (sidecar["name"], "pip install" in sidecar["commands"]["post"]) == ("api", True)
    assert one["spec"]["jobLabels"] == QUEUE
    # The status has the jobs that are not submitted yet, and nothing else.
    live = first.ask("GET", f"{ENSEMBLES}/one")
    status = live["status"]
    assert status.keys() == {"jobs"}
    assert sum(len(of_member) for of_member in status["jobs"].values()) == 2
    # It looks for the address of a pod of each member, and asks it every ten seconds.
    assert live["spec"]["checkSeconds"] == 10
    until(lambda: "No pods found" in first.log(), first.log)


def test_the_first_ignores_changes_and_keeps_the_miniclusters_of_members_that_go(
    first: Operator,
) -> None:
    first.put(given("two", jobs(), jobs()))
    until(lambda: {"two-0", "two-1"} <= first.miniclusters().keys(), first.log)
    before = first.miniclusters()
    kept = first.ask("GET", f"{ENSEMBLES}/two")["status"]
    first.put(given("two", jobs("false"), size=2))
    time.sleep(QUIET)
    assert first.ask("GET", f"{ENSEMBLES}/two")["status"] == kept
    now = first.miniclusters()
    assert [now[name]["spec"] for name in before] == [before[name]["spec"] for name in before]


def test_the_first_says_errors_in_its_log_only(first: Operator) -> None:
    first.put(given("three", jobs(nodes=9)))
    until(lambda: "job node requirement cannot exceed max size of 4" in first.log(), first.log)
    assert not first.ask("GET", f"{ENSEMBLES}/three").get("status")


def test_its_chart_is_that_of_the_first_design(tmp_path: Path) -> None:
    """It has no values but those of the operator's pods, and no schema of them."""
    helm_python = pytest.importorskip("helm_python")
    chart, old = (folder_of(name) / "chart" for name in VARIABLES)
    files = [one.relative_to(chart) for one in chart.rglob("*") if one.is_file()]
    assert all((old / one).read_text() == (chart / one).read_text() for one in files)
    assert not (chart / "values.schema.json").exists()
    with (
        apiserver.api_server(tmp_path, {}) as server,
        helm_python.Config(kubeconfig_content=server.kubeconfig("admin"), namespace="own") as helm,
    ):
        theirs = Operator(server, tmp_path / "log")

        def install(**values: Any) -> Any:
            helm.upgrade(str(chart), "a", {"controllerManager": values}, reset_values=True)
            deployments = theirs.ask("GET", "/apis/apps/v1/namespaces/own/deployments")["items"]
            (deployment,) = deployments
            return deployment["spec"]

        helm.install(str(chart), "a", {}, create_namespace=True)
        assert install(replicas=3)["replicas"] == 3
        changed = {"image": {"tag": "other"}, "resources": {"limits": {"cpu": "2"}}}
        _, container = install(manager=changed)["template"]["spec"]["containers"]
        assert container["image"].endswith(":other")
        assert container["resources"]["limits"]["cpu"] == "2"
        # What its pods may do: run commands in all pods of all namespaces.
        roles = theirs.ask("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles")["items"]
        (role,) = (one for one in roles if one["metadata"]["name"].endswith("manager-role"))
        rights = {
            (resource, verb)
            for rule in role["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        assert ("pods/exec", "create") in rights
        # The second design makes these, and may not.
        assert not {"services", "deployments", "roles"} & {resource for resource, _ in rights}
        # Its CRD takes no Ensemble of the second design.
        until(lambda: theirs.ask("GET", ENSEMBLES) is not None, "the CRD is not established")
        with pytest.raises(httpx2.HTTPStatusError) as refused:
            theirs.put(given("one", document()))
        assert "spec.members[0].jobs: Required value" in refused.value.response.text
        theirs.put(given("one", jobs()))


@contextmanager
def both(variable: str, directory: Path) -> Iterator[tuple[Operator, Bench]]:
    """ensemble-operator and ours on one API server."""
    token = "flux-ensemble-flux-ensemble-operator"
    account = "system:serviceaccount:flux-ensemble:flux-ensemble-operator"
    with running(variable, directory, {token: account}) as theirs:
        for one in objects(KUBERNETES / "install.yaml"):
            theirs.server.client().create(from_dict(one))
        bench = Bench(theirs.server, token)
        with operator(theirs.server, directory):
            yield theirs, bench
        bench.close()


def put(bench: Bench, one: dict[str, Any]) -> None:
    def done() -> bool:
        try:
            bench.put(one)
        except ClusterFailure as failure:
            if failure.code != 404:
                raise
            return False  # Its CRD is not established yet.
        return True

    until(done, "the Ensemble cannot be created")


def versions(bench: Bench) -> dict[str, str]:
    """All that both make, with its version."""
    kinds = [*names.OWN, ("v1", "Pod")]
    return {
        f"{kind}/{one['metadata']['name']}": one["metadata"]["resourceVersion"]
        for api, kind in kinds
        for one in bench.admin.list(api, kind, "default")
        if one["metadata"]["name"] != "kubernetes"
    }


def accepted(bench: Bench, name: str) -> tuple[str, str]:
    status = (bench.ensemble(name) or {}).get("status") or {}
    if "Accepted" not in [one["type"] for one in status.get("conditions") or ()]:
        return "", ""
    found = condition(status, "Accepted")
    return found[0], found[2]


@pytest.mark.parametrize("variable", VARIABLES)
def test_both_operators_work_in_one_namespace(variable: str, tmp_path: Path) -> None:
    own = document() if variable == VARIABLES[0] else jobs()
    with both(variable, tmp_path) as (theirs, bench):
        put(bench, ensemble())
        theirs.put(given("one-a", own, own))
        wanted = {"MiniCluster/sweep-solve", "MiniCluster/one-a-0", "MiniCluster/one-a-1"}
        wanted |= {"Deployment/sweep-grpc"}
        until(lambda: wanted <= versions(bench).keys(), lambda: f"{versions(bench)}")
        until(lambda: accepted(bench, "sweep")[0] == "True", "it is not accepted")
        time.sleep(QUIET)
        # Neither writes what the other has made, nor does one of them write again and again.
        before = versions(bench)
        time.sleep(QUIET)
        assert versions(bench) == before
        # A member that has the name of one of theirs is refused, with a sentence.
        put(bench, ensemble("one", member("a-0")))
        until(lambda: accepted(bench, "one")[0] == "False", "it is accepted")
        said = accepted(bench, "one")[1]
        assert "MiniCluster 'one-a-0' is there already, and is not of this Ensemble" in said
        assert (
            theirs.miniclusters()["one-a-0"]["metadata"]["resourceVersion"]
            == (before["MiniCluster/one-a-0"])
        )


def test_ensembles_of_one_name_have_one_service_only(tmp_path: Path) -> None:
    """Both call it NAME-grpc."""
    with both(VARIABLES[0], tmp_path) as (theirs, bench):
        theirs.put(given("first", document()))
        until(lambda: theirs.get("v1", "services", "first-grpc") is not None, theirs.log)
        put(bench, ensemble("first"))
        until(lambda: "first-grpc" in accepted(bench, "first")[1], "nothing is said")
        said = accepted(bench, "first")[1]
        assert "Service 'first-grpc' is there already, and is not of this Ensemble" in said
        # When theirs comes second, it says nothing, and sends its member to our service.
        put(bench, ensemble("second"))
        until(lambda: "Service/second-grpc" in versions(bench), "there is no service")
        theirs.put(given("second", document()))
        until(lambda: "second-0" in theirs.miniclusters(), theirs.log)
        ours = theirs.get("v1", "services", "second-grpc")
        assert ours["metadata"]["labels"][names.MANAGED_LABEL] == names.MANAGER
        (container,) = theirs.miniclusters()["second-0"]["spec"]["containers"]
        assert f"--host {ours['spec']['clusterIP']} " in container["command"]
        assert accepted(bench, "second")[0] == "True"
