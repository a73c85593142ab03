"""Recordings: what was done replays byte for byte, and a damaged file is told as such."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from play import Play, document, on_start, submit

from flux_ensemble.cli.main import run_command
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.events import Event, Started
from flux_ensemble.queues.simulation.durations import durations
from flux_ensemble.runtime import recording
from flux_ensemble.runtime.recording import Recorder, RecordingError, replay

TRACES = sorted((Path(__file__).parents[2] / "traces").glob("*.jsonl"))


def recorded(path: Path) -> Path:
    """A recording of a small ensemble."""
    given = document(rules=[on_start(), {"trigger": "job-success", "action": submit("b")}])
    play = Play(given, start=False)
    recorder = Recorder(path, play.engine.spec, given)

    def tapped(event: Event) -> list[Any]:
        commands = play.engine.handle(event)
        recorder(event, commands)
        return commands

    play.handle = tapped
    play.post(Started(play.t))
    for job in (1, 2, 3):
        play.run(job)
    recorder.close()
    recorder.close()
    return path


def changed(path: Path, number: int, text: str | None) -> Path:
    """The recording with line `number` (from 1) replaced, or cut off there."""
    lines = path.read_text().splitlines()
    lines = lines[: number - 1] if text is None else [*lines[: number - 1], text, *lines[number:]]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_golden_recordings_replay_to_the_same_commands(path: Path) -> None:
    found = replay(path)
    assert found.difference is None
    assert found.state == "completed"


def test_there_are_golden_recordings() -> None:
    assert len(TRACES) >= 5


def test_a_recording_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path / "r.jsonl")
    assert run_command(["replay", str(path)]) == 0
    assert "the same commands; completed" in capsys.readouterr().out


def test_a_difference_is_shown_with_its_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recorded(tmp_path / "r.jsonl")
    lines = path.read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if '"group":"b"' in line)
    line = json.loads(lines[number - 1])
    for command in line["commands"]:
        if command["type"] == "SubmitJobs":
            command["count"] = 7
    changed(path, number, json.dumps(line))
    assert run_command(["replay", str(path)]) == 1
    out = capsys.readouterr().out
    assert f"r.jsonl:{number}: the commands differ at this event:" in out
    assert '"name":"finish"' in out
    recorded_line, replayed_line = out.splitlines()[2:]
    assert recorded_line.startswith("  recorded  ")
    assert '"count":7' in recorded_line
    assert replayed_line.startswith("  replayed  ")
    assert '"count":1' in replayed_line


@pytest.mark.parametrize(
    ("number", "text", "message"),
    [
        (1, None, "the file is empty, not a recording"),
        (1, "jobs: []", "not a recording"),
        (1, "{}", "not a recording"),
        (
            1,
            '{"recording": 99, "name": "x", "directory": ".", "document": "x"}',
            "a recording of version 99, written by another flux-ensemble; this one",
        ),
        (5, None, "the recording is cut short after line 4"),
        (4, '{"event": {"t"', "r.jsonl:4: the recording is cut short or damaged here"),
        (4, '{"event": {"type": "Nothing"}, "commands": []}', "r.jsonl:4: not an event"),
        (4, '{"event": 5, "commands": []}', "r.jsonl:4: not an event"),
        (4, '{"end": 1}', "the recording is cut short after line 4"),
    ],
)
def test_what_is_no_whole_recording_is_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int, text: str | None, message: str
) -> None:
    path = changed(recorded(tmp_path / "r.jsonl"), number, text)
    if number == 1 and text is None:
        path.write_text("")
    with pytest.raises(RecordingError) as error:
        replay(path)
    assert message in str(error.value)
    assert run_command(["replay", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("flux-ensemble: ERROR: ")


def test_files_that_cannot_be_read_are_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "nothing", tmp_path, binary):
        assert run_command(["replay", str(path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"flux-ensemble: ERROR: {path}: ")


def fill_disk(path: Path) -> None:
    """From now on, what this process writes to the file that it has open goes to a full disk."""
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if fd.readlink() == path:
                full = os.open("/dev/full", os.O_WRONLY)
                os.dup2(full, int(fd.name))
                os.close(full)


def test_a_recorder_whose_disk_is_full_says_so_once_and_raises_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    given = document(rules=[on_start()])
    recorder = Recorder(path, load_mapping(given), given)
    failures: list[str | None] = []
    recorder.failed = lambda: failures.append(recorder.problem)
    fill_disk(path)
    for number in range(1000):
        recorder(Started(float(number)), [])
    recorder.close()
    problem = f"the recording {path} cannot be written on: No space left on device"
    assert failures == [problem]
    assert recorder.problem == problem


def test_a_disk_that_is_full_at_the_end_is_a_problem_too(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    given = document(rules=[on_start()])
    recorder = Recorder(path, load_mapping(given), given)
    fill_disk(path)
    recorder.close()
    assert str(recorder.problem).endswith("cannot be written on: No space left on device")


def test_only_a_regular_file_is_recorded_to(tmp_path: Path) -> None:
    given = document(rules=[on_start()])
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    for path in (fifo, Path("/dev/null"), Path("/dev/full")):
        with pytest.raises(OSError, match="expected a regular file"):
            Recorder(path, load_mapping(given), given)
    os.close(reader)
    for path in (fifo, tmp_path, tmp_path / "none" / "r.jsonl"):
        with pytest.raises(OSError, match=str(path)):
            Recorder(path, load_mapping(given), given)


#: A local run on whose disk there is no room once its job has begun, which waits for that.
LOCAL_RUN = """
import threading, time
from pathlib import Path
from test_recording import fill_disk
from flux_ensemble.cli.main import main
def fill():
    while not Path("begun").exists():
        time.sleep(0.01)
    fill_disk(Path("r.jsonl").absolute())
    Path("go").touch()
