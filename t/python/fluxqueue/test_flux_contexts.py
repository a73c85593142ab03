"""What jobs of anybody say reaches an ensemble at a bounded length."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flux_ensemble.queues.flux.journal import MAX_CONTEXT, SENTINEL, Journal


class Manager:
    """A job manager that sends what it is told to; gathers the contexts of live events."""

    def __init__(self) -> None:
        self.contexts: list[dict[str, Any]] = []
        journal = Journal(
            self._open,
            event=lambda job, entry, jobspec: self.contexts.append(entry["context"]),
            backlog=lambda job, jobspec: None,
            lost=lambda reason: None,
        )
        journal.require(frozenset({"memo"}), False, lambda: None)
        self.send(SENTINEL, [])

    def _open(self, topic: str, payload: Any, receive: Any, ended: Any, aside: Any) -> Any:
        self._receive = receive
        return self

    def cancel(self) -> None:
        pass

    def send(self, job: int, contexts: list[Any]) -> None:
        events = [{"name": "memo", "timestamp": 1.0, "context": one} for one in contexts]
        self._receive(self, json.dumps({"id": job, "events": events}))


def seen(context: Any) -> Any:
    """A context as it reaches an ensemble."""
    manager = Manager()
    manager.send(7, [context])
    return manager.contexts[0]


@pytest.mark.parametrize(
    "context",
    [
        {"fom": 1.5, "text": "x" * 4000},
        {"values": list(range(5000))},
        {f"key{number}": number for number in range(1500)},
        {"nested": {"text": "x" * 20_000}, "n": 1},
    ],
)
def test_a_context_of_a_sane_size_stays_as_it_is(context: Any) -> None:
    assert seen(context) == context


def test_a_long_text_loses_its_middle() -> None:
    context = seen({"type": "odd", "severity": 1, "note": "b" + "x" * 1_000_000 + "e"})
    assert context.pop("note").startswith("bxxx")
    assert context == {"type": "odd", "severity": 1}
    assert len(seen({"note": "x" * 1_000_000})["note"]) < 5000
    assert "characters left out" in seen({"note": "x" * 1_000_000})["note"]


def test_of_a_long_context_the_longest_values_are_left_out_and_the_others_keep_their_order() -> (
    None
):
    context = seen({"a": 1, "large": ["x" * 100] * 1000, "b": 2.5, "c" * 100_000: 3, "d": "text"})
    assert list(context.items()) == [("a", 1), ("b", 2.5), ("d", "text")]


def test_no_context_is_longer_than_the_bound() -> None:
    for context in (
        {f"key{number}": number for number in range(100_000)},
        {f"key{number}": "x" * 4000 for number in range(100)},
        {"deep": [[["x" * 100_000]]]},
    ):
        assert len(json.dumps(seen(context))) <= 2 * MAX_CONTEXT


def test_only_what_is_long_is_shortened() -> None:
    manager = Manager()
    manager.send(7, [{"fom": 1}, {"note": "x" * 100_000}, None, {"fom": 2}])
    assert manager.contexts[0] == {"fom": 1}
    assert manager.contexts[2:] == [None, {"fom": 2}]
