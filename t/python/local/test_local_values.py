"""Values on the local queue: what is written is what a job runs, and what is shown."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from local_queue import Run, command

from flux_ensemble.cli.main import run_command
from flux_ensemble.queues.local.states import States

#: As they stand in a document; what is in quotes there, with its quotes.
PLAIN = [
    "NO", "no", "yes", "True", "false", "1.10", "1.1", "0x1F", "0b11", "1_000", "1e5", "1E5", "+7",
    "-0", ".5", "5.", ".inf", "-.INF", ".nan", "1e999", "123456789012345678901234", "007",
    "12:30:00", "2024-01-01", "300", "-1.5", "v1.10", "a b", "12e4567",
]  # fmt: skip
QUOTED = ["1.10", "NO", "null", "300", " a ", "=1+1", "", "a,b;c", 'say "no"', "~"]
VALUES = [*PLAIN, *QUOTED]
WRITTEN = [*PLAIN, *map(json.dumps, QUOTED)]

DOCUMENT = """
name: {name}
jobs:
- name: a
  command: [sh, -c, 'printf "%s|%s\\n" "$1" "$V" >>ran', sh, "{{x}}"]
  environment: {{V: "{{x}}"}}
  params: {{x: {x}}}
rules:
- {{trigger: start, action: {{name: submit, label: a}}}}
"""


def run(directory: Path, name: str, x: str) -> list[dict[str, Any]]:
    """Run a document with these values; its jobs, in the order of the values."""
    (directory / f"{name}.yaml").write_text(DOCUMENT.format(name=name, x=x))
    (directory / "ran").unlink(missing_ok=True)
    told = flux_ensemble(directory, "run", f"{name}.yaml")
    assert told.returncode == 0, told.stderr
    return sorted(States(directory / "state").jobs(name), key=lambda job: job["index"])


def flux_ensemble(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    local = ("--queue", "local", "--state-dir", "state")
    return subprocess.run(
        command(words[0], *local, *words[1:]), cwd=directory, capture_output=True, text=True
    )


def test_any_scalar_is_run_shown_exported_and_read_back_as_it_is_written(tmp_path: Path) -> None:
    jobs = run(tmp_path, "first", f"[{', '.join(WRITTEN)}]")
    ran = (tmp_path / "ran").read_text().splitlines()
    assert sorted(ran) == sorted(f"{value}|{value}" for value in VALUES)
    assert [text(job["params"]["x"]) for job in jobs] == VALUES
    shown = flux_ensemble(tmp_path, "jobs", "first", "-n", "-o", "{index}|{params.x}|{params}")
    rows = [line.split("|") for line in shown.stdout.splitlines()]
    assert {int(row[0]): (row[1].strip(), row[2].strip()) for row in rows} == {
        index: (value.strip(), f"x={value}".strip()) for index, value in enumerate(VALUES)
    }
    written = flux_ensemble(tmp_path, "export", "first", "first.csv")
    assert written.returncode == 0, written.stderr
    with (tmp_path / "first.csv").open(newline="") as file:
        cells = {int(row["index"]): row["params.x"] for row in csv.DictReader(file)}
    guarded = {"=1+1": "'=1+1", "-.INF": "'-.INF"}
    assert cells == {index: guarded.get(value, value) for index, value in enumerate(VALUES)}
    # The sheet is in the order in which the jobs ended.
    order = list(cells)
    again = run(tmp_path, "again", "{file: first.csv}")
    assert [text(job["params"]["x"]) for job in again] == [VALUES[index] for index in order]
    assert sorted((tmp_path / "ran").read_text().splitlines()) == sorted(ran)


def text(value: Any) -> str:
    """A value from JSON as it is shown."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_each_attempt_has_a_file_of_its_own_where_its_name_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document: dict[str, Any] = {
        "jobs": [
            {
                "name": "a",
                "command": ["sh", "-c", "echo attempt {attempt} of {x}; test {attempt} -gt {x}"],
                "params": {"x": [0, 9]},
                "output": "out/{x}-{attempt}.txt",
                "retries": 2,
            }
        ],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
    }
    assert Run(tmp_path, document).end()[0] == 0
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {
        f"{x}-{attempt}.txt": f"attempt {attempt} of {x}\n"
        for x, attempts in ((0, 2), (9, 3))
        for attempt in range(attempts)
    }
    state = ["--queue", "local", "--state-dir", str(tmp_path / "state")]
    assert run_command(["failures", *state, "test"]) == 0
    assert "attempt 2 of 9" in capsys.readouterr().out
    assert run_command(["jobs", *state, "test", "--json"]) == 0
    outputs = [job["output"] for job in json.loads(capsys.readouterr().out)["jobs"]]
    assert sorted(Path(path).name for path in outputs) == [
        "0-0.txt", "0-1.txt", "9-0.txt", "9-1.txt", "9-2.txt"
    ]  # fmt: skip
