"""Predictions: the time line, the use of the cluster, and what there is to warn of."""

from __future__ import annotations

from typing import Any

import pytest
from simulations import fired, outcomes, predict

from flux_ensemble.queues.virtual.cluster import UnsatisfiableError

START = {"trigger": "start", "action": {"name": "submit", "label": "a"}}


def document(*rules: Any, simulated: Any = 1, **given: Any) -> dict[str, Any]:
    """Groups a and b, the rules, and how long the jobs take."""
    return {
        "name": "test",
        "jobs": [{"name": "a", "command": "x"}, {"name": "b", "command": "y"}],
        "rules": [START, *rules],
        "simulate": {name: {"duration": simulated} for name in "ab"},
        **given,
    }


def again(group: str, label: str) -> dict[str, Any]:
    """The rule that submits a group whenever a job of another succeeds."""
    action = {"name": "submit", "label": label, "repetitions": "unlimited"}
    return {"id": f"{group}-{label}", "trigger": "job-success", "group": group, "action": action}


def test_a_simulation_of_which_nothing_is_odd_has_no_warning() -> None:
    assert predict(document()).warnings == []


def test_rules_that_never_fired_are_named() -> None:
    rule = {"id": "late", "trigger": "job-fail", "action": {"name": "submit", "label": "b"}}
    assert predict(document(rule)).warnings == ["rule that never fired: late"]


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        ({"trigger": "metric", "name": "mean.a-fom", "when": "> 0.5"}, "fom"),
        ({"trigger": "idle", "group": "a", "when": "mean['a-my fom'] > 0.5"}, "my fom"),
        ({"trigger": "idle", "group": "a", "when": "best.top.value > 0.5"}, "loss"),
        ({"trigger": "drift", "name": "a-fom", "detector": {"page-hinkley": {}}}, "fom"),
        ({"trigger": "job-memo", "group": "a", "when": "fom > 0.5"}, "KEY"),
    ],
)
def test_a_rule_that_waits_for_memos_that_no_job_publishes_says_how_they_are_given(
    rule: dict[str, Any], key: str
) -> None:
    rule = {"id": "late", **rule, "action": {"name": "submit", "label": "b"}}
    given = document(rule, metrics=[{"best": {"name": "top", "of": "a-loss"}}])
    never, waits = predict(given).warnings
    assert never == "rule that never fired: late"
    what = "memo" if key == "KEY" else repr(key)
    written = key if key.isidentifier() else f'"{key}"'
    memo = f"{{{written}: {{uniform: {{min: 0, max: 1}}}}}}"
    assert waits == (
        f"simulated jobs of group 'a' publish no {what}, which rule late waits for; write, with "
        f"values of yours, 'simulate: {{a: {{memo: {memo}}}}}'"
    )
    # What is to be written helps.
    given["simulate"]["a"]["memo"] = {key: {"uniform": {"min": 0, "max": 1}}}
    assert not [words for words in predict(given).warnings if "publish" in words]


def test_an_expression_of_an_action_without_a_value_says_how_memos_are_given() -> None:
    jobs = [{"name": "a", "command": "x"}, {"name": "b", "command": "y", "params": {"n": 0}}]
    action = {"name": "submit", "label": "b", "params": {"n": "{mean['a-fom']}"}}
    rule = {"trigger": "idle", "group": "a", "action": action}
    (waits,) = [one for one in predict(document(rule, jobs=jobs)).warnings if "publish" in one]
    assert waits.startswith("simulated jobs of group 'a' publish no 'fom', which rule rule-1 waits")


def test_an_endless_ensemble_is_ended_by_its_limit_and_names_the_rules() -> None:
    found = predict(document(again("a", "b"), again("b", "a"), limits={"jobs": 50}))
    assert found.status["state"] == "failed"
    assert found.status["reason"].endswith("rules that fire each other: a-b, b-a")


def test_an_endless_ensemble_is_stopped_in_time_and_names_the_rules() -> None:
    found = predict(document(again("a", "b"), again("b", "a")), until=99.5)
    assert found.timed_out
    assert found.makespan == 99.5
    assert found.warnings == [
        "the ensemble had not ended when the time was up; rules that fire each other: a-b, b-a"
    ]
    assert len(fired(found)) == 100


def test_an_ensemble_that_a_clock_keeps_going_names_the_rule() -> None:
    rule = {"id": "tick", "trigger": "timer", "every": 10, "action": {
        "name": "submit", "label": "b", "repetitions": "unlimited"}}  # fmt: skip
    found = predict(document(rule), until=100)
    assert found.warnings[-1].endswith("rules that a clock fires: tick")


