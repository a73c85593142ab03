"""The schema for editors: it takes what the check of a document takes, and says what keys mean."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest
import yaml
from guide import EXAMPLES as DOCUMENTS
from jsonschema import Draft202012Validator

from flux_ensemble.cli.commands.document import _matching
from flux_ensemble.cli.common import Failure
from flux_ensemble.cli.main import run_command
from flux_ensemble.document.editor_schema import editor_schema, explained
from flux_ensemble.document.keys.document import DOCUMENT, KEYS
from flux_ensemble.document.loading import DocumentError, load_text
from flux_ensemble.document.starters import MODELINE, Starters, schema_file
from flux_ensemble.extras import install_command
from flux_ensemble.metrics.columns import Known
from flux_ensemble.metrics.job_fields import scope_of

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

#: Documents that are wrong in their form, and where.
WRONG = {
    "jobs: five": "jobs",
    "jobs: [{command: 'true'}]": "jobs",
    "jobs: [{name: a, command: b, cuont: 2}]": "cuont",
    "jobs: [{name: a, command: b, count: 0}]": "count",
    "jobs: [{name: a, command: b, count: five}]": "count",
    "jobs: [{name: 'a b', command: b}]": "name",
    "jobs: [{name: a, command: b, sweep: all}]": "sweep",
    "jobs: [{name: a, command: b, retries: {tiems: 2}}]": "retries",
    "name: 'a.b'": "name",
    "rules: [{trigger: begin, action: {name: submit, label: a}}]": "trigger",
    "rules: [{trigger: start, action: {name: sbumit}}]": "action",
    "rules: [{trigger: start, actions: []}]": "actions",
    "finish: soon": "finish",
    "limits: {jobs: many}": "limits",
    "metrics: [{best: {name: top}}]": "metrics",
    "simulate: {a: {failure-rate: 2}}": "simulate",
    "plugins: ['a b']": "plugins",
}


def loaded(text: str) -> Any:
    """A document as an editor reads it: in YAML 1.2 `on` and `yes` are text."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.yaml_implicit_resolvers = {
        first: [one for one in resolvers if one[0] != "tag:yaml.org,2002:bool"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf")
    )
    return yaml.load(text, Loader)


