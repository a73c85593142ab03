"""What is installed: kustomize's output is what is committed, and so is the chart's source."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ensembles import KUBERNETES, ensemble, objects

from flux_ensemble import __version__
from flux_ensemble.k8s.grpc import backend_metrics
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.cluster import PLURALS
from flux_ensemble.k8s.operator.metrics import OperatorMetrics
from flux_ensemble.k8s.operator.render import Settings, render

PROGRAMS = Path(sys.executable).parent


def program(name: str) -> str:
    found = shutil.which(name, path=str(PROGRAMS)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not there: its package has no wheel for this machine")
    return found


def kustomize(folder: str) -> str:
    command = [program("kubectl"), "kustomize", str(KUBERNETES / folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_install_yaml_is_what_kustomize_makes() -> None:
    """After a change: kubectl kustomize etc/kubernetes/cluster-wide >etc/kubernetes/install.yaml"""
    assert kustomize("cluster-wide") == (KUBERNETES / "install.yaml").read_text()


def test_in_a_namespace_it_has_no_rights_elsewhere() -> None:
    found = [one for one in yaml.safe_load_all(kustomize("namespaced")) if one]
    kinds = {one["kind"] for one in found}
    assert "ClusterRoleBinding" not in kinds
    (deployment,) = (one for one in found if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--namespace=$(NAMESPACE)" in container["args"]
    own = {"fieldRef": {"fieldPath": "metadata.namespace"}}
    assert {"name": "NAMESPACE", "valueFrom": own} in container["env"]


def in_team_a(tmp_path: Path, folder: str, *, copied: bool) -> list[dict[str, Any]]:
    """An install in a namespace of one's own.

    The one line of the kustomization that its header names is changed.
    """
    shutil.copytree(KUBERNETES, tmp_path, dirs_exist_ok=True)
    where = tmp_path / "mine" if copied else tmp_path / folder
    if copied:
        shutil.copytree(tmp_path / folder, where)
    file = where / "kustomization.yaml"
    text = file.read_text()
    assert text.count("\nnamespace: flux-ensemble\n") == 1
    file.write_text(text.replace("\nnamespace: flux-ensemble\n", "\nnamespace: team-a\n"))
    command = [program("kubectl"), "kustomize", str(where)]
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return list(filter(None, yaml.safe_load_all(done)))


@pytest.mark.parametrize("folder", ["namespaced", "cluster-wide"])
@pytest.mark.parametrize("copied", [False, True])
def test_in_a_namespace_of_ones_own_all_rights_are_there_and_for_nobody_else(
    tmp_path: Path, folder: str, copied: bool
) -> None:
    subjects = []
    for one in in_team_a(tmp_path, folder, copied=copied):
        cluster_wide = one["kind"] in (
            "CustomResourceDefinition",
            "ClusterRole",
            "ClusterRoleBinding",
            "Namespace",
        )
        if not cluster_wide:
            assert one["metadata"]["namespace"] == "team-a", one["metadata"]
        if one["kind"] == "Namespace":
            assert one["metadata"]["name"] == "team-a"
        subjects += [subject["namespace"] for subject in one.get("subjects", ())]
    assert set(subjects) == {"team-a"}


def test_no_manifest_names_a_namespace_but_the_kustomizations() -> None:
    """What names one is forgotten when it is installed elsewhere."""
    for file in KUBERNETES.glob("[bcn]*/*.yaml"):
        if file.name == "kustomization.yaml" or file.parent.name == "chart":
            continue
        for one in objects(file):
            assert "namespace" not in one["metadata"], file
            assert not any("namespace" in subject for subject in one.get("subjects", ())), file


def rights(file: str, kind: str) -> list[dict[str, Any]]:
    (role,) = (one for one in objects(KUBERNETES / file) if one["kind"] == kind)
    rules: list[dict[str, Any]] = role["rules"]
    return rules


def test_the_rights_are_the_same_in_one_namespace_and_in_all() -> None:
    assert rights("cluster-wide/rights.yaml", "ClusterRole") == rights(
        "namespaced/rights.yaml", "Role"
    )


def test_the_rights_are_for_what_the_operator_reads_and_writes() -> None:
    given = {
        (group, resource)
        for rule in rights("cluster-wide/rights.yaml", "ClusterRole")
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if "/" not in resource
    }
    used = {(version.rpartition("/")[0], plural) for (version, _), plural in PLURALS.items()}
    # Leases have a Role of their own; JobSets are made by homes whose members they are.
    assert given == used - {("coordination.k8s.io", "leases"), ("jobset.x-k8s.io", "jobsets")}


def test_images_are_of_this_release() -> None:
    text = (KUBERNETES / "install.yaml").read_text()
    assert f"image: flux-ensemble:{__version__}" in text
    assert f"value: flux-ensemble:{__version__}" in text
    assert names.GROUP in text
    assert f"flux-ensemble:{__version__}" in (KUBERNETES / "Containerfile").read_text()


def test_the_container_file_has_nothing_to_be_said_against() -> None:
    command = [program("hadolint"), str(KUBERNETES / "Containerfile")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_helm_renders_the_chart_and_has_no_complaint() -> None:
    """By Helm's own library, which a package brings; there is none for every machine."""
    helm = pytest.importorskip("helm_python")
    chart = KUBERNETES / "chart"
    found = helm.lint(str(chart))
    assert found["errors"] == []
    assert [one["error"] for one in found["messages"]] == ["icon is recommended"]
    with helm.Chart.load(str(chart)) as loaded:
        given = loaded.render({}, name="a", namespace="flux-ensemble")
        changed = loaded.render(
            {"image": "a:1", "serviceImage": "b:2", "replicas": 3}, name="a", namespace="other"
        )
    assert by_name(rendered(given)) == by_name(installed())
    (deployment,) = (one for one in rendered(changed) if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (deployment["metadata"]["namespace"], deployment["spec"]["replicas"]) == ("other", 3)
    assert (container["image"], container["env"][0]["value"]) == ("a:1", "b:2")
    pod = deployment["spec"]["template"]["spec"]
    assert pod.keys() == installed_pod().keys()
    for one in rendered(changed):
        for subject in one.get("subjects", ()):
            assert subject["namespace"] == "other"


def installed_pod() -> dict[str, Any]:
    (deployment,) = (one for one in installed() if one["kind"] == "Deployment")
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return pod


#: Values of the chart, each another one than by default.
VALUES: dict[str, Any] = {
    "image": "a:1",
    "serviceImage": "b:2",
    "replicas": 3,
    "resources": {"limits": {"cpu": "1"}},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "priorityClassName": "system-cluster-critical",
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "rbac": {"scope": "namespace", "aggregatedRoles": False},
    "serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}]},
    "dashboard": {"enabled": True, "labels": {"grafana_dashboard": "yes"}},
}

#: What is wrong in values, by a word of Helm's sentence.
WRONG_VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "a number for text": ({"image": 5}, "/image"),
    "text for a number": ({"replicas": "two"}, "/replicas"),
    "text for a mapping": ({"resources": "much"}, "/resources"),
    "a mapping for a list": ({"tolerations": {"key": "gpu"}}, "/tolerations"),
    "another policy": ({"imagePullPolicy": "Sometimes"}, "/imagePullPolicy"),
    "a number in an annotation": ({"podAnnotations": {"a": 8080}}, "/podAnnotations/a"),
    "a number in the environment": ({"extraEnv": [{"name": "A", "value": 1}]}, "/extraEnv/0"),
    "another scope": ({"rbac": {"scope": "team-a"}}, "/rbac/scope"),
    "text for a boolean": ({"serviceMonitor": {"enabled": "yes"}}, "/serviceMonitor/enabled"),
    "no duration": ({"serviceMonitor": {"interval": "soon"}}, "/serviceMonitor/interval"),
    "a number for a label": ({"dashboard": {"labels": {"a": 1}}}, "/dashboard/labels/a"),
    "an unknown value": ({"replicaCount": 2}, "replicaCount"),
    "an unknown value below": ({"networkPolicy": {"enable": True}}, "/networkPolicy"),
}


