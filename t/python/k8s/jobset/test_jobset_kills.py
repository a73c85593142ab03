"""Homes and workers in JobSets are killed for a moment, as `make chaos` does at length."""

from __future__ import annotations

import subprocess
import sys

from apiserver import CONTROLLERS, MARKS
from pages import ROOT

pytestmark = [*MARKS, CONTROLLERS]


def test_kills_lose_no_task_and_none_runs_twice() -> None:
    words = [sys.executable, "t/fault/jobset.py", "--rounds", "4", "--minutes", "5", "--seed", "4"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
