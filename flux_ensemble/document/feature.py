"""The part of a feature that reads documents, besides its keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.model import Spec
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.document.sweep import Sweep
from flux_ensemble.feature_list import parts
from flux_ensemble.metrics.families import Named
from flux_ensemble.metrics.paths import MetricPath

#: Returns the jobs of an ensemble's trials, a line of JSON each; None if the name is not known.
JobsOf = Callable[[str], str | None]


def unknown_jobs(name: str) -> None:
    """Return that no ensemble is known.

    >>> unknown_jobs("study")
    """


class Sources(NamedTuple):
    """The inputs of features that are not in the document itself.

    Args:
        text: returns the text of a file, given its name and its path in the document; None if it
            cannot be read, which is a problem, or is on another machine.
        jobs: returns the trials of an ensemble, one a line, after a line with its searches; raises
            ValueError if it has none. None if there is no such ensemble.
    """

    text: Callable[[str, Path], str | None]
    jobs: JobsOf = unknown_jobs


@dataclass(frozen=True, slots=True)
class Section:
    """A list at the top of a document, of entries with an `id`, that a feature reads.

    Each entry has jobs of a group of its own, to which it gives parameters.

    Args:
        key: the key of the document; its metrics are the family of this name.
        declared: returns what expressions can name of the entries, even of those with problems.
        read: returns the entries without problems, and their places: of the valid part of the
            list, the names of all groups, `limits.jobs`, what gets the problems, and the files
            and jobs that the document names.
        filled: returns the entries of `jobs` with the parameters that the section gives them: of
            those entries, what was read and what is declared.
        check: checks what was read with the groups.
        varied: returns the parameters that are given to jobs of a group: of the document as it
            was written, and the name of the group.
        uninstalled: yields warnings, paths and sentences, about what is not installed here.
        unstarted: yields warnings about entries that no rule starts.
        objection: returns why an ensemble with this document cannot begin here, given the file's
            name; else None.
        read_of_files: returns what was read of files, by the path in the document that it stands
            for: with it in its place, the document needs no file.

    >>> (section,) = sections()
    >>> section.declared([{"id": "hpo", "group": "a"}])["hpo"].group
    'a'
    """

    key: str
    declared: Callable[[Any], Mapping[str, Named]]
    read: Callable[
        [Sequence[Any], Collection[str], int, Problems, Sources],
        Mapping[Any, Path],
    ]
    filled: Callable[[Sequence[Any], Collection[Any], Collection[Any]], list[Any]]
    check: Callable[[Mapping[Any, Path], Mapping[str, Group], Problems], None]
    varied: Callable[[Mapping[str, Any], Any], Mapping[str, Any]]
    uninstalled: Callable[[Spec], Iterable[tuple[Path, str]]]
    unstarted: Callable[[Spec], Iterable[tuple[Path, str]]]
    objection: Callable[[Spec, str | None], str | None]
    read_of_files: Callable[[Spec], Mapping[Path, Any]]


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
            its entries of `jobs`, and whether all jobs can be in the queue at once. With True
            beside them they are notes.
        section: the list at the top that it reads.
        settings: reads the mapping at the top with the key `name`, empty if the document has none.
    """

    name: str
    read: Callable[[Mapping[str, Any], Sweep, Problems, Path], Any] | None = None
    objection: Callable[[MetricPath, Mapping[str, Group]], str | None] | None = None
    findings: (
        Callable[
            [Spec, Sequence[Mapping[str, Any]], bool],
            Iterable[tuple[Path, str] | tuple[Path, str, bool]],
        ]
        | None
    ) = None
    section: Section | None = None
    settings: Callable[[Mapping[str, Any], Problems], Any] | None = None


@cache
def document_features() -> tuple[DocumentFeature, ...]:
    """Return what features have of documents.

    >>> [feature.name for feature in document_features()]
    ['search', 'predict', 'scaling']
    """
    return tuple(part.FEATURE for part in parts("document"))


@cache
def sections() -> tuple[Section, ...]:
    """Return the lists at the top of a document that features read.

    >>> [section.key for section in sections()]
    ['search']
    """
    return tuple(one.section for one in document_features() if one.section is not None)


def objection(spec: Spec, file: str | None) -> str | None:
    """Return the reason that an ensemble cannot begin here; None if it can.

    An ensemble that goes on after a crash, or is replayed, is not asked about: what it needs to
    begin stands in its log.

    Args:
        spec: the document.
        file: its name, for the sentence.

    >>> from flux_ensemble.document.loading import load_text
    >>> spec = load_text("jobs: [{name: a, command: x}]", name="demo")
    >>> objection(spec, None) is None
    True
    """
    reasons = (section.objection(spec, file) for section in sections())
    return next((reason for reason in reasons if reason is not None), None)
