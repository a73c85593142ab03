"""Going on with a local run that was killed: `run --resume`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_queue import Run, await_pid, events_in
from patience import PATIENCE

from flux_ensemble.cli.common import Failure
from flux_ensemble.cli.display.views import Plain
from flux_ensemble.cli.session.local_run import Options, run_locally
from flux_ensemble.document.loading import load_text
from flux_ensemble.engine.commands import Record
from flux_ensemble.engine.engine import Engine
from flux_ensemble.queues.local.recovery import recover, whole_log
from flux_ensemble.queues.local.state_dir import StateLog
from flux_ensemble.queues.local.states import States
from flux_ensemble.queues.virtual.cluster import VirtualCluster
from flux_ensemble.runtime.durability.timers import Timers

#: A retry, a timer, a custom function, counts and a sweep: what is to be remembered.
DOCUMENT = json.dumps(
    {
        "name": "test",
        "jobs": [
            {"name": "a", "command": ["sh", "-c", "echo {x} >>ran"], "params": {"x": [1, 2, 3, 4]}},
            {"name": "b", "command": "true", "count": 2},
            {"name": "c", "command": "true"},
        ],
        "custom": "def more(**_):\n    return Action({'name': 'submit', 'label': 'c'})\n",
        "rules": [
            {"trigger": "start", "action": {"name": "submit", "label": "a"}},
            {"trigger": "timer", "after": 0.01, "action": {"name": "custom", "label": "more"}},
            {
                "trigger": "metric", "name": "count.a.finished", "when": 4,
                "action": {"name": "submit", "label": "b"},
            },
        ],
    }
)  # fmt: skip


def run(directory: Path, resume: bool | None = None, text: str = DOCUMENT) -> int:
    """Run the document in this process."""
    options = Options(timeout=PATIENCE, state_dir=directory / "state", resume=resume)
    return run_locally(load_text(text), text, VirtualCluster(1, 1), Plain(), options)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def killed_after(directory: Path, lines: list[bytes], torn: bytes = b"") -> None:
    """Make the files those of a run that was killed after some events."""
    files = directory / "state" / "test"
    (files / "events").write_bytes(b"".join(lines) + torn)
    snapshot = json.loads((files / "status.json").read_text())
    snapshot["status"]["state"] = "running"
    snapshot["events"] = len(lines)
    (files / "status.json").write_text(json.dumps(snapshot))


def test_a_run_that_was_killed_anywhere_goes_on_to_its_end(directory: Path) -> None:
    assert run(directory) == 0
    lines = (directory / "state/test/events").read_bytes().splitlines(keepends=True)
    for cut in range(0, len(lines), 3):
        (directory / "ran").write_text("")
        killed_after(directory, lines[:cut], lines[cut][:-9])
        assert run(directory, resume=True) == 0
        # What had not ended when the run was killed runs again, and nothing else does.
        ended = {
            event["job"]
            for event in map(json.loads, lines[:cut])
            if event["type"] == "JobEvent" and event["name"] in ("finish", "clean")
        }
        ran = (directory / "ran").read_text().split()
        assert len(ran) == len(set(ran))
        assert len(ran) == 4 - len([job for job in jobs_of("a", lines[:cut]) if job in ended])
        states = States(directory / "state")
        assert states.status("test")["state"] == "completed"
        groups = states.status("test")["groups"]
        assert {name: group["finished"] for name, group in groups.items()} == {
            "a": 4, "b": 2, "c": 1
        }  # fmt: skip
        jobs = Counter(
            (job["id"], job["group"])
            for job in states.jobs("test")
            if job["outcome"] != "interrupted"
        )
        assert set(jobs.values()) == {1}
        assert Counter(group for _, group in jobs) == {"a": 4, "b": 2, "c": 1}
        names = [entry["name"] for entry in states.log("test")]
        assert (names[0], names[1], names[-1]) == ("load", "start", "finish")
        # The files of both runs together are those of one.
        again = Engine(load_text(DOCUMENT))
        recover(again, Timers(), events_in(directory / "state/test"), lambda _: None)
        again.check()
        assert again.state == "completed"


def jobs_of(group: str, lines: list[bytes]) -> list[int]:
    """The jobs of a group in some lines of events."""
    events: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [one["job"] for one in events if one.get("tag") and one["tag"][0] == group]


def test_a_run_that_was_killed_is_not_replaced_without_being_asked(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    document = {
        "jobs": [
            {
                "name": "wait",
                "command": ["sh", "-c", "echo $$ >fifo; exec sleep 1000"],
                "on-lost": "fail",
            }
        ],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "wait"}}],
    }
    first = Run(tmp_path, document)
    await_pid(tmp_path / "fifo")
    first.process.send_signal(signal.SIGKILL)
    first.end()
    code, _, err = Run(tmp_path, document).end()
    assert code == 1
    assert (
        "an earlier run of 'test' was interrupted before it ended: --resume goes on with it" in err
    )
    code, out, _ = Run(tmp_path, document, "--resume").end()
    assert code == 0
    assert "going on after 1 firing" in out
    assert States(tmp_path / "state").status("test")["groups"]["wait"]["failed"] == 1
    code, _, err = Run(tmp_path, document, "--resume").end()
    assert code == 1
    assert "there is no run of 'test' that was interrupted before it ended" in err


@pytest.mark.parametrize("killed", [False, True])
def test_a_run_that_never_began_begins_with_resume(
    directory: Path,
    killed: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if killed:  # before it had written an event
        StateLog(directory / "state", "test", DOCUMENT).close()
    monkeypatch.setattr("sys.stderr", sys.stdout)
    assert run(directory, resume=True) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == "flux-ensemble: there is no run of 'test' to go on with: it begins"
    states = States(directory / "state")
    assert states.names() == ["test"]
    assert states.status("test")["state"] == "completed"
    with pytest.raises(Failure, match="no run of 'test' that was interrupted before it ended"):
        run(directory, resume=True)


def test_another_document_cannot_go_on(directory: Path) -> None:
    assert run(directory) == 0
    killed_after(directory, [])
    (directory / "state/test/document").write_text("jobs: []")
    with pytest.raises(Failure, match="the document is not that of the run of 'test'") as raised:
        run(directory, resume=True)
    kept = directory / "state/test/document"
    again = f"flux-ensemble rerun --resume test --state-dir {directory / 'state'}"
    assert f"which is kept in {kept}: '{again}' goes on with that one; or undo" in str(raised.value)
    assert str(raised.value).endswith("--no-resume, which keeps what there is of the run")


def test_a_document_with_other_comments_and_blanks_goes_on(directory: Path) -> None:
    assert run(directory) == 0
    killed_after(directory, [])
    data = json.loads(DOCUMENT)
    rows = ",\n\n  ".join(f"{json.dumps(key)}: {json.dumps(data[key])}" for key in data)
    assert run(directory, resume=True, text=f"# What was learned.\n{{{rows}}}\n") == 0
    killed_after(directory, [])
    data["jobs"][0]["params"]["x"] = [1, 2, 3, 4.0]
    with pytest.raises(Failure, match="the document is not that of the run of 'test'"):
        run(directory, resume=True, text=json.dumps(data))


def test_events_that_are_damaged_are_named(directory: Path) -> None:
    assert run(directory) == 0
    files = directory / "state/test"
    lines = (files / "events").read_bytes().splitlines(keepends=True)
    for damaged, line, what in (
        ([lines[0], lines[1][:-20] + b"\n", *lines[2:]], 2, "not an event with a checksum"),
        ([lines[0], lines[1].replace(b'"t":1', b'"t":2'), *lines[2:]], 2, "as it was taken down"),
        ([lines[0], *lines[2:]], 2, "as it was taken down"),
        ([lines[0], *lines], 2, "as it was taken down"),
    ):
        killed_after(directory, damaged)
        with pytest.raises(Failure, match=f"events:{line}: .*{what}.*: --no-resume begins anew"):
            run(directory, resume=True)


def test_the_log_of_a_long_run_is_whole_after_it_went_on(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(directory) == 0
    before = (directory / "state/test/eventlog").read_text()
    lines = (directory / "state/test/events").read_bytes().splitlines(keepends=True)
    killed_after(directory, lines[:-1])
    # More entries than are held in memory.
    monkeypatch.setattr("flux_ensemble.runtime.eventlog.KEPT", 3)
    assert run(directory, resume=True) == 0
    after = (directory / "state/test/eventlog").read_text()
    names = [json.loads(line)["name"] for line in before.splitlines()]
    # It says where it went on, and nothing else that is new.
    assert [json.loads(line)["name"] for line in after.splitlines()] == [
        *names[:-1],
        "epoch",
        "finish",
    ]


def test_a_document_with_the_ends_of_lines_of_windows_goes_on(directory: Path) -> None:
    text = DOCUMENT + "\r\n"
    assert run(directory, text=text) == 0
    killed_after(directory, [])
    assert run(directory, resume=True, text=text) == 0


def test_events_that_are_missing_at_the_end_are_noticed(directory: Path) -> None:
    assert run(directory) == 0
    lines = (directory / "state/test/events").read_bytes().splitlines(keepends=True)
    killed_after(directory, lines)
    (directory / "state/test/events").write_bytes(b"".join(lines[:5]))
    with pytest.raises(Failure, match=rf"5 events, where at least {len(lines)} were taken down"):
        run(directory, resume=True)


#: A function that prints; a job that goes on until it may end.
SAYING = {
    "jobs": [{"name": "a", "command": ["sh", "-c", "echo $$ >fifo; read _ <fifo"], "retries": 3}],
    "custom": "def say(**_):\n    print('said once')\n    return Action(A)\n"
    "A = {'name': 'submit', 'label': 'a'}\n",
    "rules": [{"trigger": "start", "action": {"name": "custom", "label": "say"}}],
}


def test_the_log_of_a_resumed_run_keeps_the_lines_of_the_one_before(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    first = Run(tmp_path, SAYING)
    await_pid(tmp_path / "fifo")
    states = States(tmp_path / "state")
    while "custom-output" not in [entry["name"] for entry in states.log("test")]:
        time.sleep(0.01)
    first.process.send_signal(signal.SIGTERM)
    assert first.end()[0] == 130
    before = list(states.log("test"))
    assert before[-1]["name"] == "shutdown"
    second = Run(tmp_path, SAYING, "--resume")
    # Once more: a later run keeps the lines of both.
    while [entry["name"] for entry in states.log("test")].count("epoch") < 1:
        time.sleep(0.01)
    second.process.send_signal(signal.SIGKILL)
    second.end()
    between = list(states.log("test"))
    third = Run(tmp_path, SAYING, "--resume")
    await_pid(tmp_path / "fifo")
    (tmp_path / "fifo").write_text("\n")
    assert third.end()[0] == 0
    after = list(states.log("test"))
    assert after[: len(before)] == before
    assert after[: len(between)] == between
    names = [entry["name"] for entry in after]
    assert (names.count("load"), names.count("epoch")) == (1, 2)
    texts = [entry["context"]["text"] for entry in after if entry["name"] == "custom-output"]
    assert texts == ["said once"]


def entry_of(name: str, number: int) -> dict[str, Any]:
    """An entry that is no other one."""
    return {"timestamp": float(number), "name": name, "context": {"number": number}}


@given(
    st.lists(st.sampled_from(["load", "error", "custom-output", "epoch", "fire", "outcome"])),
    st.integers(0, 5),
)
def test_what_the_log_did_not_have_yet_comes_after_what_it_had(names: list[str], more: int) -> None:
    before = [entry_of(name, number) for number, name in enumerate(names)]
    of_engine = [entry for entry in before if entry["name"] in ("fire", "outcome")]
    of_engine += [entry_of("finish", len(before) + number) for number in range(more)]
    records = [Record(one["timestamp"], one["name"], one["context"]) for one in of_engine]
    assert list(whole_log(before, records)) == before + of_engine[len(of_engine) - more :]
