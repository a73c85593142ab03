"""Conversion of an Ensemble of ensemble-operator into one of ours; pure.

The predecessor's is `ensemble.flux-framework.org/v1alpha1`. Its members are the same, except for
the software that they install (`branch`), and for names, which are derived from their position.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from flux_ensemble.k8s.operator import names

PREDECESSOR = "ensemble.flux-framework.org/v1alpha1"

#: Keys of the predecessor's `sidecar` with our keys; None: there is no counterpart.
_SIDECAR = {
    "image": None,
    "imagePullPolicy": "imagePullPolicy",
    "pullAlways": "imagePullPolicy",
    "port": "port",
    "workers": None,
}

_POLICY = {"Always", "IfNotPresent", "Never"}


class NotConvertible(Exception):
    """The input is no Ensemble of the predecessor; the text is one sentence."""


def convert(ensemble: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Convert an Ensemble.

    Args:
        ensemble: the predecessor's, as in its file.

    Returns:
        Our Ensemble, and notes about parts that have no counterpart.

    Raises:
        NotConvertible: it is not an Ensemble of the predecessor, or has no members.
    """
    if not isinstance(ensemble, Mapping) or ensemble.get("apiVersion") != PREDECESSOR:
        version = ensemble.get("apiVersion") if isinstance(ensemble, Mapping) else ensemble
        raise NotConvertible(f"apiVersion: expected {PREDECESSOR!r}, not {version!r}")
    spec = ensemble.get("spec") or {}
    members = spec.get("members")
    if not isinstance(members, list) or not members:
        raise NotConvertible("spec.members: expected a list of at least one member")
    notes: list[str] = []
    result: dict[str, Any] = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": copy.deepcopy(dict(ensemble.get("metadata") or {})),
        "spec": {},
    }
    service = _service(spec.get("sidecar") or {}, notes)
    if service:
        result["spec"]["service"] = service
    result["spec"]["members"] = [
        _member(member, f"member-{number}", notes) for number, member in enumerate(members)
    ]
    return result, notes


def _service(sidecar: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    service: dict[str, Any] = {}
    for key, value in sidecar.items():
        if key not in _SIDECAR:
            notes.append(f"spec.sidecar.{key} is not known, and left out")
        elif key == "port":
            if not str(value).isdigit():
                raise NotConvertible(f"spec.sidecar.port: expected a number, not {value!r}")
            service["port"] = int(value)
        elif key == "imagePullPolicy" and value in _POLICY:
            service["imagePullPolicy"] = value
        elif key == "pullAlways" and value is True:
            service.setdefault("imagePullPolicy", "Always")
        elif key == "image":
            notes.append(
                f"spec.sidecar.image {value!r} has the predecessor's service: ours is the one of "
                "the operator, or spec.service.image"
            )
        elif key == "workers":
            notes.append("spec.sidecar.workers has no counterpart: the service needs no number")
    return service


def _member(member: Mapping[str, Any], name: str, notes: list[str]) -> dict[str, Any]:
    place = f"spec.members[{name}]"
    cluster = member.get("minicluster")
    if not isinstance(cluster, Mapping) or not isinstance(cluster.get("spec"), Mapping):
        raise NotConvertible(f"{place}.minicluster: expected a MiniCluster with a spec")
    if not member.get("ensemble"):
        raise NotConvertible(f"{place}.ensemble: expected a document")
    converted = copy.deepcopy(dict(cluster["spec"]))
    size = converted.setdefault("size", 1)
    converted["maxSize"] = converted.get("maxSize") or size
    for container in converted.get("containers") or ():
        for key in ("command", "commands"):
            if container.pop(key, None):
                notes.append(f"{place}: {key} of its container was overwritten, and is left out")
    if member.get("branch"):
        notes.append(
            f"{place}.branch {member['branch']!r} of ensemble-python has no counterpart: "
            "spec.install.requirement says what is installed"
        )
    return {"name": name, "ensemble": member["ensemble"], "minicluster": {"spec": converted}}