def test_jobs_that_wait_for_ever_are_named() -> None:
    jobs = [{"name": "a", "command": "x", "urgency": 0}]
    found = predict(document(jobs=jobs, simulate={"a": {"duration": 1}}))
    assert found.status["state"] == "running"
    assert found.warnings == ["jobs of group 'a' wait for ever: nothing raises their urgency of 0"]


def test_jobs_that_the_cluster_cannot_run_fail_and_are_named() -> None:
    jobs = [{"name": "a", "command": "x", "nodes": 5}]
    found = predict(document(jobs=jobs, simulate={"a": {"duration": 1}}), nodes=4)
    assert outcomes(found, "a") == (0, 1, 0, 0)
    assert found.warnings == [
        "jobs of group 'a' never run: unsatisfiable request: the cluster has room for 4 of 5 nodes"
    ]


def test_resources_in_a_form_that_a_cluster_does_not_have_are_refused_with_the_group() -> None:
    core = {"type": "core", "count": 1}
    node = {"type": "node", "count": 2, "with": [core]}
    jobspec = {
        "version": 1,
        "resources": [{"type": "slot", "count": 1, "label": "s", "with": [node]}],
        "tasks": [{"command": ["x"], "slot": "s", "count": {"per_slot": 1}}],
    }
    with pytest.raises(UnsatisfiableError, match="job group 'a': no resources of type 'node'"):
        predict(document(jobs=[{"name": "a", "jobspec": jobspec}], simulate={}))


def test_a_cap_that_was_hit_is_named() -> None:
    jobs = [{"name": "a", "command": "x", "count": 9}]
    found = predict(
        document(jobs=jobs, simulate={"a": {"duration": 1}}, limits={"active-jobs": 4}), nodes=9
    )
    assert found.warnings == ["jobs waited in the service because limits.active-jobs is 4"]
    assert found.makespan == 3.0


def test_custom_functions_that_were_due_are_named_and_not_called() -> None:
    rule = {"trigger": "job-success", "action": {"name": "custom", "label": "f"}}
    source = "def f(**kwargs):\n    raise SystemExit\n"
    found = predict(document(rule, custom=source))
    assert found.status["state"] == "completed"
    assert found.warnings == [
        "custom function 'f' was due 1 time; a simulation calls none, as if it returned nothing"
    ]


def test_an_ensemble_that_waits_for_requests_says_so() -> None:
    found = predict(document(finish="never"))
    assert found.status["state"] == "running"
    assert found.warnings == [
        "nothing is left to do, and the ensemble waits for requests (finish: never)"
    ]


def test_jobs_that_are_left_at_the_end_still_count_for_the_makespan() -> None:
    rule = {"trigger": "timer", "after": 3, "action": {"name": "terminate"}}
    found = predict(document(rule, simulated=10))
    assert found.status["t_end"] == 3.0
    assert found.makespan == 10.0
    assert outcomes(found, "a") == (1, 0, 0, 0)


def test_the_use_of_the_cluster_is_that_of_the_jobs() -> None:
    rule = {"trigger": "idle", "name": "a", "action": {"name": "submit", "label": "b"}}
    jobs = [
        {"name": "a", "command": "x", "count": 8},
        {"name": "b", "command": "y", "cores": 2},
    ]
    found = predict(document(rule, jobs=jobs, simulated=32), nodes=4, cores=2)
    assert found.makespan == 64.0
    assert found.cores == pytest.approx((8 + 2) / 16)
    assert found.nodes == pytest.approx((4 + 1) / 8)
    half = len(found.course) // 2
    assert found.course[:half] == pytest.approx([1.0] * half)
    assert found.course[half:] == pytest.approx([0.25] * half)
    assert len(found.course) * found.point == pytest.approx(64.0)


def test_of_a_long_time_line_the_beginning_and_the_end_are_kept() -> None:
    found = predict(document(again("a", "a"), limits={"jobs": 3000}))
    times = [entry["timestamp"] for entry in found.first + found.last]
    assert len(found.first) == len(found.last) == 1000
    assert found.left_out == 3001 + 1 - 2000
    assert times == sorted(times)
    assert found.last[-1]["name"] == "finish"


def test_the_longest_first_end_sooner() -> None:
    sizes = [1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 20]
    group = {"name": "a", "command": "x {n}", "params": {"n": sizes}, "predict": ["n"]}
    found = {
        order: predict({
            "name": "test",
            "jobs": [{**group, "max-active": 2, **more}],
            "rules": [START],
            "simulate": {"a": {"duration": {"param": "n"}}},
        })
        for order, more in {"as asked": {}, "longest first": {"order": "longest-first"}}.items()
    }  # fmt: skip
    # The last job takes 20 seconds, and 85 on two slots are 42.5.
    assert found["as asked"].makespan == 49
    assert found["longest first"].makespan == 44
    assert outcomes(found["longest first"], "a") == (17, 0, 0, 0)
