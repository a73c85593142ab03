"""Searches in documents: the list `search`, and problems of it that are found before a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flux_ensemble.document.feature import DocumentFeature, Section
from flux_ensemble.document.model import Spec
from flux_ensemble.document.problems import Path
from flux_ensemble.features.search.installed import kind, missing, objection, unfound
from flux_ensemble.features.search.keys import WARM_START
from flux_ensemble.features.search.model import searches_of
from flux_ensemble.features.search.paths import SEARCH
from flux_ensemble.features.search.reader import (
    check_groups,
    declared,
    read_searches,
    with_variables,
)
from flux_ensemble.features.search.warm_start import written
from flux_ensemble.scalars import as_text, number


def varied(value: Mapping[str, Any], group: Any) -> Mapping[str, Any]:
    """Return the variables of the search whose trials are jobs of a group.

    >>> varied({"search": [{"group": "a", "variables": {"x": [1, 2]}}]}, "a")
    {'x': [1, 2]}
    """
    for search in value.get(SEARCH, ()):
        if search["group"] == group:
            variables: Mapping[str, Any] = search["variables"]
            return variables
    return {}


def uninstalled(spec: Spec) -> Iterator[tuple[Path, str]]:
    """Yield the searches whose samplers or generators are not installed here."""
    searches = searches_of(spec)
    for search, message in (*missing(searches), *unfound(spec)):
        yield (SEARCH, searches.index(search), kind(search)), message


def unstarted(spec: Spec) -> Iterator[tuple[Path, str]]:
    """Yield the searches that no rule starts."""
    started = {
        action.label for rule in spec.rules for action in rule.actions if action.name == "search"
    }
    for index, search in enumerate(searches_of(spec)):
        if search.id not in started:
            yield (
                (SEARCH, index),
                f"no rule starts the search: 'action: {{name: search, label: {search.id}}}' does",
            )


def _named_as_fields(spec: Spec) -> Iterator[tuple[Path, str]]:
    """Yield the objectives that are written as the field of a job."""
    for index, search in enumerate(searches_of(spec)):
        for objective in search.objectives:
            if objective.key.startswith("memo."):
                yield (
                    (SEARCH, index, objective.direction),
                    f"the key of a memo is named without 'memo.' here: write "
                    f"{objective.key.removeprefix('memo.')!r}, if jobs publish it as that",
                )


def _pairs(spec: Spec) -> Iterator[tuple[Path, str, bool]]:
    """Yield notes about two numbers as choices, which are the ends of a range in other tools."""
    for index, search in enumerate(searches_of(spec)):
        for variable in search.variables:
            numbers = [number(one) for one in variable.choices]
            if len(numbers) != 2 or any(type(one) not in (int, float) for one in numbers):
                continue
            if numbers[0] < numbers[1]:
                low, high = map(as_text, variable.choices)
                yield (
                    (SEARCH, index, "variables", variable.name),
                    f"this is a choice of two values, {low} and {high}: a range is "
                    f"{{low: {low}, high: {high}}}",
                    True,
                )


def _left_out(spec: Spec) -> Iterator[tuple[Path, str, bool]]:
    """Yield what was not taken of the files of warm starts, as notes where that is usual."""
    for index, search in enumerate(searches_of(spec)):
        for sentence, usual in search.warm_start.left_out:
            yield (SEARCH, index, WARM_START, "from"), sentence, usual


def read_of_files(spec: Spec) -> dict[Path, Any]:
    """Return the trials of warm starts whose files were read, by their paths in the document.

    >>> from flux_ensemble.document.loading import load_text
    >>> read_of_files(load_text("jobs: [{name: hello, command: echo hello}]", name="demo"))
    {}
    """
    return {
        (SEARCH, index, WARM_START): written(search)
        for index, search in enumerate(searches_of(spec))
        if search.warm_start.files
    }


def _findings(
    spec: Spec, jobs: Sequence[Mapping[str, Any]], at_once: bool
) -> Iterator[tuple[Path, str] | tuple[Path, str, bool]]:
    yield from _named_as_fields(spec)
    yield from _pairs(spec)
    yield from _left_out(spec)


FEATURE = DocumentFeature(
    "search",
    findings=_findings,
    section=Section(
        SEARCH,
        declared=declared,
        read=read_searches,
        filled=with_variables,
        check=check_groups,
        varied=varied,
        uninstalled=uninstalled,
        unstarted=unstarted,
        objection=objection,
        read_of_files=read_of_files,
    ),
)
