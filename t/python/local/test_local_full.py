"""A local run whose disk is full: nothing is cut off in the middle, and it can go on."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest
from local_queue import Run, events_in, mounted

from flux_ensemble.queues.local.recovery import MAX_WAITING
from flux_ensemble.queues.local.states import States
from flux_ensemble.runtime.durability.lines import Lines

#: Jobs that say that they ran, apart from the state directory, one after the other.
COUNT = 400
DOCUMENT: dict[str, Any] = {
    "jobs": [{"name": "a", "command": ["sh", "-c", "echo $FLUX_JOB_ID >>ran"], "count": COUNT,
              "on-lost": "fail"}],
    "rules": [
        {"trigger": "start", "action": {"name": "submit", "label": "a"}},
        {"trigger": "metric", "name": "count.a.finished", "when": COUNT,
         "action": {"name": "custom", "label": "f"}},
    ],
    "custom": "def f(**_):\n    open('called', 'a').write('.')\n",
}  # fmt: skip


def lines(path: Path) -> list[Any]:
    """The values of a file of JSON lines, all of which are whole."""
    text = path.read_text()
    assert text.endswith("\n") or not text
    return [json.loads(line) for line in text.splitlines()]


def check(directory: Path) -> None:
    """No job ran twice, and none is lost without being said."""
    ran = (directory / "ran").read_text().split()
    assert len(ran) == len(set(ran))
    status = States(directory / "state").status("test")
    group = status["groups"]["a"]
    assert status["state"] == "completed"
    assert (group["finished"], group["success"] + group["failed"]) == (COUNT, COUNT)
    assert group["success"] <= len(ran) <= COUNT
    assert (directory / "called").read_text() == "."


def test_a_full_disk_stops_a_run_which_goes_on_when_there_is_room(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with mounted(state, "size=212k"):
        ballast = state / "ballast"
        ballast.write_bytes(bytes(60 << 10))
        stops = 0
        options: tuple[str, ...] = ()
        while True:
            code, _, err = Run(tmp_path, DOCUMENT, "--cores", "1", *options).end()
            if not code:
                break
            stops += 1
            files = state / "test"
            # Which file needs the first page that is not there depends on when they are written.
            said = (
                f"flux-ensemble: ERROR: cannot write {files}/FILE: No space left on device: "
                "its jobs are killed; when it can be written, --resume goes on\n"
            )
            assert (code, err) in [(1, said.replace("FILE", file)) for file in ("events", "jobs")]
            entries = lines(files / "eventlog")
            assert [one["name"] for one in entries[:2]] == ["load", "start"]
            assert len(lines(files / "events")) > 100
            options = ("--resume",)
            if ballast.exists():
                # Nothing has changed yet, so it gets no further, nor does any harm.
                kept = (files / "eventlog").read_bytes(), (files / "events").read_bytes()
                code, _, err = Run(tmp_path, DOCUMENT, *options).end()
                assert code == 1
                assert "No space left on device" in err
                now = (files / "eventlog").read_bytes(), (files / "events").read_bytes()
                assert now[1].startswith(kept[1])
                assert now[0] == kept[0]
                full = "goes on with it, once there is room on its disk, which is full"
                assert States(state).status("test")["reason"].endswith(full)
                ballast.unlink()
                assert States(state).status("test")["reason"].endswith("goes on with it")
            else:
                subprocess.run(["mount", "-o", "remount,size=2m", str(state)], check=True)
        assert stops in (1, 2)
        check(tmp_path)
        assert len(list(events_in(state / "test"))) > COUNT * 5


def test_a_limit_on_the_size_of_files_stops_a_run_which_goes_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python takes a module for compiled of which only a part could be written.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    limit = 50_000
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        code, _, err = Run(tmp_path, DOCUMENT, "--cores", "1", cold=True).end()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    files = tmp_path / "state" / "test"
    assert code == 1
    assert f"cannot write {files / 'events'}: File too large: its jobs are killed" in err
    assert limit - 200 * MAX_WAITING < (files / "events").stat().st_size <= limit
    assert lines(files / "events")
    assert Run(tmp_path, DOCUMENT, "--cores", "1", "--resume").end()[0] == 0
    check(tmp_path)


def test_a_disk_that_is_full_from_the_start_is_a_sentence(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with mounted(state, "size=4k"):
        (state / "ballast").write_bytes(bytes(4096))
        code, _, err = Run(tmp_path, DOCUMENT).end()
        assert code == 1
        assert "No space left on device" in err
        assert "Traceback" not in err
        assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("inodes", range(2, 13, 2))
def test_a_disk_without_inodes_is_a_sentence_or_is_done_without(
    tmp_path: Path, inodes: int
) -> None:
    state = tmp_path / "state"
    document = {
        "jobs": [{"name": "a", "command": ["sh", "-c", "echo $FLUX_JOB_ID >>ran; echo"],
                  "count": 3, "on-lost": "fail"}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
    }  # fmt: skip
    with mounted(state, f"size=1m,nr_inodes={inodes}"):
        code, out, err = Run(tmp_path, document).end()
        assert "Traceback" not in out + err
        if code:
            assert code == 1
            assert "No space left on device" in err
            subprocess.run(["mount", "-o", "remount,nr_inodes=100", str(state)], check=True)
            begun = (state / "test" / "status.json").exists()
            options = ("--resume",) if begun else ()
            assert Run(tmp_path, document, *options).end()[0] == 0
        group = States(state).status("test")["groups"]["a"]
        assert group["finished"] == 3
        # Those that had their nodes when there was no room for their output are lost.
        (tmp_path / "ran").touch()
        ran = (tmp_path / "ran").read_text().split()
        assert group["success"] <= len(ran) == len(set(ran))


def test_a_line_is_in_a_file_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=8k"):
        path = tmp_path / "small" / "file"
        file = Lines(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
        line = b"x" * 2999 + b"\n"
        file.append(line)
        file.append(line)
        with pytest.raises(OSError, match="No space left on device"):
            file.append(line)
        assert path.read_bytes() == line * 2
        # Nothing follows what was not written, also if there is room now.
        with pytest.raises(OSError, match="No space left on device"):
            file.append(b"y\n")
        assert path.read_bytes() == line * 2
        file.close()


def test_a_log_of_the_output_that_is_full_does_not_end_the_run(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=4k"):
        log = tmp_path / "small" / "log"
        log.write_bytes(bytes(4096))
        with log.open("ab") as file:
            run = Run(tmp_path, DOCUMENT, "--cores", "2", stdout=file)
            code, _, err = run.end()
    assert code == 0
    assert err == (
        "flux-ensemble: ERROR: cannot print any more: No space left on device; "
        f"'flux-ensemble log test --state-dir {run.state}' has it all\n"
    )
    check(tmp_path)
