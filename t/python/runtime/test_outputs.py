"""The directories of output files that are made before jobs are submitted."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from dead_mount import dead_mount
from loops import SelectorLoop
from patience import PATIENCE

from flux_ensemble.document import jobspec
from flux_ensemble.document.jobspec import Links
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.runtime import outputs as module
from flux_ensemble.runtime.outputs import MAX_LEVELS, MAX_WARNINGS, Outputs


def ask(made: Outputs, cwd: Path, output: str, **more: str) -> None:
    """Have the directories of a job made."""
    entry = {"name": "a", "command": "x", "output": output, **more}
    group = load_mapping({"jobs": [entry]}, name="test").groups["a"]
    ((job_set, params),) = group.submission()
    built = jobspec.build(job_set, params, environment={}, cwd=str(cwd), tag={})
    made.make(jobspec.anchored(built))


def make(cwd: Path, *outputs: str, **more: str) -> list[str]:
    """Make the directories of these output files; what could not be made."""
    warnings: list[str] = []
    with SelectorLoop() as loop:
        made = Outputs(loop, warnings.append, str(cwd))
        for output in outputs:
            ask(made, cwd, output, **more)
        loop.run(lambda: made.are_made)
        assert not loop.watching
    return warnings


def test_directories_are_made_for_both_streams(tmp_path: Path) -> None:
    assert make(tmp_path, "out/a/x.txt", "out/a/y.txt", error=f"{tmp_path}/err/x") == []
    assert (tmp_path / "out" / "a").is_dir()
    assert (tmp_path / "err").is_dir()


def test_a_directory_with_a_template_of_flux_is_left_alone(tmp_path: Path) -> None:
    assert make(tmp_path, "out/{{id}}/x.txt", "here/{{id}}.txt") == []
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_a_working_directory_is_made_and_what_is_in_it(tmp_path: Path) -> None:
    assert make(tmp_path, "out/x.txt", workdir="runs/a") == []
    assert (tmp_path / "runs" / "a" / "out").is_dir()
    assert make(tmp_path, "none", workdir=f"{tmp_path}/plain/b") == []
    assert (tmp_path / "plain" / "b").is_dir()


def test_the_directory_of_the_user_is_not_made_again(tmp_path: Path) -> None:
    assert make(tmp_path / "gone", "out/x.txt", "none") == []
    assert list(tmp_path.iterdir()) == []


def test_a_working_directory_that_cannot_be_made_has_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    assert make(tmp_path, "out/x.txt", "out/y.txt", workdir="plain/runs") == [
        f"cannot make the working directory '{tmp_path}/plain/runs': Not a directory (ENOTDIR)"
    ]


def test_a_working_directory_with_a_template_of_flux_is_left_alone(tmp_path: Path) -> None:
    assert make(tmp_path, "none", workdir="runs/{{id}}") == []
    assert list(tmp_path.iterdir()) == []


def test_inputs_on_a_file_system_that_does_not_answer_have_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.01)
    free = threading.Event()
    monkeypatch.setattr(module, "link", lambda links: str(free.wait(PATIENCE)))
    reasons: list[str | None] = []
    with SelectorLoop() as loop:
        made = Outputs(loop, lambda text: None, str(tmp_path))
        for _ in range(2):
            made.link(Links((f"{tmp_path}/a",), f"{tmp_path}/w", frozenset()), reasons.append)
        loop.run(lambda: made.are_made)
        free.set()
    where = "cannot link the inputs into the working directory"
    assert reasons == [
        f"{where}: nothing came of it within 20 s",
        f"{where}: its file system does not answer",
    ]


def test_what_cannot_be_made_has_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    assert make(tmp_path, "plain/out/x.txt", "plain/out/y.txt") == [
        f"cannot make the output directory '{tmp_path}/plain/out': Not a directory (ENOTDIR)"
    ]


def test_absurd_paths_are_not_followed(tmp_path: Path) -> None:
    deep = "d/" * (MAX_LEVELS + 1)
    (sentence,) = make(tmp_path, f"{deep}x")
    assert f"more than {MAX_LEVELS} directories above it are missing" in sentence
    assert list(tmp_path.iterdir()) == []
    (sentence,) = make(tmp_path, f"{'x' * 300}/x")
    assert sentence.endswith("File name too long (ENAMETOOLONG)")


def test_the_sentences_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    files = [f"plain/{number}/x" for number in range(MAX_WARNINGS + 5)]
    assert len(make(tmp_path, *files)) == MAX_WARNINGS


def test_a_directory_on_a_dead_mount_stops_nobody_and_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.5)
    # What lies beside it here would be on another file system elsewhere.
    monkeypatch.setattr(module, "NAMES", len((tmp_path / "dead").parts) - 1)
    warnings: list[str] = []
    sent: list[str] = []
    ticks: list[int] = []
    with dead_mount(tmp_path / "dead") as answer, SelectorLoop() as loop:
        made = Outputs(loop, warnings.append, str(tmp_path))
        tick = loop.timer(0.01, lambda: ticks.append(len(sent)), every=0.01)
        for name in ("dead/a/x", "dead/b/x", "good/x", "dead/c/x", "fine/x"):
            ask(made, tmp_path, name)
            made.when_made(lambda name=name: sent.append(name))  # type: ignore[misc]
        assert not sent
        loop.run(lambda: made.are_made)
        # They wait in order, and the loop goes on meanwhile.
        assert sent == ["dead/a/x", "dead/b/x", "good/x", "dead/c/x", "fine/x"]
        assert ticks.count(0) > 5
        assert (tmp_path / "good").is_dir()
        assert (tmp_path / "fine").is_dir()
        assert [text.partition(": ")[2] for text in warnings] == [
            "nothing came of it within 20 s",
            "its file system does not answer",
            "its file system does not answer",
        ]
        # It is not waited for again, and it is when it answers.
        ask(made, tmp_path, "dead/d/x")
        loop.run(lambda: made.are_made)
        assert warnings[3].endswith("its file system does not answer")
        answer()
        loop.run(lambda: not made._stuck)
        ask(made, tmp_path, "dead/a/x")
        loop.run(lambda: made.are_made)
        assert "Transport endpoint is not connected" in warnings[4]
        tick.cancel()
        assert not loop.watching


def test_jobs_whose_directories_are_known_wait_for_nothing(tmp_path: Path) -> None:
    with SelectorLoop() as loop:
        made = Outputs(loop, print, str(tmp_path))
        done = [made.are_made]
        for output in ("out/x", "out/y"):
            ask(made, tmp_path, output)
            done.append(made.are_made)
            loop.run(lambda: made.are_made)
        assert done == [True, False, True]
