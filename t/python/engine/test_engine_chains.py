"""Rules that trigger each other with no job or time between: order, limit, and Python's stack."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from play import CallCustom, Play, document, on_start, submit

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.codec import encode
from flux_ensemble.engine.core import CHAIN_LIMIT
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import CommandDone, Started

T = TypeVar("T")

CUSTOM = "def f(**kwargs): ...\n"

#: Frames that are left for `Engine.handle`, whatever the length of a chain.
ROOM = 60

EXPRESSION = "count.a.submitted >= 0 and not (count.b.failed > 3 or max(count.a.success, 1) > 1)"


def deeply(function: Callable[[], T]) -> T:
    """Call a function with `ROOM` frames left of those that Python lets there be."""
    frame: Any = sys._getframe()
    depth = 0
    while frame is not None:
        depth, frame = depth + 1, frame.f_back

    def call(frames: int) -> T:
        return function() if frames == 0 else call(frames - 1)

    return call(sys.getrecursionlimit() - depth - ROOM)


def enable(label: str) -> dict[str, Any]:
    return {"name": "enable", "label": label}


def chain(length: int, when: str | None) -> list[dict[str, Any]]:
    """So many rules, of which each but the last enables the next one."""
    condition = {} if when is None else {"when": when}
    links = [
        {"id": f"c{number}", "trigger": "start", "enabled": False, **condition}
        for number in range(length)
    ]
    actions = [*(enable(f"c{number}") for number in range(1, length)), submit("b")]
    rules = [{**link, "action": action} for link, action in zip(links, actions, strict=True)]
    return [{**rules[0], "enabled": True}, *rules[1:]]


def fired(play: Play) -> list[str]:
    return [context["rule"] for context in play.recorded("fire")]


@pytest.mark.parametrize("when", [None, EXPRESSION, "count.a.submitted == 0"])
@pytest.mark.parametrize("length", [1, 2, 50, CHAIN_LIMIT, CHAIN_LIMIT + 1])
def test_a_chain_is_the_same_at_any_depth_of_the_stack(length: int, when: str | None) -> None:
    spec = load_mapping(document(rules=chain(length, when)))

    def commands() -> list[Any]:
        return Engine(spec).handle(Started(1000.0))

    shallow = [encode(command) for command in commands()]
    assert [encode(command) for command in deeply(commands)] == shallow
    submitted = sum('"SubmitJobs"' in command for command in shallow)
    assert submitted == (length <= CHAIN_LIMIT)


def test_a_chain_of_what_custom_functions_return_is_the_same_at_any_depth_of_the_stack() -> None:
    rules = [
        on_start(),
        {"trigger": "start", "id": "f", "action": {"name": "custom", "label": "f"}},
    ]
    given = document(custom=CUSTOM, rules=[*rules, *chain(80, EXPRESSION)])
    given["rules"][2]["enabled"] = False
    returned = [
        {"kind": "action", "value": enable("c0")},
        {"kind": "rule", "value": {"trigger": "start", "action": enable("c40")}},
        {"kind": "action", "value": submit("a")},
    ]

    def commands() -> list[Any]:
        play = Play(given)
        (custom,) = play.of(CallCustom)
        return play.handle(CommandDone(play.tick(), custom.id, {"returned": returned}))

    shallow = [encode(command) for command in commands()]
    assert [encode(command) for command in deeply(commands)] == shallow
    assert len(shallow) > 3 * 80


def test_what_an_action_triggers_is_evaluated_before_the_rules_beside_it() -> None:
    rules = [
        {"id": "first", "trigger": "start", "action": enable("nested")},
        {"id": "second", "trigger": "start", "action": submit("a")},
        {"id": "nested", "trigger": "start", "enabled": False, "action": enable("inner")},
        {"id": "inner", "trigger": "start", "enabled": False, "action": submit("b")},
    ]
    assert fired(Play(document(rules=rules))) == ["first", "nested", "inner", "second"]


def test_what_an_item_triggers_is_evaluated_before_the_next_item() -> None:
    given = document(
        custom=CUSTOM,
        rules=[
            {"id": "f", "trigger": "start", "action": {"name": "custom", "label": "f"}},
            {"id": "x", "trigger": "start", "enabled": False, "action": enable("y")},
            {"id": "y", "trigger": "start", "enabled": False, "action": submit("b")},
        ],
    )
    play = Play(given)
    (call,) = play.of(CallCustom)
    play.done(
        call,
        returned=[
            {"kind": "action", "value": enable("x")},
            {"kind": "rule", "value": {"id": "z", "trigger": "start", "action": submit("b")}},
            {"kind": "action", "value": submit("a")},
        ],
    )
    # Items are firings of the rule that called the function.
    assert fired(play) == ["f", "f", "x", "y", "z", "f"]


def test_nothing_is_left_of_what_a_function_returned_when_an_item_ends_the_ensemble() -> None:
    given = document(
        custom=CUSTOM,
        rules=[
            {"id": "f", "trigger": "start", "action": {"name": "custom", "label": "f"}},
            {"id": "x", "trigger": "start", "enabled": False, "action": {"name": "terminate"}},
        ],
    )
    play = Play(given)
    (call,) = play.of(CallCustom)
    items = [enable("x"), submit("a")]
    play.done(call, returned=[{"kind": "action", "value": item} for item in items])
    assert fired(play) == ["f", "f", "x"]
    assert play.engine.state == "completed"


def test_the_reply_to_a_request_comes_after_all_that_the_request_triggers() -> None:
    rules = [
        on_start(),
        {"id": "x", "trigger": "start", "enabled": False, "action": {"name": "terminate"}},
    ]
    play = Play(document(rules=rules))
    play.request("rules", id="x", enabled=True)
    assert [type(command).__name__ for command in play.commands[-2:]] == ["Finish", "Reply"]
