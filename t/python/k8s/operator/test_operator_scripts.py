"""The scripts that start control planes, operators and brokers end these with themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import apiserver
import pytest
from ensembles import ROOT
from patience import PATIENCE

#: Is in the environment of all that a script starts.
MARK = "TEST_SCRIPT"


def marked(mark: str) -> set[int]:
    """The processes with a mark."""
    found = set()
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and mark.encode() in (process / "environ").read_bytes():
                found.add(int(process.name))
        except OSError:
            continue  # It has ended meanwhile, or is another user's.
    return found


def until_children(mark: str, script: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a script has started its operator."""
    deadline = time.monotonic() + PATIENCE
    while not marked(mark) - {script.pid}:
        assert script.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("script", "number"),
    [
        (["t/fault/kubernetes.py", "--memory"], signal.SIGTERM),
        (["t/fault/kubernetes.py", "--memory"], signal.SIGHUP),
        pytest.param(
            ["t/bench/bench.py", "--smoke", "operator"],
            signal.SIGTERM,
            marks=[*apiserver.MARKS, apiserver.CONTROLLERS],
        ),
    ],
)
def test_a_script_that_is_told_to_end_leaves_none_of_its_children(
    tmp_path: Path, script: list[str], number: signal.Signals
) -> None:
    mark = f"{MARK}={uuid.uuid4()}"
    log = tmp_path / "log"
    name, _, value = mark.partition("=")
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, *script],
            cwd=ROOT,
            stdout=output,
            stderr=output,
            env={**os.environ, name: value},
            start_new_session=True,
        )
    try:
        until_children(mark, child, log)
        child.send_signal(number)
        assert child.wait(PATIENCE) == 128 + number, log.read_text()
        # One that was killed may take a moment to be gone.
        t_end = time.monotonic() + PATIENCE
        while marked(mark) and time.monotonic() < t_end:
            time.sleep(0.1)
        assert not marked(mark), log.read_text()
    finally:
        for left in marked(mark):
            os.kill(left, signal.SIGKILL)
        child.wait(PATIENCE)
