"""The five studies that docs/comparison.md compares: each tool comes to the same results, goes on
after a kill as the page says, and the page has the lines that there are.

Our documents run on the local queue and on Flux. The programs for Parsl and libEnsemble run where
these are installed, with Optuna and SciPy: beside this Python, or in the virtual environment that
the variable PEERS names. They are no dependencies of the project.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from forks import forked_commands
from pages import ROOT, environment, instance
from patience import PATIENCE

COMPARED = ROOT / "examples" / "compared"

STUDIES = {
    "smaller-step": "springs",
    "join": "variants",
    "known-mean": "mean",
    "tune": "tune",
    "directories": "relax",
}

#: What a study takes besides its document, and its programs for others.
ASIDE = {"smaller-step": "springs-table.sh"}

OTHERS = {"Parsl": "parsl", "libEnsemble": "libensemble"}


def peers() -> Path:
    """The Python that has the other tools; skips the test where there is none."""
    if "PEERS" in os.environ:
        return Path(os.environ["PEERS"], "bin", "python")
    missing = [name for name in (*OTHERS.values(), "optuna", "scipy") if not find_spec(name)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (PEERS: an environment with them)")
    return Path(sys.executable)


def words_for(tool: str, study: str, *options: str) -> list[str]:
    """The command that runs a study."""
    name = STUDIES[study]
    if tool == "flux-ensemble":
        queue = ["--queue", "local", "--nodes", "1", "--cores", "4", *options]
        return ["flux-ensemble", "run", *queue, "--quiet", f"{name}.yaml"]
    return [str(peers()), f"{name}_{OTHERS[tool]}.py"]


@pytest.fixture(scope="module")
def warm() -> Iterator[Mapping[str, str]]:
    """Variables with which what the jobs publish is sent by forks of one process."""
    with forked_commands(environment()) as variables:
        yield variables


@pytest.fixture
def study(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with the files of a study."""
    return Path(shutil.copytree(COMPARED / request.param, tmp_path / request.param))


def own(directory: Path, warm: Mapping[str, str]) -> dict[str, str]:
    """The environment of a run whose record is in the folder of the study."""
    variables = {**environment(), **warm, "XDG_STATE_HOME": str(directory / "state")}
    if "PEERS" in os.environ:
        variables["PATH"] += os.pathsep + str(Path(os.environ["PEERS"], "bin"))
    return variables


