"""Memos: what `flux-ensemble memo` publishes from within a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from local_queue import Run, bench, command, shell

from flux_ensemble.api import flux_memo
from flux_ensemble.cli.main import run_command
from flux_ensemble.queues.local import memos
from flux_ensemble.queues.local.memos import MemoError, MemoSocket


def test_a_job_publishes_values_before_it_ends(tmp_path: Path) -> None:
    words = command("memo", "fom=1.5", "word=hello", 'list=[1, "a"]', "nan=NaN")
    with bench(tmp_path, base=dict(os.environ), command=words) as one:
        one.submit()
        one.run()
    expected = {"fom": 1.5, "word": "hello", "list": [1, "a"], "nan": "NaN"}
    assert one.context("memo") == expected
    names = one.names()
    assert names.index("start") < names.index("memo") < names.index("finish")


def test_a_memo_that_is_received_before_the_start_of_its_job_comes_after_it(
    tmp_path: Path,
) -> None:
    with bench(tmp_path, base=dict(os.environ), command="true") as one:
        path = memos.socket_path(one.runner.scratch)
        one.submit()
        one.loop.run(lambda: one.runner.running > 0)
        for number in range(2):
            memos.send(path, 1, {"x": number})
        one.run()
    names = one.names()
    start = names.index("start")
    assert names[start : start + 4] == ["start", "memo", "memo", "finish"]
    assert [event.context["x"] for event in one.events if event.name == "memo"] == [0, 1]


def test_what_is_no_memo_of_an_active_job_is_dropped(tmp_path: Path) -> None:
    code = (
        "import os, socket, sys\n"
        "out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "for line in sys.argv[1:]: out.sendto(line.encode(), os.environ['FLUX_ENSEMBLE_MEMO'])\n"
    )
    bad = ["{", "[]", "{}", '{"id": 7, "memo": {}}', '{"id": 1, "memo": 2}',
           '{"id": 1, "memo": {"x": NaN}}', '{"id": [1], "memo": {}}',
           '{"id": 1, "memo": {"x": 1e999}}', '{"id": 1, "memo": {"x": [{"y": -1e999}]}}',
           '{"id": 1, "memo": {"x": "\\ud800"}}', '{"id": 1, "memo": {"\\udfff": 1}}',
           '{"id": 1, "memo": ' + "[" * 15000 + "]" * 15000 + "}"]  # fmt: skip
    good = '{"id": 1, "memo": {"x": 2}}'
    with bench(tmp_path, command=[sys.executable, "-c", code, *bad, good]) as one:
        one.submit()
        one.run()
    assert [event.context for event in one.events if event.name == "memo"] == [{"x": 2}]


@pytest.mark.parametrize("value", [float("inf"), [float("nan")], "\ud800", {"\udfff": 1}])
def test_a_memo_that_flux_does_not_have_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(MemoError, match=r"a (text|number) in it is"):
        memos.send(str(tmp_path / "nowhere"), 3, {"x": value})


def test_values_that_are_no_number_are_text_as_in_flux(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(memos, "send", lambda path, job, memo: sent.append(memo))
    monkeypatch.setenv("FLUX_JOB_ID", "3")
    monkeypatch.setenv(memos.VARIABLE, "/nowhere")
    assert run_command(["memo", "a=1e999", "b=-Infinity", "c=[1, 1e999]", "d=1e99"]) == 0
    assert sent == [{"a": "1e999", "b": "-Infinity", "c": "[1, 1e999]", "d": 1e99}]


def test_a_memo_with_a_number_that_is_too_large_does_no_harm_to_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command("memo", "longer=" + "9" * 4400, "fom=1.5", "huge=1e999")
    job = {"name": "a", "command": [str(word) for word in words]}
    rules = [
        {"trigger": "start", "action": {"name": "submit", "label": "a"}},
        {
            "trigger": "job-memo",
            "when": "fom == 1.5",
            "action": {"name": "disable", "label": "rule-0"},
        },
    ]
    run = Run(tmp_path, {"jobs": [job], "rules": rules}, "--record", "recording")
    code, out, err = run.end()
    assert (code, err) == (0, "")
    assert "disable rule-0" in out
    assert run_command(["metrics", "test", "--state-dir", str(run.state), "--json"]) == 0
    means = json.loads(capsys.readouterr().out)["mean"]
    assert set(means) == {"a-duration", "a-pending", "a-fom"}


def test_a_memo_has_a_largest_size(tmp_path: Path) -> None:
    taken: list[Any] = []
    receiver = MemoSocket(str(tmp_path), lambda job, memo: taken.append((job, memo)), print)
    memos.send(receiver.path, 3, {"x": "y" * 20_000})
    with pytest.raises(MemoError, match="a memo has at most 32768 bytes, and this has 40028"):
        memos.send(receiver.path, 3, {"x": "y" * 40_000})
    receiver.receive()
    assert taken == [(3, {"x": "y" * 20_000})]
    receiver.close()
    with pytest.raises(MemoError, match="cannot be reached: Connection refused"):
        memos.send(receiver.path, 3, {})


def test_memo_says_that_it_is_for_jobs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FLUX_JOB_ID", raising=False)
    assert run_command(["memo", "x=1"]) == 2
    assert "memo is for use inside a job: FLUX_JOB_ID is not set" in capsys.readouterr().err
    assert run_command(["memo", "x"]) == 2
    assert "expected key=value, not 'x'" in capsys.readouterr().err


def test_in_a_flux_job_memo_runs_flux_where_its_library_is_not_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called: list[list[str]] = []

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        called.append(words)
        return subprocess.CompletedProcess(words, 5)

    monkeypatch.setattr(flux_memo, "_library", lambda: None)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("FLUX_JOB_ID", "ƒAbc")
    monkeypatch.setenv(memos.VARIABLE, "/nowhere")
    assert run_command(["memo", "x=1", "s=a b"]) == 1
    assert "'flux job memo' failed with exit code 5" in capsys.readouterr().err
    assert called == [["flux", "job", "memo", "ƒAbc", "x=1", 's="a b"']]


def test_the_socket_is_gone_with_the_queue(tmp_path: Path) -> None:
    with bench(tmp_path, command=shell("echo $FLUX_ENSEMBLE_MEMO")) as one:
        one.submit()
        one.run()
        path = one.printed().strip()
        assert os.path.exists(path)
    assert not os.path.exists(os.path.dirname(path))
