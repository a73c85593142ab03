"""What docs/comparison.md says of ensemble-operator, on a real API server where it is built.

ENSEMBLE_OPERATOR names a folder with its source, in its second design, and with `bin/manager`, as
its Makefile builds it; ENSEMBLE_OPERATOR_FIRST one of its first design (c00f92a of its history).
Nothing runs pods: what it makes is looked at.
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
from ensembles import CRDS, objects
from test_operator_app import until

pytestmark = apiserver.MARKS

WHERE = "/apis/{}/namespaces/default/{}"
ENSEMBLES = WHERE.format("ensemble.flux-framework.org/v1alpha1", "ensembles")
MINICLUSTERS = WHERE.format("flux-framework.org/v1alpha2", "miniclusters")

#: Seconds in which it would have done something, if it did: it has looked several times by then.
QUIET = 5.0


class Operator:
    """ensemble-operator on an API server, as its administrator."""

    def __init__(self, server: apiserver.ApiServer, log: Path) -> None:
        self._server = server
        self._log = log

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = httpx2.request(
            method,
            self._server.url + path,
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


@contextmanager
def running(variable: str, directory: Path) -> Iterator[Operator]:
    """ensemble-operator of the folder that a variable of the environment names."""
    folder = Path(os.environ.get(variable, "/nonexistent"))
    if not (folder / "bin" / "manager").exists():
        pytest.skip(f"{variable} names no folder with bin/manager")
    crd = folder / "config" / "crd" / "bases" / "ensemble.flux-framework.org_ensembles.yaml"
    with apiserver.api_server(directory, {}) as server:
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
    spec = {"size": 1, "minSize": 1, "maxSize": 4, "containers": [container], **minicluster}
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


def test_its_second_design_is_as_the_comparison_says(second: Operator) -> None:
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
    assert "|| echo" in container["commands"]["pre"]
    # A member finds the service by its address, and without certificates.
    address = second.get("v1", "services", "one-grpc")["spec"]["clusterIP"]
    assert f"--host {address} " in container["command"]
    assert "tls" not in container["command"]
    # Rights of the service: all MiniClusters of the namespace, to delete them, too.
    (rule,) = second.get("rbac.authorization.k8s.io/v1", "roles", "one")["rules"]
    assert "resourceNames" not in rule
    assert "delete" in rule["verbs"]
    # Nothing is in the status, and no queue of Kueue is passed on.
    live = second.ask("GET", f"{ENSEMBLES}/one")
    assert not live.get("status")
    assert "jobLabels" not in one["spec"]


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
    assert "jobLabels" not in one["spec"]
    # The status has the jobs that are not submitted yet, and nothing else.
    status = first.ask("GET", f"{ENSEMBLES}/one")["status"]
    assert status.keys() == {"jobs"}
    assert sum(len(of_member) for of_member in status["jobs"].values()) == 2
    # It looks for the address of a pod of each member.
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
