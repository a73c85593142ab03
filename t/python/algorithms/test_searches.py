"""The algorithms asha and median-stop: a search, its start, and what follows it."""

from __future__ import annotations

from typing import Any

import pytest
from simulations import outcomes, predict

from flux_ensemble.document.loading import DocumentError, load_mapping

USE = {
    "group": "trial",
    "variables": {"lr": {"low": 1e-5, "high": 0.1, "log": True}},
    "minimize": "loss",
    "trials": 30,
    "parallel": 4,
    "step": "epoch",
}


def document(**use: Any) -> dict[str, Any]:
    """A document with a search; the jobs publish a loss in 27 steps, and the best is near 1e-3."""
    loss = {"expression": "(log10(lr) + 3) ** 2 + exp(-epoch / 9)", "step": "epoch", "steps": 27}
    return {
        "name": "study",
        "jobs": [
            {"name": "trial", "command": "train {lr}"},
            {"name": "final", "command": "final {lr}", "params": {"lr": 0}},
        ],
        "use": [{**USE, **use}],
        "simulate": {"trial": {"duration": "30m", "memo": {"loss": loss}}},
    }


@pytest.mark.parametrize(
    ("use", "stop"),
    [
        (
            {"algorithm": "asha", "id": "hpo", "eta": 4, "from": 2},
            {"policy": "asha", "step": "epoch", "from": 2, "eta": 4},
        ),
        (
            {"algorithm": "median-stop", "id": "hpo", "complete": 3},
            {"policy": "median", "step": "epoch", "trials": 3},
        ),
    ],
)
def test_it_is_a_search_that_stops_trials_and_its_start(
    use: dict[str, Any], stop: dict[str, Any]
) -> None:
    spec = load_mapping(document(**use))
    assert spec.expansion is not None
    (search,) = spec.expansion["search"]
    own = {key: USE[key] for key in ("group", "variables", "minimize", "trials", "parallel")}
    assert search == {"id": "hpo", **own, "stop": stop}
    assert [rule.id for rule in spec.rules] == ["hpo-start"]


@pytest.mark.parametrize("algorithm", ["asha", "median-stop"])
def test_trials_are_stopped_and_the_best_point_goes_on(algorithm: str) -> None:
    found = predict(load_mapping(document(algorithm=algorithm, final="final")))
    complete, failed, canceled, timeout = outcomes(found, "trial")
    assert (complete + canceled, failed, timeout) == (30, 0, 0)
    assert canceled >= 5
    (search,) = found.status["searches"]
    assert (search["state"], search["pruned"]) == ("done", canceled)
    assert search["best"][0]["value"] < 0.2
    (fired,) = [
        entry["context"]
        for entry in found.first + found.last
        if entry["name"] == "fire" and entry["context"]["rule"] == f"{algorithm}-final"
    ]
    assert fired["action"]["params"] == search["best"][0]["params"]
    assert outcomes(found, "final") == (1, 0, 0, 0)


def test_without_a_complete_trial_nothing_follows() -> None:
    value = document(algorithm="asha", final="final")
    value["simulate"]["trial"] = {"failure-rate": 1}
    found = predict(load_mapping(value))
    assert found.status["groups"]["final"]["submitted"] == 0


def test_what_a_search_refuses_is_told_at_its_entry() -> None:
    with pytest.raises(DocumentError) as raised:
        load_mapping(document(algorithm="asha", sampler="tpee"))
    assert str(raised.value).startswith(
        "document: use[0]: what it makes, search 'asha': sampler: expected a sampler, not 'tpee' "
        "(did you mean 'tpe'?"
    )