def chart_of(values: dict[str, Any], namespace: str = "flux-ensemble") -> list[dict[str, Any]]:
    """What the chart becomes, by Helm's own library, which a package brings on some machines."""
    helm = pytest.importorskip("helm_python")
    with helm.Chart.load(str(KUBERNETES / "chart")) as loaded:
        return rendered(loaded.render(values, name="a", namespace=namespace))


def one_of(kind: str, manifests: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = (one for one in manifests if one["kind"] == kind)
    return found


def test_each_value_of_the_chart_has_a_schema_and_another_one_in_the_tests() -> None:
    known = yaml.safe_load((KUBERNETES / "chart" / "values.yaml").read_text())
    schema = json.loads((KUBERNETES / "chart" / "values.schema.json").read_text())
    assert known.keys() == VALUES.keys() == schema["properties"].keys() - {"global"}
    for key, value in known.items():
        below = schema["properties"][key].get("properties", {})
        if key in ("rbac", "serviceMonitor", "networkPolicy", "dashboard"):
            assert value.keys() == below.keys() == VALUES[key].keys() | value.keys()
        assert VALUES[key] != value


@pytest.mark.parametrize("key", VALUES)
def test_each_value_changes_what_the_chart_becomes(key: str) -> None:
    assert by_name(chart_of({key: VALUES[key]})) != by_name(chart_of({}))


def test_each_value_of_the_chart_reaches_the_pods_of_the_operator() -> None:
    template = one_of("Deployment", chart_of(VALUES))["spec"]["template"]
    pod, (container,) = template["spec"], template["spec"]["containers"]
    for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "imagePullSecrets"):
        assert pod[key] == VALUES[key]
    # Helm adds it to what is there by default.
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "512Mi"}
    assert container["imagePullPolicy"] == "Always"
    environment = [one["name"] for one in container["env"]]
    assert environment == ["FLUX_ENSEMBLE_IMAGE", "NAMESPACE", "HTTPS_PROXY"]
    assert template["metadata"]["annotations"]["a"] == "b"
    assert template["metadata"]["annotations"]["prometheus.io/port"] == "8080"
    assert template["metadata"]["labels"]["c"] == "d"
    assert template["metadata"]["labels"]["app.kubernetes.io/name"] == "flux-ensemble-operator"


