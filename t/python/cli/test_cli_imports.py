"""What each command imports, in an interpreter of its own: no more than it needs to run.

The packages that are slow to import decide how long a short command takes.
"""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest

from flux_ensemble.cli import commands
from flux_ensemble.cli.table import COMMANDS, SECTIONS

#: Packages that take long to import.
SLOW = {"grpc", "jobspec", "jsonschema", "numpy", "rich", "river", "yaml"}

DOCUMENT = """
jobs:
  - {name: echo, command: echo hello}
rules:
  - {trigger: metric, name: mean.echo-duration, when: "> 60", action: {name: submit, label: echo}}
"""
#: What a table of ensembles does without: what only other commands need, and types. With imports
#: goes nearly all of the time that `flux ensemble status` takes.
NOT_FOR_A_TABLE = {
    "dataclasses",
    "subprocess",
    "sysconfig",
    "flux_ensemble.cli.display.messages",
    "flux_ensemble.cli.display.progress",
    "flux_ensemble.client.responses",
    "flux_ensemble.queues.local.directory",
    "flux_ensemble.queues.local.state_dir",
}

#: Modules that are compiled where flux-ensemble is installed: the first one loads all.
HAS_COMPILED = ("flux_ensemble.engine.", "flux_ensemble.metrics.", "flux_ensemble.runtime.")

#: Prints what click and Flux's bindings import.
THEIRS = "import json, sys, click, flux, flux.util; print(json.dumps(list(sys.modules)))"

#: Runs the command with the arguments, and then prints the modules on standard error. What
#: Flux's bindings import is theirs: with the variable NO_FLUX there are none.
SCRIPT = """
import atexit, json, os, sys
from flux_ensemble.cli.main import main
if "NO_FLUX" in os.environ:
    sys.modules["flux"] = None
def say():
    print(json.dumps([name for name, module in sys.modules.items() if module]), file=sys.stderr)
atexit.register(say)
main(sys.argv[1:])
"""


#: Modules that have commands.
MODULES = {entry.module for entry in COMMANDS.values()}


def run(*arguments: str, **environment: str) -> tuple[str, set[str]]:
    """Runs the command; what it prints, and the modules that it imports."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    *errors, modules = done.stderr.splitlines()
    assert (done.returncode, errors) == (0, [])
    return done.stdout, set(json.loads(modules))


def packages(modules: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def families(modules: set[str]) -> set[str]:
    return {name for name in MODULES if f"flux_ensemble.cli.commands.{name}" in modules}


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the local queue leaves of an ensemble named "some"."""
    root = tmp_path_factory.mktemp("states")
    (root / "some").mkdir()
    (root / "some" / "lock").touch()
    entry = {"timestamp": 1.0, "name": "finish", "context": {"state": "completed", "reason": ""}}
    (root / "some" / "eventlog").write_text(json.dumps(entry) + "\n")
    status = {
        "name": "some",
        "state": "completed",
        "reason": "",
        "t_start": 0.0,
        "t_end": 1.0,
        "groups": {},
        "rules": [],
        "jobs": {"active": 0, "waiting": 0},
        "errors": [],
    }
    metrics = {"count": {"echo": {}}, "mean": {"echo-duration": 1.5}}
    text = json.dumps({"status": status, "metrics": metrics, "events": 0})
    (root / "some" / "status.json").write_text(text)
    return root


def test_every_command_is_in_the_list_of_commands_by_its_module() -> None:
    found = {
        command.name: one.name
        for one in pkgutil.iter_modules(commands.__path__)
        if hasattr(module := import_module(f"flux_ensemble.cli.commands.{one.name}"), "COMMANDS")
        for command in module.COMMANDS
    }
    assert found == {name: entry.module for name, entry in COMMANDS.items()}


def test_the_list_of_commands_imports_none_of_them() -> None:
    text, modules = run("--help", COLUMNS="200")
    lines = [line.strip() for line in text.splitlines()]
    for title, entries in SECTIONS.items():
        assert f"{title}:" in lines
        for name, (_, summary) in entries.items():
            assert (f"{name:<9}  {summary}" if len(name) <= 9 else summary) in lines
    assert not families(modules)
    assert not packages(modules) & {*SLOW, "flux"}


