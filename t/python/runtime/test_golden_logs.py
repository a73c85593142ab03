"""Logs that versions of flux-ensemble wrote are read by this one, or refused with a sentence."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from flux_ensemble import __version__
from flux_ensemble.engine.status import status
from flux_ensemble.runtime.durability.batches import identity
from flux_ensemble.runtime.durability.replay import Replayed, replay
from flux_ensemble.service.requests.documents import check_load, read_document

LOGS = sorted((Path(__file__).parents[2] / "traces" / "logs").glob("*.json.gz"))


@cache
def read(file: Path) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return kept


def restore(kept: dict[str, Any]) -> Replayed:
    """As the service does when it begins."""
    load = kept["load"]
    name = load["spec"]["name"]
    check_load(name, load)
    spec = read_document(load, load["files"], elastic=True)
    whose = identity(name, load["run"])
    return replay(spec, whose, kept["snapshot"], kept["values"], kept["lines"])


def check(kept: dict[str, Any], replayed: Replayed) -> None:
    expected = kept["expected"]
    metrics = replayed.engine.metrics(replayed.engine.t)
    assert replayed.engine.state == expected["state"]
    # What is counted since then is not in it, and did not happen.
    for group, counts in metrics["count"].items():
        before = expected["count"][group]
        assert {name: count for name, count in counts.items() if count} == {
            name: count for name, count in before.items() if count
        }
    assert metrics["mean"] == expected["mean"]
    assert len(replayed.records) == expected["jobs"]
    found = status(replayed.engine).get("searches", [])
    # What is said of a search since then is not in it.
    searches = expected.get("searches", [])
    assert [known_then(*both) for both in zip(found, searches, strict=True)] == searches


def known_then(now: Any, then: Any) -> Any:
    """Return what is said now without the keys that were not there then, at any depth."""
    if isinstance(now, dict) and isinstance(then, dict):
        return {key: known_then(now[key], then[key]) for key in then}
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [known_then(*both) for both in zip(now, then, strict=True)]
    return now


@pytest.mark.parametrize("ensemble", ["golden", "learning", "members"])
def test_there_is_a_log_with_a_snapshot_and_one_without(ensemble: str) -> None:
    logs = [read(file) for file in LOGS if read(file)["load"]["spec"]["name"] == ensemble]
    assert {kept["snapshot"] is not None for kept in logs} == {True, False}


@pytest.mark.parametrize("file", LOGS, ids=lambda file: file.name)
def test_a_log_is_read_to_the_last_number_or_refused_with_a_sentence(file: Path) -> None:
    kept = read(file)
    try:
        replayed = restore(kept)
    except ValueError as error:
        refusal = str(error)
    else:
        check(kept, replayed)
        return
    assert kept["version"] != __version__, refusal
    assert "version" in refusal


@pytest.mark.parametrize("file", LOGS, ids=lambda file: file.name)
def test_a_log_with_another_entry_than_this_version_would_write_is_refused(file: Path) -> None:
    """The control."""
    kept = dict(read(file))
    place = next(n for n, line in enumerate(kept["lines"]) if '"name":"fire"' in line)
    kept["lines"] = [*kept["lines"][:place], *kept["lines"][place + 1 :]]
    kept["snapshot"] = None
    with pytest.raises(ValueError, match=r"version|damaged|digest|missing"):
        restore(kept)
