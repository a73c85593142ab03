"""Runs from Python, on the local queue: started, looked at, steered, waited for, shown."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from patience import PATIENCE

import flux_ensemble
from flux_ensemble import Action, Ensemble, Job, Rule, job_params
from flux_ensemble.api.ensemble import NotStartedError, StartedElsewhereError
from flux_ensemble.api.notebook import MOST_ROWS, document_html, status_html
from flux_ensemble.cli.main import ensemble as ensemble_command
from flux_ensemble.cli.session.overview import next_steps
from flux_ensemble.client import EnsembleError
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.scalars import spelled

START = Rule(trigger="start", action=Action(name="submit", label="a"))
EVIL = "</td><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m"


def make(command: str = "true", name: str = "demo", **more: Any) -> Ensemble:
    return Ensemble(name=name, jobs=[Job(name="a", command=command)], rules=[START], **more)


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Ensemble]:
    """One whose job runs until it is cancelled."""
    ensemble = make("sleep 100").start("local", state_dir=tmp_path, cores=2)
    yield ensemble
    if ensemble.status()["state"] == "running":
        ensemble.cancel()
        asyncio.run(ensemble.wait())


def test_run_returns_how_it_ended(tmp_path: Path) -> None:
    ensemble = make("sh -c 'exit 3'")
    ended = ensemble.run("local", state_dir=tmp_path)
    assert (ended["name"], ended["state"]) == ("demo", "completed")
    assert ended["trouble"] == "1 job failed"
    assert repr(ensemble) == "<Ensemble 'demo': completed, but 1 job failed>"
    assert f"({ended['reason']}, but 1 job failed)" in ensemble._repr_html_()
    (job,) = ensemble.jobs(outcome="failed")
    assert (job["group"], job["returncode"]) == ("a", 3)
    assert ensemble.metrics()["count"]["a"]["failed"] == 1
    assert [rule["fired"] for rule in ensemble.why()["rules"]] == [1]
    assert list(ensemble.jobs(filter="job.returncode == 0")) == []
    with pytest.raises(EnsembleError, match="filter"):
        list(ensemble.jobs(filter="job."))


def test_a_search_that_found_nothing_is_told_in_the_words_of_the_command(tmp_path: Path) -> None:
    search = {
        "id": "a", "group": "a", "variables": {"x": {"low": 0, "high": 1}},
        "minimize": "a-loss", "trials": 2, "sampler": "random",
    }  # fmt: skip
    rule = Rule(trigger="start", action={"name": "search", "label": "a"})
    job = Job(name="a", command="echo {x}")
    ensemble = Ensemble(name="tune", jobs=[job], search=[search], rules=[rule])
    trouble = ensemble.run("local", state_dir=tmp_path)["trouble"]
    assert trouble.startswith("search 'a' found nothing in 2 trials: ")
    told = CliRunner().invoke(ensemble_command, ["watch", "tune", "--state-dir", str(tmp_path)])
    assert f", but {trouble}\n" in " ".join(told.output.split()) + "\n"


def test_a_run_that_has_ended_leaves_no_file_open(tmp_path: Path) -> None:
    def run(name: str) -> int:
        ensemble = make(name=name)
        ensemble.run("local", state_dir=tmp_path)
        with pytest.raises(EnsembleError, match="ended"):
            ensemble.pause()
        return len(os.listdir("/proc/self/fd"))

    # The first one opens what later ones use, too.
    assert run("first") == run("second")


def test_resume_begins_a_run_that_never_began_and_does_not_repeat_one_that_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ensemble = make().start("local", state_dir=tmp_path, resume=True)
    assert asyncio.run(ensemble.wait())["state"] == "completed"
    again = make()
    assert again.run("local", state_dir=tmp_path, resume=True)["state"] == "completed"
    told = "flux-ensemble: 'demo' has ended, so nothing runs again: it would without resume=True\n"
    assert capsys.readouterr().err == told
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]
    assert len(list(again.jobs())) == len(list(ensemble.jobs()))
    other = Ensemble(name="demo", jobs=[Job(name="a", command="true")])
    with pytest.raises(EnsembleError, match="'demo' has ended, and has another document: without"):
        other.start("local", state_dir=tmp_path, resume=True)
    with pytest.raises(NotStartedError):
        other.jobs()


def test_resume_of_a_run_that_has_ended_with_failed_jobs_names_rerun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make("false").run("local", state_dir=tmp_path)
    capsys.readouterr()
    make("false").run("local", state_dir=tmp_path, resume=True)
    again = "rerun() runs the 1 failed job alone\n"
    assert capsys.readouterr().err.endswith(f"it would without resume=True, and {again}")


def cases(tmp_path: Path) -> Ensemble:
    """One of whose three jobs two fail as long as there is no table."""
    command = f"sh -c 'test {{x}} = 1 || cat {tmp_path}/table'"
    jobs = [Job(name="a", command=command, params={"x": [1, 2, 3]})]
    return Ensemble(name="demo", jobs=jobs, rules=[START])


def test_rerun_runs_what_failed_again_in_the_same_record(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    ensemble = cases(tmp_path)
    ensemble.run("local", state_dir=state_dir, nodes=2, cores=1)
    logged = (state_dir / "demo" / "eventlog").read_text().count("\n")
    # As the service answers, too.
    would = {"outcomes": {"failed": 2}, "jobs": 2, "unsent": 0, "state": "completed"}
    assert ensemble.rerun(dry_run=True) == {**would, "entries": logged}
    assert [job["outcome"] for job in ensemble.jobs()].count("failed") == 2
    (tmp_path / "table").touch()
    again = ensemble.rerun(filter="job.params.x == 3")
    assert (again["jobs"], again["state"], again["trouble"]) == (1, "completed", "1 job failed")
    assert (again["reopened"], again["entries"]) == (True, logged)
    # On as many nodes as before; and what it says to go on with is a command.
    said = (state_dir / "demo" / "again").read_text()
    assert said.startswith("flux-ensemble rerun --nodes 2 --cores 1 --gpus 0 --resume demo")
    again = Ensemble.attach("demo", state_dir=state_dir).rerun(failed=True, nodes=1)
    assert (again["jobs"], again["trouble"]) == (1, "")
    assert sorted((job["params"]["x"], job["outcome"]) for job in ensemble.jobs()) == [
        (1, "success"), (2, "success"), (3, "success"),
    ]  # fmt: skip
    none = {"outcomes": {}, "jobs": 0, "unsent": 0, "state": "completed"}
    logged = (state_dir / "demo" / "eventlog").read_text().count("\n")
    assert ensemble.rerun() == {**none, "entries": logged}
    assert [path.name for path in state_dir.iterdir()] == ["demo"]


def test_rerun_of_one_that_goes_on_does_not_wait(tmp_path: Path) -> None:
    jobs = [Job(name="a", command=f"test -e {tmp_path}/table"), Job(name="b", command="sleep 100")]
    rules = [START, Rule(trigger="start", action=Action(name="submit", label="b"))]
    ensemble = Ensemble(name="demo", jobs=jobs, rules=rules)
    ensemble.start("local", state_dir=tmp_path / "state", nodes=1, cores=2)

    async def failed() -> None:
        while not ensemble.status()["failed"]:
            await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(failed(), PATIENCE))
    (tmp_path / "table").touch()
    again = ensemble.rerun()
    del again["entries"]
    assert again == {
        "jobs": 1, "outcomes": {"failed": 1}, "unsent": 0, "state": "running", "reopened": False,
    }  # fmt: skip
    ensemble.cancel("b")
    assert asyncio.run(ensemble.wait())["trouble"] == ""
    assert [job["outcome"] for job in ensemble.jobs(group="a")] == ["success"]


def test_rerun_that_takes_too_long_is_cancelled(tmp_path: Path) -> None:
    command = f"sh -c 'test -e {tmp_path}/slow && sleep 100 || false'"
    ensemble = make(command)
    ensemble.run("local", state_dir=tmp_path / "state")
    (tmp_path / "slow").touch()
    with pytest.raises(TimeoutError):
        ensemble.rerun(timeout=0.1)
    assert ensemble.status()["state"] == "canceled"


def test_a_rerun_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotStartedError):
        make().rerun()
    ensemble = make("false")
    ensemble.run("local", state_dir=tmp_path)
    before = (tmp_path / "demo" / "eventlog").read_bytes()
    for error, message, asked in (
        (EnsembleError, "a job has no field 'nope'", {"filter": "job.nope > 1"}),
        (ValueError, "in two ways: give one", {"filter": "job.id > 1", "failed": True}),
        (ValueError, "at least 1 node, not 0", {"nodes": 0}),
        (TypeError, "timeout: expected a number of seconds", {"timeout": "1"}),
    ):
        with pytest.raises(error, match=message):
            ensemble.rerun(**asked)
    assert (tmp_path / "demo" / "eventlog").read_bytes() == before
    file = tmp_path / "demo" / "status.json"
    known = json.loads(file.read_text())
    known["status"].update(state="running", t_end=None)
    file.write_text(json.dumps(known))
    with pytest.raises(EnsembleError, match=r"'demo': its run was interrupted: .* goes on with it"):
        Ensemble.attach("demo", state_dir=tmp_path).rerun()


def test_a_rerun_that_cannot_be_leaves_nothing_in_the_directory_of_the_run(tmp_path: Path) -> None:
    ensemble = make("false")
    ensemble.run("local", state_dir=tmp_path)
    before = sorted(path.name for path in (tmp_path / "demo").iterdir())
    (tmp_path / "demo" / "events").write_text("{}\n{}\n")
    with pytest.raises(EnsembleError, match="events"):
        ensemble.rerun()
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == before


def test_resume_goes_on_with_the_latest_run_of_the_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        make().run("local", state_dir=tmp_path)
    capsys.readouterr()
    again = make()
    again.run("local", state_dir=tmp_path, resume=True)
    assert (again.name, capsys.readouterr().err.count("demo-2")) == ("demo-2", 1)


def test_resume_of_what_was_cancelled_names_the_methods_that_go_on(tmp_path: Path) -> None:
    ensemble = make(finish="never").start("local", state_dir=tmp_path)
    ensemble.cancel()
    asyncio.run(ensemble.wait())
    told = r"cancelled: run\(\) without resume=True starts it anew, and Ensemble.attach\('demo'\)"
    with pytest.raises(EnsembleError, match=rf"{told}.rerun\(\) runs the rest of it"):
        make().run("local", state_dir=tmp_path, resume=True)
    search = {"id": "hpo", "group": "a", "variables": {"x": ["a", "b"]}, "minimize": "loss",
              "trials": 1, "sampler": "random"}  # fmt: skip
    state = tmp_path / "search"
    ensemble = make(finish="never", search=[search]).start("local", state_dir=state)
    ensemble.cancel()
    asyncio.run(ensemble.wait())
    with pytest.raises(EnsembleError, match=rf"{told}.search\(more=N\) goes on with its search"):
        make(finish="never", search=[search]).run("local", state_dir=state, resume=True)


def test_rerun_says_that_trials_are_left_out_and_what_goes_on_with_their_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = {"id": "hpo", "group": "a", "variables": {"x": ["a", "b"]}, "minimize": "loss",
              "trials": 2, "sampler": "random"}  # fmt: skip
    begin = Rule(trigger="start", action=Action(name="search", label="hpo"))
    tune = Ensemble(
        name="tune", jobs=[Job(name="a", command="false")], search=[search], rules=[begin]
    )
    tune.run("local", state_dir=tmp_path)
    assert tune.rerun()["jobs"] == 0
    assert (
        "2 trials of searches do not run again, as their search has their results: search(more=N)"
        in capsys.readouterr().err
    )


def test_what_has_not_been_started_names_the_run_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(
        NotStartedError, match=r"has not been started: call start\(\) or run\(\) fi"
    ):
        make().status()
    make().run("local")
    with pytest.raises(NotStartedError, match=r"that is kept is Ensemble.attach\('demo'\)"):
        make().jobs()
    make().run("local")
    with pytest.raises(NotStartedError, match=r"that is kept is Ensemble.attach\('demo-2'\)"):
        make().jobs()
    file = tmp_path / "flux-ensemble" / "demo-2" / "status.json"
    known = json.loads(file.read_text())
    known["status"].update(state="running", t_end=None)
    file.write_text(json.dumps(known))
    for method in (make().status, make().resume):
        with pytest.raises(NotStartedError, match=r"was interrupted, and run\(resume=True\) or"):
            method()


def test_the_output_of_the_best_trial_of_a_search_is_found(tmp_path: Path) -> None:
    search = {
        "id": "a", "group": "a", "variables": {"x": {"low": 0, "high": 1}},
        "minimize": "loss", "trials": 2, "sampler": "random",
    }  # fmt: skip
    rule = Rule(trigger="start", action={"name": "search", "label": "a"})
    memo = f"{Path(sys.executable).parent / 'flux-ensemble'} memo loss={{x}}"
    job = Job(name="a", command=f"sh -c '{memo}; echo {{x}}'")
    ensemble = Ensemble(name="tune", jobs=[job], search=[search], rules=[rule])
    ensemble.run("local", state_dir=tmp_path)
    best = ensemble.best()[0]
    assert float(ensemble.output(best)) == best["params"]["x"]
    assert float(ensemble.output(best["job"])) == best["params"]["x"]
    of_trial = f"job.trial == {best['trial']}"
    assert [job["id"] for job in ensemble.jobs(filter=of_trial)] == [best["job"]]
    with pytest.raises(TypeError, match=r"not \[.{1,59}: pass one of them, such as output\(best"):
        ensemble.output(ensemble.best())  # type: ignore[arg-type]


def test_a_run_is_seen_by_the_commands_and_by_attach(tmp_path: Path) -> None:
    make().run("local", state_dir=tmp_path)
    other = Ensemble.attach("demo", state_dir=tmp_path)
    assert other.status()["groups"]["a"]["success"] == 1
    assert asyncio.run(other.wait())["state"] == "completed"
    with pytest.raises(EnsembleError, match="has ended"):
        other.cancel()
    with pytest.raises(EnsembleError, match="no ensemble named 'dmeo'"):
        Ensemble.attach("dmeo", "local", state_dir=tmp_path)


def test_wait_and_log_are_awaited_side_by_side(tmp_path: Path) -> None:
    async def follow() -> tuple[str, list[str]]:
        ensemble = make(name="both").start("local", state_dir=tmp_path)
        names: list[str] = []

        async def read() -> None:
            async for entry in ensemble.log():
                names.append(entry["name"])

        ended, _ = await asyncio.gather(ensemble.wait(timeout=PATIENCE), read())
        return ended["state"], names

    state, names = asyncio.run(follow())
    assert state == "completed"
    assert names[:2] == ["load", "start"]
    assert names[-1] == "finish"


def test_a_run_is_steered(waiting: Ensemble) -> None:
    assert waiting.pause() == "paused"
    with pytest.raises(EnsembleError, match="is paused"):
        waiting.submit("a")
    assert waiting.resume() == "running"
    assert len(waiting.submit("a", count=2)) == 2
    with pytest.raises(EnsembleError, match="no job group named 'b'"):
        waiting.submit("b")
    assert waiting.cancel() in ("ending", "canceled")
    assert asyncio.run(waiting.wait())["state"] == "canceled"
    with pytest.raises(EnsembleError, match="ended"):
        waiting.pause()


def test_wait_gives_up_and_the_ensemble_goes_on(waiting: Ensemble) -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(waiting.wait(timeout=0.0))
    assert waiting.status()["state"] == "running"
    with pytest.raises(EnsembleError, match="is running already"):
        make().start("local", state_dir=waiting_root(waiting))


def waiting_root(ensemble: Ensemble) -> Path:
    host: Any = ensemble._host
    root: Path = host._root
    return root


def test_a_refused_start_leaves_the_run_of_the_ensemble_alone(waiting: Ensemble) -> None:
    for again in (waiting.start, waiting.run):
        with pytest.raises(EnsembleError, match=r"name with name=, or .* Ensemble.attach\(\)"):
            again("local", state_dir=waiting_root(waiting))
    assert waiting.pause() == "paused"
    assert waiting.resume() == "running"
    waiting.cancel()
    assert asyncio.run(waiting.wait())["state"] == "canceled"


def test_an_ensemble_whose_start_was_refused_is_not_started(
    waiting: Ensemble, tmp_path: Path
) -> None:
    make(name="old").run("local", state_dir=tmp_path)
    second = make("sleep 100", name="old").start("local", state_dir=tmp_path)
    call = Rule(trigger="start", action=Action(name="custom", label="nothing"))
    plugin = Ensemble(name="plugin", rules=[call], plugins=["no_such_module"])
    for refused in (make(), make(name="old"), plugin):
        with pytest.raises(EnsembleError):
            refused.start("local", state_dir=tmp_path)
        assert repr(refused) == f"<Ensemble {refused.name!r}: not started>"
        assert "not started" in refused._repr_html_()
        with pytest.raises(NotStartedError):
            refused.jobs()
    second.cancel()
    asyncio.run(second.wait())


def test_a_run_of_another_program_is_steered_by_attach(tmp_path: Path) -> None:
    script = f"""
