"""Log entries about the members of an ensemble, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble.cli.display.outlook import in_words

#: The entries, with the styles of their lines.
STYLES = {
    "member-start": "action",
    "member-up": "good",
    "member-expires": "detail",
    "member-draining": "warn",
    "member-lost": "bad",
    "member-ended": "detail",
    "not-placed": "warn",
    "jobs-dropped": "warn",
}


def member_sentence(entry: Mapping[str, Any]) -> str:
    """Return an entry about a member as one sentence.

    >>> up = {"member": "pool.0", "nodes": 1, "cores": 8, "t_expires": 7300.0}
    >>> member_sentence({"name": "member-up", "timestamp": 100.0, "context": up})
    'pool.0 is up: 1 node, 8 cores, for 2h'
    """
    context = entry["context"]
    member, reason = context.get("member"), context.get("reason")
    match entry["name"]:
        case "member-start":
            return f"{member} was asked for"
        case "member-up":
            left = context.get("t_expires")
            lasts = "" if left is None else f", for {in_words(left - entry['timestamp'])}"
            nodes, cores = _count(context["nodes"], "node"), _count(context["cores"], "core")
            return f"{member} is up: {nodes}, {cores}{lasts}"
        case "member-expires":
            if context["t_expires"] is None:
                return f"{member} has no time limit any more"
            left = in_words(context["t_expires"] - entry["timestamp"])
            return f"{member} has another time limit: {left} from now"
        case "member-draining":
            return f"{member} gets no more jobs, and has {context['active']}: {reason}"
        case "member-lost":
            return f"{member} is lost, with {_count(context['active'], 'job')}: {reason}"
        case "member-ended":
            left = context["unended"] + context["unseen"]
            had = f"; {_count(left, 'job')} had not ended" if left else ""
            return f"{member} has ended: {reason}{had}"
        case _:
            return f"{context['group']}: {reason}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s'[: number != 1]}"
