"""A search on the local queue: killed and resumed, it has the points of a run that was not."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from local_queue import Run, command, command_of, descendants

from flux_ensemble.cli.main import run_command
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.features.search.advisers import described
from flux_ensemble.features.search.model import searches_of
from flux_ensemble.features.search.samplers import SearchSampler
from flux_ensemble.features.search.suggester import suggesting
from flux_ensemble.queues.local.root import StateError
from flux_ensemble.queues.local.states import States

pytest.importorskip("optuna")

TRIALS = 12

#: Seconds between two looks at what jobs have written.
TICK = 0.05

#: A job says that it runs, and goes on when it may.
SCRIPT = "echo {x} >>ran; until test -e go-on || test $(wc -l <ran) -lt 5; do sleep 0.05; done"


def document(directory: Path) -> dict[str, Any]:
    search = {
        "id": "hpo",
        "group": "trial",
        "variables": {"x": {"low": 0, "high": 1}},
        "maximize": "fom",
        "sampler": "random",
        "trials": TRIALS,
        "parallel": 2,
        "failures": TRIALS + 1,
    }
    return {
        "name": "test",
        "seed": 7,
        "search": [search],
        "jobs": [{"name": "trial", "command": ["sh", "-c", SCRIPT], "workdir": str(directory)}],
        "rules": [{"trigger": "start", "action": {"name": "search", "label": "hpo"}}],
    }


def kill(run: Run) -> None:
    """Kill a run, and all that it has started."""
    for pid in (run.process.pid, *descendants(run.process.pid)):
        # What a job runs may have ended since.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    run.end()


def generated(directory: Path, name: str) -> dict[str, Any]:
    """With a generator beside the document, of trials that publish their parameter."""
    value = document(directory)
    value["search"][0] |= {"minimize": "fom", "generator": f"generators:{name}", "parallel": 1}
    del value["search"][0]["sampler"], value["search"][0]["maximize"]
    value["search"][0]["trials"] = 7
    value["jobs"][0]["command"] = command("memo", "fom={x}")
    return value


def await_asked(run: Run, directory: Path) -> None:
    """Wait until the generator is in the midst of an ask, once more."""
    while not (directory / "asked").exists():
        assert run.process.poll() is None
        time.sleep(0.01)
    (directory / "asked").unlink()


def test_killed_while_a_generator_is_asked_a_run_goes_on_with_the_same_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gest_api")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "helpers"))
    first = Run(tmp_path, generated(tmp_path, "Waits"))
    await_asked(first, tmp_path)
    (generator,) = (pid for pid in descendants(first.process.pid) if b"child.py" in command_of(pid))
    # The run starts another one, and asks it the same.
    os.kill(generator, signal.SIGKILL)
    await_asked(first, tmp_path)
    kill(first)
    (tmp_path / "go-on").touch()
    code, _, err = Run(tmp_path, generated(tmp_path, "Waits"), "--resume").end()
    assert (code, err) == (0, "")
    states = States(tmp_path / "state")
    (search,) = states.status("test")["searches"]
    assert (search["state"], search["reason"], search["complete"]) == ("done", "trials", 7)
    trials = {job["firing"]: job["params"]["x"] for job in states.jobs("test")}
    # As without a kill, and with a generator that does not wait.
    (given,) = searches_of(load_mapping(generated(tmp_path, "Learner")))
    asking = suggesting(described(given, 7))
    points: list[float] = []
    for number in range(7):
        ends = [[number - 1, points[-1]]] if points else []
        request = {"count": 1, "points": [], "attributes": {}, "ends": ends}
        points.append(asking.answer(request)["points"][0]["params"]["x"])
    assert trials == dict(enumerate(points))


def _is_searching(states: States) -> bool:
    """Whether the files of a run, which are written each second, have its search."""
    with contextlib.suppress(StateError):
        (search,) = states.status("test")["searches"]
        return bool(search["state"] == "running")
    return False


def test_a_run_that_is_killed_goes_on_with_the_points_of_one_that_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Run(tmp_path, document(tmp_path))
    ran, states = tmp_path / "ran", States(tmp_path / "state")
    while not ran.exists() or len(ran.read_text().splitlines()) < 5 or not _is_searching(states):
        assert first.process.poll() is None
        os.sched_yield()
    kill(first)
    local = ["--queue", "local", "--state-dir", str(tmp_path / "state")]
    assert run_command(["search", "test", *local, "-n", "-o", "{state}"]) == 0
    assert capsys.readouterr().out.strip() == "interrupted"
    assert run_command(["search", "test", *local]) == 0
    head, row = capsys.readouterr().out.splitlines()[:2]
    assert head[: head.index("SAMPLER")].split()[-1] == "STATE"
    assert row.index("interrupted") == head.index("STATE")
    assert row[head.index("SAMPLER") - 2 :].startswith("d ")
    (tmp_path / "go-on").touch()
    # That it found nothing is meant to be.
    code, _, err = Run(tmp_path, document(tmp_path), "--resume", "--fail-on", "job").end()
    assert (code, err) == (0, "")
    states = States(tmp_path / "state")
    (search,) = states.status("test")["searches"]
    assert (search["state"], search["reason"], search["failed"]) == ("done", "trials", TRIALS)
    trials = {job["trial"]: job["params"] for job in states.jobs("test")}
    assert trials == points_of(document(tmp_path))


def many(directory: Path, **of_search: Any) -> dict[str, Any]:
    """24 trials at once, which run until they may go on; 30 in all."""
    script = (
        "echo {x} >>ran; until test -e go-on; do sleep 0.2; done; echo {x} >>done; "
        + shlex.join(command("memo", "fom={x}"))
    )
    value = document(directory)
    value["search"][0] |= {"trials": 30, "parallel": 24, "failures": 1, **of_search}
    value["jobs"][0]["command"] = ["sh", "-c", script]
    return value


@pytest.mark.parametrize(
    "of_search",
    [{"on-failure": "skip"}, {"on-failure": "retry"}, {"trials": 10, "parallel": 8, "repeats": 3}],
    ids=["skip", "retry", "repeats"],
)
def test_trials_that_a_kill_ended_run_again_and_have_not_failed(
    tmp_path: Path, of_search: dict[str, Any]
) -> None:
    value, repeats = many(tmp_path, **of_search), of_search.get("repeats", 1)
    size = ("--nodes", "4", "--cores", "6")
    first = Run(tmp_path, value, *size)
    ran = tmp_path / "ran"
    while not ran.exists() or len(ran.read_text().splitlines()) < 24:
        assert first.process.poll() is None
        time.sleep(TICK)
    kill(first)
    (tmp_path / "go-on").touch()
    code, out, err = Run(tmp_path, value, *size, "--resume").end()
    assert (code, err) == (0, ""), out
    states = States(tmp_path / "state")
    status = states.status("test")
    (search,) = status["searches"]
    assert (search["state"], search["reason"]) == ("done", "trials")
    assert (search["complete"], search["failed"], search["canceled"]) == (30 // repeats, 0, 0)
    counts = status["groups"]["trial"]
    ended = {name: counts[name] for name in ("success", "failed", "interrupted", "finished")}
    assert ended == {"success": 30, "failed": 0, "interrupted": 24, "finished": 30}
    # By what the jobs did, each point was tried to its end once, or as often as it is repeated.
    done = (tmp_path / "done").read_text().split()
    points = [str(point["x"]) for point in points_of(value).values()]
    assert sorted(done) == sorted(points * repeats)
    rows = Counter((job["outcome"], job["interrupted"]) for job in states.jobs("test"))
    assert rows == {("interrupted", True): 24, ("success", False): 30}


def test_a_run_with_a_warm_start_goes_on_after_a_kill_without_its_file(tmp_path: Path) -> None:
    sheet = tmp_path / "old.csv"
    sheet.write_text("x,fom\n" + "".join(f"0.{digit},{digit}\n" for digit in range(1, 9)))
    value = many(tmp_path, sampler="tpe", trials=8, parallel=3)
    value["search"][0]["warm-start"] = {"from": "old.csv"}
    whole = load_mapping(value, directory=str(tmp_path)).expansion
    first = Run(tmp_path, value)
    ran = tmp_path / "ran"
    while not ran.exists() or len(ran.read_text().splitlines()) < 3:
        assert first.process.poll() is None
        time.sleep(TICK)
    kill(first)
    sheet.unlink()
    began = ran.read_text().split()
    (tmp_path / "go-on").touch()
    code, out, err = Run(tmp_path, value, "--resume").end()
    assert (code, err) == (0, ""), out
    states = States(tmp_path / "state")
    (search,) = states.status("test")["searches"]
    assert (search["state"], search["reason"], search["complete"]) == ("done", "trials", 8)
    assert search["warm_start"] == {"trials": 8, "best": {"value": 8.0, "params": {"x": 0.8}}}
    # Those that a kill ended run again with the same parameters, which the warm start led to.
    jobs = [job for job in states.jobs("test") if job["outcome"] == "success"]
    trials = {job["trial"]: job["params"]["x"] for job in jobs}
    assert whole is not None
    (given,) = searches_of(load_mapping(whole))
    request = {"count": 3, "points": [], "attributes": {}, "ends": []}
    points = SearchSampler(described(given, 7)).answer(request)["points"]
    assert [trials[number] for number in range(3)] == [one["params"]["x"] for one in points]
    assert sorted(began) == sorted(str(trials[number]) for number in range(3))


def test_a_run_begins_with_the_trials_of_another_one(tmp_path: Path) -> None:
    value = many(tmp_path, sampler="random", trials=4, parallel=2)
    (tmp_path / "go-on").touch()
    code, out, err = Run(tmp_path, {**value, "name": "first"}).end()
    assert (code, err) == (0, ""), out
    value["search"][0] |= {"sampler": "tpe", "warm-start": {"from": "first"}}
    code, out, err = Run(tmp_path, value).end()
    assert (code, err) == (0, ""), out
    states = States(tmp_path / "state")
    (before,) = states.status("first")["searches"]
    (search,) = states.status("test")["searches"]
    best = {key: before["best"][0][key] for key in ("value", "params")}
    assert search["warm_start"] == {"trials": 4, "best": best}
    assert search["complete"] == 4


def population(directory: Path) -> dict[str, Any]:
    """24 members, each of which waits in its first round until it may go on."""
    script = (
        "echo {member} >>../../ran; until test -e ../../go-on; do sleep 0.2; done; "
        "if [ {round} -gt 0 ]; then cat {from}/checkpoint; fi >checkpoint; echo {x} >>checkpoint; "
        + shlex.join(command("memo", "fom={x}"))
    )
    return {
        "name": "test",
        "seed": 7,
        "jobs": [{"name": "trial", "command": ["sh", "-c", script]}],
        "use": [
            {
                "algorithm": "population", "group": "trial", "maximize": "fom",
                "variables": {"x": {"low": 0, "high": 1}}, "population": 24, "rounds": 3,
                "directory": str(directory / "runs"),
            }
        ],
    }  # fmt: skip


def test_a_population_that_is_killed_comes_to_what_one_does_that_is_not(tmp_path: Path) -> None:
    found = []
    for name in ("killed", "whole"):
        directory = tmp_path / name
        directory.mkdir()
        value, size = population(directory), ("--nodes", "4", "--cores", "6")
        first = Run(directory, value, *size)
        ran = directory / "ran"
        while not ran.exists() or len(ran.read_text().splitlines()) < 24:
            assert first.process.poll() is None
            time.sleep(TICK)
        if name == "killed":
            kill(first)
        (directory / "go-on").touch()
        again = Run(directory, value, *size, "--resume") if name == "killed" else first
        code, out, err = again.end()
        assert (code, err) == (0, ""), out
        jobs = [
            one for one in States(directory / "state").jobs("test") if one["outcome"] == "success"
        ]
        assert len(jobs) == 72
        paths = sorted((directory / "runs").glob("*/checkpoint"))
        found.append({path.parent.name: path.read_text() for path in paths})
    assert found[0] == found[1]
    # Of round 2 each has the values of three rounds: its own, or those of whom it goes on from.
    assert [len(text.split()) for text in found[0].values()] == [1] * 24 + [2] * 24 + [3] * 24


def stopped_early(directory: Path) -> dict[str, Any]:
    """With early stopping: a trial publishes its loss, and goes on when it may."""
    memos = [shlex.join(command("memo", f"epoch={epoch}", "loss={x}")) for epoch in (1, 2)]
    script = f"{memos[0]}; echo {{x}} >>ran; until test -e go-on; do sleep 0.05; done; {memos[1]}"
    value = document(directory)
    value["search"][0] |= {"minimize": "loss", "stop": {"policy": "asha", "step": "epoch"}}
    del value["search"][0]["maximize"]
    value["jobs"][0]["command"] = ["sh", "-c", script]
    return value


def test_a_run_whose_trials_are_stopped_early_goes_on_after_a_kill(tmp_path: Path) -> None:
    first = Run(tmp_path, stopped_early(tmp_path))
    ran = tmp_path / "ran"
    while not ran.exists() or len(ran.read_text().splitlines()) < 2:
        assert first.process.poll() is None
        os.sched_yield()
    kill(first)
    (tmp_path / "go-on").touch()
    code, _, err = Run(tmp_path, stopped_early(tmp_path), "--resume").end()
    assert (code, err) == (0, "")
    states = States(tmp_path / "state")
    (search,) = states.status("test")["searches"]
    assert (search["state"], search["reason"]) == ("done", "trials")
    # Those that ran when it was killed ran again; each trial was told once.
    jobs = [job for job in states.jobs("test") if job["outcome"] != "interrupted"]
    ended = Counter(job["outcome"] for job in jobs)
    counts = [search[state] for state in ("complete", "failed", "pruned", "canceled")]
    assert counts == [ended["success"], ended["failed"], ended["canceled"], 0]
    assert sum(counts) == TRIALS
    assert search["pruned"] >= 1
    assert search["failed"] == 0
    assert {job["trial"]: job["params"] for job in jobs} == points_of(stopped_early(tmp_path))


def points_of(value: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The parameters of each trial, which follow from its number."""
    (given,) = searches_of(load_mapping(value))
    request = {"count": given.trials, "points": [], "attributes": {}, "ends": []}
    points = SearchSampler(described(given, 7)).answer(request)["points"]
    return dict(enumerate(point["params"] for point in points))


