"""The CRD of the Ensemble: its types and its rules, evaluated by cel-python."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from crd_schema import Schema

CRD = Path(__file__).parents[4] / "etc" / "kubernetes" / "base" / "ensemble-crd.yaml"


@pytest.fixture(scope="module")
def schema() -> Schema:
    return Schema(yaml.safe_load(CRD.read_text()))


def ensemble(name: str = "sweep", **spec: Any) -> dict[str, Any]:
    minicluster = {"spec": {"size": 2, "maxSize": 4, "containers": [{"image": "app"}]}}
    members = [{"name": "solve", "ensemble": "jobs: []", "minicluster": minicluster}]
    return {
        "apiVersion": "flux-ensemble.dev/v1alpha1",
        "kind": "Ensemble",
        "metadata": {"name": name},
        "spec": {"members": members, **spec},
    }


def member(**changes: Any) -> dict[str, Any]:
    found = ensemble()
    (one,) = found["spec"]["members"]
    one.update(changes)
    found["spec"]["members"] = [{key: value for key, value in one.items() if value is not None}]
    return found


def sized(**sizes: Any) -> dict[str, Any]:
    found = ensemble()
    found["spec"]["members"][0]["minicluster"]["spec"].update(sizes)
    return found


def test_an_ensemble_is_accepted_and_has_its_defaults(schema: Schema) -> None:
    found = ensemble()
    assert schema.problems(found, strict=True) == []
    assert found["spec"]["service"] == {"port": 50051, "replicas": 1}
    assert (found["spec"]["restart"], found["spec"]["onChange"]) == ("Never", "Refuse")
    assert found["spec"]["members"][0]["kind"] == "MiniCluster"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (ensemble("1a"), "begins with a letter"),
        (ensemble("a.b"), "begins with a letter"),
        (ensemble("a" * 52), "at most 56 characters together"),
        (ensemble(members=[]), "spec.members"),
        (ensemble(restart="Always"), "'Always' is not one of"),
        (ensemble(service={"port": 8080}), "port 8080 is that of the probes"),
        (ensemble(service={"replicas": 9}), "9 is greater than"),
        (ensemble(service={"imagePullPolicy": "never"}), "'never' is not one of"),
        (ensemble(members=2 * ensemble()["spec"]["members"]), "duplicate value"),
        (member(ensemble=None), "exactly one of ensemble and ensembleFrom"),
        (member(ensembleFrom={"name": "a"}), "exactly one of ensemble and ensembleFrom"),
        (member(ensemble="x" * 131073), "too long"),
        (member(name="grpc"), "'grpc' is the name of the service"),
        (member(name="A"), "does not match"),
        (member(kind="JobSet"), "'JobSet' is not one of"),
        (member(install={"indexUrl": "-rfile"}), "does not match"),
        (sized(size=0), "0 is less than"),
        (sized(minSize=3), "minSize is above size"),
        (sized(size=5), "size is above maxSize"),
        (sized(maxSize="4"), "'4' is not of type"),
        (sized(containers=[]), "containers"),
        (sized(containers=[{}]), "'image' is a required property"),
    ],
)
def test_what_is_wrong_is_refused_with_its_sentence(
    schema: Schema, wrong: dict[str, Any], sentence: str
) -> None:
    (problem,) = schema.problems(copy.deepcopy(wrong))
    assert sentence in problem


def test_the_greatest_size_cannot_be_changed(schema: Schema) -> None:
    old = ensemble()
    assert schema.problems(sized(size=3), old) == []
    for new in (sized(maxSize=5), sized(maxSize=2)):
        (problem,) = schema.problems(new, old)
        assert "maxSize cannot be changed" in problem
    del (new := ensemble())["spec"]["members"][0]["minicluster"]["spec"]["maxSize"]
    (problem,) = schema.problems(new, old)
    assert "maxSize cannot be changed" in problem


def test_names_may_be_as_long_as_hosts_allow(schema: Schema) -> None:
    assert schema.problems(ensemble("a" * 51)) == []


def test_a_typo_is_found_where_fields_are_known(schema: Schema) -> None:
    problems = schema.problems(ensemble(suspended=True), strict=True)
    assert problems == ['unknown field "spec.suspended"']
