"""The guide to the document is true: its examples load, and it leaves no key out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from play import CallCustom, Play

from flux_ensemble.document.keys.document import DOCUMENT
from flux_ensemble.document.keys.jobs import JOB
from flux_ensemble.document.keys.rules import ACTION, ACTIONS, RULE, TRIGGERS
from flux_ensemble.document.keys.search import SAMPLERS, SEARCH
from flux_ensemble.document.loading import DocumentError, load_text
from flux_ensemble.metrics.names import COUNTERS, GAUGES, STREAMS
from flux_ensemble.metrics.search_paths import COUNTS
from flux_ensemble.metrics.statistics import ALWAYS, STATISTICS

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "document.md").read_text()
CUSTOM = (DOCS / "custom.md").read_text()
YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = YAML.findall(GUIDE)
SEARCHES = YAML.findall((DOCS / "searches.md").read_text())
FUNCTIONS = [text for text in YAML.findall(CUSTOM) if "jobs:" in text]
WORDS = set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`\n]+)`", GUIDE))))


def test_the_guide_has_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_of_the_guide_loads(example: str) -> None:
    load_text(example, name="guide", files={"points.csv": "length,angle\n1,2\n"})


@pytest.mark.parametrize("example", SEARCHES, ids=range(len(SEARCHES)))
def test_every_example_with_a_search_loads(example: str) -> None:
    load_text(example, name="search")


def test_the_page_on_searches_has_every_key_of_one() -> None:
    page = (DOCS / "searches.md").read_text()
    assert all(f"`{key}`" in page for key in (*SEARCH["properties"], *SAMPLERS))
    assert all(f"search.ID.{count}" in page for count in COUNTS)


@pytest.mark.parametrize("example", FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_every_example_with_a_custom_function_loads(example: str) -> None:
    load_text(example, name="custom")


def test_the_event_of_the_guide_has_what_a_function_is_told() -> None:
    rule = {"trigger": "job-fail", "action": {"name": "custom", "label": "f"}}
    jobs = [{"name": "simulate", "command": "simulate"}]
    start = {"trigger": "start", "action": {"name": "submit", "label": "simulate"}}
    play = Play({"name": "a", "jobs": jobs, "rules": [start, rule], "custom": "def f(**k): ..."})
    play.run(1, 768)
    (event,) = re.findall(r"^```python\n(\{\n.*?)^```", CUSTOM, re.MULTILINE | re.DOTALL)
    assert ast.literal_eval(event).keys() == play.of(CallCustom)[0].kwargs["event"].keys()


def test_the_errors_of_the_guide_are_those_of_its_first_example() -> None:
    text = EXAMPLES[0].replace("count: 5", "cuont: 5", 1).replace("label: sleep", "label: slep")
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
    events = {name if name in WORDS else name.removeprefix("job-") for name in TRIGGERS}
    assert events <= WORDS
    assert {*ACTIONS, *COUNTERS, *STREAMS, *GAUGES, *ALWAYS} <= WORDS


def test_the_guide_has_each_statistic_with_what_it_is() -> None:
    for name, kind in STATISTICS.items():
        assert f"| `{name}` | {kind.text} |" in GUIDE
