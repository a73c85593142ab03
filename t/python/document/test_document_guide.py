"""The guide to the document is true: its examples load, and it leaves no key out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from guide import DOCS, EXAMPLES, GUIDE, PAGES, REFERENCE
from play import CallCustom, Play
from test_keys import writer

from flux_ensemble.cli.main import run_command
from flux_ensemble.document.keys.document import DOCUMENT, KEYS
from flux_ensemble.document.keys.jobs import JOB
from flux_ensemble.document.keys.rules import (
    ACTION,
    ACTIONS,
    RULE,
    TRIGGER_ALIASES,
    TRIGGERS,
)
from flux_ensemble.document.loading import DocumentError, load_text
from flux_ensemble.features.search.keys import SAMPLERS, SEARCH
from flux_ensemble.features.search.paths import COUNTS, FRONT, INFEASIBLE, OF_BEST, PRUNED
from flux_ensemble.metrics import meanings
from flux_ensemble.metrics.families import FAMILIES
from flux_ensemble.metrics.names import COUNTERS, GAUGES, MEMBER_METRICS, STREAMS
from flux_ensemble.metrics.operations import FUNCTIONS
from flux_ensemble.metrics.statistics import ALWAYS, STATISTICS

CUSTOM = (DOCS / "custom.md").read_text()
TEMPLATES = (DOCS / "jobset-members.md").read_text()
WORDS = set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`\n]+)`", GUIDE + REFERENCE))))


def test_every_page_of_the_guide_has_examples_but_for_tables() -> None:
    assert {name.partition("-")[0] for name in EXAMPLES} >= set(PAGES)
    assert len(EXAMPLES) >= 35


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_every_example_of_the_guide_loads(example: str) -> None:
    samples = (DOCS.parent / "examples" / "samples.csv").read_text()
    (template,) = re.findall(r"^```yaml\n(# workers\.yaml\n.*?)^```", TEMPLATES, re.M | re.S)
    files = {"points.csv": "length,angle,e\n1,2,3\n", "samples.csv": samples}
    files["workers.yaml"] = template
    load_text(example, name="guide", files=files)


def test_the_page_on_searches_has_every_key_of_one() -> None:
    page = (DOCS / "searches.md").read_text()
    assert all(f"`{key}`" in page for key in (*SEARCH["properties"], *SAMPLERS))
    assert all(f"search.ID.{count}" in page for count in COUNTS)


def test_the_event_of_the_guide_has_what_a_function_is_told() -> None:
    rule = {"trigger": "job-fail", "action": {"name": "custom", "label": "f"}}
    jobs = [{"name": "simulate", "command": "simulate"}]
    start = {"trigger": "start", "action": {"name": "submit", "label": "simulate"}}
    play = Play({"name": "a", "jobs": jobs, "rules": [start, rule], "custom": "def f(**k): ..."})
    play.run(1, 768)
    (event,) = re.findall(r"^```python\n(\{\n.*?)^```", CUSTOM, re.MULTILINE | re.DOTALL)
    assert ast.literal_eval(event).keys() == play.of(CallCustom)[0].kwargs["event"].keys()


def test_the_errors_of_the_guide_are_those_of_its_first_example() -> None:
    text = (
        EXAMPLES["document-0"]
        .replace("count: 5", "cuont: 5", 1)
        .replace("label: sleep", "label: slep")
    )
    with pytest.raises(DocumentError) as caught:
        load_text(text.replace("when: 3", 'when: "=> 3"'), file="hello.yaml")
    (errors,) = re.findall(r"^```text\n(hello\.yaml:.*?)\n```", GUIDE, re.MULTILINE | re.DOTALL)
    assert str(caught.value) == errors


@pytest.mark.parametrize(
    "schema", [DOCUMENT, JOB, RULE, ACTION], ids=["top", "job", "rule", "action"]
)
def test_the_guide_has_every_key(schema: dict[str, dict[str, object]]) -> None:
    assert set(schema["properties"]) <= WORDS


def test_the_guide_has_every_trigger_action_and_metric() -> None:
    assert {*TRIGGERS, *ACTIONS, *COUNTERS, *STREAMS, *GAUGES, *ALWAYS} <= WORDS


def test_the_guide_has_each_statistic_with_what_it_is() -> None:
    for name, kind in STATISTICS.items():
        assert f"| `{name}` | {kind.text}" in GUIDE


def _pairs(table: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"{head}.{name}" for head, names in table.items() for name in names]


@pytest.mark.parametrize(
    ("table", "names"),
    [
        (meanings.COUNTERS, COUNTERS),
        (meanings.VARIABLES, (*STREAMS, *GAUGES)),
        (meanings.FUNCTIONS, FUNCTIONS),
        (_pairs(meanings.INSTANCE), _pairs(MEMBER_METRICS)),
        (
            FAMILIES["search"].fields,
            (
                "best.VARIABLE",
                *(f"best.{name}" for name in OF_BEST),
                *COUNTS,
                INFEASIBLE,
                PRUNED,
                FRONT,
            ),
        ),
    ],
    ids=["counters", "variables", "functions", "instance", "search"],
)
def test_the_meaning_of_each_name_in_expressions_is_told_and_of_no_other(
    table: Iterable[str], names: Iterable[str]
) -> None:
    assert set(table) == set(names)


def test_a_table_of_the_guide_is_named_and_no_table_is_unused() -> None:
    pages = "".join(path.read_text() for path in DOCS.glob("*.md"))
    assert set(re.findall(r"<!-- table: (\S+) -->", pages)) == set(writer().TABLES)


def test_the_cheat_sheet_has_every_key_trigger_and_action_and_no_other() -> None:
    sheet = (DOCS / "cheatsheet.md").read_text()
    parts = {
        head: set(re.findall(r"`([\w-]+)`", text))
        for head, text in re.findall(r"^## (\w+)\n(.*?)(?=^## )", sheet, re.MULTILINE | re.DOTALL)
    }
    keys = {path.rpartition(".")[2] for path in KEYS}
    simulated = {path.rpartition(".")[2] for path in KEYS if "simulate." in path}
    assert keys - simulated <= set().union(*parts.values())
    assert parts["Keys"] <= keys
    current = {*TRIGGERS} - {*TRIGGER_ALIASES}
    assert current <= parts["Triggers"] <= current | keys
    assert {*ACTIONS} <= parts["Actions"] <= {*ACTIONS} | keys


def test_the_documents_of_the_cheat_sheet_are_valid_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "points.csv").write_text("e\n1\n2\n")
    (tmp_path / "in.walk").touch()
    files = [tmp_path / f"{name}.yaml" for name in EXAMPLES if name.startswith("cheatsheet-")]
    assert len(files) >= 3
    for file in files:
        file.write_text(EXAMPLES[file.stem])
        assert run_command(["validate", "--strict", str(file)]) == 0
