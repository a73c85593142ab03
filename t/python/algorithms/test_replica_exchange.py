"""The algorithm replica-exchange: who swaps with whom, and how rounds follow each other."""

from __future__ import annotations

import math
from typing import Any

import pytest
from simulations import outcomes, predict

from flux_ensemble.algorithms.exchange import swaps
from flux_ensemble.document.loading import DocumentError, load_mapping


def document(energy: Any = 1.0, jobs: dict[str, Any] | None = None, **use: Any) -> dict[str, Any]:
    """A document with four replicas and three rounds."""
    return {
        "name": "study",
        "jobs": [{"name": "md", "command": "md {replica} {temperature} {round}", **(jobs or {})}],
        "use": [
            {
                "algorithm": "replica-exchange",
                "group": "md",
                "temperatures": [280, 300, 320, 340],
                "rounds": 3,
                **use,
            }
        ],
        "simulate": {"md": {"memo": {"energy": energy}}},
    }


def rounds(value: dict[str, Any]) -> list[list[float]]:
    """The temperatures of each replica, by round, from the second on."""
    found = predict(load_mapping(value))
    assert found.status["state"] == "completed"
    return [
        entry["context"]["action"]["params"]["temperature"]
        for entry in found.first + found.last
        if entry["name"] == "fire" and "params" in entry["context"]["action"]
    ]


# -- Metropolis -------------------------------------------------------------------------------


@pytest.mark.parametrize("difference", [0.1, 0.5, 2.0])
def test_neighbours_swap_as_often_as_metropolis_has_it(difference: float) -> None:
    cold, warm, boltzmann = 1.0, 2.0, 1.0
    share = math.exp((1 / cold - 1 / warm) * -difference)
    swapped = sum(
        swaps([cold, warm], [0.0, difference], boltzmann=boltzmann, number=number, seed="s")[2]
        for number in range(0, 8000, 2)
    )
    # Four standard deviations of 4000 draws; the seed makes them the same for ever.
    assert abs(swapped / 4000 - share) < 4 * math.sqrt(share * (1 - share) / 4000)


def test_what_is_warmer_and_lower_in_energy_always_becomes_colder() -> None:
    for number in range(0, 100, 2):
        after = swaps([300, 310], [5.0, -5.0], boltzmann=0.002, number=number, seed="s")
        assert after == ([310, 300], 1, 1)


def test_pairs_are_neighbours_in_temperature_and_alternate() -> None:
    """Energies that go down with the temperature, so that every pair swaps."""
    temperatures = [320, 280, 300, 340]
    energies = [-float(one) for one in temperatures]
    how: dict[str, Any] = {"boltzmann": 0.002, "seed": "s"}
    assert swaps(temperatures, energies, number=0, **how) == ([340, 300, 280, 320], 2, 2)
    assert swaps(temperatures, energies, number=1, **how) == ([300, 280, 320, 340], 1, 1)


def test_energies_that_are_far_apart_are_no_fault() -> None:
    assert swaps([1, 2], [-1e300, 1e300], boltzmann=1e-10, number=0, seed="s")[2] == 0


# -- rounds -----------------------------------------------------------------------------------


def test_rounds_follow_each_other_with_the_temperatures_swapped() -> None:
    energies = {"expression": "-temperature"}
    # First the pairs of the coldest two and the warmest two, then that of the two between.
    assert rounds(document(energies)) == [[300, 280, 340, 320], [320, 280, 340, 300]]
    found = predict(load_mapping(document(energies)))
    assert outcomes(found, "md") == (12, 0, 0, 0)
    assert [rule["fired"] for rule in found.status["rules"]] == [1, 12, 3]


def test_every_run_has_the_same_swaps_and_another_seed_has_others() -> None:
    value = document({"expression": "temperature / 50"}, rounds=20)
    first = rounds(value)
    assert rounds(value) == first
    assert rounds({**value, "seed": 8}) != first
    assert all(sorted(one) == [280, 300, 320, 340] for one in first)


def test_parameters_have_the_names_that_the_group_has_for_them() -> None:
    value = document(
        {"expression": "-t"}, {"command": "md {i} {t} {n}"}, replica="i", temperature="t", round="n"
    )
    spec = load_mapping(value)
    assert list(spec.groups["md"].params) == ["i", "t", "n"]
    found = predict(spec)
    assert outcomes(found, "md") == (12, 0, 0, 0)


@pytest.mark.parametrize(
    ("simulate", "reason"),
    [
        ({"memo": {"other": 1}}, "no 'energy' from replica 0, 1, 2, 3 in round 0"),
        ({"failure-rate": 1, "memo": {"energy": 1}}, "no 'energy' from replica 0, 1, 2, 3 in roun"),
    ],
)
def test_a_replica_without_an_energy_ends_the_ensemble_as_failed(
    simulate: dict[str, Any], reason: str
) -> None:
    found = predict(load_mapping({**document(), "simulate": {"md": simulate}}))
    assert found.status["state"] == "failed"
    assert found.status["reason"].startswith(reason)


@pytest.mark.parametrize(
    ("jobs", "use", "told"),
    [
        ({"count": 2}, {}, "use[0].group: expected one entry 'md' with 'count: 1'"),
        ({}, {"temperatures": [300, 300]}, "use[0].temperatures: expected different temperatures"),
        ({}, {"temperatures": [300, 0]}, "use[0].temperatures[1]: expected a number > 0, not 0"),
        ({}, {"temperatures": [300]}, "use[0].temperatures: expected a list of 2 to 500 temp"),
        ({}, {"round": "replica"}, "use[0].replica: expected different names for the three"),
        ({"sweep": "product"}, {}, "use[0]: it gives group 'md' 'sweep', and that has 'sweep'"),
        ({}, {"id": "2nd"}, "use[0].id: expected an 'id' that begins with a letter, not '2nd'"),
    ],
)
def test_what_cannot_be_is_refused(jobs: dict[str, Any], use: dict[str, Any], told: str) -> None:
    with pytest.raises(DocumentError) as raised:
        load_mapping(document(jobs=jobs, **use))
    assert str(raised.value).startswith(f"document: {told}")
