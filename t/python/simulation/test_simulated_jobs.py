"""Simulated jobs: how long they take, how they end, and what they publish."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulations import fired, outcomes, predict

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import Command
from flux_ensemble.engine.events import Event
from flux_ensemble.queues.simulation.simulation import Simulation, SimulationError, resolve
from flux_ensemble.queues.virtual.cluster import VirtualCluster
from flux_ensemble.runtime.recording import Recorder, RecordingError, replay

START = {"trigger": "start", "action": {"name": "submit", "label": "a"}}


def document(simulated: Any = None, *rules: Any, count: int = 1, **job: Any) -> dict[str, Any]:
    """A group a that the start submits, a group b, and how the jobs of a behave."""
    return {
        "name": "test",
        "jobs": [
            {"name": "a", "command": "x", "count": count, **job},
            {"name": "b", "command": "y"},
        ],
        "rules": [START, *rules],
        "limits": {"jobs": 1_000},
        "simulate": {} if simulated is None else {"a": simulated},
    }


def durations(simulated: Any, count: int = 500, seed: int = 0) -> dict[str, float]:
    """Statistics of the durations of so many jobs."""
    found = predict(document({"duration": simulated}, count=count), nodes=count, seed=seed)
    return {name: values["a-duration"] for name, values in found.metrics.items() if name != "count"}


def test_a_job_takes_a_second_where_nothing_is_said() -> None:
    found = predict(document())
    assert found.makespan == 1.0
    assert found.warnings[0] == ("no duration given for group 'a'; assuming 1 s")


@pytest.mark.parametrize(
    ("distribution", "least", "mean", "most"),
    [
        ("1m", 60.0, 60.0, 60.0),
        ([10, 20, "30s"], 10.0, 20.0, 30.0),
        ({"uniform": {"min": 10, "max": "20s"}}, 10.0, 15.0, 20.0),
        ({"normal": {"mean": 50, "sigma": 5}}, 30.0, 50.0, 70.0),
        ({"exponential": {"mean": 20}}, 0.0, 20.0, 200.0),
        ({"lognormal": {"median": 10, "sigma": 0.5}}, 1.0, 11.3, 100.0),
    ],
)
def test_durations_are_distributed_as_the_document_says(
    distribution: Any, least: float, mean: float, most: float
) -> None:
    found = durations(distribution)
    assert least <= found["min"] <= found["max"] <= most
    assert found["mean"] == pytest.approx(mean, rel=0.15)


def test_a_duration_is_never_negative() -> None:
    assert durations({"normal": {"mean": 0, "sigma": 5}})["min"] == 0.0


def test_a_job_can_take_as_long_as_its_parameter_says() -> None:
    found = predict(document({"duration": {"param": "x"}}, params={"x": [3, 5]}))
    assert found.metrics["min"]["a-duration"] == 3.0
    assert found.makespan == 5.0


def test_a_parameter_that_an_action_gives_another_kind_of_value_ends_the_simulation() -> None:
    rule = {"trigger": "idle", "action": {"name": "submit", "label": "a", "params": {"x": ["q"]}}}
    with pytest.raises(SimulationError, match=r"group 'a': .* from parameter 'x'.*'q'"):
        predict(document({"duration": {"param": "x"}}, rule, params={"x": [3]}))


def test_a_seed_repeats_exactly_and_another_does_not() -> None:
    given = {"lognormal": {"median": 10, "sigma": 0.5}}
    assert durations(given, 50) == durations(given, 50)
    assert durations(given, 50) != durations(given, 50, seed=1)


def test_what_is_drawn_for_a_job_does_not_depend_on_the_cluster() -> None:
    given = document({"duration": {"exponential": {"mean": 5}}, "failure-rate": 0.3}, count=40)
    wide, narrow = predict(given, nodes=40), predict(given, nodes=1)
    assert wide.makespan < narrow.makespan
    assert outcomes(wide, "a") == outcomes(narrow, "a")
    assert wide.metrics["max"]["a-duration"] == pytest.approx(narrow.metrics["max"]["a-duration"])


def test_jobs_fail_at_the_rate_that_the_document_gives() -> None:
    found = predict(document({"duration": 1, "failure-rate": 0.2}, count=1000))
    success, failed, _, _ = outcomes(found, "a")
    assert success + failed == 1000
    assert 150 < failed < 250


def test_a_failed_job_is_tried_again_as_on_any_queue() -> None:
    found = predict(document({"duration": 1, "failure-rate": 1}, retries=2))
    assert outcomes(found, "a") == (0, 3, 0, 0)


def test_a_job_publishes_its_memo_before_it_finishes() -> None:
    rule = {"trigger": "job-memo", "group": "a", "when": "fom > 5", "action": {
        "name": "submit", "label": "b"}}  # fmt: skip
    found = predict(document({"duration": 2, "memo": {"fom": 6, "x": [1, 3]}}, rule))
    assert fired(found) == [(0.0, "rule-0"), (2.0, "rule-1")]
    assert found.metrics["mean"]["a-fom"] == 6.0


def test_a_job_starts_after_its_startup() -> None:
    found = predict(document({"duration": 2, "startup": 3}))
    assert found.metrics["mean"]["a-pending"] == 3.0
    assert found.makespan == 5.0


def test_a_job_that_reaches_its_limit_times_out_there() -> None:
    longest = {"name": "longest", "statistic": "max", "of": "finished"}
    given = document({"duration": [4, 20]}, count=10, duration=5)
    found = predict({**given, "metrics": [longest]})
    success, failed, canceled, timeout = outcomes(found, "a")
    assert success + timeout == 10
    assert timeout > 0 == failed + canceled
    assert found.metrics["longest"]["a-duration"] == 5.0


@pytest.mark.parametrize(("limit", "outcome"), [(8, (0, 0, 0, 1)), (30, (1, 0, 0, 0))])
def test_the_limit_of_a_running_job_can_change(limit: int, outcome: tuple[int, ...]) -> None:
    rule = {"trigger": "timer", "after": 5, "action": {
        "name": "update", "label": "a", "duration": limit}}  # fmt: skip
    assert outcomes(predict(document({"duration": 20}, rule, duration=10)), "a") == outcome


@pytest.mark.parametrize("event", ["submit", "alloc", "start", "finish", "clean"])
def test_jobs_can_be_cancelled_at_any_event_of_one_of_them(event: str) -> None:
    rule = {"trigger": f"job-{event}", "group": "a", "action": {"name": "cancel", "label": "a"}}
    found = predict(document({"duration": 1, "startup": 1}, rule, count=20), cores=1)
    success, failed, canceled, timeout = outcomes(found, "a")
    assert failed == timeout == 0
    assert success + canceled == 20
    assert canceled > 0


def test_a_recording_gives_the_durations_of_its_groups(tmp_path: Path) -> None:
    given = document({"duration": [7, 9]}, count=20)
    spec = load_mapping(given)
    recorder = Recorder(tmp_path / "earlier.jsonl", spec, given)
    predict(spec, tap=recorder)
    recorder.close()
    again = load_mapping(
        document({"duration": {"from-log": "earlier.jsonl"}}, count=20), directory=str(tmp_path)
    )
    found = predict(again)
    assert found.metrics["min"]["a-duration"] == 7.0
    assert found.metrics["max"]["a-duration"] == 9.0


def test_a_recording_without_a_group_is_of_no_use_to_it(tmp_path: Path) -> None:
    given = document()
    recorder = Recorder(tmp_path / "earlier.jsonl", load_mapping(given), given)
    recorder.close()
    again = load_mapping(
        document({"duration": {"from-log": "earlier.jsonl"}}), directory=str(tmp_path)
    )
    with pytest.raises(SimulationError, match="no job of group 'a' ended by itself"):
        resolve(again, again.simulate)
    (tmp_path / "earlier.jsonl").write_text("{}")
    with pytest.raises(RecordingError, match="not a recording"):
        resolve(again, again.simulate)


def test_a_recorded_simulation_replays(tmp_path: Path) -> None:
    given = document({"duration": [1, 2, 3], "failure-rate": 0.2}, count=30, retries=1)
    path = tmp_path / "simulated.jsonl"
    recorder = Recorder(path, load_mapping(given), given)
    predict(given, tap=recorder)
    recorder.close()
    assert replay(path).difference is None


RULES = st.lists(
    st.builds(
        lambda trigger, name, repetitions: {
            "trigger": trigger,
            "action": {"name": name, "label": "b", "repetitions": repetitions},
        },
        st.sampled_from(["job-start", "job-success", "job-fail", "job-clean", "idle"]),
        st.sampled_from(["submit", "cancel"]),
        st.integers(1, 4),
    ),
    max_size=4,
)


@given(RULES, st.integers(1, 12), st.integers(1, 3))
def test_the_invariants_of_the_engine_hold_after_every_event(
    rules: list[Any], count: int, nodes: int
) -> None:
    given = document({"duration": [1, 2, 5], "failure-rate": 0.3}, *rules, count=count, retries=1)
    spec = load_mapping(given)
    simulation: Simulation

    def check(event: Event, commands: list[Command]) -> None:
        simulation._engine.check()

    simulation = Simulation(spec, VirtualCluster(nodes, 2), spec.simulate, tap=check)
    found = simulation.run()
    assert found.status["state"] == "completed"
    json.dumps(asdict(found), allow_nan=False)


@pytest.mark.parametrize("key", ["nodes", "tasks", "cores", "gpus"])
def test_a_job_that_asks_for_a_thousand_million_of_anything_never_runs(key: str) -> None:
    action = {"name": "submit", "label": "b", "count": 3, key: "{1000000000 + job.index}"}
    many = {"trigger": "job-success", "group": "a", "action": action}
    found = predict(document(None, many))
    assert outcomes(found, "b") == (0, 3, 0, 0)
    assert any("jobs of group 'b' never run" in warning for warning in found.warnings)
