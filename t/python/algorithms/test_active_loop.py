"""The algorithm active-loop: a model that is trained where it was wrong, until it is right."""

from __future__ import annotations

from typing import Any

import pytest
from simulations import outcomes, predict

from flux_ensemble.document.loading import DocumentError, load_mapping


def document(simulate: dict[str, Any], **use: Any) -> dict[str, Any]:
    return {
        "name": "loop",
        "jobs": [
            {
                "name": "ask",
                "command": "ask {place} {round}",
                "params": {"place": {"range": [0, 5]}, "round": 0},
            },
            {"name": "physics", "command": "physics {place}", "params": {"place": 0}},
            {"name": "train", "command": "train"},
        ],
        "use": [
            {
                "algorithm": "active-loop",
                "ask": "ask",
                "compute": "physics",
                "train": "train",
                "above": 0.2,
                "tolerance": 0.05,
                "round": "round",
                **use,
            }
        ],
        "simulate": simulate,
    }


#: A model that is surer from round to round, and was wrong wherever it was not sure.
SURER = {
    "ask": {"memo": {"sigma": {"expression": "0.5 - 0.2 * round"}}},
    "physics": {"memo": {"error": 0.1}},
}


def test_the_loop_ends_when_the_model_is_right() -> None:
    found = predict(load_mapping(document(SURER)))
    assert (found.status["state"], found.status["reason"]) == (
        "completed",
        "the model was right wherever 'physics' has checked it, after 2 trainings "
        "(rule 'active-loop-right')",
    )
    # Three rounds of five questions; in the last one the model was sure.
    assert outcomes(found, "ask") == (15, 0, 0, 0)
    assert outcomes(found, "physics") == (10, 0, 0, 0)
    assert outcomes(found, "train") == (2, 0, 0, 0)


def test_the_loop_ends_after_so_many_trainings() -> None:
    never = {**SURER, "ask": {"memo": {"sigma": 0.5}}}
    found = predict(load_mapping(document(never, rounds=3)))
    assert (found.status["state"], found.status["reason"]) == (
        "completed",
        "after 3 trainings the model is still off by 0.1 (rule 'active-loop-enough')",
    )
    assert outcomes(found, "train") == (3, 0, 0, 0)


def test_what_nobody_could_compute_is_not_taken_for_right() -> None:
    broken = {**SURER, "physics": {"failure-rate": 1}}
    found = predict(load_mapping(document(broken)))
    assert found.status["state"] == "failed"
    assert found.status["reason"].startswith("5 jobs of 'ask' and 'physics' did not succeed")


def test_the_same_group_twice_is_refused() -> None:
    with pytest.raises(DocumentError) as raised:
        load_mapping(document(SURER, train="ask"))
    assert str(raised.value) == (
        "document: use[0].train: expected three groups: to ask, to compute, to train"
    )
