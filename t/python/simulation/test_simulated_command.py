"""The command simulate: what it prints, what it refuses, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flux_ensemble.cli.main import run_command

DOCUMENT = """\
jobs:
  - {name: a, command: x, count: 6}
  - {name: b, command: y}
rules:
  - trigger: start
    action: {name: submit, label: a}
  - trigger: job-fail
    action: {name: submit, label: b}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A document in the current directory."""
    monkeypatch.chdir(tmp_path)
    return write(DOCUMENT)


def write(text: str) -> str:
    Path("ensemble.yaml").write_text(text)
    return "ensemble.yaml"


def errors(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The errors that were printed, without the command's name."""
    mark = "flux-ensemble: ERROR: "
    lines = capsys.readouterr().err.splitlines()
    return [line.removeprefix(mark) for line in lines if line.startswith(mark)]


def test_json_has_the_whole_prediction(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["simulate", "--json", "--cores", "1", "--duration", "a=10s", file]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["makespan"] == 20.0
    assert found["status"]["groups"]["a"]["success"] == 6
    assert [entry["name"] for entry in found["first"]] == ["fire", "finish"]
    assert found["warnings"] == ["rule that never fired: rule-1"]


def test_a_seed_repeats_the_output_byte_for_byte(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["simulate", "--json", "--duration", "a={exponential: {mean: 9}}", file]
    outputs = []
    for seed in ("1", "1", "2"):
        assert run_command([*arguments, "--seed", seed]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]


def test_it_ends_with_124_when_the_time_is_up(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["simulate", "--json", "--until", "0.5", file]) == 124
    assert json.loads(capsys.readouterr().out)["timed_out"]


def test_it_ends_with_1_when_the_ensemble_fails(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["simulate", "--json", write(DOCUMENT + "limits: {jobs: 5}\n")]) == 1
    assert json.loads(capsys.readouterr().out)["status"]["state"] == "failed"


def test_it_ends_with_0_where_only_requests_are_missing_and_with_1_where_jobs_wait(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    never = DOCUMENT + "finish: never\n"
    assert run_command(["simulate", "--json", write(never)]) == 0
    held = never.replace("command: x", "command: x, urgency: 0")
    assert run_command(["simulate", "--json", write(held)]) == 1


def test_a_simulation_can_be_recorded_and_replayed(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["simulate", "--json", "--record", "run.jsonl", file]) == 0
    assert run_command(["replay", "run.jsonl"]) == 0
    assert run_command(["simulate", "--json", "--from-log", "run.jsonl", file]) == 0
    warnings = json.loads(capsys.readouterr().out.splitlines()[-1])["warnings"]
    assert warnings == ["rule that never fired: rule-1"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--nodes", "0"], "'--nodes': 0 is not in the range"),
        (["--cores", "-1"], "'--cores': -1 is not in the range"),
        (["--gpus", "-1"], "'--gpus': -1 is not in the range"),
        (["--until", "-5"], "'--until': expected a duration"),
        (["--until", "nan"], "'--until': expected a duration"),
        (["--duration", "c=5"], "--duration: no job group named 'c' (groups: a, b)"),
        (["--duration", "a=-5"], "--duration: a: duration: expected a duration, a list"),
        (["--duration", "a=.nan"], "--duration: a: duration: expected a finite number, not nan"),
        (["--duration", "a=5 parsecs"], "--duration: a: duration: expected a duration"),
        (["--duration", "a"], "expected key=value, not 'a'"),
        (["--duration", "a={param: x}"], "group 'a' has no parameter 'x' (parameters: none)"),
        (["--from-log", "none.jsonl"], "none.jsonl: No such file or directory"),
        (["--from-log", "ensemble.yaml"], "ensemble.yaml: not a recording"),
        (["--record", "no/where"], "no/where: No such file or directory"),
    ],
)
def test_a_bad_option_is_refused_in_a_sentence(
    arguments: list[str], error: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["simulate", *arguments, file]) == 2
    (found,) = errors(capsys)
    assert error in found


@pytest.mark.parametrize(
    ("section", "error"),
    [
        ("c: {duration: 1}", "simulate.c: no job group named 'c' (groups: a, b)"),
        ("a: 5", "simulate.a: expected a mapping such as {duration: 30s, failure-rate: 0.01}"),
        ("a: {durations: 1}", "simulate.a.durations: unknown key 'durations' (did you mean"),
        ("a: {duration: -1}", "simulate.a.duration: expected a duration, a list of these"),
        ("a: {duration: .nan}", "simulate.a.duration: expected a finite number, not nan"),
        ("a: {duration: soon}", "simulate.a.duration: expected a duration (seconds, or text"),
        ("a: {duration: inf}", "simulate.a.duration: expected a duration (seconds, or text"),
        ("a: {duration: []}", "simulate.a.duration: expected a duration, a list of these"),
        ("a: {duration: [1, -2]}", "simulate.a.duration[1]: expected a duration"),
        ("a: {duration: {}}", "simulate.a.duration: expected a duration, a list of these"),
        ("a: {duration: {gamma: 1}}", "simulate.a.duration.gamma: unknown key 'gamma'"),
        (
            "a: {duration: {normal: {mean: 1, sigma: -1}}}",
            "simulate.a.duration.normal.sigma: expected a number >= 0, not -1",
        ),
        (
            "a: {duration: {normal: {mean: -1, sigma: 1}}}",
            "simulate.a.duration.normal.mean: expected a duration",
        ),
        (
            "a: {duration: {normal: {mean: 1}}}",
            "simulate.a.duration.normal: the key 'sigma' is missing",
        ),
        (
            "a: {duration: {uniform: {min: 2, max: 1}}}",
            "simulate.a.duration.uniform: expected 'min' not above 'max', not 2 and 1",
        ),
        (
            "a: {duration: {param: x}}",
            "simulate.a.duration.param: group 'a' has no parameter 'x' (parameters: none)",
        ),
        ("a: {failure-rate: 1.5}", "simulate.a.failure-rate: expected a probability"),
        ("a: {memo: {fom: high}}", "simulate.a.memo.fom: expected a number, a list of these"),
    ],
)
def test_a_wrong_section_is_refused_with_line_and_path(
    section: str, error: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["simulate", write(f"{DOCUMENT}simulate:\n  {section}\n")]) == 2
    (found,) = errors(capsys)
    assert found.startswith(f"ensemble.yaml:10: {error}")


def test_a_document_that_would_change_the_size_is_refused(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = DOCUMENT.replace("name: submit, label: b", "name: grow")
    assert run_command(["simulate", write(text)]) == 2
    assert "grow" in errors(capsys)[0]


def test_a_document_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["simulate", "no-such-file.yaml"]) == 2
    assert errors(capsys) == ["cannot read no-such-file.yaml: No such file or directory"]


MEMBERS = """\
members:
  - {name: pool, simulate: {startup: 1}}
  - {name: there, uri: "ssh://host/run/flux/local", labels: [gpu]}
jobs: [{name: a, command: x, count: 6, member: pool}]
rules:
  - {trigger: start, action: {name: submit, label: a}}
  - {trigger: job-success, action: {name: submit, label: a, count: 1, workdir: "{job.id}"}}
"""


def test_there_can_be_as_many_members_as_one_likes(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(MEMBERS)
    assert run_command(["simulate", "--members", "pool=3", "--cores", "1", file]) == 0
    printed = capsys.readouterr().out
    assert "(pool.0:1 a finish status=0)" in printed
    assert "workdir=pool.0:1" in printed
    # Three nodes, from when they were up until the end of the last job, three seconds later.
    assert "members   pool: 3 at the end; 0.0025 node-hours" in printed
    assert run_command(["simulate", "--members", "pool=3", "--json", "--cores", "1", file]) == 0
    pools = json.loads(capsys.readouterr().out)["status"]["pools"]
    assert [member["name"] for member in pools["pool"]["members"]] == ["pool.0", "pool.1", "pool.2"]


def test_members_that_come_up_at_once_are_one_line(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(MEMBERS.replace("count: 6", "count: 1"))

    def time_line(members: int) -> list[str]:
        options = ["--members", f"pool={members}", "--cores", "1", "--nodes", "1", "--until", "1.5"]
        assert run_command(["simulate", *options, file]) == 124
        lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
        return [line.partition("member-up")[2].strip() or line.strip() for line in lines[1:]]

    assert time_line(4) == [f"pool.{number} is up: 1 node, 1 core" for number in range(4)]
    assert time_line(5) == ["each of pool.0 to pool.4 is up: 1 node, 1 core"]
    # The first and the last 1,000 entries are kept.
    first, more, *_, last = time_line(2100)
    assert first == "each of pool.0 to pool.998 is up: 1 node, 1 core"
    assert more == "...  101 more"
    assert last == "each of pool.1100 to pool.2099 is up: 1 node, 1 core"


def test_a_bound_that_leaves_members_idle_is_told(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(f"{MEMBERS}limits: {{active-jobs: 2}}\n")
    options = ["--members", "pool=2", "--cores", "1", "--nodes", "1"]
    assert run_command(["simulate", *options, file]) == 0
    assert "limits.active-jobs is 2, and members had 3 cores; write 'limits: {active-jobs: 6}'" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--members", "3"], "--members: say which, such as pool=4 (pools: pool, there)"),
        (["--members", "x=3"], "--members: no member named 'x' (members: pool, there)"),
        (["--members", "there=3"], "--members: 'there' is one instance, which its 'uri' names"),
        (["--members", "pool=0"], "a number from 1 to 100000, or POOL=N, not 'pool=0'"),
    ],
)
def test_what_cannot_be_said_of_members_is_refused_with_the_remedy(
    file: str, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(MEMBERS)
    assert run_command(["simulate", *options, file]) == 2
    assert sentence in "".join(errors(capsys))


def test_the_local_queue_refuses_a_document_with_members(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(MEMBERS)
    command = ["run", "--queue", "local", "--state-dir", str(tmp_path / "state"), file]
    assert run_command(command) == 2
    assert "members: the local queue has none" in "".join(errors(capsys))
