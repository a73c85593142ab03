"""The documents of an Ensemble's members: in the Ensemble, or in ConfigMaps of other people."""

from __future__ import annotations

from typing import Any

from flux_ensemble.operator import names
from flux_ensemble.operator.check import Missing
from flux_ensemble.operator.cluster import KubernetesCluster
from flux_ensemble.operator.manifests import digest


def documents(cluster: KubernetesCluster, ensemble: dict[str, Any]) -> dict[str, str | Missing]:
    """Return the document of each member, or why it is missing.

    The digest of a text in a ConfigMap is noted in the Ensemble as `ensembleFrom.digest`, so that
    another text is a change of the member (`minicluster.template`).
    """
    found: dict[str, str | Missing] = {}
    for member in ensemble["spec"]["members"]:
        if "ensemble" in member:
            found[member["name"]] = member["ensemble"]
            continue
        source = member["ensembleFrom"]
        text = _from_map(cluster, ensemble["metadata"]["namespace"], source)
        found[member["name"]] = text
        if isinstance(text, str):
            source["digest"] = digest(text)
    return found


def _from_map(cluster: KubernetesCluster, namespace: str, source: dict[str, str]) -> str | Missing:
    name, key = source["name"], source.get("key", names.DOCUMENT_FILE)
    found = cluster.get("v1", "ConfigMap", namespace, name)
    if found is None:
        return Missing(f"there is no ConfigMap {name!r}")
    data = found.get("data") or {}
    if key not in data:
        keys = ", ".join(sorted(data)) or "none"
        return Missing(f"ConfigMap {name!r} has no key {key!r} (keys: {keys})")
    text: str = data[key]
    return text
