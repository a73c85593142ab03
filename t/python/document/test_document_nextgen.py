"""JobSpec NextGen: each task becomes what the package's Flux back end submits."""

from __future__ import annotations

import copy
import json
import subprocess
from typing import Any

import jobspec.core
import pytest
from jobspec.transformer.flux.workload import FluxWorkload

from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.loading import DocumentError, load_mapping

NEXTGEN: dict[str, Any] = {
    "version": 1,
    "requires": {"software": [{"name": "spack", "field": "type", "match": "package"}]},
    "resources": {
        "big": {
            "type": "node",
            "count": 4,
            "requires": [{"name": "system", "field": "cpu.target", "value": "amd64"}],
            "with": [{"type": "core", "count": 8}, {"type": "gpu", "count": 1}],
        },
        "whole-nodes": {"type": "node", "count": 2},
        "anywhere": {"type": "core", "count": 6},
        "slotted": {
            "type": "node",
            "replicas": 2,
            "with": [{"type": "slot", "count": 1, "with": [{"type": "core", "count": 4}]}],
        },
    },
    "tasks": [
        {"command": ["app", "a b"], "resources": "big", "requires": "software"},
        {"command": "app 'a b'", "resources": "whole-nodes"},
        {"command": ["app"], "resources": "anywhere", "replicas": 3},
        {"command": ["app"], "resources": "slotted"},
        {"name": "small", "command": ["app"]},
    ],
}


def jobsets(given: dict[str, Any], **entry: Any) -> tuple[JobSet, ...]:
    """The job sets of a group with a jobspec."""
    document = {"jobs": [{"name": "app", "jobspec": given, **entry}]}
    return load_mapping(document, name="test").groups["app"].sets


def task(task: dict[str, Any], **given: Any) -> dict[str, Any]:
    """A jobspec of one task."""
    return {"version": 1, "tasks": [{"command": "app", **task}], **given}


def refused(given: dict[str, Any], **entry: Any) -> list[str]:
    """What is said about a jobspec, each sentence from the path in the jobspec on."""
    with pytest.raises(DocumentError) as caught:
        jobsets(given, **entry)
    return [
        f"{problem.path.removeprefix('jobs[0].jobspec').lstrip('.')}: {problem.message}"
        for problem in caught.value.problems
    ]


@pytest.mark.flux
def test_each_task_is_what_the_packages_back_end_submits() -> None:
    workload = FluxWorkload()
    given = copy.deepcopy(NEXTGEN)
    # On this the back end of jobspec 0.1.15 raises AttributeError.
    del given["tasks"][0]["requires"]
    steps = workload.parse(jobspec.core.Jobspec(given))
    sets = jobsets(NEXTGEN)
    assert len(steps) == len(sets)
    for step, jobset in zip(steps, sets, strict=True):
        # A jobspec for each replica would be made.
        step.options["task"].pop("replicas", None)
        flux, submit, *arguments = step.generate_command()
        reply = subprocess.run(
            [flux, submit, "--dry-run", *arguments], capture_output=True, text=True, check=True
        )
        expected = json.loads(reply.stdout)
        assert jobset.jobspec is not None
        assert jobset.jobspec["resources"] == expected["resources"]
        assert jobset.jobspec["tasks"] == expected["tasks"]


def test_each_task_is_a_job_set_and_replicas_multiply_the_count() -> None:
    sets = jobsets(NEXTGEN, count=2)
    assert [jobset.index for jobset in sets] == [0, 1, 2, 3, 4]
    assert [jobset.count for jobset in sets] == [2, 2, 6, 2, 2]
    assert [jobset.command for jobset in sets[:3]] == [("app", "a b"), ("app", "a b"), ("app",)]
    assert [(jobset.nodes, jobset.tasks, jobset.gpus) for jobset in sets] == [
        (4, 8, 1),
        (2, 2, 0),
        (1, 6, 0),
        (2, 4, 0),
        (1, 1, 0),
    ]


def test_a_script_is_run_by_its_interpreter() -> None:
    (jobset,) = jobsets(task({"command": "#!/bin/bash\necho a\necho b\n"}))
    assert jobset.command == ("bash", "-c", "#!/bin/bash\necho a\necho b")


def test_attributes_of_the_task_go_over_those_of_its_resources_and_the_jobspecs() -> None:
    (jobset,) = jobsets(
        task(
            {
                "resources": "one",
                "attributes": {"duration": "5m", "environment": {"C": 3}},
            },
            resources={
                "one": {
                    "type": "node",
                    "count": 1,
                    "attributes": {"duration": 7, "cwd": "/two", "environment": {"B": True}},
                }
            },
            attributes={"duration": 9, "cwd": "/one", "environment": {"A": "a", "B": "b"}},
        )
    )
    assert jobset.duration == 300.0
    assert jobset.workdir == "/two"
    assert jobset.environment == {"A": "a", "B": "true", "C": "3"}