def run(directory: Path, words: list[str], variables: Mapping[str, str]) -> str:
    """Run a command in the folder of a study; returns what it printed."""
    done = subprocess.run(
        words, cwd=directory, env=variables, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def no_springs_are_missing(directory: Path, printed: str) -> None:
    table = [line.split() for line in (directory / "table.txt").read_text().splitlines()]
    assert table == [
        ["1", "0.1", "0.999"],
        ["100", "0.1", "0.812"],
        ["900", "0.05", "0.939"],
        ["10000", "0.0125", "0.867"],
    ]
    assert (directory / "left-over.txt").read_text() == "1000000\n"


def two_samples_are_called(directory: Path, printed: str) -> None:
    called = {path.name: path.read_text() for path in directory.glob("*.vcf")}
    assert called == {
        "s1.vcf": "s1: called at depth 15.0\n",
        "s3.vcf": "s3: called at depth 15.0\n",
    }
    assert (directory / "left-out.txt").read_text() == "s2: 1 of 3 jobs failed\n"


def the_mean_is_known(directory: Path, printed: str) -> None:
    (answer,) = (directory / "answer.txt").read_text().splitlines()
    form = r"distance ([\d.]+) \+- ([\d.]+), of (\d+) walks"
    mean, half, walks = map(float, re.fullmatch(form, answer).groups())  # type: ignore[union-attr]
    seeds = {int(line) for line in (directory / "walks.txt").read_text().splitlines()}
    # Of whole batches of eight, one walk has failed.
    assert seeds == set(range(int(walks) + 1))
    assert len(seeds) % 8 == 0
    assert half < 0.2 * mean + 0.01


def a_good_point_is_found(directory: Path, printed: str) -> None:
    loss = float((directory / "final.txt").read_text().strip().removeprefix("loss="))
    # Of 20 points drawn at random one in 10^8 times none is as good.
    assert 0.125 <= loss < 2.125


def each_structure_has_a_directory(directory: Path, printed: str) -> None:
    logs = {path.parent: path.read_text() for path in (directory / "runs").glob("*/log.relax")}
    assert sorted(logs.values()) == [
        "mgo at 600 K: 100 steps with 4 magnesium, 4 oxygen\n",
        "nacl at 300 K: 100 steps with 4 sodium, 4 chlorine\n",
    ]
    for path in logs:
        assert {"in.relax", "log.relax"} < {file.name for file in path.iterdir()}
    assert "kcl.cif" in printed


RESULTS: dict[str, Callable[[Path, str], None]] = {
    "smaller-step": no_springs_are_missing,
    "join": two_samples_are_called,
    "known-mean": the_mean_is_known,
    "tune": a_good_point_is_found,
    "directories": each_structure_has_a_directory,
}

every_study = pytest.mark.parametrize("study", STUDIES, indirect=True, ids=list(STUDIES))


def test_every_folder_is_a_study() -> None:
    assert {path.name for path in COMPARED.iterdir()} == STUDIES.keys() == RESULTS.keys()


@every_study
def test_the_document_comes_to_the_results_on_the_local_queue(
    study: Path, warm: Mapping[str, str]
) -> None:
    name, variables = study.name, own(study, warm)
    run(study, words_for("flux-ensemble", name), variables)
    if name in ASIDE:
        run(study, ["sh", ASIDE[name]], variables)
    failures = ["flux-ensemble", "failures", STUDIES[name], "--queue", "local"]
    RESULTS[name](study, run(study, failures, variables))


@pytest.mark.flux
def test_the_documents_come_to_the_results_on_flux(tmp_path: Path, warm: Mapping[str, str]) -> None:
    with instance(["flux", "start", "--test-size=4"], warm) as inside:
        for name, document in STUDIES.items():
            directory = shutil.copytree(COMPARED / name, tmp_path / name)
            run(directory, ["flux-ensemble", "run", "--quiet", f"{document}.yaml"], inside)
            if name in ASIDE:
                run(directory, ["sh", ASIDE[name]], inside)
            RESULTS[name](
                directory, run(directory, ["flux-ensemble", "failures", document], inside)
            )


@every_study
@pytest.mark.parametrize("tool", OTHERS)
def test_the_program_for_another_tool_comes_to_the_results(
    study: Path, tool: str, warm: Mapping[str, str]
) -> None:
    RESULTS[study.name](study, run(study, words_for(tool, study.name), own(study, warm)))


@contextmanager
def killed(directory: Path, words: list[str], variables: Mapping[str, str]) -> Iterator[None]:
    """Run the walks, and kill the process that runs them in their second batch; in the end also
    what it has left, which goes on meanwhile."""
    started = directory / "walks.txt"
    variables = {**variables, "PAUSE": "0.5"}
    with subprocess.Popen(
        words, cwd=directory, env=variables, stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            deadline = time.monotonic() + PATIENCE
            while not started.exists() or len(started.read_text().splitlines()) < 14:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.kill()
            yield
        finally:
            # It has not been waited for, so the group is its own.
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("study", ["known-mean"], indirect=True)
@pytest.mark.parametrize("tool", ["flux-ensemble", *OTHERS])
def test_a_study_goes_on_after_a_kill(study: Path, tool: str, warm: Mapping[str, str]) -> None:
    variables = own(study, warm)
    again = ["--resume"] if tool == "flux-ensemble" else []
    with killed(study, words_for(tool, study.name), variables):
        printed = run(study, words_for(tool, study.name, *again), variables)
    the_mean_is_known(study, printed)
    walks = [int(line) for line in (study / "walks.txt").read_text().splitlines()]
    twice = {seed for seed in walks if walks.count(seed) > 1}
    # At most those that ran when it was killed, and with Parsl the one that had failed.
    assert len(walks) - len(set(walks)) == len(twice) <= 4 + (tool == "Parsl")
    assert (5 in twice) == (tool == "Parsl")


def lines(path: Path) -> list[str]:
    """The lines of a file without those that are empty or say something to readers alone."""
    text = path.read_text()
    left_out: set[int] = set()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node):
                end = node.body[0].end_lineno
                assert end is not None
                left_out.update(range(node.body[0].lineno, end + 1))
    return [
        line
        for number, line in enumerate(text.splitlines(), 1)
        if number not in left_out and line.strip() and not line.lstrip().startswith("#")
    ]


def test_the_page_has_the_lines_that_there_are() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text()
    (head,) = re.findall(r"^\| study \|(.*)\|$", page, re.MULTILINE)
    tools = [cell.strip() for cell in head.split("|")]
    rows = dict(
        re.findall(r"^\| \[[^\]]*\]\(\.\./examples/compared/([\w-]+)/\) \|(.*)\|$", page, re.M)
    )
    for study, name in STUDIES.items():
        counted = {}
        for tool in tools:
            other = OTHERS.get(tool)
            file = f"{name}_{other}.py" if other else f"{name}.yaml"
            counted[tool] = len(lines(COMPARED / study / file))
        if study in ASIDE:
            counted["flux-ensemble"] += len(lines(COMPARED / study / ASIDE[study]))
        told = [int(cell.split()[0]) for cell in rows[study].split("|")]
        assert dict(zip(tools, told, strict=True)) == counted, study


def lines_to_go_on(path: Path) -> int:
    """How many lines are there to go on after a kill, by what ends them; of a function all are."""
    number, within = 0, False
    for line in lines(path):
        marked = line.endswith("# to go on")
        within = marked if line[0] != " " else within
        number += marked or within
    return number


def test_the_page_has_the_lines_to_go_on() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text()
    (row,) = re.findall(r"^\| lines to go on after the kill \| none \|(.*)\|$", page, re.MULTILINE)
    files = [COMPARED / "known-mean" / f"mean_{other}.py" for other in OTHERS.values()]
    assert [int(cell) for cell in row.split("|")] == [lines_to_go_on(file) for file in files]