threading.Thread(target=fill).start()
main(["run", "--queue", "local", "--state-dir", "state", "--record", "r.jsonl", "test.json"])
"""


def test_a_local_run_that_loses_its_recording_goes_on_and_exits_with_1(tmp_path: Path) -> None:
    wait = "touch begun; until test -e go; do sleep 0.01; done"
    given = {
        "jobs": [{"name": "a", "command": ["sh", "-c", wait]}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
    }
    (tmp_path / "test.json").write_text(json.dumps(given))
    run = subprocess.run(
        [sys.executable, "-c", LOCAL_RUN],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    problem = "the recording r.jsonl cannot be written on: No space left on device"
    assert run.stderr == f"flux-ensemble: ERROR: {problem}\n"
    assert "test: completed after" in run.stdout
    assert run.returncode == 1


def reads(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What both commands that read recordings say of one: a sentence, if anything."""
    document = path.with_name("document.yaml")
    document.write_text("jobs: [{name: a, command: a}]\nrules: []\n")
    said = []
    for words in (["replay", str(path)], ["simulate", str(document), "--from-log", str(path)]):
        code = run_command(words)
        err = capsys.readouterr().err
        assert code in (0, 1, 2)
        assert err.startswith("flux-ensemble: ERROR: ") or not err
        assert len(err) < 1000
        said.append(err)
    return "".join(said)


@pytest.mark.parametrize(
    ("number", "text", "message"),
    [
        (1, "[" * 100_000, "not a recording"),
        (1, '{"recording": 1, "name": 5, "directory": ".", "document": ""}', "not a recording"),
        (1, '{"recording": 1, "name": "x", "directory": [], "document": ""}', "not a recording"),
        (1, '{"recording": 1, "name": "x", "directory": ".", "document": []}', "not a recording"),
        (4, "[" * 100_000, "r.jsonl:4: the recording is cut short or damaged here"),
        (4, '{"event": {"type": "' + "x" * 10_000 + '"}, "commands": []}', "not an event"),
        (4, '{"event": {"t": ' + "[" * 900 + "]" * 900 + "}}", "r.jsonl:4: not an event"),
    ],
)
def test_recordings_that_somebody_made_up_are_refused_by_all_who_read_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int, text: str, message: str
) -> None:
    path = changed(recorded(tmp_path / "r.jsonl"), number, text)
    assert reads(path, capsys).count(message) == 2


def test_events_with_values_of_other_types_are_sentences(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r.jsonl")
    lines = path.read_text().splitlines()
    odds: list[Any] = [None, "x", [], {}, -1, 10**400, float("inf"), [[1], 2, 3, 4]]
    for number, line in enumerate(lines[1:-1], start=2):
        for key in json.loads(line)["event"]:
            for odd in odds:
                value = json.loads(line)
                value["event"][key] = odd
                path.write_text("\n".join(lines) + "\n")
                changed(path, number, json.dumps(value))
                for read in (replay, durations):
                    with contextlib.suppress(RecordingError):
                        read(path)


def test_a_line_without_an_end_is_not_read_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_LINE", 1000)
    (tmp_path / "zero").symlink_to("/dev/zero")
    said = reads(tmp_path / "zero", capsys)
    assert said.count("zero:1: expected a line of at most 1000 bytes") == 2


def test_a_fifo_is_read_if_there_is_a_writer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert reads(tmp_path / "fifo", capsys).count("the file is empty, not a recording") == 2
    path = recorded(tmp_path / "r.jsonl")
    both = os.open(tmp_path / "fifo", os.O_RDWR)
    writer = subprocess.Popen(["sh", "-c", "exec cat r.jsonl >fifo"], cwd=tmp_path)
    assert run_command(["replay", str(path)]) == 0
    expected = capsys.readouterr().out
    # Its end is seen when the last writer has gone.
    threading.Timer(0.1, os.close, [both]).start()
    assert run_command(["replay", str(tmp_path / "fifo")]) == 0
    assert capsys.readouterr().out == expected
    writer.wait()
