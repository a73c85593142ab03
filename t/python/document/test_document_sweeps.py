"""Sweeps and submissions: which jobs a group makes, in which order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.document import jobspec
from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.keys.jobs import JOB
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.document.problems import DocumentError
from flux_ensemble.document.sweep import Sweep
from flux_ensemble.document.values import parse_values


def group(*entries: dict[str, Any], seed: int = 0) -> Group:
    """The group of some entries of `jobs:`."""
    jobs = [{"name": "app", "command": "app", **entry} for entry in entries]
    return load_mapping({"jobs": jobs, "seed": seed}, name="test").groups["app"]


def params(group: Group, **given: Any) -> list[dict[str, Any]]:
    """The parameters of each job of a submission."""
    return [values for _, values in group.submission(**given)]


def test_a_product_varies_the_last_parameter_fastest() -> None:
    assert params(group({"params": {"x": [1, 2], "y": {"range": [0, 6, 3]}}})) == [
        {"x": 1, "y": 0},
        {"x": 1, "y": 3},
        {"x": 2, "y": 0},
        {"x": 2, "y": 3},
    ]


def test_zip_takes_values_side_by_side_and_repeats_a_single_one() -> None:
    assert params(group({"params": {"x": [1, 2], "y": "a"}, "sweep": "zip"})) == [
        {"x": 1, "y": "a"},
        {"x": 2, "y": "a"},
    ]


@pytest.mark.parametrize("sweep", ["product", "zip"])
def test_single_values_are_one_combination(sweep: str) -> None:
    made = group({"params": {"x": [1], "y": "a"}, "sweep": sweep}).submission(params={"x": 2})
    assert [values for _, values in made] == [{"x": 2, "y": "a"}]
    made[0][1]["x"] = 3
    assert made[0][1] == {"x": 2, "y": "a"}


def test_a_sample_draws_different_combinations_and_the_seed_says_which() -> None:
    entry = {
        "params": {"x": {"range": [0, 1000]}, "y": {"range": [0, 1000]}},
        "sweep": "sample",
        "samples": 50,
    }
    drawn = params(group(entry, seed=1))
    assert len({(one["x"], one["y"]) for one in drawn}) == 50
    assert drawn == params(group(entry, seed=1))
    assert drawn != params(group(entry, seed=2))


def test_job_sets_with_the_same_parameters_draw_different_samples() -> None:
    entry = {"params": {"x": {"range": [0, 10**6]}}, "sweep": "sample", "samples": 5}
    drawn = params(group(entry, entry))
    assert drawn[:5] != drawn[5:]


def test_count_is_for_each_combination() -> None:
    assert [one["x"] for one in params(group({"params": {"x": [1, 2]}, "count": 2}))] == [
        1,
        1,
        2,
        2,
    ]


def test_the_job_sets_of_a_group_are_submitted_together_in_order() -> None:
    two = group({"command": "a", "count": 2}, {"command": "b", "params": {"x": [1, 2]}})
    assert [(one.command, one.index, values) for one, values in two.submission()] == [
        (("a",), 0, {}),
        (("a",), 0, {}),
        (("b",), 1, {"x": 1}),
        (("b",), 1, {"x": 2}),
    ]


def test_a_submission_may_override_count_and_parameters() -> None:
    one = group({"params": {"x": [1, 2], "y": [3]}, "count": 5})
    assert params(one, count=1, params={"x": 7}) == [{"x": 7, "y": 3}]
    assert params(one, count=1, params={"y": {"range": [0, 2]}, "x": [7]}) == [
        {"x": 7, "y": 0},
        {"x": 7, "y": 1},
    ]


def test_an_override_goes_to_the_job_sets_that_declare_the_parameter() -> None:
    two = group({"params": {"x": [1, 2]}}, {"params": {"y": [3]}})
    assert params(two, params={"x": [7]}) == [{"x": 7}, {"y": 3}]


@pytest.mark.parametrize(
    ("entry", "given", "sentence"),
    [
        ({"params": {"x": [1]}}, {"z": 1}, "group 'app' has no parameter 'z' (parameters: x)"),
        ({"params": {"x": [1]}}, {"x": []},
         "parameter 'x': expected at least one value, not a list with 0 items"),
        ({"params": {"x": [1]}}, {"x": [None]},
         "parameter 'x[0]': expected text, a number, true or false, not null "
         "(put it in quotes if the text is meant)"),
        ({"params": {"x": [1]}}, {"x": {"range": [0, 10**30]}},
         "parameter 'x': expected fewer values than a mapping with 1 key has"),
        ({"params": {"x": [1, 2], "y": [1, 2]}, "sweep": "zip"}, {"x": [1, 2, 3]},
         "'zip' needs equally many values of each parameter (x has 3, y has 2)"),
        ({"params": {"x": [1]}}, {"x": {"range": [0, 10**18]}},
         "expected at most 9007199254740992 combinations, not 1000000000000000000"),
        ({"params": {"x": [1]}}, {"x": {"range": [0, 10**12]}},
         "expected at most 2147483647 jobs, not 1000000000000"),
        ({"params": {name: [1] for name in "dcba"}}, {name: [] for name in "abcd"},
         "parameter 'd': expected at least one value, not a list with 0 items"),
    ],
)  # fmt: skip
def test_an_override_that_does_not_fit_is_refused(
    entry: dict[str, Any], given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        group(entry).submission(None, given)
    assert str(caught.value) == sentence


def test_a_sample_is_no_larger_than_what_an_override_leaves() -> None:
    entry = {"params": {"x": {"range": [0, 10]}}, "sweep": "sample", "samples": 5}
    drawn = params(group(entry), params={"x": [1, 2]})
    assert sorted(one["x"] for one in drawn) == [1, 2]


def test_a_huge_product_costs_nothing() -> None:
    sweep = Sweep({"x": range(10**7), "y": range(10**8)})
    sweep.check()
    assert len(sweep) == 10**15
    assert sweep[10**15 - 1] == {"x": 10**7 - 1, "y": 10**8 - 1}


@given(st.dictionaries(st.sampled_from("xyz"), st.lists(st.integers(), min_size=1, max_size=4)))
def test_a_product_is_that_of_itertools(given: dict[str, list[int]]) -> None:
    sweep = Sweep(given)
    expected = [dict(zip(given, one, strict=True)) for one in itertools.product(*given.values())]
    assert [sweep[i] for i in range(len(sweep))] == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (3, (3,)),
        ("a", ("a",)),
        (True, (True,)),
        ([1, "b", 0.5], (1, "b", 0.5)),
        ({"range": [0, 3]}, range(3)),
        ({"range": [3, 0, -1]}, range(3, 0, -1)),
    ],
)
def test_values_are_a_list_a_range_or_one_value(given: Any, expected: Any) -> None:
    assert parse_values(given) == expected


@pytest.mark.parametrize("index", [-1, 4])
def test_a_submission_has_no_other_jobs(index: int) -> None:
    with pytest.raises(IndexError, match="the submission has no job"):
        group({"params": {"x": [1, 2]}, "count": 2}).submission()[index]


# -- the number of a job, {index}, and the texts that are filled in ----------------------------


def built(group: Group, **given: Any) -> list[dict[str, Any]]:
    """The jobspec of each job of a submission."""
    return [
        jobspec.build(job_set, values, environment={}, cwd="/work", tag={})
        for job_set, values in group.submission(**given)
    ]


def test_each_job_has_its_number_in_its_submission_as_the_value_of_a_parameter() -> None:
    own = group({"count": 3, "params": {"i": "{index}", "name": "run-{index}"}})
    assert params(own) == [{"i": number, "name": f"run-{number}"} for number in range(3)]
    assert params(own, count=1, params={"i": 7}) == [{"i": 7, "name": "run-0"}]
    assert params(group({"params": {"i": 0}}), count=2, params={"i": "{index}"}) == [
        {"i": 0},
        {"i": 1},
    ]


def test_the_number_goes_on_from_one_entry_and_one_combination_to_the_next() -> None:
    own = group(
        {"count": 2, "params": {"x": [5, 6], "i": "{index}"}}, {"params": {"i": ["{index}", -1]}}
    )
    assert [values["i"] for values in params(own)] == [0, 1, 2, 3, 4, -1]


def test_a_parameter_of_that_name_is_meant_where_there_is_one() -> None:
    (made,) = built(group({"command": "run {index}", "params": {"index": 9}}))
    assert made["tasks"][0]["command"] == ["run", "9"]


EVERY_TEXT = {
    "command": ["run", "{index}-{t}"],
    "environment": {"SEED": "{index}-{t}"},
    "workdir": "runs/{index}-{t}",
    "inputs": ["{index}-{t}.in"],
    "output": "{index}-{t}.out",
    "error": "{index}-{t}.err",
    "queue": "{index}-{t}",
    "bank": "{index}-{t}",
    "attributes": {
        "system": {"constraints": {"hostlist": ["node{index}-{t}"]}},
        "user": {"what": "{index}-{t}"},
    },
}


def test_the_number_among_all_jobs_of_a_group_stands_in_texts_and_values() -> None:
    own = group({"command": "run {number} {index} {i}", "count": 2, "params": {"i": "n{number}"}})
    commands = [made["tasks"][0]["command"] for made in built(own, overrides={"number": 5})]
    assert commands == [["run", "5", "0", "n5"], ["run", "6", "1", "n6"]]
    (made,) = built(own, count=1)
    assert made["tasks"][0]["command"] == ["run", "0", "0", "n0"]


def test_a_parameter_called_number_is_meant_where_there_is_one() -> None:
    own = group({"command": "run {number}", "params": {"number": 9}})
    assert not own.tells_numbers()
    (made,) = built(own, overrides={"number": 5})
    assert made["tasks"][0]["command"] == ["run", "9"]


def test_parameters_and_the_number_are_filled_into_every_text_of_a_job() -> None:
    last = built(group({**EVERY_TEXT, "count": 2, "params": {"t": 300}}))[1]
    system, files = last["attributes"]["system"], last["attributes"]["system"]["shell"]["options"]
    assert last["tasks"][0]["command"] == ["run", "1-300"]
    assert system["environment"]["SEED"] == "1-300"
    assert system["cwd"] == "/work/runs/1-300"
    assert [files["output"][stream]["path"] for stream in ("stdout", "stderr")] == [
        "1-300.out",
        "1-300.err",
    ]
    assert (system["queue"], system["bank"]) == ("1-300", "1-300")
    assert system["constraints"] == {"hostlist": ["node1-300"]}
    assert last["attributes"]["user"]["what"] == "1-300"


def test_the_texts_of_a_job_that_are_filled_in_are_all_that_the_schema_has() -> None:
    texts = {
        key
        for key, schema in JOB["properties"].items()
        if schema.get("type") == "string" and "enum" not in schema and "pattern" not in schema
    }
    assert texts - {"member"} <= EVERY_TEXT.keys()


def test_a_command_of_a_jobspec_and_an_override_have_the_number_too() -> None:
    whole = built(group({"command": "run"}))[0]
    whole = {**whole, "tasks": [{**whole["tasks"][0], "command": ["run", "{index}"]}]}
    jobs = [{"name": "app", "jobspec": {**whole, "attributes": {}}, "count": 2}]
    own = load_mapping({"jobs": jobs}, name="test").groups["app"]
    made = built(own, overrides={"environment": {"N": "{index}"}, "queue": "q{index}"})[1]
    assert made["tasks"][0]["command"] == ["run", "1"]
    assert made["attributes"]["system"]["environment"] == {"N": "1"}
    assert made["attributes"]["system"]["queue"] == "q1"


def test_a_text_that_gets_too_long_by_what_is_filled_into_a_queue_is_refused() -> None:
    with pytest.raises(DocumentError, match="a name in 'queue' of at most 131071 bytes"):
        group({"queue": "{t}", "params": {"t": "x" * 131072}})
