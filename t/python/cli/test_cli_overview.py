"""`flux-ensemble` alone: how to begin, and what to do on coming back."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flux_ensemble.cli.session.overview import MOST, first_steps, latest, next_steps
from flux_ensemble.queues.local.client import LocalClient

#: The program of this environment.
PROGRAM = Path(sys.executable).parent / "flux-ensemble"

FAILS = """
jobs: [{name: a, command: "sh -c 'exit {x}'", params: {x: [0, 3]}}]
rules: [{trigger: start, action: {name: submit, label: a}}]
"""
WAITS = """
jobs: [{name: a, command: "sh -c 'test -e go || { touch here; sleep 1000; }'"}]
rules: [{trigger: start, action: {name: submit, label: a}}]
"""


SEARCHES = """
jobs: [{name: a, command: "sh -c 'test {x} -gt 3 || flux-ensemble memo los={x}'"}]
search:
- {id: s, group: a, variables: {x: {low: 0, high: 9, integer: true}}, minimize: loss, trials: 3}
rules: [{trigger: start, action: {name: search, label: s}}]
"""


class Home:
    """A user without Flux, in a directory of theirs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FLUX_")}
        self.env = {
            **kept,
            "HOME": str(path),
            "PATH": f"{PROGRAM.parent}:/usr/bin:/bin",
            "COLUMNS": "200",
        }
        self.env.pop("XDG_STATE_HOME", None)

    def shell(self, command: str, *, cwd: Path | None = None, code: int = 0) -> str:
        done = subprocess.run(
            command,
            shell=True,
            cwd=cwd or self.path,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def advice(self, *, cwd: Path | None = None) -> dict[str, str]:
        """Return the commands that the overview names, each with what it says of it."""
        out = self.shell("flux-ensemble", cwd=cwd)
        # Beside a long command there is no room.
        lines = re.sub(r"^(  \S.*)\n    +(?=\S)", r"\1  ", out, flags=re.MULTILINE).splitlines()
        rows = (re.fullmatch(r"  (\S.*?)  +(\S.*)", line) for line in lines)
        return {row[1]: row[2] for row in rows if row}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_on_the_first_run_the_commands_for_a_first_sweep_are_shown_and_work(home: Home) -> None:
    out = home.shell("flux-ensemble")
    assert "There is no ensemble on this machine yet" in out
    first, second, last = home.advice()
    assert last == "flux-ensemble --help"
    assert "written" in home.shell(first)
    out = home.shell(f"{second} --queue local")
    assert "completed" in out
    assert "no browser can be opened here: the report is" in out
    assert len(list(home.path.glob("*.html"))) == 1
    assert home.advice()["flux-ensemble best sweep"] == "shows its best points"


def test_a_run_that_was_killed_leads_to_the_command_that_goes_on_with_it(home: Home) -> None:
    (home.path / "my study.yaml").write_text(WAITS)
    words = [str(PROGRAM), "run", "--cores", "1", "--name", "study", "my study.yaml"]
    run = subprocess.Popen(words, cwd=home.path, env=home.env, stdout=subprocess.DEVNULL)
    while not (home.path / "here").exists():
        assert run.poll() is None
    assert "flux-ensemble top study" in home.advice()
    run.send_signal(signal.SIGKILL)
    run.wait()
    resumes = "flux-ensemble run --name study --cores 1 --resume 'my study.yaml'"
    assert home.advice()[resumes] == "goes on with 'study', which was interrupted"
    # It is typed in another directory.
    (command,) = [one for one in home.advice(cwd=Path("/")) if "--resume" in one]
    assert command == f"cd {home.path} && {resumes}"
    assert f"'{command}' goes on with it" in home.shell("flux-ensemble list", cwd=Path("/"))
    for shown in ("", "list", "list -f interrupted", "status", "status study"):
        assert re.search("study +interrupted ", home.shell(f"flux-ensemble {shown}"))
    assert "study" not in home.shell("flux-ensemble list -f failed")
    narrow = "import pty; pty.spawn(['flux-ensemble', 'status', 'study'])"
    shown = home.shell(f'COLUMNS=80 python3 -c "{narrow}"', cwd=Path("/"))
    assert f"'{command}' goes on with it" in " ".join(shown.split())
    seen = home.shell("flux-ensemble top --once study")
    assert "study: interrupted" in seen
    assert seen.splitlines()[-1] == f"{resumes}  goes on with 'study', which was interrupted"
    assert home.shell("flux-ensemble why study").startswith("study: its run was interrupted: ")
    home.shell("flux-ensemble report study")
    page = (home.path / "study.html").read_text()
    assert '<span class="state s-interrupted">interrupted</span>' in page
    assert "the ensemble failed" not in page
    assert f"'{command}' goes on with it" in home.shell("flux-ensemble top", cwd=Path("/"))
    (home.path / "go").touch()
    assert "study: completed" in home.shell(command, cwd=Path("/"))
    assert "flux-ensemble report study --open" in home.advice()


def test_the_time_in_which_a_run_was_interrupted_counts_nowhere(home: Home) -> None:
    (home.path / "two.yaml").write_text(WAITS.replace("}]", ", params: {x: [1, 2]}}]", 1))
    words = [str(PROGRAM), "run", "--nodes", "1", "--cores", "1", "two.yaml"]
    run = subprocess.Popen(words, cwd=home.path, env=home.env, stdout=subprocess.DEVNULL)
    while not (home.path / "here").exists():
        assert run.poll() is None
        time.sleep(0.05)
    run.send_signal(signal.SIGKILL)
    run.wait()
    # Longer than a time that is rounded to none.
    time.sleep(1.5)
    (home.path / "go").touch()
    out = home.shell("flux-ensemble run --nodes 1 --cores 1 --resume two.yaml")
    assert re.search("going on after 1 firing, interrupted for [1-9][0-9.]*[sm]", out)
    took = re.search("completed after (.*)s, not counting .*s in which it did not run", out)
    assert took
    (status,) = json.loads(home.shell("flux-ensemble status two --json"))["ensembles"]
    ran = status["t_end"] - status["t_start"] - status["away"]
    assert status["away"] > 1.4
    assert float(took[1]) == pytest.approx(ran, abs=0.1)
    waited = home.shell("flux-ensemble jobs two -no '{pending}' 2>/dev/null").split()
    assert len(waited) == 2
    assert max(map(float, waited)) < ran + 0.1
    home.shell("flux-ensemble report two")
    page = (home.path / "two.html").read_text()
    assert "it did not run for" in page


def test_a_run_of_standard_input_goes_on_with_the_document_that_is_kept(home: Home) -> None:
    words = [str(PROGRAM), "run", "--name", "study", "-"]
    with subprocess.Popen(
        words, cwd=home.path, env=home.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        run.stdin.write(WAITS)
        run.stdin.close()
        while not (home.path / "here").exists():
            assert run.poll() is None
        run.send_signal(signal.SIGTERM)
        told = run.stdout.read()
    (command,) = [one for one in home.advice(cwd=Path("/")) if "--resume" in one]
    assert command.removeprefix(f"cd {home.path} && ") in told
    (home.path / "go").touch()
    assert "study: completed" in home.shell(command, cwd=Path("/"))


def test_a_run_with_failures_leads_to_why_and_to_its_report(home: Home) -> None:
    (home.path / "study.yaml").write_text(FAILS)
    home.shell("flux-ensemble run study.yaml")
    advice = home.advice()
    assert list(advice) == [
        "flux-ensemble failures study",
        "flux-ensemble report study --open",
        "flux-ensemble --help",
    ]
    assert advice["flux-ensemble failures study"] == "says why 1 of its jobs failed"
    assert "a: exit 3: 1 job" in home.shell("flux-ensemble failures study")
    for words in ("", " list", " status study", " list -o long"):
        heading, row = home.shell(f"flux-ensemble{words}").splitlines()[:2]
        until = heading.index("FAILED") + len("FAILED")
        assert heading[:until].endswith(" FINISHED FAILED")
        assert row[:until].endswith("        2      1")
    assert "study.html" in home.shell("flux-ensemble report study --open")


def test_trials_without_a_value_lead_to_why_they_have_none(home: Home) -> None:
    (home.path / "study.yaml").write_text(SEARCHES)
    home.shell("flux-ensemble run study.yaml", code=1)
    why = "flux-ensemble failures study"
    assert home.advice()[why] == "says why 3 of its trials failed"
    assert f"3 trials of searches failed: '{why}' says why" in home.shell(
        "flux-ensemble rerun study"
    )
    said = home.shell(why)
    assert said.startswith(
        "0 of 3 jobs failed\n\nsearch 's': 3 jobs succeeded and gave no value of"
    )
    (shows,) = re.findall(r"see: (.*)", said)
    assert home.shell(f"{shows} -n | wc -l").split() == ["3"]


def test_the_command_of_another_users_run_is_not_recommended(home: Home) -> None:
    """Who can write there could recommend anything."""
    (home.path / "study.yaml").write_text(FAILS)
    home.shell("flux-ensemble run study.yaml")
    kept = home.path / ".local" / "state" / "flux-ensemble" / "study"
    status = (kept / "status.json").read_text()
    (kept / "status.json").write_text(status.replace('"state": "completed"', '"state": "running"'))
    (kept / "again").write_text("flux-ensemble run --resume study.yaml\n; rm x")
    assert not any("rm x" in command for command in home.advice())
    if os.geteuid() == 0:
        (kept / "again").write_text("rm x")
        os.chown(kept, 12345, -1)
        assert not any("rm x" in command for command in home.advice())


def test_the_latest_ensemble_comes_first() -> None:
    ended: Any = {"state": "completed", "groups": {}}
    statuses: Any = [{"name": f"run-{number}", **ended} for number in range(3)]
    steps = [text for text, _ in next_steps(statuses, lambda *words: " ".join(words))]
    assert steps[:3] == [f"report run-{number} --open" for number in (2, 1, 0)]


def test_an_interrupted_run_comes_before_all_and_a_cancelled_one_runs_again() -> None:
    group = {"failed": 0, "timeout": 0, "canceled": 2}
    cancelled: Any = {"name": "cut", "state": "canceled", "groups": {"a": group}}
    search: Any = {**cancelled, "name": "tune", "searches": []}
    search["searches"] += [{"id": "s", "group": "a", "best": None, "trials": 3, "active": 2}]
    lost: Any = {"name": "lost", "state": "interrupted", "resumable": True, "groups": {}}
    lost["again"] = {"command": "flux-ensemble run --resume a.yaml"}
    steps = next_steps([lost, cancelled, search], lambda *words: " ".join(words))
    assert list(steps)[:-1] == [
        ("flux-ensemble run --resume a.yaml", "goes on with 'lost', which was interrupted"),
        ("search tune --more 2", "goes on with its search"),
        ("report tune --open", "shows what became of 'tune'"),
        ("rerun cut", "runs what was cancelled"),
        ("report cut --open", "shows what became of 'cut'"),
    ]


def test_a_long_command_stands_alone(home: Home) -> None:
    (home.path / "a.yaml").write_text(WAITS)
    words = [str(PROGRAM), "run", "--quiet", "--name", "study", "a.yaml"]
    with subprocess.Popen(words, cwd=home.path, env=home.env, stderr=subprocess.DEVNULL) as run:
        while not (home.path / "here").exists():
            assert run.poll() is None
        run.send_signal(signal.SIGKILL)
    shown = home.shell("flux-ensemble", cwd=Path("/")).splitlines()[-3:]
    assert shown[0] == f"  cd {home.path} && flux-ensemble run --name study --resume a.yaml"
    assert shown[1] == f"{'':24}goes on with 'study', which was interrupted"
    assert shown[2] == "  flux-ensemble --help  lists all commands"


PROGRAM_OF_THEIRS = """
from flux_ensemble import Action, Ensemble, Job, Rule

Ensemble(
    name="study",
    jobs=[Job(name="a", command="sh -c 'touch here; test -e go || sleep 1000'")],
    rules=[Rule(trigger="start", action=Action(name="submit", label="a"))],
).run()
"""


def test_a_program_that_does_not_resume_goes_on_without_a_change_of_it(home: Home) -> None:
    (home.path / "lo.py").write_text(PROGRAM_OF_THEIRS)
    words = [sys.executable, "lo.py"]
    with subprocess.Popen(words, cwd=home.path, env=home.env, stderr=subprocess.DEVNULL) as run:
        while not (home.path / "here").exists():
            assert run.poll() is None
        run.send_signal(signal.SIGKILL)
    resumes = "flux-ensemble rerun --resume study"
    assert home.advice()[resumes] == "goes on with 'study', which was interrupted"
    told = home.shell("flux-ensemble run --resume lo.py", code=1)
    assert f"lo.py: this is a program: '{resumes}' goes on with its run\n" in told
    (home.path / "go").touch()
    assert "study: completed" in home.shell(resumes)


def test_in_a_flux_instance_all_commands_are_those_of_flux() -> None:
    texts = [text for text, _ in (*first_steps(flux=True), *next_steps([], str, flux=True))]
    assert texts[-1] == "flux ensemble --help"
    assert all(text.startswith("flux ensemble ") for text in texts)


def test_only_the_latest_ensembles_are_asked_for_and_shown(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home.path / "study.yaml").write_text(FAILS)
    for number in range(MOST + 1):
        home.shell(f"flux-ensemble run --quiet --name run-{number} study.yaml")
    out = home.shell("flux-ensemble")
    assert "run-0" not in out
    assert f"run-{MOST}" in out
    assert "and 1 more: 'flux-ensemble list'\n" in out

    asked: list[str | None] = []
    status = LocalClient.status

    def asking(self: LocalClient, name: str | None = None) -> dict[str, Any]:
        asked.append(name)
        return status(self, name)

    monkeypatch.setattr(LocalClient, "status", asking)
    kept = home.path / ".local" / "state" / "flux-ensemble"
    numbers = range(1, MOST + 1)
    shown = [one["name"] for one in latest(LocalClient(kept))]
    assert shown == [f"run-{number}" for number in numbers]
    assert asked == shown[::-1]
    # One that cannot be read is left out, and an earlier one has its place.
    (kept / "run-3" / "status.json").write_text("{")
    shown = [one["name"] for one in latest(LocalClient(kept))]
    assert shown == [f"run-{number}" for number in range(MOST + 1) if number != 3]
