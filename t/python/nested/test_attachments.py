"""The way to the service of a member, and the order in which what that says is taken in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import FakeLoop

from flux_ensemble.bindings import require_flux
from flux_ensemble.engine import commands, events
from flux_ensemble.queues.nested.link import FORMAT, Link

pytestmark = pytest.mark.flux


class Said:
    """A way, and what is sent on it."""

    def __init__(self) -> None:
        require_flux()
        from flux_ensemble.service.attachments import Way

        self.loop = FakeLoop()
        self.sent: list[Mapping[str, Any]] = []
        self.way = Way("1.1", self.sent.append, self.loop, lambda _: None)
        self.there = Link()


def test_what_is_said_in_one_turn_is_one_message() -> None:
    said = Said()
    for number in range(3):
        said.way.put(["submit", number])
    (soon,) = said.loop.timers
    assert soon.after == 0.0
    assert not said.sent
    soon.callback()
    assert said.there.take(said.sent[0]) == [["submit", 0], ["submit", 1], ["submit", 2]]
    # The next one waits for the acknowledgement of the first.
    said.way.put(["submit", 3])
    assert len(said.sent) == 1
    acknowledgement = said.there.next()
    assert acknowledgement is not None
    answer = said.way.take(acknowledgement)
    assert answer is not None
    assert said.there.take(answer) == [["submit", 3]]


def test_what_was_said_to_one_that_is_gone_is_not_sent() -> None:
    said = Said()
    said.way.put(["look"])
    said.way.close()
    said.loop.timers[0].callback()
    assert not said.sent


def test_events_are_told_together_and_in_their_place_between_other_items() -> None:
    require_flux()
    from flux_ensemble.queues.nested.listener import Heard
    from flux_ensemble.queues.nested.service_handle import AttachedInstance

    told: list[Any] = []

    class Channel:
        taken: Any = None

        def open(self, taken: Any, lost: Any) -> None:
            self.taken = taken

        def put(self, item: list[Any]) -> None:
            """Nobody is there."""

        def close(self) -> None:
            """Nothing is open."""

    def never(*_: Any) -> None:
        raise AssertionError

    heard = Heard(
        event=never,
        past=never,
        caught_up=lambda: told.append("caught-up"),
        ending=lambda: told.append("ending"),
        lost=never,
        objection=never,
        events=told.append,
    )
    channel = Channel()
    instance = AttachedInstance(channel, {}, heard, never)
    instance.attach("0.88.0", never)
    one, two, three = [1.0, 7, "start"], [1.5, 7, "finish", {"status": 0}], [2, 7, "clean"]
    channel.taken([["caught-up"], one, two, ["ending"], three])
    assert told == ["caught-up", [one, two], "ending", [three]]
    instance.close()
    channel.taken([one, ["ending"]])
    assert told[4:] == []


def test_the_number_of_the_format_changes_with_the_messages() -> None:
    require_flux()
    from flux_ensemble.client.topics import TOPICS
    from flux_ensemble.queues.nested.listener import Heard
    from flux_ensemble.queues.nested.service_handle import AttachedInstance
    from flux_ensemble.service.contact import Contact

    unused: Any = SimpleNamespace(caught_up=None)
    heard: Heard = unused
    link = Link()
    link.put([])
    message = link.next()
    assert message is not None
    form = {
        "format": FORMAT,
        "attach": sorted(TOPICS["attach"].fields),
        "message": sorted(message),
        "up": sorted(AttachedInstance(unused, {}, heard, unused)._takes),
        "down": sorted(Contact(unused, unused, unused, "", unused)._does),
        "values": {
            one.__name__: [field.name for field in fields(one)]
            for one in (
                commands.SubmitJobs,
                commands.CancelJobs,
                commands.UpdateJobs,
                events.CommandDone,
                events.CommandFailed,
                events.JobsAlike,
            )
        },
    }
    stored = Path(__file__).parents[2] / "traces" / "link.json"
    assert json.loads(stored.read_text()) == form, f"now: {json.dumps(form)}"
