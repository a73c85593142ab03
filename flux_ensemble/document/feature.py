"""The part of a feature that reads documents, besides its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.model import Spec
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.document.sweep import Sweep
from flux_ensemble.feature_list import parts
from flux_ensemble.metrics.paths import MetricPath


@dataclass(frozen=True, slots=True)
class DocumentFeature:
    """The reading of documents by a feature, and its findings.

    Args:
        name: the key of `JobSet.features` with what it has read.
        read: reads the keys of an entry of `jobs`: its valid part, its sweep, what gets the
            problems, and the path of the entry. Returns None if the entry does not have the
            feature.
        objection: returns why a metric is empty in a document with these groups; else None.
        findings: yields warnings, paths and sentences, about a document without errors: its Spec,
            its entries of `jobs`, and whether all jobs can be in the queue at once.
    """

    name: str
    read: Callable[[Mapping[str, Any], Sweep, Problems, Path], Any]
    objection: Callable[[MetricPath, Mapping[str, Group]], str | None]
    findings: Callable[[Spec, Sequence[Mapping[str, Any]], bool], Iterable[tuple[Path, str]]]


@cache
def document_features() -> tuple[DocumentFeature, ...]:
    """Return what features have of documents.

    >>> [feature.name for feature in document_features()]
    ['predict']
    """
    return tuple(part.FEATURE for part in parts("document"))