def test_in_the_scope_of_a_namespace_the_chart_is_as_the_manifests_for_one() -> None:
    """But for what nothing names: the namespace of the release is that of kustomize."""
    made = by_name(chart_of({"rbac": {"scope": "namespace"}}))
    wanted = by_name([one for one in yaml.safe_load_all(kustomize("namespaced")) if one])
    del wanted["CustomResourceDefinition", "ensembles.flux-ensemble.dev"]
    assert made == wanted


def test_a_second_release_need_not_have_what_is_for_the_whole_cluster() -> None:
    made = chart_of({"rbac": VALUES["rbac"]}, namespace="team-b")
    assert {one["metadata"]["namespace"] for one in made} == {"team-b"}


def test_prometheus_finds_the_operator_and_the_services() -> None:
    made = chart_of({"serviceMonitor": VALUES["serviceMonitor"]})
    pods = one_of("Deployment", made)["spec"]["template"]
    service, monitor = one_of("Service", made), one_of("ServiceMonitor", made)
    assert service["spec"]["selector"].items() <= pods["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    ports = [one["name"] for one in pods["spec"]["containers"][0]["ports"]]
    assert port["targetPort"] in ports
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    (endpoint,) = monitor["spec"]["endpoints"]
    # The namespaces of the metrics are those of members, and not of the operator.
    assert endpoint == {"port": port["name"], "interval": "15s", "honorLabels": True}
    of_pods = one_of("PodMonitor", made)
    assert of_pods["metadata"]["labels"]["release"] == "prometheus"
    of_services = one_of("Deployment", render(ensemble(), Settings("a")))["spec"]["template"]
    chosen = of_pods["spec"]["selector"]["matchLabels"]
    assert chosen.items() <= of_services["metadata"]["labels"].items()
    (endpoint,) = of_pods["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in [
        one["name"] for one in of_services["spec"]["containers"][0]["ports"]
    ]
    assert of_pods["spec"]["namespaceSelector"] == {"any": True}
    there = chart_of({**VALUES, "rbac": {"scope": "namespace"}})
    assert "namespaceSelector" not in one_of("PodMonitor", there)["spec"]


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are() -> None:
    found: dict[str, set[str]] = {}
    metrics = OperatorMetrics()
    for family in (*metrics.registry.collect(), *backend_metrics.registry.collect()):
        labels = {"le"} if family.type == "histogram" else set()
        suffix = {"counter": "_total", "histogram": "_bucket"}.get(family.type, "")
        found[family.name + suffix] = labels
    known = {"phase", "namespace", "ensemble", "member", "result", "direction", "reason", "le"}
    config = one_of("ConfigMap", chart_of({"dashboard": VALUES["dashboard"]}))
    assert config["metadata"]["labels"]["grafana_dashboard"] == "yes"
    (text,) = config["data"].values()
    assert text == (KUBERNETES / "chart" / "dashboards" / "operator.json").read_text()
    dashboard = json.loads(text)
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    names_asked = {name for one in asked for name in re.findall(r"flux_ensemble_\w+", one)}
    # Each metric of both is shown but one: the size that was granted is that of the member.
    assert names_asked == found.keys() - {"flux_ensemble_granted_size"}
    for one in asked:
        for words in re.findall(r"by \((\w+)\)|\{(\w+)=", one):
            assert known >= set(filter(None, words)), one
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


@pytest.mark.parametrize("what", WRONG_VALUES)
def test_wrong_values_are_refused_by_the_schema(what: str) -> None:
    helm = pytest.importorskip("helm_python")
    values, place = WRONG_VALUES[what]
    with pytest.raises(helm.HelmError) as raised:
        chart_of(values)
    assert place in str(raised.value)


def rendered(files: dict[str, str]) -> list[dict[str, Any]]:
    return [one for text in files.values() for one in yaml.safe_load_all(text) if one]


def installed() -> list[dict[str, Any]]:
    """What of install.yaml the chart has as templates."""
    apart = ("CustomResourceDefinition", "Namespace")
    return [one for one in objects(KUBERNETES / "install.yaml") if one["kind"] not in apart]


def by_name(manifests: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in manifests}


def test_the_chart_has_the_same_manifests() -> None:
    """Where Helm is not there, too: what the chart has in place of values is put back here."""
    chart = KUBERNETES / "chart"
    metadata = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert metadata["appVersion"] == __version__
    assert (chart / "crds" / "ensembles.yaml").read_text() == (
        KUBERNETES / "base" / "ensemble-crd.yaml"
    ).read_text()
    values = yaml.safe_load((chart / "values.yaml").read_text())
    text = (chart / "templates" / "operator.yaml").read_text()
    people = (chart / "templates" / "aggregated-roles.yaml").read_text()
    people = people.replace("{{- if .Values.rbac.aggregatedRoles }}\n", "", 1)
    assert values["rbac"]["aggregatedRoles"] is True
    for template, value in (
        ("{{ .Values.image }}", values["image"]),
        ("{{ .Values.serviceImage | default .Values.image }}", values["image"]),
        ("{{ .Values.replicas }}", str(values["replicas"])),
        ("{{ .Release.Namespace }}", "flux-ensemble"),
        ('{{ include "flux-ensemble.role" . }}', "ClusterRole"),
    ):
        text = text.replace(template, value)
    resources = yaml.safe_dump(values["resources"], default_flow_style=True).strip()
    text = re.sub(r"(resources:)\n +{{- toYaml .Values.resources [^}]*}}", rf"\1 {resources}", text)
    # What is empty by default is not there.
    for key in re.findall(r"{{- with .Values.(\w+) }}", text):
        assert not values[key], key
    assert set(re.findall(r"{{- if (.+) }}", text)) == {'eq .Values.rbac.scope "namespace"'}
    assert values["rbac"]["scope"] == "cluster"
    text = re.sub(r"(?m)^ *{{- (with|if) .*?{{- end }}\n", "", text, flags=re.DOTALL)
    assert "{{" not in text
    people = people.removesuffix("{{- end }}\n")
    assert by_name(rendered({"a": text, "b": people})) == by_name(installed())
