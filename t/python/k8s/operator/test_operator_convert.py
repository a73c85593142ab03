"""Ensembles of ensemble-operator, of both of its designs: converted, rendered, and run."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from crd_schema import Schema
from ensembles import CRDS, Bench, objects
from memory_api import MemoryApi
from standin import standin
from test_operator_app import operator, until

from flux_ensemble.cli.main import run_command
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.check import check
from flux_ensemble.k8s.operator.convert import NotConvertible, convert

pytest_plugins = ["operator_cluster"]

#: The fifteen of its history, by name.
HISTORY = {
    one["metadata"]["name"]: one
    for one in objects(Path(__file__).with_name("golden") / "predecessors.yaml")
}

#: How many jobs of each succeed.
JOBS = {
    "demand-1": 5, "demand-2": 5, "demand-3": 4, "demand-4": 3, "demand-5": 3, "demand-6": 3,
    "experiment-1": 3, "experiment-2": 3, "autoscale-1": 3, "autoscale-2": 6, "autoscale-3": 3,
    "autoscale-4": 5, "hello-world": 7, "grow-shrink-1": 7, "grow-shrink-2": 7,
}  # fmt: skip


def document(ensemble: dict[str, Any]) -> dict[str, Any]:
    """The document of the one member of a converted Ensemble."""
    (one,) = ensemble["spec"]["members"]
    content: dict[str, Any] = yaml.safe_load(one["ensemble"])
    return content


def test_there_are_fifteen() -> None:
    assert len(HISTORY) == 15
    assert HISTORY.keys() == JOBS.keys()


@pytest.mark.parametrize("name", HISTORY)
def test_each_ensemble_of_its_history_is_one_of_ours(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "theirs.yaml"
    source.write_text(yaml.safe_dump(HISTORY[name]))
    assert run_command(["operator", "convert", str(source)]) == 0
    said = capsys.readouterr()
    converted = yaml.safe_load(said.out)
    assert Schema(objects(CRDS[0])[0]).problems(converted, strict=True) == []
    (one,) = converted["spec"]["members"]
    assert check(converted, {one["name"]: one["ensemble"]}) == []
    (tmp_path / "ours.yaml").write_text(said.out)
    assert run_command(["operator", "render", str(tmp_path / "ours.yaml")]) == 0


def first(jobs: Any = None, options: Any = None, **member: Any) -> dict[str, Any]:
    """An Ensemble of the first design."""
    one = {
        "jobs": jobs or [{"name": "a", "command": "b", "count": 2, "nodes": 2, "tasks": 4}],
        "minicluster": {"spec": {"size": 2, "minSize": 1, "maxSize": 6, "containers": [{}]}},
        "algorithm": {"name": "workload-demand", "options": options or {}},
        **member,
    }
    return {
        "apiVersion": "ensemble.flux-framework.org/v1alpha1",
        "kind": "Ensemble",
        "metadata": {"name": "a"},
        "spec": {"members": [one]},
    }


def test_jobs_and_algorithm_become_a_document() -> None:
    converted, notes = convert(first())
    assert document(converted) == {
        "logging": {"heartbeat": "10s"},
        "scaling": {"min-nodes": 1, "max-nodes": 6},
        "jobs": [{"name": "a", "command": "b", "count": 2, "nodes": 2, "tasks": 4}],
        "use": [
            {
                "algorithm": "workload-demand",
                "order": "random",
                "scale-up": "next-job",
                "scale-down": "excess-nodes",
                "patience": "50s",
            }
        ],
    }
    assert notes == []


#: Options of the first design -> what is in the document, and the beginning of a note.
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "ascending": ({"order": "ascending"}, {"order": "ascending"}, ""),
    "as it is": ({"order": ""}, {"order": "given"}, ""),
    "an unknown order": ({"order": "oldest"}, {"order": "given"}, "order 'oldest' has no"),
    "the smallest": ({"scaleUpStrategy": "smallestJob"}, {"scale-up": "smallest-job"}, ""),
    "any": ({"scaleUpStrategy": "randomJob"}, {"scale-up": "next-job"}, "scaleUpStrategy 'random"),
    "excess": ({"scaleDownStrategy": "excessNodes"}, {"scale-down": "excess-nodes"}, ""),
    "checks": ({"scaleChecks": 3}, {"patience": "30s"}, ""),
    "other checks": ({"scaleUpChecks": "4"}, {"patience": "40s"}, "scaleUpChecks was never read"),
    "the end": ({"terminateChecks": 2}, {}, "terminateChecks has no counterpart"),
    "nobody knows": ({"color": "red"}, {}, "color is not known, and left out"),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_each_option_has_a_counterpart_or_a_sentence(what: str) -> None:
    options, expected, note = OPTIONS[what]
    converted, notes = convert(first(options=options))
    (use,) = document(converted)["use"]
    assert {key: use[key] for key in expected} == expected
    place = "spec.members[member-0].algorithm.options."
    assert [one.startswith(f"{place}{note}") for one in notes] == [True] * bool(note)


def test_what_is_not_to_terminate_stays() -> None:
    assert document(convert(first(options={"disableTermination": "yes"}))[0])["finish"] == "never"
    assert "finish" not in document(convert(first(options={"disableTermination": "no"}))[0])


def test_without_an_algorithm_it_is_that_of_the_ensemble_or_the_only_one() -> None:
    ensemble = first(algorithm=None)
    assert document(convert(ensemble)[0])["use"][0]["order"] == "random"
    ensemble["spec"]["algorithm"] = {"name": "workload-demand", "options": {"order": "descending"}}
    ensemble["spec"]["checkSeconds"] = 20
    converted = document(convert(ensemble)[0])
    assert converted["use"][0]["order"] == "descending"
    assert converted["use"][0]["patience"] == "100s"


def test_jobs_have_what_they_had_or_a_sentence() -> None:
    jobs = [
        {"name": "a", "command": "b", "nodes": 2, "workdir": "/x", "duration": 60, "color": "red"},
        {"name": "none", "command": "b", "count": 0},
    ]
    converted, notes = convert(first(jobs))
    assert document(converted)["jobs"] == [
        {"name": "a", "command": "b", "nodes": 2, "workdir": "/x", "duration": 60}
    ]
    assert len(notes) == 3
    assert "jobs[0] had as many tasks as a node has CPUs" in notes[0]
    assert "jobs[0].color is not known" in notes[1]
    assert "jobs[1] has no jobs" in notes[2]


def test_a_function_that_nobody_wrote_has_a_place_to_write_it() -> None:
    converted, notes = convert(HISTORY["autoscale-3"])
    assert "def echo_again(**kwargs):" in document(converted)["custom"]
    assert any("rules call echo_again" in note for note in notes)
    theirs = HISTORY["autoscale-4"]["spec"]["members"][0]["ensemble"]
    assert convert(HISTORY["autoscale-4"])[0]["spec"]["members"][0]["ensemble"] == theirs


#: What a member of the first design can have wrong.
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an algorithm that nobody knows": (
        first(algorithm={"name": "select-fastest-runtime"}),
        "algorithm.name: no algorithm named 'select-fastest-runtime' (ensemble-operator has only",
    ),
    "a misspelled one": (
        first(algorithm={"name": "workload-demnd"}),
        "algorithm.name: no algorithm named 'workload-demnd' (did you mean 'workload-demand'?",
    ),
    "an algorithm that is text": (first(algorithm="workload-demand"), "algorithm: expected a map"),
    "options in a list": (first(options=["order"]), "algorithm.options: expected a mapping"),
    "no number": (first(options={"scaleChecks": "many"}), "algorithm.options.scaleChecks: expect"),
    "a word": (first(options={"disableTermination": "maybe"}), "disableTermination: expected yes"),
    "jobs that are no list": (first({"a": "b"}), "jobs: expected a list"),
    "a job without a command": (first([{"name": "a"}]), "jobs[0]: expected a job with a name and"),
    "half a job": (first([{"name": "a", "command": "b", "count": 0.5}]), "jobs[0].count: expected"),
    "nothing at all": ({}, "apiVersion: expected"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_converted_is_refused_in_a_sentence(what: str) -> None:
    ensemble, sentence = WRONG[what]
    with pytest.raises(NotConvertible) as raised:
        convert(ensemble)
    assert sentence in str(raised.value)


def test_the_command_of_a_container_is_no_job() -> None:
    ensemble = first()
    del ensemble["spec"]["members"][0]["jobs"]
    with pytest.raises(NotConvertible, match="what a container runs is no job"):
        convert(ensemble)


def put(bench: Bench, name: str) -> None:
    converted, _ = convert(copy.deepcopy(HISTORY[name]))
    converted["metadata"]["namespace"] = "default"
    converted["spec"]["install"] = {"skip": True}
    bench.put(converted)


@pytest.mark.flux
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("flux") is None, reason="flux is not on PATH")
def test_all_fifteen_run(api: MemoryApi, bench: Bench, tmp_path: Path) -> None:
    """Three at a time, with real brokers."""
    waiting, under_way, ended = list(HISTORY), list[str](), dict[str, dict[str, Any]]()

    def look(name: str) -> bool:
        status = (bench.ensemble(name) or {}).get("status") or {}
        (one,) = status.get("members") or [{}]
        if name == "experiment-2" and status.get("phase") == "Running":
            # It stays, at its smallest size, when it has grown and its jobs have ended.
            grown = "Resized" in bench.events() and one["wanted"] == 1
            return grown and one["size"] == 1
        if status.get("phase") in ("Completed", "Failed", "Canceled", "Rejected"):
            ended[name] = status
            return True
        return False

    with operator(api, tmp_path), standin(api) as running:

        def step() -> bool:
            assert not running.errors, running.errors
            while waiting and len(under_way) < 3:
                under_way.append(waiting.pop(0))
                put(bench, under_way[-1])
            for name in [name for name in under_way if look(name)]:
                under_way.remove(name)
                bench.remove(names.API_VERSION, names.KIND, name)
            return not waiting and not under_way

        until(step, lambda: f"{under_way}, {waiting}\n{running.logs()}", 600)
        states = {name: status["phase"] for name, status in ended.items()}
        assert states == dict.fromkeys(HISTORY.keys() - {"experiment-2"}, "Completed")
        for name, status in ended.items():
            jobs = status["members"][0]["jobs"]
            assert (jobs["success"], jobs["failed"]) == (JOBS[name], 0), (name, running.logs())