def test_what_the_group_says_goes_over_the_jobspec() -> None:
    (jobset,) = jobsets(
        task({"attributes": {"duration": 9, "cwd": "/one", "environment": {"A": 1, "B": 2}}}),
        duration=3,
        workdir="/mine",
        environment={"B": 3},
        retries=2,
        queue="q",
    )
    assert (jobset.duration, jobset.workdir, jobset.queue) == (3.0, "/mine", "q")
    assert jobset.retries.times == 2
    assert jobset.environment == {"A": "1", "B": "3"}


def test_more_nodes_than_cores_is_a_task_on_each_node() -> None:
    resources = {"one": {"type": "node", "count": 4, "with": [{"type": "core", "count": 2}]}}
    (jobset,) = jobsets(task({"resources": "one"}, resources=resources))
    assert (jobset.nodes, jobset.tasks) == (4, 4)


SUPPORTED = "is not supported (supported: tasks with a command, and their resources and attributes)"


@pytest.mark.parametrize(
    ("given", "sentences"),
    [
        (
            {"version": 1, "groups": [{"name": "a", "tasks": [{"command": "x"}]}]},
            [f"groups: groups (batch jobs) {SUPPORTED.replace('is not', 'are not')}"],
        ),
        (task({"steps": [{"name": "stage"}]}), [f"tasks[0].steps: a task of steps {SUPPORTED}"]),
        (
            task({"depends_on": ["b"]}),
            [f"tasks[0].depends_on: a dependency between tasks {SUPPORTED}"],
        ),
        (task({"local": True}), [f"tasks[0].local: a task that is not a job {SUPPORTED}"]),
        (
            {"version": 1, "tasks": [{"group": "a"}]},
            [f"tasks[0].group: a reference to a group of tasks (a batch job) {SUPPORTED}"],
        ),
        ({"version": 1}, [": expected at least one task with a command"]),
        ({"version": 1, "tasks": []}, [": expected at least one task with a command"]),
        ({"version": 1, "tasks": [{"name": "a"}]}, ["tasks[0]: the key 'command' is missing"]),
        ({"tasks": [{"command": "a"}]}, [": the key 'version' is missing"]),
        (task({}, version=2), ["version: 2 is not one of [1]"]),
        (task({"command": 3}), ["tasks[0].command: 3 is not of type 'string', 'array'"]),
        (task({"command": " "}), ["tasks[0].command: expected a command of at least one word"]),
        (
            task({"command": "'a"}),
            ['tasks[0].command: bad quotes in "\'a": no closing quotation'],
        ),
        (
            task({"replicas": 1.5}),
            ["tasks[0].replicas: expected an integer >= 1, not 1.5"],
        ),
        (
            task({"resources": "two"}),
            ["tasks[0].resources: asked for resources 'two' that are not known"],
        ),
        (
            task({"resources": "a|b"}),
            ["tasks[0].resources: asking for an OR in resources is not supported yet"],
        ),
        (
            task({"resources": {"type": "node", "count": 1}}),
            ["tasks[0].resources: {'type': 'node', 'count': 1} is not of type 'string'"],
        ),
        (
            task({"resources": "one"}, resources={"one": {"type": "cores", "count": 1}}),
            [
                "resources.one.type: expected a type of resource, not 'cores' "
                "(did you mean 'core'? one of: node, slot, core, gpu)"
            ],
        ),
        (
            task({"resources": "a-b"}, resources={"a-b": 3}),
            ["resources.a-b: expected a mapping, not 3"],
        ),
        (
            task({"resources": "a-b"}, resources={"a-b": {"type": "node"}}),
            ["resources.a-b: the key 'count' is missing"],
        ),
        (
            task({"resources": "a-b"}, resources={"a-b": {"type": "node", "count": 0}}),
            ["resources.a-b.count: expected an integer >= 1, not 0"],
        ),
        (
            task({"resources": "a-b"}, resources={"a-b": {"type": "slot", "count": 2}}),
            ["resources.a-b.count: more than one slot is not supported"],
        ),
        (
            task(
                {"resources": "a-b"},
                resources={"a-b": {"type": "node", "count": 1, "with": {"type": "core"}}},
            ),
            ["resources.a-b.with: expected a list of resources, not a mapping with 1 key"],
        ),
        (
            task({"attributes": {"watch": True, "duration": "soon", "cwd": 3}}),
            [
                "tasks[0].attributes.watch: unknown key 'watch' (keys: duration, cwd, environment)",
                "tasks[0].attributes.duration: expected a duration (seconds, or text such as "
                "'30s', '1.5h' or '100ms'), not 'soon'",
                "tasks[0].attributes.cwd: expected text, not 3",
            ],
        ),
        (
            task({"attributes": {"environment": {"A": None}}}),
            [
                "tasks[0].attributes.environment.A: expected text, a number, true or false, not "
                "null (put it in quotes if the text is meant)"
            ],
        ),
    ],
)
def test_what_is_not_supported_or_wrong_is_refused(
    given: dict[str, Any], sentences: list[str]
) -> None:
    assert refused(given) == sentences


def test_a_name_of_resources_that_is_slow_to_match_is_not() -> None:
    resources = {"0" * 5000 + "!": {"type": "node", "count": 1}}
    assert len(jobsets(task({}, resources=resources))) == 1
