"""Which requests are handled at once, and which wait, while a service comes back."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from flux_ensemble.bindings import require_flux
from flux_ensemble.client.topics import TOPICS

# What a request is made of is Flux's.
pytestmark = pytest.mark.flux


class Bench:
    """A dispatcher of a service that has the log of one ensemble, and notes what is handled."""

    def __init__(self, monkeypatch: Any) -> None:
        require_flux()
        from flux_ensemble.service.requests.dispatch import Dispatcher

        monkeypatch.setattr("flux_ensemble.service.requests.dispatch.is_owner", lambda _: True)
        self.recovery = SimpleNamespace(ready=False, epoch=0, coming={})
        self.handled: list[str] = []
        responder = SimpleNamespace(
            admit=lambda method, message: message,
            refuse=lambda message, number, reason: self.handled.append(f"refused: {reason}"),
        )

        def handler(method: str) -> Any:
            return lambda message, payload: self.handled.append(method)

        self.dispatcher = Dispatcher(
            responder,  # type: ignore[arg-type]
            self.recovery,  # type: ignore[arg-type]
            SimpleNamespace(begun=False),  # type: ignore[arg-type]
            {method: handler(method) for method in TOPICS},
            guests=False,
        )

    def ask(self, *methods: str) -> list[str]:
        """What is handled at once of these requests."""
        before = len(self.handled)
        for method in methods:
            method, _, name = method.partition(" ")
            payload = json.dumps({"name": name}) if name else None
            self.dispatcher.dispatch(method, payload)
        return self.handled[before:]


def test_list_and_status_are_answered_while_ensembles_are_restored(monkeypatch: Any) -> None:
    bench = Bench(monkeypatch)
    assert bench.ask("list") == []
    bench.recovery.epoch, bench.recovery.coming = 2, {"one": "5 of 10 events"}
    asked = ("list", "status", "status one", "log one", "why one", "pause one")
    assert bench.ask(*asked) == ["list", "status"]


def test_what_reads_waits_until_they_are_and_what_changes_until_the_journal_is_read(
    monkeypatch: Any,
) -> None:
    bench = Bench(monkeypatch)
    bench.recovery.epoch, bench.recovery.coming = 2, {"one": "5 of 10 events"}
    bench.ask("pause one", "log one", "metrics one")
    bench.recovery.coming = {}
    bench.dispatcher.restored()
    assert bench.handled == ["log", "metrics"]
    assert bench.ask("why one", "resume one") == ["why"]
    bench.recovery.ready = True
    bench.dispatcher.ready()
    assert bench.handled == ["log", "metrics", "why", "pause", "resume"]
