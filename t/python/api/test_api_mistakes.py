"""What a mistake of a program looks like: a sentence below its line, and little else."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flux_ensemble
from flux_ensemble import Action, AsyncClient, Ensemble, Job, Rule

START = Rule(trigger="start", action=Action(name="submit", label="a"))
PACKAGE = str(Path(flux_ensemble.__file__).parent)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """An ensemble that has ended."""
    root = tmp_path_factory.mktemp("mistakes") / "state"
    ensemble = Ensemble(name="done", jobs=[Job(name="a", command="true")], rules=[START])
    ensemble.run("local", state_dir=root)
    return ensemble


def wrong() -> Ensemble:
    return Ensemble(name="wrong", jobs=[{"name": "a", "comand": "true"}], rules=[START])


def sleeping() -> Any:
    return Ensemble(name="sleeping", jobs=[Job(name="a", command="sleep 60")], rules=[START])


def waited() -> None:
    ensemble = sleeping().start("local")
    try:
        asyncio.run(ensemble.wait(timeout=0.1))
    finally:
        ensemble.cancel()
        asyncio.run(ensemble.wait())


async def unreached() -> None:
    async with AsyncClient("local:///nowhere"):
        pass


MISTAKES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda done: wrong().validate(), "unknown key 'comand'"),
    (lambda done: wrong().run("local"), "unknown key 'comand'"),
    (lambda done: wrong().start("local"), "unknown key 'comand'"),
    (lambda done: wrong().simulate(), "unknown key 'comand'"),
    (lambda done: wrong().status(), "has not been started"),
    (lambda done: done.best(), "keeps no best job"),
    (lambda done: done.output(77), "has no job 77"),
    (lambda done: done.submit("a"), "has ended, and takes no more requests"),
    (lambda done: done.jobs(filter="colour == 1"), "filter: a job has no field 'colour'"),
    (lambda done: done.jobs(outcome="fail"), "not 'fail' (did you mean 'failed'?)"),
    (lambda done: done.jobs(status="failed"), "jobs: unknown argument 'status' (write outcome="),
    (lambda done: done.jobs(filter=len), "filter: expected an expression such as"),
    (lambda done: done.rerun(filter=3), "filter: expected an expression such as"),
    (lambda done: done.search(20), "expected the id of a search, not 20 (write more=20)"),
    (lambda done: done.search(points={"x": 1}), "not a mapping: write points=[{'x': 1}]"),
    (lambda done: done.search(points=3), "points: expected a list of points, not 3"),
    (lambda done: done.search(points=[3]), "points[0]: expected values of variables"),
    (lambda done: done.search(more="a"), "ensemble.search: more: expected a number of trials"),
    (lambda done: done.submit("a", counts=2), "submit: unknown argument 'counts' (did you mean"),
    (lambda done: sleeping().run("slurm"), "queue: expected 'flux' or 'local', not 'slurm'"),
    (lambda done: sleeping().run("local", nodes="2"), "nodes: expected a whole number, not '2'"),
    (lambda done: sleeping().run("local", nodes=0), "a cluster has at least 1 node, not 0"),
    (lambda done: sleeping().run("local", timeout="3"), "timeout: expected a number of seconds"),
    (lambda done: sleeping().run("local", timeout=0.1), "has not ended in time"),
    (lambda done: waited(), "has not ended in time"),
    (lambda done: asyncio.run(unreached()), "Flux"),
    (lambda done: done.output("ƒ?"), "the id of a job, not 'ƒ?'"),
    (lambda done: done.jobs("a"), "jobs: its arguments are keywords: filter=, group=,"),
    (lambda done: done.simulate(core=1), "unknown argument 'core' (did you mean 'cores'?"),
    (lambda done: Ensemble.attach(done), "not an Ensemble, which needs no attach()"),
    (lambda done: done.attach(3), "attach: expected the name of an ensemble, not 3"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "sentence"), MISTAKES, ids=[said for _, said in MISTAKES])
def test_a_mistake_is_a_sentence_with_hardly_a_line_of_the_package(
    mistake: Callable[[Ensemble], Any],
    sentence: str,
    done: Ensemble,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(Exception, match=re.escape(sentence)) as raised:
        mistake(done)
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert len([one for one in frames if one.filename.startswith(PACKAGE)]) <= 3
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_an_error_of_the_package_itself_keeps_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("flux_ensemble.api.draft.Draft.plain", fails)
    monkeypatch.setattr("flux_ensemble.api.draft.Draft.check", lambda *args, **more: fails(None))
    with pytest.raises(ZeroDivisionError) as raised:
        wrong().validate()
    assert "fails" in [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]


def test_what_is_cancelled_for_its_timeout_has_no_hint_about_interrupts(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError) as raised:
        sleeping().run("local", state_dir=tmp_path, timeout=0.1)
    (note,) = raised.value.__notes__
    assert note.endswith("rerun() runs those jobs again, and run() begins another run")