def properties(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Every key in the schema that documents are checked with."""
    for word in ("if", "then", "else", "items", "additionalProperties"):
        if isinstance(part := schema.get(word), dict):
            yield from properties(part, path)
    for name, part in schema.get("properties", {}).items():
        below = f"{path}.{name}".lstrip(".").replace("rules.actions.", "rules.action.")
        yield below
        # What is in the attributes of a jobspec is Flux's.
        if name != "attributes":
            yield from properties(part, below)


def test_every_key_of_the_schema_is_explained_and_no_other_is() -> None:
    assert set(properties(DOCUMENT)) == set(KEYS)
    assert [one.path for one in explained()] == list(dict.fromkeys(one.path for one in explained()))
    assert {one.path for one in explained()} == set(KEYS)


def test_every_key_is_in_the_guide_to_the_document_and_in_the_schema_with_its_meaning() -> None:
    guide = (ROOT / "docs" / "keys.md").read_text()
    for path, key in KEYS.items():
        assert f"`{path.rpartition('.')[2]}`" in guide, path
        assert key.text.endswith("."), path
    assert "An ensemble" in editor_schema()["description"]
    count = editor_schema()["properties"]["jobs"]["items"]["properties"]["count"]
    assert count["description"].startswith("Jobs of one submission")
    assert (count["default"], count["examples"]) == (1, [5])


def test_regular_expressions_are_those_of_editors() -> None:
    Draft202012Validator.check_schema(editor_schema())
    text = json.dumps(editor_schema())
    assert r"\\Z" not in text
    patterns = re.findall(r'"pattern": "(.*?)"', text)
    assert patterns
    if shutil.which("node"):
        script = "for (const one of JSON.parse(process.argv[1])) new RegExp(one, 'u')"
        given = json.dumps([json.loads(f'"{one}"') for one in patterns])
        subprocess.run(["node", "-e", script, given], check=True)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_fits(path: Path) -> None:
    errors = Draft202012Validator(editor_schema()).iter_errors(loaded(path.read_text()))
    assert [error.message for error in errors] == []


def test_every_document_in_the_guide_fits() -> None:
    validator = Draft202012Validator(editor_schema())
    assert len(DOCUMENTS) > 30
    for text in DOCUMENTS.values():
        assert [error.message for error in validator.iter_errors(loaded(text))] == [], text


def test_every_example_of_a_key_is_one() -> None:
    validator = Draft202012Validator(editor_schema())
    for path, key in KEYS.items():
        for value in (*key.examples, *(() if key.default is None else (key.default,))):
            if path == "metrics.of" or path.startswith(
                ("simulate.", "members.simulate.", "metrics.", "search.variables.", "use.")
            ):
                continue  # in mappings whose keys depend on each other
            document: Any = value
            for name in reversed(path.split(".")):
                document = {name: document}
            for name in ("jobs", "rules", "metrics", "search", "members"):
                if name in document and not isinstance(document[name], list):
                    document[name] = [document[name]]
            wrong = [
                error for error in validator.iter_errors(document) if error.validator != "required"
            ]
            assert wrong == [], f"{path}: {value!r}: {wrong[0].message}"


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_in_its_form_is_refused_as_the_command_does(text: str) -> None:
    assert list(Draft202012Validator(editor_schema()).iter_errors(loaded(text)))
    with pytest.raises(DocumentError):
        load_text(text, name="wrong")


# -- the editor ----------------------------------------------------------------------------


def language_server() -> str:
    """The program yaml-language-server; skips the test where there is none."""
    beside = os.environ.get("NODE_PREFIX", "")
    found = shutil.which("yaml-language-server", path=f"{beside}/node_modules/.bin") or (
        shutil.which("yaml-language-server")
    )
    if found is None:
        pytest.skip("needs yaml-language-server (npm install yaml-language-server)")
    return found


class Editor:
    """Speaks the Language Server Protocol with yaml-language-server."""

    def __init__(self, program: str) -> None:
        self._process = subprocess.Popen(
            [program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        capabilities: dict[str, Any] = {"textDocument": {"publishDiagnostics": {}}}
        given = {"processId": os.getpid(), "rootUri": None, "capabilities": capabilities}
        self._send({"id": 1, "method": "initialize", "params": given})
        while self._receive().get("id") != 1:
            pass
        self._send({"method": "initialized", "params": {}})

    def check(self, uri: str, text: str) -> list[str]:
        """What it says about a document."""
        item = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": item}})
        while True:
            message = self._receive()
            if message.get("method") == "textDocument/publishDiagnostics" and (
                message["params"]["uri"] == uri
            ):
                return [one["message"] for one in message["params"]["diagnostics"]]

    def hover(self, uri: str, line: int, character: int) -> str:
        """What it shows about a place."""
        place = {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}}
        self._send({"id": 2, "method": "textDocument/hover", "params": place})
        while (message := self._receive()).get("id") != 2:
            pass
        return json.dumps(message["result"])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _send(self, message: Mapping[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._in.write(b"Content-Length: %d\r\n\r\n%b" % (len(data), data))
        self._in.flush()

    def _receive(self) -> Any:
        length = 0
        while line := self._out.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        message = json.loads(self._out.read(length))
        if "id" in message and "method" in message:  # it asks for its configuration
            result = [None] * len(message["params"].get("items", ()))
            self._send({"id": message["id"], "result": result})
        return message


def test_yaml_language_server_takes_the_templates_and_refuses_wrong_documents(
    tmp_path: Path,
) -> None:
    editor = Editor(language_server())
    try:
        for name in Starters().names():
            uri = (tmp_path / f"{name}.yaml").as_uri()
            assert editor.check(uri, Starters().document(name)) == [], name
        for number, text in enumerate(WRONG):
            uri = (tmp_path / f"wrong{number}.yaml").as_uri()
            assert editor.check(uri, f"{MODELINE}{schema_file().as_uri()}\n{text}\n"), text
        uri = (tmp_path / "hover.yaml").as_uri()
        editor.check(uri, f"{MODELINE}{schema_file().as_uri()}\nfinish: never\n")
        assert "When the ensemble completes" in editor.hover(uri, 1, 2)
    finally:
        editor.close()


# -- the commands -----------------------------------------------------------------------------


def test_explain_says_what_a_key_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["explain", "jobs[0].retries.times"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "jobs.retries.times"
    assert "It must be given." in out
    assert "an integer >= 0" in out
    assert run_command(["explain", "duration", "--json"]) == 0
    paths = [one["path"] for one in json.loads(capsys.readouterr().out)["keys"]]
    assert {"jobs.duration", "rules.action.duration", "simulate.duration"} <= set(paths)
    assert run_command(["explain"]) == 0
    assert "rules " in capsys.readouterr().out
    assert run_command(["explain", "cuont"]) == 2
    assert "did you mean 'count'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "required"),
    [
        ("metrics.of", False), ("metrics.by", False), ("metrics.unit", False),
        ("metrics.best.of", True), ("simulate.memo.expression", False),
        ("search.variables.low", False), ("jobs.name", True), ("jobs.retries.times", True),
        ("rules.action.name", True), ("rules.group", False),
    ],
)  # fmt: skip
def test_explain_calls_required_what_each_form_of_an_entry_needs(key: str, required: bool) -> None:
    assert {one.path: one.required for one in explained()}[key] == required


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("job.reason", "expressions"), ("idle.failed", "expressions"), ("sqrt", "expressions"),
        ("best.top.value", "expressions"), ("linspace", "jobs.params"),
    ],
)  # fmt: skip
def test_explain_says_what_has_a_name_that_is_part_of_a_value(
    name: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["explain", name]) == 2
    assert f"'flux-ensemble explain {topic}' has it" in capsys.readouterr().err
    assert run_command(["explain", topic]) == 0
    assert name.replace("top", "NAME").partition("linspace")[0] in capsys.readouterr().out


def test_explain_knows_the_old_name_of_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["explain", "scaling.max-nodes"]) == 0
    now = capsys.readouterr()
    assert run_command(["explain", "scaling.max-size"]) == 0
    old = capsys.readouterr()
    assert old.out == now.out
    assert old.err == "warning: scaling.max-size is deprecated: use scaling.max-nodes\n"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("expresions", "expressions"), ("Expressions", "expressions"), ("cuont", "count"),
        ("samplr", "sampler"), ("retreis", "retries"), ("search.samplr", "sampler"),
        ("repititions", "repetitions"), ("workdr", "workdir"),
    ],
)  # fmt: skip
def test_explain_leads_from_a_misspelt_topic_to_what_it_explains(
    written: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["explain", written]) == 2
    assert f"did you mean {meant!r}?" in capsys.readouterr().err
    assert run_command(["explain", meant]) == 0


def test_explain_leads_from_any_long_key_without_one_of_its_letters_to_that_key() -> None:
    names = {one.path.rpartition(".")[2] for one in explained()}
    for name in sorted(names):
        written = name[:-2] + name[-1]
        if len(name) > 5 and written not in names:
            with pytest.raises(Failure, match=rf"did you mean '{name}'\?"):
                _matching({one.path: one for one in explained()}, written)


def test_explain_expressions_has_each_name_that_an_expression_can_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["explain", "expressions"]) == 0
    words = set(re.findall(r"[\w.]+", capsys.readouterr().out))
    fields = scope_of("job-finish", Known.END, []).names
    assert {f"job.{name}" for name in fields - {"params", "memo"}} <= words
    assert {"job.params.NAME", "job.memo.NAME", "nodes.up", "rate.GROUP", "time.left"} <= words


def test_init_writes_a_template_that_runs_and_replaces_nothing_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["init"]) == 0
    first, _, rest = (tmp_path / "hello-world.yaml").read_text().partition("\n")
    assert first == f"{MODELINE}{schema_file().as_uri()}"
    assert rest == (ROOT / "examples" / "hello-world.yaml").read_text()
    assert run_command(["validate", "hello-world.yaml"]) == 0
    (tmp_path / "mine.yaml").write_text("mine")
    assert run_command(["init", "fail-fast", "mine.yaml"]) == 2
    assert (tmp_path / "mine.yaml").read_text() == "mine"
    assert run_command(["init", "--force", "fail-fast", "mine.yaml"]) == 0
    assert run_command(["validate", "mine.yaml"]) == 0
    capsys.readouterr()
    assert run_command(["init", "fial-fast"]) == 2
    assert "did you mean 'fail-fast'?" in capsys.readouterr().err
    assert run_command(["init", "--list"]) == 0
    assert "An ensemble that would go on for ever" in capsys.readouterr().out
    assert run_command(["init", "map-reduce", "-"]) == 0
    assert capsys.readouterr().out.startswith(MODELINE)


def test_init_says_how_what_its_template_needs_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["init", "--list"]) == 0
    for name in re.findall(r"^[\w-]+", capsys.readouterr().out, re.MULTILINE):
        assert run_command(["init", name]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("flux_ensemble.features.search.installed.find_spec", lambda module: None)
    assert run_command(["init", "--force", "tune"]) == 0
    found = capsys.readouterr().err
    assert "needs 'optuna', which is not installed here" in found
    assert install_command("search") in found
    # One reason is printed once: that of the queue, which cannot begin it.
    assert run_command(["run", "--queue", "local", "--state-dir", "state", "tune.yaml"]) == 2
    assert capsys.readouterr().err.count(install_command("search")) == 1
    assert run_command(["validate", "tune.yaml"]) == 0
    assert capsys.readouterr().err.count(install_command("search")) == 1


def test_validate_takes_several_files_and_says_all_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text("jobs: [{name: a, command: 'true'}]")
    Path("bad.yaml").write_text("".join(f"wrong{number}: 1\n" for number in range(50)))
    assert run_command(["validate", "good.yaml", "bad.yaml", "none.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == "good.yaml: ok: 1 job group, 0 rules\n"
    lines = err.splitlines()
    assert "bad.yaml: and 31 more: 'flux-ensemble validate --json' has them" in lines[-2]
    assert "cannot read none.yaml" in lines[-1]
    assert run_command(["validate", "--json", "good.yaml", "bad.yaml"]) == 2
    good, bad = json.loads(capsys.readouterr().out)["documents"]
    assert (good["valid"], good["groups"], good["errors"]) == (True, ["a"], [])
    assert (bad["valid"], len(bad["errors"]), bad["errors"][0]["line"]) == (False, 51, 1)
    assert run_command(["run", "bad.yaml", "--queue", "local"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 21
