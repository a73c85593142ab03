"""Jobspecs: the shape that Flux gives them, substitution, and jobspecs of the document."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.jobspec import anchored, build
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text

TAG = {"name": "test", "group": "app", "rule": "rule-0", "firing": 0, "index": 3, "run": 17}
V1: dict[str, Any] = {
    "version": 1,
    "resources": [
        {
            "type": "node",
            "count": 4,
            "with": [
                {
                    "type": "slot",
                    "count": 2,
                    "label": "task",
                    "with": [{"type": "core", "count": 3}, {"type": "gpu", "count": 1}],
                }
            ],
        }
    ],
    "tasks": [{"command": ["app", "{x}"], "slot": "task", "count": {"per_slot": 1}}],
    "attributes": {
        "system": {
            "duration": 60,
            "cwd": "/theirs",
            "environment": {"HOME": "/theirs"},
            "shell": {"options": {"verbose": 1}},
            "job": {"name": "theirs"},
        },
        "user": {"note": "x"},
    },
}


def jobsets(**entry: Any) -> tuple[JobSet, ...]:
    """The job sets of an entry of `jobs:`."""
    name = entry.setdefault("name", "app")
    return load_mapping({"jobs": [entry]}, name="test").groups[name].sets


def made(values: dict[str, Any] | None = None, /, **entry: Any) -> dict[str, Any]:
    """The jobspec of the first job set of an entry of `jobs:`."""
    if "jobspec" not in entry:
        entry.setdefault("command", "app")
    environment = {"HOME": "/home/user", "PATH": "/bin"}
    return build(
        jobsets(**entry)[0], values or {}, environment=environment, cwd="/home/user", tag=TAG
    )


def test_a_jobspec_has_what_the_group_and_the_user_say() -> None:
    assert made(command="app --n 3", duration="1.5h") == {
        "version": 1,
        "resources": [
            {
                "type": "node",
                "count": 1,
                "with": [
                    {
                        "type": "slot",
                        "count": 1,
                        "label": "task",
                        "with": [{"type": "core", "count": 1}],
                    }
                ],
            }
        ],
        "tasks": [{"command": ["app", "--n", "3"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {
            "system": {
                "duration": 5400.0,
                "cwd": "/home/user",
                "environment": {"HOME": "/home/user", "PATH": "/bin"},
                "job": {"name": "app"},
            },
            "user": {"ensemble": TAG},
        },
    }


SHAPES = [
    {"nodes": nodes, "tasks": tasks, "cores": cores, "gpus": gpus, "exclusive": exclusive}
    for nodes, tasks in ((1, 1), (1, 7), (4, 4), (4, 8), (3, 8), (5, 6))
    for cores, gpus in ((1, 0), (3, 2))
    for exclusive in (False, True)
]

FROM_COMMAND = """
import json, sys
from flux.job import JobspecV1
made = [
    JobspecV1.from_command(
        ["app", "a b"], num_tasks=one["tasks"], cores_per_task=one["cores"],
        gpus_per_task=one["gpus"], num_nodes=one["nodes"], exclusive=one["exclusive"],
        duration="90s", environment={"A": "b"}, cwd="/c", name="app", output="o-{{id}}",
        error="e", queue="q", bank="k",
    ).jobspec
    for one in json.load(sys.stdin)
]
json.dump(made, sys.stdout)
"""


@pytest.mark.flux
def test_jobspecs_are_those_of_fluxs_from_command() -> None:
    reply = subprocess.run(
        ["flux", "python", "-c", FROM_COMMAND],
        input=json.dumps(SHAPES),
        capture_output=True,
        text=True,
        check=True,
    )
    for shape, expected in zip(SHAPES, json.loads(reply.stdout), strict=True):
        (jobset,) = jobsets(
            command=["app", "a b"],
            duration="90s",
            output="o-{{id}}",
            error="e",
            queue="q",
            bank="k",
            **shape,
        )
        found = build(jobset, {}, environment={"A": "b"}, cwd="/c", tag=TAG)
        assert found["attributes"].pop("user") == {"ensemble": TAG}
        assert found == expected


@pytest.mark.flux
def test_flux_accepts_the_jobspecs() -> None:
    check = "import sys; from flux.job import validate_jobspec; validate_jobspec(sys.stdin.read())"
    for entry in (
        {"command": "app", "attributes": {"system": {"constraints": {"properties": ["x"]}}}},
        {"jobspec": V1, "params": {"x": [1]}},
        {"jobspec": {"version": 1, "tasks": [{"command": "app"}]}},
    ):
        subprocess.run(
            ["flux", "python", "-c", check], input=json.dumps(made(**entry)), text=True, check=True
        )


def test_tasks_are_raised_to_the_number_of_nodes() -> None:
    (jobset,) = jobsets(command="app", nodes=4, tasks=2)
    assert (jobset.nodes, jobset.tasks) == (4, 4)
    (jobset,) = jobsets(command="app", nodes=4)
    assert jobset.tasks == 4


def test_output_and_error_are_files_in_the_shells_options() -> None:
    system = made(output="out-{{id}}.txt", error="kvs")["attributes"]["system"]
    assert system["shell"] == {
        "options": {"output": {"stdout": {"type": "file", "path": "out-{{id}}.txt"}}}
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("out.txt", "/home/user/runs/out.txt"),
        ("a/../out.txt", "/home/user/runs/a/../out.txt"),
        ("{{id}}.txt", "/home/user/runs/{{id}}.txt"),
        ("{{name}}/{{id.f58}}", "/home/user/runs/{{name}}/{{id.f58}}"),
        ("{{node.broker_rank}}/out", "/home/user/runs/{{node.broker_rank}}/out"),
        ("{{", "{{"),
        ("/scratch/{{id}}", "/scratch/{{id}}"),
        # What Flux puts there is absolute, or may be.
        ("{{tmpdir}}/out", "{{tmpdir}}/out"),
        ("{{ours}}/out", "{{ours}}/out"),
    ],
)
def test_an_output_file_is_anchored_in_the_working_directory(path: str, expected: str) -> None:
    given = made(workdir="runs", output=path, error="/e")
    before = json.dumps(given)
    output = anchored(given)["attributes"]["system"]["shell"]["options"]["output"]
    assert output == {
        "stdout": {"type": "file", "path": expected},
        "stderr": {"type": "file", "path": "/e"},
    }
    assert json.dumps(given) == before


def test_an_output_file_of_a_jobspec_is_anchored_in_its_own_directory() -> None:
    shell = {"options": {"output": {"stdout": {"type": "file", "path": "o", "label": True},
                                    "stderr": {"type": "kvs"}, "mode": "append"}}}  # fmt: skip
    for cwd, path in (("/theirs", "/theirs/o"), ("theirs", "o")):
        system = {"cwd": cwd, "shell": shell}
        jobspec = anchored(made(jobspec={**V1, "attributes": {"system": system}}))
        options = jobspec["attributes"]["system"]["shell"]["options"]["output"]
        assert options["stdout"] == {"type": "file", "path": path, "label": True}
        assert options["stderr"] == {"type": "kvs"}
        assert options["mode"] == "append"


@pytest.mark.parametrize("shell", [{}, {"options": {}}, {"options": {"output": 3}},
                                   {"options": {"output": {"stdout": None}}}])  # fmt: skip
def test_a_jobspec_without_output_files_is_as_it_was(shell: Any) -> None:
    given = made(attributes={"system": {"shell": shell}})
    assert anchored(given) is given


def test_a_relative_workdir_is_relative_to_the_users_directory() -> None:
    assert made(workdir="runs/a")["attributes"]["system"]["cwd"] == "/home/user/runs/a"
    assert made(workdir="/scratch")["attributes"]["system"]["cwd"] == "/scratch"


def test_the_environment_is_added_to_the_users() -> None:
    environment = made(environment={"PATH": "/opt", "N": 3, "ON": True, "X": 0.5})
    assert environment["attributes"]["system"]["environment"] == {
        "HOME": "/home/user",
        "PATH": "/opt",
        "N": "3",
        "ON": "true",
        "X": "0.5",
    }


def test_numbers_in_a_command_and_an_environment_stay_as_they_are_written() -> None:
    text = "jobs: [{name: a, command: [x, 010, 1.50, yes, 1e3], environment: {A: 0.10, B: no}}]"
    (jobset,) = load_text(text, name="test").groups["a"].sets
    assert jobset.command == ("x", "010", "1.50", "yes", "1e3")
    assert jobset.environment == {"A": "0.10", "B": "no"}


def test_attributes_are_merged_over_the_rest_key_by_key() -> None:
    attributes = {
        "system": {"job": {"x": 1}, "shell": {"options": {"verbose": 2}}, "bank": "b"},
        "user": {"note": {"a": [1]}},
    }
    found = made(attributes=attributes, output="o")["attributes"]
    assert found["user"] == {"note": {"a": [1]}, "ensemble": TAG}
    assert found["system"]["job"] == {"name": "app", "x": 1}
    assert found["system"]["bank"] == "b"
    assert found["system"]["shell"]["options"] == {
        "output": {"stdout": {"type": "file", "path": "o"}},
        "verbose": 2,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{x}", "7"),
        ("-n{x}-{y}", "-n7-a b"),
        ("{on}/{f}", "true/0.5"),
        ("{{x}}", "{{x}}"),
        ("{{{x}}}", "{{{x}}}"),
        ("{{id}}", "{{id}}"),
        ("${x}", "${x}"),
        ("$x", "$x"),
        ("{z}", "{z}"),
        ("{}", "{}"),
        ("{x:3}", "{x:3}"),
        ('{"a":{x}}', '{"a":7}'),
        ("{{x},{y}}", "{7,a b}"),
        ("{ x }", "{ x }"),
    ],
)
def test_declared_parameters_are_replaced_and_other_braces_are_not(
    text: str, expected: str
) -> None:
    params = {"x": 7, "y": "a b", "on": True, "f": 0.5}
    found = made(
        params,
        command=["app", text],
        workdir=f"/w/{text}",
        environment={"V": text},
        output=text,
        error=text,
        params=params,
    )
    system = found["attributes"]["system"]
    assert found["tasks"][0]["command"] == ["app", expected]
    assert system["cwd"] == f"/w/{expected}"
    assert system["environment"]["V"] == expected
    assert system["shell"]["options"]["output"]["stdout"]["path"] == expected
    assert system["shell"]["options"]["output"]["stderr"]["path"] == expected


def test_a_value_is_not_split_into_words() -> None:
    found = made({"y": "a b"}, command="app {y}", params={"y": ["a b"]})
    assert found["tasks"][0]["command"] == ["app", "a b"]


def test_a_jobspec_of_the_document_keeps_what_it_says() -> None:
    found = made({"x": 3}, jobspec=V1, params={"x": [3]})
    assert found["resources"] == V1["resources"]
    assert found["tasks"][0]["command"] == ["app", "3"]
    assert found["attributes"]["user"] == {"note": "x", "ensemble": TAG}
    assert found["attributes"]["system"] == {
        **V1["attributes"]["system"],
        "environment": {"HOME": "/theirs", "FLUX_ENSEMBLE_PARAMS": '{"x": 3}'},
        "job": {"name": "app"},
    }
    assert V1["tasks"][0]["command"] == ["app", "{x}"]


def test_what_the_group_says_goes_over_a_jobspec() -> None:
    system = made(
        jobspec=V1,
        duration=5,
        workdir="mine",
        environment={"A": 1},
        output="o",
        queue="q",
        bank="k",
        attributes={"system": {"shell": {"options": {"verbose": 2}}}},
    )["attributes"]["system"]
    assert system == {
        "duration": 5.0,
        "cwd": "/home/user/mine",
        "environment": {"HOME": "/theirs", "A": "1"},
        "job": {"name": "app"},
        "queue": "q",
        "bank": "k",
        "shell": {"options": {"verbose": 2, "output": {"stdout": {"type": "file", "path": "o"}}}},
    }


def test_a_jobspec_without_attributes_gets_them() -> None:
    plain = {key: V1[key] for key in ("version", "resources", "tasks")}
    assert made(jobspec=plain)["attributes"] == {
        "system": {
            "duration": 0.0,
            "cwd": "/home/user",
            "environment": {"HOME": "/home/user", "PATH": "/bin"},
            "job": {"name": "app"},
        },
        "user": {"ensemble": TAG},
    }


def test_a_job_set_knows_the_size_of_its_jobspec() -> None:
    (jobset,) = jobsets(jobspec=V1)
    assert jobset.command == ("app", "{x}")
    assert (jobset.nodes, jobset.tasks, jobset.cores, jobset.gpus) == (4, 8, 3, 1)
    total = {**V1, "tasks": [{**V1["tasks"][0], "count": {"total": 5}}]}
    (jobset,) = jobsets(jobspec=total)
    assert jobset.tasks == 5


@pytest.mark.parametrize("file", ["app.yaml", "app.json"])
def test_a_jobspec_can_be_a_file_beside_the_document(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text(json.dumps(V1, indent="\t" if file.endswith("json") else 2))
    text = f"jobs: [{{name: a, jobspec: {file}}}]"
    (jobset,) = load_text(text, name="test", directory=str(tmp_path)).groups["a"].sets
    assert jobset.jobspec == V1


def refused(text: str, directory: str = ".") -> list[str]:
    with pytest.raises(DocumentError) as caught:
        load_text(text, name="test", file="d.yaml", directory=directory)
    return str(caught.value).splitlines()


def test_a_jobspec_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("version: 1\ntasks: [\n")
    (tmp_path / "twice.yaml").write_text("version: 1\ntasks: [{command: x}]\nversion: 1\n")
    (tmp_path / "list.yaml").write_text("[1]\n")
    (tmp_path / "inf.yaml").write_text("version: .inf\n")
    (tmp_path / "latin.yaml").write_bytes(b"\xe9\n")
    names = ("none.yaml", "bad.yaml", "twice.yaml", "list.yaml", "inf.yaml", "latin.yaml", ".")
    text = "jobs:\n" + "".join(f"  - {{name: a, jobspec: {name}}}\n" for name in names)
    assert refused(text, str(tmp_path)) == [
        "d.yaml:2: jobs[0].jobspec: cannot read 'none.yaml': No such file or directory",
        "d.yaml:3: jobs[1].jobspec: bad.yaml:2: malformed YAML: did not find expected node content",
        "d.yaml:4: jobs[2].jobspec: twice.yaml:3: version: duplicate key 'version' "
        "(first on line 1)",
        "d.yaml:5: jobs[3].jobspec: expected a jobspec in 'list.yaml', not a list with 1 item",
        "d.yaml:6: jobs[4].jobspec.version: expected a finite number, not inf",
        "d.yaml:7: jobs[5].jobspec: cannot read 'latin.yaml': it is not UTF-8 text",
        "d.yaml:8: jobs[6].jobspec: expected a file with a jobspec, and '.' is none",
    ]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("version: 1", "version: 2", "version: expected version 1, not 2"),
        ("count: 4", "count: 0", "resources[0].count: expected an integer >= 1, not 0"),
        ("count: 4", "count: '4'",
         "resources[0].count: expected an integer >= 0, not '4' (write 4)"),
        ("count: 4", "number: 4", "resources[0]: the key 'count' is missing"),
        ("type: node", "type: rack", "resources[0].type: expected a type of resource, not 'rack' "
         "(one of: node, slot, core, gpu)"),
        ("label: task", "name: task", "resources[0].with[0]: the key 'label' is missing"),
        ("slot: task", "slot: default", "tasks[0].slot: no slot labeled 'default' (slots: task)"),
        ("command: [app]", "command: app",
         "tasks[0].command: expected a command as a list of words, not 'app'"),
        ("command: [app]", "command: []",
         "tasks[0].command: expected a command as a list of words, not a list with 0 items"),
        ("{per_slot: 1}", "{per_core: 1}", "tasks[0].count.per_core: unknown key 'per_core' "
         "(keys: per_slot, total)"),
        ("{per_slot: 1}", "{}", "tasks[0].count: expected a mapping with one of per_slot and "
         "total, not a mapping with 0 keys"),
        ("duration: 0", "duration: 1h",
         "attributes.system.duration: expected a number of seconds, not '1h'"),
        ("system: {duration: 0}", "sytem: {}", "attributes.sytem: unknown key 'sytem' "
         "(did you mean 'system'? keys: system, user)"),
        ("tasks:", "task:", "task: unknown key 'task' (did you mean 'tasks'? keys: version, "
         "resources, tasks, attributes)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_jobspec(old: str, new: str, sentence: str) -> None:
    text = """\
jobs:
  - name: a
    jobspec:
      version: 1
      resources:
        - type: node
          count: 4
          with:
            - {type: slot, count: 1, label: task, with: [{type: core, count: 1}]}
      tasks: [{command: [app], slot: task, count: {per_slot: 1}}]
      attributes: {system: {duration: 0}}
"""
    load_text(text, name="test")
    sentences = refused(text.replace(old, new, 1))
    assert f"jobs[0].jobspec.{sentence}" in [one.split(": ", 1)[1] for one in sentences]
