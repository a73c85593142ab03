"""Runs of one name: what has ended is kept, and the next run gets a number."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_queue import Run, await_pid

from flux_ensemble import Ensemble, __version__
from flux_ensemble.cli.main import run_command
from flux_ensemble.client.tables import AttemptFilter
from flux_ensemble.document.keys.forms import ENSEMBLE_NAME, matches
from flux_ensemble.engine.events import Event
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.queues.local.root import StateError
from flux_ensemble.queues.local.states import States
from flux_ensemble.run_names import can_be_named, free_name
from flux_ensemble.runtime.durability.format import FORMAT

SAYS = "jobs: [{{name: a, command: 'echo {0}'}}]\nrules: [{{trigger: start, action: {1}}}]\n"

Do = Callable[..., tuple[int, str, str]]


@pytest.fixture
def do(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Do:
    """Runs a command on local runs: its exit code, and what it printed."""
    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_command([words[0], "--queue", "local", "--state-dir", "state", *words[1:]])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def write(path: Path, says: str) -> str:
    """A document with a job that says something."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(SAYS.format(says, "{name: submit, label: a}"))
    return str(path)


def test_what_has_ended_is_kept_when_another_document_has_its_name(do: Do, tmp_path: Path) -> None:
    assert do("run", write(tmp_path / "a" / "sweep.yaml", "first"))[0] == 0
    before = {path: path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()}
    code, out, err = do("run", write(tmp_path / "b" / "sweep.yaml", "second"))
    assert code == 0
    assert "'sweep' has ended and is kept" in err
    assert "this run is 'sweep-2'" in err
    assert "sweep-2: completed" in out
    assert {path: path.read_bytes() for path in before} == before
    assert do("output", "sweep", "1")[1] == "first\n"
    assert do("output", "sweep-2", "1")[1] == "second\n"


def test_each_run_of_a_document_has_a_name_of_its_own(do: Do, tmp_path: Path) -> None:
    file = write(tmp_path / "sweep.yaml", "x")
    # It ends in a number, and is no run of it.
    write(tmp_path / "sweep-2.yaml", "other")
    assert do("run", "sweep-2.yaml")[0] == 0
    for _ in range(3):
        assert do("run", file)[0] == 0
    assert States(tmp_path / "state").names() == ["sweep-2", "sweep", "sweep-3", "sweep-4"]
    # A name that is given is asked for like that of a document.
    assert "this run is 'sweep-3-2'" in do("run", "--name", "sweep-3", file)[2]
    assert do("wait", "sweep-2", "sweep-4")[0] == 0
    assert do("wait", "sweep-5")[0] == 1


def test_what_is_removed_can_be_asked_for_again(do: Do, tmp_path: Path) -> None:
    file = write(tmp_path / "sweep.yaml", "x")
    for _ in range(3):
        do("run", file)
    code, out, _ = do("rm", "sweep", "sweep-3")
    assert (code, out) == (0, "sweep: removed\nsweep-3: removed\n")
    assert States(tmp_path / "state").names() == ["sweep-2"]
    assert do("rm", "sweep")[0] == 1
    assert "this run is" not in do("run", file)[2]


