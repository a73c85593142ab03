"""Events of Kubernetes, which `kubectl describe` prints for an object."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Mapping
from typing import Any

import httpx2
from lightkube import Client
from lightkube.generic_resource import create_namespaced_resource

from flux_ensemble.k8s.api_server import CREDENTIAL_ERRORS

log = logging.getLogger(__name__)

Event = create_namespaced_resource("", "v1", "Event", "events")

#: Seconds after which the same event of an object is written again.
AGAIN_SECONDS = 300.0

#: Number of objects whose latest event is remembered.
_KNOWN = 1000

#: Longest message that the API server accepts.
_LONGEST = 1024


def event(
    about: Mapping[str, Any],
    reason: str,
    message: str,
    *,
    component: str,
    now: datetime.datetime,
    warning: bool = False,
) -> dict[str, Any]:
    """Return an event in the form of the API server.

    Args:
        about: the object: its apiVersion, kind, and metadata with name, namespace and uid.
        reason: a word.
        message: a sentence.
        component: that reports the event.
        now: the time.
        warning: the event is a problem.
    """
    metadata = about["metadata"]
    t_now = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "generateName": f"{metadata['name']}.",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message[:_LONGEST],
        "source": {"component": component},
        "firstTimestamp": t_now,
        "lastTimestamp": t_now,
        "count": 1,
    }


class Refusals:
    """Writes events about refused changes of size, to the Ensemble of a MiniCluster or to itself.

    Args:
        client: of the API server.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: dict[str, tuple[str, float]] = {}

    def tell(self, minicluster: Mapping[str, Any], sentence: str) -> None:
        """Write an event; a lost event is no failure."""
        uid = minicluster["metadata"]["uid"]
        said, t_said = self._told.get(uid, ("", 0.0))
        if said == sentence and time.monotonic() < t_said + AGAIN_SECONDS:
            return
        if len(self._told) >= _KNOWN:
            self._told.clear()
        self._told[uid] = sentence, time.monotonic()
        manifest = event(
            owner_of(minicluster),
            "ResizeRefused",
            sentence,
            component="flux-ensemble-grpc",
            now=datetime.datetime.now(datetime.UTC),
            warning=True,
        )
        try:
            self._client.create(Event(**manifest), namespace=manifest["metadata"]["namespace"])
        except (httpx2.HTTPError, *CREDENTIAL_ERRORS) as exc:
            log.warning("an event was not written: %s", " ".join(str(exc).split()))


def owner_of(minicluster: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the owner of the MiniCluster, or the MiniCluster itself if it has none."""
    metadata = minicluster["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            own = {"name": owner["name"], "namespace": metadata["namespace"], "uid": owner["uid"]}
            return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "metadata": own}
    return minicluster
