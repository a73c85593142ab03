"""The rules that stand for callbacks in docs/searches.md do what it says of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from guide import DOCS

from flux_ensemble.cli.main import run_command
from flux_ensemble.document.loading import load_mapping

pytest.importorskip("optuna")

SECTION = (DOCS / "searches.md").read_text().split("## Callbacks are rules\n")[1].split("\n## ")[0]
(EXAMPLE,) = re.findall(r"^```yaml\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)

#: What the table says, and the rule that it gives.
RULES: dict[str, Any] = {
    what.strip(): yaml.safe_load(rule)
    for what, rule in re.findall(r"^\| ([^|]+?) \|[^|`]*`(\{trigger: [^`]+\})`", SECTION, re.M)
}


def document(*rules: Any, own: bool = False, **search: Any) -> dict[str, Any]:
    """The example with other rules, and what it simulates."""
    value: dict[str, Any] = yaml.safe_load(EXAMPLE)
    value["search"][0].update(sampler="qmc", **search)
    value["rules"] = value["rules"] if own else [value["rules"][0], *rules]
    memo = {"loss": {"expression": "(log10(lr) + 3) ** 2"}}
    value["simulate"] = {"trial": {"duration": 1800, "memo": memo}, "tell": {"duration": 1}}
    return value


def simulated(
    value: dict[str, Any], directory: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> str:
    """What the command says of a simulation."""
    file = directory / "recipe.yaml"
    file.write_text(yaml.safe_dump(value, sort_keys=False))
    run_command(["simulate", "--nodes", "1", "--cores", "10", *more, str(file)])
    return capsys.readouterr().out


def trials(text: str) -> int:
    (found,) = re.findall(r"^trial +(\d+)", text, re.MULTILINE)
    return int(found)


def test_the_table_has_the_rules_and_each_is_one_of_this_document() -> None:
    assert len(RULES) == 7
    for rule in RULES.values():
        load_mapping({"name": "recipe", **document(rule)})


def test_each_new_best_is_told_and_no_gain_closes_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = simulated(document(own=True), tmp_path, capsys)
    # The best but for those among the first four trials, each with its number.
    best = [int(number) for number in re.findall(r"best .*\(trial (\d+):", text)]
    told = [int(number) for number in re.findall(r"submit tell \(params=\{\"n\": (\d+)", text)]
    assert told == [number for number in best if number >= 4]
    assert "fire          plateau #0: close hpo" in text
    # Those that had begun end, too.
    assert best[-1] + 30 < trials(text) <= best[-1] + 36


@pytest.mark.parametrize(
    ("what", "least", "most"),
    [
        ("stop when it is good enough", 1, 12),
        # 100 of them an hour each on one core.
        ("stop after 100 core hours of trials that succeeded", 101, 108),
        # Sixteen times four.
        ("stop after a time", 64, 68),
    ],
)
def test_the_search_ends_when_the_rule_says(
    what: str, least: int, most: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = simulated(document(RULES[what]), tmp_path, capsys)
    assert "completed" in text
    assert least <= trials(text) <= most


def test_an_ensemble_searches_at_night_and_ends_after_its_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    morning = RULES["search at night only"]
    action = {"name": "search", "label": "hpo", "repetitions": "unlimited"}
    evening = {**morning, "after": "9h", "action": action}
    end = {
        "trigger": "search-done",
        "name": "hpo",
        "when": "search.hpo.trials >= 100",
        "action": {"name": "terminate"},
    }
    text = simulated(document(morning, evening, end, trials=100), tmp_path, capsys)
    assert trials(text) == 100
    starts = [float(t) for t in re.findall(r"^ *([\d.]+)s +fire +\S+ #\d+: search hpo", text, re.M)]
    assert starts[:2] == [0.0, 9 * 3600.0]
    # Of the day it has an hour at its start, and from the ninth hour on sixteen.
    assert 9 * 3600 < float(re.findall(r"^ *([\d.]+)s +search-done", text, re.M)[-1]) <= 25 * 3600


def test_too_many_failures_fail_the_ensemble(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = document(RULES["stop when too many fail"], failures=500)
    value["simulate"]["trial"]["failure-rate"] = 0.5
    text = simulated(value, tmp_path, capsys)
    assert "failed" in text
    assert 20 < trials(text) < 60
