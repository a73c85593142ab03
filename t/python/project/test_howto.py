"""The tutorials and how-to pages: what their commands print is what they show, where the page says
so: on Flux, or on the local queue; and the other one does the same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from forks import forked_commands
from pages import (
    ROOT,
    Page,
    clear,
    environment,
    instance,
    read_page,
    run_commands,
    run_session,
    same,
    with_printed,
    write_files,
)
from patience import PATIENCE

from flux_ensemble.queues.local.states import States

DOCS = ROOT / "docs"
ALL_PAGES = {
    str(path.relative_to(DOCS)).removesuffix(".md"): path
    for folder in ("tutorials", "howto")
    for path in sorted((DOCS / folder).glob("*.md"))
}

#: Programs that a page needs and not every machine has.
NEEDED = {
    "howto/lammps": ("lmp",),
    "howto/slurm": ("slurmctld", "munged"),
    "tutorials/slurm": ("slurmctld", "munged"),
}

#: The pages whose commands run on a Slurm, and what makes one. It exits 77 where it cannot.
SLURM = ("howto/slurm", "tutorials/slurm")
IN_SLURM = f"sh {ROOT / 't' / 'lib' / 'in_slurm'}"

#: Seconds of each job of the how-to page, and of its test: two allocations are enough then.
STEP, SHORT_STEP = "sleep 9", "sleep 3"

#: The page whose commands run on a cluster: `k8s/jobset/test_jobset_tutorial.py` has its test.
KUBERNETES = "tutorials/kubernetes"

PAGES = {name: path for name, path in ALL_PAGES.items() if name not in (*SLURM, KUBERNETES)}

#: How a Flux instance is made for commands that need none.
START = "flux start --test-size=4"

#: What `run` says of where it runs.
_WHERE = re.compile(r"flux-ensemble: (no Flux instance|the ensemble service is loaded)")

#: How the documents end on the local queue: by group success/failed/canceled/timeout.
ENDS: dict[str, Mapping[str, str]] = {
    "samples.yaml": {"relax": "3/1/0/1", "analyse": "3/0/0/0", "report": "1/0/0/0"},
    "drift.yaml": {"train": "3/0/0/0", "explore": "24/0/0/0"},
    "fluid.yaml": {"md": "4/0/0/0", "results": "1/0/0/0"},
    "scan.yaml": {"case": "7/1/0/0", "summary": "1/0/0/0"},
    "study.yaml": {
        "case": "7/5/0/0", "slow": "0/0/0/1", "typo": "0/1/0/0", "report": "0/0/0/0",
    },
}  # fmt: skip

#: Documents of which not every run ends with the same counts, or none ends by itself, or that are
#: about MPI.
OTHERS = {"sweep.yaml", "night.yaml", "parts.yaml"}


def commands_before_flux(page: Page) -> list[str]:
    """The commands of a page that need no Flux."""
    words = [command.words for command in page.commands]
    starts = [number for number, word in enumerate(words) if word.startswith("flux start")]
    return words[: starts[0]] if starts else words


#: Those of which the commands run on the local queue, some of them or all.
LOCAL = [name for name, path in PAGES.items() if commands_before_flux(read_page(path.read_text()))]

#: Of the other pages.
DOCUMENTS = {
    file: name
    for name, path in PAGES.items()
    for file in read_page(path.read_text()).files
    if file.endswith(".yaml") and name not in LOCAL
}


def need(name: str) -> None:
    """Skip the test where a program is not on PATH that the page needs."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    for program in NEEDED.get(name, ()):
        if shutil.which(program, path=path) is None:
            pytest.skip(f"{program} is not on PATH")


@pytest.fixture(scope="module")
def warm() -> Iterator[Mapping[str, str]]:
    """Variables with which short commands of the pages are forks of a process that has imported
    what they need."""
    with forked_commands(environment()) as variables:
        yield variables


