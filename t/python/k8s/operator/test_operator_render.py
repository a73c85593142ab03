"""What Ensembles become, compared with files; and those of ensemble-operator, converted.

After a change of what is rendered, for each of the files:

    flux-ensemble operator render --image service:1 golden/rich.yaml >golden/rich.out.yaml
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from crd_schema import Schema
from ensembles import CRDS, ROOT, ensemble, member, objects

from flux_ensemble import __version__
from flux_ensemble.cli.main import run_command
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.check import check, of_document
from flux_ensemble.k8s.operator.minicluster import minicluster, runner
from flux_ensemble.k8s.operator.render import Settings, render

GOLDEN = Path(__file__).with_name("golden")
EXAMPLE = ROOT / "etc" / "kubernetes" / "example.yaml"


def rendered(file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert run_command(["operator", "render", "--image", "service:1", str(file)]) == 0
    # A release does not change them all.
    return capsys.readouterr().out.replace(__version__, "VERSION")


@pytest.mark.parametrize(
    ("source", "expected"),
    [(EXAMPLE, "example.out.yaml"), (GOLDEN / "rich.yaml", "rich.out.yaml")],
    ids=["example", "rich"],
)
def test_what_an_ensemble_becomes(
    source: Path, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def content(text: str) -> list[dict[str, Any]]:
        manifests = [one for one in yaml.safe_load_all(text) if one]
        for one in manifests:
            # It is of the release's name too.
            for key in (names.HASH, names.TEMPLATE):
                one["metadata"]["annotations"].pop(key, None)
        return manifests

    wanted = (GOLDEN / expected).read_text().replace(__version__, "VERSION")
    assert content(rendered(source, capsys)) == content(wanted)


def test_every_minicluster_is_one_that_the_flux_operator_knows() -> None:
    schema = Schema(objects(CRDS[1])[0])
    for file in (EXAMPLE, GOLDEN / "rich.yaml"):
        for one in render(objects(file)[0], Settings("service:1")):
            if one["kind"] == "MiniCluster":
                assert schema.problems(one, strict=True) == []


def test_the_same_ensemble_becomes_the_same() -> None:
    assert render(ensemble(), Settings()) == render(ensemble(), Settings())


def test_the_command_has_no_word_that_a_shell_would_split() -> None:
    """The Flux Operator puts it between double quotes, and splits it at spaces."""
    command = minicluster(ensemble(), member())["spec"]["containers"][0]["command"]
    assert shlex.split(command) == command.split()
    assert not set(command) & set("\"'$`\\|&;<>*?")


@pytest.mark.parametrize("nasty", ["x; rm -rf /", "$(id)", "a`id`", "a'b", 'a"b', "a\nb"])
def test_what_is_installed_cannot_be_another_command(nasty: str) -> None:
    one = {**member(), "install": {"requirement": nasty, "indexUrl": f"https://a/{nasty}"}}
    container = minicluster(ensemble(), one)["spec"]["containers"][0]
    words = shlex.split(container["commands"]["brokerPre"], comments=False)
    assert nasty in [word.rstrip(";") for word in words]
    assert f"https://a/{nasty}" in words


def test_only_one_container_may_run_flux() -> None:
    assert runner({"containers": [{}]}) == 0
    assert runner({"containers": [{}, {"runFlux": True}]}) == 1
    both: list[dict[str, bool]] = [{"runFlux": True}, {"runFlux": True}]
    none: list[dict[str, bool]] = [{}, {}]
    for containers in (none, both):
        with pytest.raises(ValueError, match="expected one container with 'runFlux: true'"):
            runner({"containers": containers})


def test_members_are_apart() -> None:
    one = ensemble("sweep", member("a"), member("b"))
    clusters = [m for m in render(one, Settings()) if m["kind"] == "MiniCluster"]
    headless = [m["spec"]["network"]["headlessName"] for m in clusters]
    assert headless == ["sweep-a", "sweep-b"]


def test_an_ensemble_with_errors_is_not_rendered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ensemble("sweep", member(document="jobs: [{name: a}]\nrules: 5\n", interactive=True))
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(wrong))
    assert run_command(["operator", "render", str(tmp_path / "a.yaml")]) == 2
    said = capsys.readouterr().err
    assert "members[solve].ensemble: line 1: jobs[0]" in said
    assert "members[solve].ensemble: line 2: rules" in said
    assert "an interactive MiniCluster runs no ensemble" in said
    for text in ("kind: Pod", "- a", "{", "apiVersion: flux-ensemble.dev/v1alpha1\nkind: Ensemble"):
        (tmp_path / "a.yaml").write_text(text)
        assert run_command(["operator", "render", str(tmp_path / "a.yaml")]) == 2
        assert re.match(r"flux-ensemble: ERROR: \S*a.yaml: ", capsys.readouterr().err)


@pytest.mark.parametrize("name", ["hello-world", "grow-shrink"])
def test_ensembles_of_ensemble_operator_are_converted(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the form of its two examples; their documents are those that ensemble-python reads."""
    source = GOLDEN / f"predecessor-{name}.yaml"
    assert run_command(["operator", "convert", str(source)]) == 0
    said = capsys.readouterr()
    converted = yaml.safe_load(said.out)
    assert Schema(objects(CRDS[0])[0]).problems(converted, strict=True) == []
    (one,) = converted["spec"]["members"]
    assert check(converted, {one["name"]: one["ensemble"]}) == []
    before = yaml.safe_load(source.read_text())["spec"]["members"][0]
    assert one["ensemble"] == before["ensemble"]
    assert one["minicluster"]["spec"]["maxSize"] == 16
    assert "sidecar.image" in said.err
    (tmp_path / "converted.yaml").write_text(said.out)
    assert run_command(["operator", "render", str(tmp_path / "converted.yaml")]) == 0


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("kind: Ensemble", "expected 'ensemble.flux-framework.org/v1alpha1', not None"),
        ("apiVersion: ensemble.flux-framework.org/v1alpha1", "spec.members: expected a list"),
        (
            "{apiVersion: ensemble.flux-framework.org/v1alpha1, spec: {members: [{}]}}",
            "minicluster: expected a MiniCluster",
        ),
        (
            "{apiVersion: ensemble.flux-framework.org/v1alpha1, spec: {sidecar: {port: a}, "
            "members: [{}]}}",
            "spec.sidecar.port: expected a number",
        ),
    ],
)
def test_what_is_no_ensemble_of_it_is_refused(
    wrong: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(wrong)
    assert run_command(["operator", "convert", str(tmp_path / "a.yaml")]) == 2
    assert sentence in capsys.readouterr().err


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the operator's own."""
    path = tmp_path / "secret"
    path.write_text("name,kind\nroot,a secret of the operator\n")
    return path


#: What a document can say that names a file, by what the file has.
NAMING = {
    "values of a parameter": "{name: a, command: 'echo {x}', params: {x: {file: FILE}}}",
    "a jobspec": "{name: a, jobspec: FILE}",
    "sizes from values": "{name: a, command: run, nodes: '{x}', params: {x: {file: FILE}}}",
    "values beside others": "{name: a, command: 'run {x} {y}', params: {x: {file: FILE}, y: [1]}}",
    "two columns": "{name: a, command: 'run {x}', params: {x: {file: FILE}, y: {file: FILE}}}",
}


@pytest.mark.parametrize("job", NAMING.values(), ids=NAMING)
@pytest.mark.parametrize(
    "path", ["SECRET", "/etc/shadow", "/nowhere", "/dev/zero", "data/points.csv"]
)
def test_files_that_a_document_names_are_those_of_its_pod(
    secret: Path, job: str, path: str
) -> None:
    text = f"jobs: [{job}]\nrules: [{{trigger: start, action: {{name: submit, label: a}}}}]\n"
    text = text.replace("FILE", str(secret) if path == "SECRET" else path)
    spec = ensemble("sweep", member("a", document=text))
    assert check(spec, {"a": text}) == []


def test_what_is_wrong_beside_a_file_is_said_and_nothing_of_the_file(secret: Path) -> None:
    text = (
        "jobs:\n"
        f"  - {{name: a, command: 'echo {{x}}', params: {{x: {{file: {secret}}}}}}}\n"
        "  - {name: b, command: 'true', nodes: 0}\n"
        "rules: [{trigger: start, action: {name: submit, label: c}}]\n"
    )
    problems = check(ensemble("sweep", member("a", document=text)), {"a": text})
    assert len(problems) == 2, problems
    assert not any("secret" in problem.replace(str(secret), "") for problem in problems)


#: Documents that name code or files otherwise than jobs do.
CODE = {
    "a custom source": "custom: |\n  import MODULE\n  def f(ensemble, **_): pass",
    "plugins": "plugins: [MODULE]",
    "an algorithm": "use: [{algorithm: FILE}]",
    "a packaged algorithm": "use: [{algorithm: MODULE}]",
    "a generator": (
        "search: [{id: s, group: a, generator: 'MODULE.x:Evil', variables: {x: [0.0, 1.0]}, "
        "minimize: fom, trials: 3}]"
    ),
    "a recording": "simulate: {a: {duration: {from-log: FILE}}}",
}

_HEARD: list[str] = []
_LISTENING: list[bool] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _LISTENING and event in ("open", "import", "exec", "os.listdir", "subprocess.Popen"):
        _HEARD.append(f"{event} {arguments}")


@pytest.mark.parametrize("code", CODE.values(), ids=CODE)
def test_nothing_that_a_document_names_is_opened_imported_or_run(secret: Path, code: str) -> None:
    """The interpreter tells of each file that it opens, and of each module."""
    module = secret.parent / "evil_module_of_a_tenant.py"
    module.write_text("raise SystemExit")
    text = f"{code}\njobs: [{{name: a, command: 'a {{x}}', params: {{x: [1]}}}}]\n"
    text = text.replace("FILE", str(secret)).replace("MODULE", module.stem)
    check(ensemble("sweep", member("a", document=text)), {"a": text})
    if not getattr(sys, "_hears_of_documents", False):
        sys.addaudithook(_hear)
        sys._hears_of_documents = True  # type: ignore[attr-defined]
    _HEARD.clear()
    of_document.cache_clear()
    _LISTENING.append(True)
    try:
        check(ensemble("sweep", member("a", document=text)), {"a": text})
        open(secret).close()
    finally:
        _LISTENING.clear()
    named = [one for one in _HEARD if str(secret.parent) in one or module.stem in one]
    # It is heard; and it is this test that has opened it.
    assert len(named) == 1, named
    assert named == _HEARD[-1:]
    assert not any(one.startswith(("exec", "subprocess")) for one in _HEARD)
