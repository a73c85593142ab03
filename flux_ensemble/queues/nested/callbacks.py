"""What whoever has members is told of them, as callbacks and what these get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.queues.nested.attempts import Lost
from flux_ensemble.queues.nested.instance import Facts
from flux_ensemble.queues.nested.jobspec import MemberTag
from flux_ensemble.queues.nested.service_handle import Followed


@dataclass(frozen=True, slots=True)
class Gone:
    """The end of a member.

    Args:
        reason: why, for people.
        asked: it was to end.
        fenced: nothing of it can run any more, as far as the enclosing instance knows.
        lost: the attempts whose outcome will never be known.
        outage: it ended as the enclosing instance did.
    """

    reason: str
    asked: bool
    fenced: bool
    lost: list[Lost]
    outage: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """Who is told what of members.

    Args:
        up: gets a member that can be sent jobs, also once more after its connection was lost.
        draining: gets one that is to be sent no more, with the reason, and whether it has begun to
            end.
        expires: gets when the time of one is up, now and then, and when that was changed.
        event: gets a job event of one: its id there, the entry, the jobspec with `submit`, and
            whether the member's end is all that this and what follows of the job says.
        past: gets a job that was there when a member was attached, with its entries.
        caught_up: gets a member of which `past` got all jobs; `event` gets what comes later.
        refused: gets one that cannot be a member, with the reason; `gone` follows.
        lost: gets one that ends and was not asked to, of whose jobs not all may be known, with the
            reason; `gone` follows.
        gone: gets one that is no more, and what is left of it.
        events: gets job events of one with a service of its own instead: see `attached`.
    """

    up: Callable[[MemberTag, Followed, Facts], None]
    draining: Callable[[MemberTag, str, bool], None]
    expires: Callable[[MemberTag, float | None], None]
    event: Callable[[MemberTag, int, Mapping[str, Any], Mapping[str, Any] | None, bool], None]
    past: Callable[[MemberTag, int, Mapping[str, Any], list[Mapping[str, Any]]], None]
    caught_up: Callable[[MemberTag], None]
    refused: Callable[[MemberTag, str], None]
    lost: Callable[[MemberTag, str], None]
    gone: Callable[[MemberTag, Gone], None]
    events: Callable[[MemberTag, list[list[Any]]], None] = lambda tag, events: None