from flux_ensemble import *
Ensemble(name="far", finish="never", jobs=[Job(name="a", command="sleep 100")],
         rules=[Rule(trigger="start", action=Action(name="submit", label="a"))],
).run("local", state_dir={str(tmp_path)!r})
"""
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        while not (tmp_path / "far" / "control").exists():
            assert process.poll() is None
        far = Ensemble.attach("far", "local", state_dir=tmp_path)
        assert len(far.submit("a")) == 1
        assert far.cancel("a") == "running"
        assert far.terminate() in ("ending", "completed")
        assert asyncio.run(far.wait(PATIENCE))["state"] == "completed"
        assert process.wait(PATIENCE) == 0


PROGRAM = """
import sys
from flux_ensemble import *
WAITS = "touch $0/begun; test -e $0/go || sleep 100"
ended = Ensemble(
    name="demo",
    jobs=[Job(name="a", command=["sh", "-c", WAITS, sys.argv[1]])],
    rules=[Rule(trigger="start", action=Action(name="submit", label="a"))],
).run("local", state_dir=sys.argv[1], resume=RESUME)
print(ended["state"])
"""


def killed(directory: Path, resume: bool | None = None, *, file: bool = True) -> Ensemble:
    """Kill a program, which is a file or is typed, while it runs an ensemble; return that."""
    text = PROGRAM.replace("RESUME", str(resume))
    (directory / "my study.py").write_text(text)
    chosen = [sys.executable, *(["my study.py"] if file else ["-c", text]), "state"]
    with subprocess.Popen(chosen, cwd=directory) as process:
        while not (directory / "state" / "begun").exists():
            assert process.poll() is None
        process.kill()
    return Ensemble.attach("demo", "local", state_dir=directory / "state")


@pytest.mark.parametrize("resume", [None, True])
def test_an_interrupted_run_of_a_program_says_that_the_program_goes_on_with_it(
    tmp_path: Path, resume: bool | None
) -> None:
    far = killed(tmp_path, resume)
    command = f"cd {tmp_path} && {sys.executable} 'my study.py' state"
    clause = f"'{command}' goes on with it" + (
        "" if resume else ", with resume=True in its run() or start()"
    )
    for reason in (far.status()["reason"], asyncio.run(far.wait())["reason"]):
        assert reason == f"its run was interrupted: {clause}"
    with pytest.raises(EnsembleError, match=re.escape(clause) + "$"):
        far.pause()
    with pytest.raises(StartedElsewhereError, match=re.escape(clause) + "$"):
        far.run(resume=True)
    for words in (("status", "demo"), ("list",), ("rm", "demo"), ("pause", "demo")):
        told = CliRunner().invoke(
            ensemble_command,
            [*words, "--state-dir", str(tmp_path / "state")],
            env={"COLUMNS": "999"},
        )
        said = f"{told.output}{told.exception}"
        assert clause in said
        assert "FILE" not in said
    again, *_ = next_steps([far.status()], lambda *words: " ".join(words))
    # A program that does not say resume=True would begin anew.
    assert again[0] == (command if resume else "rerun --resume demo")
    # What is said is done, and works.
    program = tmp_path / "my study.py"
    program.write_text(program.read_text().replace("resume=None", "resume=True"))
    (tmp_path / "state" / "go").touch()
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout == "completed\n"


def test_an_interrupted_run_of_a_session_says_that_run_goes_on_with_it(tmp_path: Path) -> None:
    far = killed(tmp_path, file=False)
    clause = "run(resume=True) of the same Ensemble, in its notebook or session, goes on with it"
    assert far.status()["reason"] == f"its run was interrupted: {clause}"
    assert "resumes" not in far.status()
    with pytest.raises(EnsembleError, match=re.escape(clause) + "$"):
        far.pause()
    assert next(next_steps([far.status()], "{}".format)) == (
        "run(resume=True)",
        "in its notebook or session: goes on with 'demo', which was interrupted",
    )


@pytest.mark.parametrize("name", ["basin.ipynb", "basin.ipynb-jvsc-0a1b"])
def test_an_interrupted_run_of_a_notebook_names_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / name))
    far = killed(tmp_path, file=False)
    where = f"in the notebook {tmp_path / 'basin.ipynb'}"
    assert f"run(resume=True) of the same Ensemble, {where}, goes on" in far.status()["reason"]
    (again, why), *_ = next_steps([far.status()], "{}".format)
    assert (again, why.startswith(f"{where}: goes on with")) == ("run(resume=True)", True)


def test_a_run_of_a_program_is_steered_by_the_commands(waiting: Ensemble) -> None:
    root = waiting_root(waiting)
    told = CliRunner().invoke(ensemble_command, ["pause", "demo", "--state-dir", str(root)])
    assert told.output == "demo: paused\n"
    with pytest.raises(EnsembleError, match="is paused"):
        waiting.submit("a")
    assert waiting.resume() == "running"


def test_jobs_that_run_are_among_those_of_a_run_on_this_machine(waiting: Ensemble) -> None:
    while not (jobs := list(waiting.jobs())):
        assert waiting.status()["state"] == "running"
    (job,) = jobs
    assert (job["group"], job["outcome"]) == ("a", None)


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_table_without_its_library_names_the_command_for_it(
    waiting: Ensemble, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"^to_{name}\(\) needs {name}: .*install.* {name}$"):
        getattr(waiting.jobs(), f"to_{name}")()


def test_a_wait_that_is_cancelled_leaves_the_ensemble_alone(waiting: Ensemble) -> None:
    async def cancel() -> None:
        task = asyncio.create_task(waiting.wait())
        await anext(aiter(waiting.log()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert waiting.status()["state"] == "running"


def test_run_cancels_after_its_timeout(tmp_path: Path) -> None:
    ensemble = make("sleep 100")
    with pytest.raises(TimeoutError):
        ensemble.run("local", timeout=0.0, state_dir=tmp_path)
    assert ensemble.status()["state"] == "canceled"


def test_an_interrupt_cancels_the_run(tmp_path: Path) -> None:
    # Whoever starts the tests in the background has interrupts ignored.
    script = f"""
