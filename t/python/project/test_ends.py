"""Servers that tests start end with these, however that happens."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ends import Tied
from patience import PATIENCE

STARTS_ONE = """
import sys
from pathlib import Path
from ends import Tied
print(Tied(["sleep", "inf"], Path(sys.argv[1])).process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_server_is_killed_when_what_started_it_ends_at_a_signal(
    number: signal.Signals, tmp_path: Path
) -> None:
    path = {"PYTHONPATH": str(Path(__file__).parents[1] / "helpers")}
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **path},
    ) as process:
        assert process.stdout is not None
        server = os.pidfd_open(int(process.stdout.readline()))
        process.send_signal(number)
    try:
        assert select.select([server], [], [], PATIENCE)[0]
    finally:
        os.close(server)


def test_a_server_that_is_killed_has_ended_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    tied = Tied(["sh", "-c", "echo it runs; sleep inf"], tmp_path / "log")
    tied.kill(PATIENCE)
    assert tied.process.returncode == -signal.SIGKILL
    assert len(os.listdir("/proc/self/fd")) == before
