"""Searches of a status with their variables, and with all of their trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flux_ensemble.feature_list import parts
from flux_ensemble.results.hosts import Target


def in_full(target: Target, name: str, searches: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return entries of a status with `variables`, `where` and `all_trials`.

    Where the log does not have the document any more, they are as they were.

    Args:
        target: the host of the ensemble.
        name: the ensemble.
        searches: the entries.
    """
    (history,) = parts("history")
    try:
        by_id = {search.id: search for search in history.logged_searches(target.log(name))}
    except history.StudyError:
        by_id = {}
    told = []
    for one in searches:
        more: Mapping[str, Any] = {}
        if (search := by_id.get(one["id"])) is not None:
            jobs = target.jobs(name, group=search.group, interrupted=True)
            more = history.in_full(search, jobs)
        told.append({**one, **more})
    return told
