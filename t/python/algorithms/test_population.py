"""The algorithm population: who goes on from whom, with which values, and how rounds follow."""

from __future__ import annotations

from typing import Any

import pytest
from simulations import outcomes, predict

from flux_ensemble.document.loading import DocumentError, load_mapping
from flux_ensemble.features.search.model import Variable
from flux_ensemble.features.search.population import drawing, drawn, evolve, explored, followed

LR = Variable("lr", 1e-4, 1.0, log=True)


def document(jobs: dict[str, Any] | None = None, **use: Any) -> dict[str, Any]:
    """A document with a population of eight members and four rounds; the best has lr = 0.6."""
    return {
        "name": "study",
        "jobs": [{"name": "train", "command": "train {lr} {opt} {from}", **(jobs or {})}],
        "use": [
            {
                "algorithm": "population",
                "group": "train",
                "variables": {"lr": {"low": "1e-4", "high": 1, "log": True}, "opt": ["a", "b"]},
                "maximize": "score",
                "population": 8,
                "rounds": 4,
                **use,
            }
        ],
        "simulate": {"train": {"memo": {"score": {"expression": "round - (lr - 0.6) ** 2"}}}},
    }


def rounds(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters of each round, from the second on."""
    found = predict(load_mapping(value))
    assert found.status["state"] == "completed"
    return [
        entry["context"]["action"]["params"]
        for entry in found.first + found.last
        if entry["name"] == "fire" and "params" in entry["context"]["action"]
    ]


# -- what is drawn ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variable",
    [
        LR,
        Variable("x", -1.0, 2.0),
        Variable("k", 1, 8, integer=True),
        Variable("k", 1, 1000, log=True, integer=True),
        Variable("s", 0.1, 0.5, step=0.1),
        Variable("s", 2, 11, integer=True, step=3),
        Variable("opt", choices=("sgd", 3, 3.0, True)),
    ],
)
def test_what_is_drawn_and_explored_is_a_value_of_the_variable(variable: Variable) -> None:
    for seed in range(300):
        value = drawn(variable, drawing(seed))
        assert variable.objection(value) is None
        near = explored(variable, value, drawing(seed, 1), resample=0.25, factors=(0.8, 1.2))
        assert variable.objection(near) is None


def test_values_are_spread_over_the_whole_of_a_range_by_its_order_of_magnitude() -> None:
    low = sum(drawn(LR, drawing(seed)) < 1e-2 for seed in range(1000))
    assert 430 < low < 570


@pytest.mark.parametrize(
    ("variable", "value", "near"),
    [
        (LR, 0.5, {0.4, 0.6}),
        (LR, 1.0, {0.8, 1.0}),
        (Variable("k", 1, 8, integer=True), 2, {1, 3}),
        (Variable("k", 1, 80, integer=True), 50, {40, 60}),
        (Variable("s", 0.1, 0.5, step=0.1), 0.2, {0.1, 0.3}),
        (Variable("opt", choices=("a", "b", "c")), "b", {"a", "c"}),
        (Variable("opt", choices=("a", "b", "c")), "c", {"b", "c"}),
    ],
)
def test_a_value_changes_a_little(variable: Variable, value: Any, near: set[Any]) -> None:
    how: dict[str, Any] = {"resample": 0, "factors": (0.8, 1.2)}
    assert {explored(variable, value, drawing(seed), **how) for seed in range(50)} == near


def test_as_often_as_is_asked_for_a_value_is_drawn_anew() -> None:
    how: dict[str, Any] = {"resample": 0.25, "factors": (0.8, 1.2)}
    near = [explored(LR, 0.5, drawing(seed), **how) for seed in range(1000)]
    assert 200 < sum(value not in (0.4, 0.6) for value in near) < 300


# -- who goes on from whom ----------------------------------------------------------------------


def test_the_worst_go_on_from_one_of_the_best_and_the_others_from_themselves() -> None:
    costs = [0.8, 0.1, 0.7, 0.2, 0.3, 0.4, 0.5, 0.6]
    found = [followed(costs, quantile=0.25, seed=str(seed)) for seed in range(40)]
    assert {(one[0], one[2]) for one in found} == {(1, 1), (1, 3), (3, 1), (3, 3)}
    assert all(
        [one[number] for number in (1, 3, 4, 5, 6, 7)] == [1, 3, 4, 5, 6, 7] for one in found
    )


def test_all_that_failed_are_replaced_and_then_none_of_the_others_but_as_many_as_asked_for() -> (
    None
):
    assert followed([None, 0.2, None, 0.1], quantile=0.25, seed="s") == [3, 1, 3, 3]
    assert followed([None, 0.2, 0.3, 0.1], quantile=0.5, seed="s")[1:] != [1, 2, 3]
    assert followed([None, None, None, 0.1], quantile=0.25, seed="s") == [3, 3, 3, 3]
    assert followed([0.2, 0.1], quantile=0.5, seed="s") == [1, 1]


# -- rounds -------------------------------------------------------------------------------------


def test_rounds_follow_each_other_and_the_worst_have_the_checkpoints_of_the_best() -> None:
    found = rounds(document())
    assert [one["round"] for one in found] == [1, 2, 3]
    for number, one in enumerate(found):
        own = [f"../{number}-{member}" for member in range(8)]
        assert sum(given != path for given, path in zip(one["from"], own, strict=True)) == 2
    first = load_mapping(document()).groups["train"].submission()
    before = [params for _, params in first]
    for after, one in enumerate(found):
        for member, path in enumerate(one["from"]):
            parent = int(path.rpartition("-")[2])
            if parent == member:
                assert one["lr"][member] == before[member]["lr"], after
        before = [{"lr": lr} for lr in one["lr"]]
    whole = predict(load_mapping(document()))
    assert outcomes(whole, "train") == (32, 0, 0, 0)
    assert [rule["fired"] for rule in whole.status["rules"]] == [1, 32, 4]
    (best,) = whole.status["best"]
    assert (best["name"], best["params"]["round"], best["value"] > 2.9) == ("population", 3, True)


def test_every_job_has_a_directory_of_its_own_and_round_0_no_checkpoint() -> None:
    spec = load_mapping(document(directory="runs"))
    jobs = list(spec.groups["train"].submission())
    assert [params["member"] for _, params in jobs] == list(range(8))
    assert {params["from"] for _, params in jobs} == {""}
    assert len({params["lr"] for _, params in jobs}) == 8
    assert spec.expansion is not None
    assert spec.expansion["jobs"][0]["workdir"] == "runs/{round}-{member}"


def test_every_run_has_the_same_rounds_and_another_seed_has_others() -> None:
    first = rounds(document())
    assert rounds(document()) == first
    assert rounds({**document(), "seed": 8}) != first


def test_a_member_that_fails_goes_on_from_a_better_one() -> None:
    value = document()
    value["simulate"]["train"]["failure-rate"] = 0.3
    found = predict(load_mapping(value))
    assert found.status["state"] == "completed"
    complete, failed, _, _ = outcomes(found, "train")
    assert (complete + failed, failed > 3) == (32, True)


@pytest.mark.parametrize("simulate", [{"memo": {"other": 1}}, {"failure-rate": 1}])
def test_a_round_without_any_value_ends_the_ensemble_as_failed(simulate: dict[str, Any]) -> None:
    found = predict(load_mapping({**document(), "simulate": {"train": simulate}}))
    assert found.status["state"] == "failed"
    assert found.status["reason"].startswith("no 'score' from any member in round 0 (rule")


def test_values_of_jobs_of_no_round_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    state: dict[str, Any] = {}
    how: dict[str, Any] = {
        "group": "train", "variables": [LR.to_json()], "population": 2, "rounds": 2,
        "objective": "loss", "maximize": False, "quantile": 0.5, "resample": 0.0,
        "factors": (0.5, 2.0), "seed": "s",
    }  # fmt: skip

    def ends(member: int, number: int, loss: Any) -> None:
        params = {"member": member, "round": number, "from": "", "lr": 0.1}
        event = {"trigger": "job-success", "params": params, "memo": {"loss": loss}}
        assert evolve(event, state, **how) is None

    ends(0, 0, 0.5)
    ends(1, 0, "nan")
    ends(1, 7, 0.1)
    action = evolve({"trigger": "idle"}, state, **how)
    assert action is not None
    assert action["params"]["from"] == ["../0-0", "../0-0"]
    assert action["params"]["lr"][0] == 0.1
    assert action["params"]["lr"][1] in (0.05, 0.2)
    said = capsys.readouterr().out
    assert said == "round 0: best loss 0.5 (member 0: lr=0.1); 1 goes on from 0\n"


@pytest.mark.parametrize(
    ("jobs", "use", "told"),
    [
        ({"count": 2}, {}, "use[0].group: expected one entry 'train' with 'count: 1'"),
        ({"workdir": "a"}, {}, "use[0]: it gives group 'train' 'workdir', and that has 'workdir'"),
        ({}, {"minimize": "loss"}, "use[0].id: give 'minimize' or 'maximize', the key of a memo"),
        ({}, {"population": 1}, "use[0].population: expected an integer >= 2 and <= 500, not 1"),
        ({}, {"population": 500, "variables": {str(n) + "x": [1, 2] for n in range(3)}},
         "use[0].variables: 0x: expected a variable's name"),
        ({}, {"population": 500, "variables": {f"x{n}": [1, 2] for n in range(3)}},
         "use[0].population: expected at most 333: members and variables together have at most"),
        ({}, {"quantile": 0.6}, "use[0].quantile: expected a number > 0 and <= 0.5, not 0.6"),
        ({}, {"factors": [0.8, 1, 1.2]}, "use[0].factors: expected a list of two numbers"),
        ({}, {"variables": {"round": [1, 2]}},
         "use[0].variables: round: the members have a parameter of this name"),
        ({}, {"variables": {"lr": {"low": 1, "high": 0}}},
         "use[0].variables: lr: expected 'low' below 'high', not 1 and 0"),
        ({}, {"variables": {"lr": {"low": 1, "hihg": 2}}}, "use[0].variables: lr.hihg: unkn"),
        ({}, {"id": "2nd"}, "use[0].id: expected an 'id' that begins with a letter, not '2nd'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(jobs: dict[str, Any], use: dict[str, Any], told: str) -> None:
    with pytest.raises(DocumentError) as raised:
        load_mapping(document(jobs, **use))
    assert str(raised.value).startswith(f"document: {told}")


def test_a_group_of_several_entries_is_no_population() -> None:
    given = document()
    given["jobs"].append({**given["jobs"][0], "command": "other"})
    with pytest.raises(DocumentError, match="expected one entry 'train' with 'count: 1'"):
        load_mapping(given)