#: What a generator gives, by the search that has it; why that is over, and after how many trials.
BAD = {
    "twice": ("[{'x': 0.5}] * n", "exhausted", 1),
    "nothing": ("[]", "exhausted", 0),
    "beyond": ("[{'x': 1.5}]", "error", 0),
    "nan": ("[{'x': float('nan')}]", "error", 0),
    "million": ("[{'x': 0.5}] * 10**6", "error", 0),
    "sleeps": ("time.sleep(1000)", "error", 0),
}


def test_generators_that_do_something_wrong_end_their_own_search_and_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gest_api")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "helpers"))
    bad = [
        {
            "id": id, "group": id, "variables": {"x": {"low": 0, "high": 1}}, "minimize": "loss",
            "generator": "generators:Bad", "arguments": {"how": how}, "initial": 0, "trials": 3,
            **({"timeout": 0.5} if id == "sleeps" else {}),
        }
        for id, (how, *_) in BAD.items()
    ]  # fmt: skip
    value = {
        "name": "test",
        "search": bad,
        "jobs": [{"name": id, "command": "true {x}"} for id in BAD],
        "rules": [{"trigger": "start", "action": {"name": "search", "label": id}} for id in BAD],
    }
    code, out, _ = Run(tmp_path, value, "--fail-on", "job").end()
    status = States(tmp_path / "state").status("test")
    assert (code, status["state"]) == (0, "completed"), out
    found = {one["id"]: (one["state"], one["reason"], one["failed"]) for one in status["searches"]}
    assert found == {id: ("done", reason, trials) for id, (_, reason, trials) in BAD.items()}
    for id, (_, reason, _) in BAD.items():
        assert (f"search {id!r}: its generator 'generators:Bad'" in out) == (reason == "error")
