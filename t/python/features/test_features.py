"""Each feature can be removed: its folder, and its name in the list."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import flux_ensemble
from flux_ensemble import features
from flux_ensemble.engine.feature import Hooks, JobHooks
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.lifecycle import FINAL_STATES, TRANSITIONS
from flux_ensemble.feature_list import FEATURES, parts

PACKAGE = Path(flux_ensemble.__file__).resolve().parent
EXAMPLES = PACKAGE.parent / "examples"

#: Feature -> a document that needs it, and what is said of that where the feature is not there.
NEEDED: Mapping[str, tuple[str, str]] = {
    "search": (
        """
        jobs: [{name: a, command: "a {x}"}]
        search:
          - id: hpo
            group: a
            variables: {x: {low: 0, high: 1}}
            minimize: loss
            sampler: random
            trials: 4
        rules:
          - {trigger: start, action: {name: search, label: hpo}}
          - {trigger: search-done, action: {name: terminate}}
        simulate: {a: {memo: {loss: 1}}}
        """,
        "unknown key 'search'",
    ),
    "predict": (
        """
        jobs:
          - {name: a, command: "a {n}", params: {n: [1, 2]}, predict: [n], max-active: 1}
        rules:
          - {trigger: start, action: {name: submit, label: a}}
        """,
        "unknown key 'predict'",
    ),
    "copies": (
        """
        jobs: [{name: a, command: a}]
        rules:
          - {trigger: start, action: {name: submit, label: a}}
          - {trigger: job-running, action: {name: copy}}
        """,
        "expected an action, not 'copy'",
    ),
    "scaling": (
        """
        jobs: [{name: a, command: a}]
        scaling: {max-nodes: 4}
        rules:
          - {trigger: start, action: {name: submit, label: a}}
          - {trigger: job-success, action: {name: grow}}
          - {trigger: scale-denied, action: {name: terminate}}
        """,
        "unknown key 'scaling'",
    ),
}

#: Imports the whole package, then checks and simulates documents, and prints what came of each.
RUN = """
import json, pkgutil, sys
from importlib import import_module
import flux_ensemble
# Flux's own Python loads these, and protocols are of no room.
left_out = ("flux_ensemble.modules", "flux_ensemble.k8s.grpc.protocol")
modules = list(pkgutil.walk_packages(flux_ensemble.__path__, "flux_ensemble."))
for module in modules if sys.argv[2:] else ():
    if not module.name.startswith(left_out):
        try:
            import_module(module.name)
        except ModuleNotFoundError as error:
            assert not (error.name or "").startswith("flux_ensemble"), error
from flux_ensemble.document.loading import load_text
from flux_ensemble.queues.simulation.simulation import Simulation, SimulationError, resolve
from flux_ensemble.queues.virtual.cluster import VirtualCluster
found = {}
for name, text in json.load(sys.stdin).items():
    try:
        spec = load_text(text, name="demo", directory=sys.argv[1])
        simulation = Simulation(spec, VirtualCluster(64, 64, 8), resolve(spec, spec.simulate))
        found[name] = simulation.run(1e6).status["state"]
    except (ValueError, SimulationError) as error:
        found[name] = str(error)
