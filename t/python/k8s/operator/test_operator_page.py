"""docs/kubernetes.md says of each field, and of each right, what the manifests have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ensembles import CRDS, KUBERNETES, ensemble, objects

from flux_ensemble.k8s.operator import status as statuses
from flux_ensemble.k8s.operator.render import Settings, render

PAGE = Path(__file__).parents[4] / "docs" / "kubernetes.md"

#: Fields that are passed on to the Flux Operator, and told of all the same.
PASSED_ON = "members[].minicluster.spec.backoffLimit"

Fields = dict[str, dict[str, Any]]


def table(first: str) -> list[list[str]]:
    """The rows of the tables of the page that begin with a cell of this text."""
    rows: list[list[str]] = []
    inside = False
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[0] == first:
            inside = True
        elif inside and not set(line) <= set("|- "):
            rows.append(cells)
    return rows


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def crd(file: Path, part: str) -> dict[str, Any]:
    (definition,) = objects(file)
    (version,) = definition["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"][part]
    return found


def fields(schema: dict[str, Any], place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All fields of a schema but those that only hold others."""
    for name, field in (schema.get("properties") or {}).items():
        path = f"{place}.{name}".strip(".")
        below = field.get("items", field)
        inner = dict(fields(below, f"{path}[]" if below is not field else path))
        if not inner or below is not field or "x-kubernetes-preserve-unknown-fields" in field:
            yield path, field
        yield from inner.items()


def test_the_reference_has_each_field_and_its_default() -> None:
    known = dict(fields(crd(CRDS[0], "spec")))
    # The same again, for one member; and lists of which the page says "as in a pod".
    known = {
        path: field
        for path, field in known.items()
        if not re.match(r"members\[\]\.install|service\.imagePullSecrets\[\]", path)
    }
    known["members[].install"] = {}
    told = {names(row[0])[0]: row[1] for row in table("field") if len(row) == 3}
    minicluster = dict(fields(crd(CRDS[1], "spec")))
    assert PASSED_ON.rpartition(".")[2] in minicluster
    assert told.keys() - {PASSED_ON} == known.keys()
    for path, field in known.items():
        default = field.get("default")
        if default is not None and not isinstance(default, dict):
            text = str(default).lower() if isinstance(default, bool) else str(default)
            text = text.replace("'", "") if isinstance(default, list) else text
            assert names(told[path]) == [text], path


def test_the_page_has_each_field_and_condition_of_the_status() -> None:
    told = {names(row[0])[0] for row in table("field") if len(row) == 2}
    assert told == crd(CRDS[0], "status")["properties"].keys()
    queued = {"name": "a", "state": "Pending", "size": 0, "reason": "", "queue": "b"}
    members = [{**queued, "admitted": False}]
    view = statuses.StatusFacts(1, [], [], "", False, (True, "Ready", ""), members)
    conditions = {one["type"] for one in statuses.status(view, {}, "now")["conditions"]}
    assert {names(row[0])[0] for row in table("condition")} == conditions


def test_each_test_that_the_comparison_names_is_there() -> None:
    page = (PAGE.parent / "comparison.md").read_text()
    _, _, section = page.partition("## ensemble-operator\n")
    section, _, _ = section.partition("\n## ")
    last = re.findall(r"\| (`[^|]+`) \|$", section, re.MULTILINE)
    named = [*(name for cell in last for name in names(cell)), "test_operator_predecessor"]
    assert len(named) > 10
    tests = PAGE.parents[1] / "t"
    for name in named:
        places = [
            tests / name,
            tests / "python" / f"{name}.py",
            tests / "python" / "k8s" / f"{name}.py",
            tests / "python" / "k8s" / "operator" / f"{name}.py",
        ]
        assert any(place.is_file() for place in places), name


def rights(rules: list[dict[str, Any]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for rule in rules:
        for resource in rule["resources"]:
            found.setdefault(resource, set()).update(rule["verbs"])
    return found


def test_the_page_has_each_right_of_the_operator_and_of_the_service() -> None:
    told: list[tuple[str, set[str]]] = [
        (resource, set(re.findall(r"get|list|watch|create|delete|patch|update", row[0])))
        for row in table("it may")
        for resource in names(row[1])
    ]
    roles = [
        one
        for folder in ("cluster-wide", "base")
        for file in sorted((KUBERNETES / folder).glob("*.yaml"))
        for one in objects(file)
        if one["kind"] in ("Role", "ClusterRole") and "operator" in one["metadata"]["name"]
    ]
    service = [one for one in render(ensemble(), Settings()) if one["kind"] == "Role"]
    own = rights([rule for role in roles for rule in role["rules"]])
    its = rights([rule for role in service for rule in role["rules"]])
    # Ensembles have two rows; and the service's rows come last.
    at = len(told) - len(its)
    merged: dict[str, set[str]] = {}
    for resource, verbs in told[:at]:
        merged.setdefault(resource, set()).update(verbs)
    assert merged == own
    assert dict(told[at:]) == its
