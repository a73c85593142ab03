"""What is decided about members without Flux: attempts, interruptions."""

from __future__ import annotations

from typing import Any

import pytest

from flux_ensemble.engine.events import Tag
from flux_ensemble.queues.nested.attempts import Attempt, Attempts, Lost, attempt_of
from flux_ensemble.queues.nested.interruptions import EXPIRED, Interruptions
from flux_ensemble.queues.nested.life import NEXT, Phase


def attempt(index: int, number: int = 0) -> Attempt:
    return Attempt(Tag("a", "r", 0, index), number)


def jobspec(one: Attempt) -> dict[str, Any]:
    tag = {"name": "test", "run": 1, **one.tag._asdict(), "attempt": one.number}
    return {"attributes": {"user": {"ensemble": tag}}}


def entry(name: str, t: float = 0.0, **context: Any) -> dict[str, Any]:
    return {"timestamp": t, "name": name, "context": context}


def told(attempts: Attempts, job: int, one: Attempt, *names: str) -> None:
    for name in names:
        attempts.event(job, entry(name), jobspec(one) if name == "submit" else None)


def test_attempts_with_an_outcome_are_not_lost() -> None:
    attempts = Attempts()
    for index in range(5):
        attempts.sent(attempt(index))
    told(attempts, 10, attempt(0), "submit", "validate", "start", "finish")
    told(attempts, 11, attempt(1), "submit", "validate", "exception", "clean")
    told(attempts, 12, attempt(2), "submit", "invalidate")
    told(attempts, 13, attempt(3), "submit", "validate", "start", "exception")
    assert attempts.lost() == [Lost(attempt(3), 13, True), Lost(attempt(4), None, False)]


def test_attempts_of_an_earlier_service_are_known_by_what_the_journal_shows() -> None:
    attempts = Attempts()
    told(attempts, 10, attempt(0, 2), "submit", "validate", "start")
    told(attempts, 11, attempt(1), "submit", "validate", "start", "finish", "clean")
    assert attempts.lost() == [Lost(attempt(0, 2), 10, True)]


def test_a_history_that_is_read_again_changes_nothing() -> None:
    attempts = Attempts()
    for _ in range(2):
        told(attempts, 10, attempt(0), "submit", "validate", "start")
        told(attempts, 11, attempt(1), "submit", "start", "finish", "clean")
    assert attempts.lost() == [Lost(attempt(0), 10, True)]


def test_an_attempt_is_withdrawn_only_while_it_has_not_shown() -> None:
    attempts = Attempts()
    for index in range(2):
        attempts.sent(attempt(index))
    told(attempts, 10, attempt(0), "submit")
    for index in range(3):
        attempts.withdrawn(attempt(index))
    assert attempts.lost() == [Lost(attempt(0), 10, False)]


@pytest.mark.parametrize("user", [None, {}, {"ensemble": 3}, {"ensemble": {"group": "a"}}])
def test_jobs_of_others_are_no_attempts(user: Any) -> None:
    other = {"attributes": {"user": user}}
    assert attempt_of(other) is None
    assert Attempts().event(7, entry("submit"), other) is None


# -- interruptions -----------------------------------------------------------------------


def ends(*, begun: bool = False, t_expires: float | None = None) -> Interruptions:
    found = Interruptions()
    found.begun, found.t_expires = begun, t_expires
    return found


def exception(kind: str, t: float, note: str = "", severity: int = 0) -> dict[str, Any]:
    return entry("exception", t, type=kind, severity=severity, note=note)


@pytest.mark.parametrize(
    ("member", "event", "interrupted"),
    [
        (ends(), exception("cancel", 5.0), False),
        (ends(begun=True), exception("cancel", 5.0), True),
        (ends(begun=True), exception("note", 5.0, severity=7), False),
        (ends(begun=True), entry("finish", 5.0, status=0), False),
        (ends(t_expires=10.0), exception("timeout", 9.1, EXPIRED), True),
        (ends(t_expires=10.0), exception("timeout", 8.9, EXPIRED), False),
        (ends(t_expires=10.0), exception("timeout", 9.9, "resource allocation"), False),
        (ends(), exception("timeout", 9.9, EXPIRED), False),
    ],
)
def test_exceptions_by_a_members_end_are_interruptions(
    member: Interruptions, event: dict[str, Any], interrupted: bool
) -> None:
    assert member.interrupts(event) is interrupted


def test_every_phase_leads_to_the_end_and_none_out_of_it() -> None:
    assert NEXT.keys() == set(Phase)
    assert not NEXT[Phase.GONE]
    assert all(Phase.GONE in after for phase, after in NEXT.items() if phase is not Phase.GONE)
