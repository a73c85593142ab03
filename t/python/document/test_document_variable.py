"""Sizes of jobs that a parameter gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from play import Play, on_start
from simulations import predict

from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text


def group(**entry: Any) -> Group:
    """A group with such an entry."""
    return load_mapping({"jobs": [{"name": "a", "command": "app", **entry}]}, name="t").groups["a"]


def test_every_job_has_its_own_sizes() -> None:
    made = group(
        params={"n": [1, 4], "m": [5]},
        nodes="{n}",
        tasks="1{n}",
        cores="{m}",
        gpus="{n}",
        duration="{n}m",
        urgency="{m}",
    )
    sizes = [
        (job.nodes, job.tasks, job.cores, job.gpus, job.duration, job.urgency)
        for job, _ in made.submission()
    ]
    assert sizes == [(1, 11, 5, 1, 60.0, 5), (4, 14, 5, 4, 240.0, 5)]


def test_tasks_are_at_least_the_nodes_of_each_job() -> None:
    assert [
        job.tasks for job, _ in group(params={"n": [1, 4]}, nodes="{n}").submission()
    ] == [1, 4]  # fmt: skip
    made = group(params={"n": [1, 4]}, nodes="{n}", tasks=2)
    assert [job.tasks for job, _ in made.submission()] == [2, 4]


def test_steps_that_are_whole_numbers_are_integers() -> None:
    made = group(params={"n": {"logspace": [0, 2, 3]}}, tasks="{n}")
    assert [job.tasks for job, _ in made.submission()] == [1, 10, 100]


def test_duration_and_urgency_go_with_a_jobspec() -> None:
    spec = {
        "version": 1,
        "resources": [{"type": "slot", "count": 1, "label": "task",
                       "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": ["app"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 5}},
    }  # fmt: skip
    jobs = [{"name": "a", "jobspec": spec, "duration": "{t}s", "params": {"t": [1, 2]}}]
    made = load_mapping({"jobs": jobs}, name="t").groups["a"]
    assert [job.duration for job, _ in made.submission()] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("tasks: four",
         "tasks: expected a number, or text with a parameter such as '{n}', not 'four'"),
        ("tasks: '{n}{m}', params: {n: 1, m: 2}",
         "tasks: expected text with one parameter such as '{n}', not '{n}{m}'"),
        ("tasks: '{nn}', params: {n: [1]}",
         "tasks: '{nn}' names no parameter of the entry (did you mean 'n'? parameters: n)"),
        ("tasks: '{n}'", "tasks: '{n}' names no parameter of the entry (parameters: none)"),
        ("tasks: '{n}', params: {n: [1, many]}",
         "tasks: expected an integer >= 1, not 'many', which is a value of the parameter 'n'"),
        ("cores: '{n}', params: {n: {range: [0, 1000000000]}}",
         "cores: expected an integer >= 1, not '0', which is a value of the parameter 'n'"),
        ("cores: '{n}', params: {n: {range: [5, -1000000000, -1]}}",
         "cores: expected an integer >= 1, not '-999999999', "
         "which is a value of the parameter 'n'"),
        ("cores: '{n}', params: {n: {range: [1.0, 9.0, 0.5]}}",
         "cores: expected an integer >= 1, not '1.5', which is a value of the parameter 'n'"),
        ("urgency: '{n}', params: {n: [32]}",
         "urgency: expected an integer >= 0 and <= 31, not '32', "
         "which is a value of the parameter 'n'"),
        ("duration: '{n}m', params: {n: [1, x]}",
         "duration: expected a duration (seconds, or text such as '30s', '1.5h' or '100ms'), "
         "not 'xm', with 'x' for the parameter 'n'"),
    ],
)  # fmt: skip
def test_values_that_are_no_sizes_are_refused_when_the_document_is_read(
    entry: str, sentence: str
) -> None:
    with pytest.raises(DocumentError) as caught:
        load_text(f"jobs:\n  - {{name: a, command: x, {entry}}}\n", name="t", file="d.yaml")
    assert str(caught.value) == f"d.yaml:2: jobs[0].{sentence}"


def test_sizes_of_a_jobspec_are_its_own() -> None:
    text = "jobs: [{name: a, jobspec: none.yaml, tasks: '{n}', params: {n: 1}}]"
    with pytest.raises(DocumentError, match="'tasks' cannot be combined with 'jobspec'"):
        load_text(text, name="t")


def test_an_override_that_is_no_size_is_refused() -> None:
    made = group(params={"n": [1, 4]}, tasks="{n}")
    assert [job.tasks for job, _ in made.submission(params={"n": [8]})] == [8]
    with pytest.raises(ValueError, match="expected an integer >= 1, not '0', which is a value"):
        made.submission(params={"n": [0]})


def test_many_job_sets_with_the_values_of_a_file_are_quick_to_check(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("n\n" + "3\n" * 100_000)
    entry = {"command": "x", "tasks": "{n}", "params": {"n": {"file": "points.csv"}}}
    jobs = [{"name": f"a{index}", **entry} for index in range(1000)]
    load_mapping({"jobs": jobs}, name="t", directory=str(tmp_path))


def test_the_nodes_that_jobs_wait_for_are_each_jobs_own() -> None:
    job = {"name": "a", "command": "x", "nodes": "{n}", "params": {"n": [1, 4]}}
    play = Play({"name": "t", "jobs": [job], "rules": [on_start()]})
    play.event(1, "submit")
    play.event(2, "submit")
    assert play.engine.stats.pending_nodes == 5
    play.event(1, "validate")
    play.event(1, "start")
    assert play.engine.stats.pending_nodes == 4


def test_the_simulator_gives_each_job_what_it_asks_for() -> None:
    document = {
        "name": "t",
        "jobs": [{"name": "a", "command": "x", "nodes": "{n}", "params": {"n": [1, 2, 4]}}],
        "rules": [on_start()],
        "simulate": {"a": {"duration": 10}},
    }
    # 1 and 2 nodes side by side, then 4.
    assert predict(document, nodes=4).makespan == 20.0
    assert predict(document, nodes=7).makespan == 10.0


def test_the_simulator_ends_each_job_at_its_own_limit() -> None:
    document = {
        "name": "t",
        "jobs": [{"name": "a", "command": "x", "duration": "{m}m", "params": {"m": [1, 2]}}],
        "rules": [on_start()],
        "simulate": {"a": {"duration": 90}},
    }
    counts = predict(document, nodes=2).metrics["count"]["a"]
    assert (counts["timeout"], counts["success"]) == (1, 1)