import signal
from flux_ensemble import *
signal.signal(signal.SIGINT, signal.default_int_handler)
Ensemble(name="long", jobs=[Job(name="a", command="sleep 100", count=5, max_active=2)],
         rules=[Rule(trigger="start", action=Action(name="submit", label="a"))],
).run("local", state_dir={str(tmp_path)!r})
"""
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as process:
        states = tmp_path / "long" / "eventlog"
        while not (states.exists() and "submit" in states.read_text()):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
        assert b"KeyboardInterrupt" in said
        assert b"jobs again, and what did not run (3 of 5 jobs were never submitted)" in said
    far = Ensemble.attach("long", state_dir=tmp_path)
    assert far.status()["state"] == "canceled"
    assert "5 jobs" in repr(far)


def test_what_cannot_run_says_so_at_once(tmp_path: Path) -> None:
    call = Rule(trigger="start", action=Action(name="custom", label="nothing"))
    with pytest.raises(EnsembleError, match="no_such_module"):
        Ensemble(name="demo", rules=[call], plugins=["no_such_module"]).start(
            "local", state_dir=tmp_path
        )
    with pytest.raises(ValueError, match="expected 'flux' or 'local', not 'lokal'"):
        make().start("lokal")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="queue='local'"):
        make().start("flux", nodes=3)
    with pytest.raises(NotStartedError, match="call start"):
        make().status()


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"timeout": "3"}, TypeError, "timeout: expected a number of seconds, not '3'"),
        ({"timeout": float("nan")}, ValueError, "timeout: expected a number of seconds, not nan"),
        ({"cores": "2"}, TypeError, "cores: expected a whole number, not '2'"),
        ({"cores": 1.5}, TypeError, "cores: expected a whole number, not 1.5"),
        ({"cores": 0}, ValueError, "at least 1 core, not 0"),
        ({"nodes": 0}, ValueError, "at least 1 node, not 0"),
        ({"gpus": -1}, ValueError, "at least 0 gpus, not -1"),
        ({"core": 2}, TypeError, "'core' [(]did you mean 'cores'"),
    ],
)
def test_an_argument_that_is_wrong_is_named_before_anything_runs(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], said: str
) -> None:
    ensemble = make("sleep 100")
    with pytest.raises(error, match=said):
        ensemble.run("local", state_dir=tmp_path, **given)
    assert repr(ensemble) == "<Ensemble 'demo': not started>"
    assert not list(tmp_path.iterdir())


def test_a_wait_with_a_timeout_that_is_no_number_says_so(waiting: Ensemble) -> None:
    with pytest.raises(TypeError, match="timeout: expected a number of seconds, not '3'"):
        asyncio.run(waiting.wait("3"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="nodes: expected a whole number"):
        make().simulate(nodes="2")  # type: ignore[arg-type]


def test_a_simulation_takes_what_the_document_says() -> None:
    prediction = make(simulate={"a": {"duration": "1h"}}).simulate(nodes=1, cores=2)
    assert prediction.makespan == 3600.0
    assert repr(prediction) == (
        "<Prediction of 'demo': completed after 1h, 1 job, "
        "100% of the nodes and 50% of the cores in use>"
    )
    assert make("x", simulate={"a": {"duration": "60d"}}).simulate().timed_out


def test_a_notebook_shows_the_state_and_the_groups(tmp_path: Path) -> None:
    ensemble = make()
    assert "not started" in ensemble._repr_html_()
    assert repr(ensemble) == "<Ensemble 'demo': not started>"
    ensemble.run("local", state_dir=tmp_path)
    html = ensemble._repr_html_()
    assert "completed" in html
    assert "1/1" in html
    assert repr(ensemble) == "<Ensemble 'demo': completed>"


def test_nothing_that_a_notebook_shows_is_markup() -> None:
    counts = dict.fromkeys(
        ("waiting", "pending", "running", "success", "failed", "canceled", "timeout", "finished"), 1
    )
    status: Any = {
        "name": EVIL, "state": EVIL, "reason": EVIL, "groups": {EVIL: counts}, "errors": [EVIL],
        "searches": [{"trouble": EVIL}],
    }  # fmt: skip
    rule = {"id": EVIL, "trigger": EVIL, "action": {"name": EVIL, "label": EVIL}}
    document = {"name": EVIL, "jobs": [{"name": EVIL, "command": [EVIL]}, EVIL], "rules": [rule]}
    for html in (status_html(status), document_html(document)):
        assert "<script" not in html
        assert "<img" not in html
        assert "\x1b" not in html
        assert "&lt;script&gt;" in html


def test_the_bar_of_a_group_has_a_part_for_each_outcome() -> None:
    counts = {"waiting": 5, "pending": 0, "running": 1, "finished": 4}
    ended = {"success": 2, "failed": 1, "canceled": 0, "timeout": 1}
    status: Any = {"name": "a", "state": "running", "groups": {"g": {**counts, **ended}}}
    html = status_html(status)
    assert re.findall(r"width:([\d.]+)%", html) == ["20.0", "10.0", "10.0"]
    assert "4/10" in html
    search: Any = {"group": "g", "state": "running", "trials": 20, "active": 6, "complete": 4}
    status["searches"] = [{**search, "trouble": None}]
    assert "4/20" in status_html(status)


def test_what_a_notebook_shows_is_short_and_says_so() -> None:
    counts = dict.fromkeys(
        ("waiting", "pending", "running", "success", "failed", "canceled", "timeout", "finished"), 0
    )
    groups = {f"g{number}": counts for number in range(1000)}
    status: Any = {"name": "big", "state": "running", "groups": groups}
    html = status_html(status)
    assert html.count("<tr>") == MOST_ROWS + 1
    assert f"and {1000 - MOST_ROWS} more" in html


#: A job that publishes values as they come out of numpy.
PUBLISHES = """
import numpy as np, flux_ensemble as fe
fe.memo(loss=np.float64({x}) / 2, steps=np.array([1, 2]), left=float("nan"))
fe.memo({"val-loss": np.int64(3)})
"""


def test_a_program_publishes_values_and_its_jobs_are_a_table(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PUBLISHES]
    job = Job(name="a", command=command, params={"x": [1, 2]})
    ensemble = Ensemble(name="table", jobs=[job], rules=[START])
    assert ensemble.run("local", state_dir=tmp_path)["state"] == "completed"
    jobs = ensemble.jobs(group="a")
    rows = sorted(jobs, key=lambda job: str(job["params"]["x"]))
    assert [row["memo"]["loss"] for row in rows] == [0.5, 1.0]
    assert rows[0]["memo"] == {"loss": 0.5, "steps": [1, 2], "left": "nan", "val-loss": 3}
    # Each iteration asks again.
    assert len(list(jobs)) == len(list(jobs)) == 2

    pandas = pytest.importorskip("pandas")
    table = jobs.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert sorted(zip(table["params.x"], table["memo.loss"], strict=True)) == [(1, 0.5), (2, 1.0)]
    pytest.importorskip("polars")
    polars = jobs.to_polars()
    assert sorted(polars["memo.loss"].to_list()) == [0.5, 1.0]
    assert set(polars.columns) <= set(table.columns)


#: A job that publishes its parameters.
READS = "import flux_ensemble as fe; fe.memo(read=fe.params())"


def read_by_jobs(ensemble: Ensemble, state_dir: Path) -> list[Any]:
    """What the jobs found that publish their parameters."""
    assert ensemble.run("local", state_dir=state_dir)["state"] == "completed"
    return [job["memo"]["read"] for job in sorted(ensemble.jobs(), key=lambda job: job["index"])]


def test_a_program_reads_the_parameters_of_its_job_with_their_types(tmp_path: Path) -> None:
    params = {"x": [1, 2.5], "name": "a 'b' \u00fc {x}", "fast": True, "none": "null"}
    job = Job(name="a", command=[sys.executable, "-c", READS], params=params)
    found = read_by_jobs(Ensemble(name="reads", jobs=[job], rules=[START]), tmp_path)
    assert found == [{**params, "x": 1}, {**params, "x": 2.5}]
    assert [type(one["x"]) for one in found] == [int, float]


def test_a_value_in_a_spelling_of_its_own_is_read_as_its_number(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("v\n1.10\n")
    params = {"v": {"file": str(tmp_path / "points.csv")}}
    job = Job(name="a", command=[sys.executable, "-c", READS], params=params)
    ensemble = Ensemble(name="spelled", jobs=[job], rules=[START])
    assert read_by_jobs(ensemble, tmp_path / "state") == [{"v": 1.1}]
    given = {name: spelled(name) for name in ("0x1F", "NO", "1e-5")}
    assert job_params.read({job_params.VARIABLE: job_params.text_of(given)}) == {
        "0x1F": 31, "NO": False, "1e-5": 1e-5,
    }  # fmt: skip


def test_a_job_without_parameters_reads_none_and_not_those_of_the_program_that_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where a job runs an ensemble.
    monkeypatch.setenv("FLUX_ENSEMBLE_PARAMS", '{"outer": 1}')
    job = Job(name="a", command=[sys.executable, "-c", READS])
    assert read_by_jobs(Ensemble(name="inner", jobs=[job], rules=[START]), tmp_path) == [{}]


def test_parameters_that_are_too_large_for_an_environment_run_and_are_an_error_to_read(
    tmp_path: Path,
) -> None:
    program = (
        "import flux_ensemble as fe\ntry: fe.params()\nexcept ValueError as e: fe.memo(read=str(e))"
    )
    params = {"one": "x" * 60_000, "two": "y" * 60_000}
    job = Job(name="a", command=[sys.executable, "-c", program], params=params)
    (found,) = read_by_jobs(Ensemble(name="large", jobs=[job], rules=[START]), tmp_path)
    assert found.startswith("the parameters of this job have more than 65,536 characters")


def test_a_table_of_jobs_is_shown_and_a_job_is_named_by_its_id(tmp_path: Path) -> None:
    job = Job(name="a", command="echo {x}", params={"x": list(range(12))})
    ensemble = Ensemble(name="shown", jobs=[job], rules=[START])
    ensemble.run("local", state_dir=tmp_path)
    lines = repr(ensemble.jobs()).splitlines()
    assert lines[0] == "12 jobs: list(...) has their mappings, to_pandas() a table"
    assert re.fullmatch(r"  \d+ a success x=\d+", lines[1])
    assert lines[-1] == "  and 2 more"
    rows = list(ensemble.jobs())
    assert [ensemble.output(row["id"]) for row in rows] == [f"{r['params']['x']}\n" for r in rows]
    with pytest.raises(EnsembleError, match="ensemble 'shown' has no job 4711"):
        ensemble.output(4711)
    with pytest.raises(TypeError, match="expected one of jobs"):
        ensemble.output("first")


def test_params_outside_of_a_job_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUX_JOB_ID", raising=False)
    with pytest.raises(RuntimeError, match="params is for use inside a job"):
        flux_ensemble.params()


def test_values_of_several_types_are_one_column(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    job = Job(name="a", command="true", params={"x": [1, "fine", 2.5, True]})
    ensemble = Ensemble(name="mixed", jobs=[job], rules=[START])
    ensemble.run("local", state_dir=tmp_path)
    assert len(ensemble.jobs().to_polars()["params.x"]) == 4


def test_memo_outside_of_a_job_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUX_JOB_ID", raising=False)
    with pytest.raises(RuntimeError, match="memo is for use inside a job"):
        flux_ensemble.memo(loss=1)


def test_values_of_numpy_are_numbers_in_requests(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    jobs = [Job(name="a", command="true {x}", params={"x": 1})]
    ensemble = Ensemble(name="demo", jobs=jobs, finish="never")
    ensemble.start("local", state_dir=tmp_path)
    asked = {"x": numpy.arange(2)}
    assert len(ensemble.submit("a", params=asked, count=numpy.int64(2))) == 4
    assert len(ensemble.submit("a", params={"x": numpy.int64(2)})) == 1
    assert len(ensemble.submit("a", params={"x": range(3)})) == 3
    assert ensemble.rerun(failed=numpy.bool_(True))["jobs"] == 0
    ensemble.terminate()
    asyncio.run(ensemble.wait())
    assert sorted(job["params"]["x"] for job in ensemble.jobs()) == [0, 0, 0, 1, 1, 1, 2, 2]


def test_a_value_that_is_no_json_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    ensemble = Ensemble(name="demo", jobs=[Job(name="a", command="true")], finish="never")
    ensemble.start("local", state_dir=tmp_path)
    for asked, told in (({1}, r"not \{1\}: write a list"), (math.nan, "expected a finite number")):
        with pytest.raises(EnsembleError, match=f"ensemble.submit: params.x: .*{told}"):
            ensemble.submit("a", params={"x": asked})
        with pytest.raises(EnsembleError, match=f"ensemble.submit: params.x: .*{told}"):
            LocalClient(tmp_path).submit("demo", "a", params={"x": asked})
    assert len(ensemble.submit("a")) == 1
    assert ensemble.terminate() == "completed"


def test_points_and_numbers_of_trials_may_be_numpys(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    program = f"{sys.executable} -m flux_ensemble memo loss={{x}}"
    search = {"id": "hpo", "group": "a", "variables": {"x": {"low": 0, "high": 1}, "k": ["a", "b"]},
              "minimize": "loss", "trials": 1, "sampler": "random"}  # fmt: skip
    begin = Rule(trigger="start", action=Action(name="search", label="hpo"))
    ensemble = Ensemble(
        name="demo", jobs=[Job(name="a", command=program)], search=[search], rules=[begin]
    )
    ensemble.run("local", state_dir=tmp_path)
    point = {"x": numpy.float64(0.25), "k": numpy.str_("a")}
    ended = ensemble.search(more=numpy.int64(1), points=[point])
    assert (ended["trials"], ended["state"]) == (3, "completed")
    assert 0.25 in [job["params"]["x"] for job in ensemble.jobs()]
