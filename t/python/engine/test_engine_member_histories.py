"""Random histories of engines with members: one that is restored goes on as one that was not."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "fuzz"))

from engines.member_documents import member_document
from engines.member_histories import MemberHistory
from engines.side import Side

from flux_ensemble.engine.commands import Record

#: Histories of each block, and events of each.
HISTORIES, LENGTH = 25, 120

#: Statistics that depend on the order in which jobs on several members are heard of.
STATISTICS = ("mean", "variance", "ew_mean", "recent", "p90")


def occurred(seed: int) -> Counter[str]:
    """What comes of a history, which is the same where no engine is restored in its course."""
    random = Random(seed)
    document = member_document(random)
    history = MemberHistory(random, document)
    history.run(LENGTH)
    assert not history.broken, f"seed {seed}: {history.steps[-1]}"
    again = Side({"document": document})
    known = 0
    for step, text in history.steps:
        if step[0] == "event":
            assert again.take(step) == text, f"seed {seed}"
        else:
            # The statistics of the jobs on all members are the same to the last bit.
            metrics = json.loads(text)["metrics"]
            assert json.loads(again.take(["look"]))["metrics"] == metrics, f"seed {seed}"
            known += all(metrics[name]["a-pending"] is not None for name in STATISTICS)
    entries = [command for command in history.sent if isinstance(command, Record)]
    scoped = {rule["id"] for rule in document["rules"] if rule.get("scope") == "member"}
    names = Counter(entry.name for entry in entries)
    names["restore"] = sum(step[0] == "restore" for step, _ in history.steps)
    names["scoped"] = sum(
        entry.name == "fire" and entry.context["rule"] in scoped for entry in entries
    )
    names["known"] = known
    names["child"] = any(pool.get("service") == "child" for pool in document["members"])
    return names


@pytest.mark.parametrize("block", range(4))
def test_an_engine_that_is_restored_goes_on_as_one_that_was_not(block: int) -> None:
    total = Counter[str]()
    for number in range(HISTORIES):
        total += occurred(HISTORIES * block + number)
    for name in ("member-up", "member-expires", "member-draining", "member-lost", "member-ended"):
        assert total[name], name
    assert total["restore"]
    assert total["known"]
    assert total["scoped"]
    assert total["child"]
    assert total["retry"]
