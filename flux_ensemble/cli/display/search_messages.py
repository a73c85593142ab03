"""Log entries about searches, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flux_ensemble.client.responses import Entry

#: Ends of the job of a trial, by its outcome; other reasons are sentences.
_ENDED = {
    "failed": "failed",
    "timeout": "timed out",
    "canceled": "was canceled",
    "interrupted": "was interrupted",
}


def search_sentence(entry: Entry) -> str:
    """Return an entry about a search as one sentence."""
    context = entry["context"]
    search = context["search"]
    match entry["name"]:
        case "ask":
            first, points = context["first"], context["points"]
            which = f"trial {first}" if points == 1 else f"trials {first} to {first + points - 1}"
            what = f"points of {which}" if points else "no points"
            return f"{search}: {what}, {context['ended']} ended before"
        case "ask-failed":
            return f"{context['reason']} (try {context['tries']})"
        case "pruned":
            at, value = f"step {context['step']:g}", f"{context['value']:.6g}"
            return f"{search}: trial {context['trial']} is stopped at {at}, with {value}"
        case "trial-failed":
            trial, reason = context["trial"], context["reason"]
            ended = _ENDED.get(reason)
            if ended is not None:
                return f"{search}: the job of trial {trial} {ended}"
            return f"{search}: trial {trial} failed: {reason}"
        case _:
            counts = f"{context['complete']} complete, {context['failed']} failed"
            if "pruned" in context:
                counts += f", {context['pruned']} stopped early"
            best = context.get("best")
            found = "" if best is None else f", best {best['value']:.6g} (trial {best['trial']})"
            if "front" in context:
                found = f", {context['front']} in the Pareto front"
            return f"{search}: done ({context['reason']}): {counts}{found}"