@pytest.mark.parametrize(
    ("words", "number", "completed", "imported"),
    [
        ("flux-ensemble st", "1", ["status"], set()),
        ("flux-ensemble --v", "1", ["--version"], set()),
        ("flux-ensemble status --js", "2", ["--json"], {"show"}),
    ],
)
def test_completion_imports_only_the_command_that_is_there(
    words: str, number: str, completed: list[str], imported: set[str]
) -> None:
    text, modules = run(
        _FLUX_ENSEMBLE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=number
    )
    assert text.split() == [f"plain,{one}" for one in completed]
    assert families(modules) == imported
    assert not packages(modules) & {*SLOW, "flux"}


@pytest.mark.parametrize(
    "name",
    [name for name, entry in COMMANDS.items() if entry.module in ("show", "logs", "control")],
)
def test_a_command_about_loaded_ensembles_needs_no_slow_package(name: str) -> None:
    text, modules = run(name, "--help")
    assert text.startswith(f"Usage: flux-ensemble {name}")
    assert not packages(modules) & {*SLOW, "flux"}


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["list"], "some     completed"),
        (["status"], "some     completed"),
        (["status", "some"], "some     completed"),
        (["metrics", "some"], "echo     duration        1.5"),
        (["log", "some"], "completed"),
    ],
)
def test_reading_what_the_local_queue_left_needs_no_slow_package(
    arguments: list[str], printed: str, state_dir: Path
) -> None:
    text, modules = run(*arguments, "--state-dir", str(state_dir), NO_FLUX="1")
    assert printed in text
    assert not packages(modules) & SLOW


@pytest.mark.flux
@pytest.mark.parametrize("arguments", [["status"], ["submit", "some", "echo"]])
def test_a_request_needs_no_slow_package_but_those_of_flux(arguments: list[str]) -> None:
    done = subprocess.run(
        ["flux", "start", sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True
    )
    assert "the ensemble service is not loaded" in done.stderr
    (modules,) = (json.loads(line) for line in done.stderr.splitlines() if line.startswith("["))
    assert "_flux" in packages(modules)
    assert not packages(modules) & (SLOW - {"yaml"})


@pytest.mark.flux
def test_a_table_of_ensembles_imports_only_what_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(DOCUMENT)
    # `flux env` sets what Flux sets for `flux ensemble`.
    session = (
        'flux env "$1" -m flux_ensemble.cli.main load "$2" >/dev/null'
        ' && flux env "$1" -c "$3" && flux env "$1" -c "$4" status'
    )
    done = subprocess.run(
        ["flux", "start", "sh", "-c", session, "sh", sys.executable, str(file), THEIRS, SCRIPT],
        capture_output=True,
        text=True,
    )
    theirs, *table = done.stdout.splitlines()
    assert any(line.startswith("some ") for line in table), done.stderr
    (modules,) = (json.loads(line) for line in done.stderr.splitlines() if line.startswith("["))
    ours = set(modules) - set(json.loads(theirs))
    assert "flux_ensemble.cli.commands.show" in ours
    assert not ours & NOT_FOR_A_TABLE
    assert not [name for name in ours if name.startswith(HAS_COMPILED)]


def test_validate_needs_neither_flux_nor_statistics(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(DOCUMENT)
    _, modules = run("validate", str(file))
    slow = {"flux", "_flux", "grpc", "numpy", "rich", "river", "statistics"}
    assert not packages(modules) & slow


def test_validate_asks_river_about_the_statistics_of_a_document(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(DOCUMENT + "metrics: [kurtosis]\n")
    _, modules = run("validate", str(file))
    assert "river" in packages(modules)


def test_a_local_run_starts_its_first_jobs_without_statistics() -> None:
    script = """
import json, sys
from flux_ensemble.cli.session import local_run
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import Started
spec = load_mapping({
    "name": "some",
    "jobs": [{"name": "echo", "command": "echo hello"}],
    "rules": [{"trigger": "start", "action": {"name": "submit", "label": "echo"}}],
})
engine = Engine(spec)
engine.metrics(0.0)
assert engine.handle(Started(0.0))
print(json.dumps(list(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True)
    assert not packages(json.loads(done.stdout)) & {"numpy", "river"}
