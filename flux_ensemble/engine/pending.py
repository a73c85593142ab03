"""What actions leave behind while they wait: for an outcome, a resume, or another try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flux_ensemble.engine.commands import Effect
from flux_ensemble.engine.fastclass import fastclass
from flux_ensemble.engine.firings import Firing
from flux_ensemble.spec.model import Action


@fastclass
class Origin:
    """The firing that a command belongs to.

    Args:
        rule: rule id, or one of the reserved ids.
        number: the firing's number.
        chain: rules that led here with no job or time between, the rule included.
        request: the request to answer, or None.
    """

    rule: str
    number: int
    chain: tuple[str, ...] = ()
    request: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """An action to perform and the event that asked for it.

    `attempt` counts the calls of a custom function from 0.
    """

    action: Action
    event: Mapping[str, Any]
    attempt: int = 0


@fastclass
class Pending:
    """A command whose outcome has not come back."""

    origin: Origin
    command: Effect
    firing: Firing | None = None
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """What waits for a resume: an action, or what a custom function returned."""

    origin: Origin
    what: Call | Sequence[Mapping[str, Any]]
