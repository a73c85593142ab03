"""The command by which a missing extra is installed, wherever the package came from."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from flux_ensemble import extras
from flux_ensemble.extras import install_command

ROOT = Path(__file__).parents[3]

#: Extras for developers, of which no message and no page for users speaks.
OF_DEVELOPERS = {"docs", "short", "test", "lint", "bench", "release"}

Installed = Callable[..., None]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Pretends that the package was installed from elsewhere, into an environment without tools."""

    def pretend(origin: object = None, *, requires: tuple[str, ...] = ()) -> None:
        info = tmp_path / "flux_ensemble-1.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.4", "Name: flux-ensemble", "Version: 1"]
        lines += [f"Requires-Dist: {one}" for one in requires]
        (info / "METADATA").write_text("\n".join(lines) + "\n\n")
        if origin is not None:
            (info / "direct_url.json").write_text(json.dumps(origin))
        package = Distribution.at(info)
        monkeypatch.setattr(Distribution, "from_name", lambda name: package)
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        monkeypatch.setattr(extras, "_pip", lambda prefix: ["pip", "install"])

    return pretend


def _clone(path: Path) -> str:
    path.mkdir()
    (path / "pyproject.toml").touch()
    return path.as_uri()


def test_an_extra_of_a_clone_is_installed_from_the_clone(
    tmp_path: Path, installed: Installed
) -> None:
    installed({"url": _clone(tmp_path / "my clone"), "dir_info": {}})
    assert install_command("tui") == f"pip install '{tmp_path}/my clone[tui]'"


def test_a_clone_that_is_installed_for_editing_stays_so(
    tmp_path: Path, installed: Installed
) -> None:
    installed({"url": _clone(tmp_path / "clone"), "dir_info": {"editable": True}})
    assert install_command("tui") == f"pip install --editable '{tmp_path}/clone[tui]'"


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (
            {"url": "https://host/r.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "flux-ensemble[tui] @ git+https://host/r.git",
        ),
        (
            {"url": "file:///r", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "flux-ensemble[tui] @ git+file:///r",
        ),
        (
            {"url": "https://host/f.whl", "archive_info": {}},
            "flux-ensemble[tui] @ https://host/f.whl",
        ),
    ],
)
def test_an_extra_of_what_came_by_an_address_comes_from_there(
    origin: object, requirement: str, installed: Installed
) -> None:
    installed(origin)
    assert install_command("tui") == f"pip install '{requirement}'"


def test_an_extra_of_a_wheel_comes_from_its_file(tmp_path: Path, installed: Installed) -> None:
    wheel = tmp_path / "f.whl"
    wheel.touch()
    installed({"url": wheel.as_uri(), "archive_info": {}})
    assert install_command("tui") == f"pip install '{wheel}[tui]'"


@pytest.mark.parametrize("origin", [None, {"url": "file:///nowhere", "dir_info": {}}])
def test_without_its_source_the_packages_of_the_extra_are_named(
    origin: object, installed: Installed
) -> None:
    installed(
        origin,
        requires=(
            "click>=8.1",
            "grpcio>=1.76; extra == 'grpc'",
            'flux-ensemble[grpc]; extra == "kubernetes"',
            "lightkube>=1.0.1; extra == 'kubernetes'",
            "helm; (sys_platform == 'linux') and extra == 'test'",
        ),
    )
    assert install_command("kubernetes") == "pip install 'grpcio>=1.76' 'lightkube>=1.0.1'"
    assert install_command("test") == "pip install helm"


@pytest.mark.parametrize(
    ("receipt", "command"),
    [("uv-receipt.toml", "uv tool install"), ("pipx_metadata.json", "pipx install --force")],
)
def test_what_a_tool_has_installed_the_tool_installs_with_the_extra(
    receipt: str, command: str, tmp_path: Path, installed: Installed
) -> None:
    installed({"url": _clone(tmp_path / "clone"), "dir_info": {}})
    (tmp_path / receipt).touch()
    assert install_command("tui") == f"{command} '{tmp_path}/clone[tui]'"


def test_what_the_user_has_beside_python_gets_its_extras_there(
    tmp_path: Path, installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site.getusersitepackages", lambda: str(tmp_path))
    installed({"url": _clone(tmp_path / "clone"), "dir_info": {}})
    assert install_command("tui") == f"pip install --user '{tmp_path}/clone[tui]'"


def test_what_is_in_a_directory_of_its_own_gets_its_extras_there(
    tmp_path: Path, installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed({"url": _clone(tmp_path / "clone"), "dir_info": {}})
    monkeypatch.setattr(sys, "prefix", "/usr")
    assert install_command("tui") == f"pip install --target {tmp_path} '{tmp_path}/clone[tui]'"


def test_what_another_environment_has_gets_its_extras_there(
    tmp_path: Path, installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service runs with Flux's Python, and finds the package in a virtual environment."""
    pip = extras._pip
    installed({"url": _clone(tmp_path / "clone"), "dir_info": {"editable": True}})
    monkeypatch.setattr(extras, "_pip", pip)
    monkeypatch.setattr(sys, "prefix", "/usr")
    home = tmp_path.parent
    (home / "pyvenv.cfg").touch()
    command = f"install --editable '{tmp_path}/clone[tui]'"
    python = f"{home}/bin/python"
    assert (
        install_command("tui")
        == f"uv pip {command.replace('install', f'install --python {python}')}"
    )
    (home / "bin").mkdir()
    (home / "bin" / "pip").touch()
    assert install_command("tui") == f"{home}/bin/pip {command}"


def test_pip_is_that_of_this_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "bin" / "python"
    (tmp_path / "site" / "pip").mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    assert extras._pip(tmp_path) == [str(python), "-m", "pip", "install"]
    monkeypatch.setattr(sys, "path", [])
    assert extras._pip(tmp_path) == ["uv", "pip", "install", "--python", str(python)]
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert extras._pip(tmp_path) == ["uv", "pip", "install"]
    pip = tmp_path / "bin" / "pip"
    pip.parent.mkdir()
    pip.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(pip.parent))
    assert extras._pip(tmp_path) == ["pip", "install"]


def test_no_message_and_no_page_names_an_index_that_has_no_release() -> None:
    """`pip install 'flux-ensemble[...]'` fails until there is one: CHANGELOG.md says when."""
    command = re.compile(r"pip install ['\"]?flux-ensemble\b")
    files = [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "etc").rglob("*.md"),
        *(ROOT / "flux_ensemble").rglob("*.py"),
    ]
    assert [str(file) for file in files if command.search(file.read_text())] == []


def test_the_manual_lists_all_extras_for_users() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    manual = (ROOT / "docs" / "man" / "flux-ensemble.1.md").read_text()
    section = manual.partition("\n## EXTRAS\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert set(listed) == set(project["optional-dependencies"]) - OF_DEVELOPERS


def test_this_environment_has_a_command_of_its_own() -> None:
    assert "flux-ensemble[tui]" not in shlex.split(install_command("tui"))
