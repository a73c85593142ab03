"""`flux-ensemble run --queue local` as a process: its output, files, signals and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_queue import Run, await_end, await_pid, command, descendants
from patience import PATIENCE

from flux_ensemble.cli.display.views import Plain
from flux_ensemble.cli.main import run_command
from flux_ensemble.cli.session.local_run import Options, run_locally
from flux_ensemble.document.loading import load_text
from flux_ensemble.metrics.names import Statistic
from flux_ensemble.metrics.statistics import ESTIMATES
from flux_ensemble.queues.local.root import StateError, default_root
from flux_ensemble.queues.local.state_dir import StateLog
from flux_ensemble.queues.local.states import States
from flux_ensemble.queues.virtual.cluster import VirtualCluster

#: Ends when its job does, which says its process id through a FIFO first.
WAITING = {
    "jobs": [{"name": "wait", "command": ["sh", "-c", "echo $$ >fifo; exec sleep 1000"]}],
    "rules": [{"trigger": "start", "action": {"name": "submit", "label": "wait"}}],
}


def waiting(tmp_path: Path, *options: str, **changes: Any) -> tuple[Run, int]:
    """A run whose job has started, and the job's process."""
    os.mkfifo(tmp_path / "fifo")
    run = Run(tmp_path, {**WAITING, **changes}, *options)
    return run, await_pid(tmp_path / "fifo")


def document(*commands: str, **more: Any) -> dict[str, Any]:
    """An ensemble that submits one group for each command."""
    names = [f"g{index}" for index in range(len(commands))]
    return {
        "jobs": [{"name": name, "command": one} for name, one in zip(names, commands, strict=True)],
        "rules": [
            {"trigger": "start", "action": {"name": "submit", "label": name}} for name in names
        ],
        **more,
    }


def test_run_prints_what_happens_and_leaves_its_files(tmp_path: Path) -> None:
    run = Run(tmp_path, document("echo hello", "false"))
    code, out, err = run.end()
    assert (code, err) == (0, "")
    assert " => trigger start\n" in out
    *_, end, failures = out.splitlines()
    assert "test: completed after" in end
    see = f"flux-ensemble failures test --state-dir {run.state}"
    assert failures == f"1 of 2 jobs failed: see '{see}'"
    assert (run.state / "test" / "output" / "1.out").read_text() == "hello\n"
    states = States(run.state)
    assert states.names() == ["test"]
    groups = states.status("test")["groups"]
    assert (groups["g0"]["success"], groups["g1"]["failed"]) == (1, 1)
    assert states.metrics("test")["count"]["g1"]["failed"] == 1
    names = [entry["name"] for entry in states.log("test")]
    assert names[:3] == ["load", "start", "fire"]
    assert names[-1] == "finish"


def test_a_run_whose_jobs_are_gone_waits_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Counts are looked at between the end of the ensemble and that of its run, too.
    monkeypatch.setattr(Plain, "interval", 0.0002)
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps(document("true")))
    state = str(tmp_path / "state")
    assert run_command(["run", "--queue", "local", "--state-dir", state, str(file)]) == 0
    assert "test: completed after" in (out := capsys.readouterr().out)
    assert "waiting for" not in out


def test_a_function_that_no_plugin_has_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def parse(**kwargs): pass\n")
    rule = {"trigger": "start", "action": {"name": "custom", "label": "prase"}}
    given = document("true", plugins=["tools"])
    run = Run(tmp_path, {**given, "rules": [*given["rules"], rule]})
    code, _, err = run.end()
    assert code == 2
    assert err == (
        "flux-ensemble: ERROR: custom functions cannot be called: 'prase' does not exist "
        "(did you mean 'parse'? functions: parse)\n"
    )
    assert States(run.state).names() == []


def test_the_functions_of_a_plugin_are_called_by_the_process_that_was_asked_for_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "tools.py").write_text(
        "open('imported', 'a').write('x')\ndef f(**kwargs): open('called', 'a').write('x')\n"
    )
    rule = {"trigger": "start", "action": {"name": "custom", "label": "f"}}
    run = Run(tmp_path, {"plugins": ["tools"], "rules": [rule]})
    code, _, err = run.end()
    assert (code, err) == (0, "")
    assert (tmp_path / "imported").read_text() == (tmp_path / "called").read_text() == "x"