def test_a_run_that_was_given_up_is_kept_too(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    script = "echo $$ >fifo; read _ <fifo"
    document: dict[str, Any] = {
        "jobs": [{"name": "a", "command": ["sh", "-c", script], "retries": 1}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
    }
    states = States(tmp_path / "state")
    told = ""
    for number, options in enumerate(((), ("--no-resume",))):
        run = Run(tmp_path, document, *options)
        await_pid(tmp_path / "fifo")
        run.process.send_signal(signal.SIGTERM)
        code, _, told = run.end()
        assert code == 130
        assert len(states.names()) == 1 + number
    assert "'test' was interrupted, is given up and is kept" in told
    given_up, interrupted = (states.status(name) for name in ("test", "test-2"))
    assert "resumable" not in given_up
    assert given_up["reason"].endswith("given up with --no-resume, or resume=False")
    assert interrupted["resumable"] is True
    # What is gone on with is the one that can be, whatever its name.
    assert "an earlier run of 'test-2' was interrupted" in Run(tmp_path, document).end()[2]
    run = Run(tmp_path, document, "--resume")
    await_pid(tmp_path / "fifo")
    (tmp_path / "fifo").write_text("\n")
    code, _, err = run.end()
    assert code == 0
    assert "going on with 'test-2'" in err
    assert states.names() == ["test", "test-2"]
    assert "resumable" not in states.status("test-2")


def test_two_runs_of_a_name_at_once_are_refused_also_after_others_have_ended(
    do: Do, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    job = {"name": "a", "command": ["sh", "-c", "test -p fifo || exit 0; echo $$ >fifo; cat fifo"]}
    rules = [{"trigger": "start", "action": {"name": "submit", "label": "a"}}]
    document = {"jobs": [job], "rules": rules}
    (tmp_path / "fifo").rename(tmp_path / "no")
    assert Run(tmp_path, document).end()[0] == 0
    (tmp_path / "no").rename(tmp_path / "fifo")
    run = Run(tmp_path, document)
    await_pid(tmp_path / "fifo")
    code, _, err = do("run", "test.yaml")
    assert code == 1
    assert "an ensemble named 'test-2' is running already" in err
    assert "'flux-ensemble watch test-2 --state-dir state' follows it" in err
    (tmp_path / "fifo").write_text("\n")
    assert run.end()[0] == 0


def test_a_program_is_told_the_name_of_its_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("study", "study-2"):
        ensemble = Ensemble(
            name="study",
            jobs=[{"name": "a", "command": "true"}],
            rules=[{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
        )
        assert ensemble.run("local", state_dir=tmp_path)["name"] == name
        assert ensemble.name == name
        assert ensemble.status()["name"] == name
    assert "this run is 'study-2'" in capsys.readouterr().err
    assert Ensemble.attach("study", "local", state_dir=tmp_path).status()["state"] == "completed"


def test_many_runs_are_said(do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flux_ensemble.cli.session.local_run.MANY", 2)
    file = write(tmp_path / "sweep.yaml", "x")
    assert ["runs are kept in" in do("run", file)[2] for _ in range(3)] == [False, False, True]


@given(st.from_regex(ENSEMBLE_NAME), st.integers(1, 30))
def test_a_name_with_a_number_is_a_name_and_none_that_is_taken(asked: str, runs: int) -> None:
    taken: list[str] = []
    for _ in range(runs):
        name = free_name(asked, taken)
        assert name not in taken
        assert matches(ENSEMBLE_NAME, name)
        assert can_be_named(name, asked)
        taken.append(name)
    assert taken[0] == asked


def later(directory: Path, number: Any = FORMAT + 1) -> dict[Path, bytes]:
    """Have a later version written a run, in a form that this one does not know."""
    (directory / "format").write_text(json.dumps({"format": number, "since": "9.0.0"}))
    (directory / "status.json").write_text('{"status": [1, 2], "layout": 3}')
    (directory / "events").write_text("something else\n")
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


LATER = "the run of 'sweep' was written by a later flux-ensemble, in format"


@pytest.mark.parametrize(
    "words",
    [
        ("status", "sweep"),
        ("log", "sweep"),
        ("jobs", "sweep"),
        ("wait", "sweep"),
        ("report", "sweep"),
        ("cancel", "sweep"),
        ("rm", "sweep"),
        ("run", "sweep.yaml"),
        ("run", "--no-resume", "sweep.yaml"),
        ("run", "--resume", "sweep.yaml"),
    ],
)
def test_a_run_of_a_later_version_is_said_to_be_and_nothing_of_it_is_changed(
    do: Do, tmp_path: Path, words: tuple[str, ...]
) -> None:
    assert do("run", write(tmp_path / "sweep.yaml", "x"))[0] == 0
    before = later(tmp_path / "state" / "sweep")
    code, _, err = do(*words)
    assert code == 1
    assert LATER in err
    assert "nothing is damaged; go on with the version that wrote it, or remove it with" in err
    found = {path: path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()}
    assert found == before


def test_a_list_has_what_cannot_be_read_beside_the_others(do: Do, tmp_path: Path) -> None:
    for name in ("sweep", "damaged", "good"):
        assert do("run", write(tmp_path / f"{name}.yaml", "x"))[0] == 0
    later(tmp_path / "state" / "sweep")
    (tmp_path / "state" / "damaged" / "status.json").write_text("{")
    code, out, _ = do("list", "--json")
    assert code == 0
    listed = {one["name"]: one for one in json.loads(out)["ensembles"]}
    assert {name: one["state"] for name, one in listed.items()} == {
        "sweep": "unreadable",
        "damaged": "unreadable",
        "good": "completed",
    }
    assert listed["sweep"]["reason"].startswith(LATER)
    assert "unreadable" in do("list")[1]
    code, out, _ = do("status")
    assert code == 0
    assert f"unreadable sweep: {LATER}" in out
    assert "good" in out
    # A run of the later version that has made nothing else yet is there, too.
    (tmp_path / "state" / "sweep" / "eventlog").unlink()
    assert "sweep" in States(tmp_path / "state").names()


def test_who_goes_on_is_told_of_a_numbered_run_of_a_later_version(do: Do, tmp_path: Path) -> None:
    file = write(tmp_path / "sweep.yaml", "x")
    for _ in range(2):
        assert do("run", file)[0] == 0
    later(tmp_path / "state" / "sweep-2")
    assert "'sweep-2' was written by a later flux-ensemble" in do("run", "--resume", file)[2]
    # It keeps its name, and another run gets the next one.
    assert "this run is 'sweep-3'" in do("run", file)[2]
    assert do("rm", "--force", "sweep-2")[1] == "sweep-2: removed\n"
    assert States(tmp_path / "state").names() == ["sweep", "sweep-3"]


@pytest.mark.parametrize("text", ["", "[1]", '{"format": "x"}', '{"format": null}'])
def test_a_number_of_the_format_that_is_none_is_a_sentence(
    do: Do, tmp_path: Path, text: str
) -> None:
    assert do("run", write(tmp_path / "sweep.yaml", "x"))[0] == 0
    (tmp_path / "state" / "sweep" / "format").write_text(text)
    code, _, err = do("status", "sweep")
    assert code == 1
    assert "format" in err
    assert "Traceback" not in err


def test_a_run_without_a_number_is_of_the_first_format_and_gets_one_when_it_goes_on(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "fifo")
    document: dict[str, Any] = {
        "jobs": [{"name": "a", "command": ["sh", "-c", "echo $$ >fifo; read _ <fifo"]}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
    }
    run = Run(tmp_path, document)
    await_pid(tmp_path / "fifo")
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 130
    number = tmp_path / "state" / "test" / "format"
    assert json.loads(number.read_text()) == {"format": FORMAT, "by": __version__}
    number.unlink()
    assert States(tmp_path / "state").status("test")["resumable"] is True
    run = Run(tmp_path, document, "--resume")
    await_pid(tmp_path / "fifo")
    assert json.loads(number.read_text()) == {"format": FORMAT, "by": __version__}
    (tmp_path / "fifo").write_text("\n")
    assert run.end()[0] == 0


def test_the_number_of_the_format_changes_with_the_files_of_a_run(do: Do, tmp_path: Path) -> None:
    """Whoever changes the form raises FORMAT, once for a release, and writes the form down here."""
    assert do("run", write(tmp_path / "sweep.yaml", "x"))[0] == 0
    files = tmp_path / "state" / "sweep"
    first = {
        name: json.loads((files / name).read_text().splitlines()[0])
        for name in ("status.json", "eventlog", "jobs", "events")
    }
    form = {
        "files": sorted(path.name for path in files.iterdir()),
        **{name: sorted(value) for name, value in first.items()},
        "event types": sorted(cls.__name__ for cls in Event.__args__),
    }
    stored = json.loads((Path(__file__).parents[2] / "traces" / "format.json").read_text())
    assert (stored["format"], stored["local"]) == (FORMAT, form), f"now: {json.dumps(form)}"


def test_the_last_jobs_are_those_that_reading_all_finds(do: Do, tmp_path: Path) -> None:
    file = tmp_path / "many.yaml"
    file.write_text(
        "name: many\n"
        "jobs: [{name: a, command: 'true', count: 25}]\n"
        "rules: [{trigger: start, action: {name: submit, label: a}}]\n"
    )
    assert do("run", str(file))[0] == 0
    states = States(tmp_path / "state")
    every = list(states.jobs("many"))
    for most in (1, 7, 25, 40):
        assert states.last_jobs("many", most, None, states.ended_size("many")) == (
            every[-most:],
            25,
            [],
        )
    code, out, err = do("jobs", "many", "-c", "3", "-no", "{id}")
    assert (code, out.split(), err) == (0, [str(job["id"]) for job in every[-3:]], "")
    # The last line may be in the midst of being written; a damaged one is named with its number.
    jobs = tmp_path / "state" / "many" / "jobs"
    jobs.write_bytes(jobs.read_bytes() + b'{"id": 2')
    size = states.ended_size("many")
    assert states.last_jobs("many", 7, None, size) == (every[-7:], 25, [])
    jobs.write_bytes(b"[]\n" + jobs.read_bytes() + b"2}\n")
    with pytest.raises(StateError, match="jobs:27: expected a job"):
        states.last_jobs("many", 7, None, size)
    # Those that ended since are told apart, whether they ran again or not.
    again = json.dumps({**every[0], "replaced": "retry:0"}) + "\n"
    jobs.write_text(again * 2)
    attempts = AttemptFilter()
    assert states.last_jobs("many", 7, attempts, len(again)) == ([], 0, [json.loads(again)])
    assert len(attempts.held["retry:0"]) == 2
    jobs.write_text(again + again[:-2] + "\n")
    with pytest.raises(StateError, match="jobs:2: expected a job"):
        states.last_jobs("many", 7, AttemptFilter(), size)
    jobs.write_text("")
    assert states.last_jobs("many", 7, AttemptFilter(), 0) == ([], 0, [])


@pytest.mark.parametrize("stopped", [False, True])
def test_a_page_is_that_of_all_jobs_whatever_ran_again(
    stopped: bool, do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert do("run", write(tmp_path / "a" / "many.yaml", "x"))[0] == 0
    client = LocalClient(tmp_path / "state")
    (job,) = client.jobs("many")
    chance = random.Random(7)
    monkeypatch.setattr(client.states, "is_interrupted", lambda status: stopped)
    for _ in range(60):
        retries = chance.sample(range(20), 20)
        rows = []
        for id in range(chance.choice([3, 12, 20])):
            row: Any = {**job, "id": id, "params": {"replaced": f"retry:{chance.randrange(20)}"}}
            if chance.random() < 0.5:
                row |= {"rule": "retry", "firing": retries.pop()}
            row["outcome"] = chance.choice(["interrupted", "failed", "success"])
            if chance.random() < 0.4:
                row["replaced"] = f"retry:{chance.randrange(20)}"
            rows.append(row)
        ended = chance.randrange(len(rows) + 1)
        lines = "".join(json.dumps(row) + "\n" for row in rows[:ended])
        (tmp_path / "state" / "many" / "jobs").write_text(lines)
        active = {(None, row["id"]): row for row in rows[ended:]}
        monkeypatch.setattr(client, "_active", lambda name, active=active: dict(active))
        for interrupted in (False, True):
            every = client.jobs("many", interrupted=interrupted)
            expected = list(every)
            for last in (1, 4, 50):
                page = client.jobs("many", interrupted=interrupted, last=last)
                assert list(page) == expected[-last:]
                assert (page.total, page.left_out) == (len(expected), every.left_out)
