"""Early stopping of trials in its checked form: `stop:` of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.document.problems import Path, Problems

#: What decides, each with the keys that it alone has.
POLICIES: Mapping[str, tuple[str, ...]] = {"asha": ("eta",), "median": ("trials",)}


@dataclass(frozen=True, slots=True)
class Stop:
    """When a trial is stopped, by what its job publishes while it runs.

    Args:
        policy: one of `POLICIES`.
        step: the key of the memo that counts the steps.
        begin: the first step at which trials are compared.
        eta: of `asha`, one trial in so many goes on at each rung.
        trials: of `median`, how many have to be complete before.
    """

    policy: str
    step: str
    begin: int = 1
    eta: int = 3
    trials: int = 5


def read_stop(entry: Mapping[str, Any], objectives: int, at: Path, problems: Problems) -> Stop:
    """The early stopping of a search.

    Args:
        entry: a valid `stop:`.
        objectives: how many the search has.
        at: where the document has it.
        problems: collects the problems.

    >>> read_stop({"policy": "asha", "step": "epoch"}, 1, (), Problems())
    Stop(policy='asha', step='epoch', begin=1, eta=3, trials=5)
    """
    policy = entry.get("policy", "asha")
    if "step" not in entry and not problems.blames((*at, "step")):
        problems.add(at, "give 'step', the key of the memo that says how far the job is")
    for other, keys in POLICIES.items():
        for key in keys:
            if key in entry and other != policy:
                problems.add((*at, key), f"the policy {policy!r} has no {key!r}; {other!r} has")
    if objectives > 1:
        problems.add(at, f"trials are stopped by one objective, and there are {objectives}")
    return Stop(
        policy,
        entry.get("step", ""),
        entry.get("from", 1),
        entry.get("eta", 3),
        entry.get("trials", 5),
    )