print(json.dumps({"file": flux_ensemble.__file__, "found": found}))
"""


def without(where: Path, *gone: str, folder: bool = True, line: bool = True) -> Path:
    """Make a copy of the package without some features; the folder to import it from."""

    def left_out(path: str, names: list[str]) -> list[str]:
        removed = gone if folder and Path(path) == PACKAGE / "features" else ()
        return [*removed, "__pycache__"]

    shutil.copytree(PACKAGE, where / "flux_ensemble", ignore=left_out)
    listing = where / "flux_ensemble" / "feature_list.py"
    text = listing.read_text()
    for feature in gone if line else ():
        assert f'    "{feature}",\n' in text
        text = text.replace(f'    "{feature}",\n', "")
    listing.write_text(text)
    return where


def run(where: Path, documents: Mapping[str, str], *, whole: bool = True) -> dict[str, Any]:
    """Run documents with the package in a folder; what came of each.

    Args:
        where: the folder.
        documents: their texts, by name.
        whole: import the whole package before.
    """
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(EXAMPLES), *(["whole"] if whole else [])],
        input=json.dumps(documents),
        env={**os.environ, "PYTHONPATH": str(where)},
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert Path(said["file"]).is_relative_to(where)
    found: dict[str, Any] = said["found"]
    return found


def documents() -> dict[str, str]:
    """The examples, and what each feature is needed for."""
    examples = {path.name: path.read_text() for path in sorted(EXAMPLES.glob("*.yaml"))}
    return {**examples, **{feature: document for feature, (document, _) in NEEDED.items()}}


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """What comes of the documents with all features."""
    return run(PACKAGE.parent, documents(), whole=False)


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_can_be_removed_and_documents_without_it_still_run(
    feature: str, whole: dict[str, Any], tmp_path: Path
) -> None:
    assert whole[feature] == "completed"
    less = run(without(tmp_path, feature), documents())
    assert NEEDED[feature][1] in less[feature]
    other = {name for name, state in whole.items() if less[name] != state}
    # The others have it, too: they are refused, and none runs in another way.
    assert len(other) <= len(whole) / 4
    assert not {less[name] for name in other} & {*TRANSITIONS, *FINAL_STATES}


@pytest.mark.parametrize(("folder", "line"), [(True, False), (False, True)])
def test_the_folder_or_the_line_alone_is_enough(folder: bool, line: bool, tmp_path: Path) -> None:
    document, sentence = NEEDED["copies"]
    where = without(tmp_path, "copies", folder=folder, line=line)
    assert sentence in run(where, {"needed": document}, whole=False)["needed"]


def test_without_any_of_them_commands_run_a_document_and_look_at_it(tmp_path: Path) -> None:
    where = without(tmp_path, *FEATURES)
    state = str(tmp_path / "state")
    environment = {**os.environ, "PYTHONPATH": str(where), "XDG_STATE_HOME": state}
    environment.pop("FLUX_URI", None)

    def command(*words: str) -> str:
        line = [sys.executable, "-m", "flux_ensemble", *words]
        done = subprocess.run(line, env=environment, cwd=where, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    example = str(EXAMPLES / "hello-world.yaml")
    command("validate", example)
    command("explain", "rules")
    assert "hello-world: completed" in command("run", "--queue", "local", example)
    here = ("--queue", "local", "hello-world")
    for word in ("status", "jobs", "metrics", "why", "log", "failures"):
        command(word, *here)
    command("export", *here, str(tmp_path / "jobs.csv"))
    command("report", *here)
    command("rerun", *here)
    assert (tmp_path / "hello-world.html").exists()


def test_each_folder_is_listed() -> None:
    folders = {path.parent.name for path in (PACKAGE / "features").glob("*/__init__.py")}
    assert folders == set(FEATURES) == set(NEEDED)


def test_a_part_that_imports_what_is_missing_is_no_missing_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "keys.py").write_text("import a_module_that_nobody_has\n")
    monkeypatch.setattr(features, "__path__", [str(tmp_path.parent)])
    monkeypatch.setattr("flux_ensemble.feature_list.FEATURES", (tmp_path.name,))
    (tmp_path / "__init__.py").write_text("")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has"):
        parts.__wrapped__("keys")
    assert parts.__wrapped__("fields") == ()


@pytest.mark.parametrize("name", ["began", "ended", "gone"])
def test_a_feature_that_waits_for_what_each_job_does_is_told_of_each(name: str) -> None:
    def heard(job: ActiveJob) -> None:
        """Nothing follows from it."""

    hooks, own = Hooks(), JobHooks(**{name: heard})  # type: ignore[arg-type]
    found = []
    for change in (hooks.follow, hooks.leave):
        change(own)
        found.append((hooks.singly, getattr(hooks, name)))
    assert found == [(True, (heard,)), (False, ())]
