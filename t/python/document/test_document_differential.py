"""The comparison of two trees' documents finds that a tree says what it says, and a difference."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

TREE = Path(__file__).resolve().parents[3]
SCRIPT = TREE / "t" / "fuzz" / "document_differential.py"
sys.path.append(str(SCRIPT.parent))

import document_differential  # noqa: E402
from engines.document_side import say  # noqa: E402
from engines.other import Other, tree  # noqa: E402

GOOD = "jobs: [{name: a, command: 'true'}]\nrules: []\n"
BAD = "jobs:\n  - name: a\n    comand: 'true'\n"
FUTILE = """
jobs: [{name: a, command: 'true'}, {name: b, command: 'true'}]
rules:
  - {trigger: start, action: {name: submit, label: a}}
  - {trigger: job-success, group: b, action: {name: submit, label: a}}
"""


def test_a_tree_says_the_same_as_itself() -> None:
    command = [sys.executable, str(SCRIPT), str(TREE), "--documents", "20"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout
    said, _, counted = done.stdout.partition(": ")
    assert said == "the same, byte for byte"
    assert counted.startswith("2 schema, ")
    assert ", 0 exceptions (seed 0)" in counted


def planted(folder: Path, module: str, old: str, new: str) -> Path:
    """Make a tree that has another text in one module of a package that is linked otherwise."""
    own = TREE / "flux_ensemble"
    # Rooms that have the module are made, and all else in them is a link.
    rooms = [own / room for room in reversed(Path(module).parents)]
    for room in rooms:
        (folder / room.relative_to(TREE)).mkdir(parents=True)
        for path in room.iterdir():
            if path not in (*rooms, own / module) and path.name != "__pycache__":
                (folder / path.relative_to(TREE)).symlink_to(path)
    text = (own / module).read_text()
    assert old in text
    (folder / "flux_ensemble" / module).write_text(text.replace(old, new))
    return folder


def differing(other: Path, questions: Sequence[Sequence[Any]]) -> list[tuple[Any, Any]]:
    """Ask both trees; the questions that they answer differently, with how."""
    found: list[tuple[Any, Any]] = []

    def show(name: str, given: Any, difference: Any) -> None:
        found.append((given[0], difference))

    process = Other(other, "document_side.py", show)
    try:
        for question in questions:
            process.compare("it", [question, say(question)])
        process.finish()
    finally:
        process.close()
    assert process.differences == len(found)
    return found


QUESTIONS = (
    ["document", GOOD],
    ["document", BAD],
    ["document", FUTILE],
    ["schema", "document"],
    ["schema", "editor"],
    ["explain", ["limits.active-jobs"]],
)


@pytest.mark.parametrize(
    ("module", "old", "new", "noticed"),
    [
        ("document/schema.py", "unknown key {", "no such key {", [1]),
        ("document/model.py", "active_jobs: int = 10_000", "active_jobs: int = 10_001", [0, 2]),
        ("document/problems.py", "line or self._line(path)", "(line or self._line(path)) + 1", [1]),
        ("document/lint.py", "the rule waits for jobs", "the rule awaits jobs", [2]),
        ("document/keys/document.py", "How many jobs of", "How few jobs of", [4, 5]),
    ],
    ids=["a sentence", "a default", "a line", "a warning", "an explanation"],
)
def test_a_change_of_one_place_is_found(
    tmp_path: Path, module: str, old: str, new: str, noticed: list[int]
) -> None:
    found = differing(planted(tmp_path, module, old, new), QUESTIONS)
    assert [question for question, _ in found] == [QUESTIONS[number] for number in noticed]


def test_a_difference_is_shown_with_its_document(capsys: pytest.CaptureFixture[str]) -> None:
    differences = document_differential.Differences(2)
    differences.show("first", [["document", BAD], "x"], ["a", "b"])
    with pytest.raises(SystemExit):
        differences.show("second", [["explain", ["jobs"]], "x"], ["a", "b"])
    out = capsys.readouterr().out
    assert out.startswith(BAD)
    assert "first differs\n  old  ...'a'\n  new  ...'b'\nsecond differs\n" in out


def test_questions_follow_from_the_seed_and_are_plain_data() -> None:
    twice = [list(document_differential.questions(1, range(5))) for _ in range(2)]
    assert twice[0] == twice[1]
    assert json.loads(json.dumps(twice[0])) == [list(one) for one in twice[0]]


def test_a_revision_is_a_tree_too() -> None:
    git = ["git", "-C", str(TREE), "rev-parse", "HEAD"]
    if subprocess.run(git, capture_output=True).returncode:
        pytest.skip("not in a checkout")
    with tree("HEAD") as folder:
        assert (folder / "flux_ensemble" / "__init__.py").is_file()
    assert not folder.exists()
    missing = tree("no-such-revision")
    with pytest.raises(SystemExit, match="neither a folder nor a revision"), missing:
        pass
