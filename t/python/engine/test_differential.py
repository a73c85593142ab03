"""The comparison of two engines finds that an engine says the same as itself, and a difference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[3]
SCRIPT = TREE / "t" / "fuzz" / "differential.py"


def compared(old: Path, histories: int) -> subprocess.CompletedProcess[str]:
    """What the script says of this tree's engine and another's."""
    return subprocess.run(
        [sys.executable, SCRIPT, old, "--histories", str(histories)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_tree_says_the_same_as_itself() -> None:
    done = compared(TREE, 20)
    *_, last = done.stdout.splitlines()
    recordings = len(list((TREE / "t" / "traces").glob("*.jsonl")))
    same = f"the same, byte for byte: {recordings} recordings and 20 histories of seed 0"
    assert last.startswith(same)
    # So few histories do not come to everything.
    assert done.returncode == 1
    assert "never occurred: " in done.stdout


def test_a_difference_is_shown_with_the_steps_that_lead_to_it(tmp_path: Path) -> None:
    package = tmp_path / "flux_ensemble"
    package.mkdir()
    for path in (TREE / "flux_ensemble").iterdir():
        if path.name != "eventlog.py":
            (package / path.name).symlink_to(path)
    text = (TREE / "flux_ensemble" / "eventlog.py").read_text()
    (package / "eventlog.py").write_text(text.replace('tag="fire"', 'tag="fired"'))
    done = compared(tmp_path, 1)
    assert done.returncode == 1
    assert "differs at step" in done.stdout
    assert '"type": "Started"' in done.stdout
    old, new = done.stdout.splitlines()[-2:]
    assert old.startswith("  old  ")
    assert "fired" in old
    assert new.startswith("  new  ")
    assert "fired" not in new