def test_a_signal_ends_a_run_whose_plugins_are_being_imported(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "tools.py").write_text(
        "import os, time\nprint(os.getpid(), file=open('fifo', 'w'))\ntime.sleep(1000)\n"
    )
    run = Run(tmp_path, document("true", plugins=["tools"]))
    pid = await_pid(tmp_path / "fifo")
    run.process.send_signal(signal.SIGINT)
    code, _, err = run.end()
    assert code != 0
    assert "interrupted while its custom functions were being loaded" in err
    await_end(pid)


def test_without_flux_run_says_so_in_one_line_and_runs_here(tmp_path: Path) -> None:
    (tmp_path / "test.yaml").write_text(json.dumps(document("true")))
    environment = {"PATH": "/nowhere", "HOME": str(tmp_path)}
    done = subprocess.run(
        command("run", "--nodes", "3", "--cores", "2", "test.yaml"),
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == (
        "flux-ensemble: no Flux instance can be reached: running on this machine "
        "as 3 nodes of 2 cores\n"
    )
    done = subprocess.run(
        command("run", "test.yaml"), cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert " cores (--nodes 1: no more at once than it has)\n" in done.stderr
    for words in (["status", "test"], ["metrics", "test"], ["log", "test"], ["list"]):
        shown = subprocess.run(command(*words), env=environment, capture_output=True, text=True)
        assert shown.returncode == 0
        assert shown.stdout
        assert shown.stderr.replace(f"flux-ensemble: {ESTIMATES}\n", "") == ""


def test_ctrl_c_cancels_the_jobs_and_exits_with_130(tmp_path: Path) -> None:
    run, pid = waiting(tmp_path)
    run.process.send_signal(signal.SIGINT)
    code, out, _ = run.end()
    assert code == 130
    assert "interrupted: cancelling its jobs" in out
    assert "'rerun test' runs the rest of it later; for a run that --resume can continue, " in out
    await_end(pid)
    assert States(run.state).status("test")["groups"]["wait"]["canceled"] == 1
    refusal = "was cancelled: 'run' without --resume starts it anew, and 'rerun test"
    code, _, err = Run(tmp_path, WAITING, "--resume").end()
    assert code == 1
    assert f"'test' {refusal}" in err
    again = Run(tmp_path, WAITING)
    await_pid(tmp_path / "fifo")
    again.process.send_signal(signal.SIGINT)
    again.end()
    code, _, err = Run(tmp_path, WAITING, "--resume").end()
    assert code == 1
    assert f"'test-2' {refusal}" in err


def test_a_second_signal_kills_the_jobs(tmp_path: Path) -> None:
    script = "trap '' TERM; echo $$ >fifo; while :; do sleep 1000; done"
    run, pid = waiting(tmp_path, jobs=[{"name": "wait", "command": ["sh", "-c", script]}])
    run.process.send_signal(signal.SIGINT)
    assert run.process.stdout is not None
    while "interrupted" not in run.process.stdout.readline():
        pass
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(timeout=PATIENCE) == 130
    await_end(pid)
    run.end()


def test_sigkill_of_the_run_leaves_no_process_behind(tmp_path: Path) -> None:
    script = "setsid sleep 1000 & echo $! >fifo; trap '' TERM; sleep 1000"
    run, pid = waiting(tmp_path, jobs=[{"name": "wait", "command": ["sh", "-c", script]}])
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    assert children.exists()
    family = descendants(run.process.pid)
    assert pid in family
    run.process.kill()
    run.end()
    for one in family:
        await_end(one)
    status = States(run.state).status("test")
    assert (status["state"], status["reason"]) == (
        "failed",
        f"its run was interrupted: '{status['resumes']}' goes on with it",
    )


def test_the_time_limit_of_the_run_exits_with_124(tmp_path: Path) -> None:
    code, out, _ = Run(tmp_path, document("sleep 1000"), "--timeout", "100ms").end()
    assert code == 124
    assert "the time is up" in out


def test_an_output_that_nobody_reads_ends_the_run(tmp_path: Path) -> None:
    run, pid = waiting(tmp_path, "--debug")
    assert run.process.stdout is not None
    run.process.stdout.close()
    run.process.send_signal(signal.SIGHUP)
    assert run.process.wait(timeout=PATIENCE) == 130
    await_end(pid)
    assert run.process.stderr is not None
    run.process.stderr.close()


def test_after_a_terminate_run_waits_for_the_jobs_that_are_active(tmp_path: Path) -> None:
    rules = [
        {"trigger": "start", "action": {"name": "submit", "label": "slow"}},
        {"trigger": "job-start", "action": {"name": "terminate"}},
    ]
    jobs = [{"name": "slow", "command": "sleep 0.1"}]
    run = Run(tmp_path, {"jobs": jobs, "rules": rules})
    assert run.end()[0] == 0
    assert States(run.state).status("test")["groups"]["slow"]["success"] == 1


def test_custom_functions_run_without_a_handle(tmp_path: Path) -> None:
    source = (
        "def again(handle, action, **_):\n"
        "    print('handle', handle)\n"
        "    return Action({'name': 'submit', 'label': 'echo'})\n"
    )
    more = {"custom": source, "jobs": [{"name": "echo", "command": "echo"}]}
    rules = [{"trigger": "start", "action": {"name": "custom", "label": "again"}}]
    run = Run(tmp_path, {**more, "rules": rules})
    code, out, _ = run.end()
    assert code == 0
    assert out.count("again: handle None") == 1
    assert States(run.state).status("test")["groups"]["echo"]["success"] == 1


def test_two_runs_of_one_name_do_not_share_their_files(tmp_path: Path) -> None:
    run, pid = waiting(tmp_path)
    second = Run(tmp_path, WAITING).end()
    assert second[0] == 1
    assert "an ensemble named 'test' is running already" in second[2]
    run.process.terminate()
    assert run.end()[0] == 130
    await_end(pid)


def test_the_options_of_the_local_queue_are_refused_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("flux_ensemble.cli.commands.run.Client", object)
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps(document("true")))
    assert run_command(["run", str(file), "--nodes", "2"]) == 2
    assert "--nodes is for the local queue: add --queue local" in capsys.readouterr().err


def test_resources_that_do_not_exist_here_are_refused(tmp_path: Path) -> None:
    code, _, err = Run(tmp_path, document("true"), "--cores", "0").end()
    assert code == 2
    assert "'--cores': 0 is not in the range" in err


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    code, _, err = Run(tmp_path, document("true")).end()
    assert code in (1, 2)
    assert str(tmp_path / "state") in err


def test_a_log_that_was_cut_short_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    log = StateLog(tmp_path, "a", "")
    log.append({"timestamp": 1.0, "name": "start", "context": {}})
    log.publish()
    log.close()
    with (tmp_path / "a" / "eventlog").open("a") as file:
        file.write('{"timestamp": 2.0, "na')
    assert [entry["name"] for entry in States(tmp_path).log("a")] == ["start"]
    with (tmp_path / "a" / "eventlog").open("a") as file:
        file.write("\n")
    with pytest.raises(StateError, match=r"eventlog:2: expected an entry in JSON"):
        list(States(tmp_path).log("a"))


def test_an_unknown_name_is_answered_with_the_known_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = StateLog(tmp_path, "hello", "")
    log.publish()
    log.close()
    for words in (["log", "helo"], ["status", "helo"], ["metrics", "helo"]):
        assert run_command([*words, "--state-dir", str(tmp_path)]) == 1
        expected = (
            f"no ensemble named 'helo' in {tmp_path} (did you mean 'hello'? ensembles: hello)"
        )
        assert expected in capsys.readouterr().err


def test_the_state_directory_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert default_root() == Path("/somewhere/flux-ensemble")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_root() == Path("/home/me/.local/state/flux-ensemble")


def test_a_statistic_that_panics_fails_the_run_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps({"name": "test", **document("true", "sleep 60")})
    spec = load_text(text.replace('"g0"', '"g1"'))
    arguments = {"window_size": 3, "q_inf": 1.0, "q_sup": 1.5}
    spec = replace(spec, statistics=(*spec.statistics, Statistic("low", "RollingIQR", arguments)))
    options = Options(timeout=PATIENCE, state_dir=tmp_path)
    code = run_locally(spec, text, VirtualCluster(1, 4), Plain(), options)
    out = capsys.readouterr().out
    assert code == 1
    assert "statistic 'low' has no value after 4 values: Out of bounds access" in out
