"""What commands say and print of ensembles, on a local run that has ended."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flux_ensemble.bindings import require_flux
from flux_ensemble.cli.display import formats, tables
from flux_ensemble.cli.display.formats import middle_out
from flux_ensemble.cli.main import MEANT, run_command
from flux_ensemble.queues.local.client import LocalClient

DOCUMENT = """
jobs:
  - {name: good, command: "true"}
  - {name: bad, command: "false", params: {t: [280]}, retries: 1, duration: 1m}
rules:
  - {id: first, trigger: start, action: {name: submit, label: good}}
  - {id: second, trigger: job-success, group: good, action: {name: submit, label: bad}}
  - {id: never, trigger: job-success, group: bad, action: {name: submit, label: good}}
  - {id: late, trigger: timer, every: 2h, enabled: false, action: {name: submit, label: good}}
"""

Do = Callable[..., str]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("looking")
    (root / "study.yaml").write_text(DOCUMENT)
    local = ["--queue", "local", "--state-dir", str(root / "state")]
    assert run_command(["run", *local, str(root / "study.yaml")]) == 0
    return root / "state"


@pytest.fixture
def do(state: Path, capsys: pytest.CaptureFixture[str]) -> Do:
    """Runs a command on the state directory; what it printed."""

    def run(*words: str, code: int = 0) -> str:
        assert run_command([words[0], "--state-dir", str(state), *words[1:]]) == code
        out, err = capsys.readouterr()
        return out if code == 0 else err

    return run


def test_log_can_be_cut_to_a_rule_a_group_a_time_and_its_end(do: Do) -> None:
    names = [line.split()[1] for line in do("log", "study").splitlines()]
    assert names[:3] == ["load", "start", "fire"]
    rule = do("log", "study", "--rule", "second")
    assert [line.split()[1] for line in rule.splitlines()] == ["fire", "outcome", "retry"]
    assert "bad t=280 (index 0 of second #0): again as firing retry #0 (attempt 1)" in rule
    group = [
        json.loads(line) for line in do("log", "study", "--group", "bad", "--json").split("\n")[:-1]
    ]
    assert [entry["name"] for entry in group] == ["fire", "retry"]
    assert do("log", "study", "--tail", "1").split()[1] == "finish"
    assert do("log", "study", "--tail", "0") == ""
    assert (
        do("log", "study", "-f", "--tail", "2").splitlines() == do("log", "study").splitlines()[-2:]
    )
    assert len(do("log", "study", "--since", "1d").splitlines()) == len(names)
    assert do("log", "study", "--since", "1ms") == ""
    assert "did you mean 'second'?" in do("log", "study", "--rule", "secnd", code=1)
    assert "groups: good, bad" in do("log", "study", "--group", "x", code=1)


def test_a_log_that_is_cut_by_its_reader_is_no_failure(state: Path) -> None:
    program = [sys.executable, "-m", "flux_ensemble.cli.main"]
    read, write = os.pipe()
    os.close(read)
    for words in (["log", "study"], ["list"], ["jobs", "study", "--json"], ["wait", "study"]):
        done = subprocess.run(
            [*program, words[0], "--state-dir", str(state), *words[1:]],
            stdout=write, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), words
    os.close(write)


def test_why_says_how_an_ensemble_ended_and_which_rules_never_fired(do: Do) -> None:
    said = do("why", "study")
    head, _, rest = said.partition("\n\n")
    assert head.splitlines() == [
        "study has completed: nothing is active and no rule can fire any more",
        "2 of 4 rules never fired: never, late",
    ]
    assert "first: submit good on start\n  fired once\n" in rest
    assert "late: submit good on timer\n  never fired\n  was disabled" in rest
    assert "cannot fire any more" not in rest


def test_status_says_when_a_timer_is_due_and_jobs_have_their_time_limits(do: Do) -> None:
    assert "late   timer every 2h " in do("status", "study")
    jobs = json.loads(do("jobs", "study", "--json"))["jobs"]
    assert sorted({(job["group"], job["duration"]) for job in jobs}) == [
        ("bad", 60.0),
        ("good", 0.0),
    ]
    assert len(json.loads(do("jobs", "study", "--json", "--filter", "duration == 60"))["jobs"]) == 2


def test_status_says_when_the_jobs_are_predicted_to_be_over(
    do: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "predicted" not in do("status", "study")
    status = LocalClient.status

    def running(states: LocalClient, name: str | None = None) -> Any:
        answer: Any = status(states, name)
        ensemble = answer["ensembles"][0]
        # Five days and a half, so that it makes no difference how long this takes.
        ensemble.update(state="running", t_end=None, t_predicted=time.time() + 5.51 * 86400)
        return answer

    monkeypatch.setattr(LocalClient, "status", running)
    assert "\n5d 12h left as predicted\n" in do("status", "study")


def test_tables_sort_and_print_their_formats_without_flux(
    do: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "_has_flux", lambda: False)
    assert do("jobs", "study", "-n", "-o", "sort:-id {id}") == "3\n2\n1\n"
    assert (
        do("jobs", "study", "-n", "-o", "sort:group,-id {group} {id}") == "bad 3\nbad 2\ngood 1\n"
    )
    assert do("list", "-o", "get-config=default").startswith("[list.formats.default]\n")
    assert "fields: name, state" in do("list", "-o", "sort:foo {name}", code=2)
    assert "fields: name, state" in do("list", "-o", "{foo}", code=2)
    assert "no format named 'logn'" in do("list", "-o", "logn", code=2)


@pytest.mark.parametrize("has_flux", [False, pytest.param(True, marks=pytest.mark.flux)])
def test_a_narrow_terminal_cuts_the_middle_of_reasons_and_a_pipe_nothing(
    do: Do, state: Path, monkeypatch: pytest.MonkeyPatch, has_flux: bool
) -> None:
    if has_flux:
        require_flux()
    monkeypatch.setattr(formats, "_has_flux", lambda: has_flux)
    whole = do("list")
    monkeypatch.setenv("COLUMNS", "80")
    assert do("list") == whole
    assert len(whole.splitlines()[1]) > 80
    monkeypatch.setattr(formats, "_is_terminal", lambda: True)
    line = do("list").splitlines()[1]
    assert len(line) <= 80
    assert "nothing is" in line
    assert "..." in line
    file = state / "study" / "status.json"
    kept = file.read_text()
    reason = "rule 'second' called a function that failed, and on-error is fail"
    known = json.loads(kept)
    known["status"].update(state="failed", reason=reason)
    file.write_text(json.dumps(known))
    assert do("list").splitlines()[-1] == f"study: {reason}"
    file.write_text(kept)
    monkeypatch.setenv("COLUMNS", "200")
    assert do("list") == whole


def test_what_is_too_much_is_left_out_of_the_middle() -> None:
    assert middle_out("abcdefghij", 10) == "abcdefghij"
    assert middle_out("abcdefghijk", 10) == "abcd...ijk"
    assert middle_out("abc", 2) == "..."
    assert tables.ENSEMBLES.yields[0] == "reason"


def test_the_help_is_printed_as_it_is_and_commands_are_guessed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["--help"]) == 0
    out, err = capsys.readouterr()
    assert "ERROR" not in out + err
    assert out.startswith("Usage: flux-ensemble [OPTIONS]")
    assert run_command(["help", "log"]) == 0
    assert capsys.readouterr().out.startswith("Usage: flux-ensemble log [OPTIONS] NAME")
    assert run_command(["help"]) == 0
    assert "Run an ensemble:" in capsys.readouterr().out
    for words in (["stauts"], ["help", "stauts"]):
        assert run_command(words) == 2
        assert "did you mean 'status'?" in capsys.readouterr().err


@pytest.mark.parametrize("word", MEANT)
def test_what_other_tools_call_a_command_leads_to_the_right_one(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([word, "study"]) == 2
    assert MEANT[word] in capsys.readouterr().err
    meant = re.findall(r"'(\w+)'", MEANT[word])
    assert meant
    for command in meant:
        assert run_command(["help", command]) == 0


def test_commands_that_are_not_for_local_runs_say_why(
    do: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "there is no service to leave an ensemble to" in do("load", "a.yaml", code=2)
    assert "--debug is not for local runs" in do("watch", "--debug", "study", code=2)
    assert "did you mean 'study'?" in do("status", "stduy", code=1)


def test_an_ensemble_whose_time_is_up_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "long.yaml").write_text(
        "jobs: [{name: a, command: sleep 1000}]\n"
        "rules: [{trigger: start, action: {name: submit, label: a}}]\n"
    )
    local = ["--queue", "local", "--state-dir", str(tmp_path / "state")]
    assert run_command(["run", *local, "--timeout", "10ms", str(tmp_path / "long.yaml")]) == 124
    assert ": the time is up (--timeout 0.010s)\n" in capsys.readouterr().out


def test_simulate_says_which_cluster_it_takes_where_none_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(DOCUMENT)
    cores = len(os.sched_getaffinity(0))
    assert run_command(["simulate", "--nodes", "2", str(tmp_path / "a.yaml")]) == 0
    words = f"flux-ensemble: simulating 2 nodes of {cores} core{'s'[: cores != 1]}\n"
    assert capsys.readouterr().err == words
    assert run_command(["simulate", "--cores", "2", str(tmp_path / "a.yaml")]) == 0
    assert capsys.readouterr().err == ""


def test_a_rule_with_many_actions_does_not_widen_the_table() -> None:
    rule: Any = {"id": "r", "trigger": "start", "enabled": True, "fired": 0, "repetitions": 1}
    rule.update(error=None, actions=[f"submit group-{number}" for number in range(17)])
    shown = tables.rule_row(rule)["action"]
    assert shown == "submit group-0, submit group-1, submit group-2, submit group-3, 13 more"
    rule["actions"] = rule["actions"][:4]
    assert tables.rule_row(rule)["action"].endswith(", submit group-3")


@pytest.mark.parametrize("command", ["status", "wait", "why", "jobs", "cancel"])
def test_a_short_name_that_is_nearly_right_is_guessed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, state: Path
) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    shutil.copytree(state / "study", tmp_path / "state" / "ab")
    assert run_command([command, "ac", "--state-dir", str(tmp_path / "state")]) != 0
    assert "did you mean 'ab'?" in capsys.readouterr().err


def test_times_in_the_live_view_are_those_of_the_log(do: Do) -> None:
    of_log = {line.split()[0] for line in do("log", "study").splitlines() if "s  " in line}
    of_top = re.findall(r"^ +(-?[0-9.]+s)  ", do("top", "study", "--once"), re.MULTILINE)
    assert of_top
    assert set(of_top) <= of_log
