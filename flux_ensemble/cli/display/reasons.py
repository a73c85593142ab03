"""The output of `why`: for each rule its firings, its condition, and what it waits for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from flux_ensemble.cli.display.plain_tables import fsd
from flux_ensemble.texts import hanging, listed

if TYPE_CHECKING:
    from flux_ensemble.client.responses import MemberReason, RuleReason, Term, Why


#: What a term depends on that holds for some events and not for others.
_EVENT = "what triggers the rule"


def ending(name: str, answer: Why) -> Iterator[str]:
    """Yield lines about an ensemble that has ended: how, why, and which rules never fired."""
    if answer.get("resumable"):
        yield hanging(f"{name}: {answer['reason']}")
        return
    how = {"completed": "has completed", "failed": "has failed", "canceled": "was canceled"}
    reason = f": {answer['reason']}" if answer["reason"] else ""
    yield hanging(f"{name} {how[answer['state']]}{reason}")
    rules = answer["rules"]
    silent = [rule["id"] for rule in rules if not rule["fired"]]
    if len(rules) > 1 and silent:
        yield hanging(f"{len(silent)} of {len(rules)} rules never fired: {listed(silent)}")
    elif len(rules) > 1:
        partly = [rule["id"] for rule in rules if rule.get("unmet")]
        but = f", but not for each combination: {listed(partly)}" if partly else ""
        them = "both" if len(rules) == 2 else f"all {len(rules)}"
        yield hanging(f"{them} rules have fired{but}")


def reasons(answer: Why, *, ended: bool = False) -> Iterator[str]:
    """Yield lines about the rules, in one paragraph each.

    Args:
        answer: of the service.
        ended: the ensemble has ended, so no rule can fire any more.
    """
    for number, rule in enumerate(answer["rules"]):
        if number:
            yield ""
        for line in _rule(rule, answer["t"], ended):
            yield hanging(line)


def _rule(rule: RuleReason, t: float, ended: bool) -> Iterator[str]:
    what = ", ".join(rule["actions"])
    yield f"{rule['id']}: {what} on {rule['trigger']}"
    if ended:
        yield f"  fired {_times(rule['fired'])}" if rule["fired"] else "  never fired"
    else:
        yield f"  fired {_times(rule['fired'])}, {_left(rule['left'])}"
    if rule["error"]:
        yield f"  error: {rule['error'].splitlines()[0]}"
    trigger, _, by = rule["trigger"].partition(" by ")
    event = f"the values of {by}" if by and trigger.startswith("idle") else _EVENT
    yield from _terms(rule["terms"], "  ", event)
    for unmet in rule.get("unmet", ()):
        yield f"  {unmet}"
    for member in () if ended else rule.get("members", ()):
        yield f"  {member['name']}: fired {_times(member['fired'])}, {_left(member['left'])}"
        yield from _terms(member["terms"], "    ", _EVENT)
        yield from _rests(member, t, "    ")
    if ended:
        if not rule["enabled"]:
            yield "  was disabled"
        return
    if rule["never"]:
        yield f"  cannot fire any more: {rule['never']}"
        return
    if rule["waits"]:
        yield f"  {rule['waits']}"
    if rule["t_next"] is not None:
        yield f"  its timer is due {_when(rule['t_next'], t)}"
    yield from _rests(rule, t, "  ")


def _terms(terms: Iterable[Term], indent: str, event: str) -> Iterator[str]:
    for term in terms:
        yield f"{indent}{_mark(term)}  {term['text']}"
        if term["missing"]:
            yield f"{indent}      {term['missing']}"
        elif term["values"]:
            values = (f"{name} is {_number(value)}" for name, value in term["values"].items())
            yield f"{indent}      {listed(values)}"
        elif term["holds"] is None:
            yield f"{indent}      depends on {event}"


def _rests(rule: RuleReason | MemberReason, t: float, indent: str) -> Iterator[str]:
    if rule["t_cooldown"] is not None:
        yield f"{indent}not before {_when(rule['t_cooldown'], t)} (cooldown)"
    if rule["skips"]:
        passes = f"lets the next {_times(rule['skips'])} pass at which its condition holds"
        yield f"{indent}{passes} (backoff)"


def _mark(term: Term) -> str:
    return {True: "yes ", False: "no  ", None: "?   "}[term["holds"]]


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _left(left: int | None) -> str:
    return "unlimited" if left is None else f"{left} left"


def _number(value: Any) -> str:
    if value is None:
        return "empty"
    return f"{value:.6g}" if type(value) in (int, float) else str(value)


def _when(then: float, t: float) -> str:
    return f"at {time.strftime('%H:%M:%S', time.localtime(then))}, in {fsd(max(0.0, then - t))}"
