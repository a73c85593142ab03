"""Callbacks for news of members, and the values that these receive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.queues.nested.attempts import Lost
from flux_ensemble.queues.nested.listener import Facts
from flux_ensemble.queues.nested.service_handle import Followed
from flux_ensemble.queues.nested.shape import MemberTag


@dataclass(frozen=True, slots=True)
class Gone:
    """The end of a member.

    Args:
        reason: the reason, for people.
        asked: the service asked it to end.
        fenced: nothing of it can run any more, as far as the enclosing instance knows.
        lost: the attempts whose outcome will never be known.
        outage: it ended because the enclosing instance restarted.
    """

    reason: str
    asked: bool
    fenced: bool
    lost: list[Lost]
    outage: bool = False


@dataclass(frozen=True, slots=True)
class MemberCallbacks:
    """Callbacks for news of members.

    Args:
        up: receives a member that can be sent jobs, also again after its connection was lost.
        draining: receives one that is to be sent no more jobs, with the reason, and whether it
            has begun to end.
        expires: receives the time when the allocation of one expires, repeatedly, and when that
            has changed.
        event: receives a job event of one: its id there, the entry, the jobspec with `submit`,
            and whether this event and the later ones of the job result from the member's end alone.
        past: receives a job that was there when a member was attached, with its entries.
        caught_up: receives a member for which `past` has received all jobs; `event` receives
            what comes later.
        refused: receives one that cannot be a member, with the reason; `gone` follows.
        lost: receives one that ends without being asked to, so that not all may be known of its
            jobs, with the reason; `gone` follows.
        gone: receives one that has ended, with a description of its end.
        events: receives, instead of `event`, the job events of one with a service of its own:
            see `service_handle`.
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
