"""Checks of an Ensemble that the API server cannot make: its documents, and fields of the operator.

    check(ensemble, documents) -> problems

Problems are sentences that begin with the place. All of them are found at once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from flux_ensemble.document.loading import DocumentError, load_text
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.minicluster import queue_of, runner

#: The volumes that the operator adds to a container.
_VOLUMES = ("flux-ensemble-document", "flux-ensemble-tls", "flux-ensemble-state")

#: Number of documents, each of 128 KiB at most, whose problems are cached.
_KNOWN = 256

#: Name of a member's document without a name of its own, by its file; no default is longer.
_DEFAULT_NAME = "ensemble"


def check(ensemble: Mapping[str, Any], documents: Mapping[str, str | Missing]) -> list[str]:
    """Return the problems of an Ensemble that its schema allows.

    Args:
        ensemble: as the API server has it.
        documents: the text of each member's document, or why there is none.

    Returns:
        Sentences; none if the Ensemble can run.
    """
    problems: list[str] = []
    for member in ensemble["spec"]["members"]:
        place = f"members[{member['name']}]"
        problems += (f"{place}.{problem}" for problem in _of_minicluster(member))
        if queue_of(ensemble, member) is not None:
            problems += (f"{place}.{problem}" for problem in _of_queue(member))
        document = documents[member["name"]]
        if isinstance(document, Missing):
            problems.append(f"{place}.ensembleFrom: {document.reason}")
        else:
            problems += (f"{place}.ensemble: {problem}" for problem in of_document(document))
    return problems


class Missing:
    """A missing document.

    Args:
        reason: why it is missing, in words.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason


@functools.lru_cache(maxsize=_KNOWN)
def of_document(text: str) -> tuple[str, ...]:
    """Return the problems of a document, each with its line.

    The document is another user's, and runs in a pod that has the files it names. Files are not
    read here: they would be the operator's, and their contents could end up in a message to that
    user.
    """
    try:
        load_text(text, name=_DEFAULT_NAME, elastic=True, packages=False, here=False)
    except DocumentError as error:
        return tuple(_placed(line) for line in str(error).splitlines())
    return ()


def _placed(problem: str) -> str:
    return re.sub(r"^document:(\d+): ", r"line \1: ", problem)


def _of_queue(member: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sizes that a member of a queue cannot have."""
    spec = member["minicluster"]["spec"]
    size = spec.get("size", 1)
    for key in ("minSize", "maxSize"):
        if spec.get(key, size) != size:
            yield (
                f"minicluster.spec.{key}: expected {size}, which is its size, not {spec[key]}: "
                "Kueue stops a Job of its queues whose size changes"
            )


def _of_minicluster(member: Mapping[str, Any]) -> Iterator[str]:
    spec = member["minicluster"]["spec"]
    try:
        container = spec["containers"][runner(spec)]
    except ValueError as error:
        yield f"minicluster.spec.{error}"
        return
    place = "minicluster.spec.containers"
    if container.get("command"):
        yield (
            f"{place}.command: the container with runFlux runs the ensemble: put what is to run "
            "before it into commands.brokerPre"
        )
    for key in ("batch", "batchRaw"):
        if container.get(key):
            yield f"{place}.{key}: the container with runFlux runs the ensemble, not a batch script"
    if (container.get("commands") or {}).get("script"):
        yield f"{place}.commands.script: it would run in place of the ensemble"
    if spec.get("interactive"):
        yield "minicluster.spec.interactive: an interactive MiniCluster runs no ensemble"
    for other in spec["containers"]:
        for volume in other.get("volumes") or {}:
            if volume in _VOLUMES:
                yield f"{place}.volumes.{volume}: this name is taken by the operator"
    if _backoff(spec) == 0:
        yield "minicluster.spec.backoffLimit: the Flux Operator takes 0 for 100: give 1 or more"
    labels = (spec.get("pod") or {}).get("labels") or {}
    for label in labels:
        if label.startswith(f"{names.GROUP}/"):
            yield f"minicluster.spec.pod.labels.{label}: labels of {names.GROUP} are the operator's"


def _backoff(spec: Mapping[str, Any]) -> Any:
    return spec.get("backoffLimit")
