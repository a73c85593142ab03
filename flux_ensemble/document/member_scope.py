"""Rules with `scope: member`: what makes no sense in them, and what to write in its place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from flux_ensemble.document.problems import Path

#: The triggers that have nothing to do with one member -> what to do.
_INSTEAD = {
    "start": "write 'trigger: member-up', which is for each member that comes up",
    "timer": "write 'trigger: heartbeat' with a 'cooldown', or 'job-running'",
    "time-left": "write 'trigger: member-draining', or 'when: time.left < 600' at a heartbeat",
    "idle": "nobody knows that no more jobs come to a member; write 'job-*'",
    "drift": "its detector takes in the values of all members; leave out the scope",
    "anomaly": "its detector takes in the values of all members; leave out the scope",
    "search-done": "a search is of the ensemble; leave out the scope",
    "scale-done": "requests are of the ensemble; leave out the scope",
    "scale-denied": "requests are of the ensemble; leave out the scope",
}

#: The triggers of a member that takes no jobs any more.
_CLOSED = ("member-draining", "member-lost")


def wrong(
    entry: Mapping[str, Any], triggers: Sequence[str], pools: Collection[str]
) -> Iterator[tuple[Path, str]]:
    """What is wrong with a rule that has `scope: member`: places in its entry, and sentences.

    Args:
        entry: the rule.
        triggers: its triggers under their present names.
        pools: the names of the pools of members.

    >>> entry = {"trigger": "start", "scope": "member", "action": {"name": "terminate"}}
    >>> [place for place, _ in wrong(entry, ["start"], ["pool"])]
    [('trigger',)]
    """
    if not pools:
        yield (
            ("scope",),
            "'member' is each of the members, and the document has no 'members'; leave it out",
        )
    for trigger in triggers:
        if trigger in _INSTEAD:
            yield (
                ("trigger",),
                f"{trigger!r} cannot be seen of one member ('scope: member'): {_INSTEAD[trigger]}",
            )
    for place, action in _actions(entry):
        if "near" in action:
            yield (
                (*place, "near"),
                "'near' means nothing with 'scope: member', whose jobs run on that member",
            )
        if action.get("name") == "submit" and triggers and triggers[0] in _CLOSED:
            yield (
                place,
                f"no job can run on the member any more at {triggers[0]!r}; "
                "leave out 'scope: member', and the jobs run on others",
            )


def _actions(entry: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    if isinstance(entry.get("action"), Mapping):
        yield ("action",), entry["action"]
    for index, action in enumerate(entry.get("actions") or ()):
        if isinstance(action, Mapping):
            yield ("actions", index), action
