"""`make check` as a command: what it leaves behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import PATIENCE

LIB = Path(__file__).parents[2] / "lib"

#: A test that waits, beside a process that has left its process group and session.
TEST = """\
setsid sleep 1000 &
echo $! $$ >pids.new
mv pids.new pids
sleep 1000
"""


def _runs(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(shutil.which("prove") is None, reason="prove is not on PATH")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_the_tests_that_it_has_started(
    number: signal.Signals, tmp_path: Path
) -> None:
    tests = tmp_path / "t"
    shutil.copytree(LIB, tests / "lib", ignore=shutil.ignore_patterns("__pycache__"))
    (tests / "slow.t").write_text(TEST)
    command = [sys.executable, str(tests / "lib" / "check.py"), "slow.t"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as check:
        give_up = time.monotonic() + PATIENCE
        while not (tests / "pids").exists():
            assert check.poll() is None
            assert time.monotonic() < give_up
            time.sleep(0.05)
        pids = [int(word) for word in (tests / "pids").read_text().split()]
        try:
            assert all(map(_runs, pids))
            check.send_signal(number)
            out, err = check.communicate(timeout=PATIENCE)
            assert check.returncode == 128 + number
            assert "interrupted: all that was started has been ended" in err
            assert "end of slow.t" not in out
            assert not any(map(_runs, pids))
        finally:
            for pid in pids:
                if _runs(pid):
                    os.kill(pid, signal.SIGKILL)
