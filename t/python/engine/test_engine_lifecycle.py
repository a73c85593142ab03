"""The states of an ensemble: the engine makes the transitions of the table, and no others."""

from __future__ import annotations

import pytest
from play import Play, document, on_start

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.lifecycle import ACTING_STATES, FINAL_STATES, TRANSITIONS


def test_every_state_of_the_table_can_be_reached_from_running() -> None:
    reached = {"running"}
    while more := {state for before in reached for state in TRANSITIONS[before]} - reached:
        reached |= more
    assert reached == TRANSITIONS.keys()
    assert ACTING_STATES == ("running", "paused")
    assert FINAL_STATES == ("completed", "failed", "canceled")


@pytest.mark.parametrize("before", TRANSITIONS)
@pytest.mark.parametrize("after", TRANSITIONS)
def test_a_state_is_followed_only_by_those_of_the_table(before: str, after: str) -> None:
    core = Core(load_mapping(document()))
    core.state = before
    if after in TRANSITIONS[before]:
        core.enter(after)
        assert core.state == after
        return
    with pytest.raises(AssertionError, match=f"from '{before}' to '{after}'"):
        core.enter(after)
    assert core.state == before


def test_an_ensemble_goes_through_pause_and_cancel_to_its_end() -> None:
    play = Play(document(rules=[on_start("b")]))
    states = [play.engine.state]
    for operation in ("pause", "resume", "cancel"):
        play.request(operation)
        states.append(play.engine.state)
    play.event(1, "submit")
    play.event(1, "clean")
    assert [*states, play.engine.state] == ["running", "paused", "running", "ending", "canceled"]


@pytest.mark.parametrize("operation", ["pause", "resume"])
def test_an_ensemble_that_ended_is_neither_paused_nor_resumed(operation: str) -> None:
    play = Play(document())
    play.request("terminate")
    reply = play.request(operation)
    assert (reply.errno, play.engine.state) == ("EINVAL", "completed")
