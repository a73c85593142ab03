"""The algorithm stragglers: which jobs get a copy, and what it saves."""

from __future__ import annotations

from typing import Any

import pytest
from simulations import outcomes, predict

from flux_ensemble.document.loading import DocumentError, load_mapping

#: One job in 16 takes an hour, and the others a minute.
MOSTLY_A_MINUTE = [*range(60, 75), 3600]


def document(**use: Any) -> dict[str, Any]:
    """A hundred jobs, each with one that follows it."""
    return {
        "name": "study",
        "seed": 3,
        "jobs": [
            {"name": "md", "command": "md {n}", "params": {"n": {"range": [0, 100]}}},
            {"name": "after", "command": "after {n}", "params": {"n": 0}},
        ],
        "use": [{"algorithm": "stragglers", "group": "md", **use}],
        "rules": [
            {"trigger": "start", "action": {"name": "submit", "label": "md"}},
            {
                "id": "follow",
                "trigger": ["job-success", "job-fail", "job-cancel", "job-timeout"],
                "group": "md",
                "action": {
                    "name": "submit",
                    "label": "after",
                    "params": "trigger",
                    "repetitions": "unlimited",
                },
            },
            {
                "id": "end",
                "trigger": "idle",
                "group": "md",
                "action": {"name": "submit", "label": "after", "repetitions": "unlimited"},
            },
        ],
        "simulate": {"md": {"duration": MOSTLY_A_MINUTE}, "after": {"duration": 1}},
    }


def test_stragglers_get_copies_and_each_piece_of_work_counts_once() -> None:
    found = predict(document(), cores=32)
    complete, failed, canceled, timeout = outcomes(found, "md")
    assert (complete, failed, timeout) == (100, 0, 0)
    assert canceled >= 3
    fired = {rule["id"]: rule["fired"] for rule in found.status["rules"]}
    # The group was idle once.
    assert fired == {"rule-0": 1, "follow": 100, "end": 1, "stragglers-copy": canceled}
    assert outcomes(found, "after") == (101, 0, 0, 0)
    assert found.makespan < 600


@pytest.mark.parametrize(
    "use", [{"factor": 100}, {"ends": 100}, {"least": "2h"}, {"quantile": 0.999}]
)
def test_jobs_that_do_not_take_so_long_have_no_copy(use: dict[str, Any]) -> None:
    value = document(**use)
    if "quantile" in use:
        value["simulate"]["md"]["duration"] = [60, 61, 62, 80]
    found = predict(value, cores=32)
    assert outcomes(found, "md") == (100, 0, 0, 0)


def test_there_are_so_many_copies_at_most() -> None:
    found = predict(document(copies=2), cores=32)
    assert found.status["groups"]["md"]["submitted"] == 102


@pytest.mark.parametrize(
    ("use", "told"),
    [
        ({"factor": 1}, "use[0].factor: expected a number > 1, not 1"),
        ({"every": 0}, "use[0].every: expected a duration > 0, not 0"),
        ({"group": "mdd"}, "use[0].group: no job group named 'mdd' (did you mean 'md'?"),
    ],
)
def test_what_cannot_be_is_refused(use: dict[str, Any], told: str) -> None:
    with pytest.raises(DocumentError) as raised:
        load_mapping(document(**use))
    assert str(raised.value).startswith(f"document: {told}")


def test_trials_of_a_search_have_no_copies() -> None:
    value = document(group="after")
    value["search"] = [
        {
            "id": "hpo",
            "group": "after",
            "variables": {"n": [1, 2]},
            "minimize": "x",
            "sampler": "random",
            "trials": 1,
        }
    ]
    with pytest.raises(DocumentError, match="trials of a search, which have no copies"):
        load_mapping(value)
