"""What follows from the table of keys: files, defaults, and which triggers take a key."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.keys.document import (
    DOCUMENT,
    DOCUMENT_KEYS,
    FORMER,
    KEYS,
    LIMIT_KEYS,
    keys,
)
from flux_ensemble.document.keys.forms import Key, integer, list_of, mapping, text
from flux_ensemble.document.keys.jobs import JOB_KEYS, RETRIES_KEYS
from flux_ensemble.document.keys.members import MEMBER_KEYS
from flux_ensemble.document.keys.metrics import BEST_KEYS
from flux_ensemble.document.keys.rules import ACTION_KEYS, ACTIONS, RULE_KEYS, TRIGGERS
from flux_ensemble.document.loading import DocumentError, load_mapping
from flux_ensemble.document.members import Pool
from flux_ensemble.document.model import Action, Limits, Rule, Spec
from flux_ensemble.document.retries import Retries
from flux_ensemble.features.scaling.document import Scaling
from flux_ensemble.features.scaling.keys import SCALING_KEYS
from flux_ensemble.features.search.keys import POLICIES, SEARCH_KEYS, STOP_KEYS
from flux_ensemble.features.search.model import Search, Stop
from flux_ensemble.metrics.best import Best

ROOT = Path(__file__).parents[3]

#: Each table, and what its keys are read into.
READ: Sequence[tuple[Sequence[Key], type]] = (
    (DOCUMENT_KEYS, Spec),
    (LIMIT_KEYS, Limits),
    (SCALING_KEYS, Scaling),
    (JOB_KEYS, JobSet),
    (RETRIES_KEYS, Retries),
    (RULE_KEYS, Rule),
    (ACTION_KEYS, Action),
    (MEMBER_KEYS, Pool),
    (SEARCH_KEYS, Search),
    (STOP_KEYS, Stop),
    (BEST_KEYS, Best),
)


def writer() -> ModuleType:
    """The script that writes what follows from the keys."""
    spec = importlib.util.spec_from_file_location("docs_keys", ROOT / "docs" / "keys.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_that_follow_from_the_keys_are_what_they_are_made_from() -> None:
    made = list(writer().files())
    assert {path.name for path, _ in made} >= {
        "ensemble.schema.json",
        "entry_keys.py",
        "actions.md",
        "document.md",
        "expressions.md",
        "keys.md",
        "metrics.md",
        "rpc.md",
        "searches.md",
        "trials.md",
        "triggers.md",
    }
    for path, wanted in made:
        assert path.read_text() == wanted, "write it anew: python docs/keys.py"


def test_each_key_is_in_the_reference_once() -> None:
    reference = (ROOT / "docs" / "keys.md").read_text()
    _, _, table = reference.partition("\n## jobs\n")
    rows = [line.split("`")[1] for line in table.partition("\n\n## ")[0].splitlines()[3:]]
    assert rows == [key.name for key in JOB_KEYS]


def test_a_table_is_of_the_keys_that_its_page_names_in_their_order() -> None:
    lines = list(writer()._of_keys("jobs", "command,name"))
    assert [line.split("`")[1] for line in lines[2:]] == ["command", "name"]
    with pytest.raises(KeyError, match="cmd"):
        list(writer()._of_keys("jobs", "cmd"))


def test_a_link_to_the_page_that_a_table_is_on_stays_on_it() -> None:
    write = writer()
    text = "<!-- table: triggers -->\n<!-- end -->\n"
    there = write._table("triggers.md", write._TABLE.fullmatch(text))
    elsewhere = write._table("keys.md", write._TABLE.fullmatch(text))
    assert "(#idle)" in there
    assert "(triggers.md#idle)" in elsewhere


@pytest.mark.parametrize(("table", "made"), READ, ids=[made.__name__ for _, made in READ])
def test_a_key_that_is_read_as_it_is_has_the_default_of_its_field(
    table: Sequence[Key], made: type
) -> None:
    fields = {field.name: field for field in dataclasses.fields(made)}
    for key in table:
        if key.read is None:
            continue
        name = key.field or key.name.replace("-", "_")
        # What replaces a value of a group is no field of its own in an action.
        if made is Action and name not in fields:
            continue
        assert name in fields, key.name
        if key.default is not None:
            assert key.read(key.default) == fields[name].default, key.name


def test_what_takes_a_key_exists() -> None:
    for table, known in ((RULE_KEYS, TRIGGERS), (ACTION_KEYS, ACTIONS), (STOP_KEYS, POLICIES)):
        for key in table:
            for only in key.only:
                assert any(name.startswith(only) for name in known), (key.name, only)


def test_an_alternative_has_the_keys_that_stand_in_it_and_a_list_those_of_its_items() -> None:
    inner = [Key("low", integer(0), "The least."), Key("high", integer(0), "The most.")]
    form = list_of("a list", {"if": {}, "then": mapping("a range", inner), "else": text()})
    table = [Key("ranges", form, "Ranges.")]
    assert [path for path, _ in keys(mapping("a document", table))] == [
        "ranges",
        "ranges.low",
        "ranges.high",
    ]


def test_keys_of_actions_are_those_of_action() -> None:
    assert KEYS["rules.action.label"].text
    assert not [path for path in KEYS if path.startswith("rules.actions.")]
    assert dict(keys(DOCUMENT)) == KEYS


@pytest.mark.parametrize("old", FORMER)
def test_a_former_name_is_none_of_today_and_both_at_once_are_refused(old: str) -> None:
    assert old not in KEYS
    section, _, name = old.rpartition(".")
    new = FORMER[old].rpartition(".")[2]
    document: dict[str, Any] = {"jobs": [{"name": "a", "command": "true"}]}
    document[section] = {name: 2}
    assert load_mapping(document, name="demo")
    document[section][new] = 2
    with pytest.raises(DocumentError, match=f"'{new}' is the new name of this key"):
        load_mapping(document, name="demo")
