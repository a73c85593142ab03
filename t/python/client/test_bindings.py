"""Finding Flux's bindings: which are used, and the sentence where none is usable.

Each test runs a Python without site-packages, and a `flux` command that says what the
test wants, so that the Flux of this machine does not matter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest

import flux_ensemble
from flux_ensemble import bindings

PROJECT = str(Path(flux_ensemble.__file__).parents[1])

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"

#: Tells where `flux` was imported from, or the sentence.
REQUIRE = """
from flux_ensemble.bindings import BindingsError, require_flux
try:
    require_flux()
except BindingsError as error:
    print("sorry:", error)
else:
    import flux
    print(flux.WHO)
"""


class World:
    """Folders with packages, and a `flux` command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        #: What the environment has installed; the packages that the bindings need.
        self.site = folder / "site"
        self.write("site/_cffi_backend.py")
        self.write("site/ply/__init__.py")
        self.write("site/yaml.py")
        #: Where the Flux installation has its bindings.
        self.own = folder / "flux" / "python3.4"

    def write(self, path: str, text: str = "") -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def bindings(self, where: str, core: str = "") -> None:
        """Make a package `flux` that says where it is, and a `_flux` that runs `core`."""
        self.write(f"{where}/flux/__init__.py", f"import _flux._core\nWHO = {where!r}\n")
        self.write(f"{where}/_flux/__init__.py")
        self.write(f"{where}/_flux/_core.py", core)

    def flux(self, python: str = "") -> None:
        """Put a `flux` of version 0.88.0 on PATH.

        Args:
            python: what `flux python` prints.
        """
        self.script(
            'case "$1" in\n'
            f"config) echo {self.own} ;;\n"
            "--version) printf 'commands:\\t0.88.0\\nlibflux-core:\\t0.88.0\\n' ;;\n"
            f"python) echo {python!r} ;;\n"
            "esac\n"
        )

    def script(self, text: str) -> None:
        command = self.bin / "flux"
        command.write_text(f"#!/bin/sh\n{text}")
        command.chmod(0o755)

    def run(self, code: str) -> str:
        """What Python code prints in this world."""
        run = subprocess.run(
            [sys.executable, "-S", "-c", code],
            env={"PATH": str(self.bin), "PYTHONPATH": f"{self.site}{os.pathsep}{PROJECT}"},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return run.stdout.strip()

    def require(self) -> str:
        return self.run(REQUIRE)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_bindings_that_can_be_imported_need_no_flux_command(world: World) -> None:
    world.bindings("site")
    assert world.require() == "site"


def test_the_bindings_of_the_flux_on_path_are_found(world: World) -> None:
    world.flux()
    world.bindings("flux/python3.4")
    assert world.require() == "flux/python3.4"


def test_a_package_flux_that_is_something_else_is_passed_over(world: World) -> None:
    world.flux()
    world.bindings("flux/python3.4")
    world.write("site/flux/__init__.py", "WHO = 'a dashboard'\n")
    assert world.require() == "flux/python3.4"


def test_a_folder_flux_that_is_no_package_is_passed_over(world: World) -> None:
    world.flux()
    world.bindings("flux/python3.4")
    (world.site / "flux").mkdir()
    assert world.require() == "flux/python3.4"


def test_flux_python_of_the_same_version_is_used(world: World) -> None:
    world.flux()
    world.bindings("site")
    world.bindings("flux/python3.4")
    (world.site / "flux_python-0.88.0.dist-info").mkdir()
    assert world.require() == "site"


def test_flux_python_of_another_version_is_passed_over(world: World) -> None:
    world.flux()
    world.bindings("site")
    world.bindings("flux/python3.4")
    (world.site / "flux_python-0.75.0.dist-info").mkdir()
    assert world.require() == "flux/python3.4"


def test_flux_python_is_used_where_no_flux_command_contradicts(world: World) -> None:
    world.bindings("site")
    (world.site / "flux_python-0.75.0.dist-info").mkdir()
    assert world.require() == "site"


def test_flux_python_that_does_not_load_is_passed_over(world: World) -> None:
    world.flux()
    world.bindings("site", "raise ImportError('libflux-core.so.2: no such file')")
    world.bindings("flux/python3.4")
    assert world.require() == "flux/python3.4"


def test_without_flux_the_sentence_says_to_install_it(world: World) -> None:
    assert world.require() == (
        "sorry: there is no `flux` on PATH: install Flux (flux-core of your system or of "
        "conda-forge, or a container such as fluxrm/flux-sched), or put it on PATH"
    )


def test_flux_python_without_flux_needs_flux(world: World) -> None:
    world.bindings("site", "raise ImportError('libflux-core.so.2: no such file')")
    assert world.require() == (
        "sorry: the Python bindings of Flux do not load (libflux-core.so.2: no such file) and "
        "there is no `flux` on PATH: install Flux, of the version of flux-python if you use "
        "that package"
    )


def test_a_flux_without_bindings_is_told_from_none(world: World) -> None:
    world.flux()
    assert world.require() == (
        f"sorry: the Flux on PATH has no Python bindings in {world.own} (No module named 'flux'): "
        "install them with Flux, or `pip install flux-python==0.88.0`"
    )


def test_bindings_for_another_python_are_named_with_both_versions(world: World) -> None:
    world.flux()
    world.bindings("flux/python3.4", "raise ImportError('undefined symbol: PyX')")
    assert world.require() == (
        f"sorry: Flux's Python bindings in {world.own}, built for Python 3.4, do not load in "
        f"Python {PYTHON} (undefined symbol: PyX): `pip install flux-python==0.88.0`, or install "
        "flux-ensemble in an environment of Flux's Python (`flux python -m venv DIRECTORY`)"
    )


def test_an_exception_of_the_bindings_that_is_no_import_error_is_explained(world: World) -> None:
    world.flux()
    world.bindings("flux/python3.4", "raise Exception('cffi: version\\n mismatch')")
    assert f"do not load in Python {PYTHON} (cffi: version mismatch)" in world.require()


@pytest.mark.parametrize(
    ("module", "file", "package"),
    [
        ("_cffi_backend", "_cffi_backend.py", "cffi"),
        ("ply", "ply/__init__.py", "ply"),
        ("yaml", "yaml.py", "pyyaml"),
    ],
)
@pytest.mark.parametrize("where", ["site", "flux/python3.4"])
def test_a_package_that_the_bindings_need_is_named(
    world: World, where: str, module: str, file: str, package: str
) -> None:
    world.flux()
    (world.site / file).unlink()
    if module == "ply":
        (world.site / module).rmdir()
    # Some are imported by `import flux`, others later on.
    world.bindings(where, "" if module == "ply" else f"import {module}")
    assert world.require() == (
        f"sorry: Flux's Python bindings need the package {package}: `pip install {package}`"
    )


def test_a_flux_command_that_fails_is_named_with_what_it_said(world: World) -> None:
    world.script("echo broken pipe >&2; exit 1\n")
    assert world.require() == (
        f"sorry: `{world.bin}/flux config builtin python_path` fails (broken pipe): repair this "
        "Flux, or put another one first on PATH"
    )


def test_asking_twice_does_no_harm(world: World) -> None:
    world.flux()
    world.bindings("flux/python3.4")
    twice = "import sys\nfor _ in range(2):\n    require_flux()\n    print(len(sys.path))\n"
    first, second = world.run(f"from flux_ensemble.bindings import *\n{twice}").split()
    assert first == second


def test_the_module_is_told_the_directories_with_packages(world: World) -> None:
    odd = world.folder / "with space=and%"
    (odd / "x-1.0.dist-info").mkdir(parents=True)
    world.write("empty/module.py")
    sites = json.loads(
        world.run(
            "import json, sys\n"
            f"sys.path[:0] = ['', {str(odd)!r}, 'empty', '/no/such/directory']\n"
            "from flux_ensemble.bindings import module_arguments\n"
            "print(json.dumps(module_arguments()))"
        )
    )
    assert sites == [f"site={urllib.parse.quote(place)}" for place in (str(odd), PROJECT)]
    assert not any(character.isspace() for character in "".join(sites))


def test_the_command_prints_what_to_load(world: World) -> None:
    printed = world.run("from flux_ensemble.bindings import main; main()")
    assert json.loads(printed) == {
        "path": str(Path(PROJECT, "flux_ensemble", "modules", "ensemble.py")),
        "args": [f"site={urllib.parse.quote(PROJECT)}"],
        "keeper": {
            "path": str(Path(PROJECT, "flux_ensemble", "modules", "ensemble-keeper.py")),
            "args": [f"python={urllib.parse.quote(sys.executable)}"],
        },
    }
    assert bindings.module_path().is_file()
    assert bindings.keeper_path().is_file()


def problem(world: World, said: str) -> str:
    world.flux(python=said)
    return world.run("from flux_ensemble.bindings import *; print(module_problem())")


def test_a_module_that_fluxs_python_can_load_is_no_problem(world: World) -> None:
    assert problem(world, "") == "None"


def test_a_module_that_another_python_cannot_load_is_explained(world: World) -> None:
    assert problem(world, "3.99 ImportError a long text of numpy") == (
        "Flux runs broker modules under its own Python 3.99, which cannot load flux-ensemble as "
        f"installed for Python {PYTHON}: install it in an environment of Flux's Python "
        "(`flux python -m venv DIRECTORY`), or run the service beside the broker (`--isolate`)"
    )


def test_a_python_that_is_too_old_is_explained_with_the_other_way(world: World) -> None:
    assert problem(world, "3.6 SyntaxError future feature annotations is not defined") == (
        "Flux runs broker modules under its own Python 3.6, and flux-ensemble needs 3.11: the "
        'service runs beside the broker here (`--isolate`, or `service = "process"` in '
        "[ensemble])"
    )


def test_a_module_that_the_same_python_cannot_load_is_explained_with_the_error(
    world: World,
) -> None:
    assert problem(world, f"{PYTHON} ModuleNotFoundError No module named river").startswith(
        f"Flux runs broker modules under its own Python {PYTHON}, which cannot load "
        "flux-ensemble (ModuleNotFoundError No module named river): install it in"
    )
