"""The kinds of log entries: what is stored of them, and what is read."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import goldens
import pytest

from flux_ensemble import eventlog
from flux_ensemble.cli.display.messages import announce
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import Record
from flux_ensemble.engine.engine import Engine
from flux_ensemble.results.log_lines import explain
from flux_ensemble.words import plain

ROOT = Path(__file__).parents[3]
TRACES = ROOT / "t" / "traces"


def recorded() -> Iterator[dict[str, Any]]:
    """The entries of all recordings, and of the logs that versions wrote."""
    for path in sorted(TRACES.rglob("*.jsonl*")):
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for line in text.splitlines():
            for command in json.loads(line).get("commands", ()):
                if command["type"] == "Record":
                    yield {"timestamp": command["t"], **command}
    for path in sorted((TRACES / "logs").glob("*.json.gz")):
        for line in json.loads(gzip.decompress(path.read_bytes()))["lines"]:
            if (entry := json.loads(line))["name"] != "batch":
                yield entry


def test_what_was_recorded_has_no_other_fields_than_its_class() -> None:
    for stored in recorded():
        entry = eventlog.read(stored)
        assert type(entry) is not eventlog.Unknown, stored["name"]
        assert type(entry)(**stored["context"]).to_json() == stored["context"], stored["name"]
        assert plain(explain(stored, 0.0, str)).split()[1] == stored["name"]
        list(announce(stored))


def test_an_engine_stores_fields_in_the_order_of_the_class() -> None:
    seen = set()
    for path in goldens.GOLDEN.glob("history*.jsonl.gz"):
        document, events = goldens._taken(path)
        engine = Engine(load_mapping(document))
        for event in events:
            for command in engine.handle(event):
                if isinstance(command, Record):
                    stored, fields = list(command.context), eventlog.KINDS[command.name].fields
                    assert stored == [name for name in fields if name in stored], command.name
                    seen.add(command.name)
    assert len(seen) > 25


def test_the_documentation_has_each_kind_with_its_fields() -> None:
    text = (ROOT / "docs" / "eventlog.md").read_text()
    table = text[text.index("| entry | context |") :].partition("\n\n")[0]
    rows = {}
    for line in table.splitlines()[2:]:
        names, _, context = line.strip("| ").partition(" | ")
        rows.update(dict.fromkeys(re.findall(r"`([a-z-]+)`", names), context))
    assert rows.keys() == eventlog.KINDS.keys()
    missing = {
        tag: [name for name in kind.fields if f"`{name}`" not in rows[tag]]
        for tag, kind in eventlog.KINDS.items()
        # They are described as an item of `waits`.
        if tag not in ("held", "go-on")
    }
    assert {tag: names for tag, names in missing.items() if names} == {}


def test_an_entry_of_a_later_version_is_shown_as_it_is() -> None:
    stored = {"timestamp": 3.0, "name": "moved", "context": {"job": 7, "why": "it is late"}}
    assert plain(explain(stored, 1.0, str)) == '      2.000s  moved         job=7 why="it is late"'
    assert list(announce(stored)) == []
    assert not eventlog.read(stored).is_note


def test_a_field_of_a_later_version_is_no_obstacle() -> None:
    context = {"rule": "r", "reason": "it raised", "since": 7}
    entry = eventlog.of("rule-disabled", context)
    assert entry.sentence(0.0, str) == "r: it raised"


def test_a_field_that_may_be_left_out_is_none_and_not_stored() -> None:
    entry = eventlog.Shutdown(reason=None)
    assert (entry.reason, entry.lost, entry.to_json()) == (None, None, {})
    assert eventlog.read(entry.stored(2.0)).to_json() == {}


def test_an_entry_stays_as_it_is() -> None:
    entry = eventlog.RuleAdded(rule="r", by="f")
    with pytest.raises(AttributeError, match="'rule' cannot be set"):
        entry.rule = "s"  # type: ignore[misc]
    assert repr(entry) == "RuleAdded(rule='r', by='f')"


def test_an_entry_without_a_field_that_it_must_have_says_which() -> None:
    with pytest.raises(AttributeError, match="the entry 'ask' of the log has no 'first'"):
        eventlog.of("ask", {"search": "s"}).sentence(0.0, str)


def test_what_the_driver_of_an_engine_writes_is_no_entry_of_the_engine() -> None:
    failed = {"state": "failed", "reason": "it broke"}
    assert eventlog.of("finish", {**failed, "stopped": True}).is_note
    assert not eventlog.of("finish", failed).is_note
    assert eventlog.of("violation", {}).is_note
