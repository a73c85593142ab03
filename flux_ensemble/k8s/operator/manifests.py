"""Functions that the manifests of an Ensemble have in common; pure."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from flux_ensemble import __version__
from flux_ensemble.k8s.operator import names

Manifest = dict[str, Any]

#: Default port of the gRPC service.
PORT = 50051


def new(
    ensemble: Mapping[str, Any],
    api_version: str,
    kind: str,
    name: str,
    labels: dict[str, str],
    **content: Any,
) -> Manifest:
    metadata: dict[str, Any] = {"name": name, "labels": labels}
    if "namespace" in ensemble["metadata"]:
        metadata["namespace"] = ensemble["metadata"]["namespace"]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def owned(manifest: Manifest, ensemble: Mapping[str, Any]) -> Manifest:
    """Return a manifest with its owner.

    The owner does not block its deletion: that needs a permission on `ensembles/finalizers`, and
    nothing waits for it.
    """
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": ensemble["metadata"]["name"],
        "uid": ensemble["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }
    manifest = copy.deepcopy(manifest)
    manifest["metadata"]["ownerReferences"] = [owner]
    return manifest


def mark(manifest: Manifest) -> None:
    annotations = manifest["metadata"].setdefault("annotations", {})
    annotations[names.RELEASE] = __version__
    content = {key: value for key, value in manifest.items() if key != "metadata"}
    annotations[names.HASH] = digest([content, manifest["metadata"].get("labels")])


def digest(value: Any) -> str:
    """Return a short text that differs if the values do."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def service_of(ensemble: Mapping[str, Any]) -> Mapping[str, Any]:
    service: Mapping[str, Any] = ensemble["spec"].get("service") or {}
    return service


def port_of(ensemble: Mapping[str, Any]) -> int:
    """Return the port of the gRPC service of an Ensemble."""
    port: int = service_of(ensemble).get("port", PORT)
    return port
