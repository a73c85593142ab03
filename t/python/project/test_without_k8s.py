"""What is in `flux_ensemble/k8s` can be taken out, and all else works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import flux_ensemble
from flux_ensemble.extras import install_command
from flux_ensemble.k8s.grpc.client import RpcClient
from flux_ensemble.k8s.grpc.tls import TlsFiles

PACKAGE = Path(flux_ensemble.__file__).parent

#: What only the folder uses of other packages.
THEIRS = ("grpc", "grpc_health", "grpc_reflection", "httpx2", "lightkube")

#: Imports everything. A module may be without Flux here, and without what comes with an extra, and
#: those that Flux loads are no modules by their names.
IMPORT_ALL = """
import importlib, pkgutil, flux_ensemble
for found in pkgutil.walk_packages(flux_ensemble.__path__, "flux_ensemble."):
    if not found.name.startswith(("flux_ensemble.modules.", "flux_ensemble.etc")):
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            if (error.name or "").split(".")[0] == "flux_ensemble":
                raise
"""

DOCUMENT = """
jobs: [{name: a, count: 2, command: echo}, {name: b, command: echo}]
rules:
  - {trigger: start, action: {name: submit, label: a}}
  - {trigger: job-success, name: a, action: {name: submit, label: b}}
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs Python on a copy of the package without the folder and what it needs."""
    home = tmp_path_factory.mktemp("without")
    ignored = shutil.ignore_patterns("k8s", "gateway.py", "__pycache__")
    shutil.copytree(PACKAGE, home / "flux_ensemble", ignore=ignored)
    (home / "sitecustomize.py").write_text(
        f"import sys\nsys.modules.update(dict.fromkeys({THEIRS!r}))\n"
    )

    def run(*arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": str(home)},
            cwd=home,
            capture_output=True,
            text=True,
            **options,  # type: ignore[call-overload]
        )

    return run


def test_everything_else_is_imported_without_the_folder(without: Run) -> None:
    done = without("-c", IMPORT_ALL)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_ensemble_runs_on_this_machine_without_the_folder(without: Run, tmp_path: Path) -> None:
    document = tmp_path / "document.yaml"
    document.write_text(DOCUMENT)
    run = ("run", "--queue", "local", "--state-dir", str(tmp_path / "state"), str(document))
    done = without("-m", "flux_ensemble.cli.main", *run)
    assert done.returncode == 0, done.stderr
    listed = without(
        "-m", "flux_ensemble.cli.main", "jobs", "document", "--state-dir", str(tmp_path / "state")
    )
    assert listed.stdout.count("success") == 3, listed


@pytest.mark.parametrize(
    ("command", "extra"),
    [("grpc start", "grpc"), ("operator run", "k8s"), ("operator render -", "k8s")],
)
def test_its_commands_name_what_is_missing_without_the_folder(
    without: Run, command: str, extra: str
) -> None:
    done = without("-m", "flux_ensemble.cli.main", *command.split(), input="")
    assert done.returncode == 1
    assert "No module named 'flux_ensemble.k8s'" in done.stderr
    assert install_command(extra) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.flux
def test_the_scaler_of_a_minicluster_names_the_extra_without_the_folder(without: Run) -> None:
    done = without(
        "-c",
        "from flux_ensemble.bindings import require_flux\n"
        "require_flux()\n"
        "from flux_ensemble.queues.elastic.factory import OTHERS, import_other\n"
        "for kind in OTHERS:\n"
        "    try:\n"
        "        import_other(kind)\n"
        "    except ValueError as error:\n"
        "        print(error)\n",
    )
    assert done.stdout == (
        "scaler: 'minicluster' needs the extra 'grpc' of flux-ensemble "
        "(No module named 'flux_ensemble.k8s')\n"
    )


def test_the_client_has_its_former_name_too() -> None:
    for name in [name for name in sys.modules if name.startswith("flux_ensemble.gateway")]:
        del sys.modules[name]
    with pytest.warns(DeprecationWarning, match=r"flux_ensemble\.gateway .* flux_ensemble\.k8s"):
        client = import_module("flux_ensemble.gateway.client")
    files = import_module("flux_ensemble.gateway.tls").TlsFiles
    assert (client.RpcClient, files) == (RpcClient, TlsFiles)