@pytest.fixture(scope="module")
def run_locally(
    tmp_path_factory: pytest.TempPathFactory, warm: Mapping[str, str]
) -> Callable[[str], Path]:
    """Runs a document among the files of its page, once; the directory, with `state` in it."""

    @cache
    def run(file: str) -> Path:
        directory = tmp_path_factory.mktemp("local")
        write_files(read_page(PAGES[DOCUMENTS[file]].read_text()), directory)
        # The local queue has no MPI, as the page says.
        document = directory / file
        text = document.read_text().replace("tasks: 2", "tasks: 1")
        document.write_text(text.replace("command: lmp", "command: env -u FLUX_JOB_ID lmp"))
        (directory / "logs").mkdir()
        words = [
            "flux-ensemble", "run", "--queue", "local", "--state-dir", str(directory / "state"),
            "--timeout", str(PATIENCE), "--nodes", "4", "--cores", "2", file,
        ]  # fmt: skip
        done = subprocess.run(
            words, cwd=directory, env={**environment(), **warm}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return directory

    return run


def compare(page: Page, printed: Sequence[Sequence[str]]) -> None:
    """Hold what commands printed against what their page shows."""
    for shown, lines in zip(page.commands[: len(printed)], printed, strict=True):
        expected, found = (
            [line for line in text if not _WHERE.match(line)] for text in (shown.shown, lines)
        )
        assert same(expected, found, shown.lenient), "\n".join(
            [f"$ {shown.words}", *lines, "--- but the page shows", *shown.shown]
        )


@pytest.fixture(scope="module")
def in_flux(warm: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The environment of what runs in an instance that pages have one after the other."""
    with instance(START.split(), warm) as variables:
        yield variables


@pytest.mark.flux
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PAGES)
def test_each_command_of_the_page_prints_what_the_page_shows_on_flux(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    need(name)
    page = read_page(PAGES[name].read_text())
    assert len(page.commands) > 2
    before = commands_before_flux(page)
    start, *within = [command.words for command in page.commands[len(before) :]] or [START]
    if start != START:
        compare(page, run_session(page, tmp_path, START, request.getfixturevalue("warm")))
        return
    variables = request.getfixturevalue("in_flux")
    write_files(page, tmp_path)
    printed = list[list[str]]()
    for words in filter(None, (before, within)):
        # `flux start`, as all comes before it or after it.
        printed += [[]] if words is within else []
        try:
            printed += run_commands([], words, tmp_path, variables)
        finally:
            clear(variables)
    compare(page, printed)


@pytest.mark.flux
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SLURM)
def test_each_command_of_the_page_on_slurm_prints_what_the_page_shows(
    name: str, tmp_path: Path
) -> None:
    need(name)
    tried = subprocess.run(f"{IN_SLURM} true".split(), capture_output=True, text=True)
    if tried.returncode == 77:
        pytest.skip(tried.stderr)
    page = read_page(ALL_PAGES[name].read_text().replace(STEP, SHORT_STEP))
    compare(page, run_session(page, tmp_path, IN_SLURM))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LOCAL)
def test_each_command_of_the_page_prints_what_the_page_shows_without_flux(
    name: str, tmp_path: Path, warm: Mapping[str, str]
) -> None:
    page = read_page(PAGES[name].read_text())
    write_files(page, tmp_path)
    compare(page, run_commands([], commands_before_flux(page), tmp_path, warm))


def test_every_document_is_run_on_the_local_queue() -> None:
    assert DOCUMENTS.keys() == ENDS.keys() | OTHERS


@pytest.mark.parametrize("file", ENDS)
def test_the_local_queue_ends_the_document_with_the_same_counts(
    file: str, run_locally: Callable[[str], Path]
) -> None:
    need(DOCUMENTS[file])
    status = States(run_locally(file) / "state").status(file.removesuffix(".yaml"))
    outcomes = ("success", "failed", "canceled", "timeout")
    found = {
        group: "/".join(str(counts[outcome]) for outcome in outcomes)
        for group, counts in status["groups"].items()
    }
    assert found == ENDS[file]


def test_the_report_on_the_samples_is_that_of_the_page(run_locally: Callable[[str], Path]) -> None:
    report = run_locally("samples.yaml") / "report.txt"
    commands = read_page(PAGES["howto/pipeline"].read_text()).commands
    (shown,) = [command.shown for command in commands if command.words == "cat report.txt"]
    assert report.read_text().splitlines() == list(shown)


def test_the_sweep_ends_at_its_best_point_on_the_local_queue(
    run_locally: Callable[[str], Path],
) -> None:
    states = States(run_locally("sweep.yaml") / "state")
    status = states.status("sweep")
    assert status["state"] == "completed"
    assert status["reason"] == "loss 0.02 at x = 1.5, y = 0.5 (rule 'good')"
    good = [job for job in states.jobs("sweep") if job["memo"].get("loss", 1) < 0.1]
    assert [(job["params"], job["outcome"]) for job in good] == [({"x": 1.5, "y": 0.5}, "success")]
    counts = status["groups"]["scan"]
    assert counts["success"] + counts["canceled"] == 24


def test_what_differs_from_run_to_run_is_not_compared_and_all_else_is() -> None:
    shown = ["a       5  1.059s  ƒ2DDYz8F", "...", "scan: ended (pid 17)"]
    assert same(shown, ["a  5  2m  ƒ3x", "", "more", "scan: ended (pid 2)"])
    assert not same(shown, ["a  6  2m  ƒ3x", "scan: ended (pid 2)"])
    assert not same(shown, ["a  5  2m  ƒ3x", "scan: failed (pid 2)"])
    assert not same(shown[:1], ["a  5  2m  ƒ3x", "more"])
    assert same(["4 of 24 ended"], ["17 of 24 ended"], "counts differ")
    assert not same(["4 of 24 ended"], ["17 of 24 failed"], "counts differ")
    assert same(["a", "b 2"], ["b 2", "a"], "any order")
    assert not same(["a", "b 2"], ["b 2", "b 2"], "any order")


def test_a_page_has_files_and_commands() -> None:
    text = (
        "```sh\n# a.sh X: does it.\ntrue\n```\n\n"
        "```\n$ flux start\n$ one \\\n> two\nprinted\n$ 'a\n> b'\n```\n"
    )
    page = read_page(text)
    assert page.files == {"a.sh": "# a.sh X: does it.\ntrue\n"}
    assert [(one.words, one.shown) for one in page.commands] == [
        ("flux start", ()), ("one two", ("printed",)), ("'a\nb'", ()),
    ]  # fmt: skip


def test_what_commands_print_can_be_written_into_a_page() -> None:
    text = "```sh\n# a.sh\n```\n\n```\n$ flux start\n$ one \\\n> two\nold\n\nolder\n```\nend\n"
    written = with_printed(text, [[], ["new  ", "", "newer", ""]])
    assert written == text.replace("old\n\nolder", "new\n\nnewer")


@pytest.mark.parametrize("name", ALL_PAGES)
def test_the_page_is_listed_in_the_index(name: str) -> None:
    assert f"({name}.md)" in (DOCS / "index.md").read_text()
