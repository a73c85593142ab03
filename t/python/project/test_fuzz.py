"""Every fuzzer that needs no Flux, for a moment; t/t3306-fuzz.t has the one that does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from patience import PATIENCE

FUZZ = Path(__file__).parents[2] / "fuzz"
sys.path.append(str(FUZZ))

import fuzz  # noqa: E402
import fuzz_seams  # noqa: E402


@pytest.mark.parametrize("path", fuzz.fuzzers(), ids=lambda path: path.stem)
def test_a_short_run_of_a_fuzzer_finds_nothing(path: Path) -> None:
    inputs = str(fuzz.SHORT.get(path.stem, 100))
    command = [sys.executable, str(path), "--inputs", inputs, "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"\w+: \d+ .*, 0 findings, \d+ s, \d+ MB", done.stdout.splitlines()[-1])


def test_queues_that_are_drawn_have_room_for_the_copy_of_a_job_that_hangs() -> None:
    drawn = [fuzz_seams.draw(Random(number)) for number in range(200)]
    of_copies = [one.size for one in drawn if "copies" in one.features]
    assert of_copies
    assert (1, 1) not in of_copies
    assert (1, 1) in {one.size for one in drawn}
