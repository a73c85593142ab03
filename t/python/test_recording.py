"""Recordings: what was done replays byte for byte, and a damaged file is told as such."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from play import Play, document, on_start, submit

from flux_ensemble.cli.main import run_command
from flux_ensemble.engine.events import Event, Started
from flux_ensemble.members.recording import Recorder, RecordingError, replay

TRACES = sorted((Path(__file__).parent.parent / "traces").glob("*.jsonl"))


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
            "a recording of version 99, and this is version 1",
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
